"""Delays answers to wrong keys, longer with each one in a minute and also after a restart; right keys never wait."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from typing import NamedTuple

import msgspec

from tidings.core.adapter import Notebook
from tidings.core.clock import Clock
from tidings.core.errors import Unstored

log = logging.getLogger(__name__)

SECONDS = 60.0
# Wrong keys answered at once in that time: from one address, and from all unknown addresses together.
FREE, FREE_OF_ALL = 10, 100
# Each further one waits twice as long as the one before, at most this long.
LONGEST_SECONDS = 30.0
# Beyond this the wait no longer grows, so no more are counted.
COUNTED = FREE + 6
ADDRESSES = 10_000
NOTE = "guesses"


class _Guess(NamedTuple):
    at: float
    address: str


class Guesses:
    """Keys have at least 128 bits, so guessing is hopeless; the delay only keeps it from costing us much.

    An address that has sent a right key is known: wrong keys from other addresses do not slow it down.
    """

    def __init__(self, notebook: Notebook, clock: Clock) -> None:
        self._notebook = notebook
        self._clock = clock
        self._recent: deque[_Guess] = deque(maxlen=ADDRESSES)
        self._known: OrderedDict[str, None] = OrderedDict()

    async def load(self) -> None:
        stored = await self._notebook.read(NOTE)
        lines = msgspec.json.decode(stored, type=list[tuple[float, str]]) if stored else []
        self._recent.extend(_Guess(min(at, self._clock.now()), address) for at, address in lines)

    async def hold_back(self, address: str) -> None:
        """Counts a wrong key, and returns when it may be answered."""
        wait = self.delay(address)
        await self._count(address)
        if wait:
            await self._clock.sleep(wait)

    def delay(self, address: str) -> float:
        """How long the next wrong key from there waits for its answer."""
        while self._recent and self._recent[0].at <= self._clock.now() - SECONDS:
            self._recent.popleft()
        beyond = sum(guess.address == address for guess in self._recent) - FREE
        if address not in self._known:
            beyond = max(beyond, len(self._recent) - FREE_OF_ALL)
        return min(2.0 ** min(beyond, 10), LONGEST_SECONDS) if beyond >= 0 else 0.0

    async def _count(self, address: str) -> None:
        """Stores only the first ones, so that a flood costs no commits."""
        mine = sum(guess.address == address for guess in self._recent)
        if mine >= COUNTED:
            return
        self._recent.append(_Guess(self._clock.now(), address))
        if mine >= FREE or len(self._recent) > FREE_OF_ALL:
            return
        lines = [(guess.at, guess.address) for guess in self._recent]
        try:
            await self._notebook.write(NOTE, msgspec.json.encode(lines).decode())
        except Unstored as error:
            log.warning("a wrong key is only counted in memory: %s", error)

    def welcome(self, address: str) -> None:
        """A right key came from there."""
        self._known[address] = None
        self._known.move_to_end(address)
        if len(self._known) > ADDRESSES:
            self._known.popitem(last=False)
