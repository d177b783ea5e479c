"""Makes the person who sets up a bot its owner on each platform: by an id, by a first message, or by a code."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable
from typing import Any

import typer

from tidings.bots.cli import launch, people
from tidings.bots.cli.context import Guide, Place
from tidings.core.errors import ConfigError, TidingsError, Unknown
from tidings.core.roles import Role

GREETING_SECONDS = 600.0
# For a platform whose strangers get no code: pairing sends its own welcome.
WELCOME = "You are admitted now. Say anything."
LATER = "You can do that later: write to the bot, and run: tidings people admit CODE, with the code that it tells you"


def ask_for_id(place: Place, platform: str, title: str) -> str:
    """Asks for the person's own id on a platform; empty if they do not know it."""
    while True:
        words = f"Your own id on {title}, if you know it (Enter: write to the bot later, and it finds out)"
        written: str = typer.prompt(words, default="", show_default=False).strip()
        if not written:
            return ""
        id = written if ":" in written else f"{platform}:{written}"
        try:
            place.check_id(id)
        except Unknown as error:
            typer.echo(f"That does not work: {error}")
            continue
        if is_from(platform, id) and not place.is_group(id):
            return id
        typer.echo(f"{id} is not a person on {title}.")


def is_there(place: Place, platform: str) -> bool:
    """Tells whether an owner is known on this platform."""
    try:
        known = people.ask(place, "list")["people"]
    except ConfigError:
        # The settings are yet to be written.
        return False
    return any(each["role"] == Role.OWNER and any(is_from(platform, id) for id in each["identities"]) for each in known)


def meet(place: Place, platform: str, guide: Guide, confirm: Callable[[str], bool]) -> bool:
    """Waits for a message on this platform or for a code, and makes its sender the owner if the person here confirms.

    The message that brought them is then answered.
    """
    began = time.time()
    place.say(f"Now {guide.greeting}. Waiting for your message; or type the code that it tells you. Enter skips this.")
    refused: set[str] = set()
    for _ in launch.moments(GREETING_SECONDS):
        typed = _typed()
        if typed == "" or (typed and _take_code(place, typed)):
            return bool(typed)
        health = launch.look(place) or {"strangers": (), "parts": ()}
        for stranger in health["strangers"]:
            id = stranger["id"]
            if stranger["at"] < began or not is_from(platform, id) or id in refused:
                continue
            if confirm(f"{stranger['name'] or 'Someone'} ({id}) has written. Is that you?"):
                _welcome(place, stranger)
                return True
            refused.add(id)
        if not health["strangers"] and any(_was_heard(part, platform, began) for part in health["parts"]):
            place.say("Someone who is already admitted has written, so there is nothing left to do.")
            return True
    return False


def _welcome(place: Place, stranger: dict[str, Any]) -> None:
    waiting = people.ask(place, "list")["waiting"]
    people.ask(place, "admit", who=stranger["id"], role=Role.OWNER)
    if not any(each["identity"] == stranger["id"] for each in waiting):
        place.ask({"verb": "notify", "target": stranger["target"], "text": WELCOME})


def _take_code(place: Place, code: str) -> bool:
    try:
        people.check(place, code)
        people.ask(place, "admit", who=code, role=Role.OWNER)
    except TidingsError as error:
        place.say(f"That does not work: {error}. Still waiting.")
        return False
    return True


def is_from(platform: str, id: str) -> bool:
    return id.partition(":")[0].partition("@")[0] == platform


def _was_heard(part: dict[str, Any], platform: str, since: float) -> bool:
    return part["name"].startswith(f"{platform}@") and (part.get("last_inbound") or 0.0) > since


def _typed() -> str | None:
    """The line that was typed meanwhile; None for none."""
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return sys.stdin.readline().strip() if ready else None
