"""Lists, admits, removes, links and forgets people: `tidings people`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import typer

from tidings.bots.cli import table
from tidings.bots.cli.context import Place
from tidings.core.desk.people import PersonLine, Waiting
from tidings.core.errors import ConfigError, TidingsError, Unknown
from tidings.core.roles import GIVEN, OWNER, Role

app = typer.Typer(
    help="Who may talk to the bot, and what each may do. Works with and without a running gateway.",
    rich_markup_mode=None,
)

WHO = typer.Argument(metavar="WHO", help="A person, by name, platform:ID or id.")
JSON = typer.Option(False, "--json", help="As JSON.")
LISTS = ("owners", "admins", "allow", "bots")
NOBODY = "nobody is admitted yet; admit someone with: tidings people admit platform:ID, or with the code they were told"
GUESTS = "is a group, and everyone in it is a guest; give roles to people instead"


@app.callback(invoke_without_command=True)
def people(context: typer.Context, as_json: bool = JSON) -> None:
    if context.invoked_subcommand is None:
        _list(context.obj, as_json)


@app.command("list")
def show_all(context: typer.Context, as_json: bool = JSON) -> None:
    """List everybody who is known: their role, and where it comes from; also strangers who wait to be admitted."""
    _list(context.obj, as_json)


@app.command("show")
def show(context: typer.Context, who: str = WHO, as_json: bool = JSON) -> None:
    """Show one person: role, identities and keys."""
    place: Place = context.obj
    answer = ask(place, "show", who=who)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    line = _person(answer)
    known = {each.id: each for each in _everybody(ask(place, "list"))}
    told = {
        "name": line.name,
        "role": line.role,
        "identities": ", ".join(line.identities),
        "from": _Origins(place).of(line, known),
        "keys": ", ".join(answer["keys"]),
        "id": line.id,
    }
    for word, value in told.items():
        if value:
            place.say(f"{word:<11} {value}")


@app.command("admit")
def admit(
    context: typer.Context,
    who: str = typer.Argument(
        metavar="ID|CODE", help="A person or group, as platform:ID, or the code that the bot told a stranger."
    ),
    role: str = typer.Option(
        "", metavar="ROLE", show_default="member", help="What they may do: guest, member, admin or owner."
    ),
    name: str = typer.Option("", metavar="NAME", help="What to call them.", show_default="as they call themselves"),
) -> None:
    """Admit a person or a group, at once.

    While there is no owner yet besides the person at this machine, a terminal asks whether this is you. A group is
    admitted with everyone in it, as guests.
    """
    place: Place = context.obj
    chosen = _role(role) if role else None
    check(place, who)
    if chosen is None and not place.is_group(who) and _is_terminal() and not ask(place, "list")["has_owner"]:
        question = f"There is no owner yet. Is {who} you? The owner may do everything."
        chosen = Role.OWNER if typer.confirm(question, default=None) else None
    place.say(admitted(place, who, chosen, name))


def check(place: Place, who: str) -> None:
    """Raises Unknown for what is neither the id of a person or group nor a code."""
    from tidings.core.people import codes

    if codes.looks_like(who) or who.startswith("code_"):
        return
    try:
        place.check_id(who)
    except Unknown as error:
        hint = "" if ":" in who else ", or the code of eight characters that the bot told them"
        raise Unknown(f"{error}{hint}") from None


def check_all(place: Place, owners: list[str], others: list[str]) -> None:
    """Raises an error for an id that could not be admitted, before anything is written."""
    for id in (*owners, *others):
        place.check_id(id)
    for id in owners:
        if place.is_group(id):
            raise TidingsError(f"{id} {GUESTS}")


def admitted(place: Place, who: str, role: Role | None, name: str = "") -> str:
    """Admits an id or the stranger with a code, and returns a sentence about the result."""
    from tidings.core.people.register import a

    check(place, who)
    if place.is_group(who):
        if role not in (None, Role.GUEST):
            raise TidingsError(f"{who} {GUESTS}")
        role = Role.GUEST
    answer = ask(place, "admit", who=who, role=role or "", name=name)
    line, before = _person(answer), answer["before"]
    if before == line.role and line.by:
        return f"{called(line)} was already {a(line.role)}"
    if before == line.role:
        return f"{called(line)} is already {a(line.role)} by the settings: {_Origins(place).settings(line)}"
    if place.is_group(who):
        return f"everyone in {who} may talk to the bot now, as a guest"
    return f"{called(line)} may talk to the bot now, as {a(line.role)}"


@app.command("remove")
def remove(context: typer.Context, who: str = WHO) -> None:
    """Remove a person or a group, at once: running work is stopped, and planned work will not run."""
    place: Place = context.obj
    line = _person(ask(place, "show", who=who))
    # Only the store can be changed here.
    if line.by:
        ask(place, "remove", who=line.id)
    if line.role is Role.BLOCKED:
        place.say(f"{called(line)} is no longer blocked")
    elif not line.in_settings:
        place.say(f"{called(line)} may no longer talk to the bot; their planned work will not run")
    _name_others(place, line)
    _refer_to_settings(place, line)


@app.command("block")
def block(context: typer.Context, who: str = WHO) -> None:
    """Block a person, also one who was never admitted: they get no answer at all."""
    place: Place = context.obj
    if ":" in who:
        place.check_id(who)
    line = _person(ask(place, "block", who=who))
    place.say(f"{called(line)} is blocked and gets no answer; to undo: tidings people remove {line.identities[0]}")
    if line.in_settings:
        where = _Origins(place).settings(line)
        place.say(f"{line.in_settings[0]} is also named in the settings, {where}; the block holds all the same")


@app.command("role")
def role(
    context: typer.Context,
    who: str = WHO,
    role: str = typer.Argument(metavar="ROLE", help="One of guest, member, admin and owner."),
) -> None:
    """Change what a person may do, at once."""
    from tidings.core.people.register import a

    place: Place = context.obj
    wanted = _role(role)
    before = _person(ask(place, "show", who=who))
    if wanted is not Role.GUEST and any(place.is_group(each) for each in before.identities):
        raise TidingsError(f"{before.identities[0]} {GUESTS}")
    line = _person(ask(place, "role", who=before.id, role=wanted))
    if line.role is not wanted:
        raise TidingsError(f"{called(line)} is {a(line.role)} still: [access] settings_only is on")
    place.say(f"{called(line)} is {a(line.role)} now")


@app.command("link")
def link(
    context: typer.Context,
    who: str = WHO,
    other: str = typer.Argument(metavar="OTHER", help="Another identity of the same person, as platform:ID."),
) -> None:
    """Make two identities one person, with WHO's name and role: notes and permissions are shared."""
    place: Place = context.obj
    if ":" in other:
        place.check_id(other)
    line = _person(ask(place, "link", who=who, other=other))
    place.say(f"{called(line)} has these identities now: {', '.join(line.identities)}")


