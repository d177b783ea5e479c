"""What goes wrong on Discord while an answer grows or is on its way: it is there once, whole, or said why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulators.discord.faults import Fault
from tests.simulators.discord.simulator import Call, DiscordServer, Message
from tests.worlds.discord import DiscordWorld
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted, Takes
from tidings.adapters.discord.views import TOO_LATE
from tidings.adapters.shared.files import MEGABYTE
from tidings.core.agent import FileMade, Turn

WORDS = " ".join(f"word{number}" for number in range(700))


def owed(world: DiscordWorld) -> set[str]:
    return {row["state"] for row in world.rows("SELECT state FROM deliveries WHERE kind IN ('final', 'reply')")}


def finished(world: DiscordWorld) -> Callable[[], bool]:
    """Every run has ended, and all that is owed has arrived."""
    running = "SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')"
    return lambda: owed(world) == {"delivered"} and not world.rows(running)


async def answered(world: DiscordWorld) -> tuple[Message, ...]:
    """Ada asks in the room; what stands there when all has arrived."""
    world.ada.says(world.room, "go on", mention=True)
    await world.until(finished(world))
    return world.discord.visible(world.room)


def growing(clock: OwnedClock, steps: int = 8, seconds: float = 0.7) -> Scripted:
    async def pause(turn: Turn) -> None:
        await clock.sleep(seconds)

    return Scripted(*(step for number in range(steps) for step in (f"step {number}. ", pause)))


GROWN = "".join(f"step {number}. " for number in range(8)).strip()


def gaps(calls: tuple[Call, ...] | list[Call]) -> list[float]:
    at = [call.now for call in calls]
    return [round(later - earlier, 3) for earlier, later in zip(at, at[1:], strict=False)]


# Files.


def is_missing(folder: Path) -> FileMade:
    return FileMade(str(folder / "gone.txt"), "gone.txt")


def is_empty(folder: Path) -> FileMade:
    (folder / "gone.txt").write_bytes(b"")
    return FileMade(str(folder / "gone.txt"), "gone.txt")


def is_too_big(folder: Path) -> FileMade:
    with (folder / "big.bin").open("wb") as file:
        file.truncate(11 * MEGABYTE)
    return FileMade(str(folder / "big.bin"), "gone.txt")


def is_plain(folder: Path) -> FileMade:
    (folder / "gone.txt").write_bytes(b"text")
    return FileMade(str(folder / "gone.txt"), "gone.txt")


def nothing(discord: DiscordServer) -> None:
    """The server has no part in it."""


def too_big_for_the_server(discord: DiscordServer) -> None:
    # The first is the text.
    discord.hold_next("send").set()
    discord.fail_next(413, method="send", code=40005, message="Request entity too large")


def too_big_for_the_edge(discord: DiscordServer) -> None:
    discord.hold_next("send").set()
    discord.faults.arm(Fault(action="fail", status=413, body=b"<html>413</html>", type="text/html", method="send"))


def not_allowed(discord: DiscordServer) -> None:
    discord.forbid(next(iter(discord.places.channels)), "attach_files")


UNSENDABLE: dict[str, tuple[Callable[[Path], FileMade], Callable[[DiscordServer], None], str]] = {
    "missing": (is_missing, nothing, "No such file or directory"),
    "empty": (is_empty, nothing, "it is empty"),
    "over 10 MB": (is_too_big, nothing, "it has 11 MB, and Discord takes 10 MB"),
    "too big for the server": (is_plain, too_big_for_the_server, "too big for Discord"),
    "too big for the edge": (is_plain, too_big_for_the_edge, "too big for Discord"),
    "not allowed": (is_plain, not_allowed, "lacks a permission"),
}


@pytest.mark.parametrize("why", UNSENDABLE)
async def test_a_file_that_cannot_be_sent_is_named_with_the_reason_and_the_others_arrive(
    tmp_path: Path, why: str
) -> None:
    unsendable, arm, reason = UNSENDABLE[why]
    (tmp_path / "good.png").write_bytes(b"png")
    good = FileMade(str(tmp_path / "good.png"), "good.png")
    agent = Scripted("Two files:", unsendable(tmp_path), good)
    async with DiscordWorld(tmp_path / "home", agent, clock=OwnedClock()) as world:
        arm(world.discord)
        text, line, last = await answered(world)

        assert text.text == "Two files:"
        assert line.text.startswith("I could not send gone.txt: ")
        assert reason in line.text
        if why == "not allowed":
            assert last.text.startswith("I could not send good.png: ")
        else:
            assert [each.data for each in last.files] == [b"png"]


@pytest.mark.parametrize("after", [False, True])
async def test_a_file_in_doubt_is_there_once(tmp_path: Path, after: bool) -> None:
    (tmp_path / "a.txt").write_bytes(b"text")
    agent = Scripted("Here:", FileMade(str(tmp_path / "a.txt"), "a.txt"))
    async with DiscordWorld(tmp_path / "home", agent, clock=OwnedClock()) as world:
        world.discord.hold_next("send").set()
        world.discord.drop_next(after, "send")
        _, sent = await answered(world)

        assert [(file.name, file.data) for file in sent.files] == [("a.txt", b"text")]


@pytest.mark.parametrize("grows", [False, True])
async def test_a_very_long_answer_comes_in_messages_where_no_file_may_be_attached(tmp_path: Path, grows: bool) -> None:
    text, clock = " ".join([WORDS] * 3), OwnedClock()

    async def pause(turn: Turn) -> None:
        await clock.sleep(5.0)

    steps = (text[:1000], pause, text[1000:]) if grows else (text,)
    async with DiscordWorld(tmp_path, Scripted(*steps), clock=clock) as world:
        world.discord.forbid(world.room, "attach_files")
        parts = await answered(world)

        assert " ".join(part.text for part in parts) == text
        assert len(parts) > 5
        assert [part.files for part in parts] == [()] * len(parts)


# While it grows.


async def test_edits_in_two_threads_keep_their_distance_each_for_itself(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, growing(clock), clock=clock) as world:
        world.discord.limit_rates()
        threads = [world.ada.opens_thread(world.room, name) for name in ("one", "two")]
        for thread in threads:
            world.ada.says(thread, "go on", mention=True)
        await world.until(finished(world))

        for thread in threads:
            assert world.discord.posts_in(thread) == [GROWN]
            edits = [call for call in world.discord.calls("edit") if call.channel == thread.id]
            assert len(edits) >= 3
            assert min(gaps(edits)) >= 1.3
            # Neither waits for the other.
            assert max(gaps(edits)) < 2.6
        assert {call.verdict for call in world.discord.calls() if call.method in ("send", "edit")} == {"ok"}


async def test_a_sight_in_flight_neither_stops_the_model_nor_overwrites_the_end(tmp_path: Path) -> None:
    clock = OwnedClock()
    read: list[str] = []

    def reads(turn: Turn) -> None:
        read.append("all of it")

    agent = growing(clock)
    agent.steps = (*agent.steps, reads)
    async with DiscordWorld(tmp_path, agent, clock=clock) as world:
        held = world.discord.hold_next("edit")
        world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.discord.calls("edit"))
        await world.until(lambda: read)
        assert len(world.discord.calls("edit")) == 1
        held.set()
        await world.until(finished(world))
        await world.settled()

        assert world.discord.posts_in(world.room) == [GROWN]
        assert world.discord.calls("edit")[-1].text == GROWN


def limited(discord: DiscordServer) -> None:
    discord.fail_next(429, retry_after=3.0, method="edit", count=2)


def limited_by_the_edge(discord: DiscordServer) -> None:
    discord.fail_next(429, method="edit", via=False)


def faulty(discord: DiscordServer) -> None:
    discord.fail_next(503, method="edit", count=3)


def faulty_after(discord: DiscordServer) -> None:
    discord.fail_next(502, method="edit", count=20, after_effect=True)
    discord.fail_next(502, method="edit", count=1)


def dropped(discord: DiscordServer) -> None:
    discord.drop_next(False, "edit", count=2)


def dropped_after(discord: DiscordServer) -> None:
    discord.drop_next(True, "edit", count=4)


def garbled(discord: DiscordServer) -> None:
    discord.garble_next("edit", count=2)


def opening_dropped(discord: DiscordServer) -> None:
    discord.drop_next(False, "send")


def opening_dropped_after(discord: DiscordServer) -> None:
    discord.drop_next(True, "send")


@pytest.mark.parametrize(
    "trouble",
    [
        *(limited, limited_by_the_edge, faulty, faulty_after, dropped, dropped_after, garbled),
        *(opening_dropped, opening_dropped_after),
    ],
)
async def test_whatever_befalls_a_growing_answer_its_end_stands_there_once(
    tmp_path: Path, trouble: Callable[[DiscordServer], None]
) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, growing(clock), clock=clock) as world:
        trouble(world.discord)
        (message,) = await answered(world)
        await world.settled()

        assert message.text == GROWN


async def test_when_a_person_removes_the_growing_message_the_end_is_a_new_one(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, growing(clock), clock=clock) as world:
        world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.discord.calls("edit"))
        world.discord.erase(world.discord.visible(world.room)[0].id)
        await world.until(finished(world))

        assert world.discord.posts_in(world.room) == [GROWN]


async def test_a_crash_in_the_middle_goes_on_in_the_same_message(tmp_path: Path) -> None:
    clock, gate = OwnedClock(), Gate()

    async def pause(turn: Turn) -> None:
        await clock.sleep(5.0)

    agent = Takes(Scripted("so far", pause, gate), Scripted("so far so good", pause, "."))
    async with DiscordWorld(tmp_path, agent, clock=clock) as world:
        world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.posts and gate.entered.is_set())
        (begun,) = world.discord.visible(world.room)
        await world.crash()
        await world.start()
        await world.until(finished(world))

        assert [(each.id, each.text) for each in world.discord.visible(world.room)] == [(begun.id, "so far so good.")]


async def test_typing_lasts_as_long_as_the_work_and_no_longer(tmp_path: Path) -> None:
    clock, gate = OwnedClock(), Gate()
    async with DiscordWorld(tmp_path, Scripted(gate, "done"), clock=clock) as world:
        world.ada.says(world.room, "go on", mention=True)
        await gate.reached()
        await clock.advance(40)
        assert world.discord.is_typing(world.room)
        gate.open()
        await world.until(finished(world))
        times = len(world.discord.typing_times(world.room))
        await clock.advance(40)

        assert not world.discord.is_typing(world.room)
        assert len(world.discord.typing_times(world.room)) == times
        # A person sees it for ten seconds.
        assert 4 <= times <= 12


async def test_a_signal_that_fails_costs_nothing(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, growing(clock), clock=clock) as world:
        world.discord.forbid(world.room, "add_reactions")
        world.discord.drop_next(True, "typing")
        world.discord.fail_next(429, retry_after=60.0, method="typing", is_global=False)
        (message,) = await answered(world)

        assert message.text == GROWN
        # Each no counts against us, so it is asked for once.
        assert len(world.discord.calls("react")) == 1


async def test_without_reactions_in_the_settings_there_are_none(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock(), settings={"reactions": False}) as world:
        await answered(world)
        await world.settled()

        assert world.discord.calls("react") == ()


async def test_what_fails_is_marked_so(tmp_path: Path) -> None:
    gate = Gate()
    async with DiscordWorld(tmp_path, Scripted(gate, RuntimeError("no tea")), clock=OwnedClock()) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.discord.reactions)
        gate.open()
        await world.until(lambda: world.discord.reactions == {asked: ["❌"]})

        assert "no tea" in world.posts[0]


# On its way.


async def test_one_slow_channel_does_not_delay_another(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        held = world.discord.hold_next("send", channel=world.room)
        world.ada.says(world.room, "slow", mention=True)
        await world.until(lambda: world.discord.calls("send"))
        other = world.discord.channel("other")
        world.ada.says(other, "quick", mention=True)
        await world.until(lambda: world.discord.posts_in(other) == ["you said: quick"], limit=5.0)
        assert world.discord.posts_in(world.room) == []
        held.set()
        await world.until(finished(world))

        assert world.discord.posts_in(world.room) == ["you said: slow"]


async def test_many_channels_at_once_keep_to_the_limits_and_are_answered_each_in_its_place(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        world.discord.limit_rates()
        rooms = [world.discord.channel(f"room-{number}") for number in range(40)]
        for place, room in enumerate(rooms):
            for number in range(3):
                world.ada.says(room, f"{place} {number}", mention=True)
        await world.until(lambda: len(world.posts) == 120, real_limit=30)
        await world.settled()

        for place, room in enumerate(rooms):
            assert world.discord.posts_in(room) == [f"you said: {place} {number}" for number in range(3)]
        assert {call.verdict for call in world.discord.calls("send")} == {"ok"}


async def test_what_never_left_us_is_sent_when_discord_is_back(tmp_path: Path) -> None:
    gate, clock = Gate(), OwnedClock()
    async with DiscordWorld(tmp_path, Scripted(gate, "done"), clock=clock) as world:
        world.ada.says(world.room, "go on", mention=True)
        await gate.reached()
        await world.discord.outage(True)
        gate.open()
        await clock.advance(120)
        assert owed(world) == {"waiting"}
        await world.discord.outage(False)
        await world.until(finished(world))
        await world.settled()

        assert world.discord.posts_in(world.room) == ["done"]


async def test_a_page_of_the_edge_pauses_the_account_and_costs_nothing(tmp_path: Path) -> None:
    """The edge's ban names no time: we keep still for a minute, whatever else is to be said."""
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        world.discord.fail_next(429, method="send", via=False)
        world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: world.discord.calls("send"))
        world.ada.says(world.ada.private(), "two")
        await world.until(lambda: len(world.posts) == 2)

        first, *others = world.discord.calls("send")
        assert all(call.now - first.now >= 60.0 for call in others)


