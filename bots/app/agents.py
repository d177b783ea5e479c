"""Builds the agents that the settings name, prepares them while the gateway serves, and closes them."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple, cast

from tidings.bots.app.roster import ASSISTANT, DEMO, Bot
from tidings.bots.assistant.turnstile import Turnstile
from tidings.core.agent import Agent
from tidings.core.errors import ConfigError
from tidings.core.work.tasks.tasks import TaskKind

log = logging.getLogger(__name__)

AGENTS = {
    DEMO: "tidings.bots.demo.agent:DemoAgent",
    "echo": "tidings.bots.echo.agent:EchoAgent",
    ASSISTANT: "tidings.bots.assistant.agent:Assistant",
}
# Exceptions that a module of the owner's may raise on import. A model library raises RuntimeError for a missing key.
FAULTS = (
    ImportError,
    AttributeError,
    SyntaxError,
    TypeError,
    RuntimeError,
    ValueError,
    LookupError,
    NameError,
    OSError,
    ArithmeticError,
    AssertionError,
)


class Staff(NamedTuple):
    """Agents by the name of their bot, and the kinds of background work that their modules offer as KINDS."""

    agents: Mapping[str, Agent]
    kinds: tuple[TaskKind, ...]
    # One turnstile is shared by all agents.
    turnstile: Turnstile


def build(bots: Mapping[str, Bot], turnstile: Turnstile | None = None) -> Staff:
    """Raises ConfigError for the first agent that cannot be built."""
    turnstile = turnstile or Turnstile()
    agents: dict[str, Agent] = {}
    kinds: dict[str, TaskKind] = {}
    for name, bot in bots.items():
        agents[name], offered = _build_one(name, bot, turnstile)
        for kind in offered:
            if kinds.setdefault(kind.name, kind) is not kind:
                raise ConfigError(f"two agents offer background work named {kind.name!r}; rename one of them")
    return Staff(agents, tuple(kinds.values()), turnstile)


async def close(agents: Iterable[Agent]) -> None:
    """Closes every agent, even if closing another one fails."""
    await _each(agents, "close", "could not be closed")


def bring_in(bots: Mapping[str, Bot]) -> None:
    """Imports the modules of the agents, in any thread; `build` reports errors."""
    for bot in bots.values():
        with suppress(*FAULTS):
            import_module(_place(bot)[0])


async def prepare(agents: Iterable[Agent]) -> None:
    """Loads slow libraries ahead of the first turn; a failure here shows again in a turn, in words."""
    await _each(agents, "prepare", "is not ready yet")


async def _each(agents: Iterable[Agent], verb: str, trouble: str) -> None:
    able = [agent for agent in agents if callable(getattr(agent, verb, None))]
    ends = await asyncio.gather(*(_call(agent, verb) for agent in able), return_exceptions=True)
    for agent, end in zip(able, ends, strict=True):
        if isinstance(end, Exception):
            log.warning("%s %s: %r", type(agent).__name__, trouble, end, exc_info=end)


async def _call(agent: Agent, verb: str) -> None:
    # The method of an owner's agent may be a plain function.
    end = getattr(agent, verb)()
    if isinstance(end, Awaitable):
        await end


def _build_one(name: str, bot: Bot, turnstile: Turnstile) -> tuple[Agent, tuple[TaskKind, ...]]:
    wanted = f'the bot {name}: agent = "{bot.chosen_agent}"'
    module_name, object_name = _place(bot)
    if not module_name or not object_name:
        raise ConfigError(f'{wanted} is not an agent; write one of {", ".join(AGENTS)}, or "package.module:object"')
    try:
        module = import_module(module_name)
        found = getattr(module, object_name)
        if bot.chosen_agent == ASSISTANT:
            agent = found(name, bot, turnstile=turnstile)
        else:
            agent = found() if isinstance(found, type) else found
    except ConfigError as error:
        raise ConfigError(f"the bot {name}: {error}") from error
    except FAULTS as error:
        # The messages of these exceptions mean nothing without the type.
        kind = f"{type(error).__name__}: " if isinstance(error, LookupError | AssertionError) else ""
        raise ConfigError(f"{wanted} cannot be loaded: {kind}{error}") from error
    if _is_of_the_library(agent):
        from tidings.bots.hosted.agent import HostedAgent

        # The default list names our own tools, and a tool of the hosted agent may share a name.
        permitted = frozenset(bot.tools if "tools" in bot.model_fields_set else ())
        _check_modes(bot.approvals.modes, permitted, wanted)
        agent = HostedAgent(
            agent, permitted, bot.approvals, needs_finish_reason=bot.needs_finish_reason, turnstile=turnstile
        )
    if not callable(getattr(agent, "run", None)):
        raise ConfigError(f"{wanted} has no run(turn), so it is not an agent")
    return cast(Agent, agent), tuple(getattr(module, "KINDS", ()))


def _check_modes(modes: Iterable[str], permitted: frozenset[str], wanted: str) -> None:
    """Raises ConfigError for a mode of a tool that the settings do not name: a hosted agent uses no other."""
    known = ["*", *sorted(permitted)]
    for name in modes:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f", did you mean {near[0]}?" if near else f" (tools names: {', '.join(sorted(permitted)) or 'none'})"
            raise ConfigError(f"{wanted}: approvals: modes: {name} is not in tools{hint}")


def _place(bot: Bot) -> tuple[str, str]:
    module, _, name = AGENTS.get(bot.chosen_agent, bot.chosen_agent).partition(":")
    return module, name


def _is_of_the_library(agent: Any) -> bool:
    """Whether this is a `pydantic_ai.Agent`, decided without importing the library for other agents."""
    library = sys.modules.get("pydantic_ai")
    return library is not None and isinstance(agent, library.agent.AbstractAgent)
