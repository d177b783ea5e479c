"""What must hold after a chaos run: the sweep's checkers, and those that must allow for a crowd in real time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.chaos import api_checkers, approval_checkers, checkers, people_checkers
from tests.chaos.api_checkers import GIVEN_UP
from tests.chaos.api_clients import Told
from tests.chaos.case import Case, Copy, Owed, Row, file_line
from tests.chaos.played import Crash, Seen
from tests.chaos.steps import Expected, Fate, Platform, Say, Scenario, expected
from tests.simulators.paper.simulator import Call, Kind
from tidings.core.outbound.resolver import ANCHORS

# The platform's own word on a call, which the caller also heard unless it was killed.
_DEFINITE = ("ok", "400", "401", "403", "404", "409", "413", "429")
# An answer has certainly been heard after so long, also on a busy machine.
ANSWER_SECONDS = 1.0
_SENDS = ("post", "stream_start")


class Crowd(Scenario):
    """Nobody moves and nobody is blocked, and that need not be found out anew for each of thousands."""

    def moves(self) -> dict[tuple[str, str], str]:
        return {}

    def blocked(self) -> set[tuple[str, str]]:
        return set()

    def platform(self, name: str) -> Platform:
        """Nothing is ever owed to the API; if it is, a checker says so."""
        return Platform(name, Kind()) if name == "api" else super().platform(name)


class Night(NamedTuple):
    """One run as checkers see it: what the platforms know, the database file, the tools' own log."""

    scenario: Crowd
    # How many were said.
    messages: int
    # Commands whose platform has said itself that nobody answers, since a kill came first.
    unheard: frozenset[str]
    # How many came.
    kills: int
    seen: dict[str, Seen]
    database: Path
    ledger: tuple[str, ...]
    crashes: tuple[Crash, ...]
    # By platform: when all its connections were cut, by the wall clock.
    cuts: dict[str, tuple[float, ...]]
    # What went wrong with the run itself.
    faults: tuple[str, ...]
    # Presses of buttons, by their keys.
    presses: frozenset[str]
    # What the clients of the HTTP API saw, and how often what went wrong for them.
    api: tuple[Told, ...]
    troubles: Counter[str]
    # Nobody presses who may not, and whoever misses something is a fault of the run.
    refused: frozenset[str] = frozenset()
    missed: tuple[str, ...] = ()


