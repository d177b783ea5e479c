"""How the assistant asks: patient where that helps, at once where it does not, and never with a key in its words."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.simulators.provider.simulator import MODEL, SMALL, Call, ProviderServer, Say
from tests.simulators.provider.truth import Api
from tests.worlds.assistant import APIS, settings_for
from tests.worlds.world import Gate, World, handed
from tidings.bots.assistant.agent import Assistant
from tidings.bots.assistant.settings import Assistant as Settings
from tidings.core.agent import Ended, OutcomeKind, Progress

ROOT = Path(__file__).resolve().parents[3]
FALLBACK = f"openai-chat:{SMALL}"
# Nothing but being configured makes a secret of it.
SHAPELESS = "harbour+lantern/77 of the north"


class Pauses(list[float]):
    """Takes note of a pause instead of making it."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def talk(home: Path, settings: Settings, pauses: Any = None) -> AsyncIterator[World]:
    async with World(home, Assistant("Tide", settings, sleep=Pauses() if pauses is None else pauses)) as world:
        yield world


async def answer(world: World, text: str = "hello") -> Ended:
    """What came of it, when it is told and nothing is owed any more."""
    key = world.paper.says(text)
    await world.eventually(lambda: world.rows("SELECT 1 FROM inbox WHERE key = ?", key))
    outcome = await world.outcome(key)
    await world.settled()
    return outcome


def progress(world: World) -> list[str]:
    (run,) = world.runs()
    return [event.text for event in world.events(run["key"]) if isinstance(event, Progress)]


def asked(provider: ProviderServer) -> list[str]:
    return [exchange.model for exchange in provider.requests]


# Asking again.


@pytest.mark.parametrize("api", APIS)
async def test_a_passing_refusal_is_waited_for_as_long_as_the_provider_says(tmp_path: Path, api: Api) -> None:
    pauses = Pauses()
    async with ProviderServer() as provider:
        provider.fail_next(429, 2, retry_after=7)
        async with talk(tmp_path, settings_for(provider, api, retries=2), pauses) as world:
            outcome = await answer(world)
            assert world.posts == ["hello"]
            again = "the model's provider takes no more requests for now (HTTP 429); I try again …"
            assert progress(world) == [again, again]
    assert outcome.kind is OutcomeKind.COMPLETED
    assert pauses == [7.0, 7.0]
    # Three and not one more: the provider's own library does not try again behind our back.
    assert len(provider.requests) == 3


async def test_pauses_double_and_never_grow_past_a_minute(tmp_path: Path) -> None:
    pauses = Pauses()
    async with ProviderServer() as provider:
        provider.fail_next(503, 8)
        settings = settings_for(provider, retries=8, retry_seconds=1.0)
        async with talk(tmp_path, settings, pauses) as world:
            assert (await answer(world)).kind is OutcomeKind.COMPLETED
    assert len(pauses) == 8
    for doubled, pause in zip((1, 2, 4, 8, 16, 32), pauses, strict=False):
        assert doubled * 0.8 <= pause <= doubled * 1.2
    assert max(pauses) <= 60.0


async def test_the_person_reads_that_it_is_tried_again(tmp_path: Path) -> None:
    gate = Gate()

    async def wait(seconds: float) -> None:
        await gate.wait()

    async with ProviderServer() as provider:
        provider.fail_next(500)
        async with talk(tmp_path, settings_for(provider), wait) as world:
            key = world.paper.says("hello")
            await gate.reached()
            await world.paper.until(lambda paper: any("I try again" in each.text for each in paper.visible()))
            gate.open()
            await world.paper.until(lambda paper: paper.posts == ["hello"])
            assert (await world.outcome(key)).text == "hello", "it is no part of the answer"


async def test_a_model_that_stays_away_is_replaced_by_the_next(tmp_path: Path) -> None:
    async with ProviderServer() as provider:
        provider.fail_next(503, None, model=MODEL)
        settings = settings_for(provider, retries=2, fallbacks=[FALLBACK])
        async with talk(tmp_path, settings) as world:
            assert (await answer(world)).kind is OutcomeKind.COMPLETED
            assert world.posts == ["hello"]
            assert progress(world)[-1] == f"openai-chat:{MODEL} does not answer; I ask {FALLBACK} …"
    assert asked(provider) == [MODEL] * 3 + [SMALL]


async def test_when_all_stay_away_the_trouble_of_the_first_is_told(tmp_path: Path) -> None:
    async with ProviderServer() as provider:
        provider.fail_next(503, None, model=MODEL)
        provider.fail_next(429, None, model=SMALL)
        async with talk(tmp_path, settings_for(provider, retries=1, fallbacks=[FALLBACK])) as world:
            assert (await answer(world)).kind is OutcomeKind.FAILED
            why = "the model's provider has trouble of its own (HTTP 503)"
            assert world.posts == [f"⚠ I could not finish this: {why}."]
    assert asked(provider) == [MODEL, MODEL, SMALL, SMALL]


