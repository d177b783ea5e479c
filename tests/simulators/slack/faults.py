"""What goes wrong on Slack's side: faults armed one by one, or drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from tests.simulators.paper.faults import MILD, NASTY, Odds

__all__ = ["HTML", "MILD", "NASTY", "Action", "Fault", "Faults", "Odds"]

ANY = None
CONNECT = "apps.connections.open"

Action = Literal["fail", "drop", "hang", "garble", "truncate", "delay", "hold"]

HTML = (
    b"<!DOCTYPE html><html><head><title>Server Error | Slack</title></head>"
    b"<body><h1>Something's not quite right.</h1></body></html>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    # fail: another answer; drop: a reset; hang: no answer; garble: 200 and half its JSON; truncate: a body that ends
    # too soon; delay and hold: late, and when the gate opens.
    action: Action
    after_effect: bool = False
    # None is any method of the Web API but the one that opens a socket; what is none must be named: "upload",
    # "download" and "response_url".
    method: str | None = ANY
    channel: str | None = ANY
    status: int = 200
    error: str = "internal_error"
    retry_after: int | None = None
    # Instead of JSON.
    body: bytes = b""
    type: str = "text/html"
    seconds: float = 0.0
    gate: asyncio.Event | None = None

    @property
    def lost(self) -> str:
        return "lost after" if self.after_effect else "lost before"

    @property
    def told(self) -> str:
        return self.error if self.status == 200 else str(self.status)

    def fits(self, method: str, channel: str) -> bool:
        is_usual = "." in method and method != CONNECT
        wanted = is_usual if self.method is ANY else self.method.lower() == method.lower()
        return wanted and self.channel in (ANY, channel)


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

    def take(self, method: str, channel: str) -> Fault | None:
        for position, fault in enumerate(self._armed):
            if fault.fits(method, channel):
                return self._armed.pop(position)
        odds = self._odds
        if odds is None:
            return None
        lot = self._draw(method, channel)
        for probability, fault in (
            (odds.fail_before / 2, Fault(action="fail")),
            (odds.fail_before / 2, Fault(action="fail", status=503, body=HTML)),
            (odds.fail_after, Fault(action="fail", status=502, body=HTML, after_effect=True)),
            (odds.limit_told, limited(max(1, round(odds.retry_after)))),
            (odds.limit_untold, limited(None)),
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


def limited(seconds: int | None) -> Fault:
    return Fault(action="fail", status=429, error="ratelimited", retry_after=seconds)
