"""The tools of one bot: those that its settings name, those of MCP servers, and the one policy over both."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

from tidings.bots.assistant.settings import Approvals, Assistant, Mode
from tidings.bots.assistant.tools import (
    board,
    clock,
    command_rules,
    delegation,
    files,
    messages,
    notes,
    processes,
    schedules,
    terminal,
    web,
)
from tidings.bots.assistant.tools.policy import Refusal
from tidings.bots.assistant.tools.tool import Tool, not_for
from tidings.core import context
from tidings.core.agent import Effect
from tidings.core.errors import ConfigError
from tidings.core.roles import Permission

# The characters that every provider accepts in the name of a tool.
NAME_CHARACTERS = 64
ODD = re.compile(r"[^a-zA-Z0-9_-]")
# Stands for every tool with an effect in the modes of the settings.
EVERY = "*"

NOT_PERMITTED = " (The settings of this bot do not permit it: say so instead of calling it.)"
ASKED_FIRST = " (People are asked before it runs: just call it.)"
NOT_FOR_THEM = " (The person you work for may not have this done: say so instead of calling it.)"


@dataclass(frozen=True, slots=True)
class Standing:
    """What the settings say about one tool, and the name of the setting that could change it."""

    mode: Mode
    setting: str = ""


class Toolbox:
    """Raises ConfigError for a name that is no tool.

    Foreign tools come by the server that has them, and `allowed` names those of each that act without asking. A tool
    that may not act, or not for the person that the run works for, is offered all the same, so that the model can tell
    people.
    """

    def __init__(
        self,
        settings: Assistant,
        foreign: Mapping[str, Sequence[Tool]] | None = None,
        allowed: Mapping[str, frozenset[str]] | None = None,
        missing: Mapping[str, str] | None = None,
    ) -> None:
        # Servers that are down, and why.
        self.missing = dict(missing or {})
        groups = _groups(settings)
        for name in settings.tools:
            if name not in groups:
                raise ConfigError(f"tools: there is no tool {name}{_nearest(name, groups)}")
        own = {tool.name: (group, tool) for group, build in groups.items() for tool in build()}
        self.approvals = settings.approvals
        self.rules = command_rules.parse(settings.approvals.commands)
        _check_modes(settings.approvals, {*groups, *own}, {*settings.mcp, *(foreign or {})})
        self._closed = {name: tool for name, (group, tool) in own.items() if group not in settings.tools}
        self._tools = {name: tool for name, (group, tool) in own.items() if group in settings.tools}
        self._standing = {
            name: _standing(settings.approvals, tool, name, group)
            for name, (group, tool) in own.items()
            if group in settings.tools
        }
        for name, server, tool in _named(foreign or {}, set(own)):
            called = f"{server}.{tool.called or tool.name}"
            is_allowed = tool.name in (allowed or {}).get(server, ())
            self._tools[name] = replace(tool, name=name, source=partial(_server, server))
            self._standing[name] = _standing(settings.approvals, tool, called, f"{server}.*", is_allowed=is_allowed)

    def lend(self, tools: Sequence[Tool]) -> Toolbox:
        """Adds tools for one run; tools that the settings name stay as they are."""
        lent = copy(self)
        lent._tools = {**{tool.name: tool for tool in tools}, **self._tools}
        lent._standing = {**{tool.name: Standing(Mode.ALLOW) for tool in tools}, **self._standing}
        return lent

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools in use, whoever the bot works for."""
        return tuple(self._tools.values())

    def offered(self) -> tuple[Tool, ...]:
        """The tools that the model is told about: the same list for everybody with the same role, as caches need it."""
        permissions = context.current().permissions
        return tuple(
            replace(tool, description=f"{tool.description}{self._remark(name, tool, permissions)}")
            for name, tool in self._tools.items()
        )

    def _remark(self, name: str, tool: Tool, permissions: frozenset[Permission]) -> str:
        mode = self._standing[name].mode
        if mode is Mode.DENY:
            return NOT_PERMITTED
        if tool.needs not in permissions:
            return NOT_FOR_THEM
        return ASKED_FIRST if mode is Mode.ASK else ""

    def standing(self, name: str) -> Standing:
        """What the settings say about a tool that `find` has found."""
        return self._standing[name]

    def find(self, name: str) -> Tool | Refusal:
        """The tool of this name, if it is in use here and for the person of this run; `policy.decide` grants it."""
        tool = self._tools.get(name)
        if tool is None and (closed := self._closed.get(name)):
            why = "changes things outside this talk" if closed.effect is Effect.EFFECT else "is not in use here"
            return Refusal(
                f"{name} {why}, and the settings of this bot do not permit it. "
                "Tell the person that the owner can add it to tools."
            )
        if tool is None:
            return Refusal(f"There is no tool called {name}.")
        session = context.current()
        return tool if tool.needs in session.permissions else Refusal(not_for(session.person.role, name, tool.needs))


