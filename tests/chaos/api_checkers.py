"""What must hold for the HTTP clients of a chaos run, whoever was killed or cut off in between."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from tests.chaos.api_clients import Ask, Told
from tests.chaos.steps import BROKEN, Expected, Say, expected
from tests.worlds.api import Frame

if TYPE_CHECKING:
    from tests.chaos.chaos_checkers import NightCase

ENDS = ("run.completed", "run.failed", "run.cancelled")
# After so many interruptions a run is given up, visibly.
GIVEN_UP = "interrupted 3 times in a row"
# Both in the terminal event and in the run.
_RESULT = ("output", "usage", "error", "incomplete", "files", "choices")
_TOKEN = re.compile(r"\[([^\]\s]+)\]")
# What a slow answer says when nobody stops it, and more.
_SLOW = "".join(f" {number}" for number in range(60))


def unknown(case: NightCase) -> list[str]:
    """What was accepted is known ever after, and nobody is turned away."""
    found = [f"{told}: {refusal}" for told in case.night.api for refusal in told.refusals]
    for told in case.night.api:
        if not told.runs:
            found.append(f"{told} was never accepted")
        elif told.status is None:
            found.append(f"{told} was accepted and is unknown")
    return found


def twice(case: NightCase) -> list[str]:
    """However often it is asked with one key, it is one run."""
    stored = Counter(row["key"] for row in case.books.inbox if row["adapter"] == "api")
    found = [
        f"{told} is {stored[told.ask.stored_key]} times in the inbox, its client heard of {set(told.runs)}"
        for told in case.night.api
        if told.runs and (len(set(told.runs)) != 1 or stored[told.ask.stored_key] != 1)
    ]
    strange = stored.keys() - {told.ask.stored_key for told in case.night.api}
    return found + [f"nobody asked for {key}" for key in sorted(strange)]


def endings(case: NightCase) -> list[str]:
    """One terminal event, the last, for whoever reads and for who comes when all is over."""
    found = []
    for told, frames in _readers(case):
        names = [frame.json["event"] for frame in frames]
        if sum(name in ENDS for name in names) != 1 or names[-1] not in ENDS:
            found.append(f"a reader of {told} saw {names}")
    return found


def events(case: NightCase) -> list[str]:
    """Each event once, in order, and the same for everybody."""
    found = []
    for told, frames in _readers(case):
        ids = [int(frame.id or 0) for frame in frames]
        if any(before >= after for before, after in pairwise(ids)):
            found.append(f"a reader of {told} saw the events {ids}")
        elif frames != told.replay:
            other = [frame.id for frame in told.replay]
            differ = [frame.id for frame in frames if frame not in told.replay]
            found.append(f"a reader of {told} saw the events {ids}, a later one {other}; {differ} differ")
    return found


def texts(case: NightCase) -> list[str]:
    """What the script says, or why it could not be said; and what is said to be done was done."""
    return [f"{told}: {wrong}" for told in case.night.api for wrong in _wrong(told, case)]


def status(case: NightCase) -> list[str]:
    """A run says of itself what its last event says."""
    found = []
    for told in case.night.api:
        end, run = _end(told.replay), told.status or {}
        ours = (f"run.{run.get('status')}", run.get("last_event"), *(run.get(name) for name in _RESULT))
        theirs = (end.get("event"), end.get("event"), *(end.get(name) for name in _RESULT))
        if told.runs and ours != theirs:
            found.append(f"{told} says {ours}, its last event {theirs}")
    return found


def leaks(case: NightCase) -> list[str]:
    """What is asked here is answered here, and nothing else is."""
    runs = {run for told in case.night.api for run in told.runs}
    found = [
        f"the answer {copy.text[:40]!r} stands at {copy.place}"
        for copy in case.copies
        if any(token.startswith("owner/") for token in _TOKEN.findall(copy.text))
    ]
    for row in case.books.deliveries:
        if row["run"] in runs or msgspec.json.decode(row["target"])["adapter"] == "api":
            found.append(f"{row['kind']} {row['id']} is owed for run {row['run']} to {row['target']}")
    found += [f"task {row['id']} was promised by {row['run']}" for row in case.books.tasks if row["run"] in runs]
    for told, frames in _readers(case):
        for frame in frames:
            if strange := set(_TOKEN.findall(frame.data)) - {told.ask.stored_key}:
                found.append(f"a reader of {told} saw the answer to {strange}")
            if frame.json["run_id"] != told.runs[0]:
                found.append(f"a reader of {told} saw an event of {frame.json['run_id']}")
    return found


FIGURES: dict[str, Callable[[NightCase], list[str]]] = {
    "api_unknown": unknown,
    "api_twice": twice,
    "api_endings": endings,
    "api_events": events,
    "api_texts": texts,
    "api_status": status,
    "api_leaks": leaks,
}


def _readers(case: NightCase) -> Iterator[tuple[Told, list[Frame]]]:
    return ((told, frames) for told in case.night.api if told.runs for frames in (*told.seen, told.replay))


def _end(frames: list[Frame]) -> dict[str, Any]:
    return frames[-1].json if frames else {}


def _wrong(told: Told, case: NightCase) -> Iterator[str]:
    if not told.replay:
        return
    end, wanted = _end(told.replay), _expected(told.ask)
    event, output, error = end["event"], end.get("output", ""), end.get("error", "")
    if (said := _said(told.replay)) != output:
        yield f"its events say {said!r}, its last one {output!r}"
    if not wanted.answer.startswith(output):
        yield f"it says {output!r} instead of {wanted.answer!r}"
    if told.stop == "stopping" and event != "run.cancelled":
        yield f"it was stopped and ended as {event} ({error})"
    if _is_excused(told, wanted, event, error, case.night.kills):
        return
    outcome = f"run.{wanted.outcome}".replace("halted", "completed")
    reason = end.get("incomplete", {}).get("reason", "") if wanted.outcome == "halted" else error
    whole = output == wanted.answer or wanted.is_open
    if event != outcome or wanted.report not in reason or bool(reason) != bool(wanted.report) or not whole:
        yield f"it ended as {event} ({reason}) with {output!r}, not as {outcome} ({wanted.report})"
    for word, call in (("put", "put"), ("effect", "pay")):
        if told.ask.text == word and f"{told.ask.stored_key}-{call}" not in case.night.ledger:
            yield f"it says that it did {call}, and it did not"


def _is_excused(told: Told, wanted: Expected, event: str, error: str, kills: int) -> bool:
    """It was stopped, or interrupted once too often or where it must not be repeated."""
    interrupted = error == GIVEN_UP or (bool(wanted.tool) and f"{wanted.tool} " in error and "restart" in error)
    return (event == "run.cancelled" and told.stop is not None) or (event == "run.failed" and interrupted and kills > 0)


def _expected(ask: Ask) -> Expected:
    """As the API tells it; `report` is the reason, where there is one."""
    wanted = expected(Say(ask.stored_key, "api", ask.text))
    match ask.text:
        case "slow":
            return wanted._replace(answer=wanted.answer + _SLOW, outcome="completed")
        case "halt":
            return wanted._replace(report="it was told to")
        case "fail":
            return wanted._replace(answer=wanted.answer.partition("\n")[0], report=BROKEN)
        case "task":
            # Nobody could be told later.
            return wanted._replace(answer="", outcome="failed", report="has no async delivery")
        case _:
            return wanted


def _said(frames: list[Frame]) -> str:
    """A run that begins again takes back what it has said."""
    text = ""
    for frame in frames:
        match frame.json:
            case {"event": "run.restarted"}:
                text = ""
            case {"event": "message.delta", "delta": delta}:
                text += delta
            case _:
                continue
    return text
