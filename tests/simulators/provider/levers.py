"""The levers of the simulated provider: what goes wrong, when, and for which requests."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulators.provider.faults import Action, Fault, Faults
from tests.simulators.provider.switchboard import Switchboard
from tests.simulators.provider.truth import Api


class Levers:
    """Each arms a fault for the next requests, `count` of them or all until `heal` where it is None.

    `model` and `api` ("chat", "responses", "messages", "models") choose among them. With neither `after_chunks` nor
    `after_bytes` it happens before the first byte; with 0 chunks after what opens a stream and before its first
    token; bytes are those of the body. An answer that is not streamed has one chunk: after chunks is in its middle.
    """

    faults: Faults
    _switchboard: Switchboard

    def fail_next(
        self,
        status: int,
        count: int | None = 1,
        *,
        retry_after: float | None = None,
        message: str = "",
        code: str | None = None,
        body: bytes | None = None,
        model: str | None = None,
        api: Api | None = None,
    ) -> None:
        """An error in the provider's shape; 502 is a gateway's HTML unless something else is said."""
        self._arm(
            "status",
            count,
            status=status,
            retry_after=retry_after,
            message=message,
            code=code,
            body=body,
            model=model,
            api=api,
        )

    def error_next(
        self,
        after_chunks: int = 0,
        count: int | None = 1,
        *,
        status: int = 529,
        message: str = "",
        code: str | None = None,
        failed: bool = False,
        model: str | None = None,
        api: Api | None = None,
    ) -> None:
        """A stream with status 200 that says an error and ends; its words are those of `status`.

        `failed` is Responses' other way: response.failed instead of an error event. Without a stream it is a 200 with
        an error for chat, a failed response for Responses, and the status itself for Anthropic.
        """
        self._arm(
            "error",
            count,
            after_chunks=after_chunks,
            status=status,
            message=message,
            code=code,
            failed=failed,
            model=model,
            api=api,
        )

    def stall_next(
        self,
        count: int | None = 1,
        *,
        after_chunks: int | None = None,
        after_bytes: int | None = None,
        model: str | None = None,
        api: Api | None = None,
    ) -> asyncio.Event:
        """No further byte until the returned gate is set, or `release` or `heal` is called."""
        gate = asyncio.Event()
        self._arm("stall", count, gate=gate, after_chunks=after_chunks, after_bytes=after_bytes, model=model, api=api)
        return gate

    def delay_next(
        self,
        seconds: float,
        count: int | None = 1,
        *,
        after_chunks: int | None = None,
        after_bytes: int | None = None,
        model: str | None = None,
        api: Api | None = None,
    ) -> None:
        """A slow first byte, or a pause later on; real time."""
        self._arm(
            "delay", count, seconds=seconds, after_chunks=after_chunks, after_bytes=after_bytes, model=model, api=api
        )

    def cut_next(
        self,
        count: int | None = 1,
        *,
        after_chunks: int | None = None,
        after_bytes: int | None = None,
        reset: bool = False,
        model: str | None = None,
        api: Api | None = None,
    ) -> None:
        """The connection ends, too soon for HTTP; with `reset` as if somebody pulled the cable."""
        self._arm("cut", count, reset=reset, after_chunks=after_chunks, after_bytes=after_bytes, model=model, api=api)

    def end_next(
        self,
        after_chunks: int | None = None,
        count: int | None = 1,
        *,
        after_bytes: int | None = None,
        model: str | None = None,
        api: Api | None = None,
    ) -> None:
        """A clean end without a finish reason and all that follows it, after all content unless said otherwise.

        After 0 bytes it is a 200 without a body.
        """
        self._arm("end", count, after_chunks=after_chunks, after_bytes=after_bytes, model=model, api=api)

    def unfinish_next(self, count: int | None = 1, *, model: str | None = None, api: Api | None = None) -> None:
        """All is there but the reason why it ended."""
        self._arm("unfinish", count, model=model, api=api)

    def undone_next(self, count: int | None = 1, *, model: str | None = None, api: Api | None = None) -> None:
        """All is there but the last word: [DONE], message_stop, or response.completed."""
        self._arm("undone", count, model=model, api=api)

    def garble_next(
        self, after_chunks: int = 0, count: int | None = 1, *, model: str | None = None, api: Api | None = None
    ) -> None:
        """The chunk after so many is broken JSON; the stream goes on. Without a stream, the body is."""
        self._arm("garble", count, after_chunks=after_chunks, model=model, api=api)

    def empty_next(self, count: int | None = 1, *, model: str | None = None, api: Api | None = None) -> None:
        """Nothing is said, with the usual reason; no turn of a script is taken."""
        self._arm("empty", count, model=model, api=api)

    def truncate_next(
        self, after_chunks: int = 1, count: int | None = 1, *, model: str | None = None, api: Api | None = None
    ) -> None:
        """The answer ends there because it is too long, and says so."""
        self._arm("truncate", count, after_chunks=after_chunks, model=model, api=api)

    def filter_next(
        self, after_chunks: int = 0, count: int | None = 1, *, model: str | None = None, api: Api | None = None
    ) -> None:
        """The answer ends there because of its content, and says so."""
        self._arm("filter", count, after_chunks=after_chunks, model=model, api=api)

    def refuse_streams(self, count: int | None = None, *, model: str | None = None, api: Api | None = None) -> None:
        """A 400 for whoever wants a stream; who does without is served."""
        self._arm("unstreamed", count, model=model, api=api)

    def ignore_streams(self, count: int | None = None, *, model: str | None = None, api: Api | None = None) -> None:
        """A whole answer for whoever wants a stream."""
        self._arm("whole", count, model=model, api=api)

    def comment_next(
        self,
        seconds: float,
        count: int | None = 1,
        *,
        after_chunks: int = 0,
        model: str | None = None,
        api: Api | None = None,
    ) -> asyncio.Event:
        """A comment every so many seconds and nothing else, until the returned gate is set; only in streams."""
        gate = asyncio.Event()
        self._arm("comment", count, gate=gate, seconds=seconds, after_chunks=after_chunks, model=model, api=api)
        return gate

    def release(self) -> None:
        """Ends every stall."""
        self.faults.release()

    def heal(self) -> None:
        """Nothing is armed any more, and nobody is stalled."""
        self.faults.clear()

    def _arm(self, action: Action, count: int | None, **more: Any) -> None:
        self.faults.arm(Fault(action=action, count=count, **more))
