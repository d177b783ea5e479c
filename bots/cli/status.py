"""Shows the state of the running gateway, once or continuously: `tidings status`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import typer

from tidings.bots.cli.context import Place
from tidings.core.errors import Declined, NotRunning

# Moves the cursor home and clears below it, which flickers less than clearing the screen.
TOP = "\x1b[H\x1b[J"
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


def status(
    context: typer.Context,
    as_json: bool = typer.Option(False, "--json", help="For programs; with --watch one line for each look."),
    watch: bool = typer.Option(False, "--watch", "-w", help="Look again and again, until Ctrl-C."),
    every: float = typer.Option(2.0, min=0.2, metavar="SECONDS", help="How often to look."),
) -> None:
    """Show the state of the running gateway: platforms, runs, queues, and what will not arrive."""
    place: Place = context.obj
    if not watch:
        _show(place, _look(place), as_json)
        return
    screen = sys.stdout.isatty() and not as_json
    if screen:
        sys.stdout.write(ENTER)
    try:
        while True:
            _watch_once(place, as_json, screen)
            sys.stdout.flush()
            time.sleep(every)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    finally:
        if screen:
            sys.stdout.write(LEAVE)


def _watch_once(place: Place, as_json: bool, screen: bool) -> None:
    try:
        health = _look(place)
    except (NotRunning, Declined) as error:
        # A watch goes on through a restart or a full disk, to show the recovery.
        health = None
        words = json.dumps({"error": str(error)}) if as_json else str(error)
    if screen:
        sys.stdout.write(TOP)
    if health is None:
        place.say(words)
    else:
        _show(place, health, as_json)


def _look(place: Place) -> dict[str, Any]:
    health: dict[str, Any] = place.ask({"verb": "status"})["health"]
    return health


def _show(place: Place, health: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(health))
        return
    now = time.time()
    place.say(headline(health, str(place.home), now))
    for line in lines_of(health, now):
        place.say(f"  {line}")


def headline(health: dict[str, Any], home: str, now: float) -> str:
    started = health.get("started")
    up = f" for {span(now - started)}" if started else ""
    store = "store ok" if health["store"] == "ok" else health["store"]
    return f"tidings {health['version']} runs{up} in {home}; {store}"


def lines_of(health: dict[str, Any], now: float) -> Iterator[str]:
    """The lines of the status; `now` is wall-clock time, like all times in `health`."""
    for part in health["parts"]:
        yield _part(part, now)
    glance = health.get("overview") or {}
    oldest = glance.get("oldest_queued")
    queued = f"{health['queued']}" + (f" (the oldest for {span(now - oldest)})" if oldest else "")
    yield f"running {health['running']}, queued {queued}; owed: {_owed(health, now)}"
    if asking := glance.get("asking"):
        waits = "1 question waits" if asking == 1 else f"{asking} questions wait"
        yield f"{waits} for an answer; to see and answer: tidings approvals"
    for run in glance.get("runs", ()):
        again = f", attempt {run['attempt']}" if run["attempt"] > 1 else ""
        yield f"run {run['id']} of {run['conversation']} for {span(now - run['accepted'])}{again}"
    for lost in glance.get("lost", ()):
        remedies = f"tidings deliveries retry or drop {lost['id']}"
        yield f"dead {lost['id']} to {lost['target']}, {span(now - lost['at'])} ago: {lost['reason']}; {remedies}"
    for stranger in health.get("strangers", ()):
        who = f"{stranger['id']} ({stranger['name']})" if stranger["name"] else stranger["id"]
        yield f"stranger {who}, {span(now - stranger['at'])} ago; to admit them: tidings people admit {stranger['id']}"
    for alarm in health["alarms"]:
        yield f"alarm {alarm['name']}: {alarm['count']} times, last {span(now - alarm['at'])} ago: {alarm['last']}"


def _part(part: dict[str, Any], now: float) -> str:
    moments = [
        f"last {word} {span(now - at)} ago"
        for word, at in (("in", part.get("last_inbound")), ("out", part.get("last_outbound")))
        if at
    ]
    heard = f"; {', '.join(moments)}" if moments else ""
    times = f"{part['restarts']} {'restart' if part['restarts'] == 1 else 'restarts'}"
    trouble = f"; {times}, last: {part['last_error']}" if part["restarts"] else ""
    if part["last_error"] and not part["restarts"]:
        trouble = f": {part['last_error']}"
    return f"{part['name']:<18} {part['state']} for {span(now - part['since'])}{heard}{trouble}"


def _owed(health: dict[str, Any], now: float) -> str:
    ages = (health.get("overview") or {}).get("oldest_owed", {})
    owed = [
        f"{count} {state}" + (f" (for {span(now - ages[state])})" if state in ages else "")
        for state, count in sorted(health["deliveries"].items())
    ]
    return ", ".join(owed) or "nothing"


def span(seconds: float) -> str:
    """A length of time in words; never negative, even if the clock was set back meanwhile."""
    seconds = max(seconds, 0.0)
    for length, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length:.0f} {name}"
    return f"{seconds:.0f} s"
