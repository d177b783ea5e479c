"""What a person reads of an outcome: its text, and one plain line when it did not complete."""

from __future__ import annotations

from core.agent import Outcome, OutcomeKind
from core.types import Body


def body_of(outcome: Outcome) -> Body:
    text = outcome.text.strip()
    line = _line(outcome)
    return Body(text="\n\n".join(filter(None, (text, line))) or "(no text)", files=outcome.files)


def _line(outcome: Outcome) -> str:
    match outcome.kind:
        case OutcomeKind.FAILED:
            return f"⚠ I could not finish this: {outcome.reason or 'something went wrong'}."
        case OutcomeKind.CANCELLED:
            return f"Stopped: {outcome.reason}." if outcome.reason not in ("", "stopped") else "Stopped."
        case OutcomeKind.HALTED | OutcomeKind.COMPLETED:
            # What halted a run has said so in its text already.
            return ""
