"""S7: a revoked key loses at once what it has open, and opens nothing any more; other keys notice nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.security.wire import JSON, bearer, connected, request
from tests.worlds.api import ApiWorld
from tests.worlds.world import Gate, Scripted
from tidings.adapters.api import sse
from tidings.adapters.local import socket
from tidings.core.roles import OWNER, Role
from tidings.core.settings import Access

# As long as S7 allows, and well below the next sign of life: no event and no timer may be needed.
WITHIN_SECONDS = 5.0
# More than the buffers on the way hold.
WORDS = ["word " * 40_000] * 40


async def revoke(api: ApiWorld, name: str) -> None:
    """As the command line does."""
    await socket.call(api.home, {"verb": "key", "do": "revoke", "name": name})


async def chat(http: httpx.AsyncClient, stream: bool) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": stream}
    return await http.send(http.build_request("POST", "/v1/chat/completions", json=body), stream=True)


async def response(http: httpx.AsyncClient, stream: bool) -> httpx.Response:
    body = {"input": "hi", "stream": stream}
    return await http.send(http.build_request("POST", "/v1/responses", json=body), stream=True)


async def run(http: httpx.AsyncClient, stream: bool) -> httpx.Response:
    begun = (await http.post("/v1/runs", json={"input": "hi"})).json()["run_id"]
    return await http.send(http.build_request("GET", f"/v1/runs/{begun}/events"), stream=True)


async def rest(answer: httpx.Response) -> str:
    """What still comes until the connection ends, and how it ends."""
    try:
        return (await answer.aread()).decode()
    except httpx.RemoteProtocolError:
        return "cut off"


def test_s7_a_sign_of_life_comes_too_late_to_notice() -> None:
    assert sse.ALIVE_SECONDS > WITHIN_SECONDS


@pytest.mark.parametrize("opened", [chat, response, run])
async def test_s7_an_idle_stream_ends_although_nothing_happens_in_it(
    tmp_path: Path, opened: Callable[[httpx.AsyncClient, bool], Awaitable[httpx.Response]]
) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted("begun", gate, "ended"), console=True) as api:
        mine, other = await api.new_key("mine", "chat", "runs"), await api.new_key("other", "chat", "runs")
        async with api.client(mine) as http, api.client(other) as neighbour:
            stream, beside = await opened(http, True), await opened(neighbour, True)
            heard = stream.aiter_text()
            assert "begun" in await until(heard, "begun")
            await gate.reached()
            await revoke(api, "mine")
            async with asyncio.timeout(WITHIN_SECONDS):
                with pytest.raises(httpx.RemoteProtocolError):
                    await until(heard, "ended")
            assert (await http.get("/v1/models")).status_code == 401
            # What another key has open goes on to its end.
            gate.open()
            assert "ended" in await rest(beside)
            assert (await neighbour.get("/v1/models")).status_code == 200


async def until(heard: Any, words: str) -> str:
    said = ""
    while words not in said:
        said += await anext(heard)
    return said


async def test_s7_who_waits_for_an_answer_is_told_that_the_key_is_gone(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted(gate, "the answer"), console=True) as api:
        async with api.client(await api.new_key("mine", "chat")) as http:
            waiting = asyncio.ensure_future(chat(http, False))
            await gate.reached()
            await revoke(api, "mine")
            async with asyncio.timeout(WITHIN_SECONDS):
                answer = await waiting
            assert (answer.status_code, "the answer" in await rest(answer)) == (401, False)
        # As when a client goes away: nobody pays for an answer that nobody may have.
        run = api.runs()[0]["run"]
        assert (await api.ended(run))["status"] == "cancelled"


async def test_s7_a_reader_that_takes_nothing_is_cut_off_too(tmp_path: Path) -> None:
    """It is in the middle of a write, and may stay there as long as it likes."""
    gate = Gate()
    limits = {"output_characters": 10**8}
    async with ApiWorld(tmp_path, Scripted(*WORDS, gate), console=True, limits=limits) as api:
        secret = await api.new_key("mine", "runs")
        async with api.client(secret) as http, connected(api.url) as reader:
            run = (await http.post("/v1/runs", json={"input": "hi"})).json()["run_id"]
            reader.send(request("GET", f"/v1/runs/{run}/events", bearer(secret)))
            await gate.reached()
            await api.eventually(lambda: is_stuck(api))
            await revoke(api, "mine")
            async with asyncio.timeout(WITHIN_SECONDS):
                await api.eventually(lambda: not api.adapter._service._handlers)


def is_stuck(api: ApiWorld) -> bool:
    """Somebody is being written to and does not take it."""
    listener = api._listening._listener
    assert listener is not None
    lines = [connection._line for connection in listener.held]
    return any(line is not None and line.get_write_buffer_size() > 0 for line in lines)


async def test_s7_a_run_ends_with_the_key_that_began_it(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted(gate, "done"), console=True) as api:
        async with api.client(await api.new_key("mine", "runs")) as http:
            run = (await http.post("/v1/runs", json={"input": "hi"})).json()["run_id"]
            await gate.reached()
            await revoke(api, "mine")
            assert (await http.get(f"/v1/runs/{run}")).status_code == 401
        assert (await api.ended(run))["status"] == "cancelled"


@pytest.mark.parametrize("deed", ["remove", "block"])
@pytest.mark.parametrize("opened", [chat, response, run])
async def test_s7_streams_end_with_the_person_whose_key_it_is(
    tmp_path: Path, deed: str, opened: Callable[[httpx.AsyncClient, bool], Awaitable[httpx.Response]]
) -> None:
    """S7, with a person instead of a key."""
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted("begun", gate, "ended")) as api:
        people = api.gateway.desk.people
        for who in ("paper:8", "paper:9"):
            await people.admit(OWNER, who)
        mine = await api.new_key("mine", "chat", "runs", person="paper:8")
        other = await api.new_key("other", "chat", "runs", person="paper:9")
        async with api.client(mine) as http, api.client(other) as neighbour:
            stream, beside = await opened(http, True), await opened(neighbour, True)
            heard = stream.aiter_text()
            assert "begun" in await until(heard, "begun")
            await gate.reached()
            await getattr(people, deed)(OWNER, "paper:8")
            async with asyncio.timeout(WITHIN_SECONDS):
                with pytest.raises(httpx.RemoteProtocolError):
                    await until(heard, "never said")
            assert (await http.get("/v1/models")).status_code == 401
            gate.open()
            assert "ended" in await rest(beside)


async def test_s7_a_person_who_only_the_settings_admitted_takes_the_key_along(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Scripted("hello"), allow=("paper:8",)) as api:
        secret = await api.new_key("mine", "chat", person="paper:8")
        async with api.client(secret) as http:
            assert (await http.get("/v1/models")).status_code == 200
            api.gateway._parts.people.renew(Access())
            gone = await http.get("/v1/models")
            assert (gone.status_code, gone.json()["error"]["code"]) == (401, "invalid_api_key")
            assert "has been removed" in gone.json()["error"]["message"]


async def test_s7_a_role_that_is_taken_away_closes_what_it_opened(tmp_path: Path) -> None:
    """A request that is still being read ends when its person may no longer make it."""
    async with ApiWorld(tmp_path, Scripted("hello")) as api:
        people = api.gateway.desk.people
        await people.admit(OWNER, "paper:8", Role.ADMIN)
        secret = await api.new_key("mine", "people", person="paper:8")
        async with connected(api.url) as client:
            client.send(request("POST", "/v1/people", bearer(secret), JSON, "Content-Length: 1000"))
            client.send(b'{"id": ')
            async with asyncio.timeout(WITHIN_SECONDS):
                await api.eventually(lambda: api.adapter._service._handlers)
                await people.set_role(OWNER, "paper:8", Role.MEMBER)
                answer = await client.answer()
        assert (answer.status, answer.code) == (403, "missing_role")


async def test_s7_a_request_whose_body_is_still_coming_is_not_served_any_more(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Scripted("hello"), console=True) as api:
        secret = await api.new_key("mine", "chat")
        async with connected(api.url) as client:
            client.send(request("POST", "/v1/chat/completions", bearer(secret), JSON, "Content-Length: 1000"))
            client.send(b'{"messages": [')
            async with asyncio.timeout(WITHIN_SECONDS):
                await api.eventually(lambda: api.adapter._service._handlers)
                await revoke(api, "mine")
                answer = await client.answer()
        assert (answer.status, answer.code) == (401, "invalid_api_key")
        assert api.runs() == []


async def test_s7_a_revoked_key_does_not_come_back_with_one_that_is_made_at_the_same_time(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Scripted("hello"), console=True) as api:
        secret = await api.new_key("mine", "chat")
        changes = [socket.call(tmp_path, {"verb": "key", "do": "add", "name": f"n{number}"}) for number in range(10)]
        listing = socket.call(tmp_path, {"verb": "key", "do": "list"})
        await asyncio.gather(*changes[:5], revoke(api, "mine"), listing, *changes[5:])
        listed = (await socket.call(tmp_path, {"verb": "key", "do": "list"}))["keys"]
        assert {key["name"] for key in listed} == {"owner", *(f"n{number}" for number in range(10))}
        async with api.client(secret) as http:
            assert (await http.get("/v1/models")).status_code == 401


async def test_s7_a_revoked_key_is_revoked_after_a_restart_too(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Scripted("hello"), console=True) as api:
        secret = await api.new_key("mine", "chat")
        await revoke(api, "mine")
        await api.crash()
        await api.start()
        async with api.client(secret) as http:
            assert (await http.get("/v1/models")).status_code == 401
