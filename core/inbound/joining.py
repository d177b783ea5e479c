"""Joins messages to one run: albums, bursts of one person, and messages that came while another run was at work.

A joined message is a row that names its run; its outcome is the outcome of that run. A message joins before its run
begins, or it is handed to the agent while the run is at work, and the run's checkpoint then holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from tidings.core.roles import plain_name
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Audience, Inbound, Origin

# An album has no end mark: it counts as complete after a quiet second, or after ten seconds at the latest.
ALBUM_QUIET_SECONDS = 1.0
ALBUM_LONGEST_SECONDS = 10.0
# A person who keeps writing gets an answer after so many pauses.
LONGEST_BURST = 5
# No more messages and characters are put together to one run; the rest is the next run.
MOST_MESSAGES = 100
MOST_CHARACTERS = 200_000

# Tells whether the second message may be part of a run that works for the sender of the first.
MayJoin = Callable[[Inbound, Inbound], bool]


class Place(NamedTuple):
    """Where a new message goes: the run that it joins, if any, and from when that run may begin."""

    run: str | None
    ready: float


def may_burst(inbound: Inbound) -> bool:
    """Tells whether more messages of the same person may belong to this one."""
    plain = not (inbound.group or inbound.command or inbound.choice or inbound.busy)
    return plain and not inbound.whole and is_joinable(inbound)


def is_joinable(inbound: Inbound) -> bool:
    """Tells whether a message may share a run with others: not if a client waits for it, or if it is no person's."""
    is_persons = inbound.origin is Origin.PERSON and not inbound.sender.is_bot
    return is_persons and not (inbound.alone or inbound.errand or inbound.given or inbound.follows)


def fits(first: Inbound, other: Inbound) -> bool:
    """Tells whether two messages were written in the same place, for the same bot, so that one answer serves both."""
    return (
        is_joinable(other)
        and first.target.lane == other.target.lane
        and (first.began, first.bot, first.command, other.command) == (other.began, other.bot, "", "")
        and first.target.audience is other.target.audience is not Audience.ONE
    )


def find_place(tx: Transaction, inbound: Inbound, now: float, burst: float) -> Place:
    """Finds the waiting run that a new message becomes part of; other runs of its sender need not wait any longer."""
    album = album_leader(tx, inbound)
    if album is not None:
        return _put_off(tx, album, now + ALBUM_QUIET_SECONDS, ALBUM_LONGEST_SECONDS)
    bursts = burst > 0 and may_burst(inbound)
    for row in _resting(tx, inbound.conversation.id, now):
        message = _message(row)
        if not _is_by(message, inbound):
            continue
        if bursts and may_burst(message) and fits(message, inbound) and _has_room(tx, row):
            return _put_off(tx, row, now + burst, burst * LONGEST_BURST)
        # A further message of the same person completes an album, and ends a burst that it is not part of.
        tx.execute("UPDATE inbox SET ready = ? WHERE run = ?", now, row["run"])
    return Place(None, now + (ALBUM_QUIET_SECONDS if inbound.group else burst if bursts else 0.0))


def _put_off(tx: Transaction, leader: Row, ready: float, longest: float) -> Place:
    ready = min(ready, leader["accepted"] + longest)
    tx.execute("UPDATE inbox SET ready = ?, followed = 1 WHERE run = ?", ready, leader["run"])
    return Place(leader["run"], ready)


def _has_room(tx: Transaction, leader: Row) -> bool:
    """Tells whether a run may get one more message; a flood becomes several runs."""
    joined = tx.one("SELECT count(*) AS n, sum(length(message)) AS size FROM inbox WHERE joined = ?", leader["run"])
    return joined is None or (joined["n"] < MOST_MESSAGES - 1 and (joined["size"] or 0) < MOST_CHARACTERS)


def resting_runs(tx: Transaction, conversation: str, now: float) -> list[str]:
    """Messages of a conversation that wait for more of their sender."""
    return [row["run"] for row in _resting(tx, conversation, now)]


def _resting(tx: Transaction, conversation: str, now: float) -> list[Row]:
    """Runs of the conversation that wait for more messages before they begin, the newest first."""
    return tx.all(
        "SELECT run, accepted, message FROM inbox WHERE conversation = ? AND state = 'waiting' AND ready > ?"
        " AND attempt = 0 AND heard_by = '' ORDER BY seq DESC",
        conversation,
        now,
    )


def album_leader(tx: Transaction, inbound: Inbound) -> Row | None:
    """The waiting run that an album's later message becomes part of; what an agent has read grows no more."""
    rows = _album(tx, inbound) if inbound.group else ()
    return next((row for row in rows if row["state"] == "waiting" and not row["heard_by"]), None)


