"""Who is told of what: each event goes to the sessions whose bot sees the place and whose intents ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.simulators.discord.gateway import GUILDS, Gateway, Session
from tests.simulators.discord.places import CONTENT, Bot, Channel, Guild, Places
from tests.simulators.discord.shapes import Shapes, emoji_of
from tests.simulators.discord.truth import Interaction, Message

# In guilds, and in private.
MESSAGES, REACTIONS, TYPING = (1 << 9, 1 << 12), (1 << 10, 1 << 13), (1 << 11, 1 << 14)

Shape = Callable[[Bot, Session], Any]


class News:
    def __init__(self, places: Places, shapes: Shapes, gateway: Gateway) -> None:
        self._places = places
        self._shapes = shapes
        self._gateway = gateway

    def created(self, message: Message) -> int:
        """Returns how many sessions were told."""
        channel = self._places.channels[message.channel]
        channel.last_message = message.id
        channel.messages += 1
        return self._of_message("MESSAGE_CREATE", message)

    def told_again(self, message: Message) -> int:
        return self._of_message("MESSAGE_CREATE", message)

    def updated(self, message: Message) -> None:
        self._of_message("MESSAGE_UPDATE", message)

    def deleted(self, message: Message) -> None:
        channel = self._places.channels[message.channel]
        data = {"id": message.id, "channel_id": channel.id} | _guild(channel)
        self._tell("MESSAGE_DELETE", channel, MESSAGES, lambda bot, session: data, message.only_for, message.account)

    def purged(self, channel: Channel, messages: Iterable[Message]) -> None:
        data = {"ids": [message.id for message in messages], "channel_id": channel.id} | _guild(channel)
        self._tell("MESSAGE_DELETE_BULK", channel, MESSAGES, lambda bot, session: data)

    def reacted(self, message: Message, emoji: str, user: str, on: bool) -> None:
        channel = self._places.channels[message.channel]
        data = {
            "user_id": user,
            "channel_id": channel.id,
            "message_id": message.id,
            "emoji": emoji_of(emoji),
            "burst": False,
            "type": 0,
        } | _guild(channel)
        if on:
            data["message_author_id"] = message.author
            if channel.guild:
                data["member"] = self._shapes.whole_member(self._places.guilds[channel.guild], user)
        name = "MESSAGE_REACTION_ADD" if on else "MESSAGE_REACTION_REMOVE"
        self._tell(name, channel, REACTIONS, lambda bot, session: data)

    def typing(self, channel: Channel, user: str) -> None:
        data: dict[str, Any] = {"channel_id": channel.id, "user_id": user, "timestamp": int(self._places.wall())}
        if channel.guild:
            data |= _guild(channel)
            data["member"] = self._shapes.whole_member(self._places.guilds[channel.guild], user)
        self._tell("TYPING_START", channel, TYPING, lambda bot, session: data)

    def channel_made(self, channel: Channel) -> None:
        name = "THREAD_CREATE" if channel.is_thread else "CHANNEL_CREATE"
        new = {"newly_created": True} if channel.is_thread else {}
        self._of_guild(name, channel.guild, lambda bot, session: self._shapes.channel(channel, bot) | new, channel)

    def channel_changed(self, channel: Channel) -> None:
        name = "THREAD_UPDATE" if channel.is_thread else "CHANNEL_UPDATE"
        self._of_guild(name, channel.guild, lambda bot, session: self._shapes.channel(channel, bot))

    def channel_gone(self, channel: Channel) -> None:
        if channel.is_thread:
            ids = {"id": channel.id, "guild_id": channel.guild, "parent_id": channel.parent, "type": channel.kind}
            self._of_guild("THREAD_DELETE", channel.guild, lambda bot, session: ids)
        else:
            shown = self._shapes.channel
            self._of_guild("CHANNEL_DELETE", channel.guild, lambda bot, session: shown(channel, bot))

    def joined(self, guild: Guild, bot: Bot, *, is_new: bool = True) -> None:
        """A guild that was there before says that it is available again."""
        shown = self._shapes.guild(guild, bot)
        if is_new:
            del shown["unavailable"]
        for session in self._gateway.told_to(bot.account, guild.id, GUILDS):
            self._gateway.dispatch(session, "GUILD_CREATE", shown)

    def left(self, guild: Guild, bot: Bot, *, is_outage: bool = False) -> None:
        gone = {"id": guild.id} | ({"unavailable": True} if is_outage else {})
        for session in self._gateway.told_to(bot.account, guild.id, GUILDS):
            self._gateway.dispatch(session, "GUILD_DELETE", gone)

    def asked(self, asked: Interaction) -> int:
        """Nobody needs an intent for this. Returns how many were told."""
        bot = self._places.bot(asked.account)
        channel = self._places.channels[asked.channel]
        told = self._gateway.told_to(asked.account, channel.guild, 0)
        for session in told:
            self._gateway.dispatch(session, "INTERACTION_CREATE", self._shapes.interaction(asked, bot))
        return len(told)

    def odd(self, account: str, name: str, data: Any) -> None:
        for session in self._gateway.alive(account):
            self._gateway.dispatch(session, name, data)

    # How it is done.

    def _of_message(self, name: str, message: Message) -> int:
        def shape(bot: Bot, session: Session) -> Any:
            reads = bool(session.intents & CONTENT)
            return self._shapes.message(message, bot, reads_content=reads, event=True)

        channel = self._places.channels[message.channel]
        # By lot some are told twice, and some connections end just then.
        may_repeat = name == "MESSAGE_CREATE" and not message.account
        again = may_repeat and self._gateway.befalls("duplicate", self._places.lane(channel.id))
        told = 0
        for _ in range(2 if again else 1):
            told = self._tell(name, channel, MESSAGES, shape, message.only_for, message.account)
        if may_repeat and self._gateway.befalls("cut", self._places.lane(channel.id)):
            for account in self._places.bots:
                self._gateway.abort(account)
        return told

    def _tell(
        self,
        name: str,
        channel: Channel,
        intents: tuple[int, int],
        shape: Shape,
        only_for: str = "",
        author: str = "",
    ) -> int:
        """What only one person sees is told to the bot that wrote it, as if it were private."""
        told = 0
        for bot in self._places.bots.values():
            if only_for and bot.account != author:
                continue
            if not only_for and not self._places.sees(bot, channel):
                continue
            is_private = channel.is_private or bool(only_for)
            for session in self._gateway.told_to(bot.account, "" if is_private else channel.guild, intents[is_private]):
                self._gateway.dispatch(session, name, shape(bot, session))
                told += 1
        return told

    def _of_guild(self, name: str, guild: str, shape: Shape, seen: Channel | None = None) -> None:
        for account in self._places.guilds[guild].bots:
            bot = self._places.bot(account)
            if seen is not None and not self._places.sees(bot, seen):
                continue
            for session in self._gateway.told_to(account, guild, GUILDS):
                self._gateway.dispatch(session, name, shape(bot, session))


def _guild(channel: Channel) -> dict[str, Any]:
    return {"guild_id": channel.guild} if channel.guild else {}
