"""Messages for a run at work over HTTP: the run takes them into account, or they are runs of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.api.test_api_runs import begin
from tests.scenario.spine.test_busy import Listener
from tests.worlds.api import ApiWorld

UNKNOWN = "run_" + "0" * 32


async def told_of(api: ApiWorld, run: str) -> list[dict[str, Any]]:
    """All events of a run, up to its end."""
    return [frame.json for frame in await api.watch(run)]


@pytest.mark.parametrize("name", ["input", "message", "text"])
async def test_a_run_takes_in_what_its_client_adds(tmp_path: Path, name: str) -> None:
    agent = Listener()
    gate = agent.gate()
    async with ApiWorld(tmp_path, agent) as api:
        run = await begin(api, "a")
        await gate.reached()
        steered = await api.http.post(f"/v1/runs/{run}/steer", json={name: "b"})
        assert steered.status_code == 200
        told = steered.json()
        assert (told["object"], told["run_id"], told["accepted"]) == ("run.steer", run, True)
        assert (await api.http.get(f"/v1/runs/{run}")).json()["pending_steer"] == 1
        gate.open()
        frames = await told_of(api, run)
        assert [frame["event"] for frame in frames if frame["event"] == "run.steered"] == ["run.steered"]
        assert frames[-1]["output"] == "answer to a+b"
        # The message is part of that run now.
        assert (await api.http.get(f"/v1/runs/{told['message_id']}")).json()["run_id"] == run


async def test_what_comes_too_late_is_a_run_of_its_own_with_its_own_events(tmp_path: Path) -> None:
    agent = Listener(hears=False)
    gate = agent.gate()
    async with ApiWorld(tmp_path, agent) as api:
        run = await begin(api, "a")
        await gate.reached()
        said = (await api.http.post(f"/v1/runs/{run}/steer", json={"input": "b"})).json()["message_id"]
        gate.open()
        assert (await told_of(api, run))[-1]["output"] == "answer to a"
        assert (await told_of(api, said))[-1]["output"] == "answer to b"


async def test_a_repeated_request_is_one_message(tmp_path: Path) -> None:
    agent = Listener()
    gate = agent.gate()
    async with ApiWorld(tmp_path, agent) as api:
        run = await begin(api, "a")
        await gate.reached()
        path, once = f"/v1/runs/{run}/steer", {"Idempotency-Key": "one"}
        first = await api.http.post(path, json={"input": "b"}, headers=once)
        again = await api.http.post(path, json={"input": "b"}, headers=once)
        assert first.json() == again.json()
        assert (await api.http.post(path, json={"input": "c"}, headers=once)).status_code == 409
        gate.open()
        assert (await told_of(api, run))[-1]["output"] == "answer to a+b"


async def test_what_cannot_be_taken_is_refused_in_words(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Listener()) as api:
        run = await begin(api, "a")
        await told_of(api, run)
        ended = await api.http.post(f"/v1/runs/{run}/steer", json={"input": "b"})
        assert (ended.status_code, ended.json()["error"]["code"]) == (409, "run_not_accepting_steer")
        empty = await api.http.post(f"/v1/runs/{run}/steer", json={"input": " "})
        assert (empty.status_code, empty.json()["error"]["code"]) == (400, "invalid_steer_input")
        assert (await api.http.post(f"/v1/runs/{UNKNOWN}/steer", json={"input": "b"})).status_code == 404


async def test_requests_are_never_joined_whatever_the_mode(tmp_path: Path) -> None:
    agent = Listener()
    gate = agent.gate()
    limits = {"busy": "collect", "burst_seconds": 5.0}
    async with ApiWorld(tmp_path, agent, limits=limits) as api:
        first = await begin(api, "a", session_id="one")
        await gate.reached()
        second = await begin(api, "b", session_id="one")
        third = await begin(api, "c", session_id="one")
        gate.open()
        ends = [(await told_of(api, run))[-1]["output"] for run in (first, second, third)]
        assert ends == ["answer to a", "answer to b", "answer to c"]


async def test_what_is_said_to_a_run_that_is_not_stored_is_not_stored_either(tmp_path: Path) -> None:
    agent = Listener(hears=False)
    gate = agent.gate()
    async with ApiWorld(tmp_path, agent) as api:
        asked = asyncio.create_task(api.http.post("/v1/responses", json={"input": "a", "store": False}))
        await gate.reached()
        said = await api.http.post(f"/v1/runs/{agent.turns[0].run}/steer", json={"input": "b"})
        gate.open()
        await asked
        own = said.json()["message_id"]
        await told_of(api, own)
        assert [row["forget"] for row in api.rows("SELECT forget FROM inbox WHERE run = ?", own)] == [1]
