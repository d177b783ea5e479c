"""Several people and several keys on one gateway: each has what is theirs, and nothing of the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.worlds.api import ApiWorld
from tests.worlds.world import KEYED, Echo, Gate, Scripted
from tidings.core import context
from tidings.core.agent import Turn
from tidings.core.roles import OWNER, Permission, Role

ANN, BOB = {"X-OpenWebUI-User-Id": "ann"}, {"X-OpenWebUI-User-Id": "bob"}
JOBS, CARDS = "/api/jobs", "/api/board/cards"
JOB = {"name": "the report", "schedule": "every day at 9:00", "prompt": "report", "deliver": "paper:8"}


async def noting(turn: Turn) -> str:
    """Notes what it is told, and says what it knew before."""
    known = [note.text for note in await turn.desk.recall("", 10)]
    await turn.desk.remember(turn.message.text)
    return ", ".join(known) or "nothing"


def acting(seen: list[tuple[str, Role, bool]]) -> Any:
    def note(turn: Turn) -> str:
        session = context.current()
        seen.append((session.person.id, session.person.role, Permission.OPERATE in session.permissions))
        return "noted"

    return note


@asynccontextmanager
async def tenants(api: ApiWorld, *scopes: str) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """Two members, each with a key of their own."""
    for who, name in (("paper:8", "Ann"), ("paper:9", "Bob")):
        await api.gateway.desk.people.admit(OWNER, who, Role.MEMBER, name)
    ann, bob = [await api.new_key(f"of-{who[-1]}", *scopes, person=who) for who in ("paper:8", "paper:9")]
    async with api.client(ann) as first, api.client(bob) as second:
        yield first, second


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


# Several people behind one key, as Open WebUI has them.


async def response(http: httpx.AsyncClient, headers: dict[str, str], text: str = "hi", **more: Any) -> httpx.Response:
    return await http.post("/v1/responses", json={"input": text} | more, headers=headers)


async def test_two_persons_behind_one_key_have_nothing_in_common(tmp_path: Path) -> None:
    """C7, S9: nobody sees, lists, continues, stops or deletes what is another's."""
    gate = Gate()
    agent = Scripted(lambda turn: gate if turn.message.text == "wait" else None, "noted")
    async with ApiWorld(tmp_path, agent) as api, api.client(await api.new_key("webui", "chat", "runs")) as http:
        named = {**ANN, "X-OpenWebUI-Chat-Id": "plans"}
        first = (await response(http, named, "the treasure is under the oak")).json()["id"]
        run = (await http.post("/v1/runs", json={"input": "wait", "session_id": "plans"}, headers=ANN)).json()["run_id"]
        await gate.reached()
        place = (await http.get("/v1/conversations", headers=ANN)).json()["data"][0]["id"]
        paths = (
            ("GET", f"/v1/runs/{run}"),
            ("GET", f"/v1/runs/{run}/events"),
            ("POST", f"/v1/runs/{run}/stop"),
            ("POST", f"/v1/runs/{run}/steer"),
            ("GET", f"/v1/responses/{first}"),
            ("GET", f"/v1/responses/{first}/input_items"),
            ("POST", f"/v1/responses/{first}/cancel"),
            ("DELETE", f"/v1/responses/{first}"),
            ("GET", f"/v1/conversations/{place}/messages"),
        )
        for method, path in paths:
            answer = await http.request(method, path, headers=BOB)
            assert (answer.status_code, "oak" in answer.text) == (404, False), path
        assert (await http.get("/v1/conversations", headers=BOB)).json()["data"] == []
        turns = len(agent.turns)
        for more in (
            {"previous_response_id": first},
            {"input": [{"type": "item_reference", "id": f"msg_{first[5:]}_0"}]},
        ):
            assert (await response(http, BOB, **more)).status_code == 404, more
            # Whom the body names is somebody, too.
            assert (await http.post("/v1/responses", json={"input": "hi", "user": "bob", **more})).status_code == 404
        assert (
            await http.post("/v1/runs", json={"input": "hi", "user": "bob", "previous_response_id": first})
        ).status_code == 404
        assert len(agent.turns) == turns
        # The same name of a conversation is another conversation.
        await response(http, {**BOB, "X-OpenWebUI-Chat-Id": "plans"}, "what did I say?")
        assert agent.turns[-1].history == ()
        gate.open()
        for method, path in paths:
            # Her own run is found, and then a message without words is refused.
            expected = 400 if path.endswith("/steer") else 200
            assert (await http.request(method, path, headers=ANN)).status_code == expected, path


