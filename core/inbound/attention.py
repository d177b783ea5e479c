"""Whose messages in a group are all for the bot for a while, without a mention: given by /listen, and durable."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from tidings.core.clock import Clock
from tidings.core.inbound import members
from tidings.core.part import Part
from tidings.core.store.steady_time import Lag
from tidings.core.store.store import Row, Store, Transaction
from tidings.core.store.wakeups import AttentionChanged
from tidings.core.types import Audience, Inbound, Kind

# In place of a sender: the bot listens to everybody in the chat.
EVERYBODY = ""
HEARD = (Kind.MESSAGE, Kind.COMMANDED, Kind.EDITED)


class Heard(NamedTuple):
    """A message as the bot hears it."""

    inbound: Inbound
    # Whether the message is for the bot only because the bot listens to its sender.
    is_listening: bool = False


class Listened(NamedTuple):
    """Somebody to whom the bot listens in a chat."""

    sender: str
    name: str
    # In steady seconds.
    until: float


class Attention(Part):
    """Keeps all of it in memory too, so that a message that is not for the bot costs no statement."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        # By chat and sender: until when the bot listens, in steady seconds.
        self._known: dict[str, dict[str, float]] = {}
        self._changes = 0
        store.wakeups.subscribe(AttentionChanged, self._change)

    async def recover(self) -> None:
        await self._load()

    async def sweep(self) -> None:
        now = self._clock.now()
        if any(until <= now for senders in self._known.values() for until in senders.values()):
            await self._store.insist(lambda tx: tx.execute("DELETE FROM attention WHERE until <= ?", now))
        await self._load()

    async def _load(self) -> None:
        known: dict[str, dict[str, float]] = {}
        changes = -1
        # A change that was stored while the rows were read must not be overwritten.
        while changes != self._changes:
            changes, known = self._changes, {}
            for row in await self._store.read(self._read):
                known.setdefault(row["chat"], {})[row["sender"]] = row["until"]
        self._known = known

    def _read(self, tx: Transaction) -> list[Row]:
        return tx.all("SELECT chat, sender, until FROM attention WHERE until > ?", self._clock.now())

    def _change(self, due: AttentionChanged) -> None:
        self._changes += 1
        self._known.setdefault(due.chat, {})[due.sender] = due.until

    def hear(self, inbound: Inbound) -> Heard:
        """The message as one for the bot if the bot listens to its sender; bots are never listened to."""
        is_meant = inbound.addressed and not inbound.overheard
        if not self._known or is_meant or inbound.sender.is_bot or inbound.target.audience is Audience.PRIVATE:
            return Heard(inbound)
        senders = self._known.get(_chat_of(inbound), {})
        now = self._clock.now()
        if inbound.kind is Kind.DELETED:
            # Platforms do not say who deletes a message.
            is_listening = any(until > now for until in senders.values())
        else:
            given = max(senders.get(inbound.sender.id, 0.0), senders.get(EVERYBODY, 0.0))
            is_listening = inbound.kind in HEARD and given > now
        if not is_listening:
            return Heard(inbound)
        # A command word is always meant for the bot.
        return Heard(replace(inbound, addressed=True, overheard=not inbound.command), is_listening=True)

    def give(self, tx: Transaction, inbound: Inbound, listened: Listened) -> None:
        """Lets the bot listen to somebody in the chat of a message."""
        chat = _chat_of(inbound)
        tx.execute(
            "INSERT INTO attention (chat, sender, name, given, until) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (chat, sender) DO UPDATE"
            " SET name = excluded.name, given = excluded.given, until = excluded.until",
            *(chat, listened.sender, listened.name, self._clock.now(), listened.until),
        )
        tx.announce(AttentionChanged(chat, listened.sender, listened.until))

    def end(self, tx: Transaction, inbound: Inbound, listened: Listened) -> None:
        chat = _chat_of(inbound)
        tx.execute("DELETE FROM attention WHERE chat = ? AND sender = ?", chat, listened.sender)
        tx.announce(AttentionChanged(chat, listened.sender, 0.0))

    def all_in(self, tx: Transaction, inbound: Inbound) -> list[Listened]:
        """Everybody to whom the bot listens in the chat of a message, the longest first."""
        rows = tx.all(
            "SELECT sender, name, until FROM attention WHERE chat = ? AND until > ? ORDER BY until DESC, sender",
            *(_chat_of(inbound), self._clock.now()),
        )
        return [_listened(row) for row in rows]


def postpone(tx: Transaction, lag: Lag) -> None:
    """Moves what was given while steady time was late, so that it holds as long as promised."""
    tx.execute(
        "UPDATE attention SET until = until + ?, given = given + ? WHERE until > ? AND given > ?",
        *(lag.seconds, lag.seconds, lag.since, lag.since),
    )


def _listened(row: Row) -> Listened:
    return Listened(row["sender"], row["name"], row["until"])


def _chat_of(inbound: Inbound) -> str:
    """The chat of a message with all its threads."""
    return replace(members.place_of(inbound), thread="").id
