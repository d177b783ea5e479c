"""Discord's calls about channels and threads: open, read, change and remove them, and start private ones."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.simulators.discord.news import News
from tests.simulators.discord.places import PRIVATE_THREAD, THREAD, Bot, Channel, Places
from tests.simulators.discord.refusals import Refusal, invalid, no_access, no_permission, required, unsimulated
from tests.simulators.discord.routes import Ask, Handler, Reply
from tests.simulators.discord.shapes import Shapes
from tests.simulators.discord.truth import Message, Truth

NAME_LENGTH = 100
ARCHIVE_MINUTES = (60, 1440, 4320, 10080)
THREAD_CREATED, THREAD_STARTER = 18, 21


class Threads:
    def __init__(self, places: Places, shapes: Shapes, news: News) -> None:
        self._places = places
        self._shapes = shapes
        self._news = news
        self._truth: Truth = places.truth

    @property
    def handlers(self) -> dict[str, Handler]:
        return {
            "channel": self.channel,
            "change_channel": self.change,
            "delete_channel": self.delete,
            "open_private": self.open_private,
            "thread_from": self.thread_from,
            "thread": self.thread,
            "join_thread": self.join,
            "active_threads": self.active,
            "archived_threads": self.archived,
            "guild": self.guild,
            "guild_channels": self.guild_channels,
            "my_guilds": self.my_guilds,
        }

    def channel(self, ask: Ask) -> Reply:
        channel = self._places.enter(ask.bot, ask.at["channel"])
        return Reply(200, self._shapes.channel(channel, ask.bot))

    def open_private(self, ask: Ask) -> Reply:
        user = self._places.users.get(str(ask.form.get("recipient_id")))
        if user is None:
            raise Refusal(400, 50033, "Invalid Recipient(s)")
        if user.is_bot:
            raise Refusal(400, 50007, "Cannot send messages to this user")
        channel = self._places.private(ask.bot.account, user.id)
        return Reply(200, self._shapes.channel(channel, ask.bot))

    def thread_from(self, ask: Ask) -> Reply:
        channel = self._places.enter(ask.bot, ask.at["channel"], "create_public_threads")
        if channel.is_private or channel.is_thread:
            raise Refusal(400, 50024, "Cannot execute action on this channel type")
        message = self._places.standing(channel, ask.at["message"])
        name, minutes = _thread_form(ask)
        if message.id in self._places.channels:
            raise Refusal(400, 160004, "A thread has already been created for this message")
        thread = self.open(channel, name, ask.bot.id, ask.bot.account, message, minutes=minutes)
        return Reply(201, self._shapes.channel(thread, ask.bot))

    def thread(self, ask: Ask) -> Reply:
        channel = self._places.enter(ask.bot, ask.at["channel"])
        if channel.is_private or channel.is_thread:
            raise Refusal(400, 50024, "Cannot execute action on this channel type")
        kind = ask.form.get("type", PRIVATE_THREAD)
        if kind not in (THREAD, PRIVATE_THREAD):
            raise invalid("type", "BASE_TYPE_CHOICES", "Value must be one of {10, 11, 12}.")
        permission = "create_public_threads" if kind == THREAD else "create_private_threads"
        if not self._places.may(ask.bot, channel, permission):
            raise no_permission()
        name, minutes = _thread_form(ask)
        thread = self.open(channel, name, ask.bot.id, ask.bot.account, minutes=minutes, kind=kind)
        return Reply(201, self._shapes.channel(thread, ask.bot))

    def open(
        self,
        channel: Channel,
        name: str,
        owner: str,
        account: str = "",
        message: Message | None = None,
        *,
        minutes: int = 1440,
        kind: int = THREAD,
    ) -> Channel:
        """A thread of a message has that message's id. Both kinds leave a note in Discord's own name."""
        id = message.id if message else self._places.new_id()
        thread = Channel(id, kind, name, channel.guild, channel.id, owner, archive_minutes=minutes)
        # Bots take part in what they may see from the first moment; their threads are theirs.
        thread.joined |= {account} if account else set()
        self._places.add(thread)
        self._truth.log("thread", account, channel=channel.id, message=id, text=name)
        self._news.channel_made(thread)
        if message is not None:
            self._news.updated(message)
            self._note(thread, THREAD_STARTER, "", owner, account, message.id)
        elif kind == THREAD:
            self._note(channel, THREAD_CREATED, name, owner, account)
        return thread

    def _note(self, channel: Channel, kind: int, text: str, author: str, account: str, about: str = "") -> None:
        note = Message(
            id=self._places.new_id(),
            channel=channel.id,
            author=author,
            account=account,
            text=text,
            at=self._places.wall(),
            order=len(self._truth.effects) + 1,
            kind=kind,
            reply_to=about,
        )
        self._news.created(self._truth.keep(note))

    def change(self, ask: Ask) -> Reply:
        channel = self._places.enter(ask.bot, ask.at["channel"])
        if not channel.is_thread:
            raise unsimulated("changes of channels that are no threads")
        is_own, form = channel.owner == ask.bot.id, ask.form
        opens = set(form) <= {"archived"} and form.get("archived") is False and not channel.is_locked
        if not (is_own or opens or self._places.may(ask.bot, channel, "manage_threads")):
            raise no_permission()
        if channel.is_archived and form.get("archived") is not False:
            raise Refusal(400, 50083, "Thread is archived")
        channel.name = str(form.get("name") or channel.name)
        self.set_state(
            channel, archived=form.get("archived", channel.is_archived), locked=form.get("locked", channel.is_locked)
        )
        return Reply(200, self._shapes.channel(channel, ask.bot))

    def set_state(self, thread: Channel, *, archived: bool, locked: bool) -> None:
        thread.is_archived, thread.is_locked = archived, locked
        self._news.channel_changed(thread)

    def delete(self, ask: Ask) -> Reply:
        channel = self._places.enter(ask.bot, ask.at["channel"])
        if channel.is_private:
            raise unsimulated("closing of private channels")
        if not channel.is_thread or not self._places.may(ask.bot, channel, "manage_threads"):
            raise no_permission()
        shown = self._shapes.channel(channel, ask.bot)
        self.remove(channel)
        return Reply(200, shown)

    def remove(self, channel: Channel) -> None:
        for thread in self._places.threads(parent=channel.id):
            self.remove(thread)
        self._news.channel_gone(channel)
        for message in self._truth.history(channel.id):
            self._truth.keep(replace(message, deleted_at=self._places.wall()))
        del self._places.channels[channel.id]
        self._truth.wake()

    def join(self, ask: Ask) -> Reply:
        thread = self._places.enter_open(ask.bot, ask.at["channel"])
        thread.joined.add(ask.bot.account)
        return Reply(204)

    def active(self, ask: Ask) -> Reply:
        self._guild(ask)
        found = [each for each in self._places.threads(guild=ask.at["guild"]) if not each.is_archived]
        return Reply(200, self._list(found, ask.bot))

    def archived(self, ask: Ask) -> Reply:
        channel = self._places.enter(ask.bot, ask.at["channel"], "read_message_history")
        found = [each for each in self._places.threads(parent=channel.id) if each.is_archived and each.kind == THREAD]
        return Reply(200, self._list(found, ask.bot) | {"has_more": False})

    def _list(self, threads: list[Channel], bot: Bot) -> dict[str, Any]:
        shown = [self._shapes.channel(each, bot) for each in reversed(threads) if self._places.sees(bot, each)]
        return {"threads": shown, "members": [each["member"] for each in shown if "member" in each]}

    def _guild(self, ask: Ask) -> None:
        guild = self._places.guilds.get(ask.at["guild"])
        if guild is None:
            raise Refusal(404, 10004, "Unknown Guild")
        if ask.bot.account not in guild.bots:
            raise no_access()

    def guild(self, ask: Ask) -> Reply:
        self._guild(ask)
        shown = self._shapes.guild(self._places.guilds[ask.at["guild"]], ask.bot)
        live = ("channels", "threads", "members", "presences", "voice_states", "unavailable", "member_count", "large")
        return Reply(200, {name: value for name, value in shown.items() if name not in live})

    def guild_channels(self, ask: Ask) -> Reply:
        self._guild(ask)
        return Reply(200, self._shapes.guild(self._places.guilds[ask.at["guild"]], ask.bot)["channels"])

    def my_guilds(self, ask: Ask) -> Reply:
        mine = [guild for guild in self._places.guilds.values() if ask.bot.account in guild.bots]
        return Reply(200, [{"id": guild.id, "name": guild.name, "icon": None, "owner": False} for guild in mine])


def _thread_form(ask: Ask) -> tuple[str, int]:
    name = str(ask.form.get("name") or "")
    if not name:
        raise required("name")
    if len(name) > NAME_LENGTH:
        raise invalid("name", "BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {NAME_LENGTH} in length.")
    minutes = ask.form.get("auto_archive_duration") or 1440
    if minutes not in ARCHIVE_MINUTES:
        raise invalid("auto_archive_duration", "BASE_TYPE_CHOICES", f"Value must be one of {ARCHIVE_MINUTES}.")
    return name, int(minutes)
