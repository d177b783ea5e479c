"""Asks the running gateway to take over changed settings: `tidings reload`."""

from __future__ import annotations

import typer

from tidings.bots.cli.context import Place


def reload(context: typer.Context) -> None:
    """Let the running gateway take over changed settings: bots, rules, access and limits, without a pause.

    What needs a restart is named. Settings that are wrong change nothing.
    """
    place: Place = context.obj
    answer = place.ask({"verb": "reload"})
    for warning in answer["warnings"]:
        typer.echo(f"tidings: warning: {warning}", err=True)
    for change in answer["changed"]:
        typer.echo(f"changed: {change}")
    if not answer["changed"]:
        typer.echo("nothing has changed that holds at once")
    for setting in answer["restart"]:
        typer.echo(f"only after a restart: {setting}")
    for part in answer["tried"]:
        typer.echo(f"trying again now: {part}; see `tidings status`")
