"""Background tasks: held until they end, with their exceptions logged; cancelled when their owner closes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Hashable
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """The background tasks of one owner, which may find a task again by its key."""

    def __init__(self, log: logging.Logger, fault: str, failed: Callable[[BaseException], None] | None = None) -> None:
        """`fault` begins the log line of a task that raised; `failed` is called with the error in place of the log."""
        self._log = log
        self._fault = fault
        self._failed = failed
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}

    def begin(
        self, work: Coroutine[Any, Any, T], *, key: Hashable = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """The task gets an empty context unless one is given: it outlives its caller and must not inherit a session."""
        task = asyncio.create_task(work, context=context or Context())
        name = task if key is None else key
        assert name not in self._tasks, f"{name} is at work already"
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._ended(name, done))
        return task

    def get(self, key: Hashable) -> asyncio.Task[Any] | None:
        return self._tasks.get(key)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def forget(self, key: Hashable) -> None:
        """Cancels the task of this key, if there is one; the key is free at once."""
        if task := self._tasks.pop(key, None):
            # The task is kept under itself until it has ended, and its key becomes free.
            self._tasks[task] = task
            task.add_done_callback(lambda done: self._tasks.pop(done, None))
            task.cancel()

    async def drain(self, seconds: float | None = None) -> None:
        """Waits until every task has ended by itself, or until the seconds are over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks.values())
                    # The callbacks of ended tasks run next.
                    await asyncio.sleep(0)

    def cancel(self) -> None:
        """Cancels every task and waits for none."""
        for task in tuple(self._tasks.values()):
            task.cancel()

    async def close(self) -> None:
        """Cancels every task, and waits until all have ended."""
        self.cancel()
        await self.drain()

    def _ended(self, name: Hashable, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._failed is not None:
            self._failed(error)
            return
        about = "" if isinstance(name, asyncio.Task) else f" ({name})"
        self._log.error("%s%s: %r", self._fault, about, error, exc_info=error)
