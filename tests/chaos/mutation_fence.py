"""Seeded bugs in the fence around commands: walls with a gap, and no wall at all."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from yarl import URL

from tests.chaos.mutation_seams import swap
from tidings.bots.app.outlet import ListedHosts
from tidings.bots.assistant.tools import web
from tidings.core.desk.fence import Enclosed
from tidings.core.work.processes import sandbox, syscalls
from tidings.core.work.processes.sandbox import Sandbox, _Held


def network_not_unshared() -> None:
    """The command stands in the machine's own network."""
    right = Sandbox._by_bubblewrap

    def enclose(self: Sandbox, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Enclosed:
        enclosed = right(self, command, folder, environment)
        return msgspec.structs.replace(enclosed, command=[word for word in enclosed.command if word != "--unshare-net"])

    swap(Sandbox, "_by_bubblewrap", enclose)


def home_stays_visible() -> None:
    right = Sandbox._by_bubblewrap

    def enclose(self: Sandbox, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Enclosed:
        enclosed = right(self, command, folder, environment)
        place, key = list(enclosed.command).index("--bind"), str(self._home / "api.key")
        shown = [*enclosed.command[:place], "--ro-bind-try", key, key, *enclosed.command[place:]]
        return msgspec.structs.replace(enclosed, command=shown)

    swap(Sandbox, "_by_bubblewrap", enclose)
    # Otherwise the command's user of root could not read what it sees.
    root_stays_root()


def failed_probe_opens() -> None:
    """A wall that does not hold is used all the same."""

    async def trouble(self: Sandbox, name: str, held: _Held) -> str:
        return ""

    swap(Sandbox, "_trouble", trouble)


def root_stays_root() -> None:
    """No limit on processes binds the command."""

    def user_of(folder: Path) -> int:
        return 0

    swap(sandbox, "user_of", user_of)


def filter_lets_everything_through() -> None:
    def program(
        families: Iterable[int], machine: str = platform.machine(), *, truncates: bool = True, is_apart: bool = True
    ) -> str:
        return b"".join(syscalls._step(syscalls.RETURN, syscalls.ALLOW)).hex()

    swap(syscalls, "program", program)


def names_checked_and_addresses_not() -> None:
    """A listed name may lead to a private address."""

    async def addresses(self: ListedHosts, url: URL) -> tuple[str, ...]:
        return await web.look_up(url.raw_host or "", url.port or 80)

    swap(ListedHosts, "addresses", addresses)


def background_without_a_fence() -> None:
    """Only commands in the foreground are fenced in."""
    from tidings.core.desk.work import Launch
    from tidings.core.work.processes.fence import Local
    from tidings.core.work.processes.processes import Processes

    right = Processes.launch

    async def launch(self: Processes, launch: Launch) -> str:
        self.fence = Local()
        return await right(self, launch)

    swap(Processes, "launch", launch)
