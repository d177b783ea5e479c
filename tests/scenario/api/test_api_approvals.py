"""Approvals over HTTP: every stream shows the question and its answer, and only people who may can answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.scenario.api.test_api_runs import begin, names
from tests.scenario.spine.test_pairing import button, with_home
from tests.simulators.paper.simulator import Kind
from tests.worlds.api import ApiWorld, Frame
from tests.worlds.careful import Careful
from tests.worlds.world import Echo, OwnedClock
from tidings.core.desk.approvals import Choice
from tidings.core.roles import OWNER, Role

SECRET = "sk-proj-Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZg"
REQUEST, RESPONDED = "approval.request", "approval.responded"
CHAT = {"model": "bot", "messages": [{"role": "user", "content": "clean up"}]}
RESPONSE = {"model": "bot", "input": "clean up"}
UNKNOWN = ("ask_" + "0" * 32, "run_" + "0" * 32)


def is_open(api: ApiWorld) -> bool:
    return len(api.rows("SELECT 1 FROM approvals WHERE state = 'open'")) == 1


async def asking(api: ApiWorld) -> dict[str, Any]:
    """The one open question, as the owner's key lists it."""
    await api.eventually(lambda: is_open(api))
    (question,) = (await api.http.get("/v1/approvals")).json()["data"]
    return dict(question)


async def decide(http: httpx.AsyncClient, path: str, choice: str = "once", **more: Any) -> tuple[int, Any]:
    answer = await http.post(path, json={"choice": choice, **more})
    body = answer.json()
    return answer.status_code, body if answer.status_code == 200 else body["error"]["message"]


class Reader:
    """A client that reads a stream while the test goes on."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.ended = False

    def told(self, name: str) -> list[dict[str, Any]]:
        """What this stream said of approvals, wherever it says so."""
        found = [frame.json for frame in self.frames if frame.data != "[DONE]"]
        return [each for each in (data.get("approval", data) for data in found) if each.get("event") == name]


@asynccontextmanager
async def reading(http: httpx.AsyncClient, method: str, path: str, **asked: Any) -> AsyncIterator[Reader]:
    reader = Reader()

    async def read() -> None:
        async with http.stream(method, path, **asked) as response:
            assert response.status_code == 200, await response.aread()
            async for frame in ApiWorld.frames(response):
                reader.frames.append(frame)
        reader.ended = True

    task = asyncio.create_task(read())
    try:
        yield reader
        await task
    finally:
        task.cancel()


@asynccontextmanager
async def streams(api: ApiWorld, kind: str) -> AsyncIterator[Reader]:
    if kind == "runs":
        run = await begin(api, "clean up")
        stream = reading(api.http, "GET", f"/v1/runs/{run}/events")
    elif kind == "chat":
        stream = reading(api.http, "POST", "/v1/chat/completions", json={**CHAT, "stream": True})
    else:
        stream = reading(api.http, "POST", "/v1/responses", json={**RESPONSE, "stream": True})
    async with stream as reader:
        yield reader


@pytest.mark.parametrize("kind", ["runs", "chat", "responses"])
async def test_every_stream_shows_the_question_and_the_answer(tmp_path: Path, kind: str) -> None:
    """A23: a guarded tool under any streaming endpoint is an event with the run's id, and the stream goes on."""
    agent = Careful("rm build", read=["the page example.org"], words="Let me clean up. ")
    async with ApiWorld(tmp_path, agent) as api:
        async with streams(api, kind) as reader:
            await api.eventually(lambda: reader.told(REQUEST))
            (request,) = reader.told(REQUEST)
            assert (request["tool"], request["command"]) == ("terminal", "rm build")
            assert request["read"] == ["the page example.org"]
            assert "deny" in request["choices"]
            assert "talk" not in request["choices"]
            assert request["description"].startswith("The bot asks whether it may run terminal.")
            run = request["run_id"]
            status = (await api.http.get(f"/v1/runs/{run}")).json()
            assert (status["status"], status["last_event"]) == ("waiting_for_approval", REQUEST)
            assert status["approval"]["request_id"] == request["request_id"]
            assert status["approval"]["expires_at"] == pytest.approx(request["expires_at"])
            assert not reader.ended
            code, said = await decide(api.http, f"/v1/runs/{run}/approval", request_id=request["request_id"])
            assert (code, said["resolved"], said["granted"]) == (200, 1, True)
            await api.eventually(lambda: reader.ended)
        (responded,) = reader.told(RESPONDED)
        assert responded["request_id"] == request["request_id"]
        assert (responded["choice"], responded["resolved"], responded["granted"]) == ("once", 1, True)
        assert responded["by"].startswith("the owner")
        assert len(agent.acted) == 1
        status = (await api.http.get(f"/v1/runs/{run}")).json()
        assert (status["status"], status["output"]) == ("completed", "Let me clean up. Done: rm build. ")
        assert "approval" not in status


