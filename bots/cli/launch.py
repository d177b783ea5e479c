"""Starts a gateway that outlives the terminal, waits until it serves, and lets in whoever greets it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tidings.bots.cli.context import Guide, Place
from tidings.core.errors import Declined, NotRunning, TidingsError, Unrouted

LOG = "tidings.log"
# To this size it grows, and then by what one life of a gateway writes.
LOG_BYTES = 20_000_000
START_SECONDS = 60.0
# A platform that has not said anything by then may still come; one looks at `tidings status`.
CONNECT_SECONDS = 20.0
LOOK_SECONDS = 0.25
GREETING_SECONDS = 600.0
WELCOME = "You are admitted now: I listen to you here. Say anything."


def is_running(place: Place) -> bool:
    return look(place) is not None


def look(place: Place) -> dict[str, Any] | None:
    """How the gateway fares; None while there is none that can tell."""
    try:
        health: dict[str, Any] = place.ask({"verb": "status"})["health"]
    except (NotRunning, Unrouted, Declined):
        return None
    return health


def start(place: Place) -> int:
    """The process that serves now, away from this terminal. Raises TidingsError with its last words."""
    place.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = fresh_log(place.home)
    config = ["--config", str(place.config)] if place.config else []
    command = [sys.executable, "-m", "tidings.bots.main", "--home", str(place.home), *config, "run", "--no-chat"]
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    began = os.fstat(descriptor).st_size
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True
        )
    finally:
        os.close(descriptor)
    for _ in _moments(START_SECONDS):
        if is_running(place):
            return process.pid
        if process.poll() is not None:
            raise TidingsError(f"the gateway did not start: {_last_words(log, began)}")
    raise TidingsError(f"the gateway has not answered for {START_SECONDS:g} s; look into {log}")


def fresh_log(home: Path) -> Path:
    """Where a gateway that starts now writes; what has grown large is kept beside it, once. Raises HomeInUse."""
    from tidings.core.store.lock import HomeLock

    log = home / LOG
    if log.exists() and log.stat().st_size > LOG_BYTES:
        # One that runs already would write on into the old file, where nobody looks.
        lock = HomeLock(home)
        lock.take()
        try:
            log.replace(home / f"{LOG}.1")
        finally:
            lock.release()
    return log


def stop(place: Place) -> int:
    """Lets the one that runs in this home end, and names it; what it has not finished goes on at the next start."""
    try:
        holder = int((place.home / "lock").read_text())
        os.kill(holder, signal.SIGTERM)
    except (OSError, ValueError) as error:
        raise TidingsError(f"the gateway in {place.home} could not be stopped: {error}") from error
    from tidings.core.work.processes import identity

    for _ in _moments(START_SECONDS):
        # One that has ended and that nobody has noticed yet is no longer in the way.
        if not identity.born(holder):
            return holder
    raise TidingsError(f"the gateway in {place.home} has not ended for {START_SECONDS:g} s")


def service_order(place: Place) -> str:
    """How to restart a gateway that systemd keeps running, and would start again beside ours; else empty."""
    try:
        holder = int((place.home / "lock").read_text())
        return order_for(Path(f"/proc/{holder}/cgroup").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""


def order_for(groups: str) -> str:
    """By the control groups of the process, as the kernel writes them."""
    from tidings.bots.cli.service import NAME

    for line in groups.splitlines():
        group = line.rpartition(":")[2]
        if group.rpartition("/")[2] == NAME:
            return f"{'systemctl --user' if '/user@' in group else 'sudo systemctl'} restart {NAME}"
    return ""


def connected(place: Place, names: list[str]) -> Iterator[str]:
    """A line for each of these platforms, as soon as it is up or in trouble."""
    waited = set(names)
    for _ in _moments(CONNECT_SECONDS):
        for part in (look(place) or {"parts": ()})["parts"]:
            if part["name"].partition("@")[0] in waited and part["state"] != "starting":
                waited.discard(part["name"].partition("@")[0])
                trouble = f": {part['last_error']}" if part["last_error"] else ""
                yield f"{part['name']} is {part['state']}{trouble}"
        if not waited:
            return
    for name in sorted(waited):
        yield f"{name} is not up yet; look again with: tidings status"


def admit(place: Place, platform: str, guide: Guide, confirm: Callable[[str], bool]) -> bool:
    """Waits for a word from somebody on this platform, and lets them in if that is who sits here."""
    began = time.time()
    place.say(f"Now {guide.greeting}. I wait for it; Enter skips this.")
    refused: set[str] = set()
    for _ in _moments(GREETING_SECONDS):
        if _enter_was_pressed():
            return False
        health = look(place) or {"strangers": (), "parts": ()}
        for stranger in health["strangers"]:
            id = stranger["id"]
            if stranger["at"] < began or not _is_from(platform, id) or id in refused:
                continue
            if confirm(f"{stranger['name'] or 'Somebody'} ({id}) has written. Is that you?"):
                place.ask({"verb": "allow", "id": id})
                place.ask({"verb": "notify", "target": stranger["target"], "text": WELCOME})
                return True
            refused.add(id)
        if not health["strangers"] and any(_was_heard(part, platform, began) for part in health["parts"]):
            place.say("Somebody who is admitted already has written: nothing is left to do.")
            return True
    return False


def _is_from(platform: str, id: str) -> bool:
    return id.partition(":")[0].partition("@")[0] == platform


def _was_heard(part: dict[str, Any], platform: str, since: float) -> bool:
    return part["name"].startswith(f"{platform}@") and (part.get("last_inbound") or 0.0) > since


def _enter_was_pressed() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    if ready:
        sys.stdin.readline()
    return bool(ready)


def _moments(seconds: float) -> Iterator[None]:
    """One after the other, until the time is over; the first comes at once."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(LOOK_SECONDS)


def _last_words(log: Path, began: int) -> str:
    with log.open("rb") as file:
        file.seek(began)
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("tidings: ") if lines else f"it said nothing; look into {log}"
