"""Checks the settings before a restart: `tidings config`."""

from __future__ import annotations

import os

import typer

from tidings.bots.cli.context import Place

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


# A group with a single command needs this callback, or the command's name would be dropped.
@app.callback()
def _group() -> None:
    """Check the settings before a restart."""


@app.command("check")
def check(context: typer.Context) -> None:
    """Check whether a gateway can start with these settings.

    Nothing is started and no platform is asked. A wrong setting is one line and exit code 78; an odd one is a
    warning.
    """
    from tidings.bots.cli.safety import remarks

    place: Place = context.obj
    loaded = place.load({})
    place.check(loaded)
    dangers = [each for each in remarks(loaded, os.environ, place.check_id, place.is_group) if each.level == "fail"]
    for warning in (*loaded.warnings, *(f"{each.subject}: {each.words}" for each in dangers)):
        place.say(f"warning: {warning}")
    bots = ", ".join(f"{name} ({bot.model or bot.chosen_agent})" for name, bot in loaded.bots.items())
    place.say(f"{loaded.file}: these settings can be used; who answers: {bots}")
