"""What the API tells of what was said and of itself: pages, the same after a restart, to whom they belong; no words."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.worlds.api import ApiWorld
from tests.worlds.world import KEYED, Echo, Gate, Scripted, Takes
from tidings.core.agent import Finished, Usage

CANARY = "hunter2-canary"
ODD = "a/b?c=d&e%20f:g é😀 #1"


async def say(http: httpx.AsyncClient, text: str, conversation: str = "home", **more: Any) -> None:
    answer = await http.post("/v1/responses", json={"input": text, "conversation": conversation, **more})
    assert answer.status_code == 200, answer.text


async def page(http: httpx.AsyncClient, path: str, **query: object) -> dict[str, Any]:
    answer = await http.get(path, params={name: str(value) for name, value in query.items()})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert set(body) == {"object", "data", "next"}
    assert body["object"] == "list"
    return body


async def all_of(http: httpx.AsyncClient, path: str, limit: int) -> list[dict[str, Any]]:
    """Page by page, until there is no next one."""
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        got = await page(http, path, limit=limit, **({"after": after} if after else {}))
        assert 1 <= len(got["data"]) <= limit
        found += got["data"]
        if got["next"] is None:
            return found
        after = got["next"]


def messages(id: str) -> str:
    return f"/v1/conversations/{quote(id, safe='')}/messages"


# What was said.


async def test_conversations_and_messages_come_in_pages_and_each_once(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for number in range(7):
            await say(api.http, f"{number}", f"c{number}")
        await say(api.http, "once more", "c0")
        whole = (await page(api.http, "/v1/conversations"))["data"]
        # The newest first.
        assert [row["id"].rpartition(":")[2] for row in whole] == ["c0", "c6", "c5", "c4", "c3", "c2", "c1"]
        assert [row["messages"] for row in whole] == [2, 1, 1, 1, 1, 1, 1]
        said = (await page(api.http, messages(whole[0]["id"])))["data"]
        for limit in (1, 2, 3, 7, 100):
            assert await all_of(api.http, "/v1/conversations", limit) == whole
            assert await all_of(api.http, messages(whole[0]["id"]), limit) == said
    # In the order in which they were said.
    pairs = [("user", "0"), ("assistant", "you said: 0"), ("user", "once more"), ("assistant", "you said: once more")]
    assert [(row["role"], row["content"]) for row in said] == pairs
    assert all(row["run_id"].startswith("run_") and row["created_at"] > 0 for row in said)


async def test_everything_is_the_same_before_and_after_a_restart(tmp_path: Path) -> None:
    """C10."""
    async with ApiWorld(tmp_path, Takes(Scripted("fine"), Scripted("well, ", RuntimeError("no")), Echo())) as api:
        await say(api.http, "hi", ODD, user="Ada:1")
        assert (await api.http.post("/v1/responses", json={"input": "oh", "conversation": "c"})).status_code == 424
        await say(api.http, "again", "c")
        before = await _told(api)
        assert await _told(api) == before, "one moment is told alike whenever one asks"
        await api.restart()
        assert await _told(api) == before
        await api.crash()
        await api.start()
        assert await _told(api) == before
    listed, said = before
    assert [row["id"] for row in listed] == ["api:main:owner:c", f"api:main:owner:{_escaped(ODD)}:Ada%3A1"]
    told = [(row["role"], row["content"]) for row in said[0]]
    failed = [("user", "oh"), ("assistant", "well, "), ("notice", "no")]
    assert told == [*failed, ("user", "again"), ("assistant", "you said: again")]


async def _told(api: ApiWorld) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    listed = (await page(api.http, "/v1/conversations"))["data"]
    return listed, [(await page(api.http, messages(row["id"])))["data"] for row in listed]


def _escaped(name: str) -> str:
    return quote(name, safe="@/#+ -._~")


async def test_a_key_sees_its_own_and_an_admin_sees_all(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms={"paper": KEYED}) as api:
        api.papers["paper"].says("hi from paper")
        await api.papers["paper"].until(lambda paper: paper.posts)
        async with (
            api.client(await api.new_key("ada", "chat")) as ada,
            api.client(await api.new_key("bob", "chat")) as bob,
            api.client(await api.new_key("root", "admin")) as root,
        ):
            await say(ada, "I am Ada", "home")
            await say(bob, "I am Bob", "home")
            (of_ada,) = (await page(ada, "/v1/conversations"))["data"]
            (of_bob,) = (await page(bob, "/v1/conversations"))["data"]
            paper = {"id": "paper:main:1"}
            ids = {row["id"] for row in (await page(root, "/v1/conversations"))["data"]}
            assert ids == {of_ada["id"], of_bob["id"], paper["id"]}
            said = (await page(ada, messages(of_ada["id"])))["data"]
            assert [row["content"] for row in said] == ["I am Ada", "you said: I am Ada"]
            for foreign in (of_bob, paper, {"id": of_ada["id"].replace("home", "nowhere")}, {"id": "x"}):
                refused = await ada.get(messages(foreign["id"]))
                assert (refused.status_code, refused.json()["error"]["code"]) == (404, "conversation_not_found")
            for row in (of_ada, of_bob, paper):
                assert (await root.get(messages(row["id"]))).status_code == 200


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "limit=-1", "after=x", "after=-1", "limit=1e3"])
async def test_a_page_that_makes_no_sense_is_refused(tmp_path: Path, query: str) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        refused = await api.http.get(f"/v1/conversations?{query}")
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


# What it says of itself.


async def test_health_is_open_to_everybody_and_says_only_ok(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api, api.client() as anybody:
        for path in ("/health", "/v1/health"):
            answer = await anybody.get(path)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        for path in ("/health/detailed", "/metrics", "/v1/models", "/v1/capabilities"):
            assert (await anybody.get(path)).status_code == 401


async def test_health_in_detail_tells_store_parts_queues_and_last_errors(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Echo({CANARY: gate}), platforms={"paper": KEYED}) as api:
        well = (await api.http.get("/health/detailed")).json()
        assert (well["status"], well["store"], well["running"], well["queued"]) == ("ok", "ok", 0, 0)
        assert {part["name"]: part["state"] for part in well["parts"]}["api@main"] == "up"
        for _ in range(2):
            await api.http.post("/v1/runs", json={"input": CANARY, "session_id": "c"})
        await gate.reached()
        api.papers["paper"].revoke("another token")
        await api.eventually(lambda: api.gateway._parts.essentials.alarms.all())
        answer = await api.http.get("/health/detailed")
        gate.open()
        await api.settled()
    ill = answer.json()
    assert (answer.status_code, ill["status"], ill["running"], ill["queued"]) == (200, "degraded", 1, 1)
    (paper,) = (part for part in ill["parts"] if part["name"] == "paper@main")
    assert paper["state"] in ("degraded", "misconfigured")
    assert paper["last_error"]
    assert CANARY not in answer.text


async def test_metrics_count_and_measure_and_repeat_no_word_of_anybody(tmp_path: Path) -> None:
    gate = Gate()
    agent = Takes(
        Scripted(CANARY, Finished(usage=Usage(input_tokens=7, output_tokens=5))),
        Scripted(RuntimeError(CANARY)),
        Scripted(gate, CANARY),
    )
    async with ApiWorld(tmp_path, agent, platforms={"paper": KEYED}) as api:
        api.papers["paper"].open_chat("7")
        for _ in range(2):
            body = {"input": CANARY, "conversation": CANARY, "user": CANARY, "instructions": CANARY}
            await api.http.post("/v1/responses", json=body)
        await api.http.post("/v1/notify", json={"target": "paper:7", "text": CANARY})
        await api.papers["paper"].until(lambda paper: paper.posts)
        run = (await api.http.post("/v1/runs", json={"input": CANARY})).json()["run_id"]
        await gate.reached()
        await api.eventually(lambda: api.gateway.desk.meters.outbound)
        answer = await api.http.get("/metrics")
        gate.open()
        await api.watch(run)
    assert answer.status_code == 200
    assert CANARY not in answer.text
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples["tidings_inbound_total", "api"] == 3
    assert samples["tidings_outbound_total", "delivered", "paper"] == 1
    assert samples["tidings_runs_total", "completed"] == 1
    assert samples["tidings_runs_total", "failed"] == 1
    assert samples["tidings_tokens_total", "input"] == 7
    assert samples["tidings_tokens_total", "output"] == 5
    assert samples["tidings_run_seconds_count",] == samples["tidings_run_seconds_bucket", "+Inf"] == 2
    assert samples["tidings_run_seconds_sum",] >= 0
    assert samples["tidings_queue_depth", "running"] == 1
    assert samples["tidings_queue_depth", "queued"] == 0
    assert samples["tidings_part_up", "api@main", "up"] == 1


async def test_capabilities_name_what_is_there(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, {"house": Echo(), "attic": Echo()}) as api:
        told = (await api.http.get("/v1/capabilities")).json()
    assert told["model"] == "house"
    assert told["auth"] == {"type": "bearer", "required": True}
    assert told["run_idempotency"]["durable"] is True
    assert told["features"]["run_events_sse"] is True
    assert told["features"]["approval_events"] is True
    assert told["features"]["run_approval_response"] is True
    paths = {endpoint["path"] for endpoint in told["endpoints"].values()}
    assert {"/v1/chat/completions", "/v1/responses", "/v1/runs", "/v1/notify", "/v1/conversations"} <= paths
