"""Shows who has used how much: `tidings usage`."""

from __future__ import annotations

import json
import time
from datetime import date
from enum import StrEnum

import msgspec
import typer

from tidings.bots.cli import table
from tidings.bots.cli.audit import moment_of
from tidings.bots.cli.context import Place
from tidings.core.desk.usage import Figure, Report, Scope
from tidings.core.errors import NotRunning


class By(StrEnum):
    PERSON = "person"
    BOT = "bot"
    CHAT = "chat"


def usage(
    context: typer.Context,
    by: By = typer.Option(By.PERSON, help="Whose usage is added up."),
    since: str = typer.Option("", metavar="7d|DATE", help="Since when, such as 7d or 2026-03-01; today if left out."),
    as_json: bool = typer.Option(False, "--json", help="As JSON."),
) -> None:
    """Show what was used, with and without a running gateway; [retention] usage_days says how long days are kept."""
    place: Place = context.obj
    day = date.fromtimestamp(moment_of(since, time.time())).isoformat() if since.strip() else ""
    report = _report(place, by, day)
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(report), indent=2))
        return
    if not report.figures:
        typer.echo(f"tidings: nothing was used since {report.since}", err=True)
        return
    headings = (by.upper(), "ANSWERS", "TOKENS IN", "TOKENS OUT", "REQUESTS", "DOLLARS")
    together = msgspec.structs.replace(report.total, label="together")
    for line in table.lines_of(headings, [_row(each) for each in (*report.figures, together)]):
        place.say(line)
    typer.echo(f"tidings: since {report.since}", err=True)


def _report(place: Place, by: By, day: str) -> Report:
    try:
        return msgspec.convert(place.ask({"verb": "usage", "by": by, "since": day})["usage"], Report)
    except NotRunning:
        from tidings.core.operations import offline

        core = place.load({}).core
        return offline.usage(place.home, core.access, core.allowances.zone, Scope(by.value), day)


def _row(figure: Figure) -> tuple[str, ...]:
    known = f"{figure.label} ({figure.name})" if figure.label and figure.name else figure.label or figure.name
    counts = (figure.runs, figure.input_tokens, figure.output_tokens, figure.requests)
    return (known, *(f"{count:,}" for count in counts), f"{figure.cost:.4f}")
