"""Makes, lists and revokes the keys of the HTTP API: `tidings key`."""

from __future__ import annotations

import time

import typer

from tidings.bots.cli.context import Place

app = typer.Typer(
    help="Keys of the HTTP API: one for each client. Works with and without a running gateway.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("add")
def add(
    context: typer.Context,
    name: str = typer.Argument(metavar="NAME", help="Whose key it is, such as open-webui."),
    scope: list[str] = typer.Option(
        ["chat", "runs"],
        metavar="SCOPE",
        help="What the key allows: chat, runs, notify or admin; repeat the option for several.",
    ),
) -> None:
    """Create a key and show it, once.

    Only a digest of the key is stored. The scopes:

    \b
    chat    chat completions, responses, models and the key's own conversations
    runs    runs: begin, watch and stop them
    notify  send texts to permitted targets
    admin   all of that, everyone's conversations, metrics, schedules, the board
    """
    place: Place = context.obj
    answer = place.ask_keys({"do": "add", "name": name, "scopes": scope})
    # The key stands alone on its line and alone in a pipe.
    typer.echo(answer["secret"])
    typer.echo(f"tidings: this is the key of {name}: keep it now, it cannot be shown again", err=True)


@app.command("list")
def show(context: typer.Context) -> None:
    """List the keys with their scopes and dates."""
    place: Place = context.obj
    known = place.ask_keys({"do": "list"})["keys"]
    for each in known:
        since = time.strftime("%Y-%m-%d", time.localtime(each["created"])) if each["created"] else ""
        typer.echo(f"{each['name']:<20} {' '.join(each['scopes']):<24} {since}".rstrip())
    if not known:
        none = "there is no key yet: the first start makes the owner's, and tidings key add NAME another"
        typer.echo(f"tidings: {none}", err=True)


@app.command("revoke")
def revoke(context: typer.Context, name: str = typer.Argument(metavar="NAME", help="Whose key.")) -> None:
    """Revoke a key, at once.

    Its open requests end, and it no longer works.
    """
    place: Place = context.obj
    place.ask_keys({"do": "revoke", "name": name})
    typer.echo(f"the key of {name} no longer works")
