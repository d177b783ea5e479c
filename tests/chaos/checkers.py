"""What must hold after any kill, read from the platforms' ground truth and the database file alone."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from core.outbound.doubts import MARK
from tests.chaos.driver import Played, Seen
from tests.chaos.scenario import Expected, Say, expected
from tests.simulators.paper import Message

_TOKEN = re.compile(r"\[([a-z]\d+)\]")
# What changes the text of a message.
_TEXT_ACTS = {"post", "edit", "stream", "append", "stop"}

Row = dict[str, Any]


class Books:
    """The database file, read by plain SQL when no gateway runs any more."""

    def __init__(self, path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.row_factory = sqlite3.Row

        def rows(sql: str) -> list[Row]:
            return [dict(row) for row in connection.execute(sql)]

        try:
            self.integrity = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            self.inbox = rows("SELECT * FROM inbox ORDER BY seq")
            self.journal = rows("SELECT run, seq, kind, event FROM journal ORDER BY run, seq")
            self.deliveries = rows("SELECT * FROM deliveries ORDER BY seq")
            self.parts = rows("SELECT * FROM parts ORDER BY delivery, position")
            self.tasks = rows("SELECT * FROM tasks")
        finally:
            connection.close()
        self.delivery = {row["id"]: row for row in self.deliveries}

    def of(self, say: Say) -> list[Row]:
        place = (say.platform, say.account, say.key)
        return [row for row in self.inbox if (row["adapter"], row["account"], row["key"]) == place]

    def texts(self, delivery: Row) -> list[str]:
        """The parts of a delivery as a person may see them, unmarked; the whole where it was never cut."""
        parts = [part for part in self.parts if part["delivery"] == delivery["id"] and part["position"] > 0]
        bodies = [part["body"] for part in parts] or [delivery["body"]]
        return [unmarked(msgspec.json.decode(body)["text"]) for body in bodies]


class Copy(NamedTuple):
    """One message of the bot's on a platform; `order` is when its last text appeared."""

    place: tuple[str, str, str, str]
    message: Message
    order: int

    @property
    def text(self) -> str:
        return unmarked(self.message.text)

    @property
    def is_marked(self) -> bool:
        return self.message.text.startswith(MARK.strip())


class Case:
    """One play with everything that checkers ask for more than once."""

    def __init__(self, played: Played) -> None:
        self.played = played
        self.books = Books(played.database)
        self.said = played.scenario.said()
        self.copies = [copy for seen in played.seen.values() for copy in _copies(seen)]
        self.flights = Counter(
            (flight.delivery, flight.position) for flights in played.flights for flight in flights
        )
        self.placeholders = sum(
            flight.kind in ("opening", "anchor") for flights in played.flights for flight in flights
        )

    def answers(self, say: Say) -> list[Copy]:
        return [copy for copy in self.copies if copy.message.reply_to == say.key]

    def messages(self) -> Iterator[tuple[Say, Expected]]:
        """What was said and must be answered by a run."""
        for say in self.said.values():
            if not say.text.startswith("/"):
                yield say, expected(say)

    def finals(self, run: str) -> list[Row]:
        return [row for row in self.books.deliveries if row["run"] == run and row["kind"] == "final"]

    def visible(self) -> Iterator[tuple[Row, int, str, list[Copy]]]:
        """Each part that we owe, by (delivery, position, text), with its copies on the platform."""
        for delivery in self.books.deliveries:
            if delivery["kind"] == "opening":
                continue
            target = msgspec.json.decode(delivery["target"])
            for position, text in enumerate(self.books.texts(delivery), start=1):
                found = [copy for copy in self.copies if copy.message.reply_to == target["reply_to"]]
                yield delivery, position, text, [copy for copy in found if copy.text == text.strip()]

    def orphans(self) -> list[Copy]:
        """What opened a view and was never finished."""
        owed = {text.strip() for _, _, text, _ in self.visible()}
        return [copy for copy in self.copies if copy.text not in owed]


def unmarked(text: str) -> str:
    return text.removeprefix(MARK).removeprefix(MARK.strip()).strip()


def _copies(seen: Seen) -> Iterator[Copy]:
    last = {effect.message: effect.order for effect in seen.effects if effect.act in _TEXT_ACTS}
    for message in seen.messages:
        place = (seen.platform.name, message.account, message.chat, message.thread)
        yield Copy(place, message, last[message.id])


def _place(say: Say) -> tuple[str, str, str, str]:
    return say.platform, say.account, say.chat, say.thread


