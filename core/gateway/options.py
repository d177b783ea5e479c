"""What a gateway is built with: the team of bots, and how this process is to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidings.core.agent import Agent
from tidings.core.busy import Busy
from tidings.core.clock import Clock
from tidings.core.gateway.supervisor import USUAL, Pauses
from tidings.core.inbound.commands import Command
from tidings.core.store.wakeups import Wakeups
from tidings.core.types import Inbound, Target
from tidings.core.work.processes.sandbox import Outlet
from tidings.core.work.tasks.tasks import TaskKind

BotOf = Callable[[Inbound], str]


@dataclass(frozen=True)
class Team:
    """The bots by name, the bot that answers by default, and what the bots bring along."""

    agents: Mapping[str, Agent]
    default: str
    kinds: Sequence[TaskKind] = ()
    # Given the function that names the bot for a message: the bots' own commands.
    commands: Callable[[BotOf], Sequence[Command]] = lambda bot_of: ()
    # The busy modes of bots that have one of their own.
    busy: Mapping[str, Busy] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Options:
    # None means the steady clock of the store.
    clock: Clock | None = None
    # Whether many units share a commit.
    grouped: bool = True
    # The owner's own target, which needs no chat.
    owner: Target | None = None
    # Messages to the owner at the start, such as that the settings could not be read.
    notices: Sequence[str] = ()
    # Whether starts that follow each other quickly are slowed down.
    governed: bool = False
    # The pauses of the supervisor.
    pauses: Pauses = USUAL
    # The way out for fenced commands; None means that they have none, whatever hosts the settings list.
    outlet: Outlet | None = None
    # None means wake-ups for everything that units announce.
    wakeups: Wakeups | None = None


ORDINARY = Options()
