"""Promise or refuse: each tool that promises something, on each interface, with the words that are heard there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.simulators.paper.simulator import Kind
from tests.simulators.provider.simulator import ProviderServer
from tests.simulators.provider.truth import Exchange
from tests.simulators.provider.turns import Call, Say, Turn
from tests.worlds.api import ApiWorld
from tests.worlds.assistant import assistant
from tidings.bots.assistant.tools import delegation, schedules, terminal

PATIENCE_SECONDS = 60.0
GOAL = "look after it"
ERRAND = "do it on the side"
BACKGROUND = {"goal": GOAL, "background": True}
PROMISES: dict[str, Call] = {
    "notify_on_complete": Call("terminal", {"command": "true", "background": True, "notify_on_complete": True}),
    "watch_patterns": Call("terminal", {"command": "true", "background": True, "watch_patterns": ["a", "b"]}),
    "delegate": Call("delegate", BACKGROUND),
    "wake": Call("delegate", {**BACKGROUND, "then": "wake"}),
    "schedule": Call("schedules", {"action": "add", "when": "in 20m", "prompt": "look again"}),
}
# What the model is told where nobody can be told later, and what it can pass on; by promise.
NO_CHAT = {
    "notify_on_complete": terminal.UNTOLD,
    "watch_patterns": terminal.UNTOLD,
    "delegate": delegation.DONE_AT_ONCE,
    "wake": delegation.DONE_AT_ONCE,
    "schedule": schedules.UNDELIVERABLE,
}
NOBODY = {
    "notify_on_complete": terminal.HEADLESS,
    "watch_patterns": terminal.HEADLESS,
    "delegate": delegation.DONE_AT_ONCE,
    "wake": delegation.DONE_AT_ONCE,
    "schedule": schedules.HEADLESS,
}
KEPT = {
    "notify_on_complete": terminal.TOLD["tell"],
    "watch_patterns": terminal.TOLD["tell"],
    "delegate": "The person is told here how it ended",
    "wake": "You get its report as a new turn",
    "schedule": "Planned: ",
}


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server


def promising(promise: str) -> Callable[[Exchange], Turn]:
    """Calls the tool where it is told to, and says back what it was answered."""

    def mind(exchange: Exchange) -> Turn:
        first = next(line.text for line in exchange.lines if line.role == "user")
        if GOAL in first:
            return Say("looked after")
        if exchange.results:
            return Say("\n".join(exchange.results.values()))
        if first.startswith("errand"):
            return Call("delegate", {"goal": ERRAND})
        return PROMISES[promise]

    return mind


async def _complete(world: ApiWorld, **more: Any) -> str:
    body = {"messages": [{"role": "user", "content": "promise"}], **more}
    answer = (await world.http.post("/v1/chat/completions", json=body)).json()
    return str(answer["choices"][0]["message"]["content"])


async def _stream(world: ApiWorld) -> str:
    text = ""
    stream = await world.openai.chat.completions.create(
        model="bot", messages=[{"role": "user", "content": "promise"}], stream=True
    )
    async for chunk in stream:
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    return text


async def _respond(world: ApiWorld) -> str:
    answer = (await world.http.post("/v1/responses", json={"model": "bot", "input": "promise"})).json()
    said = [item for item in answer["output"] if item["type"] == "message"]
    return str(said[-1]["content"][0]["text"])


async def _run(world: ApiWorld) -> str:
    run = (await world.http.post("/v1/runs", json={"input": "promise"})).json()["run_id"]
    return str([frame.json for frame in await world.watch(run)][-1]["output"])


async def _chat(world: ApiWorld) -> str:
    world.paper.says("promise")
    await world.paper.until(lambda paper: len(paper.posts) >= 1, timeout=PATIENCE_SECONDS)
    await world.settled()
    return "\n".join(world.posts)


async def _errand(world: ApiWorld) -> str:
    world.paper.says("errand", thread="side")
    await world.paper.until(lambda paper: paper.posts_in("1", "side"), timeout=PATIENCE_SECONDS)
    return "\n".join(world.paper.posts_in("1", "side"))


INTERFACES: dict[str, tuple[Callable[[ApiWorld], Awaitable[str]], dict[str, str]]] = {
    "chat completions": (_complete, NO_CHAT),
    "streamed completions": (_stream, NO_CHAT),
    "responses": (_respond, NO_CHAT),
    "runs": (_run, NO_CHAT),
    "a chat": (_chat, KEPT),
    "an errand": (_errand, NOBODY),
}


@pytest.mark.parametrize("promise", PROMISES)
async def test_each_promise_is_kept_or_refused_in_words_on_each_interface(
    tmp_path: Path, provider: ProviderServer, promise: str
) -> None:
    provider.script(then=promising(promise))
    bot = assistant(provider, tools=("terminal", "delegate", "schedules"))
    plain = Kind(keyed_for=3600.0, streaming="none")
    async with ApiWorld(tmp_path, bot, platforms={"paper": plain}) as world:
        await bot.prepare()
        for name, (ask, words) in INTERFACES.items():
            before = _begun(world)
            heard = await ask(world)
            assert words[promise] in heard, f"{promise} on {name}: {heard}"
            if words is not KEPT:
                assert _begun(world) == before, f"{promise} on {name} left a promise behind"


def _begun(world: ApiWorld) -> int:
    """Promises that are stored: what is owed to somebody later."""
    tasks = world.rows("SELECT 1 FROM tasks WHERE manner <> 'nothing'")
    return len(tasks) + len(world.rows("SELECT 1 FROM schedules"))
