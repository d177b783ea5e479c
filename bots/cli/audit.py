"""Shows who changed people, keys, homes and settings, and which tools acted for whom: `tidings audit`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import typer

from tidings.bots.cli import table
from tidings.bots.cli.context import Place

# Entries in one question.
PAGE = 200
UNITS = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}


def audit(
    context: typer.Context,
    since: str = typer.Option("", metavar="7d|DATE", help="Only what happened since then, such as 12h or 2026-03-01."),
    limit: int = typer.Option(50, min=1, help="How many entries at most, the newest."),
    as_json: bool = typer.Option(False, "--json", help="As JSON, with the ids of persons."),
) -> None:
    """Show the audit trail, with and without a running gateway; the newest entry is the last.

    It says who admitted, removed and linked people, who changed roles, keys, homes and settings, and which tools
    with effects ran for whom. [retention] audit_days says how long it is kept.
    """
    place: Place = context.obj
    lines, names = _read(place, moment_of(since, time.time()), limit)
    if as_json:
        typer.echo(json.dumps(lines, indent=2))
        return
    rows = [tuple(_cells(line, names)) for line in reversed(lines)]
    for row in table.lines_of(("TIME", "WHO", "WHAT", "OBJECT", "DETAIL"), rows) if rows else ():
        place.say(row)
    if not rows:
        typer.echo(f"tidings: nothing is recorded{' since then' if since else ' yet'}", err=True)


def _read(place: Place, since: float, limit: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
    lines: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    while len(lines) < limit:
        wanted = min(limit - len(lines), PAGE)
        before = lines[-1]["seq"] if lines else 0
        answer = place.ask_people({"verb": "audit", "limit": wanted, "before": before, "since": since})
        lines += answer["audit"]
        names |= answer["names"]
        if len(answer["audit"]) < wanted:
            break
    return lines, names


def _cells(line: dict[str, Any], names: dict[str, str]) -> Iterator[str]:
    yield time.strftime("%Y-%m-%d %H:%M", time.localtime(line["at"]))
    for word in ("actor", "action", "object"):
        yield names.get(line[word], line[word])
    yield " ".join(names.get(word, word) for word in line["detail"].split())


def moment_of(since: str, now: float) -> float:
    """The wall-clock time that `7d` or a date means; 0 for no limit."""
    written = since.strip()
    if not written:
        return 0.0
    if (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([hdw])", written)) is not None:
        return now - float(match[1]) * UNITS[match[2]]
    try:
        return datetime.fromisoformat(written).timestamp()
    except ValueError:
        raise typer.BadParameter(f"{since!r} is no age and no date; write 12h, 7d, 4w or 2026-03-01") from None
