"""S9: what belongs to one key is for another as if it had never been; no name reaches another's conversation."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.worlds.api import ApiWorld
from tests.worlds.world import KEYED, Scripted
from tidings.adapters.api.routes import ENDPOINTS

SECRET = "the treasure is under the oak"
RANDOM = re.compile(r"(run|resp|dlv)_[0-9a-f]{32}")
SCOPES = ("chat", "runs", "notify")
# Names that a client may hope to be understood as somebody else's place.
FORGED = (
    "telegram:123",
    "paper:1",
    "paper:main:1",
    "paper@main:1",
    "api:main:owner:plans",
    "../../paper/main/1",
    "owner:plans",
    "plans",
    ":plans",
    "%3Aplans",
    "plans%00",
    "once-",
)


class Owned(NamedTuple):
    """What a key has made, by the name of a path's parameter and the routes it is for."""

    run: str
    response: str
    delivery: str
    conversation: str

    def at(self, path: str) -> str:
        parts = path.split("/")
        named = {"runs": self.run, "responses": self.response, "deliveries": self.delivery}
        return named.get(parts[2]) or {"conversations": self.conversation}[parts[2]]


def world(home: Path, agent: Scripted) -> ApiWorld:
    return ApiWorld(home, agent, platforms={"paper": KEYED})


@asynccontextmanager
async def two_clients(api: ApiWorld) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    async with api.client(await api.new_key("a", *SCOPES)) as a, api.client(await api.new_key("b", *SCOPES)) as b:
        yield a, b


async def own(http: httpx.AsyncClient) -> Owned:
    """One of everything that can be asked for by its id."""
    run = (await http.post("/v1/runs", json={"input": SECRET, "session_id": "plans"})).json()["run_id"]
    response = (await http.post("/v1/responses", json={"input": SECRET, "conversation": "plans"})).json()["id"]
    told = await http.post("/v1/notify", json={"target": "paper:7", "text": SECRET})
    listed = (await http.get("/v1/conversations")).json()["data"]
    assert told.status_code == 202, told.text
    return Owned(run, response, told.json()["delivery_id"], listed[0]["id"])


def asked(owned: Owned) -> list[tuple[str, str, str]]:
    """Every route with an id that these scopes open, and that id: a new route is asked here by itself."""
    routes = [endpoint for endpoint in ENDPOINTS if "{" in endpoint.path and endpoint.scope in SCOPES]
    # Bots are nobody's own: every key that may talk to them may see them.
    routes = [endpoint for endpoint in routes if not endpoint.path.startswith("/v1/models/")]
    found = []
    for endpoint in routes:
        id = owned.at(endpoint.path)
        found.append((endpoint.method, re.sub(r"\{\w+\}", id.replace("%", "%25"), endpoint.path), id))
    # What changes something comes last, so that the rest is asked of what is still there.
    return sorted(found, key=lambda each: ("GET", "POST", "DELETE").index(each[0]))


def expected(path: str) -> int:
    """How one's own is answered without a body: a message without words is refused."""
    return 400 if path.endswith("/steer") else 200


async def test_s9_two_keys_and_all_routes_with_an_id(tmp_path: Path) -> None:
    async with world(tmp_path, Scripted("hello")) as api, two_clients(api) as (a, b):
        mine = await own(a)
        assert all(RANDOM.fullmatch(id) for id in mine[:3]), "128 random bits each"
        for method, path, id in asked(mine):
            foreign = await b.request(method, path)
            unheard_of = await b.request(method, path.replace(id.replace("%", "%25"), id[:-8] + "00000000"))
            assert foreign.status_code == 404, (method, path)
            # Nothing tells what is another's from what never was.
            assert (foreign.status_code, foreign.json()) == (unheard_of.status_code, unheard_of.json())
            assert SECRET not in foreign.text
        for method, path, _ in asked(mine):
            assert (await a.request(method, path)).status_code == expected(path), (method, path)


