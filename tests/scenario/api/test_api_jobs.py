"""Jobs over HTTP: planned, changed, run and looked at, with what they said and what became of that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.api import ApiWorld
from tests.worlds.world import KEYED, Scripted, Takes
from tidings.core.desk.work import Plan
from tidings.core.roles import OWNER
from tidings.core.types import Target

JOB = {"name": "the report", "schedule": "every day at 9:00", "prompt": "report", "deliver": "paper:1"}
ADDRESS = "/api/jobs"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiWorld]:
    agent = Takes(Scripted("all is well"), Scripted(ValueError("no network")), Scripted())
    async with ApiWorld(tmp_path, agent, platforms={"paper": KEYED}, allow=["paper:1"], console=True) as world:
        yield world


async def make(api: ApiWorld, **changed: Any) -> dict[str, Any]:
    answer = await api.http.post(ADDRESS, json={**JOB, **changed})
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()["job"]
    return job


ENDED = (
    "SELECT 1 FROM firings WHERE schedule = ? AND (state IN ('waiting', 'running') OR EXISTS"
    " (SELECT 1 FROM deliveries d WHERE d.id = delivery AND d.state NOT IN ('delivered', 'dead')))"
)


async def latest(api: ApiWorld, job: dict[str, Any]) -> dict[str, Any]:
    """Its last run, once it and its delivery have ended."""
    await api.eventually(lambda: not api.rows(ENDED, job["id"]))
    found: dict[str, Any] = (await api.http.get(f"{ADDRESS}/{job['id']}/runs")).json()["runs"][0]
    return found


async def test_a_job_is_made_listed_changed_paused_and_deleted(api: ApiWorld) -> None:
    job = await make(api, timezone="Europe/Berlin", repeat=3)
    assert len(job["id"]) == 12
    assert (job["name"], job["deliver"], job["enabled"], job["state"]) == ("the report", "paper:1", True, "scheduled")
    assert (job["repeat"], job["completed"], job["last_status"]) == (3, 0, None)
    assert datetime.fromisoformat(job["next_run_at"]).tzinfo is not None
    at = f"{ADDRESS}/{job['id']}"
    assert (await api.http.get(at)).json() == {"job": job}
    changed = (await api.http.patch(at, json={"schedule": "every 2h", "prompt": "look", "repeat": None})).json()["job"]
    assert (changed["schedule"], changed["prompt"], changed["repeat"]) == ("every 2h", "look", None)
    assert changed["deliver"] == "paper:1"
    assert (await api.http.post(f"{at}/pause")).json()["job"]["state"] == "paused"
    assert (await api.http.get(ADDRESS)).json() == {"jobs": []}
    listed = (await api.http.get(f"{ADDRESS}?include_disabled=true")).json()["jobs"]
    assert [each["id"] for each in listed] == [job["id"]]
    assert (await api.http.patch(at, json={"enabled": True})).json()["job"]["enabled"] is True
    assert (await api.http.patch(at, json={"enabled": False})).json()["job"]["next_run_at"] is None
    assert (await api.http.post(f"{at}/resume")).json()["job"]["next_run_at"] is not None
    assert (await api.http.delete(at)).json() == {"ok": True}
    gone = await api.http.get(at)
    assert (gone.status_code, gone.json()) == (404, {"error": "there is no such job"})


async def test_a_run_is_told_with_its_output_and_both_outcomes(api: ApiWorld) -> None:
    """E10."""
    job = await make(api)
    begun = (await api.http.post(f"{ADDRESS}/{job['id']}/run")).json()
    assert begun["job"]["id"] == job["id"]
    ran = await latest(api, job)
    assert (ran["id"], ran["status"], ran["output"]) == (begun["run"]["id"], "ok", "all is well")
    assert (ran["outcome"], ran["delivery"]) == ("completed", "delivered")
    assert api.papers["paper"].posts == ["all is well"]
    await api.http.post(f"{ADDRESS}/{job['id']}/run")
    await api.eventually(lambda: len(api.papers["paper"].posts) == 2)
    failed = await latest(api, job)
    assert (failed["status"], failed["delivery"]) == ("error", "delivered")
    assert "no network" in failed["error"]
    after = (await api.http.get(f"{ADDRESS}/{job['id']}")).json()["job"]
    assert (after["last_status"], "no network" in after["last_error"]) == ("error", True)
    runs = (await api.http.get(f"{ADDRESS}/{job['id']}/runs?limit=1")).json()["runs"]
    assert [run["id"] for run in runs] == [failed["id"]]


async def test_a_delivery_that_failed_shows_though_the_run_went_well(api: ApiWorld) -> None:
    """A29."""
    job = await make(api)
    api.papers["paper"].block("1")
    await api.http.post(f"{ADDRESS}/{job['id']}/run")
    ran = await latest(api, job)
    assert (ran["status"], ran["outcome"], ran["output"]) == ("delivery_failed", "completed", "all is well")
    shown = (await api.http.get(f"{ADDRESS}/{job['id']}")).json()["job"]
    assert shown["last_status"] == "delivery_failed"
    assert shown["last_delivery_error"]
    # By hand it is tried again, and what shows is how things are.
    followed = "SELECT delivery FROM firings WHERE delivery_state = 'dead'"
    await api.gateway.desk.schedules.sweep()
    api.papers["paper"].block("1", False)
    await api.gateway.desk.upkeep.retry(api.rows(followed)[0]["delivery"])
    ran = await latest(api, job)
    assert (ran["status"], ran["delivery"], ran["delivery_error"]) == ("ok", "delivered", None)


async def test_what_nobody_says_goes_to_the_owner_s_console(api: ApiWorld) -> None:
    job = await make(api, deliver="local")
    assert job["deliver"] == "console"
    assert (await make(api))["deliver"] == "paper:1"
    unsaid = {name: value for name, value in JOB.items() if name != "deliver"}
    answer = await api.http.post(ADDRESS, json=unsaid)
    assert answer.json()["job"]["deliver"] == "console"


WRONG: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({"schedule": "someday"}, 400, "is not a time that I understand"),
    ({"schedule": "0 0 30 2 *"}, 400, "never happens"),
    ({"schedule": None}, 400, "schedule: "),
    ({"name": ""}, 400, "name: "),
    ({"name": "x" * 201}, 400, "name: "),
    ({"prompt": "x" * 5001}, 400, "prompt: "),
    ({"prompt": " "}, 400, "either a prompt or a command"),
    ({"prompt": None, "command": "rm -rf /"}, 400, "a command can only be planned at the command line"),
    ({"repeat": 0}, 400, "repeat"),
    ({"timezone": "Mars/Olympus"}, 400, "there is no time zone"),
    ({"bot": "nobody"}, 400, "there is no bot named 'nobody'"),
    ({"on_missed": "panic"}, 400, "on_missed: "),
    ({"deliver": "origin"}, 400, "name a target"),
    ({"deliver": "paper:1,console"}, 400, "one target for each job"),
    ({"deliver": "fax:1"}, 400, "no platform fax@main is configured"),
    ({"deliver": "api:1"}, 400, "has no async delivery"),
    ({"deliver": "paper"}, 400, "has no home yet"),
    ({"deliver": "paper:2"}, 403, "is neither admitted nor a known conversation"),
)


async def test_what_is_wrong_is_said_in_one_sentence_and_nothing_is_made(api: ApiWorld) -> None:
    await api.gateway.desk.people.admit(OWNER, "fax:1")
    await api.gateway.desk.people.admit(OWNER, "api:1")
    for changed, status, words in WRONG:
        answer = await api.http.post(ADDRESS, json={**JOB, **changed})
        assert answer.status_code == status, (changed, answer.text)
        assert list(answer.json()) == ["error"]
        assert words in answer.json()["error"], changed
    assert (await api.http.get(f"{ADDRESS}?include_disabled=1")).json() == {"jobs": []}
    for path in ("/nothing", "/0123456789AB", "/0123456789abc"):
        answer = await api.http.get(ADDRESS + path)
        assert (answer.status_code, "twelve digits" in answer.json()["error"]) == (400, True)
    assert (await api.http.post(f"{ADDRESS}/0123456789ab/run")).status_code == 404


async def test_which_of_several_homes_is_asked_in_the_words_of_the_request(api: ApiWorld) -> None:
    for target in (Target(adapter="paper", chat="1"), Target(adapter="console")):
        await api.gateway.desk.set_home(OWNER, target)
    answer = await api.http.post(ADDRESS, json={**JOB, "deliver": ""})
    assert answer.status_code == 400
    assert answer.json()["error"].endswith("say which with “deliver”")


async def test_skills_are_taken_and_said_to_be_ignored(api: ApiWorld) -> None:
    job = await make(api, skills=["weather"])
    changed = await api.http.patch(f"{ADDRESS}/{job['id']}", json={"skill": "weather", "name": "another"})
    assert (changed.status_code, changed.json()["job"]["name"]) == (200, "another")
    described = (await api.http.get("/openapi.json")).json()["components"]["schemas"]
    for name in ("JobRequest", "JobChange"):
        assert "ignored" in described[name]["properties"]["skills"]["description"]


async def test_a_command_is_shown_and_cannot_be_made_or_changed_here(api: ApiWorld) -> None:
    target = Target(adapter="paper", chat="1")
    known = await api.gateway.desk.schedules.add(Plan(name="disks", when="@daily", target=target, command="df -h"))
    at = f"{ADDRESS}/{known.id}"
    assert (await api.http.get(at)).json()["job"]["command"] == "df -h"
    answer = await api.http.patch(at, json={"prompt": "be nice"})
    assert (answer.status_code, "only the command line" in answer.json()["error"]) == (400, True)
    for method, place, body in (("POST", ADDRESS, JOB), ("POST", ADDRESS, {}), ("PATCH", at, {"name": "all"})):
        answer = await api.http.request(method, place, json={**body, "command": "rm -rf /"})
        assert (answer.status_code, list(answer.json())) == (400, ["error"])
        assert answer.json()["error"].startswith("a command can only be planned at the command line")
    assert (await api.http.get(ADDRESS)).json()["jobs"] == [(await api.http.get(at)).json()["job"]]
    assert (await make(api, command=None))["command"] is None


async def test_only_the_owner_s_keys_open_jobs(api: ApiWorld) -> None:
    async with api.client(await api.new_key("client")) as http:
        assert (await http.get(ADDRESS)).status_code == 403
        assert (await http.post(ADDRESS, json=JOB)).status_code == 403