@app.command("unlink")
def unlink(
    context: typer.Context,
    identity: str = typer.Argument(metavar="IDENTITY", help="The identity to take from its person, as platform:ID."),
) -> None:
    """Take an identity from a person who has several."""
    place: Place = context.obj
    line = _person(ask(place, "unlink", who=identity))
    place.say(f"{identity} is no longer {called(line)}; to admit it again: tidings people admit {identity}")


@app.command("forget")
def forget(
    context: typer.Context,
    who: str = WHO,
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask."),
) -> None:
    """Remove a person, and erase their notes and private conversations for good."""
    place: Place = context.obj
    line = _person(ask(place, "show", who=who))
    if not yes:
        if not _is_terminal():
            raise typer.BadParameter("this cannot be undone: confirm it with --yes")
        question = f"Remove {called(line)}, and erase their notes and private conversations for good?"
        if not typer.confirm(question, default=False):
            raise typer.Exit(1)
    runs = ask(place, "forget", who=line.id)["runs"]
    erased = f"{runs} {'run is' if runs == 1 else 'runs are'} erased"
    place.say(f"{called(line)} is forgotten: their notes are gone, and {erased} with all that was said in them")
    _refer_to_settings(place, line)


def ask(place: Place, do: str, **question: Any) -> dict[str, Any]:
    return place.ask_people({"verb": "people", "do": do, **question})


