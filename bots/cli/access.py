"""Admits people, lists them, and withdraws admission: `tidings allow`."""

from __future__ import annotations

import os
from typing import NamedTuple

import typer

from tidings.bots.cli.context import Place
from tidings.core.errors import ConfigError, NotRunning, TidingsError

BY_COMMAND = "admitted with tidings allow"


class Lists(NamedTuple):
    settings: tuple[str, ...]
    command: tuple[str, ...]


def allow(
    context: typer.Context,
    id: str = typer.Argument(
        "", metavar="ID", help="A person or group, as platform:ID; the bot tells strangers their id."
    ),
    is_list: bool = typer.Option(False, "--list", help="Show who may talk to the bot, and which list admits them."),
    is_removal: bool = typer.Option(False, "--remove", help="Withdraw admission: ID may no longer talk to the bot."),
) -> None:
    """Admit a person or a group, at once, with or without a running gateway.

    There are two lists: [access] allow in the settings, and the one that this command writes. With --remove, their
    running work is stopped and their planned work will not run.
    """
    place: Place = context.obj
    if is_list:
        _show(place)
    elif not id:
        raise typer.BadParameter("name a person or group as platform:ID, or use --list")
    elif is_removal:
        _remove(place, id)
    else:
        place.say(admit(place, id))


def admit(place: Place, id: str) -> str:
    """Admits an id and returns a sentence about the result. Raises Unknown for a malformed id."""
    place.check_id(id)
    if id in lists(place).settings:
        return f"{id} is already admitted by the settings: {_where(place)}"
    try:
        added = place.ask({"verb": "allow", "id": id})["allowed"]
    except NotRunning:
        from tidings.core.operations import offline

        added = offline.allow(place.home, id)
    return f"{id} may talk to the bot now" if added else f"{id} was already {BY_COMMAND}"


def lists(place: Place) -> Lists:
    """The lists that the running gateway uses; if none runs, those that the next one will use."""
    try:
        answer = place.ask({"verb": "allow", "do": "list"})
        return Lists(tuple(answer["settings"]), tuple(answer["command"]))
    except NotRunning:
        from tidings.core.operations import offline

        return Lists(place.load({}).core.access.allow, tuple(sorted(offline.admitted(place.home))))


def _show(place: Place) -> None:
    known = lists(place)
    for id in known.command:
        place.say(f"{id:<32} {BY_COMMAND}")
    where = _where(place) if known.settings else ""
    for id in known.settings:
        place.say(f"{id:<32} {where}")
    if not known.command and not known.settings:
        typer.echo("tidings: no one is admitted yet; admit someone with: tidings allow platform:ID", err=True)


def _remove(place: Place, id: str) -> None:
    known = lists(place)
    if id in known.command:
        try:
            place.ask({"verb": "allow", "do": "remove", "id": id})
        except NotRunning:
            from tidings.core.operations import offline

            offline.withdraw(place.home, id)
        if id not in known.settings:
            place.say(f"{id} may no longer talk to the bot; their planned work will not run")
    elif id not in known.settings:
        raise TidingsError(f"{id} is not admitted; see who is: tidings allow --list")
    for other in (*known.command, *known.settings):
        if other != id and _is_same(other, id):
            place.say(f"the same id is also admitted as {other}; to withdraw that too: tidings allow --remove {other}")
    if id in known.settings:
        how = f"remove it from {_where(place)}, then run: tidings reload"
        raise TidingsError(f"{id} is listed in the settings and may still talk to the bot; {how}")


def _is_same(one: str, other: str) -> bool:
    """The same id on the same platform, whatever the account."""
    (platform, _, id), (known, _, its) = one.partition(":"), other.partition(":")
    return (platform.partition("@")[0], id) == (known.partition("@")[0], its)


def _where(place: Place) -> str:
    """The file or variable that holds the settings' list."""
    from tidings.bots.cli.safety import source_of

    try:
        return source_of(place.load({}), os.environ).place("access", "allow")
    except ConfigError:
        return "[access] allow in the settings"
