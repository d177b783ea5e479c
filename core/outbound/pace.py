"""Rate budgets for send, show and signal: a send reserves its turn, a show or signal uses only spare capacity."""

from __future__ import annotations

import asyncio

from tidings.core.clock import Clock
from tidings.core.errors import RateLimited
from tidings.core.store.store import Transaction
from tidings.core.types import Capabilities, Pace

# With more budgets than this, full ones are forgotten.
FORGET_ABOVE = 10_000
BACKOFF_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class Budgets:
    """Rate budgets; each is one number, the time at which it would be full again (virtual scheduling).

    Sends reserve their turns in order of arrival, so thousands may wait for one budget without waking each other,
    and shows and signals cannot overtake them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._full_at: dict[str, float] = {}
        self._paused: dict[str, float] = {}

    def pause(self, budget: str, until: float) -> None:
        """Closes a budget until the time that the platform named, for every call that uses this budget."""
        self._paused[budget] = max(until, self._paused.get(budget, 0.0))
        if len(self._paused) > FORGET_ABOVE:
            now = self._clock.now()
            self._paused = {key: end for key, end in self._paused.items() if end > now}

    def ready_in(self, paces: tuple[Pace, ...], *, spare: int = 0) -> float:
        """Seconds until a call fits into all budgets and leaves room for `spare` more calls."""
        now = self._clock.now()
        return max((self._start(pace, now, spare) - now for pace in paces), default=0.0)

    def take(self, paces: tuple[Pace, ...], *, spare: int = 0) -> bool:
        if self.ready_in(paces, spare=spare) > 0:
            return False
        self._draw(paces, self._clock.now())
        return True

    def give_back(self, paces: tuple[Pace, ...]) -> None:
        """Returns a turn that was taken and not used."""
        for pace in paces:
            self._full_at[pace.key] = self._full_at.get(pace.key, 0.0) - pace.seconds

    async def turn(self, paces: tuple[Pace, ...]) -> None:
        """Returns when this send may go; waits also for pauses that begin meanwhile."""
        while True:
            await self._line_up(paces)
            if not self.is_paused(paces):
                return
            # The reserved time fell into the pause. The send queues again, or all waiting sends would go at once.

    async def turn_unless(self, paces: tuple[Pace, ...], news: asyncio.Event) -> bool:
        """Waits for a turn like `turn`; false when the news come first, and then the turn is free for others."""
        turn, heard = asyncio.ensure_future(self.turn(paces)), asyncio.ensure_future(news.wait())
        try:
            await asyncio.wait((turn, heard), return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                return False
            turn.result()
            return True
        finally:
            turn.cancel()
            heard.cancel()
            await asyncio.gather(turn, heard, return_exceptions=True)

    async def _line_up(self, paces: tuple[Pace, ...]) -> None:
        """Waits for the slowest budget first, and reserves the others only afterwards.

        Otherwise one chat with a long wait would keep other chats from the budget that they share.
        """
        ahead = list(paces)
        while ahead:
            now = self._clock.now()
            start, slowest = max(((self._start(pace, now, 0), pace) for pace in ahead), key=lambda each: each[0])
            if start <= now:
                break
            self._draw((slowest,), start)
            ahead.remove(slowest)
            try:
                while (wait := start - self._clock.now()) > 0:
                    await self._clock.sleep(wait)
            except asyncio.CancelledError:
                self.give_back(tuple(pace for pace in paces if pace not in ahead))
                raise
        now = self._clock.now()
        self._draw(tuple(ahead), now)
        for pace in paces:
            # The send goes only now, after waiting for the slowest budget, so the others count from now.
            self._full_at[pace.key] = max(self._full_at.get(pace.key, 0.0), now + pace.seconds)

    def is_paused(self, paces: tuple[Pace, ...]) -> bool:
        return any(self._paused.get(pace.key, 0.0) > self._clock.now() for pace in paces)

    def _start(self, pace: Pace, now: float, spare: int) -> float:
        full_at = self._full_at.get(pace.key, 0.0)
        room = pace.seconds * (pace.burst - 1 - spare)
        paused = self._paused.get(pace.key, 0.0)
        if paused and paused <= now:
            del self._paused[pace.key]
        if room < 0 and full_at <= now:
            # A budget with a burst of one can never keep a spare turn.
            full_at = now
        return max(now, full_at - room, paused)

    def _draw(self, paces: tuple[Pace, ...], at: float) -> None:
        for pace in paces:
            self._full_at[pace.key] = max(self._full_at.get(pace.key, 0.0), at) + pace.seconds
        if len(self._full_at) > FORGET_ABOVE:
            now = self._clock.now()
            self._full_at = {key: full_at for key, full_at in self._full_at.items() if full_at > now}


def backoff(misses: int) -> float:
    return BACKOFF_SECONDS[min(misses, len(BACKOFF_SECONDS) - 1)]


def pause_of(can: Capabilities, error: RateLimited, now: float, misses: int) -> tuple[str, float]:
    """The budget that a platform has closed, and until when; without a budget, only the part itself waits."""
    budget = error.budget or (can.pace[0].key if can.pace else "")
    return budget, now + (error.retry_after if error.retry_after is not None else backoff(misses))


def load_pauses(tx: Transaction) -> dict[str, float]:
    return {row["budget"]: row["until"] for row in tx.all("SELECT budget, until FROM pauses")}


def store_pause(tx: Transaction, budget: str, until: float) -> None:
    tx.execute(
        "INSERT INTO pauses (budget, until) VALUES (?, ?)"
        " ON CONFLICT (budget) DO UPDATE SET until = excluded.until WHERE pauses.until < excluded.until",
        budget,
        until,
    )


def forget_pauses(tx: Transaction, now: float) -> None:
    tx.execute("DELETE FROM pauses WHERE until <= ?", now)
