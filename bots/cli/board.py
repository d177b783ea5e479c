"""Shows and changes the cards on the board: `tidings board`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from tidings.bots.cli.context import Place

app = typer.Typer(
    help="Cards that bots work on, each of which ends done or blocked. Needs a running gateway.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

CARD = typer.Argument(metavar="CARD", help="Which, by its number.")
TEXT = typer.Argument("", metavar="TEXT", help="What the worker should know.")


@app.command("list")
def show_all(
    context: typer.Context,
    state: str = typer.Argument("", metavar="STATE", help="Only these, such as blocked.", show_default="all"),
) -> None:
    """List the cards on the board."""
    _do(context, "list", other=state)


@app.command("show")
def show(
    context: typer.Context, card: str = CARD, as_json: bool = typer.Option(False, "--json", help="As JSON.")
) -> None:
    """Show one card: its text, attempts, comments and history."""
    place: Place = context.obj
    answer = _ask(place, "show", id=card)
    if as_json:
        typer.echo(json.dumps(answer["card"], indent=2))
    else:
        _say(place, answer["words"])


@app.command("add")
def add(
    context: typer.Context,
    title: str = typer.Argument(metavar="TITLE", help="What to do."),
    body: str = typer.Option("", help="Everything the worker must know."),
    to: str = typer.Option("", metavar="BOT", help="Who works on it.", show_default="the default bot"),
    after: list[str] = typer.Option([], metavar="CARD", help="It waits for this one; once for each."),
    priority: int = typer.Option(0, help="The higher, the sooner."),
    budget: int = typer.Option(0, min=0, help="Requests to the model in one attempt; 0 is the bot's own limit."),
    workspace: str = typer.Option("", help="A folder that several cards share.", show_default="one of its own"),
    watch: str = typer.Option("", metavar="TARGET", help="Who is told when it ends: platform:CHAT or console."),
    triage: bool = typer.Option(False, "--triage", help="Do not begin before the card is unblocked."),
) -> None:
    """Put a card on the board."""
    new = {"title": title, "body": body, "assignee": to, "parents": after, "priority": priority}
    more = {"budget": budget, "workspace": workspace, "triage": triage}
    _do(context, "add", new={**new, **more}, target=watch)


@app.command("comment")
def comment(
    context: typer.Context, card: str = CARD, text: str = typer.Argument(metavar="TEXT", help="What to write.")
) -> None:
    """Comment on a card."""
    _do(context, "comment", id=card, text=text)


@app.command("attach")
def attach(
    context: typer.Context,
    card: str = CARD,
    what: str = typer.Argument(metavar="FILE", help="A file, of which a copy is kept, or a link (https://…)."),
) -> None:
    """Attach a file or a link to a card, for its worker."""
    is_link = what.startswith(("https://", "http://"))
    _do(context, "attach", id=card, text=what if is_link else str(Path(what).expanduser().absolute()))


@app.command("unblock")
def unblock(context: typer.Context, card: str = CARD, text: str = TEXT) -> None:
    """Let a card continue that is blocked, waits for a person or awaits review."""
    _do(context, "unblock", id=card, text=text)


@app.command("done")
def done(context: typer.Context, card: str = CARD, text: str = TEXT) -> None:
    """Accept a card after its review, or mark it as done."""
    _do(context, "done", id=card, text=text)


@app.command("block")
def block(
    context: typer.Context, card: str = CARD, reason: str = typer.Argument(metavar="REASON", help="Why.")
) -> None:
    """Block a card that has no worker at the moment."""
    _do(context, "block", id=card, text=reason)


@app.command("link")
def link(
    context: typer.Context,
    parent: str = typer.Argument(metavar="PARENT", help="The card that must be done first."),
    child: str = typer.Argument(metavar="CHILD", help="The card that waits for it."),
) -> None:
    """Make one card wait for another."""
    _do(context, "link", id=parent, other=child)


@app.command("archive")
def archive(context: typer.Context, card: str = CARD) -> None:
    """Archive a card; a worker that is on it is stopped."""
    _do(context, "archive", id=card)


@app.command("watch")
def watch(
    context: typer.Context,
    card: str = CARD,
    target: str = typer.Argument(metavar="TARGET", help="Who is told: platform:CHAT or console."),
    off: bool = typer.Option(False, "--off", help="No longer."),
) -> None:
    """Notify a chat when a card is done or blocked."""
    _do(context, "unwatch" if off else "watch", id=card, target=target)


def _do(context: typer.Context, verb: str, **more: Any) -> None:
    place: Place = context.obj
    _say(place, _ask(place, verb, **more)["words"])


def _ask(place: Place, verb: str, **more: Any) -> dict[str, Any]:
    return place.ask({"verb": "board", "order": {"verb": verb, **more}})


def _say(place: Place, words: str) -> None:
    for line in words.splitlines():
        place.say(line)
