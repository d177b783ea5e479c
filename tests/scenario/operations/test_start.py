"""What can be seen of a gateway that is only just starting."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.worlds.process import gateway
from tidings.adapters.api.handlers import about
from tidings.adapters.shared.http_server import HttpServer


async def test_whoever_asks_for_our_health_while_we_start_is_answered() -> None:
    """E1."""

    async def well(request: object, names: object) -> web.StreamResponse:
        return web.json_response({"status": "ok"})

    async with HttpServer("127.0.0.1", 0, patience=0.0) as server, aiohttp.ClientSession() as client:
        async with server.meanwhile("/health", about.starting):

            async def look() -> tuple[int, str]:
                async with client.get(f"{server.address}/health") as answer:
                    return answer.status, str((await answer.json()).get("status", ""))

            assert await look() == (503, "starting")
            async with client.post(f"{server.address}/health") as answer:
                assert answer.status == 404
            # The real one comes while the other is still there.
            async with server.route("GET", "/health", well):
                assert await look() == (200, "ok")
        assert await look() == (404, "")


async def test_a_port_that_is_taken_is_the_api_s_to_tell() -> None:
    async with HttpServer("127.0.0.1", 0, patience=0.0) as first, first.meanwhile("/health", about.starting):
        port = int(first.address.rpartition(":")[2])
        async with HttpServer("127.0.0.1", port, patience=0.0) as second, second.meanwhile("/health", about.starting):
            with pytest.raises(LookupError, match="is not open"):
                assert second.address


async def test_each_step_of_a_start_is_logged_with_its_time(tmp_path: Path) -> None:
    """E1."""
    async with gateway(tmp_path, TIDINGS_BOT__AGENT="echo"):
        log = (tmp_path / "stderr.log").read_text()
    steps = re.findall(r"start: ([a-z ]+) took \d+ ms", log)
    assert steps == [
        "making the bots",
        "opening the store",
        "building the platforms",
        "looking over what the last process left open",
        "taking up what waits",
    ]
    assert re.search(r"the gateway serves in .*, \d+\.\d s after it was begun", log)
