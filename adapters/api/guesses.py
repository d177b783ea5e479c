"""Wrong keys of the last minute: who has guessed too often waits before anything is compared, also after a restart."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from typing import NamedTuple

import msgspec

from adapters.api.keys import digest
from adapters.api.problem import Problem
from core.adapter import Notebook
from core.clock import Clock
from core.errors import Unstored

log = logging.getLogger(__name__)

SECONDS = 60.0
# In that time, from one address and from all strangers together.
MOST, MOST_OF_ALL = 10, 100
ADDRESSES = 10_000
NOTE = "guesses"


class _Guess(NamedTuple):
    at: float
    address: str
    # Which wrong key it was: the same one again is a client with an old key, and no new guess.
    mark: str = ""


class Guesses:
    """An address from which a right key came is no stranger: what strangers elsewhere do cannot lock it out."""

    def __init__(self, notebook: Notebook, clock: Clock) -> None:
        self._notebook = notebook
        self._clock = clock
        self._recent: deque[_Guess] = deque()
        self._repeats: Counter[tuple[str, str]] = Counter()
        self._known: OrderedDict[str, None] = OrderedDict()

    async def load(self) -> None:
        stored = await self._notebook.read(NOTE)
        lines = msgspec.json.decode(stored, type=list[tuple[float, str]]) if stored else []
        self._recent.extend(_Guess(min(at, self._clock.now()), address) for at, address in lines)

    def is_repeated(self, address: str, secret: str) -> bool:
        """Known to be wrong, so it need not be compared again. Raises Problem 429 for who must wait first."""
        if not self._recent:
            return False
        self._forget_old()
        mine = [guess for guess in self._recent if guess.address == address]
        again = address, digest(secret)
        if again in self._repeats:
            self._repeats[again] += 1
        if len(mine) >= MOST or self._repeats[again] > MOST:
            raise self._too_many(mine[0])
        if again in self._repeats:
            return True
        if len(self._recent) >= MOST_OF_ALL and address not in self._known:
            raise self._too_many(self._recent[0])
        return False

    async def count(self, address: str, secret: str) -> None:
        """At most so often as guesses are looked at, so it costs a stranger more than it costs us."""
        guess = _Guess(self._clock.now(), address, digest(secret))
        self._recent.append(guess)
        self._repeats[guess.address, guess.mark] = 1
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

    def _forget_old(self) -> None:
        while self._recent and self._recent[0].at <= self._clock.now() - SECONDS:
            old = self._recent.popleft()
            self._repeats.pop((old.address, old.mark), None)

    def _too_many(self, oldest: _Guess) -> Problem:
        wait = max(1, round(oldest.at + SECONDS - self._clock.now()))
        return Problem(429, "too many wrong keys", "too_many_guesses", headers={"Retry-After": str(wait)})
