"""Tells whether a byte of one request may have left us: its verdict depends on that, and not on an error's name."""

from __future__ import annotations

from typing import Any

import aiohttp


class Phase:
    """Handed to a request as its `trace_request_ctx`."""

    __slots__ = ("has_left",)

    def __init__(self) -> None:
        self.has_left = False


def traced() -> aiohttp.TraceConfig:
    async def leaves(session: aiohttp.ClientSession, context: Any, parameters: Any) -> None:
        context.trace_request_ctx.has_left = True

    config = aiohttp.TraceConfig()
    # Called right before the first byte is written.
    config.on_request_headers_sent.append(leaves)
    return config
