"""Speaks starter's wire, JSON lines over TCP, and turns every refusal into a verdict in one place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from tidings.adapters.starter.settings import StarterSettings
from tidings.core.errors import Doubtful, Misconfigured, RateLimited, Rejected, SendError, Unfit, Unreachable

# Starter answers within milliseconds; a call without an answer by then is in doubt.
ANSWER_SECONDS = 10.0


def verdict(answer: dict[str, Any]) -> SendError:
    """The one function that knows starter's error codes."""
    match answer.get("error"):
        case "token":
            return Misconfigured("starter refuses the token; check [starter] token")
        case "pause":
            return RateLimited(float(answer["seconds"]))
        case "long":
            return Unfit("the text is longer than starter takes")
        case code:
            return Rejected(f"starter refuses the message: {code}")


class Wire:
    """One connection: JSON objects both ways."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> dict[str, Any]:
        """Raises ConnectionError when the server has gone."""
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("starter closed the connection")
        message: dict[str, Any] = json.loads(line)
        return message

    async def write(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()


class Client:
    def __init__(self, settings: StarterSettings) -> None:
        self._settings = settings

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Wire]:
        """A connection that starter has accepted. Raises Unreachable or Misconfigured; no message has left by then."""
        host, _, port = self._settings.address.rpartition(":")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(host, int(port))
        except OSError as error:
            raise Unreachable(f"starter cannot be reached at {self._settings.address}: {error}") from error
        try:
            wire = Wire(reader, writer)
            await self._sign_in(wire)
            yield wire
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def call(self, message: dict[str, Any]) -> dict[str, Any]:
        """One attempt. Raises a SendError: Doubtful once the message may have left and no answer came back."""
        async with self.connect() as wire:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await wire.write(message)
                    answer = await wire.read()
            except OSError as error:
                raise Doubtful(f"starter did not answer: {error}") from error
        if "error" in answer:
            raise verdict(answer)
        return answer

    async def _sign_in(self, wire: Wire) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await wire.write({"token": self._settings.token.get_secret_value()})
                answer = await wire.read()
        except OSError as error:
            raise Unreachable(f"starter did not let us sign in: {error}") from error
        if "error" in answer:
            raise verdict(answer)
