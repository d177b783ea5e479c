"""Notices and replies about cards (pure)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidings.core.desk.board import Block, CardState
from tidings.core.store.store import Row
from tidings.core.work.board import cards as card_rows

# How much of a worker's text a notice contains; the card has all of it.
NOTICE_CHARACTERS = 3000
# States in which a card blocks its children, in words for a child's reason.
HELD_UP = {
    CardState.BLOCKED: ", which is blocked",
    CardState.TRIAGE: ", which is waiting for a person",
    CardState.ARCHIVED: ", which was archived",
}


def named(row: Row) -> str:
    return f"#{row['id']} “{row['title']}”"


def not_runnable(assignee: str, roster: Collection[str]) -> str:
    return f"there is no bot or worker named {assignee!r} (there are: {', '.join(sorted(roster)) or 'none'})"


def waits_for(parent: Row) -> str:
    why = f" ({Block(parent['block']).phrase})" if parent["block"] else ""
    return f"waits for #{parent['id']}{HELD_UP.get(parent['state'], '')}{why}"


def done(row: Row, summary: str) -> str:
    return f"✓ {named(row)} is done.\n\n{_in_short(summary)}"


def review(row: Row, summary: str) -> str:
    how = f"`/board done {row['id']}` accepts it, `/board unblock {row['id']} WHAT TO CHANGE` sends it back."
    return f"👀 {named(row)} asks for a review.\n\n{_in_short(summary)}\n\n{how}"


def state(row: Row, when: str = "") -> str:
    """The state of a card, in a reply."""
    return f"{row['state']}{when}" + (_why(row["block"], row["reason"]) if row["block"] else "")


def held_back(row: Row, why: str, others: Sequence[int]) -> str:
    also = f"\n\nAlso blocked by this: {_numbers(others)}." if others else ""
    return f"⛔ {named(row)} is blocked: it {why}.{also}"


def blocked(row: Row, kind: Block, reason: str, notes: str, behind: Sequence[int], *, again: bool) -> str:
    lines = [f"⛔ {named(row)} is blocked{_why(kind, reason)}"]
    if again:
        lines.append("This is the second time in a row, so a person must look at it.")
    if notes.strip():
        lines.append(_in_short(notes))
    if behind:
        lines.append(f"Waiting for it: {_numbers(behind)}.")
    if kind is not Block.DEPENDENCY:
        lines.append(f"`/board unblock {row['id']} WHAT TO DO` continues it.")
    return "\n\n".join(lines)


def _why(kind: str, reason: str) -> str:
    """The kind and reason of a block; the reason of a waiting card already says what it waits for."""
    return f": it {reason}" if kind == Block.DEPENDENCY else f" ({Block(kind).phrase}): {reason}"


def _numbers(cards: Sequence[int]) -> str:
    return ", ".join(f"#{card}" for card in cards)


def _in_short(text: str) -> str:
    said = card_rows.words(text)
    return said if len(said) <= NOTICE_CHARACTERS else f"{said[: NOTICE_CHARACTERS - 1]}…"
