"""The rows of cards: their content, comments, files, watchers and events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from tidings.core import ids
from tidings.core.clock import Clock
from tidings.core.desk.board import (
    Attempt,
    Block,
    Board,
    Card,
    CardFile,
    CardLine,
    CardState,
    Ending,
    Happening,
    Remark,
)
from tidings.core.errors import Unkeepable, Unknown
from tidings.core.outbound import notices, outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.redaction import one_line, plain
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Asker, Body, Conversation, File, Target, encode
from tidings.core.work.tasks import rows as task_rows

# The adapter name of a card's own conversation; no platform has this name.
ADAPTER = "card"
# How much of a worker's text a row keeps.
WORDS_CHARACTERS = 20_000
REASON_CHARACTERS = 1000
HAPPENINGS = 50
# A limit, because a faulty worker must not fill the disk.
REMARKS = 1000
FILES = 100
BEAT = "heartbeat"
# The name of a card's own folder, also with leading zeros.
OWN_FOLDER = re.compile(r"card-0*([0-9]{1,18})")
LINE = "id, title, assignee, state, priority, block, reason, changed"
# The order of lists: cards in progress, then those that need a person, then those that wait.
ORDER = (
    CardState.RUNNING,
    CardState.REVIEW,
    CardState.TRIAGE,
    CardState.BLOCKED,
    CardState.READY,
    CardState.TODO,
    CardState.DONE,
    CardState.ARCHIVED,
)


class Moment(NamedTuple):
    now: float
    wall: float

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        return cls(clock.now(), clock.wall())

    @property
    def ahead(self) -> float:
        """Seconds from steady time to wall time; rounded, so that the same moment is always shown alike."""
        return round(self.wall - self.now, 1)


def number(id: str) -> int:
    """Reads a card's number as people write it, with or without the # sign."""
    digits = id.strip().removeprefix("#")
    # The store cannot hold a longer number.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise Unknown(f"there is no card {one_line(id)!r}; cards have numbers, such as 12")
    return int(digits)


def find(tx: Transaction, id: str) -> Row:
    row = tx.one("SELECT * FROM cards WHERE id = ?", number(id))
    if row is None:
        raise Unknown(f"there is no card #{number(id)}")
    return row


def may_share(tx: Transaction, folder: str, asker: Asker | None) -> bool:
    """Tells whether a folder is free or used only by cards of the same conversation."""
    own = OWN_FOLDER.fullmatch(folder.lower())
    if own is not None:
        # The folder of a card that does not exist yet is reserved too.
        first = tx.one("SELECT asker FROM cards WHERE id = ?", int(own[1]))
        return first is not None and _place(task_rows.asker_of(first)) == _place(asker)
    first = tx.one(
        "SELECT asker FROM cards WHERE lower(workspace) = ? AND workspace <> '' ORDER BY id LIMIT 1", folder.lower()
    )
    return first is None or _place(task_rows.asker_of(first)) == _place(asker)


def _place(asker: Asker | None) -> str:
    return asker.conversation.id if asker else ""


def parents(tx: Transaction, card: int) -> list[Row]:
    return tx.all("SELECT c.* FROM cards c JOIN card_links l ON c.id = l.parent WHERE l.child = ? ORDER BY c.id", card)


def children(tx: Transaction, card: int) -> list[Row]:
    return tx.all("SELECT c.* FROM cards c JOIN card_links l ON c.id = l.child WHERE l.parent = ? ORDER BY c.id", card)


def waits_for(tx: Transaction, card: int) -> list[Row]:
    return [parent for parent in parents(tx, card) if parent["finished"] is None]


def leads_to(tx: Transaction, first: int, last: int) -> bool:
    found = tx.one(
        "WITH RECURSIVE behind (id) AS (SELECT CAST(? AS BIGINT) UNION SELECT child FROM card_links"
        " JOIN behind ON parent = id) SELECT 1 FROM behind WHERE id = ?",
        first,
        last,
    )
    return found is not None


def comment(tx: Transaction, card: int, by: str, text: str, at: Moment, key: str = "") -> None:
    """Stores a comment once; raises Unkeepable at the limit, or if its key belongs to another comment."""
    known = tx.one("SELECT card, text FROM card_remarks WHERE key = ? AND key <> ''", key) if key else None
    if known is not None:
        if (known["card"], known["text"]) != (card, words(text)):
            raise Unkeepable("this key was used for another comment")
        return
    counted = tx.one("SELECT count(*) AS n FROM card_remarks WHERE card = ?", card)
    if counted and counted["n"] >= REMARKS:
        raise Unkeepable(f"#{card} has {REMARKS:,} comments, which is the limit")
    remark(tx, card, by, text, at, key)


