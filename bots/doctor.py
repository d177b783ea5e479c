"""What `tidings doctor` looks over: one line for each thing, and what to do about it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bots.roster import ASSISTANT, Bot
from core.agent import Effect
from core.errors import TidingsError

if TYPE_CHECKING:
    from bots.assistant.settings import ModelChoice
    from bots.settings import Loaded

# A full disk stops everything; it is worth saying before.
SCARCE_BYTES = 200 * 1024 * 1024


class Doctor:
    def __init__(self, say: Callable[[str], None]) -> None:
        self.failed = False
        self._say = say

    def ok(self, subject: str, words: str) -> None:
        self._say(f"ok    {subject}: {words}")

    def warn(self, subject: str, words: str) -> None:
        self._say(f"warn  {subject}: {words}")

    def fail(self, subject: str, words: str) -> None:
        self.failed = True
        self._say(f"fail  {subject}: {words}")

    @contextmanager
    def examining(self, subject: str) -> Iterator[None]:
        """What is wrong with one thing must not keep us from the next."""
        try:
            yield
        except TidingsError as error:
            self.fail(subject, str(error))

    def settings(self, loaded: Loaded) -> None:
        for warning in loaded.warnings:
            self.warn("settings", warning)
        if loaded.file.exists():
            self.ok("settings", f"{loaded.file}")
        else:
            self.ok("settings", f"there is no {loaded.file}, so all have their defaults")

    async def bots(self, bots: Mapping[str, Bot], environment: Mapping[str, str]) -> None:
        """Each by itself, the default first; no provider is asked anything."""
        from bots import building

        for name, bot in bots.items():
            with self.examining(f"bot {name}"):
                building.build({name: bot})
                if bot.chosen_agent != ASSISTANT:
                    self.ok(f"bot {name}", f"{bot.chosen_agent} answers")
                else:
                    await self._assistant(name, bot, environment)

    async def _assistant(self, name: str, bot: Bot, environment: Mapping[str, str]) -> None:
        from bots.assistant.models import Models, Unbuilt
        from bots.assistant.tools.toolbox import Toolbox

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
        acting = [tool.name for tool in Toolbox(bot).offered() if tool.effect is Effect.EFFECT]
        fallbacks = f", else {', '.join(choice.model for choice in bot.fallbacks)}" if bot.fallbacks else ""
        parts = [
            f"assistant with {bot.model}{fallbacks}",
            "; ".join(dict.fromkeys(keys)),
            f"persona of {len(bot.persona)} characters" if bot.persona else "no persona",
            f"tools {', '.join(bot.tools)}" if bot.tools else "no tools",
            f"acts without asking by {', '.join(acting)}" if acting else "",
            f"MCP servers {', '.join(bot.mcp)}" if bot.mcp else "",
        ]
        self.ok(f"bot {name}", "; ".join(filter(None, parts)))

    def platform(self, name: str, findings: Iterable[tuple[str, bool]]) -> None:
        """Each with its words and whether it is a fault."""
        for words, is_fault in findings:
            (self.fail if is_fault else self.ok)(name, words)

    def home(self, home: Path) -> None:
        there = next(path for path in (home, *home.parents) if path.exists())
        if not there.is_dir():
            self.fail("home", f"{there} is not a folder; move it away, or choose another with --home")
        elif not os.access(there, os.W_OK | os.X_OK):
            self.fail("home", f"{there} cannot be written; mend its permissions, or choose another with --home")
        elif there != home:
            self.ok("home", f"{home} will be made at the first start")
        else:
            self._home_in_use(home)

    def _home_in_use(self, home: Path) -> None:
        self.ok("home", str(home))
        if home.stat().st_mode & 0o077:
            self.warn("home", f"others may look inside; close it with: chmod 700 {home}")
        free = shutil.disk_usage(home).free
        if free < SCARCE_BYTES:
            self.warn("home", f"only {free // 1024 // 1024} MB are free on its disk; make room")

    def store(self, home: Path) -> None:
        if not home.is_dir():
            self.ok("store", "nothing is stored yet")
            return
        from core import offline

        for line in offline.check_store(home):
            self.ok("store", line)

    def gateway(self, health: dict[str, Any]) -> None:
        self.ok("gateway", f"version {health['version']} runs")
        if health["store"] != "ok":
            self.fail("gateway", f"its store cannot write: {health['store']}")
        for part in health["parts"]:
            if part["state"] in ("degraded", "misconfigured", "standing by"):
                self.warn("gateway", f"{part['name']} is {part['state']}: {part['last_error']}")
        for alarm in health["alarms"]:
            self.warn("gateway", f"alarm {alarm['name']}, {alarm['count']} times: {alarm['last']}")


def _key(choice: ModelChoice, environment: Mapping[str, str]) -> str:
    """Where the key of a model that could be built comes from; never the key."""
    if choice.api_key.get_secret_value():
        return "key found in the settings"
    if choice.base_url:
        # The environment's is the provider's own, and stays there.
        return f"no key for {choice.base_url}, which may need none"
    # Without one, the provider's library would have refused.
    return "key found in the environment"