@pytest.mark.parametrize("kind", ["runs", "chat", "responses"])
async def test_a_question_shows_no_secret_on_any_stream(tmp_path: Path, kind: str) -> None:
    """D13: what is asked about is redacted, in the event and in the list."""
    agent = Careful(f"curl -H 'Authorization: Bearer {SECRET}' https://example.org")
    async with ApiWorld(tmp_path, agent) as api:
        async with streams(api, kind) as reader:
            question = await asking(api)
            await decide(api.http, f"/v1/approvals/{question['request_id']}", "deny", reason=f"no {SECRET}")
        assert "curl" in question["command"]
        assert SECRET not in str(question)
        assert SECRET not in "".join(frame.data for frame in reader.frames)


async def test_the_sdk_reads_streams_with_questions_as_if_there_were_none(tmp_path: Path) -> None:
    agent = Careful(words="Let me clean up. ")
    async with ApiWorld(tmp_path, agent) as api:
        stream = await api.openai.chat.completions.create(
            model="bot", messages=[{"role": "user", "content": "clean up"}], stream=True
        )
        text = ""
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if getattr(chunk, "approval", {}).get("event") == REQUEST:  # type: ignore[attr-defined]
                await decide(api.http, f"/v1/runs/{chunk.approval['run_id']}/approval")  # type: ignore[attr-defined]
        assert text == "Let me clean up. Done: rm build. "
        async with api.openai.responses.stream(model="bot", input="clean up") as events:
            async for event in events:
                told = getattr(event, "approval", {})
                if told.get("event") == REQUEST:
                    await decide(api.http, f"/v1/approvals/{told['request_id']}")
            final = await events.get_final_response()
        assert final.output_text == "Let me clean up. Done: rm build. "