def remark(tx: Transaction, card: int, by: str, text: str, at: Moment, key: str = "") -> None:
    tx.execute(
        "INSERT INTO card_remarks (card, by, text, at, key) VALUES (?, ?, ?, ?, ?)",
        card,
        one_line(by),
        words(text),
        at.now,
        key,
    )


def attach(tx: Transaction, card: int, file: CardFile) -> None:
    counted = tx.one("SELECT count(*) AS n FROM card_files WHERE card = ?", card)
    if counted and counted["n"] >= FILES:
        raise Unkeepable(f"#{card} has {FILES} files, which is the limit; put several into one")
    tx.execute(
        "INSERT INTO card_files (card, place, name, by) VALUES (?, ?, ?, ?) ON CONFLICT (card, place) DO UPDATE"
        " SET name = excluded.name, by = excluded.by",
        card,
        plain(file.place),
        one_line(file.name),
        one_line(file.by),
    )


def redirect_files(tx: Transaction, here: Callable[[str], str]) -> None:
    """Corrects the paths of all files of cards after the home has moved."""
    for row in tx.all("SELECT DISTINCT place FROM card_files WHERE place LIKE '/%'"):
        tx.execute("UPDATE card_files SET place = ? WHERE place = ?", here(row["place"]), row["place"])


def words(text: str) -> str:
    """The end of a long text, where a worker usually says what it achieved."""
    return plain(text).strip()[-WORDS_CHARACTERS:]


def line(reason: str) -> str:
    """A reason on one line; longer than elsewhere, because it contains the last words, the error and the log."""
    said = " ".join(plain(reason).split())
    return said if len(said) <= REASON_CHARACTERS else said[: REASON_CHARACTERS - 1] + "…"


def watch(tx: Transaction, card: int, target: Target, conversation: Conversation | None) -> None:
    place = target.lasting()
    tx.execute(
        "INSERT INTO card_watchers (card, place, target, conversation) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (card, place) DO NOTHING",
        card,
        str(place),
        encode(place),
        conversation.id if conversation else "",
    )


def unwatch(tx: Transaction, card: int, target: Target) -> bool:
    return bool(tx.count("DELETE FROM card_watchers WHERE card = ? AND place = ?", card, str(target)))


def all_watchers(tx: Transaction) -> list[tuple[int, Target]]:
    """Every place that watches a card which is not over yet."""
    rows = tx.all(
        "SELECT w.card, w.target FROM cards c JOIN card_watchers w ON w.card = c.id"
        " WHERE c.state IN ('triage', 'todo', 'ready', 'running', 'blocked', 'review')"
    )
    return [(row["card"], msgspec.json.decode(row["target"], type=Target)) for row in rows]


def inherit(tx: Transaction, parent: int, child: int) -> None:
    """Adds the watchers of a card to its child, if the child's maker may change the card."""
    tx.execute(
        "INSERT INTO card_watchers (card, place, target, conversation) SELECT ?, place, target, conversation"
        " FROM card_watchers WHERE card = ? ON CONFLICT (card, place) DO NOTHING",
        child,
        parent,
    )


def note(tx: Transaction, card: int, what: str, said: str, by: str, at: Moment) -> int:
    """Adds an event to a card and returns its number, which also identifies the notices about it."""
    row = tx.one(
        "INSERT INTO card_events (card, what, words, by, at) VALUES (?, ?, ?, ?, ?) RETURNING seq",
        card,
        what,
        line(said),
        one_line(by),
        at.now,
    )
    assert row is not None
    return int(row["seq"])


def beat(tx: Transaction, card: int, said: str, by: str, at: Moment) -> None:
    """Stores a heartbeat, which replaces the one before, because there may be thousands."""
    last = tx.one("SELECT seq, what FROM card_events WHERE card = ? ORDER BY seq DESC LIMIT 1", card)
    if last is None or last["what"] != BEAT:
        note(tx, card, BEAT, said, by, at)
    else:
        tx.execute("UPDATE card_events SET words = ?, at = ? WHERE seq = ?", line(said), at.now, last["seq"])


