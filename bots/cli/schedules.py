"""Plans jobs and shows how they went: `tidings schedule`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import typer

from tidings.bots.cli.context import Place

app = typer.Typer(
    help="Jobs that run by the clock: a prompt for a bot, or a plain command. Needs a running gateway.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

LOOK_SECONDS = 0.2
# How long to wait for the delivery of a job's output.
DELIVERY_SECONDS = 10.0
OPEN = ("waiting", "running")
ID = typer.Argument(metavar="ID", help="Which, by its id or the beginning of it.")
JSON = typer.Option(False, "--json", help="As JSON.")


@app.command("add")
def add(
    context: typer.Context,
    name: str = typer.Argument(metavar="NAME", help="The name of the job in notices."),
    when: str = typer.Option(
        metavar="WHEN",
        help='Such as "every day at 9:00", "every 30m", "0 9 * * 1-5", "18:30", "in 20m" or "2026-03-01 09:00".',
    ),
    prompt: str = typer.Option("", help="What the bot should do."),
    command: str = typer.Option("", help="A command for the shell, instead; no output says nothing."),
    to: str = typer.Option("", metavar="TARGET", help="Where the answer goes.", show_default="the home or console"),
    zone: str = typer.Option("", help="A time zone, such as Europe/Berlin.", show_default="this machine's"),
    bot: str = typer.Option("", help="Which bot.", show_default="the one that answers there"),
    failures_to: str = typer.Option("", metavar="TARGET", help="Where failures go.", show_default="as the answer"),
    on_missed: str = typer.Option("run_once", help="What was due while nothing ran: run_once or skip."),
    repeat: int = typer.Option(0, min=0, help="How often at most; 0 is without end."),
) -> None:
    """Plan a job."""
    if bool(prompt.strip()) == bool(command.strip()):
        raise typer.BadParameter("say what to do: either --prompt or --command")
    place: Place = context.obj
    asked = {"name": name, "when": when, "prompt": prompt, "command": command, "to": to, "zone": zone, "bot": bot}
    more = {"failures": failures_to, "on_missed": on_missed, "repeat": repeat}
    place.say(_ask(place, "add", **asked, **more)["words"])


@app.command("list")
def show_all(context: typer.Context, as_json: bool = JSON) -> None:
    """List what is planned, when it runs next and how it went."""
    place: Place = context.obj
    answer = _ask(place, "list")
    if as_json:
        typer.echo(json.dumps(answer["schedules"], indent=2))
        return
    for line in answer["lines"]:
        place.say(line)
    if not answer["lines"]:
        typer.echo("tidings: nothing is planned; tidings schedule add --help says how", err=True)


@app.command("show")
def show(context: typer.Context, id: str = ID, as_json: bool = JSON) -> None:
    """Show one job and how its last runs went."""
    place: Place = context.obj
    answer = _ask(place, "show", id=id)
    if as_json:
        typer.echo(json.dumps({"schedule": answer["schedule"], "runs": answer["firings"]}, indent=2))
        return
    for line in (*answer["words"].splitlines(), *answer["runs"]):
        place.say(line)


@app.command("pause")
def pause(context: typer.Context, id: str = ID) -> None:
    """Pause a job until it is resumed."""
    place: Place = context.obj
    place.say(_ask(place, "pause", id=id)["words"])


@app.command("resume")
def resume(context: typer.Context, id: str = ID) -> None:
    """Resume a job; runs that it missed meanwhile are not made up for."""
    place: Place = context.obj
    place.say(_ask(place, "resume", id=id)["words"])


@app.command("remove")
def remove(context: typer.Context, id: str = ID) -> None:
    """Remove a job; a run that has begun still ends and is reported."""
    place: Place = context.obj
    name = _ask(place, "remove", id=id)["schedule"]["plan"]["name"]
    place.say(f"“{name}” is removed and will not run again")


@app.command("run")
def run(context: typer.Context, id: str = ID) -> None:
    """Run a job now, in the gateway, and say how it went; exits with 1 unless it completed."""
    place: Place = context.obj
    firing = _ask(place, "run", id=id)["firing"]["id"]
    _until(place, firing, lambda found: found["state"] not in OPEN)
    patience = time.monotonic() + DELIVERY_SECONDS
    answer = _until(place, firing, lambda found: found["delivery"] != "waiting" or time.monotonic() > patience)
    found = answer["firing"]
    for line in found["output"].splitlines():
        place.say(line)
    place.say(f"tidings: {answer['outcome']}")
    if found["outcome"] != "completed" or found["delivery"] == "dead":
        raise typer.Exit(1)


def _until(place: Place, firing: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    while True:
        answer = _ask(place, "firing", firing=firing)
        if holds(answer["firing"]):
            return answer
        time.sleep(LOOK_SECONDS)


def _ask(place: Place, do: str, **more: Any) -> dict[str, Any]:
    return place.ask({"verb": "schedule", "do": do, **more})
