"""How often a bot may call: a bucket for each route and channel, one limit over all, and the edge's own patience."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from tidings.core.clock import Clock

# Calls that no limit over all counts.
EXEMPT = {"callback", "follow_up", "original", "edit_original", "delete_original", "edit_follow_up"}
INVALID_SECONDS = 600.0
# Nobody may rely on these; they are what was seen.
KNOWN = {
    "send": (5, 5.0),
    "edit": (5, 5.0),
    "delete": (5, 1.0),
    "typing": (5, 5.0),
    "react": (1, 0.25),
    "history": (5, 1.0),
    "thread": (10, 60.0),
    "thread_from": (10, 60.0),
}
GLOBAL_PER_SECOND = 50
# Routes that draw on another's bucket: setting a reaction and taking it back count together.
SHARED = {"unreact": "react"}


class Turn(NamedTuple):
    """What a call is told about its bucket; it must wait where a pause is named."""

    headers: dict[str, str]
    pause: float = 0.0
    is_global: bool = False


@dataclass(slots=True)
class Window:
    ends: float = 0.0
    used: int = 0

    def take(self, now: float, limit: int, seconds: float) -> bool:
        if now >= self.ends:
            self.ends, self.used = now + seconds, 0
        if self.used >= limit:
            return False
        self.used += 1
        return True


class Rates:
    """Off until asked for."""

    def __init__(self, clock: Clock, invalid_limit: int) -> None:
        self._clock = clock
        self._rules: dict[tuple[str, str | None], tuple[int, float]] = {}
        self._windows: dict[tuple[str, str, str], Window] = {}
        self._per_second = 0
        self._invalid_limit = invalid_limit
        self._invalid: deque[float] = deque()

    def limit(self, method: str, limit: int, seconds: float, channel: str | None = None) -> None:
        self._rules[method, channel] = (limit, seconds)
        self._windows.clear()

    def limit_all(self, per_second: int) -> None:
        self._per_second = per_second
        self._windows.clear()

    def limit_as_known(self) -> None:
        for method, (limit, seconds) in KNOWN.items():
            self.limit(method, limit, seconds)
        self.limit_all(GLOBAL_PER_SECOND)

    def lift(self) -> None:
        self._rules.clear()
        self._windows.clear()
        self._per_second = 0

    def admit(self, account: str, method: str, channel: str) -> Turn:
        now = self._clock.now()
        if self._per_second and method not in EXEMPT:
            window = self._windows.setdefault((account, "", ""), Window())
            if not window.take(now, self._per_second, 1.0):
                return Turn({"X-RateLimit-Global": "true", "X-RateLimit-Scope": "global"}, window.ends - now, True)
        method = SHARED.get(method, method)
        rule = self._rules.get((method, channel)) or self._rules.get((method, None))
        if rule is None:
            return Turn({})
        limit, seconds = rule
        window = self._windows.setdefault((account, method, channel), Window())
        passes = window.take(now, limit, seconds)
        left = max(0.0, window.ends - now)
        headers = {
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(limit - window.used),
            "X-RateLimit-Reset": f"{self._clock.wall() + left:.3f}",
            "X-RateLimit-Reset-After": f"{left:.3f}",
            "X-RateLimit-Bucket": sha256(method.encode()).hexdigest()[:16],
        }
        if passes:
            return Turn(headers)
        return Turn(headers | {"X-RateLimit-Scope": "user"}, math.ceil(left * 1000) / 1000)

    # Whoever is turned away too often is shut out by the edge, before anything is read.

    @property
    def invalid(self) -> int:
        """Calls of the last ten minutes that were answered with 401, 403 or 429."""
        while self._invalid and self._invalid[0] <= self._clock.now() - INVALID_SECONDS:
            self._invalid.popleft()
        return len(self._invalid)

    @property
    def is_banned(self) -> bool:
        return self.invalid >= self._invalid_limit

    def count(self, status: int) -> None:
        if status in (401, 403, 429):
            self._invalid.append(self._clock.now())
