"""A client that wants everything gets an honest 429, and neither chats nor other clients wait for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.worlds.api import ApiWorld
from tests.worlds.world import KEYED, Echo, Gate
from tidings.adapters.api.slots import LEFT_TO_OTHERS

PLACES = LEFT_TO_OTHERS
MOST_OF_ONE = PLACES - 1


class Stubborn(Echo):
    """Whoever says so waits at the gate, all at the same one."""

    def __init__(self) -> None:
        self.gate = Gate()
        super().__init__({"wait": self.gate})


def world(home: Path, agent: Stubborn, **settings: Any) -> ApiWorld:
    return ApiWorld(home, agent, platforms={"paper": KEYED}, settings={"requests": PLACES, **settings})


async def begin(http: httpx.AsyncClient, text: str = "wait") -> httpx.Response:
    return await http.post("/v1/runs", json={"input": text})


async def chat(http: httpx.AsyncClient, text: str) -> httpx.Response:
    return await http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": text}]})


def is_honest(answer: httpx.Response) -> bool:
    error = answer.json()["error"]
    return (answer.status_code, error["code"], answer.headers["retry-after"]) == (429, "rate_limit_exceeded", "1")


async def test_who_has_reached_the_limit_is_told_so_and_nobody_else_is_delayed(tmp_path: Path) -> None:
    agent = Stubborn()
    async with world(tmp_path, agent) as api, api.client(await api.new_key("noisy")) as noisy:
        runs = [(await begin(noisy)).json()["run_id"] for _ in range(MOST_OF_ONE)]
        await agent.gate.reached()
        for refused in (
            await begin(noisy),
            await chat(noisy, "wait"),
            await noisy.post("/v1/responses", json={"input": "wait"}),
        ):
            assert is_honest(refused)
        # It may still look and watch; it just may not begin more.
        assert (await noisy.get(f"/v1/runs/{runs[0]}")).json()["status"] == "running"
        async with api.client() as anybody:
            assert (await anybody.get("/health")).json() == {"status": "ok"}
        api.papers["paper"].says("hello from a chat")
        await api.papers["paper"].until(lambda paper: paper.posts == ["you said: hello from a chat"])
        answer = await chat(api.http, "hello from another client")
        assert answer.json()["choices"][0]["message"]["content"] == "you said: hello from another client"
        # As soon as one has ended there is a place again.
        agent.gate.open()
        for run in runs:
            await api.ended(run)
        assert (await chat(noisy, "again")).status_code == 200


async def test_all_together_never_have_more_than_all_places(tmp_path: Path) -> None:
    agent = Stubborn()
    async with world(tmp_path, agent) as api, api.client(await api.new_key("noisy")) as noisy:
        for _ in range(MOST_OF_ONE):
            assert (await begin(noisy)).status_code == 202
        assert (await begin(api.http)).status_code == 202
        assert is_honest(await begin(api.http))
        agent.gate.open()
        await api.settled()


async def test_who_asks_for_many_at_the_same_moment_gets_no_more(tmp_path: Path) -> None:
    """A place is taken before anything is stored, not after."""
    agent = Stubborn()
    async with world(tmp_path, agent) as api:
        answers = await asyncio.gather(*(begin(api.http) for _ in range(40)))
        statuses = [answer.status_code for answer in answers]
        assert (statuses.count(202), statuses.count(429)) == (MOST_OF_ONE, 40 - MOST_OF_ONE)
        assert len(api.runs()) == MOST_OF_ONE
        agent.gate.open()
        await api.settled()


async def test_a_reader_who_leaves_gives_no_place_back(tmp_path: Path) -> None:
    """The run goes on, so it still counts."""
    agent = Stubborn()
    async with world(tmp_path, agent) as api:
        for _ in range(MOST_OF_ONE):
            run = (await begin(api.http)).json()["run_id"]
            async with api.http.stream("GET", f"/v1/runs/{run}/events") as events:
                assert events.status_code == 200
        await api.eventually(lambda: not api.adapter._service._handlers)
        assert is_honest(await begin(api.http))
        agent.gate.open()
        await api.settled()


@pytest.mark.parametrize("stop_when_gone", [True, False])
async def test_who_goes_away_gives_its_place_back_when_the_run_has_ended(tmp_path: Path, stop_when_gone: bool) -> None:
    agent = Stubborn()
    async with world(tmp_path, agent, stop_when_gone=stop_when_gone) as api:
        waiting = [asyncio.ensure_future(chat(api.http, "wait")) for _ in range(MOST_OF_ONE)]
        await api.eventually(lambda: len(agent.heard) == MOST_OF_ONE)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if not stop_when_gone:
            assert is_honest(await chat(api.http, "hi"))
            agent.gate.open()
        await api.settled()
        await api.eventually(lambda: not api.adapter._service._slots._taken)
        assert (await chat(api.http, "hi")).status_code == 200


async def test_what_is_refused_takes_no_place(tmp_path: Path) -> None:
    async with world(tmp_path, Stubborn()) as api:
        again = {"Idempotency-Key": "once"}
        for number in range(3 * PLACES):
            await api.http.post("/v1/runs", json={"input": f"{number}"}, headers=again)
            await begin(api.http, "x" * 300_000)
        await api.settled()
        await api.eventually(lambda: not api.adapter._service._slots._taken)
