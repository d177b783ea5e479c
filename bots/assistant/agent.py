"""The assistant as the gateway sees it: light to build; the model library is imported when first needed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from contextvars import Context
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from tidings.bots.assistant import settings as sections
from tidings.bots.assistant.budget import Budget
from tidings.bots.assistant.tools import board
from tidings.bots.assistant.tools.toolbox import Toolbox
from tidings.bots.assistant.turnstile import Turnstile
from tidings.core.agent import Event, Finished, Turn
from tidings.core.background import Background
from tidings.core.types import Author, Errand, Origin, is_passing

if TYPE_CHECKING:
    from tidings.bots.assistant.ask import Asking
    from tidings.bots.assistant.models import Models
    from tidings.bots.assistant.tools.mcp import McpServers


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Ready:
    """The parts that need the model library."""

    work: ModuleType
    titles: ModuleType
    models: Models
    asking: Asking
    servers: McpServers | None


class Assistant:
    """Building one raises ConfigError for a tool that does not exist."""

    def __init__(
        self,
        name: str,
        settings: sections.Assistant,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
        toolbox: Toolbox | None = None,
        turnstile: Turnstile | None = None,
    ) -> None:
        self._name = name
        self._settings = settings
        self._sleep = sleep
        self._now = now
        self._own_tools = toolbox or Toolbox(settings)
        self._turnstile = turnstile or Turnstile()
        self._preparing: asyncio.Task[_Ready] | None = None
        self._naming = Background(log, "a talk got no title from a model")

    async def prepare(self) -> None:
        models = (await self._ready()).models
        # The provider's own library takes as long to import as pydantic-ai.
        await models.get(models.choices("")[0])

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        ready = await self._ready()
        await self._turnstile.enter()
        work = ready.work.Work(
            self._name,
            self._settings,
            ready.models,
            ready.asking,
            _for_card(await self._toolbox(ready, turn.message.errand), turn),
            turn,
            Budget(self._limits(turn.message.errand), self._now, turn.rest),
        )
        async with aclosing(work.events()) as events:
            async for event in events:
                if isinstance(event, Finished) and self._settings.title_model and _begins_talk(turn):
                    model = self._settings.title_model
                    self._naming.begin(ready.titles.name(turn, model, ready.models, ready.asking))
                yield event

    async def close(self) -> None:
        await self._naming.close()
        if self._preparing is None:
            return
        ready = await self._preparing
        if ready.servers is not None:
            await ready.servers.close()
        await ready.models.close()

    async def _ready(self) -> _Ready:
        if self._preparing is None or (self._preparing.done() and self._preparing.exception()):
            # The import runs in its own context, because the first run's session must not leak into later runs.
            self._preparing = asyncio.create_task(self._prepare(), context=Context())
        # Stopping one waiting run must not cancel the import for the others.
        return await asyncio.shield(self._preparing)

    async def _prepare(self) -> _Ready:
        # The import takes seconds, so it happens in a thread while the loop serves other turns.
        models, asking, work, titles = await asyncio.to_thread(_import)
        built = models.Models(self._settings)
        servers = None
        if self._settings.mcp:
            from tidings.bots.assistant.tools.mcp import McpServers

            servers = McpServers(self._settings.mcp)
        asked = asking.Asking(built, self._settings, self._sleep, self._turnstile)
        return _Ready(work, titles, built, asked, servers)

    def _limits(self, errand: Errand | None) -> sections.BotLimits:
        limits = self._settings.limits
        if errand is None:
            return limits
        requests = min(errand.requests, limits.requests or errand.requests) if errand.requests else limits.requests
        return limits.model_copy(update={"requests": requests, "seconds": limits.alone_seconds})

    async def _toolbox(self, ready: _Ready, errand: Errand | None) -> Toolbox:
        """Delegated work may use only the tools that it was given, by the names that the settings use."""
        settings = self.settings_for(errand)
        if ready.servers is None:
            return self._own_tools if settings is self._settings else Toolbox(settings)
        foreign, failures = await ready.servers.tools(), ready.servers.failures()
        return Toolbox(
            settings,
            {server: tools for server, tools in foreign.items() if server in settings.mcp},
            ready.servers.allowed(),
            {server: why for server, why in failures.items() if server in settings.mcp},
        )

    def settings_for(self, errand: Errand | None) -> sections.Assistant:
        """The bot's settings without the tools that the errand was not given, so it cannot delegate them either."""
        if errand is None or errand.tools is None:
            return self._settings
        servers = {name: server for name, server in self._settings.mcp.items() if name in errand.tools}
        approvals = self._settings.approvals
        modes = {name: mode for name, mode in approvals.modes.items() if "." not in name or _is_of(name, servers)}
        given = {
            "tools": tuple(name for name in self._settings.tools if name in errand.tools),
            "mcp": servers,
            "approvals": approvals.model_copy(update={"modes": modes}),
        }
        return self._settings.model_copy(update=given)


def _is_of(name: str, servers: Iterable[str]) -> bool:
    """Whether a mode names tools of one of these servers."""
    return any(name.startswith(f"{server}.") for server in servers)


def _for_card(toolbox: Toolbox, turn: Turn) -> Toolbox:
    """A run that works on a card can always say how the card ends, whatever tools the settings name."""
    return toolbox.lend(board.tools(everything=False)) if turn.message.origin is Origin.CARD else toolbox


def _begins_talk(turn: Turn) -> bool:
    """Tells whether this is the first exchange of a talk that people may look for later."""
    said, place = turn.message, turn.message.conversation.id
    is_talk = said.errand is None and said.origin is Origin.PERSON and not said.command and not is_passing(place)
    return is_talk and all(entry.author is Author.NOTICE for entry in turn.history)


def _import() -> tuple[ModuleType, ModuleType, ModuleType, ModuleType]:
    from tidings.bots.assistant import ask as asking
    from tidings.bots.assistant import models, titles
    from tidings.bots.assistant import run as work

    return models, asking, work, titles
