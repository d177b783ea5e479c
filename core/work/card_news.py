"""What is said of a card to whoever watches it, waits for it or asked for it (pure)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from core.cards import Block, CardState
from core.store.database import Row
from core.work import cardfile

# What a notice says of what a worker has written; the card has all of it.
NOTICE_CHARACTERS = 3000
# What has come to a stop, as those who wait for it say it.
HELD_UP = {
    CardState.BLOCKED: ", which is blocked",
    CardState.TRIAGE: ", which is waiting for a person",
    CardState.ARCHIVED: ", which was archived",
}


def named(row: Row) -> str:
    return f"#{row['id']} “{row['title']}”"


def not_runnable(assignee: str, roster: Collection[str]) -> str:
    return f"there is nobody called {assignee!r} to work on it (there are: {', '.join(sorted(roster)) or 'none'})"


def waits_for(parent: Row) -> str:
    why = f" ({parent['block']})" if parent["block"] else ""
    return f"waits for #{parent['id']}{HELD_UP.get(parent['state'], '')}{why}"


def done(row: Row, summary: str) -> str:
    return f"✓ {named(row)} is done.\n\n{_in_short(summary)}"


def review(row: Row, summary: str) -> str:
    how = f"`/board done {row['id']}` accepts it, `/board unblock {row['id']} WHAT TO CHANGE` sends it back."
    return f"👀 {named(row)} asks for a review.\n\n{_in_short(summary)}\n\n{how}"


def held_back(row: Row, why: str) -> str:
    return f"⛔ {named(row)} is blocked ({Block.DEPENDENCY}): it {why}."


def blocked(row: Row, kind: Block, reason: str, notes: str, behind: Sequence[int], *, again: bool) -> str:
    lines = [f"⛔ {named(row)} is blocked ({kind}): {reason}"]
    if again:
        lines.append("It is the second time in a row, so a person has to look at it.")
    if notes.strip():
        lines.append(_in_short(notes))
    if behind:
        lines.append(f"Waiting for it: {', '.join(f'#{child}' for child in behind)}.")
    if kind is not Block.DEPENDENCY:
        lines.append(f"`/board unblock {row['id']} WHAT TO DO` lets it go on.")
    return "\n\n".join(lines)


def _in_short(text: str) -> str:
    said = cardfile.words(text)
    return said if len(said) <= NOTICE_CHARACTERS else f"{said[: NOTICE_CHARACTERS - 1]}…"
