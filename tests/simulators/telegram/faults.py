"""What goes wrong on Telegram's side: faults armed one by one, or drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from tests.simulators.paper.faults import MILD, NASTY, Odds

__all__ = ["MILD", "NASTY", "Fault", "Faults", "Odds"]

ANY = None
POLL = "getUpdates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    # fail: another answer; drop: a reset; hang: no answer; garble: 200 and half its JSON; truncate: a body that ends
    # too soon; slow: a body that comes in bits; delay and hold: late, and when the gate opens.
    action: Literal["fail", "drop", "hang", "garble", "truncate", "slow", "delay", "hold"]
    after_effect: bool = False
    # None is any call but getUpdates, which always runs in the background.
    method: str | None = ANY
    chat: str | None = ANY
    code: int = 500
    description: str = ""
    parameters: dict[str, int] = field(default_factory=dict)
    # Instead of JSON.
    body: bytes = b""
    seconds: float = 0.0
    gate: asyncio.Event | None = None

    @property
    def lost(self) -> str:
        return "lost after" if self.after_effect else "lost before"

    def fits(self, method: str, chat: str) -> bool:
        wanted = method != POLL if self.method is ANY else self.method.lower() == method.lower()
        return wanted and self.chat in (ANY, chat)


HTML = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n"
    b"<hr><center>nginx/1.18.0</center>\r\n</body>\r\n</html>\r\n"
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

    def arm(self, fault: Fault, count: int = 1) -> None:
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
            if fault.fits(method, chat):
                return self._armed.pop(position)
        odds = self._odds
        if odds is None:
            return None
        if method == POLL and self.befalls("cut", chat):
            return Fault(action="drop")
        lot = self._draw(method, chat)
        wait = max(1, round(odds.retry_after))
        for probability, fault in (
            (odds.fail_before / 2, Fault(action="fail", description="Internal Server Error")),
            (odds.fail_before / 2, Fault(action="fail", code=502, body=HTML)),
            (odds.fail_after, Fault(action="fail", code=502, body=HTML, after_effect=True)),
            (odds.limit_told, limited(wait)),
            (odds.limit_untold, Fault(action="fail", code=429, description="Too Many Requests")),
            (odds.drop_before, Fault(action="drop")),
            (odds.drop_after, Fault(action="drop", after_effect=True)),
            (odds.hang_before, Fault(action="hang")),
            (odds.hang_after, Fault(action="hang", after_effect=True)),
            (odds.garble_after / 2, Fault(action="garble", after_effect=True)),
            (odds.garble_after / 2, Fault(action="truncate", after_effect=True)),
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


def limited(seconds: int) -> Fault:
    return Fault(
        action="fail",
        code=429,
        description=f"Too Many Requests: retry after {seconds}",
        parameters={"retry_after": seconds},
    )