def _album(tx: Transaction, inbound: Inbound) -> list[Row]:
    """The rows of this album so far; the same group from another person is another album."""
    rows = tx.all(
        "SELECT run, accepted, state, heard_by, message FROM inbox WHERE conversation = ? AND album = ? AND album <> ''"
        " AND state IN ('waiting', 'running', 'done') ORDER BY seq DESC",
        inbound.conversation.id,
        inbound.group,
    )
    return [row for row in rows if _is_by(_message(row), inbound)]


def _is_by(message: Inbound, inbound: Inbound) -> bool:
    return message.sender.id == inbound.sender.id


def continues_album(tx: Transaction, inbound: Inbound) -> bool:
    """Tells whether another part of its album was accepted before, waiting or already answered."""
    return bool(_album(tx, inbound))


def choose_mode(tx: Transaction, run: str, mode: str) -> None:
    """Stores what a waiting message may do besides waiting for its turn."""
    tx.execute("UPDATE inbox SET mode = ? WHERE run = ? AND state = 'waiting'", mode, run)


def collect(tx: Transaction, conversation: str, leader: Row, may_join: MayJoin) -> bool:
    """Joins messages that came while another run was at work to the first of them, in order; false if there are none.

    A message that may not join ends the collection, so that no message overtakes another one.
    """
    first = _message(leader)
    rows = tx.all(
        "SELECT run, mode, message FROM inbox WHERE conversation = ? AND state = 'waiting' AND attempt = 0"
        " AND run <> ? ORDER BY said, seq LIMIT ?",
        *(conversation, leader["run"], MOST_MESSAGES - 1),
    )
    length = len(first.text)
    joined = False
    for row in rows:
        message = _message(row)
        length += len(message.text)
        fitting = row["mode"] == "collect" and fits(first, message) and may_join(first, message)
        if not fitting or length > MOST_CHARACTERS:
            break
        _join(tx, row["run"], leader["run"])
        joined = True
    if joined:
        tx.execute("UPDATE inbox SET followed = 1 WHERE run = ?", leader["run"])
    return joined


def _join(tx: Transaction, run: str, to: str) -> None:
    """Joins a waiting message, together with all that had joined it before."""
    tx.execute("UPDATE inbox SET joined = ? WHERE joined = ?", to, run)
    tx.execute("UPDATE inbox SET state = 'joined', joined = ? WHERE run = ?", to, run)


def hand_over(tx: Transaction, run: str) -> None:
    """Makes the oldest message that joined a waiting run the first of them, because the first one is going away."""
    heir = tx.one("SELECT run FROM inbox WHERE joined = ? ORDER BY seq LIMIT 1", run)
    if heir is None:
        return
    tx.execute(
        "UPDATE inbox SET state = 'waiting', joined = NULL, followed = 1, steered = 0,"
        " ready = (SELECT r.ready FROM inbox r WHERE r.run = ?), mode = (SELECT r.mode FROM inbox r WHERE r.run = ?)"
        " WHERE run = ?",
        *(run, run, heir["run"]),
    )
    # The checkpoint that held some of them goes away, too.
    tx.execute("UPDATE inbox SET joined = ?, steered = 0 WHERE joined = ?", heir["run"], run)
    tx.execute("UPDATE inbox SET followed = 0 WHERE run = ?", run)


def is_whole_album(tx: Transaction, run: str, album: str) -> bool:
    """Tells whether a run is for one album and nothing else, which goes away as a whole."""
    others = tx.one("SELECT 1 FROM inbox WHERE joined = ? AND album <> ? LIMIT 1", run, album)
    return bool(album) and others is None


# Messages for a run at work.


class Messages(NamedTuple):
    """What a run at work hears: messages, each with its id."""

    said: list[tuple[str, Inbound]]
    # Whether an album still grows, so that the run must ask again.
    more: bool = False


def hear(tx: Transaction, run: str, fence: int, now: float, may_join: MayJoin) -> Messages:
    """Reads the messages for a run at work; from now on they cannot be changed or taken back.

    They stay runs of their own until `contain` is called with the same fence.
    """
    row = tx.one(
        "SELECT run, conversation, message, album, followed FROM inbox"
        " WHERE run = ? AND fence = ? AND state = 'running'",
        *(run, fence),
    )
    if row is None:
        return Messages([])
    first, heard = put_together(tx, row), list[tuple[str, Inbound]]()
    rows = tx.all(
        "SELECT run, message, album, followed, ready FROM inbox WHERE conversation = ? AND state = 'waiting'"
        " AND mode = 'steer' AND attempt = 0 ORDER BY said, seq LIMIT ?",
        *(row["conversation"], MOST_MESSAGES),
    )
    length = 0
    for each in rows:
        if each["album"] and each["ready"] > now:
            return Messages(heard, more=True)
        message = put_together(tx, each)
        length += len(message.text)
        # The person may have lost a role since.
        if not may_join(first, message) or (heard and length > MOST_CHARACTERS):
            break
        tx.execute("UPDATE inbox SET heard_by = ?, heard_fence = ? WHERE run = ?", run, fence, each["run"])
        heard.append((each["run"], message))
    return Messages(heard)


