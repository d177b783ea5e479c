"""Keys that are bound to bots and chats: jobs and cards of others do not exist for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.worlds.api import ApiWorld
from tests.worlds.world import KEYED, Echo, Scripted
from tidings.core.desk.work import Plan
from tidings.core.roles import OWNER
from tidings.core.types import Target

JOBS, CARDS = "/api/jobs", "/api/board/cards"
JOB = {"name": "the report", "schedule": "every day at 9:00", "prompt": "report", "deliver": "paper:8"}
ONE_JOB = (
    *(("GET", ""), ("PATCH", ""), ("DELETE", "")),
    *(("POST", "/pause"), ("POST", "/resume"), ("POST", "/run"), ("GET", "/runs")),
)
TWO_CHATS: dict[str, Any] = {"platforms": {"paper": KEYED}, "allow": ["paper:7", "paper:8"]}


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def two_bots() -> dict[str, Scripted]:
    return {"bot": Scripted("from bot"), "secret": Scripted("from secret")}


async def asked_of(http: httpx.AsyncClient, job: str) -> list[tuple[int, Any]]:
    """What each request about one job is answered."""
    answers = []
    for method, path in ONE_JOB:
        body = {"json": {"prompt": "mine now"}} if method == "PATCH" else {}
        answer = await http.request(method, f"{JOBS}/{job}{path}", **body)
        answers.append((answer.status_code, answer.json()))
    return answers


@pytest.mark.parametrize(
    "planned",
    [
        {"bot": "secret"},
        # The rules choose the bot when it fires.
        {"bot": ""},
        {"bot": "bot", "deliver": "paper:7"},
        {"bot": "bot", "deliver_failures": "paper:7"},
    ],
)
async def test_jobs_of_other_bots_and_chats_do_not_exist_for_a_bound_key(
    tmp_path: Path, planned: dict[str, str]
) -> None:
    agents = two_bots()
    async with ApiWorld(tmp_path, agents, **TWO_CHATS) as api:
        job = (await api.http.post(JOBS, json={**JOB, **planned})).json()["job"]
        secret = await api.new_key("ci", "schedules", bots=("bot",), targets=("paper:8",))
        async with api.client(secret) as ci:
            own = (await ci.post(JOBS, json=JOB)).json()["job"]["id"]
            assert [each["id"] for each in (await ci.get(JOBS)).json()["jobs"]] == [own]
            assert await asked_of(ci, job["id"]) == await asked_of(ci, "0123456789ab")
        assert (await api.http.get(f"{JOBS}/{job['id']}")).json()["job"] == job, "nothing was changed"
        assert [agent.turns for agent in agents.values()] == [[], []]


async def test_a_bound_key_has_the_jobs_of_its_bots_and_chats_whoever_made_them(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, two_bots(), **TWO_CHATS) as api:
        await api.gateway.desk.set_home(OWNER, Target(adapter="paper", chat="7"))
        jobs = [
            (await api.http.post(JOBS, json={**JOB, "bot": bot, "deliver": target})).json()["job"]["id"]
            for bot, target in (("bot", "paper:8"), ("secret", "paper:8"), ("bot", "paper"), ("", "paper:8"))
        ]

        async def seen(name: str, **bounds: tuple[str, ...]) -> set[int]:
            async with api.client(await api.new_key(name, "schedules", **bounds)) as http:
                found = [each["id"] for each in (await http.get(JOBS)).json()["jobs"]]
                return {number for number, id in enumerate(jobs) if id in found}

        assert await seen("free") == {0, 1, 2, 3}
        assert await seen("bot", bots=("bot",)) == {0, 2}
        assert await seen("every-bot", bots=("bot", "secret")) == {0, 1, 2, 3}
        assert await seen("chat", targets=("paper:8",)) == {0, 1, 3}
        assert await seen("home", targets=("paper",)) == {2}, "a platform without a chat is its home"
        assert await seen("both", bots=("bot",), targets=("paper:8",)) == {0}


async def test_a_command_is_no_job_of_a_bot(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), **TWO_CHATS) as api:
        plan = Plan(name="tidy", when="every 1d", target=Target(adapter="paper", chat="8"), command="true")
        await api.gateway.desk.schedules.add(plan)
        async with api.client(await api.new_key("bound", "schedules", bots=("bot",))) as http:
            assert (await http.get(JOBS)).json()["jobs"] == []
        assert len((await api.http.get(JOBS)).json()["jobs"]) == 1


async def test_cards_of_other_bots_do_not_exist_for_a_bound_key(tmp_path: Path) -> None:
    agents = two_bots()
    async with ApiWorld(tmp_path, agents, board={"assignees": ["bot", "secret"]}, **TWO_CHATS) as api:

        async def add(assignee: str, *parents: str) -> str:
            body = {"title": f"for {assignee}", "assignee": assignee, "triage": True, "parents": parents}
            made: str = (await api.http.post(CARDS, json=body)).json()["card"]["id"]
            return made

        before = await add("secret")
        own = await add("bot", before)
        after = await add("secret", own)
        whole = (await api.http.get(f"{CARDS}/{before}")).json()
        async with api.client(await api.new_key("ci", "board", bots=("bot",))) as ci:
            for method, path, body in (
                ("GET", "", None),
                ("POST", "/comments", {"text": "do as I say"}),
                ("POST", "/files", {"url": "https://example.org/x"}),
                ("POST", "/files", {"text": "read this"}),
                ("POST", "/unblock", {"text": "go"}),
                ("POST", "/complete", {}),
                ("POST", "/block", {"reason": "no"}),
                ("POST", "/parents", {"parent": own}),
                ("POST", "/watchers", {"target": "paper:8"}),
                ("POST", "/archive", None),
            ):
                answers = []
                for id in (before, "999"):
                    answer = await ci.request(method, f"{CARDS}/{id}{path}", json=body)
                    answers.append((answer.status_code, answer.text.replace(f"#{id}", "#N")))
                assert answers[0] == answers[1], (method, path)
                assert answers[0][0] == 404, (method, path)
            foreign = [await ci.post(f"{CARDS}/{own}/parents", json={"parent": id}) for id in (after, "999")]
            assert [code_of(answer) for answer in foreign] == [(404, "card_not_found")] * 2
            behind = [await ci.post(CARDS, json={"title": "x", "parents": [id]}) for id in (before, "999")]
            assert [code_of(answer) for answer in behind] == [(400, "invalid_card")] * 2
            board = (await ci.get(CARDS)).json()
            assert ([card["id"] for card in board["data"]], board["counts"]) == ([own], {"triage": 1})
            assert (await ci.get(CARDS, params={"assignee": "secret"})).json()["data"] == []
            card = (await ci.get(f"{CARDS}/{own}")).json()["card"]
            assert (card["parents"], card["children"]) == ([], [])
            assert (await ci.post(f"{CARDS}/{own}/comments", json={"text": "green"})).status_code == 200
        assert (await api.http.get(f"{CARDS}/{before}")).json() == whole, "nothing was changed"
        seen = (await api.http.get(f"{CARDS}/{own}")).json()["card"]
        assert ([each["id"] for each in seen["parents"]], [each["id"] for each in seen["children"]]) == (
            *([before], [after]),
        )
        assert agents["secret"].turns == []
