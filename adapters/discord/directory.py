"""What Discord has told of its places: who we are, our roles in each guild, and which channel is a thread of which."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from tidings.adapters.discord.address import STRANGE, time_of

log = logging.getLogger(__name__)

TEXT, PRIVATE, VOICE, PRIVATE_GROUP, NEWS, STAGE = 0, 1, 2, 3, 5, 13
PRIVATE_THREAD = 12
THREADS = (10, 11, PRIVATE_THREAD)
# Where people write; the rest are categories, directories and forums, whose posts are threads.
WRITTEN = (TEXT, VOICE, NEWS, STAGE, *THREADS)


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A channel, a thread or a private channel; a thread stands in its parent."""

    channel: str
    # Empty in private.
    guild: str = ""
    kind: int = TEXT
    parent: str = ""
    owner: str = ""

    @property
    def is_private(self) -> bool:
        return not self.guild

    @property
    def is_thread(self) -> bool:
        return self.kind in THREADS

    @property
    def chat(self) -> str:
        return self.parent if self.is_thread else self.channel

    @property
    def thread(self) -> str:
        return self.channel if self.is_thread else ""


class Sight(NamedTuple):
    """A place as it was told of: the id of its last message, empty where none is told, and when it was made, or 0."""

    place: Place
    last: str
    made: float


class Me(NamedTuple):
    id: str
    name: str
    application: str


UNKNOWN = Me("", "", "")


class Atlas:
    def __init__(self, me: Me = UNKNOWN) -> None:
        self.me = me
        self._roles: dict[str, frozenset[str]] = {}
        self._places: dict[str, Place] = {}

    def roles(self, guild: str) -> frozenset[str]:
        """The bot's own roles in a server."""
        return self._roles.get(guild, frozenset())

    def place(self, channel: str) -> Place | None:
        return self._places.get(channel)

    def guild_of(self, channel: dict[str, Any]) -> str:
        """The server of a channel: as told, or as the channel or its parent was known before."""
        known = self.place(str(channel["id"])) or self.place(str(channel.get("parent_id") or ""))
        return known.guild if known else ""

    def is_ours(self, place: Place) -> bool:
        """A thread that we have opened: the conversation lives there."""
        return place.is_thread and place.owner == self.me.id

    def add(self, place: Place) -> None:
        self._places[place.channel] = place

    def remove(self, channel: str) -> None:
        self._places.pop(channel, None)

    def open_guild(self, data: dict[str, Any]) -> Iterator[Sight]:
        guild = str(data["id"])
        for member in data.get("members") or ():
            if str((member.get("user") or {}).get("id")) == self.me.id:
                self.set_roles(guild, member)
        for channel in (*(data.get("channels") or ()), *(data.get("threads") or ())):
            try:
                place = place_of(channel, guild)
                sight = Sight(place, str(channel.get("last_message_id") or ""), _made(channel))
            except STRANGE as error:
                log.warning("passed over a channel of server %s, which has a strange shape: %r", guild, error)
                continue
            if place.kind in WRITTEN:
                self.add(place)
                yield sight

    def set_roles(self, guild: str, member: dict[str, Any]) -> None:
        self._roles[guild] = frozenset(str(role) for role in member.get("roles") or ())

    def close_guild(self, guild: str) -> None:
        self._roles.pop(guild, None)
        for place in [place for place in self._places.values() if place.guild == guild]:
            del self._places[place.channel]


def place_of(channel: dict[str, Any], guild: str = "") -> Place:
    """Makes a place of a channel as Discord describes it."""
    kind = int(channel["type"])
    is_thread = kind in THREADS
    return Place(
        channel=str(channel["id"]),
        guild=str(channel.get("guild_id") or guild),
        kind=kind,
        parent=str(channel["parent_id"]) if is_thread else "",
        owner=str(channel.get("owner_id") or "") if is_thread else "",
    )


def _made(channel: dict[str, Any]) -> float:
    """A thread of a message has the message's id, which may be far older than the thread."""
    told = (channel.get("thread_metadata") or {}).get("create_timestamp")
    return max(time_of(str(channel["id"])), datetime.fromisoformat(told).timestamp() if told else 0.0)
