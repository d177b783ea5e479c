"""Discord's calls about the bot itself: who it is, where its gateway is, and which commands it offers."""

from __future__ import annotations

import re
from typing import Any

from tests.simulators.discord.gateway import DAY_SECONDS, Gateway
from tests.simulators.discord.places import Bot, Places
from tests.simulators.discord.refusals import Refusal, invalid, no_access, required, too_long
from tests.simulators.discord.routes import Ask, Handler, Reply
from tests.simulators.discord.shapes import Shapes
from tests.simulators.discord.truth import Truth

COMMANDS = 100
DESCRIPTION_LENGTH = 100
_NAME = re.compile(r"[-_'\w]{1,32}")


class About:
    def __init__(self, places: Places, shapes: Shapes, gateway: Gateway) -> None:
        self._places = places
        self._shapes = shapes
        self._gateway = gateway
        self._truth: Truth = places.truth

    @property
    def handlers(self) -> dict[str, Handler]:
        return {
            "me": lambda ask: Reply(200, self._shapes.me(ask.bot)),
            "user": self.user,
            "application": lambda ask: Reply(200, self._shapes.application(ask.bot)),
            "gateway": lambda ask: Reply(200, {"url": self._gateway.url}),
            "gateway_bot": self.gateway_bot,
            "commands": self.put_commands,
            "list_commands": lambda ask: Reply(200, self._commands(ask)),
            "add_command": self.add_command,
            "remove_command": self.remove_command,
        }

    def user(self, ask: Ask) -> Reply:
        user = self._places.user(ask.at["user"])
        if user is None or user.is_webhook:
            raise Refusal(404, 10013, "Unknown User")
        return Reply(200, self._shapes.user(user))

    def gateway_bot(self, ask: Ask) -> Reply:
        used = self._gateway.identified(ask.bot)
        first = ask.bot.identifies[-used] if used else self._places.clock.now()
        left = max(0.0, first + DAY_SECONDS - self._places.clock.now()) if used else 0.0
        limit = {
            "total": self._gateway.identify_limit,
            "remaining": max(0, self._gateway.identify_limit - used),
            "reset_after": int(left * 1000),
            "max_concurrency": 1,
        }
        return Reply(200, {"url": self._gateway.url, "shards": 1, "session_start_limit": limit})

    def put_commands(self, ask: Ask) -> Reply:
        """They replace all that stood there; those that keep their names keep their ids."""
        if not isinstance(ask.body, list):
            raise invalid("", "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
        if len(ask.body) > COMMANDS:
            raise Refusal(400, 30032, f"Maximum number of application commands reached ({COMMANDS}).")
        standing = self._commands(ask)
        names = [each.get("name") for each in ask.body]
        for place, each in enumerate(ask.body):
            self._check(each, f"{place}.")
            if names.count(each["name"]) > 1:
                message = "Application command names must be unique"
                raise invalid(f"{place}.name", "APPLICATION_COMMANDS_DUPLICATE_NAME", message)
        made = [self._made(ask, each, standing) for each in ask.body]
        standing[:] = made
        self._truth.log("commands", ask.bot.account, text=", ".join(each["name"] for each in made))
        return Reply(200, made)

    def add_command(self, ask: Ask) -> Reply:
        self._check(ask.form, "")
        standing = self._commands(ask)
        made = self._made(ask, dict(ask.form), standing)
        is_new = all(each["id"] != made["id"] for each in standing)
        standing[:] = [*(each for each in standing if each["id"] != made["id"]), made]
        self._truth.log("commands", ask.bot.account, text=made["name"])
        return Reply(201 if is_new else 200, made)

    def remove_command(self, ask: Ask) -> Reply:
        standing = self._commands(ask)
        kept = [each for each in standing if each["id"] != ask.at["command"]]
        if len(kept) == len(standing):
            raise Refusal(404, 10063, "Unknown application command")
        standing[:] = kept
        return Reply(204)

    def _commands(self, ask: Ask) -> list[dict[str, Any]]:
        bot: Bot = ask.bot
        if ask.at["application"] != bot.id:
            raise Refusal(403, 20012, "You are not authorized to perform this action on this application")
        guild = ask.at.get("guild", "")
        if guild and (guild not in self._places.guilds or bot.account not in self._places.guilds[guild].bots):
            raise no_access()
        return bot.commands.setdefault(guild, [])

    def _made(self, ask: Ask, wanted: dict[str, Any], standing: list[dict[str, Any]]) -> dict[str, Any]:
        known = next((each for each in standing if each["name"] == wanted["name"]), None)
        guild = {"guild_id": ask.at["guild"]} if "guild" in ask.at else {}
        defaults = {"type": 1, "options": [], "dm_permission": True, "nsfw": False, "default_member_permissions": None}
        id = known["id"] if known else self._places.new_id()
        return {**defaults, **wanted, **guild, "id": id, "application_id": ask.bot.id, "version": id}

    def _check(self, command: Any, path: str) -> None:
        name, kind = str(command.get("name") or ""), command.get("type", 1)
        if not name:
            raise required(f"{path}name")
        if not _NAME.fullmatch(name) or (kind == 1 and name != name.lower()):
            message = "Command name is invalid"
            raise invalid(f"{path}name", "APPLICATION_COMMAND_INVALID_NAME", message)
        if kind == 1 and not command.get("description"):
            raise required(f"{path}description")
        if len(str(command.get("description") or "")) > DESCRIPTION_LENGTH:
            raise too_long(f"{path}description", DESCRIPTION_LENGTH)
