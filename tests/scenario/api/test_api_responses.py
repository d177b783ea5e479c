"""Responses, driven by the real OpenAI SDK: items that grow, chains, memory, and failures that stay failures."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.worlds.api import ApiWorld, Frame
from tests.worlds.world import Gate, Scripted, Takes
from tidings.core.agent import (
    Effect,
    FileMade,
    Finished,
    OutcomeKind,
    ReasoningDelta,
    ToolFinished,
    ToolStarted,
    Turn,
    Usage,
)
from tidings.core.types import Author

PERSON, BOT, NOTICE = Author.PERSON, Author.BOT, Author.NOTICE
TEXT = ("Let me see. ", "Naïve 😀, ", "漢字.\n\nDone. ")
SECRET = "sk-proj-Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZg"

BUSY = Scripted(
    ReasoningDelta("hmm"),
    TEXT[0],
    ToolStarted("one", "look", '{"at": "cellar"}', Effect.PURE),
    ToolFinished("one", "12 bottles"),
    TEXT[1],
    ToolStarted("two", "count", "", Effect.PURE),
    ToolFinished("two", error="it is broken"),
    TEXT[2],
    Finished(usage=Usage(input_tokens=7, output_tokens=5)),
)
FAILURES = {
    "it raises": Scripted("I begin. ", RuntimeError(f"401: the key {SECRET} is wrong")),
    "it says so": Scripted("I begin. ", Finished(OutcomeKind.FAILED, f"402: no credit for {SECRET}")),
    "its stream is cut off": Scripted("I begin. ", finish=False),
    "it says nothing": Scripted(),
}
each_failure = pytest.mark.parametrize("agent", [pytest.param(agent, id=name) for name, agent in FAILURES.items()])


def seen(turn: Turn) -> list[tuple[Author, str]]:
    return [(entry.author, entry.text) for entry in turn.history]


async def streamed(api: ApiWorld, body: dict[str, Any] | None = None) -> list[Frame]:
    """Frame by frame; each is named as its data says, and they are counted without a gap."""
    asked = {"input": "hi", "stream": True, **(body or {})}
    async with api.http.stream("POST", "/v1/responses", json=asked) as response:
        assert response.status_code == 200, await response.aread()
        frames = [frame async for frame in api.frames(response)]
    assert [frame.json["sequence_number"] for frame in frames] == list(range(len(frames)))
    assert [frame.event for frame in frames] == [frame.json["type"] for frame in frames]
    return frames


async def only_run(api: ApiWorld) -> str:
    await api.eventually(lambda: api.runs())
    (row,) = api.runs()
    return str(row["run"])


# One response.


async def test_a_response_has_an_item_for_everything_that_happened(tmp_path: Path) -> None:
    """F11: an output is a list of parts, and every item says that it is completed."""
    async with ApiWorld(tmp_path, BUSY) as api:
        response = await api.openai.responses.create(model="bot", input="hi")
        again = await api.openai.responses.retrieve(response.id)
    assert (response.status, response.output_text, response.error) == ("completed", "".join(TEXT), None)
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (7, 5, 12)
    items = [item.model_dump(exclude_unset=True) for item in response.output]
    assert [item["type"] for item in items] == ["reasoning", "message", "mcp_call", "message", "mcp_call", "message"]
    assert [item["status"] for item in items if item["type"] != "mcp_call"] == ["completed"] * 4
    assert len({item["id"] for item in items}) == len(items)
    look, count = items[2], items[4]
    assert (look["server_label"], look["name"], look["arguments"]) == ("tidings", "look", '{"at": "cellar"}')
    assert (look["status"], look["output"], look["error"]) == ("completed", "12 bottles", None)
    assert (count["status"], count["arguments"], count["output"]) == ("failed", "{}", None)
    assert count["error"]["content"] == [{"type": "text", "text": "it is broken"}]
    assert again == response


async def test_tools_are_told_as_functions_where_the_settings_say_so(tmp_path: Path) -> None:
    """F11: an output is a list of parts, and every item says that it is completed."""
    async with ApiWorld(tmp_path, BUSY, settings={"tool_items": "function_call"}) as api:
        response = await api.openai.responses.create(model="bot", input="hi")
        frames = await streamed(api)
    items = [item.model_dump(exclude_unset=True) for item in response.output]
    kinds = ["reasoning", "message", "function_call", "function_call_output", "message", "function_call"]
    assert [item["type"] for item in items] == [*kinds, "function_call_output", "message"]
    assert {item["status"] for item in items} == {"completed"}
    called, output = items[2], items[3]
    assert (called["name"], called["arguments"], called["call_id"]) == ("look", '{"at": "cellar"}', "one")
    assert (output["call_id"], output["output"]) == ("one", [{"type": "input_text", "text": "12 bottles"}])
    assert (items[5]["arguments"], items[6]["output"][0]["text"]) == ("{}", "it is broken")
    done = [frame.json["item"]["type"] for frame in frames if frame.event == "response.output_item.done"]
    assert done == [item["type"] for item in items]


async def test_a_stream_is_the_same_response_as_it_grows(tmp_path: Path) -> None:
    """A4, B7."""
    async with ApiWorld(tmp_path, BUSY) as api:
        stream = await api.openai.responses.create(model="bot", input="hi", stream=True)
        events: list[Any] = [event async for event in stream]
        kept = await api.openai.responses.retrieve(events[0].response.id)
    types = [event.type for event in events]
    assert types[:2] == ["response.created", "response.in_progress"]
    assert types[-1] == "response.completed"
    assert [type for type in types if type in ("response.completed", "response.failed")] == ["response.completed"]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert "".join(event.delta for event in deltas) == "".join(TEXT)
    final = events[-1].response
    assert final == kept
    # Each item is added, grows and is done before the next one, at its own place.
    added = [event for event in events if event.type == "response.output_item.added"]
    done = [event for event in events if event.type == "response.output_item.done"]
    assert [event.output_index for event in added] == [event.output_index for event in done] == list(range(6))
    assert [event.item for event in done] == final.output
    for event in deltas:
        assert final.output[event.output_index].id == event.item_id
    assert "".join(event.delta for event in events if event.type == "response.reasoning_text.delta") == "hmm"


async def test_the_sdks_own_accumulation_agrees_with_the_response(tmp_path: Path) -> None:
    async with (
        ApiWorld(tmp_path, Scripted("one ", "two ", Finished(usage=Usage(input_tokens=1)))) as api,
        api.openai.responses.stream(model="bot", input="hi") as stream,
    ):
        text = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
        final = await stream.get_final_response()
    assert text == final.output_text == "one two "


async def test_a_file_that_cannot_be_handed_over_is_named_in_the_text(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Scripted(FileMade("/nowhere/report.txt", "report.txt"))) as api:
        response = await api.openai.responses.create(model="bot", input="hi")
        frames = await streamed(api)
    words = "(The file report.txt cannot be sent here.)"
    assert response.output_text == words
    deltas = [frame.json["delta"] for frame in frames if frame.event == "response.output_text.delta"]
    assert "".join(deltas) == words


# A failure is never a success.


@each_failure
async def test_a_failed_response_is_an_error_and_cannot_be_built_upon(tmp_path: Path, agent: Scripted) -> None:
    """A1, A3."""
    async with ApiWorld(tmp_path, agent) as api:
        with pytest.raises(openai.APIStatusError) as raised:
            await api.openai.responses.create(model="bot", input="hi")
        assert raised.value.status_code == 424
        answer = raised.value.response.json()
        assert (answer["status"], answer["error"]["type"]) == ("failed", "server_error")
        assert answer["error"]["message"]
        assert SECRET not in raised.value.response.text
        kept = await api.openai.responses.retrieve(answer["id"])
        assert kept.status == "failed"
        for stream in (False, True):
            body = {"input": "and then?", "previous_response_id": answer["id"], "stream": stream}
            refused = await api.http.post("/v1/responses", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "response_failed")
        begun = await api.http.post("/v1/runs", json={"input": "and then?", "previous_response_id": answer["id"]})
        assert begun.status_code == 400
        assert len(api.runs()) == 1


@each_failure
async def test_a_failed_stream_ends_with_response_failed(tmp_path: Path, agent: Scripted) -> None:
    """A1, A2, A3."""
    async with ApiWorld(tmp_path, agent) as api:
        frames = await streamed(api)
    ends = [frame.event for frame in frames if frame.event in ("response.failed", "response.completed")]
    assert ends == ["response.failed"]
    response = frames[-1].json["response"]
    assert (response["status"], bool(response["error"]["message"])) == ("failed", True)
    assert SECRET not in "".join(frame.data for frame in frames)


async def test_a_halted_response_is_incomplete_and_explains_itself(tmp_path: Path) -> None:
    """A2, A5."""
    async with ApiWorld(tmp_path, Scripted("x" * 2000), limits={"output_characters": 1000}) as api:
        response = await api.openai.responses.create(model="bot", input="hi")
        frames = await streamed(api)
        follow_up = await api.http.post("/v1/responses", json={"input": "go on", "previous_response_id": response.id})
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text.endswith("\n\n(I stopped here: the answer grew past 1000 characters.)")
    assert frames[-1].event == "response.incomplete"
    deltas = [frame.json["delta"] for frame in frames if frame.event == "response.output_text.delta"]
    assert "".join(deltas) == response.output_text
    assert follow_up.status_code == 200, "what was said is worth building upon"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_response_that_is_stopped_is_no_success(tmp_path: Path, stream: bool) -> None:
    """A2: the status says what happened; the event is one that clients know."""
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted("I begin. ", gate)) as api:
        asking = asyncio.create_task(api.http.post("/v1/responses", json={"input": "hi", "stream": stream}))
        await gate.reached()
        await api.http.post(f"/v1/runs/{await only_run(api)}/stop")
        answer = await asking
        frames = [frame async for frame in api.frames(answer)] if stream else []
    response = frames[-1].json["response"] if stream else answer.json()
    assert response["status"] == "cancelled"
    assert response["error"]["message"] == "stopped by owner"
    assert answer.status_code == (200 if stream else 424)
    assert not stream or frames[-1].event == "response.failed"


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_client_that_goes_away_in_the_middle_of_a_stream(tmp_path: Path, goes_on: bool) -> None:
    gate = Gate()
    agent = Scripted("I begin. ", gate, "I end.")
    async with ApiWorld(tmp_path, agent, settings={"stop_when_gone": not goes_on}) as api:
        stream = await api.openai.responses.create(model="bot", input="hi", stream=True)
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        run = await only_run(api)
        if goes_on:
            gate.open()
        ended = await api.ended(run)
        kept = await api.openai.responses.retrieve(run.replace("run_", "resp_"))
    if goes_on:
        assert (ended["status"], kept.status, kept.output_text) == ("completed", "completed", "I begin. I end.")
    else:
        assert (ended["status"], kept.status, kept.output_text) == ("cancelled", "cancelled", "I begin. ")


# What went before.


async def test_a_response_builds_upon_any_earlier_one(tmp_path: Path) -> None:
    """A chain, and a branch from its middle: each sees what lies before it, with what tools put out, and no more."""
    look = ToolStarted("one", "look", "{}", Effect.PURE), ToolFinished("one", "12 bottles")
    agent = Takes(Scripted(*look, "Twelve."), Scripted("Red."), Scripted("Eleven."), Scripted("Thanks."))
    async with ApiWorld(tmp_path, agent) as api:
        create = api.openai.responses.create
        first = await create(model="bot", input="How many?", instructions="Be brief.")
        second = await create(model="bot", input="Which?", previous_response_id=first.id)
        branch = await create(model="bot", input="I take one.", previous_response_id=first.id)
        third = await create(model="bot", input="Good.", previous_response_id=second.id)
        places = {row["conversation"] for row in api.runs()}
    tool = (NOTICE, "(The tool look gave this output, which is data: 12 bottles)")
    link = [(PERSON, "How many?"), tool, (BOT, "Twelve.")]
    assert [seen(turn) for turn in agent.turns] == [[], link, link, [*link, (PERSON, "Which?"), (BOT, "Red.")]]
    assert [first.previous_response_id, branch.previous_response_id] == [None, first.id]
    assert third.previous_response_id == second.id
    # Instructions are the request's own; the session is the chain's.
    given = [turn.message.given for turn in agent.turns]
    assert [each and each.instructions for each in given] == ["Be brief.", "", "", ""]
    assert len(places) == 1


async def test_a_chain_holds_over_a_crash(tmp_path: Path) -> None:
    agent = Takes(Scripted("Twelve."), Scripted("Red."))
    async with ApiWorld(tmp_path, agent) as api:
        first = await api.openai.responses.create(model="bot", input="How many?")
        await api.crash()
        await api.start()
        assert await api.openai.responses.retrieve(first.id) == first
        await api.openai.responses.create(model="bot", input="Which?", previous_response_id=first.id)
    assert seen(agent.turns[1]) == [(PERSON, "How many?"), (BOT, "Twelve.")]


async def test_a_named_conversation_remembers_and_each_user_has_one_of_their_own(tmp_path: Path) -> None:
    """C7: who it is says the request, not the text."""
    agent = Scripted("noted")
    async with ApiWorld(tmp_path, agent) as api:
        for user, text in (("ada", "I am Ada"), ("bob", "I am Ada, too"), ("ada", "who am I?"), ("bob", "and I?")):
            await api.openai.responses.create(model="bot", input=text, conversation="home", user=user)
        await api.openai.responses.create(model="bot", input="and nobody?", conversation={"id": "home"})
    noted = (BOT, "noted")
    assert [seen(turn) for turn in agent.turns] == [
        [],
        [],
        [(PERSON, "I am Ada"), noted],
        [(PERSON, "I am Ada, too"), noted],
        [],
    ]
    ids = {turn.message.sender.id for turn in agent.turns}
    assert len(ids) == 3
    assert not any(turn.message.sender.trusted for turn in agent.turns)


async def test_a_chain_from_a_named_conversation_has_what_that_response_had(tmp_path: Path) -> None:
    agent = Scripted("noted")
    async with ApiWorld(tmp_path, agent) as api:
        await api.openai.responses.create(model="bot", input="one", conversation="home")
        second = await api.openai.responses.create(model="bot", input="two", conversation="home")
        await api.openai.responses.create(model="bot", input="three", conversation="home")
        await api.openai.responses.create(model="bot", input="or rather", previous_response_id=second.id)
    noted = (BOT, "noted")
    assert seen(agent.turns[3]) == [(PERSON, "one"), noted, (PERSON, "two"), noted]


async def test_without_a_name_or_a_chain_nothing_is_remembered(tmp_path: Path) -> None:
    agent = Scripted("noted")
    async with ApiWorld(tmp_path, agent) as api:
        for _ in range(2):
            await api.openai.responses.create(model="bot", input="hi", user="ada")
    assert [seen(turn) for turn in agent.turns] == [[], []]


# As Open WebUI sends them: the second turn replays the first one's items, the third goes on from an id.
WEBUI_SECOND = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is in the cellar?"}]},
    {"type": "function_call", "id": "fc_1", "call_id": "one", "name": "look", "arguments": "{}", "status": "completed"},
    {
        "type": "function_call_output",
        "id": "fco_1",
        "call_id": "one",
        "output": [{"type": "input_text", "text": "12 bottles"}],
        "status": "completed",
    },
    {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Twelve bottles.", "annotations": []}],
    },
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And in the attic?"}]},
]


async def test_open_webui_replays_tool_results_and_then_chains(tmp_path: Path) -> None:
    """C9, F11."""
    agent = Takes(Scripted("None."), Scripted("Good night."))
    headers = {"X-OpenWebUI-Chat-Id": "0b5ae6d2"}
    async with ApiWorld(tmp_path, agent) as api:
        asked = {"model": "bot", "input": WEBUI_SECOND, "instructions": "You help Ada.", "store": True}
        second = (await api.http.post("/v1/responses", json=asked, headers=headers)).json()
        output = {"type": "function_call_output", "call_id": "two", "output": "a bat"}
        brought = [output, {"role": "user", "content": "Go on."}]
        chained = {"model": "bot", "input": brought, "previous_response_id": second["id"], "stream": True}
        frames = await streamed(api, chained)
        third = frames[-1].json["response"]
        last = {"model": "bot", "input": "Bye.", "previous_response_id": third["id"]}
        await api.http.post("/v1/responses", json=last, headers=headers)
        places = {row["conversation"] for row in api.runs()}
    before = [
        (PERSON, "What is in the cellar?"),
        (NOTICE, "(The tool look was called with: {})"),
        (NOTICE, "(The tool of the client gave this output, which is data: 12 bottles)"),
        (BOT, "Twelve bottles."),
    ]
    bat = (NOTICE, "(The tool of the client gave this output, which is data: a bat)")
    attic = [*before, (PERSON, "And in the attic?"), (BOT, "None.")]
    assert [turn.message.text for turn in agent.turns] == ["And in the attic?", "Go on.", "Bye."]
    assert seen(agent.turns[0]) == before
    assert seen(agent.turns[1]) == [*attic, bat]
    assert seen(agent.turns[2]) == [*attic, bat, (PERSON, "Go on."), (BOT, "Good night.")]
    assert places == {"api:main:owner:0b5ae6d2"}, "one session for one chat"


# What is refused.


async def test_what_is_not_there_or_anothers_is_not_found(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Scripted("hi")) as api:
        kept = await api.openai.responses.create(model="bot", input="hi")
        gone = await api.openai.responses.create(model="bot", input="hi")
        unstored = await api.openai.responses.create(model="bot", input="hi", store=False)
        deleted = await api.http.delete(f"/v1/responses/{gone.id}")
        assert deleted.json() == {"id": gone.id, "object": "response", "deleted": True}
        stranger = await api.new_key("stranger", "chat")
        async with api.client(stranger) as other:
            for http, id in ((api.http, gone.id), (api.http, unstored.id), (other, kept.id), (api.http, "resp_0")):
                looked = await http.get(f"/v1/responses/{id}")
                chained = await http.post("/v1/responses", json={"input": "go on", "previous_response_id": id})
                removed = await http.delete(f"/v1/responses/{id}")
                for answer in (looked, chained, removed):
                    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "response_not_found")
        assert (await api.openai.responses.retrieve(kept.id)).output_text == "hi"


async def test_a_response_that_still_grows_can_be_looked_at_but_not_built_upon(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted("I begin. ", gate, "I end.")) as api:
        asking = asyncio.create_task(api.http.post("/v1/responses", json={"input": "hi"}))
        await gate.reached()
        id = (await only_run(api)).replace("run_", "resp_")
        assert (await api.openai.responses.retrieve(id)).status == "in_progress"
        early = await api.http.post("/v1/responses", json={"input": "go on", "previous_response_id": id})
        assert (early.status_code, early.json()["error"]["code"]) == (409, "response_not_finished")
        gate.open()
        assert (await asking).json()["status"] == "completed"


@pytest.mark.parametrize(
    "body",
    [
        {"input": "hi", "previous_response_id": "resp_1", "conversation": "home"},
        {"input": ""},
        {"input": []},
        {"input": [{"role": "assistant", "content": "the last word"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}]},
        {"input": [{"type": "computer_call_output"}]},
        {},
    ],
)
async def test_what_cannot_be_answered_is_refused_at_once(tmp_path: Path, body: dict[str, Any]) -> None:
    async with ApiWorld(tmp_path, Scripted("hi")) as api:
        refused = await api.http.post("/v1/responses", json=body)
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["type"] == "invalid_request_error"
        assert api.runs() == []
