"""What must hold about approvals after any kill: one question, one answer, and nothing paid that was not approved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from tests.chaos.case import Case
from tests.chaos.steps import Say

# What the audit trail says about the answers of people.
ANSWERS = {"granted": "approved", "denied": "denied"}


def approvals(case: Case) -> list[str]:
    """Each question is asked and ended once, and its message has no buttons any more."""
    found = [f"{row['id']} is still open" for row in case.books.approvals if row["state"] == "open"]
    for key, state in case.played.scenario.asked:
        found += _ended(case, case.said[key], state)
    return [*found, *_decided(case), *_buttons(case)]


def _ended(case: Case, say: Say, state: str) -> Iterator[str]:
    runs = {row["run"] for row in case.books.of(say)}
    states = [row["state"] for row in case.books.approvals if row["run"] in runs]
    if states != [state]:
        yield f"the questions of {say.key} ended as {states}, not as {[state]}"
    paid = Counter(case.played.ledger)[f"{say.key}-pay"]
    if paid > (1 if state == "granted" else 0):
        yield f"{say.key} paid {paid} times, and its question was {state}"
    events = [entry["event"] for entry in case.books.journal if entry["run"] in runs]
    types = Counter(msgspec.json.decode(event)["type"] for event in events)
    answers = types["approval_answered"]
    if answers != (0 if state == "withdrawn" else 1):
        yield f"{say.key} has {answers} answers among its events"
    asked = types["approval_requested"]
    if asked > 1 or (asked == 0 and not any(row["choice"] for row in case.books.approvals if row["run"] in runs)):
        yield f"{say.key} has {asked} questions among its events"


def _decided(case: Case) -> Iterator[str]:
    """What a person answered is in the audit trail once; what a standing approval covers is no answer of a person."""
    asked = [row for row in case.books.approvals if row["state"] in ANSWERS and row["delivery"]]
    answered = Counter((ANSWERS[row["state"]], row["id"]) for row in asked)
    told = Counter((row["action"], row["detail"]) for row in case.books.audit if row["action"] in ANSWERS.values())
    for answer in answered.keys() | told.keys():
        if answered[answer] != told[answer]:
            yield f"{' '.join(answer)} is {told[answer]} times in the audit trail, not {answered[answer]} times"


def _buttons(case: Case) -> Iterator[str]:
    """Only a copy that was lost in doubt may keep its buttons; who presses them is told."""
    lost = {copy.message.id for copy in case.orphans}
    for copy in case.copies:
        asks = [choice for choice in copy.message.choices if choice.id.startswith("ask_")]
        if asks and copy.message.id not in lost:
            yield f"{copy.text!r} at {copy.place} can still be pressed"