class NightCase(Case):
    """The sweep's case, quicker for many messages, and with every doubt that a platform's fault can cause."""

    def __init__(self, night: Night) -> None:
        super().__init__(night)
        self.night = night
        self._count_doubts()

    def _count_doubts(self) -> None:
        """By delivery, from kills and from the platforms' calls; and how often it was a placeholder."""
        self.doubts = Counter(self.flights)
        flights = [flight for crash in self.night.crashes for flight in crash.flights]
        self.placeholders = sum(flight.kind in ("opening", "anchor") for flight in flights)
        for name, seen in self.night.seen.items():
            keys = {copy.message.id: copy.message.key for copy in self.copies if copy.place[0] == name}
            for call in seen.calls:
                if call.verdict not in _DEFINITE or _is_cut(call, self.night.cuts[name]):
                    self._doubt(call, call.ask.key or keys.get(call.ask.message_id, "") or call.ask.draft_id)
        # What was on its way when all connections were cut may never have become a call.
        for owed in self.owed:
            row, cuts = owed.row, self.night.cuts.get(owed.platform, ())
            self.doubts[row["id"]] += any(row["created"] < cut < (row["closed"] or cut + 1) for cut in cuts)

    def _doubt(self, call: Call, key: str) -> None:
        delivery, _, part = key.partition(".")
        row = self._rows.get(delivery)
        if row is None:
            return
        self.doubts[delivery] += 1
        if row["kind"] == "opening":
            # Whoever finishes a view calls in the name of its opening.
            for final in self.finals(row["run"]):
                self.doubts[final["id"]] += 1
        self.placeholders += call.method in _SENDS and (row["kind"] == "opening" or part.startswith("0"))

    def finals(self, run: str) -> list[Row]:
        return self._finals[run]

    def answers(self, say: Say) -> list[Copy]:
        return [*self._answers[say.key], *self.answers_later(say)]

    @cached_property
    def _rows(self) -> dict[str, Row]:
        return {row["id"]: row for row in self.books.deliveries}

    @cached_property
    def _finals(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = defaultdict(list)
        for row in self.books.deliveries:
            if row["kind"] == "final":
                found[row["run"]].append(row)
        return found

    @cached_property
    def _answers(self) -> dict[str, list[Copy]]:
        found: dict[str, list[Copy]] = defaultdict(list)
        for copy in self.copies:
            found[copy.message.reply_to].append(copy)
        return found

    def is_excused(self, owed: Owed) -> bool:
        """Where a message can be edited, a second copy goes by a placeholder, and several of those are tried.

        Not so the sentence that takes the place of a file.
        """
        if owed.reply_to in self.night.unheard:
            return owed.row["state"] == "dead" and self.is_told(owed.row)
        edits = self.night.scenario.platform(owed.platform).kind.streaming != "none"
        has_file = bool(msgspec.json.decode(owed.row["body"]).get("files"))
        return super().is_excused(owed) and (not edits or has_file or self.doubts[owed.row["id"]] > ANCHORS)

    def flagged(self) -> list[Owed]:
        """Not shown, and the chat is told so."""
        return [owed for owed in self.owed if self.is_excused(owed) and not all(owed.lines.values())]


def _is_cut(call: Call, cuts: tuple[float, ...]) -> bool:
    """The platform answered, or would have, and then all connections were cut: nobody knows who still heard it."""
    return any(cut - ANSWER_SECONDS < call.at < cut + ANSWER_SECONDS for cut in cuts)


def outcomes(case: NightCase) -> list[str]:
    """I3, I11: what the script asks for, what a person stopped, or an interruption that says so."""
    found = []
    for say, wanted in case.messages():
        for row in case.books.of(say):
            if row["kind"] != "message":
                found.append(f"{say.key} was stored as {row['kind']}")
            excused = _is_interrupted(row, wanted, case.night.kills) or _is_stopped(case, say, row)
            excused = excused or _is_withdrawn(say, row)
            unstopped = say.text == "slow" and row["outcome"] == "completed"
            if row["outcome"] != wanted.outcome and not excused and not unstopped:
                found.append(f"{say.key} ({say.text}) ended as {row['outcome']} ({row['reason']})")
    return found


def _is_stopped(case: NightCase, say: Say, row: Row) -> bool:
    """A stop hits whatever runs in its conversation when it comes."""
    stops = {each._replace(key="", text="") for each in case.said.values() if each.text == "/stop"}
    return row["outcome"] == "cancelled" and say._replace(key="", text="") in stops


def _is_withdrawn(say: Say, row: Row) -> bool:
    """Its person was removed or blocked, and it may have ended before that."""
    return say.becomes is Fate.OPEN and row["outcome"] == "cancelled"


def _is_interrupted(row: Row, wanted: Expected, kills: int) -> bool:
    given_up = row["reason"] == GIVEN_UP and kills >= row["attempt"] == 3
    unknown = bool(wanted.tool) and wanted.tool in row["reason"] and kills > 0
    return row["outcome"] == "failed" and (given_up or unknown)


def silent(case: NightCase) -> list[str]:
    """I5: a person sees every line of every answer, or is told that it may be missing."""
    found = list(_unseen(case))
    excused = {owed.reply_to for owed in case.owed if case.is_excused(owed)}
    for say in case.said.values():
        if say.key not in excused and say.text != "/stop":
            shown = "\n".join(line for copy in case.answers(say) for line in copy.lines)
            due = _due(case, say)
            found += [f"nobody saw {line!r} in answer to {say.key} ({say.text})" for line in due if line not in shown]
    return found


def _unseen(case: NightCase) -> Iterator[str]:
    for owed in case.owed:
        if case.is_excused(owed):
            continue
        state = f"{owed.row['state']} {owed.row['reason']}".strip()
        if owed.row["state"] == "dead":
            yield f"{owed} is {state}"
        yield from (f"{line!r} of {owed} ({state}) is nowhere" for line, copies in owed.lines.items() if not copies)


def _due(case: NightCase, say: Say) -> list[str]:
    """What must be read in the answers to a message; what it was owed for is looked after elsewhere."""
    rows, wanted = case.books.of(say), expected(say)
    if say.text in checkers.REPLIES:
        # One of these; the rest of a reply is what was owed.
        return [] if case.answers(say) else [f"a reply like {checkers.REPLIES[say.text][-1]!r}"]
    if not rows or wanted.is_open:
        return []
    if _is_stopped(case, say, rows[0]):
        return ["Stopped"]
    if _is_withdrawn(say, rows[0]):
        return []
    if rows[0]["outcome"] != wanted.outcome or rows[0]["reason"] == GIVEN_UP:
        return ["⚠ I could not finish this: interrupted"]
    lost = any(task["run"] == rows[0]["run"] and task["state"] == "lost" for task in case.books.tasks)
    report = "was lost in a restart" if lost else wanted.report
    file = file_line(wanted.file) if wanted.file else ""
    return [line for line in (*wanted.answer.split("\n"), report, file) if line]


def duplicates(case: NightCase) -> list[str]:
    """I6: one copy, and one more, marked, only where nothing settles a doubt and there was one."""
    found = []
    for owed in case.owed:
        allowed = 0 if case.settles(owed) else min(case.doubts[owed.row["id"]], 1)
        for line, copies in owed.lines.items():
            marked = sum(copy.is_marked for copy in copies)
            if len(copies) - marked > 1:
                found.append(f"{line!r} of {owed} stands there {len(copies) - marked} times without a mark")
            if marked > allowed:
                found.append(f"{line!r} of {owed} has {marked} marked copies, {allowed} were allowed")
    return found


def unsaid(case: NightCase) -> list[str]:
    """I2: two names of one message are two runs, and two answers."""
    known = {(say.platform, say.account, say.key) for say in case.said.values()}
    return [
        f"{row['key']} is in the inbox of {row['adapter']}, and nobody said it"
        for row in case.books.inbox
        if row["adapter"] != "api"
        and (row["adapter"], row["account"], row["key"]) not in known
        and row["key"] not in case.night.presses
    ]


def still_growing(case: NightCase) -> list[str]:
    growing = [copy for copy in case.copies if copy.message.streaming and copy not in case.orphans]
    return [f"the answer to {copy.message.reply_to} never stopped growing" for copy in growing]


# The words of the last line, and what counts for each.
FIGURES: dict[str, tuple[Callable[[NightCase], list[str]], ...]] = {
    "lost": (checkers.acked, checkers.lost, outcomes, checkers.effects, checkers.integrity),
    "silent": (silent, still_growing),
    "misplaced": (checkers.misplaced, checkers.order),
    "unmarked_duplicates": (duplicates, unsaid, checkers.orphans),
    "terminal_errors": (checkers.terminal,),
    "people": (people_checkers.people,),
    "approvals": (approval_checkers.approvals,),
    **{name: (check,) for name, check in api_checkers.FIGURES.items()},
}


class Verdict(NamedTuple):
    # By figure, in words.
    violations: dict[str, list[str]]
    # By platform.
    orphans: Counter[str]
    marked: Counter[str]
    flagged: Counter[str]
    # Runs that were interrupted once too often.
    given_up: int


def judge(night: Night) -> Verdict:
    case = NightCase(night)
    return Verdict(
        violations={name: [told for check in checks for told in check(case)] for name, checks in FIGURES.items()},
        orphans=Counter(copy.place[0] for copy in case.orphans),
        marked=Counter(copy.place[0] for copy in case.copies if copy.is_marked),
        flagged=Counter(owed.platform for owed in case.flagged()),
        given_up=sum(row["reason"] == GIVEN_UP for row in case.books.inbox),
    )
