"""People over HTTP: who is known, who may change whom, and what the audit trail says afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.worlds.api import ApiWorld
from tests.worlds.world import KEYED, Echo
from tidings.core.roles import OWNER, Role

PEOPLE = "/v1/people"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiWorld]:
    async with ApiWorld(tmp_path, Echo(), platforms={"paper": KEYED}, allow=["paper:7"]) as world:
        yield world


async def admitted(api: ApiWorld, who: str, role: Role = Role.MEMBER, name: str = "") -> str:
    return (await api.gateway.desk.people.admit(OWNER, who, role, name)).id


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_somebody_is_admitted_looked_at_changed_blocked_and_removed(api: ApiWorld) -> None:
    made = await api.http.post(PEOPLE, json={"id": "paper:8", "role": "guest", "name": "Ann"})
    assert made.status_code == 201, made.text
    ann = made.json()
    assert (ann["object"], ann["name"], ann["role"], ann["identities"], ann["by"]) == (
        *("person", "Ann", "guest"),
        *(["paper:8"], "owner"),
    )
    assert (await api.http.get(f"{PEOPLE}/{ann['id']}")).json() == ann
    assert (await api.http.get(f"{PEOPLE}/paper:8")).json() == ann, "an identity names its person"
    listed = (await api.http.get(PEOPLE)).json()["data"]
    assert {line["id"]: line["role"] for line in listed} == {"paper:7": "member", ann["id"]: "guest"}
    changed = (await api.http.patch(f"{PEOPLE}/{ann['id']}", json={"role": "admin", "name": "Anna"})).json()
    assert (changed["id"], changed["role"], changed["name"]) == (ann["id"], "admin", "Anna")
    renamed = (await api.http.patch(f"{PEOPLE}/{ann['id']}", json={"name": "Ann"})).json()
    assert (renamed["role"], renamed["name"]) == ("admin", "Ann")
    blocked = (await api.http.post(f"{PEOPLE}/{ann['id']}/block")).json()
    assert blocked["role"] == "blocked"
    gone = await api.http.delete(f"{PEOPLE}/{ann['id']}")
    assert gone.json() == {"object": "person", "id": ann["id"], "role": "stranger", "deleted": True}
    assert code_of(await api.http.get(f"{PEOPLE}/{ann['id']}")) == (404, "person_not_found")


async def test_two_identities_become_one_person(api: ApiWorld) -> None:
    ann = await admitted(api, "paper:8")
    linked = await api.http.post(f"{PEOPLE}/{ann}/link", json={"other": "paper:9"})
    assert linked.json()["identities"] == ["paper:8", "paper:9"]
    assert (await api.http.get(f"{PEOPLE}/paper:9")).json()["id"] == ann
    again = await api.http.post(f"{PEOPLE}/{ann}/link", json={"other": "paper:9"})
    assert code_of(again) == (409, "person_refused")
    assert code_of(await api.http.post(f"{PEOPLE}/{ann}/link", json={"other": "nobody"})) == (404, "person_not_found")


async def test_a_stranger_waits_and_is_admitted_by_code_once(api: ApiWorld) -> None:
    paper = api.papers["paper"]
    paper.says("hello?", sender="5", chat="5")
    await paper.until(lambda server: any("Your code is" in post for post in server.posts))
    code = next(post for post in paper.posts if "Your code is" in post).partition("Your code is ")[2][:9]
    (waiting,) = (await api.http.get(f"{PEOPLE}/waiting")).json()["data"]
    assert (waiting["object"], waiting["identity"], "digest" in waiting) == ("waiting", "paper:5", False)
    assert code not in str(waiting), "who may read the list has not got the code by it"
    wrong = await api.http.post(PEOPLE, json={"code": "ZZZZ-ZZZZ"})
    assert code_of(wrong) == (404, "person_not_found")
    assert (await api.http.post(PEOPLE, json={"code": code})).json()["identities"] == ["paper:5"]
    await paper.until(lambda server: "you said: hello?" in server.posts)
    assert (await api.http.get(f"{PEOPLE}/waiting")).json()["data"] == []
    assert code_of(await api.http.post(PEOPLE, json={"code": code})) == (404, "person_not_found")


async def test_a_waiting_request_is_admitted_by_its_id_and_a_stranger_is_blocked_unseen(api: ApiWorld) -> None:
    paper = api.papers["paper"]
    paper.says("hello?", sender="5", chat="5")
    # The blocked stranger's message is never answered.
    api.ignored.add(paper.says("hello?", sender="6", chat="6"))
    await paper.until(lambda server: sum("Your code is" in post for post in server.posts) == 2)
    waiting = {each["identity"]: each["id"] for each in (await api.http.get(f"{PEOPLE}/waiting")).json()["data"]}
    assert (await api.http.post(PEOPLE, json={"code": waiting["paper:5"]})).status_code == 201
    assert (await api.http.post(f"{PEOPLE}/paper:6/block")).json()["role"] == "blocked"
    assert (await api.http.get(f"{PEOPLE}/waiting")).json()["data"] == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": "paper:8", "code": "ABCD-EFGH"},
        {"id": "nobody"},
        {"id": "@paper:8"},
        {"id": "paper: 8"},
        {"id": "paper:8", "role": "emperor"},
        {"id": "paper:8", "role": "blocked"},
        {"id": "paper:8", "name": "a\nb"},
        {"code": "paper:8"},
    ],
)
async def test_what_is_malformed_admits_nobody(api: ApiWorld, body: dict[str, Any]) -> None:
    assert (await api.http.post(PEOPLE, json=body)).status_code == 400
    assert [line["id"] for line in (await api.http.get(PEOPLE)).json()["data"]] == ["paper:7"]


@pytest.mark.parametrize(
    "id",
    [
        *("paper:\x1b[31m8", "paper:\u202e8", "paper:\x00", "paper:8\u200b", "paper:8\ufeff", "paper:8\u00ad"),
        *("pa\u200bper:8", "paper@\x1bmain:8", "paper:8\x85", "paper:8\u3164", "paper:8\ufe0f", "paper:\ue0008"),
    ],
)
async def test_an_id_that_cannot_be_read_is_neither_admitted_nor_blocked_nor_linked(api: ApiWorld, id: str) -> None:
    refused = await api.http.post(PEOPLE, json={"id": id})
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        400,
        "id: has characters that are not allowed here",
    )
    assert (await api.http.post(f"{PEOPLE}/paper:7/link", json={"other": id})).status_code == 400
    assert code_of(await api.http.post(f"{PEOPLE}/{quote(id)}/block")) == (404, "person_not_found")
    assert [line["id"] for line in (await api.http.get(PEOPLE)).json()["data"]] == ["paper:7"]
    assert api.rows("SELECT 1 FROM identities") == []


async def test_a_name_finds_nobody(api: ApiWorld) -> None:
    """A person chooses the own name, and might choose another's."""
    await admitted(api, "paper:8", name="Olga")
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/block")):
        body = {"json": {"role": "owner"}} if method == "PATCH" else {}
        assert code_of(await api.http.request(method, f"{PEOPLE}/Olga{path}", **body)) == (404, "person_not_found")