async def test_a_page_that_is_no_verdict_is_asked_again(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        page = Fault(action="fail", status=403, body=b"<html>Just a moment</html>", type="text/html", method="send")
        world.discord.faults.arm(page, 2)
        (message,) = await answered(world)

        assert message.text == "you said: go on"
        assert len(world.discord.calls("send")) == 3


async def test_a_token_that_is_taken_away_holds_what_is_owed_until_there_is_a_new_one(tmp_path: Path) -> None:
    gate, clock = Gate(), OwnedClock()
    async with DiscordWorld(tmp_path, Scripted(gate, "done"), clock=clock) as world:
        world.ada.says(world.room, "go on", mention=True)
        await gate.reached()
        world.discord.revoke("a.new.token")
        gate.open()
        await clock.advance(120)
        assert (world.posts, owed(world)) == ([], {"held"})
        await world.crash()
        await world.start()
        await world.until(finished(world))

        assert world.discord.posts_in(world.room) == ["done"]


# What only one person may see.


def unknown(discord: DiscordServer) -> None:
    discord.fail_next(404, method="callback", code=10062, message="Unknown interaction")


def unheard(discord: DiscordServer) -> None:
    discord.fail_next(401, method="original", code=50027, message="Invalid Webhook Token")
    discord.fail_next(401, method="follow_up", code=50027, message="Invalid Webhook Token")


def refused(discord: DiscordServer) -> None:
    discord.fail_next(403, method="edit_original", code=50013)


@pytest.mark.parametrize("trouble", [unknown, unheard, refused])
async def test_a_private_answer_that_is_refused_is_never_said_to_all(
    tmp_path: Path, trouble: Callable[[DiscordServer], None]
) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        await world.until(lambda: "whoami" in world.discord.commands())
        trouble(world.discord)
        world.ada.commands("/whoami", world.room)
        await world.until(lambda: owed(world) == {"dead"})
        await world.settled()

        assert world.posts == []
        assert world.discord.calls("send") == ()
        if trouble is not refused:
            (row,) = world.rows("SELECT reason FROM deliveries")
            assert row["reason"] == TOO_LATE


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("trouble", ["drop", "503", "garble"])
async def test_a_private_answer_in_doubt_is_there_once_for_one_person(
    tmp_path: Path, trouble: str, after: bool
) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        await world.until(lambda: "whoami" in world.discord.commands())
        if trouble == "drop":
            world.discord.drop_next(after, "edit_original")
        elif trouble == "garble":
            world.discord.garble_next("edit_original")
        else:
            world.discord.fail_next(503, method="edit_original", after_effect=after)
        world.ada.commands("/whoami", world.room)
        await world.until(finished(world))
        (sent,) = world.discord.sent

        assert (sent.only_for, world.discord.calls("send")) == (world.ada.id, ())


# The socket.


@pytest.mark.parametrize(
    "frame",
    [
        *("no JSON", "[]", "null", "{}", '{"op": null}', '{"op": 99, "d": {}}'),
        *('{"op": 10}', '{"op": 10, "d": {}}', '{"op": 9}', '{"op": 0}', '{"op": 0, "t": 5, "s": "x", "d": null}'),
        '{"op": 0, "t": "READY", "s": 7, "d": {}}',
    ],
)
async def test_a_frame_that_nobody_expects_costs_no_message(tmp_path: Path, frame: str) -> None:
    """The library dies of some of them; then another client is there, and finds what was said."""
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: world.posts)
        for link in world.discord.gateway.of("main"):
            link.frames.put_nowait(frame)
        for text in ("two", "three"):
            world.ada.says(world.room, text, mention=True)
        await world.until(lambda: len(world.posts) == 3)
        await world.settled()

        assert world.posts == ["you said: one", "you said: two", "you said: three"]
        assert world.discord.identifies() <= 2
