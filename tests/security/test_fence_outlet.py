"""The way out for fenced commands stays open to everybody, whatever one command and one server do with it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tidings.bots.app import outlet
from tidings.bots.app.outlet import OutletServer
from tidings.core.settings import Terminal

PATIENCE_SECONDS = 30.0


async def test_a_server_that_keeps_silent_holds_no_place_of_a_command_that_is_gone(tmp_path: Path) -> None:
    is_over = asyncio.Event()

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await is_over.wait()
        writer.close()

    async with await asyncio.start_server(keep_silent, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = Terminal(private_hosts=(address,))
        async with OutletServer(tmp_path, settings, last_seconds=0.01) as way, asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(outlet.MOST):
                assert await _status(way, address) in (200, 503)
            while await _status(way, address) != 200:
                # The others end by themselves.
                continue
        is_over.set()


async def _status(way: OutletServer, address: str) -> int:
    """Asks for a connection, and is gone as soon as there is an answer."""
    reader, writer = await asyncio.open_unix_connection(way.outlet.socket)
    writer.write(f"CONNECT {address} HTTP/1.1\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return int(line.split()[1])