async def test_who_may_still_talk_after_a_removal_is_not_called_deleted(api: ApiWorld) -> None:
    await admitted(api, "paper:7", Role.ADMIN)
    kept = (await api.http.delete(f"{PEOPLE}/paper:7")).json()
    assert (kept["role"], kept["deleted"]) == ("member", False)
    words = "this person may still talk to the bots, as a member: the settings name paper:7"
    assert kept["message"] == f"{words}; remove it there, or block the person"
    assert (await api.http.get(f"{PEOPLE}/paper:7")).json()["role"] == "member"
    # The same for one of several identities.
    ann = await admitted(api, "paper:8", Role.ADMIN)
    await api.http.post(f"{PEOPLE}/{ann}/link", json={"other": "paper:7"})
    kept = (await api.http.delete(f"{PEOPLE}/{ann}")).json()
    assert (kept["id"], kept["role"], kept["deleted"]) == (ann, "member", False)


async def test_whom_a_client_names_is_not_deleted_as_long_as_the_key_works(api: ApiWorld) -> None:
    await api.new_key("webui", "chat")
    (key,) = api.gateway.desk.people.keys()
    bob = quote(f"api:{key.id}/bob", safe="")
    await admitted(api, f"api:{key.id}/bob", Role.GUEST)
    kept = (await api.http.delete(f"{PEOPLE}/{bob}")).json()
    assert (kept["role"], kept["deleted"]) == ("member", False)
    assert kept["message"] == "this person may still talk to the bots, as a member; block them to keep them out"
    assert (await api.http.post(f"{PEOPLE}/{bob}/block")).json()["role"] == "blocked"
    await api.gateway.desk.people.revoke_key(OWNER, "webui")
    gone = (await api.http.delete(f"{PEOPLE}/{bob}")).json()
    assert (gone["role"], gone["deleted"]) == ("stranger", True)


