"""The board and its cards as plain text for chats and terminals (pure)."""

from __future__ import annotations

from tidings.core.desk.board import Attempt, Block, Board, Card, CardLine, CardState, Ending
from tidings.core.work.wording import lasting

MARKS = {
    CardState.TRIAGE: "🖐",
    CardState.TODO: "○",
    CardState.READY: "●",
    CardState.RUNNING: "▶",
    CardState.BLOCKED: "⛔",
    CardState.REVIEW: "👀",
    CardState.DONE: "✓",
    CardState.ARCHIVED: "▫",
}
MEANINGS = {CardState.TRIAGE: "a person must look", CardState.TODO: "waits for others"}
EMPTY = "The board is empty. /board add TITLE puts a card on it."
TITLE_CHARACTERS = 60
REASON_CHARACTERS = 140
NOTES_CHARACTERS = 1500
HAPPENINGS = 12


def board(shown: Board, wall: float) -> str:
    """One line for each card, by state; cards that are left out are counted."""
    if not sum(shown.counts.values()):
        return EMPTY
    groups: dict[CardState, list[CardLine]] = {}
    for card in shown.cards:
        groups.setdefault(card.state, []).append(card)
    blocks = []
    for state, cards in groups.items():
        count = shown.counts[state]
        meaning = f" – {MEANINGS[state]}" if state in MEANINGS else ""
        lines = [f"{MARKS[state]} {state.upper()} ({count}){meaning}", *(_line(card, wall) for card in cards)]
        if count > len(cards):
            lines.append(f"  … and {count - len(cards)} more: /board list {state}")
        blocks.append("\n".join(lines))
    hidden = [f"{count} {state}" for state, count in shown.counts.items() if state not in groups and count]
    if hidden:
        blocks.append(f"Also: {', '.join(sorted(hidden))}.")
    return "\n\n".join(blocks) or EMPTY


def _line(card: CardLine, wall: float) -> str:
    about = [card.assignee]
    if card.priority:
        about.append(f"priority {card.priority}")
    if card.state is CardState.TODO and card.parents:
        about.append("after " + ", ".join(f"#{parent}" for parent in card.parents))
    if card.state in (CardState.RUNNING, CardState.BLOCKED, CardState.REVIEW, CardState.TRIAGE):
        about.append(f"since {lasting(wall - card.changed)}")
    line = f"  #{card.id} {_cut(card.title, TITLE_CHARACTERS)} · {' · '.join(about)}"
    if card.block:
        line += f"\n     {_why(card.block, _cut(card.reason, REASON_CHARACTERS))}"
    return line


def card(shown: Card, wall: float) -> str:
    head = f"{MARKS[shown.state]} #{shown.id} {shown.title}\n{shown.state} · {shown.assignee} · by {shown.by}"
    head += f" · {lasting(wall - shown.created)} old"
    if shown.priority:
        head += f" · priority {shown.priority}"
    if shown.budget:
        head += f" · budget {shown.budget} requests"
    parts = [head]
    if shown.block:
        parts.append(f"Blocked: {_why(shown.block, shown.reason)}")
    if shown.body:
        parts.append(_cut(shown.body, NOTES_CHARACTERS))
    if shown.summary:
        parts.append(f"Result:\n{_cut(shown.summary, NOTES_CHARACTERS)}")
    for title, cards in (("Waits for", shown.parents), ("Waiting for it", shown.children)):
        if cards:
            parts.append("\n".join([f"{title}:", *(f"  #{each.id} {each.title} ({each.state})" for each in cards)]))
    if shown.files:
        parts.append("\n".join(["Files:", *(f"  {file.name} – {file.place}" for file in shown.files)]))
    if shown.remarks:
        parts.append("\n".join(["Comments:", *(f"  {each.by}: {each.text}" for each in shown.remarks)]))
    if shown.attempts:
        parts.append("\n".join(["Attempts:", *(_attempt(each, wall) for each in shown.attempts)]))
    if shown.happenings:
        lines = [_happening(each.what, each.by, wall - each.at) for each in shown.happenings[-HAPPENINGS:]]
        parts.append("\n".join(["What happened:", *lines]))
    if shown.watchers:
        parts.append(f"Watchers: {', '.join(shown.watchers)}")
    return "\n\n".join(parts)


def _why(block: Block, reason: str) -> str:
    """The kind and reason of a block; the reason of a waiting card already says what it waits for."""
    return reason if block is Block.DEPENDENCY else f"{block.phrase}: {reason}"


def _happening(what: str, by: str, ago: float) -> str:
    return f"  {lasting(ago)} ago: {what}" + (f" by {by}" if by else "")


def _attempt(attempt: Attempt, wall: float) -> str:
    took = lasting((attempt.ended or wall) - attempt.started)
    match attempt.ending:
        case None:
            how = f"running for {took}"
        case Ending.BLOCKED | Ending.RETRY:
            again = " and was repeated" if attempt.ending is Ending.RETRY else ""
            what = Block(attempt.kind).phrase
            how = f"after {took}{again}: {what}: {_cut(attempt.reason, REASON_CHARACTERS * 2)}"
        case _:
            how = f"{attempt.ending} after {took}"
    return f"  {attempt.number}. {how}" + (f"\n     log: {attempt.log}" if attempt.log else "")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
