"""What goes wrong on Discord's side: faults armed one by one, or drawn from a seed."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import ceil
from typing import Literal

from tests.simulators.paper.faults import MILD, NASTY, Odds

__all__ = ["MILD", "NASTY", "Fault", "Faults", "Odds"]

ANY = None
FILE = "file"
VIA = {"Via": "1.1 google"}
LIMITED = "You are being rate limited."
BANNED = b"error code: 1015"
HTML = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n"
    b"<hr><center>cloudflare</center>\r\n</body>\r\n</html>\r\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    # fail: another answer; drop: a reset; hang: no answer; garble: 200 and half its JSON; truncate: a body that ends
    # too soon; slow: a body that comes in bits; delay and hold: late, and when the gate opens.
    action: Literal["fail", "drop", "hang", "garble", "truncate", "slow", "delay", "hold"]
    after_effect: bool = False
    # A route's word, or a pattern such as "POST /channels/*/messages". None is any call to the API.
    method: str | None = ANY
    channel: str | None = ANY
    status: int = 500
    body: bytes = b""
    type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    gate: asyncio.Event | None = None

    @property
    def lost(self) -> str:
        return "lost after" if self.after_effect else "lost before"

    def fits(self, method: str, line: str, channel: str) -> bool:
        if self.method is ANY:
            wanted = method != FILE
        else:
            wanted = fnmatchcase(line, self.method) if " " in self.method else method == self.method
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

    def take(self, method: str, line: str, channel: str, lane: str) -> Fault | None:
        for position, fault in enumerate(self._armed):
            if fault.fits(method, line, channel):
                return self._armed.pop(position)
        odds = self._odds
        if odds is None:
            return None
        lot = self._draw(method, lane)
        for probability, fault in (
            (odds.fail_before / 2, failed(500)),
            (odds.fail_before / 2, failed(503)),
            (odds.fail_after, failed(502, after_effect=True)),
            (odds.limit_told, limited(odds.retry_after)),
            (odds.limit_untold, banned()),
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

    def befalls(self, name: str, lane: str) -> bool:
        return self._odds is not None and self._draw(name, lane) < float(getattr(self._odds, name))

    def _draw(self, name: str, lane: str) -> float:
        # Each lane has lots of its own, so that a seed gives the same faults however lanes interleave.
        self._drawn[name, lane] += 1
        return random.Random(f"{self._seed}/{name}/{lane}/{self._drawn[name, lane]}").random()


def failed(status: int, *, after_effect: bool = False) -> Fault:
    """500 is Discord's own and JSON; the rest is the edge's and a page."""
    if status == 500:
        body = json.dumps({"message": "500: Internal Server Error", "code": 0}).encode()
        return Fault(action="fail", status=500, body=body, headers=VIA, after_effect=after_effect)
    page = HTML.replace(b"502", str(status).encode())
    return Fault(action="fail", status=status, body=page, type="text/html", after_effect=after_effect)


def limited(seconds: float, *, is_global: bool = False) -> Fault:
    body = json.dumps({"message": LIMITED, "retry_after": seconds, "global": is_global}).encode()
    headers = VIA | {"Retry-After": str(ceil(seconds)), "X-RateLimit-Scope": "global" if is_global else "user"}
    headers |= {"X-RateLimit-Global": "true"} if is_global else {}
    return Fault(action="fail", status=429, body=body, headers=headers)


def banned() -> Fault:
    """The edge turns everybody of this address away, and says not for how long."""
    return Fault(action="fail", status=429, body=BANNED, type="text/plain")
