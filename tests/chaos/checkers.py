"""What must hold after any kill, read from the platforms' ground truth and the database file alone."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tests.chaos import approval_checkers, busy_checkers, people_checkers
from tests.chaos.case import TEXT_ACTS, Books, Case, Copy, Owed, Row, file_line
from tests.chaos.played import Played
from tests.chaos.steps import REPLIES, Expected, Fate, Say, expected
from tidings.core.outbound.outbox import MARK

__all__ = ["CHECKERS", "Books", "Case", "Copy", "Expected", "Owed", "Row", "Verdict", "expected", "judge"]

_TOKEN = re.compile(r"\[([a-z]\d+|-?\d+:\d+|[CD]\d+:\d+\.\d+)\]")


def _place(say: Say) -> tuple[str, str, str, str]:
    return say.platform, say.account, say.chat, say.thread


def _places(case: Case, say: Say) -> set[tuple[str, str, str, str]]:
    """Where its answer may stand: where it was said, or where that chat has moved to."""
    platform, account, chat, thread = _place(say)
    moved = case.moves.get((platform, chat), chat)
    return {_place(say), (platform, account, moved, thread)}


def acked(case: Case) -> list[str]:
    """I1: whatever the platform saw confirmed is stored."""
    known = {(row["adapter"], row["key"]) for row in case.books.inbox}
    known |= {(say.platform, say.key) for say in case.said.values() if not say.is_stored or say.becomes is Fate.OPEN}
    known |= {(name, key) for name in case.played.seen for key in case.played.refused}
    found = [
        f"{key} was confirmed to {name} and is not in the inbox"
        for name, seen in case.played.seen.items()
        for key in dict.fromkeys(seen.confirmed)
        if (name, key) not in known
    ]
    # What comes once more by chance may be stored then; it was lost all the same.
    return found + [
        f"{key} was confirmed and not stored when start {number} died"
        for number, crash in enumerate(case.played.crashes, start=1)
        for key in crash.unstored
    ]


def lost(case: Case) -> list[str]:
    """I2, I3, I4: taken once, one outcome, one final, and nothing left lying about."""
    found = [
        f"{key} on {name} was never confirmed" for name, seen in case.played.seen.items() for key in seen.unconfirmed
    ]
    for say in case.said.values():
        if len(rows := case.books.of(say)) not in ((0, 1) if say.becomes is Fate.OPEN else (int(say.is_stored),)):
            found.append(f"{say.key} is {len(rows)} times in the inbox")
    for row in case.books.inbox:
        if row["state"] not in ("done", "closed", "joined"):
            found.append(f"{row['key']} is still {row['state']}")
        elif row["state"] == "done" and (finals := len(case.finals(row["run"]))) != int(row["adapter"] != "api"):
            found.append(f"{row['key']} ended as {row['outcome']} and has {finals} final deliveries")
    for row in case.books.deliveries:
        if row["state"] not in ("delivered", "dead"):
            found.append(f"{row['kind']} {row['id']} is still {row['state']}")
    for row in case.books.tasks:
        given_up = row["kind"] == "frail" and row["state"] == "lost" and bool(case.played.kills)
        say = case.said_for.get(row["run"])
        wanted = "cancelled" if say and say.becomes is Fate.WITHDRAWN else "succeeded"
        if row["state"] != wanted and not given_up:
            found.append(f"task {row['id']} is {row['state']} {row['reason']}")
    return found


def outcomes(case: Case) -> list[str]:
    """I3, I11: the outcome that the script asks for, or an interruption that names the effectful tool."""
    found = []
    for say, wanted in case.messages():
        for row in case.books.of(say) if not case.is_joined(say) else ():
            interrupted = bool(wanted.tool) and row["outcome"] == "failed" and wanted.tool in row["reason"]
            excused = interrupted and bool(case.played.kills)
            if row["outcome"] != wanted.outcome and not excused:
                found.append(f"{say.key} ended as {row['outcome']} ({row['reason']}), not as {wanted.outcome}")
            if row["kind"] != "message":
                found.append(f"{say.key} was stored as {row['kind']}")
    return found


def silent(case: Case) -> list[str]:
    """I5: a person sees every line of every answer, whatever the database says, or hears that it is missing."""
    found = []
    excused = {owed.row["run"] for owed in case.owed if owed.row["kind"] == "final" and case.is_excused(owed)}
    for say, wanted in case.messages():
        if any(row["run"] in excused for row in case.books.of(say)):
            continue
        shown = "\n".join(line for copy in _album(case, say) for line in (copy.text, *copy.lines))
        found += [
            f"nobody saw {line!r} in answer to {say.key}" for line in _due(case, say, wanted) if line not in shown
        ]
    for owed in case.owed:
        state = f"{owed.row['state']} {owed.row['reason']}".strip()
        missing = [line for line, copies in owed.lines.items() if not copies]
        if not case.is_excused(owed):
            found += [f"{line!r} of {owed} ({state}) is nowhere" for line in missing]
        if owed.row["state"] == "dead" and not case.is_told(owed.row):
            found.append(f"{owed} is {state}, and nobody will ever be told")
    return [*found, *_unreported(case), *_unanswered(case)]


def _album(case: Case, say: Say) -> list[Copy]:
    """What answers a message, or any of its album: a kill may have parted them."""
    rows = [each for each in case.said.values() if each.group == say.group] if say.group else [say]
    return [copy for each in rows for copy in case.answers(each)]


def _due(case: Case, say: Say, wanted: Expected) -> list[str]:
    completed = case.is_joined(say) or any(row["outcome"] == wanted.outcome for row in case.books.of(say))
    if not completed and wanted.tool:
        return ["⚠ I could not finish this: interrupted", wanted.tool]
    lines = [wanted.answer] if wanted.is_open else [line for line in wanted.answer.split("\n") if line]
    return [*lines, file_line(wanted.file)] if wanted.file else lines


def _unreported(case: Case) -> list[str]:
    found = []
    for task in case.books.tasks:
        say = case.said_for[task["run"]]
        report = "was lost in a restart" if task["state"] == "lost" else expected(say).report
        if not any(report in copy.text for copy in case.answers(say)):
            found.append(f"the report that was promised to {say.key} was never seen")
    return found


def _unanswered(case: Case) -> list[str]:
    """Commands and strangers, whose answers are no outcome."""
    found = []
    for say in case.said.values():
        texts = [copy.text for copy in case.answers(say)]
        replies = (say.reply,) if say.reply else REPLIES.get(say.text, ())
        if replies and not any(text.startswith(replies) for text in texts):
            found.append(f"{say.key} ({say.text}) was not answered")
        if not say.addressed and texts:
            found.append(f"{say.key} was not said to us, and was answered")
    return found


def misplaced(case: Case) -> list[str]:
    """I7: every text that ever stood on a platform stood where it was asked for."""
    found = []
    for copy in case.copies:
        say = case.said.get(copy.message.reply_to) or case.admitted(copy)
        if say is None and (case.told(copy.place, copy.text) or case.is_placeholder(copy)):
            continue
        if say is None:
            found.append(f"{copy.message.text!r} at {copy.place} answers nobody")
        elif copy.place not in _places(case, say):
            found.append(f"the answer to {say.key} is at {copy.place}, not at {_place(say)}")
    spoken = {place for say in case.said.values() for place in _places(case, say)}
    for name, seen in case.played.seen.items():
        copies = {copy.message.id: copy for copy in case.copies if copy.place[0] == name}
        for effect in seen.effects:
            place = (name, effect.account, effect.chat, effect.thread)
            tokens = set(_TOKEN.findall(effect.text))
            if effect.act in TEXT_ACTS:
                copy = copies[effect.message]
                foreign = tokens - _own_tokens(case, copy, effect.text)
                found += [f"{token}'s text stood in the answer to {copy.message.reply_to}" for token in foreign]
            elif effect.act == "typing" and place not in spoken:
                found.append(f"typing was shown at {place}")
            elif effect.act == "draft":
                foreign = {token for token in tokens if place not in _places(case, case.said[token])}
                found += [f"{token}'s text stood in a draft at {place}" for token in foreign]
    return found


def _own_tokens(case: Case, copy: Copy, text: str) -> set[str]:
    """What a text may speak of: the message that it answers, or what is told there without being asked."""
    say = case.said.get(copy.message.reply_to) or case.admitted(copy)
    if say is not None and say.becomes is Fate.SHARED:
        return {each.key for each in case.said.values() if _place(each) == _place(say)}
    if say is not None:
        return {say.key}
    told = case.told(copy.place, text.removeprefix(MARK).strip())
    return {token for each in told for token in _TOKEN.findall(each.begins)}


def duplicates(case: Case) -> list[str]:
    """I6: one copy, and one more, marked, for each time it was left in doubt where nothing settles a doubt."""
    found = []
    for owed in case.owed:
        doubts = case.doubts[owed.row["id"]]
        for line, copies in owed.lines.items():
            marked = sum(copy.is_marked for copy in copies)
            if len(copies) - marked > 1:
                found.append(f"{line!r} of {owed} stands there {len(copies) - marked} times without a mark")
            if marked > (0 if case.settles(owed) else doubts):
                found.append(f"{line!r} of {owed} has {marked} marked copies after {doubts} doubts")
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
            # What never became a run has nothing to tell; what is still open is told by another checker.
            found += [f"{row['key']} is no run and has a journal"] if journal and row["state"] == "closed" else []
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
    """I8: in each lane as it was owed, except past what was in doubt; the lines of one always in order.

    What grew may have stood there in full before it was owed.
    """
    found = []
    lanes: dict[str, tuple[int, str]] = {}
    for owed in case.owed:
        appeared = [min(copy.order for copy in copies) for copies in owed.lines.values() if copies]
        if appeared != sorted(appeared):
            found.append(f"the lines of {owed} appeared in the order {appeared}")
        if appeared and owed.row["state"] == "delivered" and not case.was_doubted(owed):
            last, before = lanes.get(owed.row["lane"], (0, ""))
            if min(appeared) < last and not owed.has_grown:
                found.append(f"{owed} appeared before {before}")
            lanes[owed.row["lane"]] = max(appeared), str(owed)
    return found


def effects(case: Case) -> list[str]:
    """I11: what a tool did it did once, and what is said to be done was done."""
    done = Counter(case.played.ledger)
    found = [f"{call} happened {times} times" for call, times in done.items() if times > 1 and "-put" not in call]
    for say, wanted in case.messages():
        completed = any(row["outcome"] == "completed" for row in case.books.of(say))
        if say.text == "put" and completed and f"{say.key}-put" not in done:
            found.append(f"{say.key} says it was put in its place, and it was not")
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
    found = case.orphans
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
    "people": people_checkers.people,
    "approvals": approval_checkers.approvals,
    "busy": busy_checkers.busy,
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
    return Verdict(violations, len(case.orphans), sum(copy.is_marked for copy in case.copies))
