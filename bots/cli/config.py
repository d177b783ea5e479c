"""Looks at the settings before a restart does: `tidings config`."""

from __future__ import annotations

import typer

from tidings.bots.cli.context import Place

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


# With one command alone, a group would lose its name for it.
@app.callback()
def _group() -> None:
    """The settings: look at them before a restart does."""


@app.command("check")
def check(context: typer.Context) -> None:
    """Say whether a gateway could start with these settings.

    Nothing is started and nobody is asked. Exit code 78 and one line where a setting is wrong; what is only odd is a
    warning.
    """
    place: Place = context.obj
    loaded = place.load({})
    place.check(loaded)
    for warning in loaded.warnings:
        place.say(f"warning: {warning}")
    bots = ", ".join(f"{name} ({bot.model or bot.chosen_agent})" for name, bot in loaded.bots.items())
    place.say(f"{loaded.file}: these settings can be used; who answers: {bots}")
