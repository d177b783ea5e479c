"""Checks settings, platforms, home, store and gateway: one line for each, with what to do: `tidings doctor`."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidings.bots.cli.context import Findings, Place
from tidings.bots.cli.status import span
from tidings.core.errors import NotRunning, TidingsError

if TYPE_CHECKING:
    from tidings.bots.app.roster import Bot
    from tidings.bots.app.settings import Loaded
    from tidings.bots.assistant.settings import ModelChoice
    from tidings.bots.cli.safety import Level, Remark
    from tidings.core.desk.health import Overview

# A full disk stops everything, so the warning comes earlier.
SCARCE_BYTES = 200 * 1024 * 1024
# Every checkpoint truncates the log; a log this long means that some reader never ends.
LONG_LOG_BYTES = 256 * 1024 * 1024
# Work that waits longer than this deserves a warning.
LONG_WAIT_SECONDS = 900.0
DATABASE = "tidings.db"
LOG = "tidings.log"
TAIL_BYTES = 256 * 1024
# Older errors were seen or fixed.
RECENT_SECONDS = 86_400.0
# As tidings.core.telemetry.logs writes them, for people and for programs.
TEXT_ERROR = re.compile(r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.\d+ (?:error|critical) +(?P<words>.+)")
JSON_ERROR = re.compile(
    r'\{"at": "(?P<at>[^"]+)", "level": "(?:error|critical)", "logger": "[^"]*",'
    r' "message": "(?P<words>(?:[^"\\]|\\.)*)".*'
)


def doctor(
    context: typer.Context,
    as_json: bool = typer.Option(False, "--json", help="For programs: one object with every line."),
) -> None:
    """Check settings, platforms, home, store, queues and gateway, and say what to fix.

    The exit code is 1 if something is wrong or dangerous; an odd setting is only a warning.
    """
    place: Place = context.obj

    def say(remark: Remark) -> None:
        if not as_json:
            place.say(f"{remark.level:<4}  {remark.subject}: {remark.words}")

    examined = Doctor(say)
    examined.everything(place, os.environ)
    if as_json:
        verdict = "fail" if examined.failed else "warn" if examined.has("warn") else "ok"
        typer.echo(json.dumps({"verdict": verdict, "remarks": [each._asdict() for each in examined.remarks]}))
    raise typer.Exit(int(examined.failed))


class Doctor:
    def __init__(self, say: Callable[[Remark], None]) -> None:
        self.remarks: list[Remark] = []
        self._say = say

    @property
    def failed(self) -> bool:
        return self.has("fail")

    def has(self, level: Level) -> bool:
        return any(remark.level == level for remark in self.remarks)

    def ok(self, subject: str, words: str) -> None:
        self.note("ok", subject, words)

    def warn(self, subject: str, words: str) -> None:
        self.note("warn", subject, words)

    def fail(self, subject: str, words: str) -> None:
        self.note("fail", subject, words)

    def note(self, level: Level, subject: str, words: str) -> None:
        from tidings.bots.cli.safety import Remark
        from tidings.core.redaction import plain

        # Words from libraries and files are redacted and kept on one line.
        remark = Remark(level, subject, " ".join(plain(words).split()))
        self.remarks.append(remark)
        self._say(remark)

    @contextmanager
    def examining(self, subject: str) -> Iterator[None]:
        """Reports an error, so that the next check still runs."""
        try:
            yield
        except TidingsError as error:
            self.fail(subject, str(error))

    def everything(self, place: Place, environment: Mapping[str, str]) -> None:
        loaded = None
        with self.examining("settings"):
            loaded = place.load({})
            self.settings(loaded, environment, place)
            self.bots(loaded.bots, environment)
            self.fence(loaded, place.home)
            for name, account, findings in place.examine(loaded, ""):
                self.platform(f"{name}@{account}", findings)
        if loaded is None:
            self._stands_in(place)
        self.home(place.home)
        with self.examining("store"):
            self.store(place.home)
        with self.examining("queues"):
            self.queues(place.home, loaded)
        self.log(place.home)
        with self.examining("gateway"):
            try:
                self.gateway(place.ask({"verb": "status"})["health"], loaded, place.home)
            except NotRunning:
                self.ok("gateway", "not running; start it with: tidings run")

    def settings(self, loaded: Loaded, environment: Mapping[str, str], place: Place) -> None:
        from tidings.bots.cli.safety import remarks

        for warning in loaded.warnings:
            self.warn("settings", warning)
        if loaded.file.exists():
            self.ok("settings", f"{loaded.file}")
        else:
            self.ok("settings", f"{loaded.file} does not exist, so every setting has its default")
        for remark in remarks(loaded, environment, place.check_id, place.is_group):
            self.note(*remark)

    def _stands_in(self, place: Place) -> None:
        from tidings.bots.app import last_good

        file = place.config or place.home / "tidings.toml"
        if last_good.recall(place.home, file) is not None:
            folder = place.home / last_good.FOLDER
            self.fail("settings", f"until that is fixed, the gateway starts with the last good settings, from {folder}")

    def bots(self, bots: Mapping[str, Bot], environment: Mapping[str, str]) -> None:
        """Checks each bot, the default first, without asking any provider."""
        import asyncio

        from tidings.bots.app import agents
        from tidings.bots.app.roster import ASSISTANT

        for name, bot in bots.items():
            with self.examining(f"bot {name}"):
                agents.build({name: bot})
                if bot.chosen_agent != ASSISTANT:
                    self.ok(f"bot {name}", f"{bot.chosen_agent} answers")
                else:
                    asyncio.run(self._assistant(name, bot, environment))

    async def _assistant(self, name: str, bot: Bot, environment: Mapping[str, str]) -> None:
        from tidings.bots.assistant.models import Models, Unbuilt

        models, keys = Models(bot), []
        try:
            for choice in models.choices(""):
                await models.get(choice)
                keys.append(_key(choice, environment))
        except Unbuilt as unbuilt:
            self.fail(f"bot {name}", str(unbuilt))
            return
        finally:
            await models.close()
        fallbacks = f", else {', '.join(choice.model for choice in bot.fallbacks)}" if bot.fallbacks else ""
        parts = [
            f"assistant with {bot.model}{fallbacks}",
            "; ".join(dict.fromkeys(keys)),
            f"persona of {len(bot.persona)} characters" if bot.persona else "no persona",
            f"tools {', '.join(bot.tools)}" if bot.tools else "no tools",
            f"MCP servers {', '.join(bot.mcp)}" if bot.mcp else "",
        ]
        self.ok(f"bot {name}", "; ".join(filter(None, parts)))

    def fence(self, loaded: Loaded, home: Path) -> None:
        """Tries the fence around commands, in the home if there is one."""
        import asyncio

        from tidings.bots.app.fencing import runs_commands, tried
        from tidings.core.errors import Unfenced

        if loaded.core.terminal.backend == "local":
            # The remarks about settings say so already.
            return
        try:
            self.ok("fence", f"commands run behind {asyncio.run(tried(loaded, home))}")
        except Unfenced as error:
            self.note("fail" if runs_commands(loaded) else "warn", "fence", str(error))

    def platform(self, name: str, findings: Findings) -> None:
        for words, is_fault, is_odd in findings:
            self.note("fail" if is_fault else "warn" if is_odd else "ok", name, words)

    def home(self, home: Path) -> None:
        # Unlike os.path, Path.exists raises for an unreadable folder.
        there = next(path for path in (home, *home.parents) if os.path.exists(path))
        if not there.is_dir():
            self.fail("home", f"{there} is not a folder; move it away, or choose another with --home")
        elif not os.access(there, os.W_OK | os.X_OK):
            self.fail("home", f"{there} cannot be written; fix its permissions, or choose another with --home")
        elif there != home:
            self.ok("home", f"{home} will be made at the first start")
        else:
            self._home_in_use(home)

    def _home_in_use(self, home: Path) -> None:
        from tidings.core.store.lock import check_owner

        self.ok("home", str(home))
        if home.stat().st_mode & 0o077:
            self.warn("home", f"other users can look inside; close it with: chmod 700 {home}")
        with self.examining("home"):
            check_owner(home)
        self.disk(home, shutil.disk_usage(home).free)

    def disk(self, home: Path, free: int) -> None:
        if free < SCARCE_BYTES:
            self.warn("home", f"only {free // 1024 // 1024} MB are free on the disk of {home}; make room")

    def store(self, home: Path) -> None:
        if not os.path.isdir(home):
            self.ok("store", "nothing is stored yet")
            return
        from tidings.core.operations import offline

        for line in offline.check_store(home):
            self.ok("store", line)
        log = home / f"{DATABASE}-wal"
        if log.exists() and log.stat().st_size > LONG_LOG_BYTES:
            words = f"{log} has grown to {log.stat().st_size // 1024 // 1024} MB: stop other programs that read it"
            self.warn("store", f"{words}, then restart")

    def queues(self, home: Path, loaded: Loaded | None) -> None:
        """Reads the store directly, so that waiting work shows even while no gateway runs."""
        from tidings.core.operations import offline

        glance = offline.look_over(home) if os.path.isdir(home) else None
        if not _admits_somebody(loaded, glance) and (others := sorted(_needs_admission(loaded))):
            words = f"no one may talk to the bot at {', '.join(others)}: write to it, and admit yourself with the code"
            self.warn("access", f"{words} that it tells you, tidings people admit CODE")
        if glance is None:
            return
        now = time.time()
        if glance.oldest_queued is not None and now - glance.oldest_queued > LONG_WAIT_SECONDS:
            words = f"{glance.queued} messages wait, the oldest for {span(now - glance.oldest_queued)}"
            self.warn("queues", f"{words}: tidings status says what runs before them")
        for state, since in glance.oldest_owed.items():
            count, age = glance.deliveries.get(state, 0), now - since
            if state != "waiting" or age > LONG_WAIT_SECONDS:
                words = f"{count} deliveries are {state}, the oldest for {span(age)}"
                self.warn("queues", f"{words}: {_remedies(state)}")
        for lost in glance.lost:
            words = f"{lost.id} to {lost.target} will not arrive, since {span(now - lost.at)}: {lost.reason}"
            self.warn("queues", f"{words}; tidings deliveries retry {lost.id}, or drop it")
        if not self.has_about("queues"):
            self.ok("queues", "nothing waits for long, and nothing is lost or in doubt")

    def log(self, home: Path) -> None:
        """Reports the last error in the log of a gateway in the background."""
        if (found := last_error(home / LOG, time.time() - RECENT_SECONDS)) is not None:
            self.warn("log", f"the last error in {home / LOG}: {found}")

    def has_about(self, subject: str) -> bool:
        return any(remark.subject == subject for remark in self.remarks)

    def gateway(self, health: dict[str, Any], loaded: Loaded | None, home: Path) -> None:
        from importlib.metadata import version

        from tidings.bots.app import last_good

        self.ok("gateway", f"version {health['version']} runs")
        if health["version"] != (installed := version("tidings")):
            self.warn("gateway", f"version {installed} is installed and {health['version']} runs: restart it")
        if health["store"] != "ok":
            self.fail("gateway", health["store"])
        for part in health["parts"]:
            if part["state"] in ("degraded", "misconfigured", "standing by"):
                self.warn("gateway", f"{part['name']} is {part['state']}: {part['last_error']}")
        for alarm in health["alarms"]:
            self.warn("gateway", f"alarm {alarm['name']}, {alarm['count']} times: {alarm['last']}")
        kept = last_good.recall(home, loaded.file) if loaded else None
        if loaded and kept and [text or "" for text in loaded.texts] != list(kept):
            self.warn("gateway", f"{loaded.file} was changed since it started: tidings reload, or restart it")


def last_error(log: Path, since: float) -> str | None:
    """The newest error in the log, if it is recent."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        if (match := TEXT_ERROR.fullmatch(line)) is not None:
            at = datetime.strptime(match["at"], "%Y-%m-%d %H:%M:%S").astimezone()
        elif (match := JSON_ERROR.fullmatch(line)) is not None:
            at = datetime.fromisoformat(match["at"])
        else:
            continue
        words = match["words"] if not line.startswith("{") else json.loads(f'"{match["words"]}"')
        return f"{span(time.time() - at.timestamp())} ago, {words}" if at.timestamp() > since else None
    return None


