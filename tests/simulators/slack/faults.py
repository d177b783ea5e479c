"""What goes wrong on Slack's side: faults armed one by one, or drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulators.shared import faults
from tests.simulators.shared.faults import ANY, MILD, NASTY, Hand, Odds

__all__ = ["HTML", "MILD", "NASTY", "Fault", "Faults", "Odds"]

CONNECT = "apps.connections.open"

HTML = (
    b"<!DOCTYPE html><html><head><title>Server Error | Slack</title></head>"
    b"<body><h1>Something's not quite right.</h1></body></html>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(faults.Fault):
    """Without a method it befalls any method of the Web API but the one that opens a socket.

    The methods "upload", "download" and "response_url" are none of the Web API's and must be named.
    """

    channel: str | None = ANY
    status: int = 200
    error: str = "internal_error"
    retry_after: int | None = None
    # Instead of JSON.
    body: bytes = b""
    type: str = "text/html"

    @property
    def told(self) -> str:
        return self.error if self.status == 200 else str(self.status)

    def fits(self, method: str, channel: str) -> bool:
        is_usual = "." in method and method != CONNECT
        wanted = is_usual if self.method is ANY else self.method.lower() == method.lower()
        return wanted and self.channel in (ANY, channel)


class Faults(faults.Faults[Fault]):
    fault = Fault

    def take(self, method: str, channel: str) -> Fault | None:
        return self._met(lambda fault: fault.fits(method, channel)) or self._drawn(method, channel)

    def _failures(self, odds: Odds) -> Hand[Fault]:
        yield odds.fail_before / 2, Fault(action="fail")
        yield odds.fail_before / 2, Fault(action="fail", status=503, body=HTML)
        yield odds.fail_after, Fault(action="fail", status=502, body=HTML, after_effect=True)
        yield odds.limit_told, limited(max(1, round(odds.retry_after)))
        yield odds.limit_untold, limited(None)


def limited(seconds: int | None) -> Fault:
    return Fault(action="fail", status=429, error="ratelimited", retry_after=seconds)