async def test_a_fallback_that_is_no_use_is_passed_over(tmp_path: Path) -> None:
    """One that cannot be built, and one that the provider does not know."""
    async with ProviderServer() as provider:
        provider.fail_next(503, None, model=MODEL)
        fallbacks = ["nobody-s-provider:x", "openai-chat:sim-nothing", FALLBACK]
        async with talk(tmp_path, settings_for(provider, retries=0, fallbacks=fallbacks)) as world:
            await answer(world)
            assert world.posts == ["hello"]
    assert asked(provider)[-1] == SMALL


async def test_whoever_asks_for_more_than_a_minute_is_not_waited_for(tmp_path: Path) -> None:
    pauses = Pauses()
    async with ProviderServer() as provider:
        provider.fail_next(429, None, retry_after=61, model=MODEL)
        async with talk(tmp_path, settings_for(provider, fallbacks=[FALLBACK]), pauses) as world:
            await answer(world)
            assert world.posts == ["hello"]
    assert (asked(provider), pauses) == ([MODEL, SMALL], [])


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404])
async def test_what_will_not_pass_is_neither_repeated_nor_asked_of_another(tmp_path: Path, status: int) -> None:
    async with ProviderServer() as provider:
        provider.fail_next(status, None, model=MODEL)
        async with talk(tmp_path, settings_for(provider, fallbacks=[FALLBACK])) as world:
            assert (await answer(world)).kind is OutcomeKind.FAILED
            assert progress(world) == []
    assert asked(provider) == [MODEL]


async def test_nothing_is_repeated_once_a_word_is_out(tmp_path: Path) -> None:
    async with ProviderServer() as provider:
        provider.cut_next(None, after_chunks=1)
        async with talk(tmp_path, settings_for(provider, fallbacks=[FALLBACK])) as world:
            outcome = await answer(world, "hello there")
            (post,) = world.posts
            # The next turn knows what was said, and that there was no more.
            provider.heal()
            await answer(world, "go on")
    assert (outcome.kind, outcome.text) == (OutcomeKind.FAILED, "hello")
    assert post.startswith("hello\n\n⚠ I could not finish this: the answer broke off: ")
    assert asked(provider) == [MODEL, MODEL]
    told = [line.text for line in provider.last.lines if line.role != "system"]
    assert told[:2] == ["hello there", "hello"]
    assert "that answer was not finished" in " ".join(told[2:])


async def test_words_that_were_held_back_are_said_when_the_answer_breaks(tmp_path: Path) -> None:
    """The first letters might have been a sign of silence."""
    async with ProviderServer() as provider:
        provider.script(Say(chunks=("NO", "BODY")))
        provider.cut_next(after_chunks=1)
        async with talk(tmp_path, settings_for(provider)) as world:
            assert (await answer(world)).text == "NO"


async def test_thoughts_are_no_words_so_it_may_be_asked_again(tmp_path: Path) -> None:
    async with ProviderServer() as provider:
        provider.script(then=Say("done", reasoning="let me see"))
        provider.cut_next(after_chunks=2)
        async with talk(tmp_path, settings_for(provider)) as world:
            await answer(world)
            assert world.posts == ["done"]
    assert len(provider.requests) == 2


async def test_for_the_rest_of_a_run_the_model_that_answered_is_asked_first(tmp_path: Path) -> None:
    async with ProviderServer() as provider:
        provider.fail_next(503, None, model=MODEL)
        provider.script(Call("time", {}), Call("time", {}), Say("late"), model=SMALL)
        async with talk(tmp_path, settings_for(provider, retries=1, fallbacks=[FALLBACK])) as world:
            await answer(world)
            assert world.posts == ["late"]
    assert asked(provider) == [MODEL, MODEL, SMALL, SMALL, SMALL]


async def test_the_same_model_may_stand_by_at_another_address(tmp_path: Path) -> None:
    async with ProviderServer() as first, ProviderServer(key="the other key") as second:
        first.fail_next(503, None)
        spare = {"model": f"openai-chat:{MODEL}", "base_url": second.openai_url, "api_key": second.key}
        async with talk(tmp_path, settings_for(first, retries=0, fallbacks=[spare])) as world:
            await answer(world)
            assert world.posts == ["hello"]
    assert (len(first.requests), len(second.requests)) == (1, 1)


# Signs of life.


