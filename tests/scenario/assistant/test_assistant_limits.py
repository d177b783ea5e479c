"""A run of the assistant that goes in circles or spends too much ends in words: once, everywhere, and it is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.simulators.paper.simulator import Kind
from tests.simulators.provider.simulator import Call, Exchange, ProviderServer, Say
from tests.simulators.provider.truth import Api
from tests.simulators.provider.turns import Turn
from tests.worlds.api import ApiWorld
from tests.worlds.assistant import APIS, assistant, settings_for, unmarked
from tests.worlds.world import World
from tidings.adapters.local import socket
from tidings.bots.assistant.agent import Assistant
from tidings.core.agent import OutcomeKind, ToolStarted

MISSING = Call("read_file", {"path": "plan.md"})
SAME_CALL = (
    "(I stopped here: I called read_file 4 times with the same input, and it always failed the same way: "
    "There is no plan.md in the workspace.)"
)
SAME_CALL_REASON = "the same call of read_file failed 4 times"


def read(number: int) -> Call:
    return Call("read_file", {"path": f"{number}.md"})


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server


async def ask(world: World, text: str = "look into the plan") -> tuple[str, OutcomeKind, str]:
    """What the person reads in the end, and how the run ended."""
    before = len(world.posts)
    key = world.paper.says(text)
    await world.paper.until(lambda paper: key in paper.confirmed)
    ended = await world.outcome(key)
    await world.settled()
    assert len(world.posts) == before + 1, "one answer for one message"
    return world.posts[-1], ended.kind, ended.reason


def notes(provider: ProviderServer) -> list[str]:
    """The gateway's own words that the model has seen, for each request the newest line of it."""
    return [
        line for each in provider.requests for line in unmarked(each.lines[-1].text).splitlines() if "(Note:" in line
    ]


# Guard rails.


@pytest.mark.parametrize("api", APIS)
async def test_the_same_call_is_warned_of_and_then_halted(tmp_path: Path, provider: ProviderServer, api: Api) -> None:
    provider.script(*[MISSING] * 4, then=Say("never asked"))
    async with World(tmp_path, assistant(provider, api)) as world:
        assert await ask(world) == (SAME_CALL, OutcomeKind.HALTED, SAME_CALL_REASON)
    assert len(provider.requests) == 4
    assert notes(provider) == [
        f"(Note: this very call of read_file has failed {times} times in the same way; do something else.)"
        for times in (2, 3)
    ]


