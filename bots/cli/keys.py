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
        ["chat", "runs"], metavar="SCOPE", help="What it may; give it once for each: chat, runs, notify or admin."
    ),
) -> None:
    """Make a key and show it, once.

    It is stored only as a digest. What it may:

    \b
    chat    chat completions, responses, models and the key's own conversations
    runs    runs: begin, watch and stop them
    notify  send texts to permitted targets
    admin   all of that, everybody's conversations, health in detail and metrics
    """
    place: Place = context.obj
    answer = place.ask_keys({"do": "add", "name": name, "scopes": scope})
    # Alone on its line and alone in a pipe.
    typer.echo(answer["secret"])
    typer.echo(f"tidings: this is the key of {name}: keep it now, for nobody can show it again", err=True)


@app.command("list")
def show(context: typer.Context) -> None:
    """Say which keys there are, what they may and since when."""
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
    """Take a key back, at once.

    Whatever it has open ends, and it opens nothing any more.
    """
    place: Place = context.obj
    place.ask_keys({"do": "revoke", "name": name})
    typer.echo(f"the key of {name} opens nothing any more")
