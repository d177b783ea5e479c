"""What goes wrong on the paper platform: faults armed one by one, or drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from tidings.core.types import Value

ANY_METHOD = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    action: Literal["fail", "drop", "hang", "garble", "delay", "hold"]
    after_effect: bool = False
    method: str | None = ANY_METHOD
    code: int = 500
    retry_after: float | None = None
    seconds: float = 0.0
    gate: asyncio.Event | None = None

    @property
    def lost(self) -> str:
        return "lost after" if self.after_effect else "lost before"


class Odds(Value, frozen=True, kw_only=True):
    """Probabilities, each for one call, one event or one confirmation (`cut`).

    Those of a call must not add up to more than 1.
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


class Faults:
    """Armed faults come first and in order; then the seed decides."""

    def __init__(self) -> None:
        self._armed: list[Fault] = []
        self._seed = 0
        self._odds: Odds | None = None
        self._drawn: Counter[tuple[str, str]] = Counter()

    @property
    def armed(self) -> tuple[Fault, ...]:
        """Those that nobody has met yet."""
        return tuple(self._armed)

    def arm(self, fault: Fault, count: int) -> None:
        self._armed.extend([fault] * count)

    def schedule(self, seed: int, odds: Odds) -> None:
        self._seed = seed
        self._odds = odds
        self._drawn.clear()

    def clear(self) -> None:
        self._armed.clear()
        self._odds = None

    def take(self, method: str, chat: str) -> Fault | None:
        for position, fault in enumerate(self._armed):
            if fault.method in (ANY_METHOD, method):
                return self._armed.pop(position)
        odds = self._odds
        if odds is None:
            return None
        lot = self._draw(method, chat)
        told = Fault(action="fail", code=429, retry_after=odds.retry_after)
        for probability, fault in (
            (odds.fail_before, Fault(action="fail")),
            (odds.fail_after, Fault(action="fail", after_effect=True)),
            (odds.limit_told, told),
            (odds.limit_untold, Fault(action="fail", code=429)),
            (odds.drop_before, Fault(action="drop")),
            (odds.drop_after, Fault(action="drop", after_effect=True)),
            (odds.hang_before, Fault(action="hang")),
            (odds.hang_after, Fault(action="hang", after_effect=True)),
            (odds.garble_after, Fault(action="garble", after_effect=True)),
        ):
            lot -= probability
            if lot < 0:
                return fault
        return None

    def befalls(self, name: Literal["duplicate", "reorder", "cut"], lane: str) -> bool:
        return self._odds is not None and self._draw(name, lane) < float(getattr(self._odds, name))

    def _draw(self, name: str, lane: str) -> float:
        # Each lane has lots of its own, so that a seed gives the same faults however lanes interleave.
        self._drawn[name, lane] += 1
        return random.Random(f"{self._seed}/{name}/{lane}/{self._drawn[name, lane]}").random()
