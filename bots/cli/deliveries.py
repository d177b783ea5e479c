"""Lists deliveries in trouble, has them tried again, or drops them: `tidings deliveries`."""

from __future__ import annotations

import time
from typing import Any

import typer

from tidings.bots.cli.context import Place
from tidings.core.errors import NotRunning

# How many are shown while no gateway runs: as many as a running one lists.
LISTED = 200

app = typer.Typer(
    help="Deliveries that are held, doubtful or dead. Works with and without a running gateway.",
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _or_list(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        _list(context.obj, waiting=False, as_json=False)


@app.command("list")
def show(
    context: typer.Context,
    waiting: bool = typer.Option(False, "--waiting", help="Also those that only wait for their turn."),
    as_json: bool = typer.Option(False, "--json", help="For programs."),
) -> None:
    """List the deliveries in trouble and why, the newest first.

    \b
    held      you must fix something first: a token, a permission, a platform that is not configured
    doubtful  it may have arrived; the platform is being asked
    dead      it was given up, and the chat is told when it next writes
    """
    _list(context.obj, waiting=waiting, as_json=as_json)


@app.command("retry")
def retry(context: typer.Context, id: str = typer.Argument(metavar="ID", help="Which, as the list says.")) -> None:
    """Try a delivery again, now.

    If it may have arrived already, what is sent says that it is a second copy.
    """
    place: Place = context.obj
    try:
        words = place.ask({"verb": "deliveries", "do": "retry", "id": id})["words"]
    except NotRunning:
        from tidings.core.operations import offline

        words = f"{offline.retry(place.home, id)}; the next start does it".replace(" now;", ";")
    typer.echo(f"{id} {words}")


@app.command("drop")
def drop(context: typer.Context, id: str = typer.Argument(metavar="ID", help="Which, as the list says.")) -> None:
    """Drop a delivery for good: it is not sent, and its chat hears no more about it."""
    place: Place = context.obj
    try:
        place.ask({"verb": "deliveries", "do": "drop", "id": id})
    except NotRunning:
        from tidings.core.operations import offline

        offline.drop(place.home, id)
    typer.echo(f"{id} is dropped; its chat hears no more about it")


def _list(place: Place, *, waiting: bool, as_json: bool) -> None:
    found = _found(place, waiting)
    if as_json:
        import json

        typer.echo(json.dumps(found))
        return
    for each in found:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(each["at"]))
        place.say(f"{each['id']}  {each['state']:<8} {at}  {each['target']}  “{each['title']}”")
        if each["reason"]:
            place.say(f"    {each['reason']}")
    if not found:
        typer.echo("tidings: no delivery is in trouble", err=True)
    elif any(each["state"] != "waiting" for each in found):
        typer.echo("tidings: for each: tidings deliveries retry ID, or tidings deliveries drop ID", err=True)


def _found(place: Place, waiting: bool) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = place.ask({"verb": "deliveries", "waiting": waiting})["deliveries"]
    except NotRunning:
        import msgspec

        from tidings.core.operations import offline

        found = msgspec.to_builtins(offline.deliveries(place.home, waiting=waiting, limit=LISTED))
    return found