def is_heard(tx: Transaction, run: str) -> bool:
    """Tells whether a run at work has read this waiting message and will answer it."""
    row = tx.one(
        "SELECT 1 FROM inbox w JOIN inbox r ON r.run = w.heard_by AND r.fence = w.heard_fence"
        " WHERE w.run = ? AND w.state = 'waiting' AND r.state = 'running'",
        run,
    )
    return row is not None


def contain(tx: Transaction, run: str, fence: int, heard: Sequence[str]) -> None:
    """Joins messages that a run has heard, in the transaction that stores what the run made of them."""
    for each in heard:
        tx.execute(
            "UPDATE inbox SET joined = ?, steered = 1 WHERE joined = ?"
            " AND EXISTS (SELECT 1 FROM inbox h WHERE h.run = ? AND h.state = 'waiting' AND h.heard_by = ?"
            " AND h.heard_fence = ?)",
            *(run, each, each, run, fence),
        )
        tx.execute(
            "UPDATE inbox SET state = 'joined', joined = ?, steered = 1 WHERE run = ? AND state = 'waiting'"
            " AND heard_by = ? AND heard_fence = ?",
            *(run, each, run, fence),
        )
    if heard:
        tx.execute("UPDATE inbox SET followed = 1 WHERE run = ?", run)


def steering(tx: Transaction) -> list[str]:
    """Runs at work in whose conversations messages wait to be handed to them."""
    rows = tx.all(
        "SELECT DISTINCT r.run FROM inbox w JOIN inbox r ON r.conversation = w.conversation"
        " WHERE w.state = 'waiting' AND w.mode = 'steer' AND r.state = 'running'"
    )
    return [row["run"] for row in rows]


# Reading what has joined.


def put_together(tx: Transaction, row: Row, *, followed: bool | None = None, steered: bool = False) -> Inbound:
    """The message of a run with all that joined it before the run began; `row` has run, message, album and followed.

    `followed` is what holds by now, if the row was read before; `steered` adds what was handed to the run at work.
    """
    first = _message(row)
    if not (row["album"] or (row["followed"] if followed is None else followed)):
        return first
    later = followers(tx, row["run"]) if steered else _joined(tx, row["run"], steered=False)
    if not later:
        return first
    files = tuple(file for each in (first, *later) for file in each.attachments)
    if row["album"] and all(each.group == row["album"] for each in later):
        text = "\n".join(filter(None, (first.text, *(each.text for each in later))))
        return msgspec.structs.replace(first, text=text, attachments=files)
    # Each text says itself what it quotes and who wrote it.
    return msgspec.structs.replace(
        first,
        text=_told_together([first, *later]),
        attachments=files,
        quoted=None,
        forwarded="",
        parts=(first, *later),
        # One part for the bot makes the whole for the bot.
        overheard=all(each.overheard for each in (first, *later)),
    )


def steered(tx: Transaction, run: str) -> list[Inbound]:
    """The messages that were handed to a run while it was at work, in order."""
    return _joined(tx, run, steered=True)


def followers(tx: Transaction, run: str) -> list[Inbound]:
    """All messages that have joined a run."""
    return [*_joined(tx, run, steered=False), *_joined(tx, run, steered=True)]


def _joined(tx: Transaction, run: str, *, steered: bool) -> list[Inbound]:
    rows = tx.all("SELECT message FROM inbox WHERE joined = ? AND steered = ? ORDER BY seq", run, int(steered))
    return [_message(row) for row in rows]


def _told_together(messages: Sequence[Inbound]) -> str:
    """The texts of several messages, each with its sender if there are several senders.

    Further lines of a text are then indented, so that none of them can pose as somebody else's words.
    """
    is_alone = len({each.sender.id for each in messages}) == 1
    texts = [_without_files(each).in_full for each in messages]
    if is_alone:
        return "\n".join(filter(None, texts))
    told = zip(messages, ("\n  ".join(text.splitlines()) for text in texts), strict=True)
    return "\n".join(f"{name_of(each)}: {text}" for each, text in told)


def _without_files(message: Inbound) -> Inbound:
    """The names of all files are told once, behind all texts."""
    return msgspec.structs.replace(message, attachments=())


def name_of(message: Inbound) -> str:
    """The sender's name in front of what they said: one line, so that a name cannot pose as somebody else's words."""
    return plain_name(message.sender.name) or message.sender.id


def _message(row: Row) -> Inbound:
    return msgspec.json.decode(row["message"], type=Inbound)
