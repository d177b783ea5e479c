"""The levers that every simulator has: what goes wrong, when, and for which calls."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulators.shared.faults import Action, Fault, Faults, Odds


class Levers:
    """A call is any call unless a method or a place (`chat=` or `channel=`, as the platform says) is named."""

    faults: Faults[Any]

    def drop_next(self, after_effect: bool, method: str | None = None, count: int = 1, **where: Any) -> None:
        """The connection is reset."""
        self._arm("drop", count, after_effect=after_effect, method=method, **where)

    def hang_next(self, after_effect: bool, method: str | None = None, count: int = 1, **where: Any) -> None:
        """No answer ever comes; the connection stays until the caller goes."""
        self._arm("hang", count, after_effect=after_effect, method=method, **where)

    def garble_next(self, method: str | None = None, count: int = 1, **where: Any) -> None:
        """The effect happens, and half of the answer comes back as if it were whole."""
        self._arm("garble", count, after_effect=True, method=method, **where)

    def delay_next(
        self, seconds: float, method: str | None = None, count: int = 1, *, after_effect: bool = True, **where: Any
    ) -> None:
        self._arm("delay", count, seconds=seconds, method=method, after_effect=after_effect, **where)

    def hold_next(self, method: str | None = None, *, after_effect: bool = False, **where: Any) -> asyncio.Event:
        """The call stays open until the returned gate is set."""
        gate = asyncio.Event()
        self._arm("hold", 1, gate=gate, method=method, after_effect=after_effect, **where)
        return gate

    def schedule(self, seed: int, probabilities: Odds) -> None:
        """From now on the seed decides; `heal` ends it."""
        self.faults.schedule(seed, probabilities)

    def heal(self) -> None:
        self.faults.clear()

    def _arm(self, action: Action, count: int, **fields: Any) -> None:
        self.faults.arm(self._fault(action, **fields), count)

    def _fault(self, action: Action, **fields: Any) -> Fault:
        """A fault of the platform's own class; a place that the platform does not know is a TypeError."""
        fault: Fault = self.faults.fault(action=action, **fields)
        return fault


class HttpLevers(Levers):
    """What can go wrong with the body of an HTTP answer too."""

    def truncate_next(self, method: str | None = None, count: int = 1, **where: Any) -> None:
        """The effect happens, and the connection ends in the middle of the body."""
        self._arm("truncate", count, after_effect=True, method=method, **where)

    def dribble_next(self, seconds: float, method: str | None = None, count: int = 1, **where: Any) -> None:
        """The effect happens, and the body comes in bits over so many real seconds."""
        self._arm("slow", count, after_effect=True, seconds=seconds, method=method, **where)