async def test_people_of_the_settings_are_changed_in_the_settings(api: ApiWorld) -> None:
    assert code_of(await api.http.delete(f"{PEOPLE}/paper:7")) == (409, "person_refused")
    assert code_of(await api.http.patch(f"{PEOPLE}/paper:7", json={"role": "guest"})) == (409, "person_refused")


async def test_nobody_grants_more_than_they_hold(api: ApiWorld) -> None:
    """D2."""
    for who, role in {"paper:1": Role.OWNER, "paper:2": Role.ADMIN, "paper:3": Role.MEMBER}.items():
        await admitted(api, who, role)
    before = (await api.http.get(PEOPLE)).json()["data"]
    secret = await api.new_key("admins", "admin", person="paper:2")
    async with api.client(secret) as admin:
        refused = [
            await admin.post(PEOPLE, json={"id": "paper:4", "role": "admin"}),
            await admin.post(PEOPLE, json={"id": "paper:4", "role": "owner"}),
            await admin.post(PEOPLE, json={"id": "paper:3", "role": "admin"}),
            await admin.post(PEOPLE, json={"id": "paper:1", "role": "member"}),
            await admin.patch(f"{PEOPLE}/paper:2", json={"role": "owner"}),
            await admin.patch(f"{PEOPLE}/paper:3", json={"role": "admin"}),
            await admin.patch(f"{PEOPLE}/paper:1", json={"role": "guest"}),
            await admin.patch(f"{PEOPLE}/paper:1", json={"name": "nobody"}),
            await admin.delete(f"{PEOPLE}/paper:1"),
            await admin.post(f"{PEOPLE}/paper:1/block"),
            await admin.post(f"{PEOPLE}/paper:2/link", json={"other": "paper:4"}),
            await admin.post(f"{PEOPLE}/paper:1/link", json={"other": "paper:4"}),
        ]
        assert [code_of(each) for each in refused] == [(403, "missing_role")] * len(refused)
        # A key with every scope, of somebody who is no owner, does not operate the gateway.
        for path in ("/v1/audit", "/health/detailed", "/metrics"):
            assert code_of(await admin.get(path)) == (403, "missing_role"), path
        assert (await api.http.get(PEOPLE)).json()["data"] == before
        # Below the own role all of it works.
        assert (await admin.post(PEOPLE, json={"id": "paper:4"})).status_code == 201
        assert (await admin.patch(f"{PEOPLE}/paper:4", json={"role": "guest"})).json()["by"] != "owner"
        assert (await admin.delete(f"{PEOPLE}/paper:4")).status_code == 200
    async with api.client(await api.new_key("members", "admin", person="paper:3")) as member:
        for method, path in (("GET", PEOPLE), ("POST", PEOPLE), ("GET", f"{PEOPLE}/paper:3")):
            assert code_of(await member.request(method, path, json={"id": "paper:9"})) == (403, "missing_role")


async def test_the_trail_tells_who_did_what_page_by_page(api: ApiWorld) -> None:
    admin = await admitted(api, "paper:2", Role.ADMIN)
    async with api.client(await api.new_key("admins", "people", person="paper:2")) as http:
        ann = (await http.post(PEOPLE, json={"id": "paper:8", "name": "a secret name"})).json()["id"]
        await http.patch(f"{PEOPLE}/{ann}", json={"role": "guest"})
        await http.delete(f"{PEOPLE}/{ann}")
    whole = (await api.http.get("/v1/audit")).json()
    entries = [(line["actor"], line["action"], line["object"]) for line in whole["data"]]
    assert entries[:3] == [(admin, "removed", ann), (admin, "role", ann), (admin, "admitted", ann)]
    assert whole["next"] is None
    assert "a secret name" not in str(whole), "ids, never words"
    paged, after = [], "0"
    while after is not None:
        page = (await api.http.get("/v1/audit", params={"limit": 2, "after": after})).json()
        paged += page["data"]
        after = page["next"]
    assert paged == whole["data"]
