"""What must hold of messages to a busy chat after any kill: each is in one answer, or was cut short by the next one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import msgspec

from tests.chaos.case import Case, Row
from tests.chaos.steps import Fate, Say

INTERRUPTED = "interrupted by your next message"
_NAMED = re.compile(r"\[([a-z]\d+)\] is answered\.")


def busy(case: Case) -> list[str]:
    """One outcome for each message: on the platforms, by the agent's own record, and in the order of saying."""
    said = [say for say in case.said.values() if say.becomes is Fate.SHARED]
    if not said:
        return []
    rows = {row["run"]: row for row in case.books.inbox}
    shown = _shown(case)
    found = [told for say in said for told in _one_outcome(case, say, rows, shown)]
    found += [*_contained(case, said), *_in_order(case)]
    return found if case.played.kills else [*found, *_joined(case)]


def _shown(case: Case) -> dict[str, set[str]]:
    """By message: the runs whose answers name it on a platform."""
    runs = {row["id"]: row["run"] for row in case.books.deliveries}
    shown: dict[str, set[str]] = defaultdict(set)
    for copy in case.copies:
        for key in _NAMED.findall(copy.text):
            shown[key].add(runs.get(copy.message.key.partition(".")[0]) or copy.message.id)
    return shown


def _one_outcome(case: Case, say: Say, rows: dict[str, Row], shown: dict[str, set[str]]) -> Iterator[str]:
    for row in case.books.of(say):
        leader = rows.get(row["joined"] or row["run"], row)
        if row["state"] == "joined" and row["attempt"]:
            yield f"{say.key} joined {leader['key']} and ran {row['attempt']} times by itself"
        if leader["state"] != "done":
            yield f"{say.key} belongs to {leader['key']}, which is {leader['state']}"
        others = shown[say.key] - {leader["run"]}
        if others:
            yield f"{say.key} belongs to {leader['key']} and is answered by {', '.join(sorted(others))}"
        if leader["outcome"] == "completed":
            if not shown[say.key] and not _is_excused(case, leader["run"]):
                yield f"{say.key} belongs to {leader['key']}, whose answer does not name it"
        elif (leader["outcome"], leader["reason"]) != ("cancelled", INTERRUPTED):
            yield f"{say.key} ended as {leader['outcome']} ({leader['reason']})"
        elif say.chat != "interrupt":
            yield f"{say.key} was interrupted in a chat that does not interrupt"


def _is_excused(case: Case, run: str) -> bool:
    return any(owed.row["run"] == run and owed.row["kind"] == "final" and case.is_excused(owed) for owed in case.owed)


def _contained(case: Case, said: list[Say]) -> Iterator[str]:
    """What the agent knows to be in its checkpoint belongs to that run."""
    keys = {row["key"]: row["joined"] or row["run"] for say in said for row in case.books.of(say)}
    for line in case.played.ledger:
        run, mark, taken = line.partition("-put-")
        for key in taken.split("+") if mark else ():
            if keys.get(key) != run:
                yield f"{key} is in the checkpoint of {run} and belongs to {keys.get(key)}"


def _in_order(case: Case) -> Iterator[str]:
    """In each chat, what was said first is answered first, once."""
    steps = enumerate(case.played.scenario.steps)
    number = {step.key: number for number, step in steps if isinstance(step, Say)}
    answered: dict[str, list[str]] = defaultdict(list)
    texts = {
        entry["run"]: msgspec.json.decode(entry["event"])["text"]
        for entry in case.books.journal
        if entry["kind"] == "ended"
    }
    for row in sorted((row for row in case.books.inbox if row["run"] in texts), key=lambda row: row["ended"]):
        answered[row["conversation"]] += _NAMED.findall(texts[row["run"]])
    for conversation, keys in answered.items():
        if keys != sorted(set(keys), key=lambda key: number[key]):
            yield f"{conversation} was answered in the order {', '.join(keys)}"


def _joined(case: Case) -> Iterator[str]:
    """Nothing else joins than what the scenario is made for."""
    wanted = dict(case.played.scenario.joins)
    keys = {row["run"]: row["key"] for row in case.books.inbox}
    found = {row["key"]: keys[row["joined"]] for row in case.books.inbox if row["joined"]}
    for key in sorted(wanted.keys() | found.keys()):
        if wanted.get(key) != found.get(key):
            yield f"{key} joined {found.get(key, 'nothing')}, not {wanted.get(key, 'anything')}"
