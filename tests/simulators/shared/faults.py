"""What goes wrong on a simulated platform: faults armed one by one by a test, or drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from tidings.core.types import Value

# fail: another answer; drop: a reset; hang: no answer; garble: 200 and half of the body; truncate: a body that ends
# too soon; slow: a body that comes in bits; delay: a late call; hold: a call that waits for its gate.
Action = Literal["fail", "drop", "hang", "garble", "truncate", "slow", "delay", "hold"]
# Matches every method, or every place.
ANY = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    action: Action
    after_effect: bool = False
    method: str | None = ANY
    seconds: float = 0.0
    gate: asyncio.Event | None = None

    @property
    def lost(self) -> str:
        """The verdict on a call whose caller never heard of it."""
        return "lost after" if self.after_effect else "lost before"

    @property
    def told(self) -> str:
        """The verdict on a call that was answered with this fault."""
        raise NotImplementedError

    async def wait(self) -> None:
        """Keeps a call waiting until the gate opens, or for the seconds of a delay."""
        if self.gate is not None:
            await self.gate.wait()
        else:
            await asyncio.sleep(self.seconds)


class Odds(Value, frozen=True, kw_only=True):
    """Probabilities, each for one call, one event or one confirmation (`cut`).

    The probabilities of a call must not add up to more than 1.
    """

    fail_before: float = 0.0
    fail_after: float = 0.0
    limit_told: float = 0.0
    limit_untold: float = 0.0
    drop_before: float = 0.0
    drop_after: float = 0.0
    hang_before: float = 0.0
    hang_after: float = 0.0
    garble_after: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    cut: float = 0.0
    # Not a probability: the pause that a 429 asks for, in seconds.
    retry_after: float = 0.2


MILD = Odds(fail_before=0.01, limit_told=0.01, drop_before=0.01, drop_after=0.01, duplicate=0.02)
NASTY = Odds(
    fail_before=0.02,
    fail_after=0.01,
    limit_told=0.02,
    limit_untold=0.01,
    drop_before=0.02,
    drop_after=0.02,
    hang_before=0.005,
    hang_after=0.005,
    garble_after=0.005,
    duplicate=0.05,
    reorder=0.05,
    cut=0.01,
)

F = TypeVar("F", bound=Fault)
Hand = Iterator[tuple[float, F]]


class Faults(Generic[F]):
    """Armed faults come first and in order; then the seed decides.

    A platform names the class of its faults, deals its own failures in `_failures`, and asks `_met` and `_drawn`
    in a `take` of its own.
    """

    fault: type[F]

    def __init__(self) -> None:
        self._armed: list[F] = []
        self._seed = 0
        self._odds: Odds | None = None
        self._draws: Counter[tuple[str, str]] = Counter()

    @property
    def armed(self) -> tuple[F, ...]:
        """The armed faults that no call has met yet."""
        return tuple(self._armed)

    def arm(self, fault: F, count: int = 1) -> None:
        self._armed.extend([fault] * count)

    def schedule(self, seed: int, odds: Odds) -> None:
        self._seed = seed
        self._odds = odds
        self._draws.clear()

    def clear(self) -> None:
        self._armed.clear()
        self._odds = None

    def befalls(self, name: str, lane: str) -> bool:
        """Whether the seed lets a named mishap (duplicate, reorder, cut) happen in a lane now."""
        return self._odds is not None and self._draw(name, lane) < float(getattr(self._odds, name))

    def _met(self, fits: Callable[[F], bool]) -> F | None:
        """The oldest armed fault that fits, which is armed no more."""
        for position, fault in enumerate(self._armed):
            if fits(fault):
                return self._armed.pop(position)
        return None

    def _drawn(self, method: str, lane: str) -> F | None:
        """The fault that the seed has for this call."""
        if self._odds is None:
            return None
        lot = self._draw(method, lane)
        for probability, fault in self._hand(self._odds):
            lot -= probability
            if lot < 0:
                return fault
        return None

    def _hand(self, odds: Odds) -> Hand[F]:
        yield from self._failures(odds)
        yield odds.drop_before, self.fault(action="drop")
        yield odds.drop_after, self.fault(action="drop", after_effect=True)
        yield odds.hang_before, self.fault(action="hang")
        yield odds.hang_after, self.fault(action="hang", after_effect=True)
        yield from self._broken_bodies(odds)

    def _failures(self, odds: Odds) -> Hand[F]:
        raise NotImplementedError

    def _broken_bodies(self, odds: Odds) -> Hand[F]:
        yield odds.garble_after / 2, self.fault(action="garble", after_effect=True)
        yield odds.garble_after / 2, self.fault(action="truncate", after_effect=True)

    def _draw(self, name: str, lane: str) -> float:
        # Each lane has draws of its own, so that a seed gives the same faults however lanes interleave.
        self._draws[name, lane] += 1
        return random.Random(f"{self._seed}/{name}/{lane}/{self._draws[name, lane]}").random()
