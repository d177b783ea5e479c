"""What a person reads of an outcome: its text, one plain line when it did not complete, and its buttons."""

from __future__ import annotations

from tidings.core import ids
from tidings.core.agent import Outcome, OutcomeKind
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.types import Body, Choice, Inbound, Origin, Signal


def body_of(run: str, inbound: Inbound, outcome: Outcome) -> Body:
    """Empty only for an errand, which may end in silence: whoever was woken by news has at least the news to tell."""
    said = outcome.text.strip()
    if not said and not outcome.files and inbound.origin is Origin.TASK and inbound.errand is None:
        said = inbound.text
    text = "\n\n".join(filter(None, (said, _line(outcome))))
    names = ", ".join(file.name for file in outcome.files)
    choices = tuple(Choice(id=f"{run}/{number}", label=words) for number, words in enumerate(outcome.choices))
    return Body(text=text or names, files=outcome.files, choices=choices)


def final_of(run: str, inbound: Inbound, outcome: Outcome, *, signals: bool) -> Owed:
    """The delivery that shows the outcome of a run; `signals` says that its fate is shown beside the message."""
    signal = signal_of(outcome) if signals else None
    return Owed(ids.new("dlv"), Class.FINAL, inbound.target, body_of(run, inbound, outcome), run, signal=signal)


def signal_of(outcome: Outcome) -> Signal:
    """The reaction to show once the answer has arrived, or when no answer will come."""
    return Signal.FAILED if outcome.kind is OutcomeKind.FAILED else Signal.DONE


def asked_by(choice: str) -> tuple[str, int]:
    """The run whose answer has this button, and which of its buttons it is; no run for a button of somebody else's."""
    run, _, number = choice.rpartition("/")
    return (run, int(number)) if number.isascii() and number.isdigit() else ("", 0)


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
