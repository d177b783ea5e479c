"""An answer on Discord is readable, whole, there once and in its place, whatever goes wrong on the way."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.simulators.discord.simulator import Call
from tests.worlds.discord import DiscordWorld
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted
from tidings.core.agent import ChoicesOffered, FileMade
from tidings.core.outbound.outbox import MARK
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Body, Target

SUPPRESS_EMBEDS = 1 << 2
WORDS = " ".join(f"word{number}" for number in range(700))


def finished(world: DiscordWorld) -> Callable[[], bool]:
    """Every run has ended, and all that is owed has arrived."""

    def holds() -> bool:
        owed = world.rows("SELECT state FROM deliveries WHERE kind IN ('final', 'reply')")
        ended = {row["state"] for row in owed} == {"delivered"}
        return ended and not world.rows("SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')")

    return holds


def gaps(calls: tuple[Call, ...]) -> list[float]:
    at = [call.now for call in calls]
    return [round(later - earlier, 3) for earlier, later in zip(at, at[1:], strict=False)]


async def answered(world: DiscordWorld) -> list[str]:
    """Ada asks in the room; what stands there when all has arrived."""
    world.ada.says(world.room, "go on", mention=True)
    await world.until(finished(world))
    return world.discord.posts_in(world.room)


# What it looks like.


async def test_a_long_answer_comes_in_several_messages_in_order_within_the_limits(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Scripted(WORDS), clock=OwnedClock()) as world:
        world.discord.limit_rates()
        parts = await answered(world)
        assert " ".join(parts) == WORDS
        assert len(parts) == 3
        assert [call.verdict for call in world.discord.calls("send")] == ["ok"] * 3


async def test_a_very_long_answer_comes_as_a_file(tmp_path: Path) -> None:
    text = WORDS * 10
    async with DiscordWorld(tmp_path, Scripted(text), clock=OwnedClock()) as world:
        (preview,) = await answered(world)
        (sent,) = world.discord.sent
        assert preview.startswith("word0 word1")
        assert [(file.name, file.data.decode()) for file in sent.files] == [("answer.md", text)]


async def test_a_table_a_file_and_buttons_arrive(tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_bytes(b"all is well")
    agent = Scripted(
        "| a | b |\n|---|---|\n| 1 | 2 |",
        FileMade(path=str(tmp_path / "report.txt"), name="report.txt"),
        ChoicesOffered(("Yes", "No")),
    )
    async with DiscordWorld(tmp_path / "home", agent, clock=OwnedClock()) as world:
        await answered(world)
        table, file = world.discord.sent
        assert table.text == "```\na | b\n--+--\n1 | 2\n```"
        assert [button.label for button in table.choices] == ["Yes", "No"]
        assert [each.data for each in file.files] == [b"all is well"]


async def test_an_answer_grows_by_edits_that_keep_their_distance_and_the_last_wins(tmp_path: Path) -> None:
    clock = OwnedClock()

    async def pause(turn: object) -> None:
        await clock.sleep(0.7)

    steps = [step for number in range(12) for step in (f"step {number}. ", pause)]
    async with DiscordWorld(tmp_path, Scripted(*steps), clock=clock) as world:
        world.discord.limit_rates()
        (text,) = await answered(world)
        assert text == "".join(f"step {number}. " for number in range(12)).strip()
        edits = world.discord.calls("edit")
        assert len(edits) > 3
        assert min(gaps(edits)) >= 1.3
        assert {call.verdict for call in (*edits, *world.discord.calls("send"))} == {"ok"}
        assert world.discord.pings == []


async def test_reactions_and_typing_tell_how_it_stands(tmp_path: Path) -> None:
    gate = Gate()
    async with DiscordWorld(tmp_path, Scripted(gate, "done"), clock=OwnedClock()) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.discord.reactions == {asked: ["👀"]} and world.discord.is_typing(world.room))
        gate.open()
        await world.until(lambda: world.discord.reactions == {asked: ["✅"]})
        assert world.discord.posts_in(world.room) == ["done"]


async def test_an_answer_that_discord_refuses_for_good_is_marked_as_failed(tmp_path: Path) -> None:
    gate = Gate()
    async with DiscordWorld(tmp_path, Scripted(gate, "done"), clock=OwnedClock()) as world:
        asked = world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.discord.reactions == {asked: ["👀"]})
        world.discord.fail_next(400, method="send", code=50035, message="Invalid Form Body", count=50)
        gate.open()
        await world.until(lambda: world.discord.reactions == {asked: ["❌"]})
        assert world.discord.posts_in(world.room) == []


async def test_reactions_keep_their_distance_whatever_becomes_of_them(tmp_path: Path) -> None:
    """Setting one and taking it back count together in a channel, whoever is answered there."""
    clock = OwnedClock()

    async def pause(turn: object) -> None:
        await clock.sleep(1.8)

    async with DiscordWorld(tmp_path, Scripted(pause, "done"), clock=clock) as world:
        world.discord.limit_rates()
        bob = world.discord.person("bob")
        await world.admit(f"discord:{bob.id}")
        first, second = (person.says(world.room, "go on", mention=True) for person in (world.ada, bob))
        await world.until(lambda: world.discord.reactions == {first: ["✅"], second: ["✅"]})

        verdicts = [call.verdict for call in (*world.discord.calls("react"), *world.discord.calls("unreact"))]
        assert verdicts == ["ok"] * 6


# What goes wrong.


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("trouble", ["drop", "503", "502", "garble"])
async def test_an_answer_in_doubt_is_there_once(tmp_path: Path, trouble: str, after: bool) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        for _ in range(2):
            if trouble == "drop":
                world.discord.drop_next(after, method="send")
            elif trouble == "garble":
                world.discord.garble_next(method="send")
            else:
                world.discord.fail_next(int(trouble), method="send", after_effect=after)
        assert await answered(world) == ["you said: go on"]


@pytest.mark.parametrize("after", [False, True])
async def test_a_doubt_that_outlives_the_nonce_is_settled_by_the_history(tmp_path: Path, after: bool) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock, server={"nonce_seconds": 180.0}) as world:
        world.discord.drop_next(after, method="send")
        world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.discord.calls("send"))
        await world.crash()
        await clock.advance(400.0)
        await world.start()
        await world.until(finished(world))
        assert world.discord.posts_in(world.room) == ["you said: go on"]


def receipts(world: DiscordWorld) -> list[bytes]:
    return [row["receipt"] for row in world.rows("SELECT receipt FROM parts WHERE receipt IS NOT NULL")]


async def test_an_equal_text_is_never_another_answers_receipt_also_after_a_crash(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Scripted("done"), clock=clock) as world:
        private = world.ada.private()
        world.ada.says(private, "once")
        await world.until(lambda: world.posts == ["done"] and finished(world)())
        world.discord.drop_next(False, method="send")
        world.ada.says(private, "twice")
        await world.until(lambda: len(world.discord.calls("send")) == 2)
        await world.crash()
        await clock.advance(400.0)
        await world.start()
        await world.until(finished(world))

        assert world.discord.posts_in(private) == ["done", "done"]
        assert len(set(receipts(world))) == 2


async def test_an_equal_notice_is_never_another_notices_receipt_also_after_a_crash(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock) as world:
        private = world.ada.private()
        target = Target(adapter="discord", chat=private.id)
        await world.gateway.desk.owe(target, Body(text="done"), "test")
        await world.until(lambda: receipts(world))
        world.discord.drop_next(False, method="send")
        await world.gateway.desk.owe(target, Body(text="done"), "test")
        await world.until(lambda: len(world.discord.calls("send")) == 2)
        await world.crash()
        await clock.advance(400.0)
        await world.start()
        await world.until(lambda: len(receipts(world)) == 2)

        assert world.discord.posts_in(private) == ["done", "done"]
        assert len(set(receipts(world))) == 2


async def test_of_two_equal_answers_in_doubt_only_one_is_proved_by_the_one_that_arrived(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Scripted("done"), clock=clock) as world:
        private = world.ada.private()
        # Nobody knows what became of either when the process dies; only the first has arrived.
        world.discord.drop_next(True, method="send")
        world.discord.drop_next(False, method="send", count=99)
        for text in ("once", "twice"):
            world.ada.says(private, text)
        await world.until(lambda: len({call.nonce for call in world.discord.calls("send")}) == 2)
        await world.crash()
        world.discord.heal()
        await clock.advance(400.0)
        await world.start()
        await world.until(finished(world))

        assert world.discord.posts_in(private) == ["done", "done"]
        assert len(set(receipts(world))) == 2


async def test_a_repetition_that_brings_back_another_answers_message_is_sent_anew(tmp_path: Path) -> None:
    """A doubt that was settled by the wrong one of two equal messages must not cost the other answer."""
    async with DiscordWorld(tmp_path, Scripted("done"), clock=OwnedClock()) as world:
        private = world.ada.private()
        world.ada.says(private, "once")
        await world.until(lambda: world.posts == ["done"] and finished(world)())
        world.discord.drop_next(True, method="send")
        world.ada.says(private, "twice")
        await world.until(lambda: world.rows("SELECT 1 FROM parts WHERE state = 'doubtful'"))
        _, second = world.discord.sent
        with closing(sqlite3.connect(world.home / DATABASE)) as connection, connection:
            connection.execute("UPDATE parts SET posted = ? WHERE state = 'delivered'", (second.id,))
        await world.until(finished(world))

        assert world.discord.posts_in(private) == ["done"] * 3
        assert [row["posted"] for row in world.rows("SELECT posted FROM parts ORDER BY posted")] == [
            each.id for each in world.discord.sent[1:]
        ]


@pytest.mark.parametrize("skew", [-3600.0, -30.0, 30.0, 3600.0])
@pytest.mark.parametrize("after", [False, True])
async def test_a_doubt_is_settled_by_discords_own_clock_however_ours_is_set(
    tmp_path: Path, skew: float, after: bool
) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock, server={"skew": skew}) as world:
        private = world.ada.private()
        world.discord.drop_next(after, method="send")
        world.ada.says(private, "go on")
        await world.until(lambda: world.discord.calls("send"))
        await world.crash()
        await clock.advance(400.0)
        await world.start()
        await world.until(finished(world))

        assert world.discord.posts_in(private) == ["you said: go on"]


async def test_where_nobody_may_read_a_second_copy_says_that_it_is_one(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock) as world:
        world.discord.drop_next(True, method="send")
        world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.discord.calls("send"))
        await world.crash()
        world.discord.forbid(world.room, "read_message_history")
        await clock.advance(400.0)
        await world.start()
        await world.until(finished(world))
        first, second = world.discord.posts_in(world.room)
        assert first == "you said: go on"
        assert second == f"{MARK}you said: go on"


async def test_a_limit_on_one_channel_leaves_the_others_alone(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        world.discord.fail_next(429, retry_after=30.0, method="send", channel=world.room)
        world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: world.discord.calls("send"))
        world.ada.says(world.ada.private(), "two")
        await world.until(lambda: world.posts, limit=5.0)
        assert world.posts == ["you said: two"]
        await world.until(finished(world))
        assert world.discord.posts_in(world.room) == ["you said: one"]
        first, second = [call for call in world.discord.calls("send") if call.channel == world.room.id]
        assert second.now - first.now >= 30.0


@pytest.mark.parametrize("via", [True, False])
async def test_a_limit_on_the_account_pauses_every_channel(tmp_path: Path, via: bool) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        world.discord.fail_next(
            429, retry_after=30.0, method="send", is_global=True, via=via, headers={"Retry-After": "30"}
        )
        world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: world.discord.calls("send"))
        world.ada.says(world.ada.private(), "two")
        await world.until(finished(world))
        await world.until(lambda: len(world.posts) == 2)
        first, *others = world.discord.calls("send")
        assert all(call.now - first.now >= 30.0 for call in others)


async def test_where_the_bot_was_removed_the_answer_is_dead_with_a_reason(tmp_path: Path) -> None:
    gate = Gate()
    async with DiscordWorld(tmp_path, Scripted(gate, "too late"), clock=OwnedClock()) as world:
        world.ada.says(world.room, "go on", mention=True)
        await world.until(lambda: world.rows("SELECT 1 FROM inbox WHERE state = 'running'"))
        world.discord.remove_bot(world.discord.places.guilds[world.room.guild])
        gate.open()
        await world.until(lambda: world.rows("SELECT 1 FROM deliveries WHERE state = 'dead' AND kind = 'final'"))
        (row,) = world.rows("SELECT reason FROM deliveries WHERE kind = 'final'")
        assert "removed" in row["reason"]
        assert world.posts == []
        assert "dead" in {alarm.name for alarm in (await world.gateway.desk.health()).alarms}


# Commands.


async def test_a_quick_command_is_answered_to_who_used_it_alone_even_after_a_crash(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        await world.until(lambda: "status" in world.discord.commands())
        world.discord.hold_next("edit_original")
        world.ada.commands("status", world.room)
        await world.until(lambda: world.discord.calls("edit_original"))
        assert world.posts == []
        await world.crash()
        await world.start()
        await world.until(lambda: world.posts)
        await world.until(finished(world))
        (sent,) = world.discord.sent
        assert sent.only_for == world.ada.id


async def test_a_private_answer_that_is_too_late_is_not_said_to_all(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with DiscordWorld(tmp_path, Echo(), clock=clock) as world:
        await world.until(lambda: "status" in world.discord.commands())
        world.discord.hold_next("edit_original")
        world.ada.commands("status", world.room)
        await world.until(lambda: world.discord.calls("edit_original"))
        await world.crash()
        await clock.advance(1000.0)
        await world.start()
        await world.until(lambda: world.rows("SELECT 1 FROM deliveries WHERE state = 'dead'"))
        assert world.posts == []


# Threads.


async def test_a_mention_opens_a_thread_and_the_conversation_lives_there(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock(), settings={"threads": True}) as world:
        asked = world.ada.says(world.room, "how do I bake bread?", mention=True)
        await world.until(finished(world))
        assert world.discord.posts_in(asked) == ["you said: how do I bake bread?"]
        world.ada.says(asked, "with what flour?")
        await world.until(lambda: len(world.discord.posts_in(asked)) == 2)
        assert world.discord.posts_in(world.room) == []
        assert len({row["conversation"] for row in world.rows("SELECT conversation FROM inbox")}) == 1


@pytest.mark.parametrize(("settings", "unfolds"), [({}, False), ({"previews": True}, True)])
async def test_an_address_in_an_answer_unfolds_only_where_the_settings_say_so(
    tmp_path: Path, settings: dict[str, bool], unfolds: bool
) -> None:
    """Else a stranger's text could have a secret fetched from an address that the model was made to write."""
    agent = Scripted("see https://example.org/?secret")
    async with DiscordWorld(tmp_path, agent, clock=OwnedClock(), settings=settings) as world:
        await answered(world)
        (sent,) = world.discord.sent
        assert bool(sent.flags & SUPPRESS_EMBEDS) is not unfolds
