"""Makes, lists and revokes the keys of the HTTP API: `tidings key`."""

from __future__ import annotations

import json
import time
from typing import Any

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
    name: str = typer.Argument(metavar="NAME", help="What uses the key, such as open-webui."),
    scope: list[str] = typer.Option(
        ["chat", "runs"],
        metavar="SCOPE",
        help="What the key allows, from the list above; repeat the option for several.",
    ),
    person: str = typer.Option(
        "", metavar="WHO", help="Whose key it is, by id or name; without this option, the owner's."
    ),
    bot: list[str] = typer.Option(
        [], metavar="BOT", help="Bind the key to this bot: others do not exist for it. May be repeated."
    ),
    target: list[str] = typer.Option(
        [], metavar="TARGET", help="Bind the key to this chat: it writes nowhere else. May be repeated."
    ),
) -> None:
    """Create a key and show it, once.

    Only a digest of the key is stored. A request may do what both the key's
    scopes and the role of its person permit. The scopes:

    \b
    chat       chat completions, responses, models, the key's conversations
    runs       runs: begin, watch and stop them
    notify     send texts to permitted targets
    approve    nothing yet; for questions about tools
    people     see, admit, change and remove people
    usage      what was used; others' only for owners and admins
    board      the board
    schedules  schedules
    settings   nothing yet; for the settings
    audit      the audit trail
    admin      everything, everyone's conversations, metrics
    """
    place: Place = context.obj
    asked = {"do": "add", "name": name, "scopes": scope, "person": person, "bots": bot, "targets": target}
    answer = place.ask_keys(asked)
    # The key stands alone on its line and alone in a pipe.
    typer.echo(answer["secret"])
    typer.echo(f"tidings: this is the key of {name}: keep it now, it cannot be shown again", err=True)


@app.command("list")
def show(context: typer.Context, as_json: bool = typer.Option(False, "--json", help="As JSON, for programs.")) -> None:
    """List the keys: name, person, scopes, what they are bound to, date."""
    place: Place = context.obj
    known = place.ask_keys({"do": "list"})["keys"]
    if as_json:
        typer.echo(json.dumps(known, ensure_ascii=False))
        return
    for each in known:
        place.say(_line(each))
    if not known:
        none = "there is no key yet: the first start makes the owner's, and tidings key add NAME another"
        typer.echo(f"tidings: {none}", err=True)


def _line(key: dict[str, Any]) -> str:
    since = time.strftime("%Y-%m-%d", time.localtime(key["created"])) if key["created"] else ""
    bound = " ".join([*(f"bot={bot}" for bot in key["bots"]), *(f"target={target}" for target in key["targets"])])
    return "  ".join(filter(None, [f"{key['name']:<20}", key["holder"], " ".join(key["scopes"]), bound, since]))


@app.command("revoke")
def revoke(context: typer.Context, name: str = typer.Argument(metavar="NAME", help="Which key.")) -> None:
    """Revoke a key, at once.

    Its open requests and runs end, and it no longer works. What was planned
    with it does not start.
    """
    place: Place = context.obj
    place.ask_keys({"do": "revoke", "name": name})
    typer.echo(f"the key of {name} no longer works")