async def test_notes_are_one_persons_also_behind_one_key(tmp_path: Path) -> None:
    """C7: memory belongs to the person whom the client names, not to the key."""
    async with ApiWorld(tmp_path, Scripted(noting)) as api, api.client(await api.new_key("webui", "chat")) as http:

        async def say(text: str, headers: dict[str, str], **more: Any) -> str:
            whole = (await response(http, headers, text, **more)).json()
            said: str = whole["output"][0]["content"][0]["text"]
            return said

        assert await say("I am Ann", ANN) == "nothing"
        assert await say("I am Bob", BOB) == "nothing"
        assert await say("I am the key", {}) == "nothing"
        assert await say("again", {}, user="ann") == "I am Ann"
        assert await say("again", BOB, user="ann") == "I am Bob", "the header is the chat program's own word"


async def test_whom_a_client_names_is_a_member_at_most(tmp_path: Path) -> None:
    """D2: a user header never gives the holder's role, unless the owner has stored it so."""
    seen: list[tuple[str, Role, bool]] = []
    async with ApiWorld(tmp_path, Scripted(acting(seen))) as api:
        people = api.gateway.desk.people
        for headers in ({}, ANN):
            await response(api.http, headers)
        await people.admit(OWNER, "paper:8", Role.GUEST)
        secret = await api.new_key("guests", "admin", person="paper:8")
        async with api.client(secret) as http:
            await response(http, ANN)
        assert seen[0] == ("owner", Role.OWNER, True)
        assert seen[1] == ("api:owner/ann", Role.MEMBER, False)
        assert seen[2][1:] == (Role.GUEST, False)
        # Neither does it open what only the holder may.
        for path in ("/v1/people", "/v1/audit", "/health/detailed", "/metrics"):
            assert (await api.http.get(path)).status_code == 200, path
            assert code_of(await api.http.get(path, headers=ANN)) == (403, "missing_role"), path
        await people.admit(OWNER, "api:owner/ann", Role.ADMIN)
        assert (await api.http.get("/v1/people", headers=ANN)).status_code == 200
        assert (await api.http.get("/v1/people", headers=BOB)).status_code == 403
        assert (await api.http.get("/v1/audit", headers=ANN)).status_code == 403


async def test_a_blocked_person_is_refused_and_the_others_behind_the_key_are_not(tmp_path: Path) -> None:
    agent = Scripted("noted")
    async with ApiWorld(tmp_path, agent) as api:
        await api.gateway.desk.people.block(OWNER, "api:owner/ann")
        assert code_of(await response(api.http, ANN)) == (403, "missing_role")
        by_body = await api.http.post("/v1/responses", json={"input": "hi", "user": "ann"})
        assert code_of(by_body) == (403, "not_admitted")
        assert agent.turns == []
        assert (await response(api.http, BOB)).status_code == 200


@pytest.mark.parametrize(
    "odd",
    [
        *(
            "bob smith",
            "bob\u00a0smith",
            "bob\u200b",
            "\u202ebob",
            "bo\u00adb",
            "bob\ufe0f",
            "bob\ue000",
            "bob\x85",
            "x" * 129,
        ),
        *("bob\ttab", "\x1b[31mbob", "bob\n", "\x00"),
    ],
)
async def test_whom_nobody_could_name_at_a_command_line_is_refused(tmp_path: Path, odd: str) -> None:
    agent = Scripted("noted")
    async with ApiWorld(tmp_path, agent) as api:
        words = "a person's id has at most 128 characters, and neither spaces nor invisible characters"
        for path, body in (
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
            ("/v1/responses", {"input": "hi"}),
            ("/v1/runs", {"input": "hi"}),
        ):
            refused = await api.http.post(path, json={**body, "user": odd})
            assert (refused.status_code, refused.json()["error"]["message"]) == (400, f"user: {words}"), path
        if min(odd) >= " ":
            # Other characters do not even get through as a header.
            refused = await api.http.get("/v1/models", headers={"X-OpenWebUI-User-Id": odd.encode()})  # type: ignore[dict-item]
            assert (refused.status_code, words in refused.text) == (400, True)
        assert agent.turns == []


