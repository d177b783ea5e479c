"""What goes wrong on Discord's side: faults armed one by one, or drawn from a seed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import ceil

from tests.simulators.shared import faults
from tests.simulators.shared.faults import ANY, MILD, NASTY, Hand, Odds

__all__ = ["MILD", "NASTY", "Fault", "Faults", "Odds"]

FILE = "file"
VIA = {"Via": "1.1 google"}
LIMITED = "You are being rate limited."
BANNED = b"error code: 1015"
HTML = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n"
    b"<hr><center>cloudflare</center>\r\n</body>\r\n</html>\r\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(faults.Fault):
    """A method is a route's word, or a pattern such as "POST /channels/*/messages"; None is any call to the API."""

    channel: str | None = ANY
    status: int = 500
    body: bytes = b""
    type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def told(self) -> str:
        return str(self.status)

    def fits(self, method: str, line: str, channel: str) -> bool:
        if self.method is ANY:
            wanted = method != FILE
        else:
            wanted = fnmatchcase(line, self.method) if " " in self.method else method == self.method
        return wanted and self.channel in (ANY, channel)


class Faults(faults.Faults[Fault]):
    fault = Fault

    def take(self, method: str, line: str, channel: str, lane: str) -> Fault | None:
        return self._met(lambda fault: fault.fits(method, line, channel)) or self._drawn(method, lane)

    def _failures(self, odds: Odds) -> Hand[Fault]:
        yield odds.fail_before / 2, failed(500)
        yield odds.fail_before / 2, failed(503)
        yield odds.fail_after, failed(502, after_effect=True)
        yield odds.limit_told, limited(odds.retry_after)
        yield odds.limit_untold, banned()


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
