"""How a seeded bug takes the place of what is right: at a seam that must still be there and look the same."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

_tasks: set[asyncio.Task[None]] = set()


class Rotten(Exception):
    """The seam is no longer what the mutant was made for: mend the mutant."""


def swap(owner: Any, name: str, mutant: Any) -> None:
    """Replaces a function or a name that a module looks up each time; its parameters must be the same."""
    known = vars(owner).get(name)
    if known is None:
        raise Rotten(f"{owner.__name__} has no {name} any more")
    if inspect.isfunction(known) and _parameters(known) != _parameters(mutant):
        raise Rotten(f"{owner.__name__}.{name} takes {_parameters(known)} now, the mutant {_parameters(mutant)}")
    setattr(owner, name, mutant)


def _parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def later(work: Coroutine[Any, Any, None]) -> None:
    """Does behind everybody's back what should have been waited for."""
    task = asyncio.create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