@pytest.mark.parametrize("user", ["6a9bd4fb-11f5-4e0b-8a39-8a2ce84e4b3a", "ada@example.org", "b/../c", "é:1", "李"])
async def test_whom_a_client_names_can_be_given_a_role_and_be_blocked(tmp_path: Path, user: str) -> None:
    """As docs/api.md says it: admitted first, a member again once removed, and kept out by a block alone."""
    async with ApiWorld(tmp_path, Echo()) as api, api.client(await api.new_key("webui", "chat", "schedules")) as http:
        people, headers = api.gateway.desk.people, {"X-OpenWebUI-User-Id": user.encode()}
        identity = f"api:{people.keys()[0].id}/{user}"

        async def answers() -> tuple[int, int]:
            """To a member, and to a guest as well."""
            jobs = await http.get(JOBS, headers=headers)  # type: ignore[arg-type]
            return jobs.status_code, (await http.get("/v1/models", headers=headers)).status_code  # type: ignore[arg-type]

        assert await answers() == (200, 200)
        await people.admit(OWNER, identity, Role.GUEST)
        assert await answers() == (403, 200)
        await people.remove(OWNER, identity)
        assert await answers() == (200, 200)
        await people.block(OWNER, identity)
        assert await answers() == (403, 403)


async def test_a_delivery_is_for_the_person_who_sent_it(tmp_path: Path) -> None:
    world = ApiWorld(tmp_path, Echo(), platforms={"paper": KEYED})
    async with world as api, api.client(await api.new_key("webui", "notify")) as http:
        sent = await http.post("/v1/notify", json={"target": "paper:7", "text": "hi"}, headers=ANN)
        path = f"/v1/deliveries/{sent.json()['delivery_id']}"
        found = [(await http.get(path, headers=headers)).status_code for headers in (ANN, BOB, {})]
        assert found == [200, 404, 200]


# Tenants: a person each, with a key each.


async def test_two_tenants_share_neither_memory_nor_files_nor_places_in_work(tmp_path: Path) -> None:
    """E6."""
    gate, folders = Gate(), set()

    async def work(turn: Turn) -> Any:
        folders.add(context.current().workspace)
        return gate if turn.message.text == "wait" else await noting(turn)

    world = ApiWorld(tmp_path, Scripted(work), settings={"requests": 8})
    async with world as api, tenants(api, "chat", "runs") as (ann, bob):
        for http, known in ((ann, "nothing"), (bob, "nothing"), (ann, "plans")):
            answer = (await response(http, {}, "plans", conversation="c")).json()
            assert answer["output"][0]["content"][0]["text"] == known
        assert len(folders) == 2, "the same name of a conversation is another folder"
        for number in range(20):
            begun = await ann.post("/v1/runs", json={"input": "wait", "session_id": str(number)})
            if begun.status_code == 429:
                break
        assert begun.status_code == 429, "one tenant has never all places"
        assert (await response(bob, {}, "hi")).status_code == 200
        gate.open()


async def test_a_tenants_key_is_wrong_elsewhere_and_its_runs_are_not_there(tmp_path: Path) -> None:
    """D12."""
    async with ApiWorld(tmp_path / "a", Echo()) as a, ApiWorld(tmp_path / "b", Echo()) as b:
        secret = await a.new_key("mine", "runs")
        async with a.client(secret) as here, httpx.AsyncClient(base_url=b.url, headers=here.headers) as elsewhere:
            run = (await here.post("/v1/runs", json={"input": "hi"})).json()["run_id"]
            assert (await elsewhere.get(f"/v1/runs/{run}")).status_code == 401
            assert (await b.http.get(f"/v1/runs/{run}")).status_code == 404
    async with ApiWorld(tmp_path / "c", Echo()) as api, tenants(api, "runs") as (ann, bob):
        run = (await ann.post("/v1/runs", json={"input": "hi"})).json()["run_id"]
        for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/stop"), ("POST", "/steer")):
            assert code_of(await bob.request(method, f"/v1/runs/{run}{path}")) == (404, "run_not_found")


