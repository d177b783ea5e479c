"""Turns an outcome into the answer that a person reads: its text, a line if it failed, and its buttons."""

from __future__ import annotations

from tidings.core import ids
from tidings.core.agent import Outcome, OutcomeKind
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.types import Body, Choice, Inbound, Origin, Signal

# Takes the place of what an earlier attempt has shown, where the last one decides to stay silent.
NOTHING_TO_ADD = "(I have nothing to add.)"


def body_of(run: str, inbound: Inbound, outcome: Outcome, *, shown: bool = False) -> Body:
    """The body of an answer; empty only for silence, which is permitted where nobody waits for an answer.

    `shown` means that an earlier attempt has shown something, which cannot stay as it is.
    """
    said = outcome.text.strip()
    if shown and not said and not outcome.files and inbound.overheard and outcome.kind is OutcomeKind.COMPLETED:
        said = NOTHING_TO_ADD
    if not said and not outcome.files and inbound.origin is Origin.TASK and inbound.errand is None:
        said = inbound.text
    text = "\n\n".join(filter(None, (said, _line(outcome))))
    names = ", ".join(file.name for file in outcome.files)
    choices = tuple(Choice(id=f"{run}/{number}", label=words) for number, words in enumerate(outcome.choices))
    return Body(text=text or names, files=outcome.files, choices=choices)


def final_of(run: str, inbound: Inbound, outcome: Outcome, *, signals: bool, shown: bool = False) -> Owed:
    """The delivery with the outcome of a run; `signals` means that a reaction shows whether it arrived."""
    signal = signal_of(outcome) if signals else None
    body = body_of(run, inbound, outcome, shown=shown)
    return Owed(ids.new("dlv"), Class.FINAL, inbound.target, body, run, signal=signal)


def signal_of(outcome: Outcome) -> Signal:
    """The sign to show when the answer has arrived, or where none can be delivered."""
    return Signal.FAILED if outcome.kind is OutcomeKind.FAILED else Signal.DONE


def asked_by(choice: str) -> tuple[str, int]:
    """The run that offered this button, and the button's number; an empty run for a button that is not ours."""
    run, _, number = choice.rpartition("/")
    return (run, int(number)) if number.isascii() and number.isdigit() else ("", 0)


def _line(outcome: Outcome) -> str:
    match outcome.kind:
        case OutcomeKind.FAILED:
            return f"⚠ I could not finish this: {outcome.reason or 'something went wrong'}."
        case OutcomeKind.CANCELLED:
            reason = outcome.reason or "stopped"
            is_sentence = reason.startswith(("stopped", "interrupted"))
            return f"{reason[0].upper()}{reason[1:]}." if is_sentence else f"Cancelled: {reason}."
        case OutcomeKind.HALTED | OutcomeKind.COMPLETED:
            # The text of a halted run already says why it was halted.
            return ""
