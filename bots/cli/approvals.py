"""Lists and answers questions whether a tool may run, and ends standing approvals: `tidings approvals`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import msgspec
import typer

from tidings.bots.cli import table
from tidings.bots.cli.context import Place
from tidings.bots.cli.status import span
from tidings.core.desk.approvals import Choice, Question, Standing
from tidings.core.errors import NotRunning

app = typer.Typer(
    help="Questions whether a tool may run: see them, answer them, and end approvals that hold for longer.",
    rich_markup_mode=None,
)

# How much of an id is shown; people write as much.
SHORT = 6
JSON = typer.Option(False, "--json", help="As JSON.")
ID = typer.Argument(metavar="ID", help="The question, as the list shows it.")
NEXT = "to answer: tidings approvals approve ID [once|talk|always], or tidings approvals deny ID [REASON]"
NOTHING = "no question waits for an answer"
AT_REST = "no gateway runs here, so nothing can be answered now; questions wait in the store until their time is up"


@app.callback(invoke_without_command=True)
def approvals(context: typer.Context, as_json: bool = JSON) -> None:
    if context.invoked_subcommand is None:
        _list(context.obj, as_json)


@app.command("list")
def show_all(context: typer.Context, as_json: bool = JSON) -> None:
    """List the questions that wait for an answer: which bot wants to run what, for whom, and for how long."""
    _list(context.obj, as_json)


@app.command("approve")
def approve(
    context: typer.Context,
    id: str = ID,
    choice: str = typer.Argument("once", metavar="once|talk|always", help="For how long; once is this call only."),
) -> None:
    """Let the tool run.

    \b
    once    this call only
    talk    the same call again in this conversation, for a while
    always  the same call again for this bot anywhere, for a longer while
    """
    chosen = {"session": Choice.TALK}.get(choice) or (Choice(choice) if choice in set(Choice) else None)
    if chosen in (None, Choice.DENY):
        raise typer.BadParameter(f"{choice!r} is none of once, talk, always")
    _decide(context.obj, id, chosen)


@app.command("deny")
def deny(
    context: typer.Context,
    id: str = ID,
    reason: list[str] = typer.Argument(None, metavar="REASON", help="Why not; the bot reads it."),
) -> None:
    """Do not let the tool run. The bot is told so, with the reason, and goes on without it."""
    _decide(context.obj, id, Choice.DENY, " ".join(reason or ()))


@app.command("standing")
def standing(context: typer.Context, as_json: bool = JSON) -> None:
    """List the approvals that hold for longer than once."""
    place: Place = context.obj
    found = msgspec.convert(place.ask({"verb": "approvals", "do": "standing"})["standing"], list[Standing])
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    if not found:
        typer.echo("tidings: nothing is approved for longer than once", err=True)
        return
    for line in table.lines_of(("ID", "BOT", "MAY RUN", "WHERE", "BY", "TIME LEFT"), list(map(_standing_row, found))):
        place.say(line)
    typer.echo("tidings: to end one: tidings approvals revoke ID", err=True)


@app.command("revoke")
def revoke(
    context: typer.Context, id: str = typer.Argument(metavar="ID", help="As `tidings approvals standing` shows it.")
) -> None:
    """End an approval that holds for longer than once: the bot asks again."""
    place: Place = context.obj
    place.ask({"verb": "approvals", "do": "revoke", "id": id})
    place.say(f"{id} is revoked; the bot asks again before it runs this")


def _decide(place: Place, id: str, choice: Choice, reason: str = "") -> None:
    try:
        answer = place.ask({"verb": "approvals", "do": "answer", "id": id, "choice": choice, "reason": reason})
    except NotRunning as error:
        raise NotRunning(f"{error}; a question can be answered only while the gateway runs") from None
    question = msgspec.convert(answer["question"], Question)
    what = " ".join(question.detail.split())
    verb = "runs" if choice is not Choice.DENY else "does not run"
    place.say(f"{answer['words']} {question.bot} {verb} {question.tool}: {what}")


def _list(place: Place, as_json: bool) -> None:
    found, runs = _open(place)
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    rows = table.lines_of(("ID", "BOT", "WANTS TO RUN", "FOR", "TIME LEFT"), list(map(_row, found)))
    for line in (*rows, *_remarks(found)) if found else ():
        place.say(line)
    words = NEXT if found and runs else AT_REST if found else NOTHING
    typer.echo(f"tidings: {words}", err=True)


def _row(question: Question) -> tuple[str, ...]:
    what = f"{question.tool}: {' '.join(question.detail.split())}"
    return (_short(question.id), question.bot, what, question.asker, _left(question.expires))


def _standing_row(standing: Standing) -> tuple[str, ...]:
    where = standing.conversation or "everywhere"
    what = f"{standing.tool}: {standing.covers}"
    return (_short(standing.id), standing.bot, what, where, standing.by, _left(standing.expires))


def _remarks(found: list[Question]) -> Iterator[str]:
    """What somebody should know before they answer, below the table."""
    for question in found:
        if question.read:
            yield f"{_short(question.id)} comes from a run that read {', '.join(question.read)}"


def _open(place: Place) -> tuple[list[Question], bool]:
    """The open questions, and whether a gateway runs that could take an answer."""
    try:
        return msgspec.convert(place.ask({"verb": "approvals", "do": "list"})["open"], list[Question]), True
    except NotRunning:
        from tidings.core.operations import offline

        return offline.questions(place.home), False


def _short(id: str) -> str:
    return id.partition("_")[2][:SHORT]


def _left(expires: float) -> str:
    left = expires - time.time()
    return span(left) if left > 0 else "none"