def _admits_somebody(loaded: Loaded | None, glance: Overview | None) -> bool:
    if loaded is None:
        return True
    access = loaded.core.access
    stored = glance is not None and glance.admitted > 0 and not access.settings_only
    return stored or bool(access.owners or access.admins or access.allow)


def _needs_admission(loaded: Loaded | None) -> Iterator[str]:
    """The configured platforms on which strangers can write to the bot."""
    from pydantic import SecretStr

    for name, section in loaded.platforms.items() if loaded else ():
        sections = (section, *getattr(section, "accounts", {}).values())
        tokens = (value for each in sections for key, value in each if key.endswith("token"))
        if any(isinstance(token, SecretStr) and token.get_secret_value() for token in tokens):
            yield name


def _remedies(state: str) -> str:
    return {
        "waiting": "the platform cannot be reached, or pauses; tidings status says more",
        "held": "the platform is switched off or refuses us; fix its settings and restart",
        "doubtful": "they may have arrived, and the platform is being asked; look into the chat",
    }[state]


def _key(choice: ModelChoice, environment: Mapping[str, str]) -> str:
    """Where the key of a model comes from; never the key itself."""
    if choice.api_key.get_secret_value():
        return "key found in the settings"
    if choice.base_url:
        # A key in the environment belongs to the provider and is not sent to a `base_url`.
        return f"no key for {choice.base_url}, which may need none"
    # The model was built, so the provider's library has found a key.
    return "key found in the environment"
