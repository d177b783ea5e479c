"""Usage and allowances over HTTP: who sees what, and how a request beyond an allowance is answered."""

from __future__ import annotations

from pathlib import Path

from tests.scenario.api.test_api_tenants import code_of, tenants
from tests.scenario.spine.test_allowances import Costly, members
from tests.worlds.api import ApiWorld

HI = {"model": "bot", "messages": [{"role": "user", "content": "hi"}]}


async def test_a_request_beyond_the_allowance_is_answered_429_with_the_time_to_come_back(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Costly(), allowances=members(runs=1)) as api, tenants(api, "chat") as (ann, bob):
        assert (await ann.post("/v1/chat/completions", json=HI)).status_code == 200
        refused = await ann.post("/v1/chat/completions", json=HI)
        assert code_of(refused) == (429, "insufficient_quota")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert "You have used today's allowance of 1 answer." in refused.json()["error"]["message"]
        assert 0 < int(refused.headers["Retry-After"]) <= 86_400
        assert (await bob.post("/v1/chat/completions", json=HI)).status_code == 200, "each has an allowance"


async def test_a_refused_request_may_be_repeated_with_its_own_key(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Costly(), allowances=members(runs=1)) as api, tenants(api, "chat") as (ann, _):
        await ann.post("/v1/chat/completions", json=HI)
        again = {"Idempotency-Key": "once"}
        for _ in range(2):
            assert (await ann.post("/v1/chat/completions", json=HI, headers=again)).status_code == 429
        assert api.rows("SELECT 1 FROM inbox WHERE key LIKE '%once'") == []


async def test_a_member_sees_their_own_usage_and_the_owner_everybodys(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Costly(cost=0.5)) as api, tenants(api, "chat", "usage") as (ann, bob):
        for http in (ann, ann, bob):
            assert (await http.post("/v1/chat/completions", json=HI)).status_code == 200
        for http, runs in ((ann, 2), (bob, 1)):
            own = (await http.get("/v1/usage")).json()
            assert [(each["object"], each["runs"], each["cost"]) for each in own["data"]] == [("usage", runs, runs / 2)]
            assert own["total"]["input_tokens"] == 90 * runs
        every = (await api.http.get("/v1/usage")).json()
        assert [(each["label"], each["runs"]) for each in every["data"]] == [("Ann", 2), ("Bob", 1)]
        assert every["total"]["runs"] == 3
        for by, names in (("bot", ["bot"]), ("chat", None)):
            assert code_of(await ann.get("/v1/usage", params={"by": by})) == (403, "missing_role")
            found = (await api.http.get("/v1/usage", params={"by": by})).json()["data"]
            assert names is None or [each["name"] for each in found] == names
        assert (await api.http.get("/v1/usage", params={"since": "9999-01-01"})).json()["data"] == []
        assert (await api.http.get("/v1/usage", params={"since": "yesterday"})).status_code == 400


async def test_usage_needs_its_scope(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Costly()) as api, tenants(api, "chat") as (ann, _):
        assert (await ann.get("/v1/usage")).status_code == 403


async def test_users_whom_a_members_key_makes_up_share_the_members_allowance(tmp_path: Path) -> None:
    async with (
        ApiWorld(tmp_path, Costly(), allowances=members(runs=2)) as api,
        tenants(api, "chat", "usage") as (ann, _),
    ):
        asked = [await ann.post("/v1/chat/completions", json={**HI, "user": f"user{each}"}) for each in range(4)]
        assert [each.status_code for each in asked] == [200, 200, 429, 429]
        assert (await ann.get("/v1/usage")).json()["total"]["runs"] == 2
        for each in range(3):
            said = await api.http.post("/v1/chat/completions", json={**HI, "user": f"user{each}"})
            assert said.status_code == 200, "the owner's client knows its users"


async def test_requests_leave_no_figures_of_conversations_that_are_never_continued(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Costly()) as api:
        for _ in range(3):
            assert (await api.http.post("/v1/chat/completions", json=HI)).status_code == 200
        assert api.rows("SELECT 1 FROM spending WHERE scope = 'conversation'") == []
        assert api.rows("SELECT runs FROM spending WHERE scope = 'gateway'")[0]["runs"] == 3
