"""Starts a gateway that outlives the terminal, waits until it serves, and stops it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidings.bots.cli.context import Place
from tidings.core.errors import Declined, NotRunning, TidingsError, Unrouted

LOG = "tidings.log"
# A log larger than this is set aside at the next start.
LOG_BYTES = 20_000_000
START_SECONDS = 60.0
# A platform that takes longer may still connect; `tidings status` shows it.
CONNECT_SECONDS = 20.0
LOOK_SECONDS = 0.25


def is_running(place: Place) -> bool:
    return look(place) is not None


def look(place: Place) -> dict[str, Any] | None:
    """The health of the running gateway; None while none answers."""
    try:
        health: dict[str, Any] = place.ask({"verb": "status"})["health"]
    except (NotRunning, Unrouted, Declined):
        return None
    return health


def start(place: Place) -> int:
    """Starts a gateway in the background and returns its process number. Raises TidingsError with its last log line."""
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
    for _ in moments(START_SECONDS):
        if is_running(place):
            return process.pid
        if process.poll() is not None:
            raise TidingsError(f"the gateway did not start: {_last_words(log, began)}")
    raise TidingsError(f"the gateway has not answered for {START_SECONDS:g} s; look into {log}")


def fresh_log(home: Path) -> Path:
    """The log for a gateway that starts now; a large old log is renamed, replacing an earlier one. Raises HomeInUse."""
    from tidings.core.store.lock import HomeLock

    log = home / LOG
    if log.exists() and log.stat().st_size > LOG_BYTES:
        # A gateway that already runs would go on writing into the renamed file.
        lock = HomeLock(home)
        lock.take()
        try:
            log.replace(home / f"{LOG}.1")
        finally:
            lock.release()
    return log


def stop(place: Place) -> int:
    """Stops the gateway of this home and returns its process number; the next start continues its work."""
    try:
        holder = int((place.home / "lock").read_text())
        os.kill(holder, signal.SIGTERM)
    except (OSError, ValueError) as error:
        raise TidingsError(f"the gateway in {place.home} could not be stopped: {error}") from error
    from tidings.core.work.processes import identity

    for _ in moments(START_SECONDS):
        # A zombie counts as ended.
        if not identity.born(holder):
            return holder
    raise TidingsError(f"the gateway in {place.home} has not ended for {START_SECONDS:g} s")


def service_order(place: Place) -> str:
    """The command that restarts a gateway kept running by systemd; empty for any other gateway."""
    try:
        holder = int((place.home / "lock").read_text())
        return order_for(Path(f"/proc/{holder}/cgroup").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""


def order_for(groups: str) -> str:
    """The restart command, by the process's control groups as the kernel lists them."""
    from tidings.bots.cli.service import NAME

    for line in groups.splitlines():
        group = line.rpartition(":")[2]
        if group.rpartition("/")[2] == NAME:
            return f"{'systemctl --user' if '/user@' in group else 'sudo systemctl'} restart {NAME}"
    return ""


def connected(place: Place, names: list[str]) -> Iterator[str]:
    """Yields a line for each of these platforms as soon as it is up or in trouble."""
    waited = set(names)
    for _ in moments(CONNECT_SECONDS):
        for part in (look(place) or {"parts": ()})["parts"]:
            if part["name"].partition("@")[0] in waited and part["state"] != "starting":
                waited.discard(part["name"].partition("@")[0])
                trouble = f": {part['last_error']}" if part["last_error"] else ""
                yield f"{part['name']} is {part['state']}{trouble}"
        if not waited:
            return
    for name in sorted(waited):
        yield f"{name} is not up yet; look again with: tidings status"


def moments(seconds: float) -> Iterator[None]:
    """Yields at regular intervals until the time is over; the first time at once."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(LOOK_SECONDS)


def _last_words(log: Path, began: int) -> str:
    with log.open("rb") as file:
        file.seek(began)
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("tidings: ") if lines else f"it said nothing; look into {log}"
