"""Talks: one row for each generation of a conversation, with its owner and title, so that people find it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tidings.core import ids
from tidings.core.people import names
from tidings.core.redaction import plain
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Asker, Audience, Author, Conversation, Inbound, Origin, is_passing

TITLE_CHARACTERS = 60
# The beginning of a message that is looked at for a title.
LOOKED_AT_CHARACTERS = 4000
LAST_CHARACTERS = 100
UNTITLED = "(without a title)"
# The generation of a row that only tells whose the conversation is.
NO_TALK = 0


class Talk(NamedTuple):
    id: str
    conversation: str
    generation: int
    # Empty where a group talks.
    owner: str
    title: str
    at: float
    # The conversation's generation right now.
    current: int

    @property
    def is_current(self) -> bool:
        return self.generation == self.current

    @property
    def short(self) -> str:
        """The part of the id that people write."""
        return self.id.partition("_")[2][:8]


def keep(tx: Transaction, said: Inbound, generation: int, run: str, at: float) -> None:
    """Notes that a talk went on, with the first words of its first message as title."""
    conversation = said.conversation.id
    if said.errand is not None or is_passing(conversation):
        return
    if said.origin is not Origin.PERSON:
        tx.execute("UPDATE talks SET at = ? WHERE conversation = ? AND generation = ?", at, conversation, generation)
        return
    # What is continued elsewhere stays its owner's.
    owner = _owner(said) if said.began is None else owner_of(tx, conversation)
    title = "" if said.command else shortened(said.text or said.in_full, TITLE_CHARACTERS)
    tx.execute(
        "INSERT INTO talks (id, conversation, generation, owner, place, title, run, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (conversation, generation) DO UPDATE SET at = excluded.at,"
        " owner = CASE WHEN talks.owner = '' THEN excluded.owner ELSE talks.owner END,"
        " title = CASE WHEN talks.title = '' THEN excluded.title ELSE talks.title END,"
        " run = CASE WHEN talks.title = '' THEN excluded.run ELSE talks.run END",
        *(ids.new("talk"), conversation, generation, owner, place_of(said), title, run if title else "", at),
    )


def note_owner(tx: Transaction, said: Inbound) -> None:
    """Notes whose conversation this is before its first talk: commands alone are forgotten with their person, too."""
    own = said.began or said.conversation
    owner = _owner(said) if said.sender.id and not is_passing(own.id) else ""
    if owner:
        tx.execute(
            "INSERT INTO talks (id, conversation, generation, owner, place, title, run, at)"
            " VALUES (?, ?, ?, ?, ?, '', '', 0) ON CONFLICT (conversation, generation) DO NOTHING",
            *(ids.new("talk"), own.id, NO_TALK, owner, place_of(said)),
        )


def _owner(said: Inbound) -> str:
    """The person who talks alone here: in private, or as a member of a group where each has a memory."""
    alone = said.target.audience is Audience.PRIVATE or said.conversation.member
    return names.owner_name(said.target, said.sender) if alone else ""


def place_of(said: Inbound | Asker) -> str:
    """The group in which somebody speaks, by its first id, or a thread of it that only some see; empty in private."""
    if said.target.audience is Audience.PRIVATE:
        return ""
    own = said.began or said.conversation
    thread = own.thread if said.target.secluded else ""
    return Conversation(adapter=own.adapter, account=own.account, chat=own.chat, thread=thread).id


def owner_of(tx: Transaction, conversation: str) -> str:
    """The owner of a conversation's talks; empty if nobody is known to own it."""
    row = tx.one(
        "SELECT owner FROM talks WHERE conversation = ? AND owner <> '' ORDER BY generation DESC LIMIT 1", conversation
    )
    return str(row["owner"]) if row else ""


def shortened(text: str, characters: int) -> str:
    """The beginning of a text on one line, without secrets."""
    line = plain(" ".join(text[:LOOKED_AT_CHARACTERS].split()))
    return line if len(line) <= characters else f"{line[: characters - 1].rstrip()}…"


def name(tx: Transaction, run: str, title: str) -> bool:
    """Gives the talk that a run began a better title; false if the run's words are no longer its title."""
    title = shortened(title, TITLE_CHARACTERS)
    return bool(title) and bool(tx.count("UPDATE talks SET title = ? WHERE run = ? AND run <> ''", title, run))


