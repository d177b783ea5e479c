"""Says at the start which fence holds around commands, or why none does."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.core.errors import ConfigError, Unfenced

if TYPE_CHECKING:
    from tidings.bots.app.settings import Loaded
    from tidings.core.desk.fence import Fence

log = logging.getLogger(__name__)

LOCAL = (
    '[terminal] backend = "local": commands run without a fence, so whoever steers a bot with the tool terminal can'
    ' read the gateway\'s keys and speak for its owner; set it to "sandbox"'
)


def runs_commands(loaded: Loaded) -> bool:
    """Whether a bot may run commands; the owner's schedules may in any case."""
    return any("terminal" in bot.tools for bot in loaded.bots.values())


async def tried(loaded: Loaded, home: Path) -> str:
    """Which fence holds on this machine, tried in the home, or elsewhere before there is one. Raises Unfenced."""
    from tidings.bots.app.outlet import FORWARDER, ListedHosts
    from tidings.core.work.processes.fence import choose
    from tidings.core.work.processes.sandbox import Outlet

    try:
        ListedHosts(loaded.core.terminal)
    except ConfigError as error:
        raise Unfenced(f"the gateway does not start: {error}") from error
    with tempfile.TemporaryDirectory() as elsewhere:
        place = home if os.access(home, os.W_OK | os.X_OK) else Path(elsewhere)
        return await choose(loaded.core.terminal, place, Outlet(str(FORWARDER), place / "unused")).describe()


async def try_fence(fence: Fence, loaded: Loaded) -> None:
    if loaded.core.terminal.backend == "local":
        log.warning(LOCAL)
        return
    if not runs_commands(loaded):
        # The fence is tried when the first command of a schedule runs.
        return
    try:
        log.info("the fence around commands: %s", await fence.describe())
    except Unfenced as error:
        log.warning("the tool terminal is off: %s", error)
