"""Discord's routes: each has a word by which the simulator, its faults and its tests know it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.simulators.discord.places import Bot
from tests.simulators.discord.refusals import Upload, invalid

ROOT = "/api/v10"
MESSAGE = "/channels/{channel}/messages/{message}"
HOOK = "/webhooks/{application}/{token}"
COMMANDS = "/applications/{application}/commands"
GUILD_COMMANDS = "/applications/{application}/guilds/{guild}/commands"
TABLE = (
    ("GET", "/users/@me", "me"),
    ("GET", "/users/@me/guilds", "my_guilds"),
    ("POST", "/users/@me/channels", "open_private"),
    ("GET", "/users/{user}", "user"),
    ("GET", "/applications/@me", "application"),
    ("GET", "/oauth2/applications/@me", "application"),
    ("GET", "/gateway", "gateway"),
    ("GET", "/gateway/bot", "gateway_bot"),
    ("GET", "/guilds/{guild}", "guild"),
    ("GET", "/guilds/{guild}/channels", "guild_channels"),
    ("GET", "/guilds/{guild}/threads/active", "active_threads"),
    ("GET", "/channels/{channel}", "channel"),
    ("PATCH", "/channels/{channel}", "change_channel"),
    ("DELETE", "/channels/{channel}", "delete_channel"),
    ("POST", "/channels/{channel}/messages", "send"),
    ("GET", "/channels/{channel}/messages", "history"),
    ("GET", MESSAGE, "message"),
    ("PATCH", MESSAGE, "edit"),
    ("DELETE", MESSAGE, "delete"),
    ("POST", "/channels/{channel}/typing", "typing"),
    ("PUT", f"{MESSAGE}/reactions/{{emoji}}/@me", "react"),
    ("DELETE", f"{MESSAGE}/reactions/{{emoji}}/@me", "unreact"),
    ("GET", f"{MESSAGE}/reactions/{{emoji}}", "reactions"),
    ("POST", f"{MESSAGE}/threads", "thread_from"),
    ("POST", "/channels/{channel}/threads", "thread"),
    ("GET", "/channels/{channel}/threads/archived/public", "archived_threads"),
    ("PUT", "/channels/{channel}/thread-members/@me", "join_thread"),
    ("PUT", COMMANDS, "commands"),
    ("GET", COMMANDS, "list_commands"),
    ("POST", COMMANDS, "add_command"),
    ("DELETE", f"{COMMANDS}/{{command}}", "remove_command"),
    ("PUT", GUILD_COMMANDS, "commands"),
    ("GET", GUILD_COMMANDS, "list_commands"),
    ("POST", GUILD_COMMANDS, "add_command"),
    ("DELETE", f"{GUILD_COMMANDS}/{{command}}", "remove_command"),
    ("POST", "/interactions/{interaction}/{token}/callback", "callback"),
    ("POST", HOOK, "follow_up"),
    ("GET", f"{HOOK}/messages/@original", "original"),
    ("PATCH", f"{HOOK}/messages/@original", "edit_original"),
    ("DELETE", f"{HOOK}/messages/@original", "delete_original"),
    ("GET", f"{HOOK}/messages/{{message}}", "read_follow_up"),
    ("PATCH", f"{HOOK}/messages/{{message}}", "edit_follow_up"),
    ("DELETE", f"{HOOK}/messages/{{message}}", "delete_follow_up"),
)
# Whoever knows the token in the path needs no other.
OPEN = {"callback", "follow_up", "gateway"} | {word for _, path, word in TABLE if path.startswith(f"{HOOK}/")}
_ROUTES = [
    (verb, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)), word)
    for verb, path, word in sorted(TABLE, key=lambda row: row[1].count("{"))
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One call, as far as it is understood."""

    caller: Bot | None
    at: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    uploads: Mapping[str, Upload]

    @property
    def bot(self) -> Bot:
        assert self.caller is not None
        return self.caller

    @property
    def form(self) -> Mapping[str, Any]:
        if not isinstance(self.body, dict):
            raise invalid("", "DICT_TYPE_CONVERT", "Only dictionaries may be used in a DictType")
        return self.body


class Reply(NamedTuple):
    status: int
    body: Any = None


Handler = Callable[[Ask], Reply]


def find(verb: str, path: str) -> tuple[str, dict[str, str]] | None:
    """The route's word and what stands in its path; the path comes without its root, and still quoted."""
    for each, pattern, word in _ROUTES:
        if each == verb and (found := pattern.fullmatch(path)):
            return word, found.groupdict()
    return None