def renew_title(tx: Transaction, conversation: str, generation: int, run: str) -> None:
    """Takes the title from the oldest remaining message, if it came from a run that is undone or erased."""
    titled = "SELECT 1 FROM talks WHERE conversation = ? AND generation = ? AND run = ?"
    if tx.one(titled, conversation, generation, run) is None:
        return
    first = _first_words(tx, conversation, generation)
    tx.execute(
        "UPDATE talks SET title = ?, run = ? WHERE conversation = ? AND generation = ?",
        *(shortened(first["text"], TITLE_CHARACTERS) if first else "", first["run"] if first else ""),
        *(conversation, generation),
    )


def _first_words(tx: Transaction, conversation: str, generation: int) -> Row | None:
    return tx.one(
        "SELECT text, run FROM history WHERE conversation = ? AND generation = ? AND author = ? AND undone = 0"
        " ORDER BY seq LIMIT 1",
        *(conversation, generation, Author.PERSON),
    )


def drop_empty(tx: Transaction, conversation: str, generation: int) -> None:
    """Removes a talk whose history is gone, and what continues a conversation without any talk."""
    tx.execute(
        "DELETE FROM talks WHERE conversation = ? AND generation = ? AND NOT EXISTS"
        " (SELECT 1 FROM history WHERE history.conversation = talks.conversation"
        " AND history.generation = talks.generation)",
        conversation,
        generation,
    )
    tx.execute(
        "DELETE FROM handovers WHERE continues = ? AND NOT EXISTS"
        " (SELECT 1 FROM talks WHERE talks.conversation = handovers.continues AND talks.generation > ?)",
        conversation,
        NO_TALK,
    )


def remove(tx: Transaction, conversation: str) -> None:
    """Removes all talks of a conversation, and every hand-over from or to it."""
    tx.execute("DELETE FROM talks WHERE conversation = ?", conversation)
    tx.execute("DELETE FROM handovers WHERE conversation = ?", conversation)
    tx.execute("DELETE FROM handovers WHERE continues = ?", conversation)


def own(tx: Transaction, owners: Iterable[str], place: str, limit: int) -> list[Talk]:
    """The newest talks of these owners in a group, or in private for an empty place; newest first.

    In a group, the talks of the whole group count as everybody's.
    """
    wanted = {*owners, ""} if place else {*owners} - {""}
    rows = [
        row
        for owner in wanted
        for row in tx.all(
            "SELECT t.id, t.conversation, t.generation, t.owner, t.title, t.at, c.generation AS current FROM talks t"
            " JOIN conversations c ON c.id = t.conversation WHERE t.owner = ? AND t.place = ?"
            " AND t.generation > ? ORDER BY t.at DESC LIMIT ?",
            *(owner, place, NO_TALK, limit),
        )
    ]
    rows.sort(key=lambda row: (-row["at"], row["id"]))
    return [_talk(row) for row in rows[:limit]]


def _talk(row: Row) -> Talk:
    place = (row["conversation"], row["generation"])
    return Talk(row["id"], *place, row["owner"], row["title"], row["at"], row["current"])


def title_of(tx: Transaction, talk: Talk) -> str:
    if talk.title:
        return talk.title
    first = _first_words(tx, talk.conversation, talk.generation)
    return (shortened(first["text"], TITLE_CHARACTERS) if first else "") or UNTITLED


def last_line(tx: Transaction, talk: Talk) -> str:
    """The beginning of what was said last."""
    row = tx.one(
        "SELECT text FROM history WHERE conversation = ? AND generation = ? AND undone = 0 ORDER BY seq DESC LIMIT 1",
        talk.conversation,
        talk.generation,
    )
    return shortened(row["text"], LAST_CHARACTERS) if row else ""


def conversations_of(tx: Transaction, owners: Iterable[str]) -> list[str]:
    """The conversations of these owners, with those of chats in which they continue one."""
    found: dict[str, None] = {}
    owners = frozenset(owners)
    for owner in owners:
        for row in tx.all("SELECT DISTINCT conversation FROM talks WHERE owner = ? AND owner <> ''", owner):
            found[row["conversation"]] = None
    for conversation in list(found):
        for row in tx.all("SELECT conversation, asker FROM handovers WHERE continues = ?", conversation):
            asker = msgspec.json.decode(row["asker"], type=Asker)
            # Somebody who was unlinked since then keeps the conversation of their own chat.
            if names.owner_name(asker.target, asker.sender) in owners:
                found[row["conversation"]] = None
    return list(found)