@pytest.mark.parametrize("api", APIS)
async def test_a_comment_is_a_sign_of_life(tmp_path: Path, api: Api) -> None:
    """For longer than any time-out that there is."""
    async with ProviderServer() as provider:
        gate = provider.comment_next(0.05)
        settings = settings_for(provider, api, stall_seconds=0.4, read_seconds=0.4, connect_seconds=0.1)
        async with talk(tmp_path, settings) as world:
            world.paper.says("hello")
            await provider.until(lambda it: it.requests and it.last.sent.count(b"keep-alive") >= 25)
            gate.set()
            await world.paper.until(lambda paper: paper.posts == ["hello"])
            await world.settled()
    assert len(provider.requests) == 1


async def test_a_pause_within_an_answer_may_be_longer_than_the_wait_for_its_beginning(tmp_path: Path) -> None:
    async with ProviderServer() as provider:
        provider.delay_next(1.0, after_chunks=1)
        settings = settings_for(provider, stall_seconds=20.0, read_seconds=0.4, connect_seconds=0.4)
        async with talk(tmp_path, settings) as world:
            assert (await answer(world, "one two")).text == "one two"
            provider.delay_next(1.0, None)
            assert (await answer(world, "three")).reason == "the model's provider has gone silent"


# Without a stream.


def refuse(provider: ProviderServer) -> None:
    provider.refuse_streams()


def ignore(provider: ProviderServer) -> None:
    provider.ignore_streams()


def unimplemented(provider: ProviderServer) -> None:
    provider.fail_next(501, 1, message="Streaming is not implemented.")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("arm", [refuse, ignore, unimplemented])
async def test_a_provider_that_cannot_stream_is_asked_without_and_remembered(
    tmp_path: Path, api: Api, arm: Callable[[ProviderServer], None]
) -> None:
    async with ProviderServer() as provider:
        arm(provider)
        async with talk(tmp_path, settings_for(provider, api)) as world:
            await answer(world, "one")
            await answer(world, "two")
            assert world.posts == ["one", "two"]
    assert [exchange.stream for exchange in provider.requests] == [True, False, False]


async def test_a_refusal_that_only_mentions_streams_ends_no_streaming(tmp_path: Path) -> None:
    async with ProviderServer() as provider:
        provider.fail_next(400, 2, message="We do not talk about streams and rivers.")
        async with talk(tmp_path, settings_for(provider)) as world:
            assert (await answer(world, "one")).kind is OutcomeKind.FAILED
            assert (await answer(world, "two")).text == "two"
    assert [exchange.stream for exchange in provider.requests] == [True, False, True]


async def test_an_end_without_a_reason_is_taken_where_the_settings_say_so(tmp_path: Path) -> None:
    async with ProviderServer() as provider:
        provider.unfinish_next(None)
        async with talk(tmp_path, settings_for(provider, needs_finish_reason=False)) as world:
            assert (await answer(world)).kind is OutcomeKind.COMPLETED


# Whom, and with which key.


async def test_a_key_goes_to_its_own_provider_alone() -> None:
    from tidings.bots.assistant.models import Models

    settings = Settings.model_validate(
        {
            "model": "openai:large",
            "api_key": "mine",
            "base_url": "https://one.example/v1",
            "fallbacks": ["openai:small"],
        }
    )
    models = Models(settings)
    ways = {
        preferred: [(each.model, each.base_url, each.api_key.get_secret_value()) for each in models.choices(preferred)]
        for preferred in ("", "openai:middle", "openai:small", "anthropic:other")
    }
    one, small = ("https://one.example/v1", "mine"), ("openai:small", "https://one.example/v1", "mine")
    assert ways == {
        "": [("openai:large", *one), small],
        "openai:middle": [("openai:middle", *one), small],
        "openai:small": [small],
        "anthropic:other": [("anthropic:other", "", ""), small],
    }


async def test_two_who_ask_at_once_share_one_model_and_its_connections() -> None:
    from tidings.bots.assistant.models import Models

    async with ProviderServer() as provider:
        models = Models(settings_for(provider))
        choice = models.choices("")[0]
        built = await asyncio.gather(*(models.get(choice) for _ in range(8)))
        await models.close()
    assert len({id(each) for each in built}) == 1


async def test_the_proxy_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ProviderServer() as provider:
        monkeypatch.setenv("http_proxy", f"http://{provider.address}")
        async with talk(tmp_path, settings_for(provider, base_url="http://models.invalid/v1")) as world:
            assert (await answer(world)).text == "hello"
    assert provider.last.headers["host"] == "models.invalid"


