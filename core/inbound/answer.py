"""What a person reads of an outcome: its text, and one plain line when it did not complete."""

from __future__ import annotations

from core.agent import Outcome, OutcomeKind
from core.types import Body


def body_of(outcome: Outcome) -> Body:
    """Empty only for a run without a person, which may end in silence."""
    text = "\n\n".join(filter(None, (outcome.text.strip(), _line(outcome))))
    names = ", ".join(file.name for file in outcome.files)
    return Body(text=text or names, files=outcome.files)


def _line(outcome: Outcome) -> str:
    match outcome.kind:
        case OutcomeKind.FAILED:
            return f"⚠ I could not finish this: {outcome.reason or 'something went wrong'}."
        case OutcomeKind.CANCELLED:
            reason = outcome.reason or "stopped"
            return f"{reason[0].upper()}{reason[1:]}." if reason.startswith("stopped") else f"Cancelled: {reason}."
        case OutcomeKind.HALTED | OutcomeKind.COMPLETED:
            # What halted a run has said so in its text already.
            return ""
