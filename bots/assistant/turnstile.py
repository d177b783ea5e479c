"""Lets a few turns at a time do expensive work, so that the event loop serves everything else in between."""

from __future__ import annotations

import asyncio
from collections import deque

# One turn takes the loop for 2 ms, or 6 ms after a hundred messages, so four delay others hardly at all.
MOST = 4


class Turnstile:
    """A turn that finds it free passes at once; the others pass in order, a few in each round of the loop.

    A turn never holds a place while it waits, so a provider that does not answer delays no other turn.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        # How many turns have passed in this round of the loop.
        self.passed = 0
        self._places: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Waits for a place before expensive work; one turn may enter any number of times."""
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
        """Runs once in each round of the loop, as long as turns keep coming."""
        self.passed = 0
        while self._places and self.passed < self._most:
            place = self._places.popleft()
            # A turn that was stopped meanwhile leaves its place to the next.
            if not place.done():
                place.set_result(None)
                self.passed += 1
        if self.passed:
            # The next round is scheduled after the turns that were just let in, so they run first.
            asyncio.get_running_loop().call_soon(self._turn)