def acked(case: Case) -> list[str]:
    """I1: whatever the platform saw confirmed is stored."""
    known = {(row["adapter"], row["key"]) for row in case.books.inbox}
    return [
        f"{key} was confirmed to {name} and is not in the inbox"
        for name, seen in case.played.seen.items()
        for key in dict.fromkeys(seen.confirmed)
        if (name, key) not in known
    ]


def lost(case: Case) -> list[str]:
    """I2, I3, I4: taken once, one outcome, one final, and nothing left lying about."""
    found = [
        f"{key} on {name} was never confirmed"
        for name, seen in case.played.seen.items()
        for key in seen.unconfirmed
    ]
    for say in case.said.values():
        if len(rows := case.books.of(say)) != 1:
            found.append(f"{say.key} is {len(rows)} times in the inbox")
    for row in case.books.inbox:
        if row["state"] not in ("done", "closed", "joined"):
            found.append(f"{row['key']} is still {row['state']}")
        elif row["state"] == "done" and (finals := len(case.finals(row["run"]))) != 1:
            found.append(f"{row['key']} ended as {row['outcome']} and has {finals} final deliveries")
    for row in case.books.deliveries:
        if row["state"] not in ("delivered", "dead"):
            found.append(f"{row['kind']} {row['id']} is still {row['state']}")
    for row in case.books.tasks:
        if row["state"] != "succeeded":
            found.append(f"task {row['id']} is {row['state']} {row['reason']}")
    return found


def outcomes(case: Case) -> list[str]:
    """I3, I11: the outcome that the script asks for, or an interruption that names the effectful tool."""
    found = []
    for say, wanted in case.messages():
        for row in case.books.of(say):
            interrupted = bool(wanted.tool) and row["outcome"] == "failed" and wanted.tool in row["reason"]
            excused = interrupted and bool(case.played.kills)
            if row["outcome"] != wanted.outcome and not excused:
                found.append(f"{say.key} ended as {row['outcome']} ({row['reason']}), not as {wanted.outcome}")
            if row["kind"] != "message":
                found.append(f"{say.key} was stored as {row['kind']}")
    return found


def silent(case: Case) -> list[str]:
    """I5: a person sees every line of every answer, whatever the database says about it."""
    found = []
    for say, wanted in case.messages():
        shown = "\n".join(copy.text for copy in case.answers(say))
        completed = any(row["outcome"] == wanted.outcome for row in case.books.of(say))
        lines = [wanted.answer] if wanted.is_open else [line for line in wanted.answer.split("\n") if line]
        if not completed and wanted.tool:
            lines = ["⚠ I could not finish this: interrupted", wanted.tool]
        found += [f"nobody saw {line!r} in answer to {say.key}" for line in lines if line not in shown]
    for delivery, position, _, copies in case.visible():
        if not copies:
            state = f"{delivery['state']} {delivery['reason']}".strip()
            found.append(f"part {position} of {delivery['kind']} {delivery['id']} ({state}) is on no platform")
    for task in case.books.tasks:
        say = next(say for say, _ in case.messages() if case.books.of(say)[0]["run"] == task["run"])
        if expected(say).report not in [copy.text for copy in case.answers(say)]:
            found.append(f"the report that was promised to {say.key} was never seen")
    for say in case.said.values():
        if say.text == "/status" and not case.answers(say):
            found.append(f"{say.key} (/status) was not answered")
    return found


def misplaced(case: Case) -> list[str]:
    """I7: every text that ever stood on a platform stood where it was asked for."""
    found = []
    for copy in case.copies:
        say = case.said.get(copy.message.reply_to)
        if say is None:
            found.append(f"{copy.message.text!r} at {copy.place} answers nobody")
        elif copy.place != _place(say):
            found.append(f"the answer to {say.key} is at {copy.place}, not at {_place(say)}")
    for name, seen in case.played.seen.items():
        replies = {message.id: message.reply_to for message in seen.messages}
        places = {_place(say) for say in case.said.values()}
        for effect in seen.effects:
            if effect.act in _TEXT_ACTS:
                foreign = set(_TOKEN.findall(effect.text)) - {replies[effect.message]}
                found += [f"{token}'s text stood in the answer to {replies[effect.message]}" for token in foreign]
            elif effect.act == "typing" and (name, effect.account, effect.chat, effect.thread) not in places:
                found.append(f"typing was shown at {name} {effect.account} {effect.chat} {effect.thread}")
    return found


