"""Lets a few turns at a time do what is heavy, so that the loop serves everybody else in between."""

from __future__ import annotations

import asyncio
from collections import deque

# Each takes the loop for 2 ms, and for 6 after a hundred messages: few enough that others hardly wait.
MOST = 4


class Turnstile:
    """A turn that finds it free passes at once; the others pass in order, a few in each round of the loop.

    A turn never holds a place while it waits, so a provider that does not answer delays no other turn.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        # How many have passed in this round of the loop.
        self.passed = 0
        self._places: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Before whatever takes the loop for long; it may be entered again and again in one turn."""
        loop = asyncio.get_running_loop()
        if self.passed == self._most or self._places:
            place = loop.create_future()
            self._places.append(place)
            await place
            return
        if not self.passed:
            loop.call_soon(self._turn)
        self.passed += 1

    def _turn(self) -> None:
        """Once in each round, as long as anybody comes."""
        self.passed = 0
        while self._places and self.passed < self._most:
            place = self._places.popleft()
            # A turn that was stopped meanwhile leaves its place to the next.
            if not place.done():
                place.set_result(None)
                self.passed += 1
        if self.passed:
            # Behind those that were just let in: they run first.
            asyncio.get_running_loop().call_soon(self._turn)
