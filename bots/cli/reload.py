"""Asks the running gateway to apply changed settings: `tidings reload`."""

from __future__ import annotations

import typer

from tidings.bots.cli.context import Place


def reload(context: typer.Context) -> None:
    """Apply changed settings to the running gateway: bots, rules, access and limits, without a pause.

    It names the settings that need a restart. Wrong settings change nothing.
    """
    place: Place = context.obj
    answer = place.ask({"verb": "reload"})
    for warning in answer["warnings"]:
        typer.echo(f"tidings: warning: {warning}", err=True)
    for change in answer["changed"]:
        typer.echo(f"changed: {change}")
    if not answer["changed"]:
        typer.echo("nothing changed that takes effect at once")
    for setting in answer["restart"]:
        typer.echo(f"needs a restart: {setting}")
    for part in answer["tried"]:
        typer.echo(f"trying again now: {part}; see `tidings status`")
