"""The supervisor's verdict on an attempt that ended without one (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidings.core.agent import ApprovalAnswered, Effect, JournalEvent, Outcome, OutcomeKind, ToolFinished, ToolStarted
from tidings.core.desk.board import Block
from tidings.core.runs.runner import NO_ANSWER

LAST_WORDS_CHARACTERS = 400
NO_VERDICT = "the worker ended without a verdict"
# The reason of a run that a restart cut off begins like this.
INTERRUPTED = "interrupted "
# The exit codes of a shell for a command that is missing or cannot be executed.
CANNOT_START = (126, 127)


class Verdict(NamedTuple):
    kind: Block
    reason: str
    # Whether the card may be tried again, within the limit of attempts and if no effect would be repeated.
    may_retry: bool


def of_run(run: str, outcome: Outcome, events: Sequence[JournalEvent]) -> Verdict:
    """The verdict on a run: the kind of block, and a reason with the last words, the error and the log."""
    log = f"; its log is {run}"
    trouble = _last_error(events)
    refused = [event for event in events if isinstance(event, ApprovalAnswered) and not event.granted]
    if refused:
        return Verdict(Block.APPROVAL, f"it needed an approval: {_short(refused[-1].reason)}{log}", False)
    match outcome.kind:
        case OutcomeKind.HALTED:
            return Verdict(Block.BUDGET, f"{outcome.reason or 'a limit was reached'}{log}", False)
        case OutcomeKind.CANCELLED:
            return Verdict(Block.STOPPED, f"{outcome.reason or 'it was stopped'}{log}", False)
        case OutcomeKind.FAILED if outcome.reason.startswith(INTERRUPTED):
            return Verdict(Block.INTERRUPTED, f"{outcome.reason}{log}", True)
        case OutcomeKind.FAILED if outcome.reason != NO_ANSWER:
            return Verdict(Block.PROVIDER, f"{outcome.reason or 'the bot failed'}{trouble}{log}", True)
        case _:
            said = f"; its last words: “{_short(outcome.text)}”" if outcome.text.strip() else "; it said nothing"
            return Verdict(Block.PROTOCOL, f"{NO_VERDICT}{trouble}{said}{log}", True)


def of_process(code: int | None, last_words: str, log: str) -> Verdict:
    """The verdict on a process: without a verdict of its own, no exit code counts as success."""
    if code in CANNOT_START:
        return Verdict(
            Block.NOT_RUNNABLE, f"the worker cannot be started: {_short(last_words)}; its log is {log}", False
        )
    how = f"{NO_VERDICT} (exit code {code})" if code is not None else f"{NO_VERDICT} (it was killed)"
    said = f"; its last words: “{_short(last_words)}”" if last_words.strip() else "; it said nothing"
    kind = Block.INTERRUPTED if code is None or code < 0 or code > 128 else Block.PROTOCOL
    return Verdict(kind, f"{how}{said}; its log is {log}", True)


def had_effect(events: Sequence[JournalEvent]) -> bool:
    return any(isinstance(event, ToolStarted) and event.effect is Effect.EFFECT for event in events)


def denied(events: Sequence[JournalEvent]) -> bool:
    """Tells whether an approval that the run needed was not given."""
    return any(isinstance(event, ApprovalAnswered) and not event.granted for event in events)


def _last_error(events: Sequence[JournalEvent]) -> str:
    """The error of the last tool, if the run failed because of it."""
    last = next((event for event in reversed(events) if isinstance(event, ToolFinished)), None)
    if last is None or not last.error:
        return ""
    return f"; {last.name or 'its last tool'} failed: {_short(last.error)}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LAST_WORDS_CHARACTERS else f"…{line[-LAST_WORDS_CHARACTERS + 1 :]}"
