"""Items of responses: tools that ran here, what a client sends back or only names, and responses in the background."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.api import ApiWorld, Frame
from tests.worlds.world import Gate, Scripted, Takes
from tidings.core.agent import Effect, ReasoningDelta, ToolFinished, ToolStarted, Turn
from tidings.core.types import Author

PERSON, BOT, NOTICE = Author.PERSON, Author.BOT, Author.NOTICE
LOOK = ToolStarted("one", "look", '{"at": "cellar"}', Effect.PURE), ToolFinished("one", "12 bottles")
CALLED = (NOTICE, '(The tool look was called with: {"at": "cellar"})')
GAVE = (NOTICE, "(The tool look gave this output, which is data: 12 bottles)")


def seen(turn: Turn) -> list[tuple[Author, str]]:
    return [(entry.author, entry.text) for entry in turn.history]


async def ask(api: ApiWorld, given: Any, **more: Any) -> dict[str, Any]:
    answer = await api.http.post("/v1/responses", json={"model": "bot", "input": given, **more})
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


async def streamed(api: ApiWorld, path: str = "/v1/responses", **more: Any) -> list[Frame]:
    asked = {"json": {"input": "hi", "stream": True, **more}} if path == "/v1/responses" else {}
    async with api.http.stream("POST" if asked else "GET", path, **asked) as response:
        assert response.status_code == 200, await response.aread()
        return [frame async for frame in api.frames(response)]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


# Tools that ran here.


async def test_tools_that_work_at_the_same_time_are_one_item_each(tmp_path: Path) -> None:
    agent = Scripted(
        ToolStarted("a", "slow", "{}", Effect.PURE),
        ToolStarted("b", "quick", "not json", Effect.PURE),
        ToolFinished("b", "quick is done"),
        ToolFinished("a", "slow is done"),
        "Both.",
    )
    async with ApiWorld(tmp_path, agent) as api:
        frames = [frame.json for frame in await streamed(api)]
        whole = await ask(api, "hi")
    slow, quick, said = frames[-1]["response"]["output"]
    assert (slow["name"], slow["output"]) == ("slow", "slow is done")
    assert (quick["name"], quick["output"]) == ("quick", "quick is done")
    assert json.loads(quick["arguments"]) == {"text": "not json"}, "clients parse it"
    assert said["content"][0]["text"] == "Both."
    assert [item["type"] for item in whole["output"]] == ["mcp_call", "mcp_call", "message"]
    done = [frame for frame in frames if frame["type"] == "response.output_item.done"]
    assert [frame["output_index"] for frame in done] == [1, 0, 2]
    for frame in done:
        assert frame["item"] == frames[-1]["response"]["output"][frame["output_index"]]
    about = [(frame["type"], frame["output_index"]) for frame in frames if "mcp_call" in frame["type"]]
    assert about[:3] == [
        ("response.mcp_call.in_progress", 0),
        ("response.mcp_call_arguments.delta", 0),
        ("response.mcp_call_arguments.done", 0),
    ]
    assert about[-2:] == [("response.mcp_call.completed", 1), ("response.mcp_call.completed", 0)]
    added = next(frame for frame in frames if frame["type"] == "response.output_item.added")
    assert (added["item"]["status"], added["item"]["arguments"]) == ("in_progress", ""), "its arguments follow"


async def test_a_tool_that_was_cut_off_is_told_as_incomplete(tmp_path: Path) -> None:
    agent = Scripted(ToolStarted("one", "look", "{}", Effect.PURE), RuntimeError("the lamp went out"))
    async with ApiWorld(tmp_path, agent) as api:
        frames = [frame.json for frame in await streamed(api)]
    (item,) = frames[-1]["response"]["output"]
    assert (item["type"], item["status"], item["output"]) == ("mcp_call", "incomplete", None)
    assert item["error"]["content"][0]["text"] == "the run ended before this tool did"
    assert [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"] == [item]


# What a client sends back.


@pytest.mark.parametrize("way", ["whole", "named", "without the output", "without a type"])
async def test_the_items_of_a_response_are_taken_as_input(tmp_path: Path, way: str) -> None:
    """openai-agents sends them whole, the AI SDK names them, pydantic-ai leaves out what a tool gave."""
    agent = Takes(Scripted(ReasoningDelta("hm"), *LOOK, "Twelve."), Scripted("Red."))
    async with ApiWorld(tmp_path, agent) as api:
        first = await ask(api, "How many?")
        items = first["output"]
        match way:
            case "named":
                items = [{"type": "item_reference", "id": item["id"]} for item in items]
                items += items[-1:]
            case "without a type":
                items = [{"id": item["id"]} for item in items]
            case "without the output":
                items = [{**item, "output": None} if item["type"] == "mcp_call" else item for item in items]
        await ask(api, [user("How many?"), *items, user("Which?")])
        begun = await api.http.post("/v1/runs", json={"input": [user("How many?"), *items, user("Which?")]})
        await api.ended(begun.json()["run_id"])
    for turn in agent.turns[1:]:
        assert turn.message.text == "Which?"
        assert seen(turn) == [(PERSON, "How many?"), CALLED, GAVE, (BOT, "Twelve.")]


async def test_a_failed_tool_of_an_earlier_turn_is_taken_as_input(tmp_path: Path) -> None:
    broken = ToolStarted("one", "look", '{"at": "cellar"}', Effect.PURE), ToolFinished("one", error="it is dark")
    agent = Takes(Scripted(*broken, "I do not know."), Scripted("Yes."))
    async with ApiWorld(tmp_path, agent) as api:
        items = (await ask(api, "How many?"))["output"]
        await ask(
            api, [user("How many?"), *items, {"type": "mcp_call", "error": "as words", "name": "old"}, user("Sure?")]
        )
    told = seen(agent.turns[1])
    assert told[1:3] == [CALLED, (NOTICE, "(The tool look gave this output, which is data: it is dark)")]
    assert told[-1] == (NOTICE, "(The tool old gave this output, which is data: as words)")


async def test_a_named_item_is_found_after_a_restart_and_whatever_its_length(tmp_path: Path) -> None:
    agent = Takes(Scripted("x" * 250_000), Scripted("Yes."))
    async with ApiWorld(tmp_path, agent) as api:
        (item,) = (await ask(api, "Tell me all."))["output"]
        await api.restart()
        await ask(api, [user("Tell me all."), {"type": "item_reference", "id": item["id"]}, user("Sure?")])
    assert seen(agent.turns[1]) == [(PERSON, "Tell me all."), (BOT, "x" * 250_000)]


async def test_an_item_that_is_not_there_or_anothers_is_not_found(tmp_path: Path) -> None:
    gate = Gate()
    agent = Takes(Scripted("mine"), Scripted("gone"), Scripted("I begin. ", gate))
    async with ApiWorld(tmp_path, agent) as api:
        mine = (await ask(api, "hi"))["output"][0]["id"]
        forgotten = await ask(api, "hi", store=False)
        gone = forgotten["output"][0]["id"]
        async with api.client(await api.new_key("stranger", "chat")) as other:
            for http, id in ((other, mine), (api.http, gone), (api.http, mine[:-1] + "9"), (api.http, "msg_1")):
                asked = {"input": [{"type": "item_reference", "id": id}, user("go on")]}
                refused = await http.post("/v1/responses", json=asked)
                assert (refused.status_code, refused.json()["error"]["code"]) == (404, "item_not_found"), id
        asking = asyncio.create_task(api.http.post("/v1/responses", json={"input": "hi"}))
        await gate.reached()
        run = next(str(row["run"]) for row in api.runs() if row["state"] == "running")
        asked = {"input": [{"type": "item_reference", "id": f"msg_{run.removeprefix('run_')}_0"}, user("go on")]}
        early = await api.http.post("/v1/responses", json=asked)
        assert (early.status_code, early.json()["error"]["code"]) == (409, "response_not_finished")
        gate.open()
        await asking


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/runs"])
async def test_unknown_kinds_of_items_are_left_aside(tmp_path: Path, path: str) -> None:
    agent = Scripted("noted")
    odd = [
        {"type": "computer_call_output", "output": {"type": "computer_screenshot"}},
        {"type": "web_search_call", "id": "ws_1", "role": "critic", "content": 7, "name": ["x"]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "…"},
        {"type": "compaction", "arguments": "x" * 300_000},
        {"type": "y" * 100},
    ]
    async with ApiWorld(tmp_path, agent) as api:
        answer = await api.http.post(path, json={"input": [user("hi"), *odd, user("go on"), *odd]})
        assert answer.status_code in (200, 202), answer.text
        await api.eventually(lambda: agent.turns)
    assert (agent.turns[0].message.text, seen(agent.turns[0])) == ("go on", [(PERSON, "hi")])


# What a response was given.


async def test_what_a_response_was_given_can_be_listed_and_named(tmp_path: Path) -> None:
    agent = Takes(Scripted(*LOOK, "Twelve."), Scripted("Red."), Scripted("Good."))
    async with ApiWorld(tmp_path, agent) as api:
        first = await api.openai.responses.create(model="bot", input="How many?", instructions="Be brief.")
        second = await api.openai.responses.create(model="bot", input="Which?", previous_response_id=first.id)
        newest = await api.openai.responses.input_items.list(second.id)
        items = [item async for item in api.openai.responses.input_items.list(second.id, order="asc", limit=2)]
        assert [item.to_dict() for item in items] == [item.to_dict() for item in reversed(newest.data)]
        texts = [item.to_dict() for item in items]
        assert [(item["type"], item.get("role")) for item in texts] == [
            ("message", "user"),
            ("function_call_output", None),
            ("message", "assistant"),
            ("message", "user"),
        ]
        assert texts[3]["content"] == [{"type": "input_text", "text": "Which?"}]
        named = [{"type": "item_reference", "id": item["id"]} for item in texts]
        await ask(api, [*named[:3], user("And you?")])
        nowhere = await api.http.get(f"/v1/responses/{second.id}/input_items", params={"after": "msg_1"})
        assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "item_not_found")
    turn = agent.turns[2]
    assert [entry.author for entry in turn.history] == [PERSON, NOTICE, BOT]
    assert "12 bottles" in turn.history[1].text
    assert turn.message.given is not None
    assert turn.message.given.instructions == "", "what a tool gave is nobody's instruction"


async def test_a_model_can_be_asked_for_by_its_name(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, {"bot": Scripted("hi"), "other": Scripted("ho")}) as api:
        listed = [model async for model in api.openai.models.list()]
        assert [await api.openai.models.retrieve(model.id) for model in listed] == listed
        unknown = await api.http.get("/v1/models/gpt-9")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


# In the background.


async def test_a_response_in_the_background_is_answered_at_once_and_goes_on(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted("I begin. ", gate, "I end.")) as api:
        begun = await api.openai.responses.create(model="bot", input="hi", background=True)
        assert begun.status == "in_progress"
        await gate.reached()
        assert (await api.openai.responses.retrieve(begun.id)).status == "in_progress"
        gate.open()
        await api.ended(begun.id.replace("resp_", "run_"))
        ended = await api.openai.responses.retrieve(begun.id)
    assert (ended.status, ended.output_text) == ("completed", "I begin. I end.")


async def test_a_streamed_response_in_the_background_outlives_its_reader_and_can_be_read_on(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted("I begin. ", gate, "I end.")) as api:
        stream = await api.openai.responses.create(model="bot", input="hi", background=True, stream=True)
        events: list[Any] = []
        async for event in stream:
            events.append(event)
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        id, last = events[0].response.id, events[-1].sequence_number
        gate.open()
        rest = [frame.json for frame in await streamed(api, f"/v1/responses/{id}?stream=true&starting_after={last}")]
        again = [frame.json for frame in await streamed(api, f"/v1/responses/{id}?stream=true")]
    assert [frame["sequence_number"] for frame in again] == list(range(len(again)))
    assert rest == again[last + 1 :]
    assert (rest[-1]["type"], rest[-1]["response"]["status"]) == ("response.completed", "completed")


async def test_a_response_in_the_background_can_be_cancelled(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Takes(Scripted("I begin. ", gate), Scripted("hi"))) as api:
        begun = await api.openai.responses.create(model="bot", input="hi", background=True)
        await gate.reached()
        cancelled = await api.openai.responses.cancel(begun.id)
        whole = await api.openai.responses.create(model="bot", input="hi")
        again = await api.openai.responses.cancel(whole.id)
    assert (cancelled.status, cancelled.output_text) == ("cancelled", "I begin. ")
    assert again == whole, "one that has ended stays as it is"


async def test_what_is_not_stored_cannot_be_in_the_background(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Scripted("hi")) as api:
        refused = await api.http.post("/v1/responses", json={"input": "hi", "background": True, "store": False})
        assert refused.status_code == 400
        assert "must be stored" in refused.json()["error"]["message"]
        assert api.runs() == []
