"""Discord's places: guilds, channels, threads and private channels, who is in them, and who may do what there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.simulators.discord.refusals import (
    Refusal,
    archived,
    no_access,
    no_permission,
    unknown_channel,
    unknown_message,
)
from tests.simulators.discord.truth import Message, Truth
from tidings.core.clock import Clock

# The first millisecond that an id can tell.
EPOCH_SECONDS = 1_420_070_400
TEXT, PRIVATE, THREAD, PRIVATE_THREAD = 0, 1, 11, 12
THREADS = (THREAD, PRIVATE_THREAD)

PERMISSIONS = {
    "add_reactions": 1 << 6,
    "view_channel": 1 << 10,
    "send_messages": 1 << 11,
    "manage_messages": 1 << 13,
    "embed_links": 1 << 14,
    "attach_files": 1 << 15,
    "read_message_history": 1 << 16,
    "mention_everyone": 1 << 17,
    "use_application_commands": 1 << 31,
    "manage_threads": 1 << 34,
    "create_public_threads": 1 << 35,
    "create_private_threads": 1 << 36,
    "send_messages_in_threads": 1 << 38,
}
# What a bot is given when it is invited with care; whoever may mention all is the harder to keep from it.
GRANTED = sum(bit for name, bit in PERMISSIONS.items() if name not in ("manage_messages", "manage_threads"))

PRESENCES, MEMBERS, CONTENT = 1 << 8, 1 << 1, 1 << 15
PRIVILEGED = {"presences": PRESENCES, "members": MEMBERS, "message_content": CONTENT}


@dataclass(slots=True)
class User:
    id: str
    name: str
    is_bot: bool = False
    # Accounts whose private messages this person does not take.
    blocked: set[str] = field(default_factory=set)
    is_webhook: bool = False


@dataclass(slots=True)
class Bot:
    account: str
    id: str
    token: str
    name: str
    # Privileged intents that the developer portal has switched on.
    portal: int
    # By guild, empty for those that are everywhere.
    commands: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    # Steady times of each IDENTIFY that was taken.
    identifies: list[float] = field(default_factory=list)

    @property
    def reads_content(self) -> bool:
        return bool(self.portal & CONTENT)


@dataclass(slots=True)
class Guild:
    id: str
    name: str
    # Accounts of the bots that are in it.
    bots: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    # Names of roles by their ids, and who has them.
    roles: dict[str, str] = field(default_factory=dict)
    holders: dict[str, set[str]] = field(default_factory=dict)
    joined_at: float = 0.0

    def roles_of(self, user: str) -> list[str]:
        return [role for role, holders in self.holders.items() if user in holders]


@dataclass(slots=True)
class Channel:
    id: str
    kind: int
    name: str = ""
    guild: str = ""
    # The channel in which a thread stands.
    parent: str = ""
    owner: str = ""
    # The two ends of a private channel.
    account: str = ""
    person: str = ""
    # Permission bits taken from each bot.
    denied: dict[str, int] = field(default_factory=dict)
    is_archived: bool = False
    is_locked: bool = False
    archive_minutes: int = 1440
    last_message: str = ""
    messages: int = 0
    created_at: float = 0.0
    # Accounts of the bots that have joined a thread.
    joined: set[str] = field(default_factory=set)

    @property
    def is_thread(self) -> bool:
        return self.kind in THREADS

    @property
    def is_private(self) -> bool:
        return self.kind == PRIVATE


Id = str | int
Where = Id | Channel


class Places:
    """Who and what exists, and the doors with the platform's own words on them."""

    def __init__(self, truth: Truth, clock: Clock) -> None:
        self.truth = truth
        self.clock = clock
        self.users: dict[str, User] = {}
        self.bots: dict[str, Bot] = {}
        self.guilds: dict[str, Guild] = {}
        self.channels: dict[str, Channel] = {}
        # How far the platform's dates are ahead of its clock.
        self.skew = 0.0
        self._last_id = 0

    def wall(self) -> float:
        return self.clock.wall() + self.skew

    def new_id(self) -> str:
        """Later is greater, even where two things happen in one millisecond or the clock goes back."""
        moment = int((self.wall() - EPOCH_SECONDS) * 1000) << 22
        self._last_id = max(self._last_id + 1, moment)
        return str(self._last_id)

    def bot(self, account: str) -> Bot:
        return self.bots[account]

    def bot_by_token(self, token: str) -> Bot | None:
        return next((bot for bot in self.bots.values() if bot.token == token), None)

    def bot_by_id(self, id: str) -> Bot | None:
        return next((bot for bot in self.bots.values() if bot.id == id), None)

    def user(self, id: str) -> User | None:
        bot = self.bot_by_id(id)
        return User(bot.id, bot.name, is_bot=True) if bot is not None else self.users.get(id)

    def channel(self, where: Where) -> Channel:
        """For whoever plays people: a wrong name is a fault of the test."""
        id = where.id if isinstance(where, Channel) else str(where)
        if id not in self.channels:
            raise LookupError(f"there is no channel {id}")
        return self.channels[id]

    def message(self, id: Id) -> Message:
        message = self.truth.messages.get(str(id))
        if message is None or message.deleted_at:
            raise LookupError(f"there is no message {id}")
        return message

    def private(self, account: str, person: str) -> Channel:
        for channel in self.channels.values():
            if (channel.account, channel.person) == (account, person):
                return channel
        return self.add(Channel(self.new_id(), PRIVATE, account=account, person=person))

    def add(self, channel: Channel) -> Channel:
        channel.created_at = self.wall()
        self.channels[channel.id] = channel
        return channel

    def lane(self, id: str) -> str:
        """A name that is the same in each run of a story, unlike ids."""
        channel = self.channels.get(id)
        if channel is None:
            return ""
        if channel.is_private:
            return f"{channel.account}/{self.users[channel.person].name}"
        return f"{self.lane(channel.parent)}/{channel.name}" if channel.is_thread else channel.name

    def threads(self, guild: str = "", parent: str = "") -> list[Channel]:
        threads = [each for each in self.channels.values() if each.is_thread]
        return [each for each in threads if guild in ("", each.guild) and parent in ("", each.parent)]

    # Doors.

    def may(self, bot: Bot, channel: Channel, *names: str) -> bool:
        """Threads have the permissions of the channel in which they stand."""
        if channel.is_private:
            return all(not name.startswith("manage") for name in names)
        place = self.channels.get(channel.parent, channel)
        bits = GRANTED & ~place.denied.get(bot.account, 0)
        return all(bits & PERMISSIONS[name] for name in names)

    def sees(self, bot: Bot, channel: Channel) -> bool:
        if channel.is_private:
            return channel.account == bot.account
        guild = self.guilds.get(channel.guild)
        if guild is None or bot.account not in guild.bots or not self.may(bot, channel, "view_channel"):
            return False
        return channel.kind != PRIVATE_THREAD or bot.account in channel.joined

    def enter(self, bot: Bot, id: str, *names: str) -> Channel:
        """The channel that a call names, if the bot may do these things there."""
        channel = self.channels.get(id)
        if channel is None or (channel.is_private and channel.account != bot.account):
            raise unknown_channel()
        if not self.sees(bot, channel):
            raise no_access()
        if not self.may(bot, channel, *names):
            raise no_permission()
        return channel

    def enter_to_write(self, bot: Bot, id: str) -> Channel:
        channel = self.enter(bot, id)
        if not self.may(bot, channel, "send_messages_in_threads" if channel.is_thread else "send_messages"):
            raise no_permission()
        if channel.is_private and bot.account in self.users[channel.person].blocked:
            raise Refusal(403, 50007, "Cannot send messages to this user")
        if channel.is_locked:
            raise archived()
        return channel

    def enter_open(self, bot: Bot, id: str, *names: str) -> Channel:
        """Where something that stands may be changed: not in a thread that is archived."""
        channel = self.enter(bot, id, *names)
        if channel.is_archived:
            raise archived()
        return channel

    def standing(self, channel: Channel, id: str) -> Message:
        message = self.truth.find(channel.id, id)
        if message is None or message.only_for:
            raise unknown_message()
        return message
