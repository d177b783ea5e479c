"""Which interactions are being answered for right now: until that is done, nothing can be said to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Deferrals:
    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Event] = {}

    @contextmanager
    def under_way(self, token: str) -> Iterator[None]:
        over = self._under_way[token] = asyncio.Event()
        try:
            yield
        finally:
            over.set()
            self._under_way.pop(token, None)

    async def over(self, token: str) -> None:
        """Returns at once for what this process knows nothing of."""
        if (under_way := self._under_way.get(token)) is not None:
            await under_way.wait()
