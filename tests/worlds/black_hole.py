"""A platform behind a network that swallows everything: connections are taken, and nothing is ever said on them.

    await telegram.outage(True)
    async with black_hole(telegram.address) as came:
        ...

`came` grows with every connection.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def black_hole(address: str) -> AsyncIterator[list[float]]:
    """For an address that a simulator has just left; it may come back while this still listens there."""
    came: list[float] = []
    held: list[asyncio.StreamWriter] = []

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(time.monotonic())
        held.append(writer)

    host, _, port = address.rpartition("/")[2].rpartition(":")
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((host, int(port)))
    server = await asyncio.start_server(take, sock=bound)
    try:
        yield came
    finally:
        server.close()
        for writer in held:
            writer.transport.abort()
        await server.wait_closed()