def built_in() -> tuple[Tool, ...]:
    """Every tool of our own, each with the permission that it needs."""
    return tuple(tool for build in _groups(Assistant()).values() for tool in build())


def _groups(settings: Assistant) -> dict[str, Callable[[], tuple[Tool, ...]]]:
    """The groups of tools, by the names that the settings use."""
    return {
        "time": lambda: clock.TOOLS,
        "files": lambda: files.TOOLS,
        "fetch_url": lambda: web.tools(settings.fetch_hosts),
        "notes": lambda: notes.TOOLS,
        "terminal": lambda: (*terminal.tools(), *processes.TOOLS),
        "send_message": lambda: messages.tools(settings.send_to),
        "schedules": lambda: schedules.TOOLS,
        "board": lambda: board.tools(everything=True),
        "delegate": lambda: delegation.tools((*settings.tools, *settings.mcp), settings.limits.delegated),
    }


def _standing(approvals: Approvals, tool: Tool, name: str, group: str, *, is_allowed: bool = False) -> Standing:
    """The mode of a tool by the nearest setting that names it; only tools with an effect ask unless named alone."""
    modes, acts = approvals.modes, tool.effect is Effect.EFFECT
    setting = f'approvals.modes."{name}"'
    if name in modes:
        return Standing(modes[name], setting)
    if is_allowed:
        return Standing(Mode.ALLOW, setting)
    for wide in (group, EVERY) if acts else (group,):
        if wide in modes and (acts or modes[wide] is not Mode.ASK):
            return Standing(modes[wide], f'approvals.modes."{wide}"')
    return Standing(Mode.ASK if acts else Mode.ALLOW, setting)


def _check_modes(approvals: Approvals, own: set[str], servers: set[str]) -> None:
    """Raises ConfigError for a mode of something that does not exist; what a server offers is not known here."""
    known = {EVERY: None, **dict.fromkeys(sorted(own)), **{f"{server}.*": None for server in sorted(servers)}}
    for name in approvals.modes:
        of_server = any(name.startswith(f"{server}.") and name != f"{server}." for server in servers)
        if name not in known and not of_server:
            raise ConfigError(f"approvals: modes: there is no tool {name}{_nearest(name, known)}")


def _server(server: str, written: str) -> str:
    return f"the server {server}"


def _nearest(name: str, names: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f", did you mean {near[0]}?" if near else f" (there are: {', '.join(names)})"


def _named(foreign: Mapping[str, Sequence[Tool]], own: set[str]) -> Iterator[tuple[str, str, Tool]]:
    """Each MCP tool with a unique name; a name that collides is prefixed with its server's."""
    found = [(server, tool, _fit(tool.name)) for server, tools in foreign.items() for tool in tools]
    often = Counter(name for _, _, name in found)
    taken = own | {name for name, count in often.items() if count == 1}
    for server, tool, name in found:
        if name in own or often[name] > 1:
            name = _free(_fit(f"{server}_{tool.name}"), taken)
            taken.add(name)
        yield name, server, tool


def _fit(name: str) -> str:
    return ODD.sub("_", name)[:NAME_CHARACTERS]


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name[: NAME_CHARACTERS - len(str(number)) - 1]}_{number}"
    return free
