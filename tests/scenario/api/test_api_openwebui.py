"""Open WebUI speaks for several people under one key: who they are, which chat it is, and what is beside the talk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worlds.api import ApiWorld
from tests.worlds.world import Scripted

TITLE = (
    "### Task:\nGenerate a concise title for the talk.\n### Output:\nJSON\n"
    "### Chat History:\n<chat_history>\nUSER: Is there wine?\nASSISTANT: noted\n</chat_history>"
)
FROM_DOCUMENTS = (
    "### Task:\nRespond to the user query using the provided context.\n\n<context>\n"
    '<source id="1" name="cellar.txt">12 bottles</source>\n</context>\n\nIs there wine?'
)


def forwarded(user: str = "u-ada", chat: str = "c-1", **more: str) -> dict[str, str]:
    """As Open WebUI sends it with ENABLE_FORWARD_USER_INFO_HEADERS."""
    about = {
        "X-OpenWebUI-User-Name": "Ada",
        "X-OpenWebUI-User-Email": "ada@example.org",
        "X-OpenWebUI-User-Role": "user",
    }
    return {**about, "X-OpenWebUI-User-Id": user, "X-OpenWebUI-Chat-Id": chat, **more}


def body(path: str, text: str, **more: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": "bot", "stream": False, **more}
    if path == "/v1/chat/completions":
        return {**asked, "messages": [{"role": "user", "content": text}]}
    return {**asked, "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]}


both_apis = pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])


async def ask(api: ApiWorld, path: str, text: str, headers: dict[str, str], **more: Any) -> dict[str, Any]:
    answer = await api.http.post(path, json=body(path, text, **more), headers=headers)
    assert answer.status_code == 200, answer.text
    asked: dict[str, Any] = answer.json()
    return asked


@both_apis
async def test_forwarded_users_are_different_people_and_each_chat_is_a_conversation(tmp_path: Path, path: str) -> None:
    agent = Scripted("noted")
    async with ApiWorld(tmp_path, agent) as api:
        for user, chat in (("u-ada", "c-1"), ("u-bob", "c-1"), ("u-ada", "c-2"), ("u-ada", "c-1")):
            await ask(api, path, "hi", forwarded(user, chat))
        messages = [turn.message for turn in agent.turns]
        assert [message.sender.id for message in messages] == [
            f"{messages[0].conversation.chat}/u-{name}" for name in ("ada", "bob", "ada", "ada")
        ]
        ids = [message.conversation.id for message in messages]
        assert (len(set(ids)), ids[0]) == (3, ids[3])
        listed = (await api.http.get("/v1/conversations")).json()["data"]
        assert {line["id"]: line["messages"] for line in listed} == {ids[0]: 2, ids[1]: 1, ids[2]: 1}


@both_apis
async def test_what_a_person_writes_into_the_body_does_not_make_them_somebody_else(tmp_path: Path, path: str) -> None:
    """Open WebUI lets people add fields to the body; the header is its own."""
    agent = Scripted("noted")
    async with ApiWorld(tmp_path, agent) as api:
        await ask(api, path, "hi", forwarded("u-bob"), user="u-ada")
        await ask(api, path, "hi", {}, user="u-ada")
    assert [turn.message.conversation.member for turn in agent.turns] == ["u-bob", "u-ada"]


async def test_a_forwarded_user_is_known_under_the_clients_key_only(tmp_path: Path) -> None:
    agent = Scripted("noted")
    async with ApiWorld(tmp_path, agent) as api:
        for name in ("one", "two"):
            async with api.client(await api.new_key(name, "chat")) as http:
                asked = body("/v1/responses", "hi", store=True)
                assert (await http.post("/v1/responses", json=asked, headers=forwarded())).status_code == 200
        async with api.client() as http:
            without = await http.post("/v1/responses", json=body("/v1/responses", "hi"), headers=forwarded())
        assert without.status_code == 401, "the header opens nothing"
    first, second = (turn.message for turn in agent.turns)
    assert first.sender.id != second.sender.id
    assert first.conversation.id != second.conversation.id
    assert second.given is not None
    assert agent.turns[1].history == ()


async def test_what_belongs_to_another_forwarded_user_is_not_found(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Scripted("noted")) as api:
        response = await ask(api, "/v1/responses", "hi", forwarded("u-ada"))
        run = response["id"].replace("resp_", "run_")
        paths = (f"/v1/responses/{response['id']}", f"/v1/runs/{run}", f"/v1/runs/{run}/events")
        for path in paths:
            assert (await api.http.get(path, headers=forwarded("u-bob"))).status_code == 404, path
            assert (await api.http.get(path, headers=forwarded("u-ada"))).status_code == 200, path
            assert (await api.http.get(path)).status_code == 200, (
                "who holds the key and speaks for nobody sees all of it"
            )
        chained = body("/v1/responses", "and then?", previous_response_id=response["id"])
        refused = await api.http.post("/v1/responses", json=chained, headers=forwarded("u-bob"))
        assert refused.status_code == 404


async def test_a_forwarded_user_sees_their_own_conversations_and_no_others(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Scripted("noted")) as api:
        secret = await api.new_key("webui", "chat")
        async with api.client(secret) as http:
            for http_or_admin in (http, api.http):
                for user, chat in (("u-ada", "c-1"), ("u-bob", "c-1"), ("u-bob", "u-ada"), ("u:b", "c-1")):
                    asked = body("/v1/responses", f"a secret of {user}")
                    await http_or_admin.post("/v1/responses", json=asked, headers=forwarded(user, chat))
                # A talk of the key itself that is called like a person.
                alone = body("/v1/responses", "a secret of the key", conversation="u-ada")
                await http_or_admin.post("/v1/responses", json=alone)
                whole = (await http_or_admin.get("/v1/conversations")).json()["data"]
                assert len(whole) == (5 if http_or_admin is http else 10), "who speaks for nobody sees all of it"
                listed = (await http_or_admin.get("/v1/conversations", headers=forwarded("u-ada"))).json()["data"]
                assert [line["id"].split(":")[3:] for line in listed] == [["c-1", "u-ada"]]
                seen = [
                    line["content"]
                    for place in whole
                    for line in (
                        await http_or_admin.get(f"/v1/conversations/{place['id']}/messages", headers=forwarded("u-ada"))
                    )
                    .json()
                    .get("data", ())
                ]
                assert seen == ["a secret of u-ada", "noted"]


async def test_one_forwarded_users_idempotency_key_is_not_anothers(tmp_path: Path) -> None:
    agent = Scripted("noted")
    async with ApiWorld(tmp_path, agent) as api:
        keyed = {user: forwarded(user) | {"Idempotency-Key": "k1"} for user in ("u-ada", "u-bob")}
        ids = [(await ask(api, "/v1/responses", "hi", keyed[user]))["id"] for user in ("u-ada", "u-bob", "u-ada")]
        assert ids[0] == ids[2]
        assert ids[0] != ids[1], "what was answered to one is not told to another"
        assert (await ask(api, "/v1/responses", "other words", forwarded() | {"Idempotency-Key": "k2"}))["id"]
        await ask(api, "/v1/responses", "hi", forwarded("u-bob") | {"Idempotency-Key": "k2"})


@both_apis
@pytest.mark.parametrize("way", ["by its prompt", "by its header"])
async def test_titles_tags_and_follow_ups_are_no_part_of_the_talk(tmp_path: Path, path: str, way: str) -> None:
    agent = Scripted("noted")
    said = {"by its prompt": (TITLE, forwarded()), "by its header": ("Name it.", forwarded())}[way]
    if way == "by its header":
        said[1]["X-OpenWebUI-Task"] = "title_generation"
    async with ApiWorld(tmp_path, agent) as api:
        await ask(api, path, "Is there wine?", forwarded())
        answer = await ask(api, path, *said)
        await ask(api, path, "And beer?", forwarded())
        talk, task, again = (turn.message.conversation for turn in agent.turns)
        assert "noted" in str(answer), "it is answered all the same"
        assert talk.id == again.id
        assert task.id != talk.id
        assert agent.turns[2].message.sender.id == agent.turns[1].message.sender.id
        kept = (await api.http.get(f"/v1/conversations/{talk.id}/messages")).json()["data"]
        assert [line["content"] for line in kept] == ["Is there wine?", "noted", "And beer?", "noted"]
    if path == "/v1/responses":
        assert [entry.text for entry in agent.turns[2].history] == ["Is there wine?", "noted"]


@both_apis
@pytest.mark.parametrize(
    ("text", "headers"),
    [
        pytest.param(FROM_DOCUMENTS, forwarded(), id="an answer from documents begins like a task"),
        pytest.param(TITLE, forwarded() | {"X-OpenWebUI-Task": ""}, id="Open WebUI says that it is no task"),
        pytest.param(TITLE, {"X-Tidings-Conversation": "c-1"}, id="another client's words"),
    ],
)
async def test_a_persons_message_is_never_taken_for_a_task(
    tmp_path: Path, path: str, text: str, headers: dict[str, str]
) -> None:
    agent = Scripted("noted")
    async with ApiWorld(tmp_path, agent) as api:
        await ask(api, path, text, headers)
    assert agent.turns[0].message.conversation.thread == "c-1"
