"""Applies changed settings while the gateway runs: all of them, or none."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel

from tidings.bots.app import agents as app_agents
from tidings.bots.app import roster
from tidings.bots.app.agents import Staff
from tidings.core.background import Background
from tidings.core.errors import ConfigError
from tidings.core.people.known import named_roles
from tidings.core.people.register import a
from tidings.core.roles import OWNER, Role

if TYPE_CHECKING:
    from tidings.bots.app.settings import Loaded
    from tidings.core.adapter import Line
    from tidings.core.agent import Agent
    from tidings.core.desk.people import PersonLine
    from tidings.core.gateway.gateway import Gateway
    from tidings.core.gateway.options import BotOf
    from tidings.core.inbound.commands import Command
    from tidings.core.settings import Access
    from tidings.core.types import Inbound

log = logging.getLogger(__name__)

# Sections that take effect at once; the others are reported as needing a restart.
AT_ONCE = ("access", "allowances", "groups", "limits", "rules")


class Change(NamedTuple):
    """The result of a reload: what took effect, what needs a restart, and warnings about the settings."""

    changed: tuple[str, ...]
    restart: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    # Platforms that were misconfigured and are tried again at once.
    tried: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [f"changed: {', '.join(self.changed)}" if self.changed else "nothing changed that takes effect at once"]
        if self.restart:
            words.append(f"needs a restart: {', '.join(self.restart)}")
        if self.tried:
            words.append(f"trying again now: {', '.join(self.tried)}")
        return "; ".join(words)


class Reloading:
    """The current settings and agents. Leaving `async with` closes every agent."""

    def __init__(
        self,
        loaded: Loaded,
        staff: Staff,
        load: Callable[[], Loaded],
        commands: Callable[[Loaded, BotOf], Sequence[Command]],
        keep: Callable[[Loaded], object],
        freeze: Callable[[], object] = gc.freeze,
    ) -> None:
        """`load` raises ConfigError; `commands` returns the agents' own commands; `keep` stores good settings.

        `freeze` is called once, after every slow library is loaded.
        """
        self._loaded = loaded
        self._staff = staff
        self._load = load
        self._commands = commands
        self._keep = keep
        self._freeze = freeze
        # The settings at the start: platforms and kinds of background work do not change until a restart.
        self._first = loaded
        self._kinds = frozenset(kind.name for kind in staff.kinds)
        self._menu = _menu(commands(loaded, _unasked))
        self._one_at_a_time = asyncio.Lock()
        self._retired: list[Agent] = []
        self._background = Background(log, "an agent could not be changed")

    async def __aenter__(self) -> Reloading:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._background.close()
        await app_agents.close([*self._staff.agents.values(), *self._retired])

    def prepare(self) -> None:
        """Loads slow libraries in the background, so that messages are answered meanwhile."""
        self._background.begin(self._prepare())

    async def reload(self, gateway: Gateway) -> Change:
        """Raises ConfigError without changing anything."""
        async with self._one_at_a_time:
            try:
                return await self._reload(gateway)
            except ConfigError as error:
                log.error("the settings are wrong, so all stays as it was: %s", error)
                raise

    async def listen(self, asked: asyncio.Event, gateway: Gateway) -> None:
        """Reloads at each signal; the result goes to the log."""
        while True:
            await asked.wait()
            asked.clear()
            # A failed reload must not prevent the next one; `reload` has already logged wrong settings.
            [ended] = await asyncio.gather(self.reload(gateway), return_exceptions=True)
            if isinstance(ended, BaseException) and not isinstance(ended, ConfigError):
                log.error("the settings could not be taken over: %r", ended, exc_info=ended)

    async def answer(self, line: Line, gateway: Gateway) -> None:
        await line.read()
        await line.write((await self.reload(gateway))._asdict())

    async def _reload(self, gateway: Gateway) -> Change:
        old, before = self._loaded, self._staff
        new = await asyncio.to_thread(self._load)
        # Importing a new module may take seconds.
        await asyncio.to_thread(app_agents.bring_in, new.bots)
        kept = {name: before.agents[name] for name, bot in new.bots.items() if old.bots.get(name) == bot}
        fresh = app_agents.build({name: bot for name, bot in new.bots.items() if name not in kept}, before.turnstile)
        agents = {**kept, **fresh.agents}
        staff = Staff({name: agents[name] for name in new.bots}, fresh.kinds, before.turnstile)
        commands = partial(self._commands, new)
        from tidings.core.gateway.options import Team

        team = Team(staff.agents, new.bot.called, staff.kinds, commands, roster.busy_modes(new.bots))
        tried = gateway.renew(new.core, team)
        logging.getLogger().setLevel(new.core.log.level.upper())
        self._loaded, self._staff = new, staff
        self._keep(new)
        if fresh.agents:
            self._background.begin(app_agents.prepare(tuple(fresh.agents.values())))
        if gone := [agent for agent in before.agents.values() if not _is_among(agent, staff.agents)]:
            self._retired += gone
            self._background.begin(self._retire(gone, gateway))
        people = gateway.desk.people
        warnings = (*new.warnings, *_still_admitted(old.core.access, new.core.access, await people.all()))
        restart = tuple(self._restart(new, fresh, commands(_unasked)))
        change = Change(tuple(_changed(old, new)), restart, warnings, tried)
        if change.changed:
            await people.note_settings(OWNER, change.changed)
        log.info("the settings were taken over; %s", change)
        for warning in change.warnings:
            log.warning("%s", warning)
        return change

    async def _prepare(self) -> None:
        await app_agents.prepare(tuple(self._staff.agents.values()))
        # Libraries are never freed, and every collection that scans them would pause the event loop.
        self._freeze()

    async def _retire(self, agents: list[Agent], gateway: Gateway) -> None:
        await gateway.released(agents)
        self._retired = [each for each in self._retired if not any(each is agent for agent in agents)]
        await app_agents.close(agents)

    def _restart(self, new: Loaded, fresh: Staff, commands: Sequence[Command]) -> Iterator[str]:
        old = self._first
        for name in type(new.core).model_fields:
            if name not in (*AT_ONCE, "log"):
                yield from differences(getattr(old.core, name), getattr(new.core, name), name)
        if old.core.log.format != new.core.log.format:
            yield "[log] format"
        for name, section in new.platforms.items():
            yield from differences(old.platforms[name], section, name)
        if old.bot.called != new.bot.called:
            yield "[bot] name, as platforms show it"
        if unknown := {kind.name for kind in fresh.kinds} - self._kinds:
            yield f"[bot] agent, for its background work ({', '.join(sorted(unknown))})"
        if _menu(commands) != self._menu:
            yield "the list of commands that platforms show"


def differences(old: object, new: object, *names: str) -> Iterator[str]:
    """The names of the settings that differ, as they stand in the file; never their values."""
    if isinstance(old, BaseModel) and isinstance(new, BaseModel):
        for name in type(new).model_fields:
            yield from differences(getattr(old, name), getattr(new, name), *names, name)
    elif _is_tables(old) and _is_tables(new):
        assert isinstance(old, Mapping)
        assert isinstance(new, Mapping)
        for name in sorted(old.keys() | new.keys()):
            if name in old and name in new:
                yield from differences(old[name], new[name], *names, str(name))
            else:
                yield f"[{'.'.join((*names, str(name)))}]"
    elif old != new:
        *above, last = names
        yield f"[{'.'.join(above)}] {last}" if above else f"[{last}]"


def _is_tables(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, BaseModel) for each in value.values())


def _changed(old: Loaded, new: Loaded) -> Iterator[str]:
    for name in AT_ONCE:
        yield from differences(getattr(old.core, name), getattr(new.core, name), name)
    if old.core.log.level != new.core.log.level:
        yield "[log] level"
    for name, bot in new.bots.items():
        if name not in old.bots:
            yield f"the bot {name} is new"
        elif old.bots[name] != bot:
            yield f"the bot {name}"
    yield from (f"the bot {name} has gone" for name in old.bots if name not in new.bots)
    if old.bot.called != new.bot.called:
        yield f"{new.bot.called} answers where no other is named"


def _still_admitted(old: Access, new: Access, people: Sequence[PersonLine]) -> Iterator[str]:
    """A warning for each id whose role in the settings is lower now, but not in the store."""
    kept = {id: line for line in people if line.stored for id in line.identities}
    named = named_roles(new)
    for id, before in named_roles(old).items():
        now = named.get(id, Role.STRANGER)
        if id not in kept or not before.rank > now.rank or not kept[id].role.rank > now.rank:
            continue
        role = kept[id].role
        if now is Role.STRANGER:
            yield f"{id} was removed from the settings but is still {a(role)}; to remove: tidings people remove {id}"
        else:
            words = f"{id} is {a(now)} in the settings now but still {a(role)} by the store"
            yield f"{words}; to change that: tidings people role {id} {now}"


def _unasked(inbound: Inbound) -> str:
    """In place of the bot for a message, where only the names of commands matter."""
    return ""


def _menu(commands: Sequence[Command]) -> set[tuple[str, str]]:
    return {(command.name, command.help) for command in commands}


def _is_among(agent: Agent, agents: Mapping[str, Agent]) -> bool:
    return any(each is agent for each in agents.values())