def duplicates(case: Case) -> list[str]:
    """I6: one copy, and one more, marked, for each kill that left it in doubt where nothing settles a doubt."""
    found = []
    for delivery, position, text, copies in case.visible():
        name = f"{text[:40]!r} (part {position} of {delivery['kind']} {delivery['id']})"
        platform = case.played.scenario.platform(copies[0].place[0]) if copies else None
        doubts = case.flights[delivery["id"], position]
        allowed = 0 if platform is None or platform.settles_doubts else doubts
        marked = sum(copy.is_marked for copy in copies)
        if len(copies) - marked > 1:
            found.append(f"{name} stands there {len(copies) - marked} times without a mark")
        if marked > allowed:
            found.append(f"{name} has {marked} marked copies after {doubts} doubts")
    return found


def terminal(case: Case) -> list[str]:
    """I10: one terminal event for each run, the last one, and numbers without a gap."""
    found = []
    entries: dict[str, list[Row]] = defaultdict(list)
    for entry in case.books.journal:
        entries[entry["run"]].append(entry)
    for row in case.books.inbox:
        journal = entries.pop(row["run"], [])
        if row["state"] != "done":
            found += [f"{row['key']} is {row['state']} and has a journal"] if journal and row["state"] == "closed" else []
            continue
        ends = [entry for entry in journal if msgspec.json.decode(entry["event"])["type"] == "ended"]
        if len(ends) != 1:
            found.append(f"{row['key']} has {len(ends)} terminal events")
        elif ends[0] is not journal[-1]:
            found.append(f"{row['key']} has events behind its terminal one")
        elif msgspec.json.decode(ends[0]["event"])["kind"] != row["outcome"]:
            found.append(f"{row['key']} is {row['outcome']}, its terminal event says otherwise")
        if (numbers := [entry["seq"] for entry in journal]) != list(range(1, len(journal) + 1)):
            found.append(f"{row['key']} has the numbers {numbers}")
    return [*found, *(f"a journal without a run: {run}" for run in entries)]


def order(case: Case) -> list[str]:
    """I8: in each lane as it was owed, except past what was in doubt; the parts of one always in order."""
    doubted = {delivery for delivery, _ in case.flights}
    lanes: dict[str, list[tuple[int, str]]] = defaultdict(list)
    parts: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for delivery, position, _, copies in case.visible():
        if copies:
            appeared = min(copy.order for copy in copies), f"part {position} of {delivery['kind']} {delivery['id']}"
            parts[delivery["id"]].append(appeared)
            if delivery["id"] not in doubted:
                lanes[delivery["lane"]].append(appeared)
    return [
        f"{second} came before {first}"
        for queue in (*lanes.values(), *parts.values())
        for (before, first), (after, second) in pairwise(queue)
        if after < before
    ]


def effects(case: Case) -> list[str]:
    """I11: what a tool did it did once, and what is said to be done was done."""
    found = [f"{call} happened {times} times" for call, times in Counter(case.played.ledger).items() if times > 1]
    for say, wanted in case.messages():
        completed = any(row["outcome"] == "completed" for row in case.books.of(say))
        if wanted.tool == "pay" and completed and f"{say.key}-pay" not in case.played.ledger:
            found.append(f"{say.key} says it was paid, and it was not")
        if wanted.report and completed:
            promised = sum(task["run"] == row["run"] for row in case.books.of(say) for task in case.books.tasks)
            found += [f"{say.key} has {promised} tasks"] if promised != 1 else []
    return found


def integrity(case: Case) -> list[str]:
    return [] if case.books.integrity == ["ok"] else case.books.integrity


def orphans(case: Case) -> list[str]:
    """H12: a placeholder may be left behind only by a kill that left it in doubt."""
    found = case.orphans()
    settled = [copy for copy in found if case.played.scenario.platform(copy.place[0]).settles_doubts]
    told = [f"{copy.message.text!r} was left at {copy.place}" for copy in settled]
    if len(found) > case.placeholders:
        told.append(f"{len(found)} placeholders were left after {case.placeholders} doubts about one")
    return told


CHECKERS: dict[str, Callable[[Case], list[str]]] = {
    "acked": acked,
    "lost": lost,
    "outcomes": outcomes,
    "silent": silent,
    "misplaced": misplaced,
    "unmarked_duplicates": duplicates,
    "terminal_errors": terminal,
    "order": order,
    "effects": effects,
    "integrity": integrity,
    "left_behind": orphans,
}


class Verdict(NamedTuple):
    # By the name of the checker; only those that found something.
    violations: dict[str, list[str]]
    orphans: int
    marked: int


def judge(played: Played) -> Verdict:
    if played.faults:
        return Verdict({"harness": list(played.faults)}, 0, 0)
    case = Case(played)
    found = {name: check(case) for name, check in CHECKERS.items()}
    violations = {name: told for name, told in found.items() if told}
    return Verdict(violations, len(case.orphans()), sum(copy.is_marked for copy in case.copies))
