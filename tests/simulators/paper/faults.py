"""What goes wrong on the paper platform: faults armed one by one, or drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulators.shared import faults
from tests.simulators.shared.faults import ANY, MILD, NASTY, Hand, Odds

__all__ = ["MILD", "NASTY", "Fault", "Faults", "Odds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(faults.Fault):
    code: int = 500
    retry_after: float | None = None

    @property
    def told(self) -> str:
        return str(self.code)


class Faults(faults.Faults[Fault]):
    fault = Fault

    def take(self, method: str, chat: str) -> Fault | None:
        return self._met(lambda fault: fault.method in (ANY, method)) or self._drawn(method, chat)

    def _failures(self, odds: Odds) -> Hand[Fault]:
        yield odds.fail_before, Fault(action="fail")
        yield odds.fail_after, Fault(action="fail", after_effect=True)
        yield odds.limit_told, Fault(action="fail", code=429, retry_after=odds.retry_after)
        yield odds.limit_untold, Fault(action="fail", code=429)

    def _broken_bodies(self, odds: Odds) -> Hand[Fault]:
        """A line of the paper platform is garbled or whole."""
        yield odds.garble_after, Fault(action="garble", after_effect=True)