async def test_one_tool_that_keeps_failing_is_halted_at_six(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(*map(read, range(6)), then=Say("never asked"))
    async with World(tmp_path, assistant(provider)) as world:
        text, kind, reason = await ask(world)
    assert kind is OutcomeKind.HALTED
    assert text == (
        "(I stopped here: I tried read_file 6 times, and it failed each time, at last like this: "
        "There is no 5.md in the workspace.)"
    )
    assert reason == "read_file failed 6 times"
    assert [note.partition(" times")[0][-1] for note in notes(provider)] == ["3", "4", "5"]


async def test_looking_at_the_same_thing_over_and_over_is_halted_at_eight(
    tmp_path: Path, provider: ProviderServer
) -> None:
    provider.script(*[Call("list_files")] * 8, then=Say("never asked"))
    async with World(tmp_path, assistant(provider)) as world:
        text, kind, _ = await ask(world)
    assert kind is OutcomeKind.HALTED
    assert text == (
        "(I stopped here: I looked things up 8 times in a row, lastly with list_files, and learned nothing new.)"
    )
    assert len(notes(provider)) == 4


async def test_a_model_that_heeds_the_warning_is_left_alone(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(MISSING, MISSING, MISSING, Say("There is no plan."))
    async with World(tmp_path, assistant(provider)) as world:
        assert await ask(world) == ("There is no plan.", OutcomeKind.COMPLETED, "")


async def test_the_settings_say_when_to_halt(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(MISSING, MISSING, then=Say("never asked"))
    async with World(tmp_path, assistant(provider, rails={"same_call": [1, 2]})) as world:
        text, kind, _ = await ask(world)
    assert kind is OutcomeKind.HALTED
    assert "2 times with the same input" in text


async def test_rails_that_are_off_halt_nothing(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(*[MISSING] * 12, Say("I gave up."))
    async with World(tmp_path, assistant(provider, rails={"enabled": False})) as world:
        assert await ask(world) == ("I gave up.", OutcomeKind.COMPLETED, "")
    assert notes(provider) == []


async def test_what_was_said_before_the_halt_stays_and_the_next_turn_knows_of_it(
    tmp_path: Path, provider: ProviderServer
) -> None:
    provider.script([Say("I look for the plan."), MISSING], *[MISSING] * 3, then=Say("You have none."))
    async with World(tmp_path, assistant(provider)) as world:
        text, _, _ = await ask(world)
        assert text == f"I look for the plan.\n\n{SAME_CALL}"
        await ask(world, "so what?")
        spoken = [line.text for line in provider.last.lines if line.role == "assistant"]
        assert (spoken[0], spoken[-1]) == ("I look for the plan.", SAME_CALL)
        before = [line for line in provider.last.lines if line.role != "system"]
        await world.restart()
        await ask(world, "and now?")
    assert [*provider.last.lines][1 : 1 + len(before)] == before, "a restart forgets nothing of it"


async def test_a_halt_in_the_middle_of_a_round_lets_nothing_more_act(tmp_path: Path, provider: ProviderServer) -> None:
    """Whoever has said "I stopped here" has stopped there."""
    write = Call("write_file", {"path": "done.md", "content": "done"})
    provider.script([*[MISSING] * 4, write], then=Say("fine"))
    async with World(tmp_path, assistant(provider)) as world:
        assert await ask(world) == (SAME_CALL, OutcomeKind.HALTED, SAME_CALL_REASON)
        started = [event.name for event in world.events(world.runs()[0]["key"]) if isinstance(event, ToolStarted)]
        assert started == ["read_file"] * 4
        assert list(tmp_path.rglob("done.md")) == []
        # No provider would go on with a call that has no result.
        assert (await ask(world, "and?"))[0] == "fine"
    assert "(Not used: I was stopped before.)" in provider.last.results.values()


# The same halt on every surface.


@dataclass(frozen=True)
class Seen:
    """What somebody got of one answer: pieces as they came, the whole, and why it is not whole."""

    pieces: list[str]
    whole: str
    incomplete: str


async def by_paper(world: ApiWorld) -> Seen:
    key = world.papers["paper"].says("look into the plan")
    await world.papers["paper"].until(lambda paper: paper.posts)
    await world.settled()
    ended = await world.outcome(key)
    return Seen(world.papers["paper"].posts, world.papers["paper"].posts[0], ended.reason)


async def by_console(world: ApiWorld) -> Seen:
    finals: list[str] = []
    async with asyncio.timeout(10), socket.connect(world.home) as line:
        await line.write({"verb": "chat"})
        await line.write({"say": "look into the plan", "key": "k1"})
        while not finals:
            heard = await line.read()
            assert heard is not None
            if "part" in heard:
                await line.write({"shown": heard["part"]})
            if heard.get("kind") == "plain":
                finals.append(heard["text"])
        await world.settled()
        assert len(world.rows("SELECT 1 FROM parts WHERE kind = 'plain'")) == 1
    return Seen(finals, finals[0], (await world.outcome("k1")).reason)


async def by_chat(world: ApiWorld) -> Seen:
    body = {"messages": [{"role": "user", "content": "look into the plan"}]}
    whole = (await world.http.post("/v1/chat/completions", json=body)).json()
    assert whole["choices"][0]["finish_reason"] == "length"
    text = whole["choices"][0]["message"]["content"]
    return Seen([text], text, whole["incomplete"]["reason"])


async def by_streamed_chat(world: ApiWorld) -> Seen:
    body = {"messages": [{"role": "user", "content": "look into the plan"}], "stream": True}
    async with world.http.stream("POST", "/v1/chat/completions", json=body) as response:
        run = response.headers["X-Tidings-Run"]
        frames = [frame.data async for frame in world.frames(response) if frame.event == ""]
    assert frames.count("[DONE]") == 1
    assert frames[-1] == "[DONE]"
    choices = [choice for data in frames[:-1] for choice in json.loads(data).get("choices", ())]
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["length"]
    pieces = [choice["delta"]["content"] for choice in choices if choice["delta"].get("content")]
    return Seen(pieces, "".join(pieces), (await world.ended(run))["incomplete"]["reason"])


async def by_run(world: ApiWorld) -> Seen:
    run = (await world.http.post("/v1/runs", json={"input": "look into the plan"})).json()["run_id"]
    told = [frame.json for frame in await world.watch(run)]
    assert [each["event"] for each in told if each["event"].startswith("run.")] == ["run.completed"]
    assert told[-1]["event"] == "run.completed"
    pieces = [each["delta"] for each in told if each["event"] == "message.delta"]
    assert told[-1]["output"] == "".join(pieces)
    return Seen(pieces, "".join(pieces), told[-1]["incomplete"]["reason"])


SURFACES: dict[str, Callable[[ApiWorld], Awaitable[Seen]]] = {
    "paper": by_paper,
    "console": by_console,
    "chat": by_chat,
    "streamed chat": by_streamed_chat,
    "runs": by_run,
}
CIRCLES: dict[str, tuple[list[Turn], dict[str, Any], str, str]] = {
    "rails": ([[Say("I look."), MISSING], *[MISSING] * 3], {}, f"I look.\n\n{SAME_CALL}", SAME_CALL_REASON),
    "budget": (
        [[Say("I look."), MISSING], Say("There is no plan so far.")],
        {"limits": {"requests": 1}},
        "I look.\n\nThere is no plan so far.\n\n"
        "(I stopped here: my limit of 1 request to the model for one answer is used up.)",
        "my limit of 1 request to the model for one answer is used up",
    ),
}


@pytest.mark.parametrize("circle", CIRCLES)
@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_halt_reads_the_same_on_every_surface_and_once(
    tmp_path: Path, provider: ProviderServer, surface: str, circle: str, stream: bool
) -> None:
    turns, more, text, reason = CIRCLES[circle]
    provider.script(*turns)
    bot = assistant(provider, stream=stream, **more)
    async with ApiWorld(tmp_path, bot, console=True, platforms={"paper": Kind(keyed_for=3600.0)}) as world:
        seen = await SURFACES[surface](world)
        assert seen == Seen(seen.pieces, text, reason)
        assert "".join(seen.pieces).count("(I stopped here") == 1
        assert [row["outcome"] for row in world.runs()] == ["halted"]


async def test_a_halted_run_of_the_api_is_known_to_the_next_one(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(*[MISSING] * 4, then=Say("You have none."))
    async with ApiWorld(tmp_path, assistant(provider)) as world:
        for text in ("look into the plan", "so what?"):
            run = (await world.http.post("/v1/runs", json={"input": text, "session_id": "s"})).json()["run_id"]
            await world.ended(run)
    assert SAME_CALL in [line.text for line in provider.last.lines if line.role == "assistant"]


# Budget.


@pytest.mark.parametrize("api", APIS)
async def test_near_the_end_the_model_is_told_and_at_the_end_it_sums_up(
    tmp_path: Path, provider: ProviderServer, api: Api
) -> None:
    provider.script(*map(read, range(3)), Say("I looked at three files, and none is there. The plan is open."))
    bot = assistant(provider, api, limits={"requests": 3})
    async with World(tmp_path, bot) as world:
        text, kind, reason = await ask(world)
    assert kind is OutcomeKind.HALTED
    assert reason == "my limit of 3 requests to the model for one answer is used up"
    assert text == f"I looked at three files, and none is there. The plan is open.\n\n(I stopped here: {reason}.)"
    warned, asked = [each.lines[-1].text for each in provider.requests[2:]]
    assert "of 3 requests to the model for this answer only 1 is left" in warned
    assert f"(Note: {reason}. Use no tools any more." in unmarked(asked)
    # A provider that has tools in its history wants to be told of them, and told not to use them.
    assert provider.last.tool_names
    assert provider.last.body["tool_choice"] in ("none", {"type": "none"})


async def test_a_last_word_that_is_a_call_calls_nothing(tmp_path: Path, provider: ProviderServer) -> None:
    write = Call("write_file", {"path": "done.md", "content": "done"})
    provider.script(read(1), write)
    async with World(tmp_path, assistant(provider, limits={"requests": 1})) as world:
        text, kind, _ = await ask(world)
        assert kind is OutcomeKind.HALTED
        assert text == (
            "(I stopped here: my limit of 1 request to the model for one answer is used up. "
            "Until then I used read_file. What you asked for may still be open.)"
        )
        assert list(tmp_path.rglob("done.md")) == []
        provider.script(then=Say("fine"))
        assert (await ask(world, "and?"))[0] == "fine"


async def test_words_beside_such_a_call_are_the_summary(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(read(1), [Say("Nothing there yet."), read(2)])
    async with World(tmp_path, assistant(provider, limits={"requests": 1})) as world:
        assert (await ask(world))[0].startswith("Nothing there yet.\n\n(I stopped here: ")
        provider.script(then=Say("fine"))
        assert (await ask(world, "and?"))[0] == "fine"


@pytest.mark.parametrize("trouble", ["status", "empty", "cut", "stall", "silence"])
async def test_without_a_summary_a_fixed_sentence_says_what_was_done_and_what_is_open(
    tmp_path: Path, provider: ProviderServer, trouble: str
) -> None:
    def last(exchange: Exchange) -> Turn:
        return Say("[SILENT]" if trouble == "silence" else "never heard")

    def second(exchange: Exchange) -> Turn:
        match trouble:
            case "status":
                provider.fail_next(500, None)
            case "empty":
                provider.empty_next(None)
            case "cut":
                provider.cut_next(None, after_chunks=0)
            case "stall":
                provider.stall_next(None)
            case _:
                pass
        return [read(1), Call("list_files")]

    provider.script(read(0), second, then=last)
    bot = assistant(provider, limits={"requests": 2}, retries=1, stall_seconds=0.2, read_seconds=0.2)
    async with World(tmp_path, bot) as world:
        text, kind, reason = await ask(world)
        assert kind is OutcomeKind.HALTED
        assert reason == "my limit of 2 requests to the model for one answer is used up"
        assert text == (
            f"(I stopped here: {reason}. Until then I used read_file (2 times), list_files. "
            "What you asked for may still be open.)"
        )
        provider.heal()
        provider.script(then=Say("fine"))
        assert (await ask(world, "and?"))[0] == "fine"
    assert text in [line.text for line in provider.last.lines if line.role == "assistant"]


async def test_tokens(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(read(1), then=Say("That is all I found."))
    async with World(tmp_path, assistant(provider, limits={"tokens": 10})) as world:
        text, kind, reason = await ask(world)
    assert kind is OutcomeKind.HALTED
    assert reason == "my limit of 10 tokens for one answer is used up"
    assert text == f"That is all I found.\n\n(I stopped here: {reason}.)"


@pytest.mark.parametrize("api", APIS)
async def test_money_by_the_list_price(tmp_path: Path, provider: ProviderServer, api: Api) -> None:
    """A model is priced by its name, wherever it is asked."""
    name = "claude-haiku-4-5" if api == "messages" else "gpt-4o"
    kind_of_api = settings_for(provider, api).model.partition(":")[0]
    provider.models.append(name)
    provider.script(read(1), then=Say("That is all I found."))
    bot = assistant(provider, api, model=f"{kind_of_api}:{name}", limits={"money": 0.0005})
    async with World(tmp_path, bot) as world:
        text, kind, reason = await ask(world)
        ended = await world.outcome(world.runs()[0]["key"])
    assert kind is OutcomeKind.HALTED
    assert reason == "my limit of $0.0005 for one answer is used up"
    assert text == f"That is all I found.\n\n(I stopped here: {reason}.)"
    assert ended.usage is not None
    assert ended.usage.cost > 0.0005


async def test_a_model_without_a_known_price_spends_no_money(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(read(1), read(2), Say("There is no plan."))
    async with World(tmp_path, assistant(provider, limits={"money": 0.000001})) as world:
        assert await ask(world) == ("There is no plan.", OutcomeKind.COMPLETED, "")


async def test_seconds(tmp_path: Path, provider: ProviderServer) -> None:
    now = 0.0

    def think(exchange: Exchange) -> Turn:
        nonlocal now
        now += 45.0
        return read(int(now))

    provider.script(think, think, think, then=Say("That is all I found."))
    bot = Assistant("Tide", settings_for(provider, limits={"seconds": 100}), now=lambda: now)
    async with World(tmp_path, bot) as world:
        text, kind, reason = await ask(world)
    assert kind is OutcomeKind.HALTED
    assert reason == "my limit of 100 seconds for one answer is used up"
    assert text == f"That is all I found.\n\n(I stopped here: {reason}.)"
    assert "of 100 seconds for this answer only about 10 are left" in provider.requests[2].lines[-1].text


async def test_each_answer_has_a_budget_of_its_own(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(then=Say("hello"))
    async with World(tmp_path, assistant(provider, limits={"requests": 1, "tokens": 10})) as world:
        for _ in range(3):
            assert await ask(world, "hi") == ("hello", OutcomeKind.COMPLETED, "")


async def test_the_default_limits_leave_a_long_piece_of_work_alone(tmp_path: Path, provider: ProviderServer) -> None:
    writes = [Call("write_file", {"path": f"{number}.md", "content": str(number)}) for number in range(30)]
    provider.script(*writes, Say("All thirty are written."))
    async with World(tmp_path, assistant(provider)) as world:
        assert await ask(world) == ("All thirty are written.", OutcomeKind.COMPLETED, "")
    assert len(list(tmp_path.rglob("*.md"))) == 30
    assert notes(provider) == []


# What allowances leave to a run.


async def test_a_run_is_cut_to_what_its_allowance_leaves_and_sums_up(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(read(1), then=Say("There is no such file."))
    async with World(tmp_path / "free", assistant(provider)) as world:
        await ask(world)
        two_requests = world.rows("SELECT max(peak_tokens) AS n FROM spending")[0]["n"]
    asked = len(provider.requests)
    provider.script(read(1), read(2), then=Say("I looked for two files, and none is there."))
    allowed = {"gateway": {"tokens": two_requests + 10}}
    async with World(tmp_path / "limited", assistant(provider), allowances=allowed) as world:
        text, kind, reason = await ask(world)
    assert (kind, reason) == (OutcomeKind.HALTED, "this gateway's allowance for today is used up")
    assert text == f"I looked for two files, and none is there.\n\n(I stopped here: {reason}.)"
    assert len(provider.requests) == asked + 3, "one request at most goes beyond the allowance"


async def test_without_anything_left_not_even_a_summary_is_asked_for(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(read(1), then=Say("never asked"))
    async with World(tmp_path, assistant(provider), allowances={"gateway": {"tokens": 1}}) as world:
        text, kind, _ = await ask(world)
    assert kind is OutcomeKind.HALTED
    assert "Until then I used read_file." in text
    assert len(provider.requests) == 1
