"""Reports about background processes: how one ended, and which lines matched (pure)."""

from __future__ import annotations

import signal
from typing import NamedTuple

from tidings.core.desk.work import Manner, TaskState
from tidings.core.settings import Work
from tidings.core.work.processes.folder import Matches, Status
from tidings.core.work.tasks.rows import End
from tidings.core.work.wording import fenced, lasting

TAIL_LINES = 20
TAIL_CHARACTERS = 1_500
MATCHED_LINES = 5


class Case(NamedTuple):
    """All that is known about a process that has ended."""

    title: str
    manner: Manner
    status: Status | None
    # Who asked the process to end.
    stopped_by: str
    # The duration, if there is no status that has it.
    seconds: float
    is_from_this_boot: bool
    output: str
    matches: Matches


def ended(case: Case, settings: Work) -> End:
    state, reason, first = _how(case, settings)
    told = [first]
    if case.matches.lines:
        told.append(f"Matching lines since the last notice:\n{_shown(case.matches)}")
    if settings.notices != "short" or case.manner is Manner.WAKE:
        tail = _tail(case.output)
        told.append(f"The end of its output:\n{fenced(tail)}" if tail else "It wrote nothing.")
    return End(state, reason, "\n\n".join(told), case.output)


def _how(case: Case, settings: Work) -> tuple[TaskState, str, str]:
    title, status, after = case.title, case.status, f"after {lasting(case.seconds)}"
    if status and status.why == "exited":
        return _exited(title, status.code, after)
    if status and status.why == "unbegun":
        return unbegun(title)
    if case.stopped_by:
        return TaskState.CANCELLED, f"stopped by {case.stopped_by}", f"“{title}” was cancelled {after}."
    if status is None:
        reason = "its keeper was killed" if case.is_from_this_boot else "the machine was restarted"
        return TaskState.LOST, reason, f"⚠ “{title}” was lost: {reason}. How it ended is unknown."
    reasons = {
        "time": "it reached its time limit",
        "output": f"it wrote more than {settings.process_output_bytes:,} bytes",
        "told": "it was asked to end from outside this conversation",
    }
    reason = reasons.get(status.why, status.why)
    return TaskState.FAILED, reason, f"⚠ “{title}” was ended {after}: {reason}."


def _exited(title: str, code: int | None, after: str) -> tuple[TaskState, str, str]:
    if not code:
        return TaskState.SUCCEEDED, "exit code 0", f"✓ “{title}” has ended {after} with exit code 0."
    named = f"exit code {code}{_signal(code)}"
    return TaskState.FAILED, named, f"⚠ “{title}” has failed {after} with {named}."


def _signal(code: int) -> str:
    try:
        return f" ({signal.Signals(code - 128).name})"
    except ValueError:
        return ""


def unbegun(title: str) -> tuple[TaskState, str, str]:
    words = f"⚠ “{title}” was lost: it was cut off before it could start, so it did nothing."
    return TaskState.LOST, "it never began", words


def matched(title: str, matches: Matches, *, is_last: bool) -> str:
    told = [f"🔎 “{title}” wrote:\n{_shown(matches)}"] if matches.lines else []
    told += [
        f"⚠ “{pattern}” takes too long on the output of “{title}” and is no longer checked." for pattern in matches.slow
    ]
    if is_last:
        told.append("Further matches are not reported. The end of the process will be.")
    return "\n\n".join(told)


def _shown(matches: Matches) -> str:
    more = len(matches.lines) - MATCHED_LINES
    return fenced("\n".join(matches.lines[:MATCHED_LINES])) + (f"\n… and {more:,} more such lines." if more > 0 else "")


def _tail(output: str) -> str:
    lines = output.rstrip().splitlines()[-TAIL_LINES:]
    text = "\n".join(lines).strip("\n")
    return text if len(text) <= TAIL_CHARACTERS else "…" + text[1 - TAIL_CHARACTERS :]
