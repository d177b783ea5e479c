"""What happens when a client asks a second time, leaves, or comes back after a restart: nothing is done twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import openai
import pytest

from tests.worlds.api import PATIENCE_SECONDS, ApiWorld
from tests.worlds.world import Echo, Gate, Scripted
from tidings.core.agent import Effect, ToolFinished, ToolStarted

PAID = Scripted(ToolStarted("1", "pay", "{}", Effect.EFFECT), ToolFinished("1", "paid"), RuntimeError("no answer"))


async def test_the_sdk_does_not_repeat_a_failed_chat_by_itself(tmp_path: Path) -> None:
    """Its default is to call again twice, and the tool would pay three times."""
    async with ApiWorld(tmp_path, PAID) as api:
        client = api.openai.with_options(max_retries=2)
        with pytest.raises(openai.APIStatusError, match="no answer"):
            await client.chat.completions.create(model="bot", messages=[{"role": "user", "content": "pay"}])
        assert len(api.runs()) == 1


async def test_the_sdk_does_not_repeat_a_failed_response_by_itself(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, PAID) as api:
        client = api.openai.with_options(max_retries=2)
        with pytest.raises(openai.APIStatusError, match="no answer"):
            await client.responses.create(model="bot", input="pay")
        assert len(api.runs()) == 1


async def test_who_joins_by_a_key_and_leaves_does_not_stop_the_run_of_the_one_who_began_it(tmp_path: Path) -> None:
    gate = Gate()
    asked = {"messages": [{"role": "user", "content": "hi"}]}
    headers = {"Idempotency-Key": "once"}
    async with ApiWorld(tmp_path, Scripted(gate, "done")) as api:
        first = asyncio.create_task(api.http.post("/v1/chat/completions", json=asked, headers=headers))
        await gate.reached()
        second = asyncio.create_task(api.http.post("/v1/chat/completions", json=asked, headers=headers))
        await api.eventually(lambda: api.gateway.desk.meters.inbound["api"] == 2)
        second.cancel()
        await asyncio.wait([second])
        gate.open()
        answer = (await first).json()
        assert answer["choices"][0]["message"]["content"] == "done"


async def test_who_was_cut_off_comes_back_with_the_key_and_gets_the_answer(tmp_path: Path) -> None:
    gate = Gate()
    asked = {"messages": [{"role": "user", "content": "hi"}]}
    headers = {"Idempotency-Key": "once"}
    async with ApiWorld(tmp_path, Scripted(gate, "done")) as api:
        first = asyncio.create_task(api.http.post("/v1/chat/completions", json=asked, headers=headers))
        await gate.reached()
        first.cancel()
        await asyncio.wait([first])
        gate.open()
        answer = await api.http.post("/v1/chat/completions", json=asked, headers=headers)
        assert answer.json()["choices"][0]["message"]["content"] == "done"
        assert len(api.runs()) == 1


async def test_what_waited_behind_another_for_a_client_does_not_run_for_nobody_after_a_crash(tmp_path: Path) -> None:
    gate = Gate()
    asked = {"messages": [{"role": "user", "content": "hi"}]}
    headers = {"X-Tidings-Conversation": "one"}
    async with ApiWorld(tmp_path, Scripted(gate, "done")) as api:
        tasks = [asyncio.create_task(api.http.post("/v1/chat/completions", json=asked, headers=headers))]
        await gate.reached()
        tasks.append(asyncio.create_task(api.http.post("/v1/chat/completions", json=asked, headers=headers)))
        await api.eventually(lambda: len(api.runs()) == 2)
        await api.crash()
        await asyncio.gather(*tasks, return_exceptions=True)
        await api.start()
        async with asyncio.timeout(PATIENCE_SECONDS):
            ends = [await api.ended(row["run"]) for row in api.runs()]
        assert [end["error"] for end in ends] == ["interrupted by a restart"] * 2


@pytest.mark.parametrize("name", ["plain", "Gespräch", "a:b", "a b"])
async def test_a_conversation_can_be_asked_for_by_the_id_as_it_was_listed(tmp_path: Path, name: str) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        begun = await api.http.post("/v1/runs", json={"input": "hi", "conversation": name})
        await api.ended(begun.json()["run_id"])
        (listed,) = (await api.http.get("/v1/conversations")).json()["data"]
        said = await api.http.get(f"/v1/conversations/{listed['id']}/messages")
        assert [line["content"] for line in said.json()["data"]][:1] == ["hi"]
