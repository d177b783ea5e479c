"""What schemathesis does not check by itself; it loads this file in its own process.

Its own `ignored_auth` guesses so often that it is told to wait, which it takes for a fault.
"""

from __future__ import annotations

import requests
import schemathesis
from requests.adapters import HTTPAdapter

TIMEOUT_SECONDS = 20.0
# One proof for each operation is enough.
_proved: set[str] = set()


class _From(HTTPAdapter):
    """Calls from an address of its own: so many wrong keys from one address would be answered ever later."""

    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *args: object, **options: object) -> None:
        super().init_poolmanager(*args, **options, source_address=(self._address, 0))  # type: ignore[no-untyped-call]


@schemathesis.check
def needs_a_key(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case
) -> bool | None:
    """Whatever was answered with a key is not answered without one, nor with a wrong one."""
    operation = case.operation.label
    if operation in _proved or response.status_code >= 300 or not case.operation.definition.raw.get("security"):
        return None
    for headers, allowed in (({}, {401}), ({"Authorization": "Bearer wrong"}, {401, 429})):
        again = response.request.copy()
        for name in ("Authorization", "X-Api-Key"):
            again.headers.pop(name, None)
        again.headers.update(headers)
        with requests.Session() as session:
            session.trust_env = False
            session.mount("http://", _From(f"127.0.1.{len(_proved) + 1}"))
            status = session.send(again, timeout=TIMEOUT_SECONDS).status_code
        assert status in allowed, f"{operation} with {headers or 'no key'} gives {status}"
    _proved.add(operation)
    return None


@schemathesis.check
def errors_are_told_in_one_shape(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case
) -> bool | None:
    """Whoever is refused reads a sentence, never a trace or a page."""
    if response.status_code >= 400:
        error = response.json()["error"]
        # Clients of jobs read a plain sentence.
        message = error if isinstance(error, str) and "/api/jobs" in case.operation.path else error["message"]
        assert isinstance(message, str)
        assert message
        assert "Traceback" not in message
    return None
