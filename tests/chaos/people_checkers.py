"""What must hold about people after any kill: who is in, who was answered, and what was decided, once each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.chaos.case import Case
from tests.chaos.steps import Fate, Say

# What the audit trail says about people; it has other entries too.
DECISIONS = {"admitted", "removed", "blocked", "role", "linked", "unlinked"}


def people(case: Case) -> list[str]:
    """Answered once if admitted and never else; one row for each decision; one person behind each link."""
    return [*case.played.missed, *_answered(case), *_told(case), *_decided(case), *_stored(case)]


def _answered(case: Case) -> Iterator[str]:
    for say in case.said.values():
        if say.becomes not in (Fate.UNHEARD, Fate.LATER) or not say.addressed:
            continue
        # The line for strangers answers the message itself; the answer of a bot comes later, and below nothing.
        for copy in case.answers(say):
            if copy.message.reply_to != say.key or case.is_placeholder(copy):
                continue
            if not (say.reply and copy.text.startswith(say.reply)):
                yield f"{say.key} by {say.sender}, who was not admitted, was answered: {copy.text!r}"
        if say.becomes is Fate.UNHEARD:
            yield from (f"{say.key} by {say.sender} reached a bot: {text!r}" for text in _spoken_of(case, say))


def _spoken_of(case: Case, say: Say) -> list[str]:
    return [
        effect.text for seen in case.played.seen.values() for effect in seen.effects if f"[{say.key}]" in effect.text
    ]


def _told(case: Case) -> Iterator[str]:
    """News without a question: so often as something happened, on the platform and in the database."""
    for told in case.played.scenario.told:
        here = (told.platform, told.chat)
        owed = [each for each in case.owed if each.reply_to not in case.said and (each.platform, each.chat) == here]
        texts = ["\n".join(each.lines) for each in owed]
        stored = sum(text.startswith(told.begins) for text in texts)
        times = _tasks_of(case, told.task_of) if told.task_of else told.times
        if stored != times:
            yield f"{told.begins!r} is owed {stored} times to {here}, not {times} times"
        shown = {
            copy.message.key.partition(".")[0]
            for copy in case.loose
            if (copy.place[0], copy.place[2]) == here and copy.text.startswith(told.begins) and not copy.is_marked
        }
        if len(shown) > times:
            yield f"{told.begins!r} stands {len(shown)} times at {here}, not {times} times"


def _tasks_of(case: Case, key: str) -> int:
    runs = {row["run"] for row in case.books.of(case.said[key])}
    return sum(task["run"] in runs for task in case.books.tasks)


def _decided(case: Case) -> Iterator[str]:
    wanted = Counter(case.played.scenario.decisions)
    found = Counter((row["action"], row["detail"]) for row in case.books.audit if row["action"] in DECISIONS)
    for decision in wanted.keys() | found.keys():
        if wanted[decision] != found[decision]:
            yield f"{' '.join(decision)} is {found[decision]} times in the audit trail, not {wanted[decision]} times"


def _stored(case: Case) -> Iterator[str]:
    wanted = set(case.played.scenario.roles)
    found = {(row["id"], row["role"]) for row in case.books.identities}
    yield from (f"{identity} is stored as {role or 'nothing'}" for identity, role in sorted(found - wanted))
    yield from (f"{identity} is not stored as {role or 'nothing'}" for identity, role in sorted(wanted - found))
    persons = {row["id"]: row["person"] for row in case.books.identities}
    for linked in case.played.scenario.linked:
        if len({persons.get(identity) for identity in linked}) > 1:
            yield f"{', '.join(linked)} are not one person"