async def test_s9_the_owner_sees_what_belongs_to_keys_and_keys_do_not_see_the_owners(tmp_path: Path) -> None:
    async with world(tmp_path, Scripted("hello")) as api:
        theirs = await own(api.http)
        async with api.client(await api.new_key("a", *SCOPES)) as a:
            for method, path, _ in asked(theirs):
                assert (await a.request(method, path)).status_code == 404, (method, path)
            mine = await own(a)
        for method, path, _ in asked(mine):
            assert (await api.http.request(method, path)).status_code == expected(path), (method, path)


async def test_s9_what_is_foreign_cannot_be_built_upon(tmp_path: Path) -> None:
    agent = Scripted("hello")
    async with world(tmp_path, agent) as api, two_clients(api) as (a, b):
        mine = await own(a)
        turns = len(agent.turns)
        for path in ("/v1/responses", "/v1/runs"):
            answer = await b.post(path, json={"input": "and then?", "previous_response_id": mine.response})
            assert answer.status_code == 404
            assert SECRET not in answer.text
        assert len(agent.turns) == turns


async def test_s9_an_idempotency_key_is_the_clients_own(tmp_path: Path) -> None:
    async with world(tmp_path, Scripted("hello")) as api, two_clients(api) as (a, b):
        again = {"Idempotency-Key": "monday"}
        ask = {"input": "hi"}
        first = (await a.post("/v1/runs", json=ask, headers=again)).json()
        second = (await b.post("/v1/runs", json=ask, headers=again)).json()
        assert (second["replayed"], second["run_id"] != first["run_id"]) == (False, True)
        tell = {"target": "paper:7", "text": "hi"}
        told = [(await http.post("/v1/notify", json=tell, headers=again)).json()["delivery_id"] for http in (a, b)]
        assert told[0] != told[1]


@pytest.mark.parametrize("way", ["session_id", "conversation", "header", "user"])
async def test_s9_no_name_reaches_a_chat_or_another_key(tmp_path: Path, way: str) -> None:
    agent = Scripted("hello")
    async with world(tmp_path, agent) as api:
        api.papers["paper"].says(SECRET)
        await api.papers["paper"].until(lambda paper: paper.posts == ["hello"])
        await own(api.http)
        async with api.client(await api.new_key("forger", *SCOPES)) as http:
            id = api.adapter.keys.all()[-1].id
            for name in FORGED:
                body, headers = {"input": "what did I say?"}, {}
                if way == "header":
                    headers["X-Tidings-Conversation"] = name
                else:
                    body[way] = name
                answer = await http.post("/v1/runs", json=body, headers=headers)
                assert answer.status_code == 202, (name, answer.text)
                await api.ended(answer.json()["run_id"])
                turn = agent.turns[-1]
                assert turn.message.conversation.id.startswith(f"api:main:{id}:"), name
                assert turn.message.sender.id.split("/")[0] == id, "also whom it names is known under its key only"
                assert turn.history == () or way != "user"
                assert SECRET not in str(turn.history), name
            listed = (await http.get("/v1/conversations")).json()["data"]
            assert {line["id"].split(":")[2] for line in listed} == {id}
            for foreign in ("paper:main:1", "api:main:owner:plans", f"api:main:{id}x:plans", f"api:main:{id}"):
                assert (await http.get(f"/v1/conversations/{foreign}/messages")).status_code == 404, foreign
        shown = await api.http.get("/v1/conversations/paper:main:1/messages")
        assert SECRET in shown.text, "an admin's key sees it, so there was something to find"


async def test_s9_a_new_key_with_an_old_name_finds_nothing_of_the_old(tmp_path: Path) -> None:
    agent = Scripted("hello")
    async with world(tmp_path, agent) as api:
        async with api.client(await api.new_key("laptop", *SCOPES)) as http:
            mine = await own(http)
        await api.adapter.keys.revoke("laptop")
        async with api.client(await api.new_key("laptop", *SCOPES)) as http:
            for method, path, _ in asked(mine):
                assert (await http.request(method, path)).status_code == 404, (method, path)
            assert (await http.get("/v1/conversations")).json()["data"] == []
            run = (await http.post("/v1/runs", json={"input": "hi", "session_id": "plans"})).json()["run_id"]
            await api.ended(run)
            assert agent.turns[-1].history == ()
