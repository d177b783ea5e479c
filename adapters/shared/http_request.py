"""A request to the HTTP server as its handler sees it, and how it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn, cast

import msgspec
from aiohttp import web

if TYPE_CHECKING:
    from tidings.adapters.shared.http_limits import Connection

BANNER = "tidings"
# All headers together.
HEADER_BYTES = 16 * 1024
# The body of a connection that has shown neither a key nor a signature, and its idle time.
UNKNOWN_SECONDS = 10.0


class Request(web.BaseRequest):
    """A request as its handler gets it: the body has not been read, and most of it not even accepted."""

    path_of_route = ""
    body_bytes = 0
    # Headers of every answer to this request, unless the answer has its own.
    answer_headers: Mapping[str, str] = MappingProxyType({})

    @property
    def has_overlong_headers(self) -> bool:
        return sum(len(name) + len(value) for name, value in self.raw_headers) > HEADER_BYTES

    def admit(self, path_of_route: str, body_bytes: int, *, cancel_when_gone: bool) -> None:
        """From now on the running task is the handler of this request, and closing the server waits for it."""
        self.path_of_route = path_of_route
        self.body_bytes = body_bytes
        self._connection.begin(cancel_when_gone=cancel_when_gone)

    @property
    def _connection(self) -> Connection:
        return cast("Connection", self.protocol)

    @property
    def body_seconds(self) -> float:
        most = self._connection.limits.body_seconds
        return most if self._connection.is_known else min(most, UNKNOWN_SECONDS)

    def vouch(self) -> None:
        """Call after a valid key or signature: the connection is then never closed to make room for another."""
        self._connection.vouch()

    def abandon_when_gone(self) -> None:
        """From now on the handler is cancelled when its client goes away."""
        self._connection.abandon_when_gone()

    def refuse(self, status: int, message: str, kind: str, headers: Mapping[str, str] | None = None) -> web.Response:
        """Raises ConnectionResetError when an answer has begun: what is broken must look broken."""
        if self.has_begun:
            raise ConnectionResetError("the answer had begun already")
        response = web.Response(
            status=status, body=error_body(message, kind), content_type="application/json", headers=headers
        )
        if not self.content.is_eof():
            response.force_close()
        return response

    @property
    def has_begun(self) -> bool:
        """Part of an answer is on its way, so no other can be given."""
        return self.writer.output_size > 0

    def cut_off(self) -> NoReturn:
        """Ends an answer that has begun so that no client takes it for a whole one."""
        self._connection.abort()
        raise ConnectionResetError("the answer was cut off")

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        # The only place that also sees a response which its handler begins by itself.
        response.headers["Server"] = BANNER
        for name, value in self.answer_headers.items():
            response.headers.setdefault(name, value)


def error_body(message: str, kind: str) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": kind}})