def called(line: PersonLine) -> str:
    from tidings.core.roles import described

    return described(line.name, line.identities[0] if line.identities else line.id)


def _list(place: Place, as_json: bool) -> None:
    answer = ask(place, "list")
    if as_json:
        typer.echo(json.dumps({"people": answer["people"], "waiting": answer["waiting"]}, indent=2))
        return
    lines = _everybody(answer)
    known, origins = {line.id: line for line in lines}, _Origins(place)
    rows = [(line.name or "–", line.role, ", ".join(line.identities), origins.of(line, known)) for line in lines]
    for row in table.lines_of(("NAME", "ROLE", "IDENTITIES", "FROM"), rows) if rows else ():
        place.say(row)
    for told in _told_of_waiting(msgspec.convert(answer["waiting"], list[Waiting])):
        place.say(told)
    if not rows:
        typer.echo(f"tidings: {NOBODY}", err=True)


def _told_of_waiting(waiting: list[Waiting]) -> Iterator[str]:
    from tidings.bots.cli.status import span
    from tidings.core.roles import described

    for each in waiting:
        ago = span(time.time() - each.at)
        admit = f"tidings people admit {each.identity}"
        yield f"waiting: {described(each.name, each.identity)}, for {ago}; to admit them: {admit}"


class _Origins:
    """Where roles come from: the settings, which are read once, the store, or both."""

    def __init__(self, place: Place) -> None:
        from tidings.bots.cli.safety import source_of

        self._lists: dict[str, tuple[str, ...]] = {}
        try:
            loaded = place.load({})
        except ConfigError:
            # A running gateway keeps its settings while the file is broken.
            return
        source = source_of(loaded, os.environ)
        self._lists = {source.place("access", key): getattr(loaded.core.access, key) for key in LISTS}

    def settings(self, line: PersonLine) -> str:
        """The file or variable, and the key in it, that names this person."""
        found = [place for place, ids in self._lists.items() if any(each in ids for each in line.in_settings)]
        return " and ".join(found) or "the settings that the gateway runs with"

    def of(self, line: PersonLine, known: dict[str, PersonLine]) -> str:
        found = [self.settings(line)] if line.in_settings else []
        if line.by and (line.stored or not found):
            by = known.get(line.by)
            who = called(by) if by else OWNER.name if line.by == OWNER.id else line.by
            when = f" on {time.strftime('%Y-%m-%d', time.localtime(line.at))}" if line.at else ""
            found.append(f"{'blocked' if line.role is Role.BLOCKED else 'admitted'} by {who}{when}")
        if line.role is Role.STRANGER:
            found.append("not now, because [access] settings_only is on")
        return "; ".join(found)


def _refer_to_settings(place: Place, line: PersonLine) -> None:
    if line.in_settings:
        named = ", ".join(line.in_settings)
        how = f"remove {named} from {_Origins(place).settings(line)}, then run: tidings reload"
        raise TidingsError(f"{called(line)} is named in the settings and may still talk to the bot; {how}")


def _name_others(place: Place, line: PersonLine) -> None:
    """The same id may be admitted a second time, for one account."""
    from tidings.core.people.names import is_same

    for other in _everybody(ask(place, "list")):
        for id in other.identities:
            if id not in line.identities and any(is_same(id, each) for each in line.identities):
                place.say(f"the same id is also admitted as {id}; to remove that too: tidings people remove {id}")


def _everybody(answer: dict[str, Any]) -> list[PersonLine]:
    return msgspec.convert(answer["people"], list[PersonLine])


def _person(answer: dict[str, Any]) -> PersonLine:
    return msgspec.convert(answer["person"], PersonLine)


def _role(written: str) -> Role:
    if written not in GIVEN:
        raise typer.BadParameter(f"there is no role {written!r}; there are: {', '.join(GIVEN)}")
    return Role(written)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
