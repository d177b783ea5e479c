"""What goes wrong on Telegram's side: faults armed one by one, or drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulators.shared import faults
from tests.simulators.shared.faults import ANY, MILD, NASTY, Hand, Odds

__all__ = ["MILD", "NASTY", "Fault", "Faults", "Odds"]

POLL = "getUpdates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(faults.Fault):
    """Without a method it befalls any call but getUpdates, which always runs in the background."""

    chat: str | None = ANY
    code: int = 500
    description: str = ""
    parameters: dict[str, int] = field(default_factory=dict)
    # Instead of JSON.
    body: bytes = b""

    @property
    def told(self) -> str:
        return str(self.code)

    def fits(self, method: str, chat: str) -> bool:
        wanted = method != POLL if self.method is ANY else self.method.lower() == method.lower()
        return wanted and self.chat in (ANY, chat)


HTML = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n"
    b"<hr><center>nginx/1.18.0</center>\r\n</body>\r\n</html>\r\n"
)


class Faults(faults.Faults[Fault]):
    fault = Fault

    def take(self, method: str, chat: str) -> Fault | None:
        if (armed := self._met(lambda fault: fault.fits(method, chat))) is not None:
            return armed
        if method == POLL and self.befalls("cut", chat):
            return Fault(action="drop")
        return self._drawn(method, chat)

    def _failures(self, odds: Odds) -> Hand[Fault]:
        yield odds.fail_before / 2, Fault(action="fail", description="Internal Server Error")
        yield odds.fail_before / 2, Fault(action="fail", code=502, body=HTML)
        yield odds.fail_after, Fault(action="fail", code=502, body=HTML, after_effect=True)
        yield odds.limit_told, limited(max(1, round(odds.retry_after)))
        yield odds.limit_untold, Fault(action="fail", code=429, description="Too Many Requests")


def limited(seconds: int) -> Fault:
    return Fault(
        action="fail",
        code=429,
        description=f"Too Many Requests: retry after {seconds}",
        parameters={"retry_after": seconds},
    )