@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSE)])
async def test_who_waits_for_the_whole_answer_is_not_left_waiting(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    """Without a stream nobody sees the question in time: it is denied after a minute, in the bot's own words."""
    clock, agent = OwnedClock(), Careful()
    async with ApiWorld(tmp_path, agent, clock=clock) as api:
        request = asyncio.create_task(api.http.post(path, json=body))
        await api.eventually(lambda: is_open(api))
        await clock.advance(55)
        assert not request.done()
        await clock.advance(10)
        answer = await request
        assert answer.status_code == 200
        assert "Not done: rm build, nobody answered within 60 seconds." in answer.text
        assert agent.acted == []


async def test_a_run_that_goes_on_by_itself_waits_as_long_as_a_chat_does(tmp_path: Path) -> None:
    clock, agent = OwnedClock(), Careful()
    async with ApiWorld(tmp_path, agent, clock=clock) as api:
        run = await begin(api, "clean up")
        background = (await api.http.post("/v1/responses", json={**RESPONSE, "background": True})).json()
        await api.eventually(lambda: len(api.rows("SELECT 1 FROM approvals WHERE state = 'open'")) == 2)
        await clock.advance(120)
        assert (await api.http.get(f"/v1/runs/{run}")).json()["status"] == "waiting_for_approval"
        shown = (await api.http.get(f"/v1/responses/{background['id']}")).json()
        assert (shown["status"], shown["approval"]["command"]) == ("in_progress", "rm build")
        question = (await api.http.get(f"/v1/runs/{run}")).json()["approval"]["request_id"]
        await clock.advance(1800)
        assert (await api.ended(run))["output"] == "Not done: rm build, nobody answered within 30 minutes. "
        code, said = await decide(api.http, f"/v1/approvals/{question}")
        assert code == 409
        assert said.startswith("Nobody answered until")
        shown = (await api.http.get(f"/v1/approvals/{question}")).json()
        assert (shown["status"], shown["reason"]) == ("expired", "nobody answered within 30 minutes")
        await api.eventually(lambda: not api.rows("SELECT 1 FROM inbox WHERE state <> 'done'"))


async def test_a_question_is_answered_once_and_the_second_is_told_how_it_ended(tmp_path: Path) -> None:
    agent = Careful()
    async with ApiWorld(tmp_path, agent) as api:
        run = await begin(api, "clean up")
        question = (await asking(api))["request_id"]
        ways = (f"/v1/approvals/{question}", f"/v1/runs/{run}/approval")
        assert (await decide(api.http, ways[0], "deny", reason="not\nnow"))[0] == 200
        done = await api.ended(run)
        assert done["output"].startswith("Not done: rm build, the owner")
        assert done["output"].endswith("denied it: not now. ")
        for path, more in ((ways[0], {}), (ways[1], {"request_id": question})):
            code, said = await decide(api.http, path, **more)
            assert (code, said.startswith("Denied by the owner")) == (409, True)
        assert await decide(api.http, ways[1]) == (409, "this run does not wait for an answer")
        assert agent.acted == []


async def test_an_approval_for_a_talk_is_called_session(tmp_path: Path) -> None:
    agent = Careful()
    async with ApiWorld(tmp_path, agent) as api:
        for word in ("session", "talk"):
            run = await begin(api, "clean up", session_id=f"the {word}")
            question = await asking(api)
            assert question["choices"] == ["once", "session", "always", "deny"]
            code, said = await decide(api.http, f"/v1/runs/{run}/approval", word)
            assert (code, said["choice"]) == (200, "session")
            await api.ended(run)
            covered = await begin(api, "again", session_id=f"the {word}")
            (responded,) = [each.json for each in await api.watch(covered) if each.json["event"] == RESPONDED]
            assert (responded["granted"], responded["choice"]) == (True, "session")
        assert len(agent.acted) == 4
        run = await begin(api, "clean up", session_id="another")
        await asking(api)
        assert (await decide(api.http, f"/v1/runs/{run}/approval", "approve"))[1]["choice"] == "once"
        await api.ended(run)
        for wrong in ("yes", "", 1, None):
            answer = await api.http.post(f"/v1/runs/{run}/approval", json={"choice": wrong})
            assert answer.status_code == 400, wrong


async def test_questions_of_others_do_not_exist(tmp_path: Path) -> None:
    """Two keys, every route: what is not this person's answers as if it had never been."""
    agent = Careful()
    async with ApiWorld(tmp_path, agent, allow=["paper:8", "paper:9"], approvals={"members_approve": True}) as api:
        ada = await api.new_key("ada", "runs", "approve", person="paper:8")
        bob = await api.new_key("bob", "runs", "approve", person="paper:9")
        async with api.client(ada) as at_adas, api.client(bob) as at_bobs:
            run = (await at_adas.post("/v1/runs", json={"input": "clean up"})).json()["run_id"]
            question = (await asking(api))["request_id"]
            assert [each["request_id"] for each in (await at_adas.get("/v1/approvals")).json()["data"]] == [question]
            assert (await at_bobs.get("/v1/approvals")).json()["data"] == []
            foreign = await answers(at_bobs, question, run)
            assert foreign == await answers(at_bobs, *UNKNOWN)
            assert {status for status, _ in foreign} == {404}
            # The person whom a client names is another person than the key's holder.
            named = {"X-OpenWebUI-User-Id": "mallory"}
            assert (await at_adas.get("/v1/approvals", headers=named)).json()["data"] == []
            assert await answers(at_adas, question, run, named) == await answers(at_adas, *UNKNOWN, named)
            # A part of an id is nobody's.
            assert (await at_adas.get(f"/v1/approvals/{question[:12]}")).status_code == 404
            assert (await decide(at_adas, f"/v1/approvals/{run}"))[0] == 404
            assert is_open(api)
            assert (await decide(at_adas, f"/v1/runs/{run}/approval"))[0] == 200
            await api.ended(run)
        assert len(agent.acted) == 1


async def answers(
    http: httpx.AsyncClient, question: str, run: str, headers: dict[str, str] | None = None
) -> list[tuple[int, str]]:
    """Every route that takes an id of either kind."""
    given = {"choice": "once"}
    asked = [
        http.get(f"/v1/approvals/{question}", headers=headers),
        http.post(f"/v1/approvals/{question}", json=given, headers=headers),
        http.post(f"/v1/runs/{run}/approval", json=given, headers=headers),
        http.post(f"/v1/runs/{run}/approval", json={**given, "request_id": question}, headers=headers),
    ]
    return [((answer := await each).status_code, answer.text) for each in asked]


async def test_a_request_id_of_another_run_is_unknown_there(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Careful()) as api:
        first = await begin(api, "clean up")
        question = (await asking(api))["request_id"]
        await api.http.post(f"/v1/runs/{first}/stop")
        await api.ended(first)
        second = await begin(api, "clean up")
        await asking(api)
        assert (await decide(api.http, f"/v1/runs/{second}/approval", request_id=question))[0] == 404
        assert (await decide(api.http, f"/v1/runs/{second}/approval", "deny"))[0] == 200
        await api.ended(second)


async def test_a_member_sees_their_question_and_waits_for_who_may_answer(tmp_path: Path) -> None:
    """The owner answers by a key with the scope, whoever's run it is; the member is refused in words."""
    agent = Careful()
    async with ApiWorld(tmp_path, agent, platforms={"paper": Kind()}, allow=["paper:8"], owners=["paper:7"]) as api:
        await with_home(api)
        member = await api.new_key("member", "runs", "approve", person="paper:8")
        owner = await api.new_key("owners", "approve", person="paper:7")
        async with api.client(member) as theirs, api.client(owner) as owners:
            run = (await theirs.post("/v1/runs", json={"input": "clean up"})).json()["run_id"]
            question = (await asking(api))["request_id"]
            assert len((await theirs.get("/v1/approvals")).json()["data"]) == 1
            for path in (f"/v1/approvals/{question}", f"/v1/runs/{run}/approval"):
                assert await decide(theirs, path) == (403, "only an owner or admin can answer this")
            assert (await owners.get(f"/v1/runs/{run}")).status_code == 403
            # Another key's run is not this key's, but its question is for this person to answer.
            assert (await decide(owners, f"/v1/runs/{run}/approval"))[0] == 404
            assert (await decide(owners, f"/v1/approvals/{question}"))[0] == 200
            await api.ended(run)
        assert len(agent.acted) == 1


async def test_only_an_owner_approves_for_always_over_http(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Careful(), access={"admins": ("paper:8",)}) as api:
        async with api.client(await api.new_key("admin", "runs", "approve", person="paper:8")) as http:
            run = (await http.post("/v1/runs", json={"input": "clean up", "session_id": "a"})).json()["run_id"]
            assert "always" not in (await asking(api))["choices"]
            refused = (403, "only an owner can approve something for always")
            assert await decide(http, f"/v1/runs/{run}/approval", "always") == refused
            assert (await decide(http, f"/v1/runs/{run}/approval", "deny"))[0] == 200
        await api.ended(run)


async def test_a_key_that_is_bound_to_bots_sees_their_questions_only(tmp_path: Path) -> None:
    agents = {"bot": Echo(), "cleaner": Careful()}
    async with ApiWorld(tmp_path, agents) as api:
        bound = await api.new_key("bound", "runs", "approve", bots=("bot",))
        free = await api.new_key("free", "approve", bots=("cleaner",))
        run = await begin(api, "clean up", model="cleaner")
        question = (await asking(api))["request_id"]
        async with api.client(bound) as http:
            assert (await http.get("/v1/approvals")).json()["data"] == []
            assert await answers(http, question, run) == await answers(http, *UNKNOWN)
        async with api.client(free) as http:
            assert (await decide(http, f"/v1/approvals/{question}", "deny"))[0] == 200
        await api.ended(run)


async def test_the_owner_answers_in_their_chat_and_the_stream_shows_it(tmp_path: Path) -> None:
    """The client of the API cannot answer, so the owner is asked at home; the client sees both."""
    agent = Careful()
    async with ApiWorld(tmp_path, agent, platforms={"paper": Kind()}, allow=["paper:8"], owners=["paper:7"]) as api:
        await with_home(api)
        key = await api.new_key("script", "chat", person="paper:8")
        paper = api.papers["paper"]
        async with (
            api.client(key) as http,
            reading(http, "POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as reader,
        ):
            await paper.until(lambda paper: paper.posts_in("home"))
            (question,) = paper.visible("home")
            assert "paper:8" in question.text
            await api.eventually(lambda: reader.told(REQUEST))
            paper.presses(question.id, button(question, "Once"), sender="7")
        (responded,) = reader.told(RESPONDED)
        assert "paper:7" in responded["by"]
        assert reader.frames[-1].data == "[DONE]"
        assert len(agent.acted) == 1


async def test_where_nobody_can_be_asked_the_stream_says_so_and_goes_on(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Careful(), allow=["paper:8"]) as api:
        async with (
            api.client(await api.new_key("script", "chat", "runs", person="paper:8")) as http,
            reading(http, "POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as reader,
        ):
            await api.eventually(lambda: reader.ended)
        assert reader.told(REQUEST) == []
        (responded,) = reader.told(RESPONDED)
        assert (responded["granted"], responded["choice"]) == (False, "deny")
        assert responded["reason"] == "nobody who may approve it can be reached"


async def test_stopping_a_run_that_waits_ends_it(tmp_path: Path) -> None:
    agent = Careful()
    async with ApiWorld(tmp_path, agent) as api:
        run = await begin(api, "clean up")
        question = (await asking(api))["request_id"]
        assert (await api.http.post(f"/v1/runs/{run}/stop")).json()["status"] == "stopping"
        assert (await api.ended(run))["status"] == "cancelled"
        assert (await api.http.get(f"/v1/approvals/{question}")).json()["status"] == "withdrawn"
        code, said = await decide(api.http, f"/v1/approvals/{question}")
        assert (code, said.startswith("No longer needed")) == (409, True)
        assert agent.acted == []


async def test_a_client_that_leaves_while_its_question_waits_ends_its_run(tmp_path: Path) -> None:
    agent = Careful()
    async with ApiWorld(tmp_path, agent) as api:
        request = asyncio.create_task(api.http.post("/v1/chat/completions", json=CHAT))
        run = (await asking(api))["run_id"]
        request.cancel()
        done = await api.ended(run)
        assert (done["status"], done["error"]) == ("cancelled", "stopped by the client, who has gone")
        assert (await api.http.get("/v1/approvals")).json()["data"] == []


async def test_a_run_survives_a_kill_while_it_asks_and_its_events_go_on_where_they_were(tmp_path: Path) -> None:
    agent = Careful(words="Let me clean up. ")
    async with ApiWorld(tmp_path, agent) as api:
        run = await begin(api, "clean up")
        question = (await asking(api))["request_id"]
        async with api.http.stream("GET", f"/v1/runs/{run}/events") as response:
            async for frame in api.frames(response):
                if frame.json["event"] == REQUEST:
                    break
        await api.crash()
        await api.start()
        assert (await api.http.get(f"/v1/runs/{run}")).json()["status"] == "waiting_for_approval"
        assert (await decide(api.http, f"/v1/runs/{run}/approval", request_id=question))[0] == 200
        rest = await api.watch(run, frame.id)
        assert names(rest)[0] == RESPONDED
        assert names(rest)[-1] == "run.completed"
        assert REQUEST not in names(rest)
        assert rest[-1].json["output"] == "Let me clean up. Done: rm build. "
        assert len(agent.acted) == 1


async def test_an_attended_request_that_asks_fails_visibly_over_a_restart(tmp_path: Path) -> None:
    agent = Careful()
    async with ApiWorld(tmp_path, agent) as api:
        request = asyncio.create_task(api.http.post("/v1/chat/completions", json=CHAT))
        question = await asking(api)
        await api.crash()
        with pytest.raises(httpx.HTTPError):
            await request
        await api.start()
        done = await api.ended(question["run_id"])
        assert (done["status"], done["error"]) == ("failed", "interrupted by a restart")
        assert (await api.http.get(f"/v1/approvals/{question['request_id']}")).json()["status"] == "withdrawn"
        assert agent.acted == []


async def test_runs_that_wait_keep_no_place_from_others(tmp_path: Path) -> None:
    """E9: with room for eight answers in work, twenty questions wait and another request is answered."""
    agents = {"bot": Careful(), "echo": Echo()}
    async with ApiWorld(tmp_path, agents, settings={"requests": 8}) as api:
        for number in range(20):
            await begin(api, "clean up")
            await api.eventually(
                lambda number=number: len(api.rows("SELECT 1 FROM approvals WHERE state = 'open'")) == number + 1  # type: ignore[misc]
            )
            await api.eventually(lambda: not api.adapter._service._slots._owners)
        done = await api.http.post("/v1/chat/completions", json={**CHAT, "model": "echo"})
        assert done.status_code == 200
        health = (await api.http.get("/health/detailed")).json()
        assert health["overview"]["asking"] == 20
        assert 'tidings_queue_depth{queue="approvals"} 20.0' in (await api.http.get("/metrics")).text
        for question in (await api.http.get("/v1/approvals")).json()["data"]:
            await api.gateway.desk.approvals.answer(OWNER, question["request_id"], Choice.DENY)
        await api.eventually(lambda: not api.rows("SELECT 1 FROM inbox WHERE state <> 'done'"))


async def test_a_person_whom_a_client_names_answers_their_own_and_never_more(tmp_path: Path) -> None:
    agent = Careful()
    async with ApiWorld(tmp_path, agent, approvals={"members_approve": True}) as api:
        key = await api.new_key("webui", "runs", "approve")
        alice, bob = ({"X-OpenWebUI-User-Id": name} for name in ("alice", "bob"))
        async with api.client(key) as http:
            run = (await http.post("/v1/runs", json={"input": "clean up"}, headers=alice)).json()["run_id"]
            question = (await asking(api))["request_id"]
            assert (await http.get("/v1/approvals", headers=bob)).json()["data"] == []
            assert await answers(http, question, run, bob) == await answers(http, *UNKNOWN, bob)
            done = await http.post(f"/v1/runs/{run}/approval", json={"choice": "once"}, headers=alice)
            assert done.status_code == 200
            assert "alice" in done.json()["by"]
        await api.ended(run)
        assert len(agent.acted) == 1


async def test_the_role_of_a_named_person_never_rises_above_the_holders(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Careful(), allow=["paper:8"]) as api:
        key = await api.new_key("script", "runs", "approve", person="paper:8")
        people = api.gateway.desk.people
        own = {each.name: each.id for each in people.keys()}["script"]  # noqa: SIM118
        await people.admit(OWNER, f"api:{own}/root", Role.OWNER)
        run = await begin(api, "clean up")
        question = (await asking(api))["request_id"]
        named = {"X-OpenWebUI-User-Id": "root"}
        async with api.client(key) as http:
            assert (await http.get("/v1/approvals", headers=named)).json()["data"] == []
            assert await answers(http, question, run, named) == await answers(http, *UNKNOWN, named)
        await api.http.post(f"/v1/runs/{run}/stop")
        await api.ended(run)
