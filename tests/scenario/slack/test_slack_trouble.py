"""What goes wrong on Slack while an answer grows or is on its way: it is there once, whole, or said why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulators.slack.simulator import Call, SlackServer
from tests.worlds.slack import SlackWorld
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted, Takes
from tidings.adapters.slack.adapter import TOO_LATE
from tidings.core.agent import FileMade, Turn
from tidings.core.outbound.outbox import MARK


def owed(world: SlackWorld) -> set[str]:
    return {row["state"] for row in world.rows("SELECT state FROM deliveries WHERE kind IN ('final', 'reply')")}


def finished(world: SlackWorld) -> Callable[[], bool]:
    """Every run has ended, and all that is owed has arrived."""
    running = "SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')"
    return lambda: owed(world) == {"delivered"} and not world.rows(running)


async def answered(world: SlackWorld, *, private: bool = False) -> list[str]:
    """Ada asks in the room, or in private; what stands in that thread when all has arrived."""
    channel = world.ada.direct if private else world.room
    asked = world.ada.says(channel, "go on", mention=not private)
    await world.until(finished(world))
    return world.slack.posts_in(channel, "" if private else asked.ts)


def growing(clock: OwnedClock, steps: int = 8, seconds: float = 1.5) -> Scripted:
    async def pause(turn: Turn) -> None:
        await clock.sleep(seconds)

    return Scripted(*(step for number in range(steps) for step in (f"step {number}. ", pause)))


GROWN = "".join(f"step {number}. " for number in range(8)).strip()


def gaps(calls: list[Call]) -> list[float]:
    at = [call.now for call in calls]
    return [round(later - earlier, 3) for earlier, later in zip(at, at[1:], strict=False)]


# Files.


def is_missing(folder: Path) -> FileMade:
    return FileMade(str(folder / "gone.txt"), "gone.txt")


def is_empty(folder: Path) -> FileMade:
    (folder / "gone.txt").write_bytes(b"")
    return FileMade(str(folder / "gone.txt"), "gone.txt")


def is_plain(folder: Path) -> FileMade:
    (folder / "gone.txt").write_bytes(b"text")
    return FileMade(str(folder / "gone.txt"), "gone.txt")


UNSENDABLE: dict[str, tuple[Callable[[Path], FileMade], str]] = {
    "": (is_missing, "No such file or directory"),
    " ": (is_empty, "it is empty"),
    "storage_limit_reached": (is_plain, "no room for files"),
    "file_uploads_disabled": (is_plain, "takes no files"),
}


@pytest.mark.parametrize("error", UNSENDABLE)
async def test_a_file_that_cannot_be_sent_is_named_with_the_reason_and_the_others_arrive(
    tmp_path: Path, error: str
) -> None:
    unsendable, reason = UNSENDABLE[error]
    (tmp_path / "good.png").write_bytes(b"png")
    good = FileMade(str(tmp_path / "good.png"), "good.png")
    agent = Scripted("Two files:", unsendable(tmp_path), good)
    async with SlackWorld(tmp_path / "home", agent, clock=OwnedClock()) as world:
        if error.strip():
            world.slack.fail_next(error, "files.getUploadURLExternal")
        text, line, _ = await answered(world)

        assert text == "Two files:"
        assert line.startswith("I could not send gone.txt: ")
        assert reason in line
        assert [file.data for message in world.slack.sent for file in message.files] == [b"png"]
        assert len({message.thread for message in world.slack.sent}) == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["files.getUploadURLExternal", "upload", "files.completeUploadExternal"])
async def test_a_file_in_doubt_is_there_once(tmp_path: Path, step: str, after: bool) -> None:
    (tmp_path / "a.txt").write_bytes(b"text")
    agent = Scripted("Here:", FileMade(str(tmp_path / "a.txt"), "a.txt"))
    async with SlackWorld(tmp_path / "home", agent, clock=OwnedClock()) as world:
        world.slack.drop_next(after, step)
        await answered(world)

        assert [file.data for message in world.slack.sent for file in message.files] == [b"text"]
        assert not [post for post in world.posts if MARK in post]


# What grows.


async def test_edits_in_two_places_keep_their_distance_each_for_itself(tmp_path: Path) -> None:
    clock = OwnedClock()
    settings = {"native_streams": False}
    async with SlackWorld(tmp_path, growing(clock, 10), clock=clock, settings=settings) as world:
        world.slack.limit_rates()
        roots = [world.ada.says(world.room, f"go on {number}", mention=True) for number in range(2)]
        await world.until(finished(world))

        assert not world.slack.calls("chat.startStream")
        for root, message in zip(roots, world.slack.sent, strict=True):
            edits = [call for call in world.slack.calls("chat.update") if call.params["ts"] == message.ts]
            assert message.thread == root.ts
            assert len(edits) > 2
            assert min(gaps(edits)) >= 3.0
        assert {call.verdict for call in world.slack.calls("chat.update")} == {"ok"}


def limited(slack: SlackServer, method: str) -> None:
    slack.fail_next(429, method, count=2, retry_after=3)


def faulty(slack: SlackServer, method: str) -> None:
    slack.fail_next(503, method, count=3)


def faulty_after(slack: SlackServer, method: str) -> None:
    slack.fail_next(502, method, count=3, after_effect=True)


def dropped(slack: SlackServer, method: str) -> None:
    slack.drop_next(False, method, count=2)


def dropped_after(slack: SlackServer, method: str) -> None:
    slack.drop_next(True, method, count=4)


def garbled(slack: SlackServer, method: str) -> None:
    slack.garble_next(method, count=2)


TROUBLES = (limited, faulty, faulty_after, dropped, dropped_after, garbled)
METHODS = ("chat.postMessage", "chat.update", "chat.startStream", "chat.appendStream", "chat.stopStream")


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("method", METHODS)
async def test_whatever_befalls_a_growing_answer_its_end_stands_there_once(
    tmp_path: Path, method: str, trouble: Callable[[SlackServer, str], None]
) -> None:
    """Streams in a thread, edits in private; more than once in a row, which one lost answer does not show."""
    clock = OwnedClock()
    async with SlackWorld(tmp_path, growing(clock), clock=clock) as world:
        trouble(world.slack, method)
        assert await answered(world, private="Stream" not in method) == [GROWN]
        await world.until(lambda: not world._unsettled())

        assert not any(message.streaming for message in world.slack.sent)


@pytest.mark.parametrize("private", [False, True])
async def test_when_a_person_removes_the_growing_message_the_end_is_a_new_one(tmp_path: Path, private: bool) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, growing(clock), clock=clock) as world:
        channel = world.ada.direct if private else world.room
        asked = world.ada.says(channel, "go on", mention=not private)
        await world.until(lambda: world.slack.calls("chat.update" if private else "chat.appendStream"))
        world.slack.erase(world.slack.sent[0])
        await world.until(finished(world))

        assert world.slack.posts_in(channel, "" if private else asked.ts) == [GROWN]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", ["chat.startStream", "chat.stopStream"])
async def test_a_stream_in_doubt_when_the_process_dies_is_completed_by_the_next(
    tmp_path: Path, method: str, after: bool
) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, growing(clock), clock=clock) as world:
        world.slack.drop_next(after, method)
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.slack.calls(method))
        await world.crash()
        await clock.advance(30.0)
        await world.start()
        await world.until(finished(world))
        await world.until(lambda: not world._unsettled())

        assert world.slack.posts_in(world.room, asked.ts) == [GROWN]
        assert not any(message.streaming for message in world.slack.sent)


async def test_a_stream_that_slack_ended_while_nobody_ran_is_completed(tmp_path: Path) -> None:
    clock, gate = OwnedClock(), Gate()
    agent = Takes(Scripted("half an ans", gate), Scripted("the whole answer"))
    async with SlackWorld(tmp_path, agent, clock=clock) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.slack.posts_in(world.room, asked.ts) == ["half an ans"])
        await world.crash()
        world.slack.expire_streams()
        await clock.advance(400.0)
        await world.start()
        await world.until(finished(world))

        assert world.slack.posts_in(world.room, asked.ts) == ["the whole answer"]


async def test_without_native_streams_nothing_else_changes(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, growing(clock), clock=clock) as world:
        # As for an app that is no assistant.
        world.slack.fail_next("unknown_method", "chat.startStream", count=20)
        assert await answered(world) == [GROWN]
        assert await answered(world) == [GROWN]

        assert len(world.slack.calls("chat.startStream")) == 1
        assert [message.stream for message in world.slack.sent] == ["", ""]
        assert world.slack.calls("chat.update")


# Signals.


async def test_a_signal_that_fails_costs_nothing(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, growing(clock), clock=clock) as world:
        for error in ("invalid_name", "not_in_channel", 503):
            world.slack.fail_next(error, "reactions.add")
        world.slack.drop_next(False, "reactions.remove")
        assert await answered(world) == [GROWN]
        assert (await world.listener()).restarts == 0


async def test_what_fails_is_marked_so_and_without_reactions_nothing_is(tmp_path: Path) -> None:
    clock = OwnedClock()

    async def fails(turn: Turn) -> None:
        await clock.sleep(5.0)
        raise RuntimeError("no")

    async with SlackWorld(tmp_path, Scripted(fails), clock=clock) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.slack.reactions == {asked.id: ("x",)})
        await world.end()
        world.account_settings["reactions"] = False
        await world.start()
        before = len(world.slack.calls("reactions.add"))
        world.ada.says(world.room, "again", mention=True)
        await world.until(lambda: len(world.posts) == 2 and finished(world)())

        assert len(world.slack.calls("reactions.add")) == before


# What Slack allows.


async def test_a_doubt_is_settled_by_one_look_a_minute_where_slack_allows_no_more(tmp_path: Path) -> None:
    """As for apps that are sold: fifteen messages at a time, once a minute."""
    clock = OwnedClock()
    async with SlackWorld(tmp_path, Echo(), clock=clock) as world:
        world.slack.limit_history()
        bob = world.slack.person("bob")
        asked = world.ada.says(world.room, "go on", mention=True)
        world.slack.drop_next(True, "chat.postMessage")
        await world.until(lambda: world.slack.calls("chat.postMessage"))
        for number in range(40):
            bob.says(world.room, f"meanwhile {number}", thread=asked)
        await world.until(finished(world))

        assert world.slack.posts_in(world.room, asked.ts) == ["you said: go on"]
        looks = list(world.slack.calls("conversations.replies"))
        # The first no teaches it.
        assert [call.verdict for call in looks].count("ratelimited") <= 1
        assert len(looks) <= 6


@pytest.mark.parametrize("skew", [-3600.0, -60.0, 60.0, 3600.0])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("private", [False, True])
async def test_a_doubt_is_settled_by_slacks_own_clock_however_ours_is_set(
    tmp_path: Path, skew: float, after: bool, private: bool
) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, Echo(), clock=clock) as world:
        world.slack.skew = skew
        world.slack.drop_next(after, "chat.postMessage")
        channel = world.ada.direct if private else world.room
        asked = world.ada.says(channel, "go on", mention=not private)
        await world.until(lambda: world.slack.calls("chat.postMessage"))
        await world.crash()
        await clock.advance(400.0)
        await world.start()
        await world.until(finished(world))

        assert world.slack.posts_in(channel, "" if private else asked.ts) == ["you said: go on"]


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
async def test_a_stream_in_doubt_is_found_by_slacks_own_clock(tmp_path: Path, skew: float) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, growing(clock), clock=clock) as world:
        world.slack.skew = skew
        world.slack.drop_next(True, "chat.startStream")
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(finished(world))
        await world.until(lambda: not world._unsettled())

        assert world.slack.posts_in(world.room, asked.ts) == [GROWN]
        assert not any(message.streaming for message in world.slack.sent)


async def test_many_threads_at_once_keep_to_the_limits_and_are_answered_each_in_its_place(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, Echo(), clock=clock) as world:
        world.slack.limit_rates()
        rooms = [world.slack.channel(f"room{number}") for number in range(5)]
        asked = [(room, world.ada.says(room, f"q{n} {room.name}", mention=True)) for n in range(6) for room in rooms]
        await world.until(lambda: len(world.posts) == 30 and finished(world)(), real_limit=30.0)

        for number, (room, root) in enumerate(asked):
            assert world.slack.posts_in(room, root.ts) == [f"you said: q{number // 5} {room.name}"]
        assert {call.verdict for call in world.slack.calls("chat.postMessage")} == {"ok"}


async def test_what_never_left_us_is_sent_when_slack_is_back(tmp_path: Path) -> None:
    gate, clock = Gate(), OwnedClock()
    async with SlackWorld(tmp_path, Scripted(gate, "done"), clock=clock) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await gate.reached()
        await world.slack.outage(True)
        gate.open()
        await clock.advance(120)
        assert owed(world) == {"waiting"}
        await world.slack.outage(False)
        await world.until(finished(world))

        assert world.slack.posts_in(world.room, asked.ts) == ["done"]


@pytest.mark.parametrize("error", [503, 429, "internal_error"])
async def test_a_slack_that_is_ill_when_we_begin_costs_no_message(tmp_path: Path, error: str | int) -> None:
    """Where the usual library confirms the first event and loses it."""
    clock = OwnedClock()
    async with SlackWorld(tmp_path, Echo(), clock=clock) as world:
        await world.end()
        world.slack.fail_next(error, "auth.test", count=2, retry_after=7)
        message = world.ada.says(world.ada.direct, "hi")
        await world.start(attached=False)
        await world.until(lambda: world.posts)

        assert world.posts == ["you said: hi"]
        assert message.id in world.slack.confirmed


# What nobody will ever take.


def archived(world: SlackWorld) -> None:
    world.slack.archive(world.room)


def sent_away(world: SlackWorld) -> None:
    world.slack.kick(world.slack.main, world.room)


def thread_gone(world: SlackWorld) -> None:
    for message in world.slack.truth.messages.values():
        if message.sender == world.ada.id:
            world.slack.erase(message)
            return


def locked(world: SlackWorld) -> None:
    world.slack.fail_next("restricted_action_thread_locked", "chat.postMessage", count=5)


HAPPENINGS: dict[Callable[[SlackWorld], None], str] = {
    archived: "the channel is archived",
    sent_away: "invite it with /invite",
    thread_gone: "the thread is gone",
    locked: "the thread is locked",
}


@pytest.mark.parametrize("happens", HAPPENINGS)
async def test_what_cannot_be_said_in_a_thread_is_dead_with_a_reason_and_said_nowhere_else(
    tmp_path: Path, happens: Callable[[SlackWorld], None]
) -> None:
    gate, clock = Gate(), OwnedClock()
    async with SlackWorld(tmp_path, Scripted(gate, "the secret"), clock=clock) as world:
        world.ada.says(world.room, "go on", mention=True)
        await gate.reached()
        happens(world)
        gate.open()
        await world.until(lambda: owed(world) == {"dead"})
        (row,) = world.rows("SELECT reason FROM deliveries WHERE kind = 'final'")
        sends = len(world.slack.calls("chat.postMessage"))
        await clock.advance(300)

        assert HAPPENINGS[happens] in row["reason"]
        assert world.posts == []
        assert len(world.slack.calls("chat.postMessage")) == sends


# What the owner must mend.


async def test_an_answer_that_lacks_a_scope_is_held_and_the_scope_is_named(tmp_path: Path) -> None:
    gate, clock = Gate(), OwnedClock()
    async with SlackWorld(tmp_path, Scripted(gate, "done"), clock=clock) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await gate.reached()
        world.slack.drop_scope(world.slack.main, "chat:write")
        gate.open()
        await world.until(lambda: owed(world) == {"held"})
        health = await world.gateway.desk.health()
        assert [alarm.last for alarm in health.alarms if "chat:write" in alarm.last]
        world.slack.main.scopes.append("chat:write")
        await world.restart()
        await world.until(finished(world))

        assert world.slack.posts_in(world.room, asked.ts) == ["done"]


# What only one person may see.


@pytest.mark.parametrize("status", [404, 403])
async def test_a_private_answer_that_is_refused_is_never_said_to_all(tmp_path: Path, status: int) -> None:
    async with SlackWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        world.slack.fail_next(status, "response_url", count=10, plain=True)
        world.ada.commands("/tidings", "whoami", world.room)
        await world.until(lambda: owed(world) == {"dead"})

        assert world.posts == []
        assert world.slack.calls("chat.postMessage") == ()


async def test_a_private_answer_that_comes_too_late_is_said_to_nobody(tmp_path: Path) -> None:
    gate, clock = Gate(), OwnedClock()
    async with SlackWorld(tmp_path, Takes(Scripted(gate), Scripted("the secret")), clock=clock) as world:
        world.ada.commands("/tidings", "tell me all", world.room)
        await gate.reached()
        await world.crash()
        await clock.advance(31 * 60)
        await world.start()
        await world.until(lambda: owed(world) == {"dead"})
        (row,) = world.rows("SELECT reason FROM deliveries WHERE kind = 'final'")

        assert row["reason"] == TOO_LATE
        assert not [each for each in (*world.slack.sent, *world.slack.whispers) if "secret" in each.text]


@pytest.mark.parametrize("after", [False, True])
async def test_a_private_answer_in_doubt_arrives_and_a_second_copy_says_so(tmp_path: Path, after: bool) -> None:
    """Nobody can read it back."""
    async with SlackWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        world.slack.drop_next(after, "response_url")
        world.ada.commands("/tidings", "hello you", world.room)
        await world.until(finished(world))
        first, *again = [each.text for each in world.slack.whispers]

        assert world.posts == []
        assert len(again) == (1 if after else 0)
        assert MARK in (again[0] if after else first)
