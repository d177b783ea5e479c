"""S11: slow clients, in whatever state they linger, hold their own connection and nothing of anybody else's."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.security.test_s7_revoked import WORDS, is_stuck
from tests.security.wire import JSON, bearer, connected, request
from tests.worlds.api import ApiWorld
from tests.worlds.world import Echo, Gate, Scripted
from tidings.adapters.api import sse
from tidings.adapters.api.settings import HttpSettings
from tidings.adapters.shared.http_server import Limits

SLOW = 500
# Both ends of each connection are in this process.
DESCRIPTORS = 2 * SLOW + 200


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= DESCRIPTORS
    if not enough:
        pytest.skip(f"only {hard} descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, DESCRIPTORS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_s11_the_limits_that_a_gateway_runs_with() -> None:
    """That each is kept is shown in test_http_listener.py, with shorter ones."""
    limits = Limits()
    assert limits.header_seconds <= 10
    assert limits.body_seconds <= 30
    assert limits.answer_seconds <= 30
    assert sse.ALIVE_SECONDS <= 15
    assert HttpSettings().connections == limits.connections == 512


async def test_s11_five_hundred_slow_clients_do_not_disturb_a_good_one(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Echo({"wait": gate})) as api, AsyncExitStack() as crowd:
        run = (await api.http.post("/v1/runs", json={"input": "wait"})).json()["run_id"]
        await gate.reached()
        key = bearer(api.key)
        states = (
            b"",
            b"POST /v1/cha",
            b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
            request("POST", "/v1/runs", key, JSON, "Content-Length: 1000") + b'{"input": "',
            request("POST", "/v1/runs", key, JSON, "Transfer-Encoding: chunked") + b'5\r\n{"inp',
            request("GET", f"/v1/runs/{run}/events", key),
            request("GET", "/v1/models", key) + b"GET /v1/mod",
        )
        for number in range(SLOW):
            client = await crowd.enter_async_context(connected(api.url))
            client.send(states[number % len(states)])
        async with api.client(api.key) as good:
            for _ in range(10):
                assert (await good.get("/health")).status_code == 200
                assert (await good.get("/v1/models")).status_code == 200
                body = {"messages": [{"role": "user", "content": "hi"}]}
                answer = await good.post("/v1/chat/completions", json=body)
                assert answer.json()["choices"][0]["message"]["content"] == "you said: hi"
        gate.open()
        assert (await api.ended(run))["status"] == "completed"


async def test_s11_a_reader_that_takes_nothing_delays_neither_the_run_nor_other_readers(tmp_path: Path) -> None:
    limits = {"output_characters": 10**8}
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted(gate, *WORDS), limits=limits) as api, connected(api.url) as slow:
        run = (await api.http.post("/v1/runs", json={"input": "hi"})).json()["run_id"]
        slow.send(request("GET", f"/v1/runs/{run}/events", bearer(api.key)))
        await slow.first(1)
        gate.open()
        frames = await api.watch(run)
        assert "".join(frame.json.get("delta", "") for frame in frames) == "".join(WORDS)
        assert is_stuck(api), "the slow one still has most of it before it"


async def test_s11_a_stream_begins_at_once_and_is_never_silent_for_long(tmp_path: Path) -> None:
    """Its headers come before the agent says a word."""
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted(gate, "hello")) as api, connected(api.url) as client:
        body = b'{"messages": [{"role": "user", "content": "hi"}], "stream": true}'
        client.send(request("POST", "/v1/chat/completions", bearer(api.key), JSON, body=body))
        answer = await client.answer()
        assert (answer.status, answer.headers["content-type"][:17]) == (200, "text/event-stream")
        await gate.reached()
        gate.open()