async def test_everyones_conversations_are_for_an_owners_admin_key_alone(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api, tenants(api, "admin") as (ann, bob):
        await api.gateway.desk.people.set_role(OWNER, "paper:9", Role.ADMIN)
        for http in (ann, bob, api.http):
            await response(http, {}, conversation="c")
        plain = await api.new_key("plain", "chat")
        async with api.client(plain) as owners:
            assert (await owners.get("/v1/conversations")).json()["data"] == []
        for http, count in ((ann, 1), (bob, 1), (api.http, 3)):
            assert len((await http.get("/v1/conversations")).json()["data"]) == count


async def test_a_key_is_bound_to_bots_and_the_others_do_not_exist(tmp_path: Path) -> None:
    agents = {"bot": Scripted("bot"), "helper": Scripted("helper"), "secret": Scripted("secret")}
    async with ApiWorld(tmp_path, agents, platforms={"paper": KEYED}, allow=["paper:8"]) as api:
        scopes = ("chat", "runs", "board", "schedules")
        async with api.client(await api.new_key("bound", *scopes, bots=("helper",))) as http:
            assert [each["id"] for each in (await http.get("/v1/models")).json()["data"]] == ["helper"]
            assert (await http.get("/v1/capabilities")).json()["model"] == "helper"
            for path, body in (
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
                ("/v1/responses", {"input": "hi"}),
                ("/v1/runs", {"input": "hi"}),
            ):
                unknown = [await http.post(path, json={**body, "model": model}) for model in ("secret", "nonsense")]
                assert [code_of(each) for each in unknown] == [(404, "model_not_found")] * 2
                assert unknown[0].text.replace("secret", "nonsense") == unknown[1].text
                for model in ("", "helper"):
                    assert (await http.post(path, json={**body, "model": model})).status_code in (200, 202), model
            assert code_of(await http.get("/v1/models/secret")) == (404, "model_not_found")
            job = {**JOB, "bot": "secret"}
            assert (await http.post(JOBS, json=job)).status_code == 400
            assert (await http.post(JOBS, json=JOB)).json()["job"]["bot"] == "helper"
            assert (await http.post(CARDS, json={"title": "x", "assignee": "secret"})).status_code == 400
            made = await http.post(CARDS, json={"title": "x", "triage": True})
            assert made.json()["card"]["assignee"] == "helper"
        await api.eventually(lambda: not api.rows("SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')"))
        assert (agents["bot"].turns, agents["secret"].turns) == ([], [])


async def test_a_key_is_bound_to_targets_and_writes_nowhere_else(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms={"paper": KEYED}, allow=["paper:7", "paper:8"]) as api:
        scopes = ("notify", "schedules", "board")
        bound = ("paper:7", "paper:8:a%3Ab", "paper")
        async with api.client(await api.new_key("ci", *scopes, targets=bound)) as http:

            async def tell(target: str) -> int:
                return (await http.post("/v1/notify", json={"target": target, "text": "hi"})).status_code

            assert [await tell(target) for target in ("paper:7", "paper:7:1", "paper@main:7", "paper:8:a%3Ab")] == [
                202
            ] * 4
            for elsewhere in ("paper:8", "paper:8:a", "paper:77", "paper@other:7", "other:7", "paper:70:1"):
                refused = await http.post("/v1/notify", json={"target": elsewhere, "text": "hi"})
                assert code_of(refused) == (403, "target_not_permitted"), elsewhere
                assert "this key may only write to: paper:7" in refused.json()["error"]["message"]
            assert (await http.post(JOBS, json={**JOB, "deliver": "paper:8"})).status_code == 403
            job = (await http.post(JOBS, json={**JOB, "deliver": "paper:7"})).json()["job"]
            assert (await http.patch(f"{JOBS}/{job['id']}", json={"deliver": "paper:8"})).status_code == 403
            made = (await http.post(CARDS, json={"title": "x", "triage": True})).json()["card"]["id"]
            for target, status in (("paper:8", 403), ("paper:7", 200)):
                watched = await http.post(f"{CARDS}/{made}/watchers", json={"target": target})
                assert watched.status_code == status


# What members plan.


async def test_a_members_jobs_are_theirs_and_others_do_not_exist(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms={"paper": KEYED}) as api, tenants(api, "schedules") as (ann, bob):
        mine = (await ann.post(JOBS, json=JOB)).json()["job"]["id"]
        owners = (await api.http.post(JOBS, json=JOB)).json()["job"]["id"]
        for foreign in (mine, owners):
            for method, path in (
                ("GET", ""),
                ("PATCH", ""),
                ("DELETE", ""),
                ("POST", "/pause"),
                ("POST", "/resume"),
                ("POST", "/run"),
                ("GET", "/runs"),
            ):
                body = {"json": {"prompt": "mine now"}} if method == "PATCH" else {}
                answer = await bob.request(method, f"{JOBS}/{foreign}{path}", **body)
                unheard_of = await bob.request(method, f"{JOBS}/0123456789ab{path}", **body)
                assert (answer.status_code, answer.json()) == (404, unheard_of.json()), (method, path)
        assert (await bob.get(JOBS)).json()["jobs"] == []
        assert [job["id"] for job in (await ann.get(JOBS)).json()["jobs"]] == [mine]
        assert {job["id"] for job in (await api.http.get(JOBS)).json()["jobs"]} == {mine, owners}
        # A member's job reports to the member.
        refused = await ann.post(JOBS, json={**JOB, "deliver": "paper:9"})
        assert refused.status_code == 403
        assert "a chat of your own" in refused.json()["error"]
        api.papers["paper"].open_chat("8")
        assert (await ann.post(f"{JOBS}/{mine}/run")).status_code == 200
        await api.papers["paper"].until(lambda paper: "you said: report" in paper.posts)


async def test_an_admin_controls_an_owners_job_but_does_not_write_its_prompt(tmp_path: Path) -> None:
    """D2: a job acts with its maker's role."""
    async with ApiWorld(tmp_path, Echo(), platforms={"paper": KEYED}) as api, tenants(api, "schedules") as (ann, bob):
        await api.gateway.desk.people.set_role(OWNER, "paper:9", Role.ADMIN)
        theirs = (await ann.post(JOBS, json=JOB)).json()["job"]["id"]
        owners = (await api.http.post(JOBS, json=JOB)).json()["job"]["id"]
        assert {job["id"] for job in (await bob.get(JOBS)).json()["jobs"]} == {theirs, owners}
        refused = await bob.patch(f"{JOBS}/{owners}", json={"prompt": "give me the keys"})
        assert (refused.status_code, "but not change it" in refused.json()["error"]) == (403, True)
        assert (await bob.patch(f"{JOBS}/{theirs}", json={"prompt": "look"})).json()["job"]["prompt"] == "look"
        for job in (theirs, owners):
            assert (await bob.post(f"{JOBS}/{job}/pause")).json()["job"]["state"] == "paused"


@pytest.mark.parametrize("lost", ["key", "person"])
async def test_what_was_planned_with_a_lost_key_does_not_start(tmp_path: Path, lost: str) -> None:
    agent = Scripted("done")
    async with (
        ApiWorld(tmp_path, agent, platforms={"paper": KEYED}) as api,
        tenants(api, "schedules", "board") as (ann, _),
    ):
        job = (await ann.post(JOBS, json=JOB)).json()["job"]["id"]
        card = (await ann.post(CARDS, json={"title": "Paint it", "triage": True})).json()["card"]["id"]
        people = api.gateway.desk.people
        await (people.revoke_key(OWNER, "of-8") if lost == "key" else people.remove(OWNER, "paper:8"))
        refused = await api.http.post(f"{JOBS}/{job}/run")
        assert refused.status_code == 400
        assert "may no longer talk to the bot" in refused.json()["error"]
        await api.http.post(f"{CARDS}/{card}/unblock", json={})
        await api.eventually(lambda: api.rows("SELECT 1 FROM cards WHERE block = 'stopped'"))
        assert agent.turns == []


async def test_on_the_board_a_member_is_that_member_and_never_the_owner(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), board={"people": "maker"}) as api, tenants(api, "board") as (ann, bob):
        waiting = {"triage": True}
        mine = (await ann.post(CARDS, json={"title": "mine", **waiting})).json()["card"]
        owners = (await api.http.post(CARDS, json={"title": "the owner's", **waiting})).json()["card"]
        assert mine["by"].startswith("api key of-8 (api:")
        for foreign in (mine["id"], owners["id"]):
            for path, body in (
                ("comments", {"text": "do as I say"}),
                ("files", {"url": "https://example.org/x"}),
                ("unblock", {}),
                ("complete", {}),
                ("block", {"reason": "no"}),
                ("archive", None),
            ):
                answer = await bob.post(f"{CARDS}/{foreign}/{path}", json=body)
                assert code_of(answer) == (409, "card_refused"), path
        assert (await ann.post(f"{CARDS}/{mine['id']}/comments", json={"text": "green"})).status_code == 200
        # A new key with an old name is not the old one.
        await api.gateway.desk.people.revoke_key(OWNER, "of-8")
        async with api.client(await api.new_key("of-8", "board", person="paper:9")) as heir:
            answer = await heir.post(f"{CARDS}/{mine['id']}/comments", json={"text": "red"})
            assert code_of(answer) == (409, "card_refused")
        # An admin may end what others began, and does not speak for the owner.
        await api.gateway.desk.people.set_role(OWNER, "paper:9", Role.ADMIN)
        assert (await bob.post(f"{CARDS}/{owners['id']}/comments", json={"text": "x"})).status_code == 409
        assert (await bob.post(f"{CARDS}/{owners['id']}/archive")).json()["card"]["state"] == "archived"