def tell(
    tx: Transaction,
    card: int,
    event: int,
    text: str,
    at: Moment,
    files: Iterable[File] = (),
    *,
    told: Iterable[str] = (),
) -> None:
    """Stores one notice for each watcher that was not told before."""
    for row in tx.all("SELECT * FROM card_watchers WHERE card = ? ORDER BY place", card):
        if row["place"] in told:
            continue
        target = msgspec.json.decode(row["target"], type=Target)
        body = Body(text=plain(text), files=tuple(files))
        key = f"card/{card}/{event}/{row['place']}"
        source = f"the card #{card}"
        owed = Owed(ids.new("dlv"), Class.REPLY, target, body, None, f"card/{card}", key, source=source)
        if outbox.put_once(tx, owed, at.now) == owed.id and row["conversation"]:
            notices.remember(tx, row["conversation"], owed.notice, at.wall)


def watchers(tx: Transaction, card: int) -> list[str]:
    return [row["place"] for row in tx.all("SELECT place FROM card_watchers WHERE card = ? ORDER BY place", card)]


def line_of(tx: Transaction, row: Row, ahead: float) -> CardLine:
    links = tx.all("SELECT parent FROM card_links WHERE child = ? ORDER BY parent", row["id"])
    return CardLine(
        id=str(row["id"]),
        title=row["title"],
        assignee=row["assignee"],
        state=CardState(row["state"]),
        priority=row["priority"],
        block=Block(row["block"]) if row["block"] else None,
        reason=row["reason"],
        parents=tuple(str(link["parent"]) for link in links),
        changed=row["changed"] + ahead,
    )


def board(tx: Transaction, states: tuple[CardState, ...], limit: int, assignee: str, ahead: float) -> Board:
    counted = tx.all("SELECT state, count(*) AS n FROM cards GROUP BY state")
    shown = states or tuple(state for state in ORDER if state is not CardState.ARCHIVED)
    rows: list[Row] = []
    for state in (state for state in ORDER if state in shown):
        rows += tx.all(
            f"SELECT {LINE} FROM cards WHERE state = ? AND (? = '' OR assignee = ?)"
            # Ended cards are listed newest first.
            f" ORDER BY {'id DESC' if state in ORDER[-2:] else 'priority DESC, id'} LIMIT ?",
            state,
            assignee,
            assignee,
            limit - len(rows),
        )
    return Board({CardState(row["state"]): row["n"] for row in counted}, tuple(line_of(tx, row, ahead) for row in rows))


def attempts(tx: Transaction, card: int, ahead: float) -> tuple[Attempt, ...]:
    rows = tx.all("SELECT * FROM card_attempts WHERE card = ? ORDER BY number", card)
    return tuple(
        Attempt(
            number=row["number"],
            run=row["run"],
            started=row["started"] + ahead,
            ended=None if row["ended"] is None else row["ended"] + ahead,
            ending=Ending(row["ending"]) if row["ending"] else None,
            kind=row["kind"],
            reason=row["reason"],
            notes=row["notes"],
            log=row["log"],
        )
        for row in rows
    )


def card(tx: Transaction, id: str, ahead: float) -> Card:
    row = find(tx, id)
    own: int = row["id"]
    remarks = tx.all("SELECT * FROM card_remarks WHERE card = ? ORDER BY seq", own)
    files = tx.all("SELECT * FROM card_files WHERE card = ? ORDER BY place", own)
    events = tx.all("SELECT * FROM card_events WHERE card = ? ORDER BY seq DESC LIMIT ?", own, HAPPENINGS)
    return Card(
        id=str(own),
        title=row["title"],
        body=row["body"],
        assignee=row["assignee"],
        state=CardState(row["state"]),
        block=Block(row["block"]) if row["block"] else None,
        reason=row["reason"],
        priority=row["priority"],
        workspace=row["workspace"] or f"card-{own}",
        budget=row["budget"],
        summary=row["summary"],
        created=row["created"] + ahead,
        changed=row["changed"] + ahead,
        by=row["made_by"],
        parents=tuple(line_of(tx, each, ahead) for each in parents(tx, own)),
        children=tuple(line_of(tx, each, ahead) for each in children(tx, own)),
        remarks=tuple(Remark(each["by"], each["text"], each["at"] + ahead) for each in remarks),
        files=tuple(CardFile(each["name"], each["place"], each["by"]) for each in files),
        attempts=attempts(tx, own, ahead),
        watchers=tuple(watchers(tx, own)),
        happenings=tuple(
            Happening(each["what"], each["words"], each["by"], each["at"] + ahead) for each in reversed(events)
        ),
    )
