"""An answer on Slack is readable, whole, there once and in its thread, whatever goes wrong on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulators.slack.simulator import Call, choices_of, text_of
from tests.worlds.slack import SlackWorld
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted, Takes
from tidings.core.agent import ChoicesOffered, FileMade
from tidings.core.outbound.outbox import MARK

WORDS = " ".join(f"word{number}" for number in range(4_000))


def finished(world: SlackWorld) -> Callable[[], bool]:
    """Every run has ended, and all that is owed has arrived."""

    def holds() -> bool:
        owed = world.rows("SELECT state FROM deliveries WHERE kind IN ('final', 'reply')")
        ended = {row["state"] for row in owed} == {"delivered"}
        return ended and not world.rows("SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')")

    return holds


def gaps(calls: tuple[Call, ...]) -> list[float]:
    at = [call.now for call in calls]
    return [round(later - earlier, 3) for earlier, later in zip(at, at[1:], strict=False)]


async def answered(world: SlackWorld, text: str = "go on") -> list[str]:
    """Ada asks in the room; what stands in her thread when all has arrived."""
    asked = world.ada.says(world.room, text, mention=True)
    await world.until(finished(world))
    return world.slack.posts_in(world.room, asked.ts)


def slow(clock: OwnedClock, count: int, seconds: float) -> Scripted:
    """Says a step now and then."""

    async def pause(turn: object) -> None:
        await clock.sleep(seconds)

    return Scripted(*(step for number in range(count) for step in (f"step {number}. ", pause)))


def steps(count: int) -> str:
    return "".join(f"step {number}. " for number in range(count)).strip()


# What it looks like.


async def test_a_long_answer_comes_in_several_messages_in_order_in_its_thread(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Scripted(WORDS), clock=OwnedClock()) as world:
        world.slack.limit_rates()
        parts = await answered(world)
        assert len(parts) == 3
        assert " ".join(parts) == WORDS
        assert [call.verdict for call in world.slack.calls("chat.postMessage")] == ["ok"] * 3


async def test_a_table_a_file_and_buttons_arrive(tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_bytes(b"all is well")
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    agent = Scripted(
        table, FileMade(path=str(tmp_path / "report.txt"), name="report.txt"), ChoicesOffered(("Yes", "No"))
    )
    async with SlackWorld(tmp_path / "home", agent, clock=OwnedClock()) as world:
        await answered(world)
        first, file = world.slack.sent
        assert text_of(first) == table
        assert [button.label for button in choices_of(first)] == ["Yes", "No"]
        assert ([each.data for each in file.files], file.thread) == ([b"all is well"], first.thread)


async def test_a_file_that_is_too_large_is_named_with_the_reason(tmp_path: Path) -> None:
    with (tmp_path / "film.mp4").open("wb") as film:
        film.truncate(200 * 1024 * 1024)
    agent = Scripted("here", FileMade(path=str(tmp_path / "film.mp4"), name="film.mp4"))
    async with SlackWorld(tmp_path / "home", agent, clock=OwnedClock()) as world:
        text, excuse = await answered(world)
        assert text == "here"
        assert excuse == "I could not send film.mp4: it has 200 MB, and Slack takes 100 MB from a bot"


async def test_an_answer_in_a_thread_grows_as_a_stream_that_keeps_its_distance(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, slow(clock, 20, 0.4), clock=clock) as world:
        world.slack.limit_rates()
        assert await answered(world) == [steps(20)]
        appends = world.slack.calls("chat.appendStream")
        assert len(appends) > 4
        assert min(gaps(appends)) >= 1.0
        assert {call.verdict for call in world.slack.calls() if call.method.startswith("chat.")} == {"ok"}
        assert [(each.stream, each.edits[-1].text) for each in world.slack.sent] == [("stopped", steps(20))]


async def test_an_answer_outside_of_threads_grows_by_edits_every_three_seconds(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, slow(clock, 20, 0.7), clock=clock) as world:
        world.slack.limit_rates()
        world.ada.says(world.ada.direct, "go on")
        await world.until(finished(world))
        assert world.posts == [steps(20)]
        edits = world.slack.calls("chat.update")
        assert len(edits) > 3
        assert min(gaps(edits)) >= 3.0
        assert {call.verdict for call in edits} == {"ok"}
        assert not world.slack.calls("chat.startStream")


@pytest.mark.parametrize("idle", [None, 30.0])
async def test_a_stream_outlives_slacks_patience_and_is_one_whole_message(tmp_path: Path, idle: float | None) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, slow(clock, 12, 45.0 if idle else 31.0), clock=clock) as world:
        if idle:
            world.slack.expire_streams(idle_seconds=idle)
        assert await answered(world) == [steps(12)]
        (sent,) = world.slack.sent
        assert sent.stream == ("expired" if idle else "stopped")
        assert len(world.slack.calls("chat.update")) > 3


async def test_a_long_stream_becomes_messages_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    clock = OwnedClock()

    async def pause(turn: object) -> None:
        await clock.sleep(1.1)

    size = len(WORDS) // 8
    agent = Scripted(*(step for n in range(9) for step in (WORDS[n * size : (n + 1) * size], pause)))
    async with SlackWorld(tmp_path, agent, clock=clock) as world:
        parts = await answered(world)
        assert " ".join(parts) == WORDS
        assert not any(message.streaming for message in world.slack.sent)


async def test_reactions_tell_how_it_stands(tmp_path: Path) -> None:
    gate = Gate()
    async with SlackWorld(tmp_path, Scripted(gate, "done"), clock=OwnedClock()) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.slack.reactions == {asked.id: ("eyes",)})
        gate.open()
        await world.until(lambda: world.slack.reactions == {asked.id: ("white_check_mark",)})


async def test_an_answer_that_slack_refuses_for_good_is_marked_as_failed(tmp_path: Path) -> None:
    gate = Gate()
    async with SlackWorld(tmp_path, Scripted(gate, "done"), clock=OwnedClock()) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.slack.reactions == {asked.id: ("eyes",)})
        world.slack.fail_next("restricted_action", "chat.postMessage", 50)
        gate.open()
        await world.until(lambda: world.slack.reactions == {asked.id: ("x",)})
        assert world.posts == []


async def test_the_assistants_pane_says_that_it_works_until_it_has_answered(tmp_path: Path) -> None:
    gate = Gate()
    async with SlackWorld(tmp_path, Scripted(gate, "done"), clock=OwnedClock()) as world:
        root = world.ada.opens_assistant()
        world.ada.says(world.ada.direct, "go on", thread=root)
        await world.until(lambda: world.slack.status(world.ada.direct, root.ts))
        gate.open()
        await world.until(finished(world))
        await world.until(lambda: not world.slack.status(world.ada.direct, root.ts))
        assert world.slack.posts_in(world.ada.direct, root.ts) == ["done"]


@pytest.mark.parametrize("scope", ["reactions:write", "files:write"])
async def test_an_ability_that_the_app_lacks_costs_nothing_else(tmp_path: Path, scope: str) -> None:
    (tmp_path / "a.txt").write_bytes(b"a")
    gate = Gate()
    agent = Scripted(gate, "done", FileMade(path=str(tmp_path / "a.txt"), name="a.txt"))
    async with SlackWorld(tmp_path / "home", agent, clock=OwnedClock()) as world:
        world.slack.drop_scope(world.slack.main, scope)
        world.ada.says(world.room, "go on", mention=True)
        await gate.reached()
        gate.open()
        await world.until(finished(world))
        assert world.posts[0] == "done"
        assert ("files:write" in world.posts[-1]) == (scope == "files:write")


async def test_five_questions_in_five_threads_have_five_answers_in_their_threads(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        world.slack.limit_rates()
        asked = [world.ada.says(world.room, f"q{number}", mention=True) for number in range(5)]
        await world.until(lambda: len(world.posts) == 5)
        for number, each in enumerate(asked):
            assert world.slack.posts_in(world.room, each.ts) == [f"you said: q{number}"]


# Whom it calls.


@pytest.mark.parametrize("grows", [False, True])
async def test_nobody_is_called_and_nothing_unfolds(tmp_path: Path, grows: bool) -> None:
    clock = OwnedClock()

    async def pause(turn: object) -> None:
        await clock.sleep(1.2 if grows else 0.0)

    agent = Scripted(
        "hello <!chan", pause, "nel> <!here> @everyone", pause, " <@U000000001> https://example.com", pause
    )
    async with SlackWorld(tmp_path, agent, clock=clock) as world:
        await answered(world)
        world.ada.says(world.ada.direct, "go on")
        await world.until(lambda: len(world.posts) == 2 and finished(world)())
        assert world.slack.pings == ()
        for call in world.slack.calls("chat.postMessage"):
            assert (call.params["unfurl_links"], call.params["unfurl_media"]) == (False, False)
        assert "<!channel>" in world.posts[0].replace("\u200b", "")


# What goes wrong.


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("trouble", ["drop", "503", "502 plain", "internal_error", "garble"])
async def test_an_answer_in_doubt_is_there_once(tmp_path: Path, trouble: str, after: bool) -> None:
    async with SlackWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        break_next(world, trouble, "chat.postMessage", after)
        assert await answered(world) == ["you said: go on"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("trouble", ["drop", "503", "502 plain", "internal_error", "garble"])
@pytest.mark.parametrize("method", ["chat.startStream", "chat.appendStream", "chat.stopStream"])
async def test_a_stream_in_doubt_is_whole_and_there_once(
    tmp_path: Path, method: str, trouble: str, after: bool
) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, slow(clock, 6, 2.0), clock=clock) as world:
        break_next(world, trouble, method, after)
        assert await answered(world) == [steps(6)]
        assert not any(message.streaming for message in world.slack.sent)


def break_next(world: SlackWorld, trouble: str, method: str, after: bool) -> None:
    match trouble:
        case "drop":
            world.slack.drop_next(after, method)
        case "garble":
            world.slack.garble_next(method)
        case "internal_error":
            world.slack.fail_next(trouble, method, after_effect=after)
        case _:
            world.slack.fail_next(int(trouble[:3]), method, after_effect=after, plain="plain" in trouble)


@pytest.mark.parametrize("after", [False, True])
async def test_a_doubt_that_outlives_the_process_is_settled_by_the_thread(tmp_path: Path, after: bool) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, Echo(), clock=clock) as world:
        world.slack.drop_next(after, "chat.postMessage")
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.slack.calls("chat.postMessage"))
        await world.crash()
        await clock.advance(400.0)
        await world.start()
        await world.until(finished(world))
        assert world.slack.posts_in(world.room, asked.ts) == ["you said: go on"]


async def test_where_nobody_may_read_a_second_copy_says_that_it_is_one(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        world.slack.drop_next(True, "chat.postMessage")
        await world.until(lambda: world.slack.calls("chat.postMessage"))
        world.slack.drop_scope(world.slack.main, "channels:history")
        await world.until(finished(world))
        first, second = world.slack.posts_in(world.room, asked.ts)
        assert first == "you said: go on"
        assert second == f"{MARK}you said: go on"


async def test_a_stream_that_a_crash_left_open_is_stopped_and_completed(tmp_path: Path) -> None:
    clock, gate = OwnedClock(), Gate()

    async def pause(turn: object) -> None:
        await clock.sleep(3.0)

    agent = Takes(Scripted("half an ans", gate), Scripted("the whole", pause, " answer", pause))
    async with SlackWorld(tmp_path, agent, clock=clock) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.slack.posts_in(world.room, asked.ts) == ["half an ans"])
        assert world.slack.sent[0].streaming
        await world.crash()
        await world.start()
        await world.until(finished(world))
        assert world.slack.posts_in(world.room, asked.ts) == ["the whole answer"]
        assert world.slack.sent[0].stream == "stopped"


async def test_who_presses_stop_stops_the_run(tmp_path: Path) -> None:
    gate = Gate()
    async with SlackWorld(tmp_path, Scripted("half an ans", gate), clock=OwnedClock()) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.slack.posts_in(world.room, asked.ts) == ["half an ans"])
        world.ada.stops(world.slack.sent[0])
        await world.until(lambda: not world.rows("SELECT 1 FROM inbox WHERE state = 'running'"))
        await world.until(finished(world))
        posts = world.slack.posts_in(world.room, asked.ts)
        assert posts[0].startswith("half an ans")
        assert not any(message.streaming for message in world.slack.sent)


@pytest.mark.parametrize("error", ["token_revoked", "account_inactive", "invalid_auth"])
async def test_an_answer_waits_for_a_token_that_is_good(tmp_path: Path, error: str) -> None:
    gate = Gate()
    async with SlackWorld(tmp_path, Scripted(gate, "done"), clock=OwnedClock()) as world:
        world.ada.says(world.room, "go on", mention=True)
        await gate.reached()
        world.slack.revoke(world.slack.main, error=error)
        gate.open()
        await world.until(lambda: world.rows("SELECT 1 FROM deliveries WHERE state = 'held'"))
        assert world.posts == []
        world.slack.revoke(world.slack.main, "xoxb-a-new-token")
        await world.end()
        await world.start()
        await world.until(finished(world))
        assert world.posts == ["done"]


async def test_a_limit_on_one_channel_leaves_the_others_alone(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        world.slack.fail_next(429, "chat.postMessage", retry_after=30, channel=world.room.id)
        world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: world.slack.calls("chat.postMessage"))
        world.ada.says(world.ada.direct, "two")
        await world.until(lambda: world.posts, limit=5.0)
        assert world.posts == ["you said: two"]
        await world.until(finished(world))
        assert sorted(world.posts) == ["you said: one", "you said: two"]


async def test_the_answer_to_a_slash_command_is_for_one_alone(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        world.ada.commands("/tidings", "status", world.room)
        await world.until(lambda: world.slack.whispers)
        assert {each.whispered_to for each in world.slack.whispers} == {world.ada.id}
        assert world.posts == []
