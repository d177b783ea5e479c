"""The tools of one bot: those that its settings name, those of MCP servers, and the one policy over both."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from tidings.bots.assistant.settings import Assistant
from tidings.bots.assistant.tools import (
    board,
    clock,
    delegation,
    files,
    messages,
    notes,
    processes,
    schedules,
    terminal,
    web,
)
from tidings.bots.assistant.tools.tool import Tool, not_for
from tidings.core import context
from tidings.core.agent import Effect
from tidings.core.errors import ConfigError
from tidings.core.roles import Permission

# The characters that every provider accepts in the name of a tool.
NAME_CHARACTERS = 64
ODD = re.compile(r"[^a-zA-Z0-9_-]")

NOT_PERMITTED = " (The settings of this bot do not permit it: say so instead of calling it.)"
NOT_FOR_THEM = " (The person you work for may not have this done: say so instead of calling it.)"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a tool does not run, in words for the model."""

    reason: str


class Toolbox:
    """Raises ConfigError for a name that is no tool.

    Foreign tools come by the server that has them, and `allowed` names those of each that may act. A tool that may not
    act, or not for the person that the run works for, is offered all the same, so that the model can tell people.
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
        self._closed = {name: tool for name, (group, tool) in own.items() if group not in settings.tools}
        self._tools = {name: tool for name, (group, tool) in own.items() if group in settings.tools}
        self._permitted = set(self._tools)
        self._remedies = dict.fromkeys(self._closed, "tools")
        for name, server, tool in _named(foreign or {}, set(own)):
            if tool.effect is not Effect.EFFECT or tool.name in (allowed or {}).get(server, ()):
                self._permitted.add(name)
            self._tools[name] = replace(tool, name=name)
            self._remedies[name] = f"allow of the server {server}, as {tool.called or tool.name}"

    def lend(self, tools: Sequence[Tool]) -> Toolbox:
        """Adds tools for one run; tools that the settings name stay as they are."""
        lent = copy(self)
        lent._tools = {**{tool.name: tool for tool in tools}, **self._tools}
        lent._permitted = self._permitted | {tool.name for tool in tools}
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
        if name not in self._permitted:
            return NOT_PERMITTED
        return "" if tool.needs in permissions else NOT_FOR_THEM

    def find(self, name: str) -> Tool | Refusal:
        """The only way to a tool that may run: named by the settings, and permitted to the person of this run."""
        tool = self._tools.get(name) or self._closed.get(name)
        if tool is None:
            return Refusal(f"There is no tool called {name}.")
        if name in self._permitted:
            session = context.current()
            if tool.needs in session.permissions:
                return tool
            return Refusal(not_for(session.person.role, name, tool.needs))
        why = "changes things outside this talk" if tool.effect is Effect.EFFECT else "is not in use here"
        return Refusal(
            f"{name} {why}, and the settings of this bot do not permit it. "
            f"Tell the person that the owner can add it to {self._remedies[name]}."
        )


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