# Keys stay out of words.


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_key_is_nowhere_even_if_the_provider_repeats_it(
    tmp_path: Path, api: Api, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with ProviderServer(key=SHAPELESS) as provider:
        provider.script(
            Say(chunks=("Your key is ", SHAPELESS[:9], SHAPELESS[9:], ", isn't it?")),
            Call("time", {"zone": SHAPELESS}),
            Say("done", reasoning=f"The key is {SHAPELESS}."),
            then=Say("well"),
        )
        async with talk(tmp_path, settings_for(provider, api, stream=stream)) as world:
            await answer(world, "which key?")
            await answer(world, "use it")
            provider.fail_next(401, message=f"the key {SHAPELESS} is wrong")
            await answer(world, "again")
            provider.error_next(1, message=f"{SHAPELESS} has no credit")
            await answer(world, "and again")
            posts = "\n".join(world.posts)
            assert "Your key is [redacted], isn't it?" in posts
            assert "does not accept the key of this bot (HTTP 401)" in posts
            assert SHAPELESS not in posts
            seen = [line.text for line in provider.last.lines]
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert SHAPELESS.encode() not in file.read_bytes(), file.name
    assert SHAPELESS not in caplog.text
    assert SHAPELESS not in "".join(seen), "nor does the model get it back"


# The library comes when it is needed.


def run_alone(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_building_an_assistant_does_not_import_the_library() -> None:
    script = """
import sys
from tidings.bots.assistant.agent import Assistant
from tidings.bots.assistant.settings import Assistant as Settings
Assistant("Tide", Settings(model="openai:any"))
print([name for name in ("pydantic_ai", "openai", "anthropic", "httpx2", "mcp") if name in sys.modules])
"""
    assert run_alone(script).strip() == "[]"


ALONGSIDE = """
import asyncio, importlib.abc, sys, tempfile, threading
from pathlib import Path
from tidings.bots.assistant.agent import Assistant
from tidings.bots.assistant.settings import Assistant as Settings
from tidings.core.settings import Rule
from tests.simulators.provider.simulator import MODEL, ProviderServer
from tests.worlds.world import Echo, World

begun, echoed = threading.Event(), threading.Event()

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "pydantic_ai":
            begun.set()
            assert echoed.wait(20), "others wait for the library"

async def main(home):
    sys.meta_path.insert(0, Slow())
    async with ProviderServer() as provider:
        settings = Settings(model=f"openai-chat:{MODEL}", base_url=provider.openai_url, api_key=provider.key)
        bots = {"bot": Assistant("Tide", settings), "echo": Echo()}
        async with World(home, bots, rules=[Rule(chat="2", bot="echo")]) as world:
            preparing = asyncio.create_task(bots["bot"].prepare())
            world.paper.says("first", chat="1")
            await asyncio.to_thread(begun.wait, 20)
            world.paper.says("second", chat="2")
            await world.paper.until(lambda paper: paper.posts_in("2") == ["you said: second"])
            assert not provider.requests
            echoed.set()
            await world.paper.until(lambda paper: paper.posts_in("1") == ["first"], timeout=40)
            await preparing
    print("both")

with tempfile.TemporaryDirectory() as home:
    asyncio.run(main(Path(home)))
"""


def test_while_the_library_is_imported_other_conversations_are_answered() -> None:
    assert run_alone(ALONGSIDE).strip() == "both"


@pytest.mark.parametrize("api", APIS)
async def test_a_server_of_somebody_s_own_never_sees_the_key_of_the_provider_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai-alone-0123456789")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-anthropic-alone-0123456789")
    provider = ProviderServer(key="none")
    async with provider, talk(tmp_path, settings_for(provider, api, api_key="")) as world:
        await answer(world)
        assert world.posts == ["hello"]


async def test_a_model_may_stay_silent_only_where_nobody_addressed_it(tmp_path: Path) -> None:
    """F18 and A7: it is told so beside the message; a person who asks gets words whatever the model says."""
    async with ProviderServer() as provider:
        provider.script(then=Say("[SILENT]"))
        async with talk(tmp_path, settings_for(provider)) as world:
            said = handed("lunch?", private=False, overheard=True)
            await world.receive(said)
            outcome = await world.outcome(said.key)
            await world.settled()
            assert (outcome.kind, outcome.text, world.posts) == (OutcomeKind.COMPLETED, "", [])
            assert (len(provider.requests), "[SILENT]" in provider.last.lines[-1].text) == (1, True)
            asked_for = await answer(world, "and you?")
            assert asked_for.kind is OutcomeKind.FAILED
            assert "chose to say nothing" in asked_for.reason
            assert "[SILENT]" not in provider.last.lines[-1].text
            # The model remembers what was said, and that it said nothing.
            told = " ".join(line.text for line in provider.last.lines)
            assert "lunch?" in told
