"""Discord's calls about messages: post, read, edit and remove them, react, and show that one types."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from tests.simulators.discord.arguments import (
    FILE_SECONDS,
    RICH,
    VOICE,
    Named,
    check_voice,
    components_of,
    content_of,
    embeds_of,
    files_of,
    named_in,
    nonce_of,
)
from tests.simulators.discord.news import News
from tests.simulators.discord.places import Bot, Channel, Places
from tests.simulators.discord.refusals import Refusal, Upload, invalid, no_permission, unsimulated
from tests.simulators.discord.routes import Ask, Handler, Reply
from tests.simulators.discord.shapes import Shapes
from tests.simulators.discord.truth import THINKING, Edit, Message, Truth

# What a bot may ask for by flags: no previews, no sound, a voice message, rich components.
SENDABLE = 1 << 2 | 1 << 12 | VOICE | RICH
EDITABLE = 1 << 2 | RICH
REACTIONS = 20
PAGE, DEFAULT_PAGE = 100, 50


class Messages:
    def __init__(self, places: Places, shapes: Shapes, news: News, nonce_seconds: float) -> None:
        self._places = places
        self._shapes = shapes
        self._news = news
        self._truth: Truth = places.truth
        self.nonce_seconds = nonce_seconds
        # By author and nonce: the message, and the steady time of its posting.
        self._nonces: dict[tuple[str, str], tuple[str, float]] = {}

    @property
    def handlers(self) -> dict[str, Handler]:
        return {
            "send": self.send,
            "history": self.history,
            "message": self.message,
            "edit": self.edit,
            "delete": self.delete,
            "typing": self.typing,
            "react": self.react,
            "unreact": self.unreact,
            "reactions": self.reactions,
        }

    def shown(self, message: Message, bot: Bot) -> dict[str, Any]:
        return self._shapes.message(message, bot, reads_content=bot.reads_content)

    def send(self, ask: Ask) -> Reply:
        bot, body = ask.bot, ask.form
        channel = self._places.enter_to_write(bot, ask.at["channel"])
        self._permit(bot, channel, body, ask.uploads)
        nonce = nonce_of(body)
        # What is wrong is told first; what was posted already is not posted again.
        draft = self.draft(bot, channel, body, ask.uploads, nonce=nonce, reply_to=self._reply(bot, channel, body))
        if body.get("enforce_nonce") and nonce and (known := self._known(bot, nonce)):
            return Reply(200, self.shown(known, bot) | {"nonce": nonce})
        if channel.is_archived:
            channel.is_archived = False
            self._news.channel_changed(channel)
        message = self.post(draft)
        if nonce:
            self._nonces[bot.id, nonce] = (message.id, self._places.clock.now())
        return Reply(200, self.shown(message, bot) | ({"nonce": nonce} if nonce else {}))

    def post(self, message: Message, act: str = "post") -> Message:
        self._truth.keep(message, act)
        self._news.created(message)
        return message

    def draft(
        self,
        bot: Bot,
        channel: Channel,
        body: Mapping[str, Any],
        uploads: Mapping[str, Upload],
        *,
        nonce: str = "",
        reply_to: Message | None = None,
        kind: int = 0,
        may_be_empty: bool = False,
        flags: int = SENDABLE,
    ) -> Message:
        """Checked as a whole; nobody sees it yet."""
        text = content_of(body)
        kept = int(body.get("flags") or 0) & flags
        embeds, components = embeds_of(body), components_of(body, kept)
        files = files_of(body, uploads, self._places.new_id, self._places.wall() + FILE_SECONDS)
        if kept & VOICE:
            check_voice(text, embeds, files)
        if body.get("poll") or body.get("sticker_ids"):
            raise unsimulated("polls and stickers")
        if not (text or embeds or components or files or may_be_empty):
            raise Refusal(400, 50006, "Cannot send an empty message")
        named = self._named(channel, text, body, reply_to.author if reply_to else "")
        return Message(
            id=self._places.new_id(),
            channel=channel.id,
            author=bot.id,
            account=bot.account,
            text=text,
            at=self._places.wall(),
            order=len(self._truth.effects) + 1,
            kind=19 if reply_to else kind,
            nonce=nonce,
            flags=kept,
            files=files,
            embeds=embeds,
            components=components,
            reply_to=reply_to.id if reply_to else "",
            mentions=named.users,
            roles=named.roles,
            everyone=named.everyone,
            pings=named.pings,
        )

    def change(self, message: Message, body: Mapping[str, Any], uploads: Mapping[str, Upload]) -> Message:
        """What is not named stays. The first words of a message that was thinking are no edit, and ring."""
        channel = self._places.channels[message.channel]
        text = content_of(body) if "content" in body else message.text
        flags = message.flags | int(body.get("flags") or 0) & EDITABLE
        embeds = embeds_of(body) if "embeds" in body else message.embeds
        components = components_of(body, flags) if "components" in body else message.components
        until = self._places.wall() + FILE_SECONDS
        files = files_of(body, uploads, self._places.new_id, until, message.files)
        if not (text or embeds or components or files):
            raise Refusal(400, 50006, "Cannot send an empty message")
        replied = self._truth.messages.get(message.reply_to)
        named = self._named(channel, text, body, replied.author if replied else "")
        edit = Edit(at=self._places.wall(), text=text)
        changed = replace(
            message,
            text=text,
            flags=flags & ~THINKING,
            embeds=embeds,
            components=components,
            files=files,
            mentions=named.users,
            roles=named.roles,
            everyone=named.everyone,
            pings=named.pings if message.is_thinking else message.pings,
            edits=message.edits if message.is_thinking else (*message.edits, edit),
        )
        self._truth.keep(changed, "post" if message.is_thinking else "edit")
        self._news.updated(changed)
        return changed

    def remove(self, message: Message, act: str = "delete", *, quietly: bool = False) -> None:
        gone = self._truth.keep(replace(message, deleted_at=self._places.wall()), act)
        if not quietly:
            self._news.deleted(gone)

    def history(self, ask: Ask) -> Reply:
        channel = self._places.enter(ask.bot, ask.at["channel"])
        limit = _whole(ask.query, "limit", DEFAULT_PAGE)
        if not 1 <= limit <= PAGE:
            raise invalid("limit", "NUMBER_TYPE_MAX", f"int value should be between 1 and {PAGE}.")
        found = self._truth.history(channel.id)
        # Whoever may not read the past is not told so: there seems to be none.
        if not self._places.may(ask.bot, channel, "read_message_history"):
            found = []
        if "before" in ask.query:
            found = [message for message in found if int(message.id) < _whole(ask.query, "before")][-limit:]
        elif "after" in ask.query:
            found = [message for message in found if int(message.id) > _whole(ask.query, "after")][:limit]
        elif "around" in ask.query:
            middle = _whole(ask.query, "around")
            older = [message for message in found if int(message.id) < middle][-(limit // 2) :]
            found = older + [message for message in found if int(message.id) >= middle][: limit - len(older)]
        return Reply(200, [self.shown(message, ask.bot) for message in reversed(found[-limit:])])

    def message(self, ask: Ask) -> Reply:
        channel = self._places.enter(ask.bot, ask.at["channel"], "read_message_history")
        return Reply(200, self.shown(self._places.standing(channel, ask.at["message"]), ask.bot))

    def edit(self, ask: Ask) -> Reply:
        channel = self._places.enter_open(ask.bot, ask.at["channel"])
        message = self._places.standing(channel, ask.at["message"])
        if message.author != ask.bot.id:
            raise Refusal(403, 50005, "Cannot edit a message authored by another user")
        self._permit(ask.bot, channel, ask.form, ask.uploads)
        return Reply(200, self.shown(self.change(message, ask.form, ask.uploads), ask.bot))

    def delete(self, ask: Ask) -> Reply:
        channel = self._places.enter_open(ask.bot, ask.at["channel"])
        message = self._places.standing(channel, ask.at["message"])
        if message.author != ask.bot.id and not self._places.may(ask.bot, channel, "manage_messages"):
            raise (
                Refusal(403, 50003, "Cannot execute action on a DM channel") if channel.is_private else no_permission()
            )
        self.remove(message)
        return Reply(204)

    def typing(self, ask: Ask) -> Reply:
        channel = self._places.enter_to_write(ask.bot, ask.at["channel"])
        self._truth.log("typing", ask.bot.account, channel=channel.id)
        self._news.typing(channel, ask.bot.id)
        return Reply(204)

    def react(self, ask: Ask) -> Reply:
        channel = self._places.enter_open(ask.bot, ask.at["channel"], "read_message_history")
        message = self._places.standing(channel, ask.at["message"])
        emoji = emoji_in(ask.at["emoji"])
        known = {each for each, _ in message.reactions}
        if emoji not in known and not self._places.may(ask.bot, channel, "add_reactions"):
            raise no_permission()
        if emoji not in known and len(known) >= REACTIONS:
            raise Refusal(400, 30010, f"Maximum number of reactions reached ({REACTIONS})")
        self.set_reaction(message, emoji, ask.bot.id, ask.bot.account)
        return Reply(204)

    def unreact(self, ask: Ask) -> Reply:
        channel = self._places.enter_open(ask.bot, ask.at["channel"])
        message = self._places.standing(channel, ask.at["message"])
        self.set_reaction(message, emoji_in(ask.at["emoji"]), ask.bot.id, ask.bot.account, on=False)
        return Reply(204)

    def reactions(self, ask: Ask) -> Reply:
        channel = self._places.enter(ask.bot, ask.at["channel"], "read_message_history")
        message = self._places.standing(channel, ask.at["message"])
        emoji = emoji_in(ask.at["emoji"])
        return Reply(200, [self._shapes.user_by(user) for each, user in message.reactions if each == emoji])

    def set_reaction(self, message: Message, emoji: str, user: str, account: str = "", *, on: bool = True) -> None:
        pair = (emoji, user)
        if (pair in message.reactions) == on:
            return
        others = tuple(each for each in message.reactions if each != pair)
        changed = self._truth.keep(replace(message, reactions=(*others, pair) if on else others))
        act = "react" if on else "unreact"
        self._truth.log(act, account, channel=message.channel, message=message.id, text=emoji)
        self._news.reacted(changed, emoji, user, on)

    def _known(self, bot: Bot, nonce: str) -> Message | None:
        id, at = self._nonces.get((bot.id, nonce), ("", 0.0))
        if not id or self._places.clock.now() - at >= self.nonce_seconds:
            return None
        message = self._truth.messages[id]
        return None if message.deleted_at else message

    def _permit(self, bot: Bot, channel: Channel, body: Mapping[str, Any], uploads: Mapping[str, Upload]) -> None:
        if uploads and not self._places.may(bot, channel, "attach_files"):
            raise no_permission()
        if body.get("embeds") and not self._places.may(bot, channel, "embed_links"):
            raise no_permission()

    def _named(self, channel: Channel, text: str, body: Mapping[str, Any], replied: str) -> Named:
        guild = self._places.guilds.get(channel.guild)
        named = named_in(text, guild.roles if guild else (), body, replied)
        users = tuple(user for user in named.users if self._places.user(user) is not None)
        return named._replace(users=users, everyone=named.everyone and guild is not None)

    def _reply(self, bot: Bot, channel: Channel, body: Mapping[str, Any]) -> Message | None:
        reference = body.get("message_reference")
        if not reference:
            return None
        if reference.get("type"):
            raise unsimulated("forwarded messages")
        if str(reference.get("channel_id") or channel.id) != channel.id:
            raise invalid("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message")
        message = self._truth.find(channel.id, str(reference.get("message_id")))
        if message is None or message.only_for:
            if reference.get("fail_if_not_exists", True):
                raise invalid("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message")
            return None
        if not self._places.may(bot, channel, "read_message_history"):
            raise Refusal(400, 160002, "Cannot reply without permission to read message history")
        if message.kind not in (0, 19, 20):
            code = "REPLIES_CANNOT_REPLY_TO_SYSTEM_MESSAGE"
            raise invalid("message_reference", code, "Cannot reply to a system message")
        return message


def emoji_in(path: str) -> str:
    """As a path names it: the sign itself, or NAME:ID for a guild's own."""
    emoji = unquote(path)
    name, _, id = emoji.partition(":")
    is_own = bool(name) and id.isdigit()
    # Signs begin where the alphabets of the first plane end, but for a few.
    if not is_own and not any(ord(sign) >= 0x2000 or unicodedata.category(sign) == "So" for sign in emoji):
        raise Refusal(400, 10014, "Unknown Emoji")
    return emoji


def _whole(query: Mapping[str, str], name: str, default: int = 0) -> int:
    value = query.get(name, "")
    if value and not value.isdigit():
        raise invalid(name, "NUMBER_TYPE_COERCE", f'Value "{value}" is not snowflake.')
    return int(value) if value else default
