"""Finds the target that a schedule's owner means by a name, or by none."""

from __future__ import annotations

from tidings.core.desk.desk import Desk
from tidings.core.errors import Declined
from tidings.core.types import Target, parse_target

# The owner's own console.
CONSOLE = "console"
LOCAL = "local"


async def find_target(desk: Desk, name: str, say: str = "--to") -> Target:
    """An empty name means the only home, or the console without any; `say` is the option that names a target."""
    if name == LOCAL:
        return parse_target(CONSOLE)
    if name:
        return parse_target(name)
    homes = list((await desk.homes()).values())
    if len(homes) > 1:
        raise Declined(f"there are several homes ({', '.join(map(str, homes))}): say which with {say}")
    return homes[0] if homes else parse_target(CONSOLE)
