"""What comes in is taken once, in order and fairly, or turned away aloud; nothing is confirmed that is not stored."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.simulators.paper.simulator import Kind as PaperKind
from tests.simulators.paper.simulator import PaperServer
from tests.worlds.fakes import FakeClock, settle
from tests.worlds.world import Echo, Gate, Scripted, World, armed, handed
from tidings.core.errors import Unknown
from tidings.core.inbound import signs
from tidings.core.inbound.door import BUSY, QUESTION_CLOSED, TOO_LONG
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import (
    Attachment,
    Body,
    Choice,
    Duplicate,
    Ignored,
    Inbound,
    Kind,
    Note,
    Quoted,
    Refused,
    Sender,
    Stored,
    Target,
)

# Nothing is shown before the answer, so that what is posted is what is owed.
PLAIN = PaperKind(keyed_for=3600.0, streaming="none", typing=False, reactions=False)


def said(*texts: str) -> list[str]:
    return [f"you said: {text}" for text in texts]


async def confirmed(paper: PaperServer, *keys: str) -> None:
    await paper.until(lambda paper: set(keys) <= set(paper.confirmed))


async def test_a_message_is_confirmed_only_when_it_is_committed(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            key = world.paper.says("hi")
            await settle(0.3)
            assert world.paper.confirmed == []
            other.execute("COMMIT")
        await confirmed(world.paper, key)
        assert world.run(key)["state"] in ("running", "done")


async def test_the_same_message_told_twice_is_answered_once(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo) as world:
        world.paper.duplicate_next()
        key = world.paper.says("one")
        world.paper.says("one", key=key)
        world.paper.says("two")
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        await world.settled()
        assert echo.heard == ["one", "two"]
        assert world.posts == said("one", "two")


async def test_a_message_told_again_after_a_restart_is_known(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo) as world:
        key = world.paper.says("one")
        await world.paper.until(lambda paper: paper.posts == said("one"))
        await world.restart()
        world.paper.redeliver(key)
        world.paper.says("two")
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        await world.settled()
        assert echo.heard == ["one", "two"]


async def test_a_known_key_with_another_digest_is_a_conflict(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo) as world:
        first = await world.receive(handed("one", key="k", digest="a"))
        assert isinstance(first, Stored)
        assert await world.receive(handed("one", key="k", digest="a")) == Duplicate(run=first.run)
        assert isinstance(await world.receive(handed("other", key="k", digest="b")), Refused)
        await world.settled()
        assert echo.heard == ["one"]


async def test_calls_that_overlap_keep_their_order(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo) as world:
        texts = [f"{number}" for number in range(20)]
        await asyncio.gather(*(world.receive(handed(text)) for text in texts))
        await world.settled()
        assert echo.heard == texts
        assert world.posts == said(*texts)


async def test_a_note_commits_with_its_message_and_without_one(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await world.receive(handed("hi"), Note(name="cursor", value="1"))
        assert [row["value"] for row in world.rows("SELECT value FROM notebook")] == ["1"]
        overheard = handed("not for us", private=False, addressed=False)
        await world.receive(overheard, Note(name="cursor", value="2"))
        assert [row["value"] for row in world.rows("SELECT value FROM notebook")] == ["2"]


async def test_fifty_conversations_at_once_are_answered_in_their_own_chats(tmp_path: Path) -> None:
    gates = {f"from {number}": Gate() for number in range(50)}
    async with World(tmp_path, Echo(gates)) as world:
        for number in range(50):
            world.paper.says(f"from {number}", chat=f"c{number}")
        await asyncio.gather(*(gate.reached() for gate in gates.values()))
        for gate in reversed(gates.values()):
            gate.open()
        await world.paper.until(lambda paper: len(paper.posts) >= 50)
        assert all(world.paper.posts_in(f"c{number}") == said(f"from {number}") for number in range(50))


async def test_a_burst_during_a_run_is_answered_next_and_in_order(tmp_path: Path) -> None:
    """F1."""
    gate = Gate()
    async with World(tmp_path, Echo({"one": gate})) as world:
        keys = [world.paper.says(text) for text in ("one", "two", "three", "four")]
        await confirmed(world.paper, *keys)
        assert world.posts == []
        gate.open()
        await world.paper.until(lambda paper: len(paper.posts) >= 4)
        assert world.posts == said("one", "two", "three", "four")


async def test_messages_behind_a_run_that_times_out_are_answered(tmp_path: Path) -> None:
    """A24."""
    clock = FakeClock()
    echo = Echo({"one": Gate()})
    async with World(tmp_path, echo, kind=PLAIN, clock=clock, limits={"run_seconds": 30}) as world:
        keys = [world.paper.says(text) for text in ("one", "two", "three")]
        await confirmed(world.paper, *keys)
        await clock.advance(30)
        await world.paper.until(lambda paper: len(paper.posts) >= 3)
        assert "30 s" in world.posts[0]
        assert world.posts[1:] == said("two", "three")
        assert [row["outcome"] for row in world.runs()] == ["halted", "completed", "completed"]


async def test_messages_behind_a_run_that_is_stopped_are_answered(tmp_path: Path) -> None:
    """A24."""
    gate = Gate()
    async with World(tmp_path, Echo({"one": gate})) as world:
        world.paper.says("one")
        await gate.reached()
        for text in ("two", "three", "/stop"):
            world.paper.says(text)
        await world.paper.until(lambda paper: len(paper.posts) >= 3)
        assert world.posts[0].startswith("Stopped")
        assert world.posts[1:] == said("two", "three")


async def test_a_busy_conversation_does_not_starve_another(tmp_path: Path) -> None:
    gate = Gate()
    echo = Echo({"a0": gate})
    async with World(tmp_path, echo, limits={"runs": 1}) as world:
        keys = [world.paper.says(f"a{number}", chat="a") for number in range(6)]
        await confirmed(world.paper, *keys)
        await confirmed(world.paper, world.paper.says("b", chat="b"))
        gate.open()
        await world.paper.until(lambda paper: len(paper.posts) >= 7)
        assert echo.heard[:3] == ["a0", "b", "a1"]
        assert world.paper.posts_in("a") == said(*(f"a{number}" for number in range(6)))


async def test_a_conversation_with_too_much_waiting_is_told_so_once_a_minute(tmp_path: Path) -> None:
    clock, gate = FakeClock(), Gate()
    limits = {"queued_per_conversation": 2}
    async with World(tmp_path, Echo({"0": gate}), kind=PLAIN, clock=clock, limits=limits) as world:
        keys = [world.paper.says(f"{number}") for number in range(5)]
        await confirmed(world.paper, *keys)
        await world.paper.until(lambda paper: paper.posts == [BUSY])
        assert [world.run(key)["reason"] for key in keys[3:]] == ["refused: busy", "refused: busy"]
        await clock.advance(61)
        await confirmed(world.paper, world.paper.says("5"))
        await world.paper.until(lambda paper: paper.posts.count(BUSY) == 2)
        gate.open()
        await world.paper.until(lambda paper: len(paper.posts) >= 6)
        await world.settled()
        # After a minute the person is also told that the first of these waits.
        told = [post for post in world.posts if not post.startswith(signs.BUSY_HERE)]
        assert told == [BUSY, BUSY, *said("0", "1", "2")]


async def test_another_conversation_is_taken_while_one_is_full(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Echo({"0": gate}), limits={"queued_per_conversation": 1}) as world:
        await confirmed(world.paper, *[world.paper.says(f"{number}") for number in range(3)])
        world.paper.says("hello", chat="2")
        await world.paper.until(lambda paper: paper.posts_in("2") == said("hello"))


async def test_what_waits_in_all_is_bounded_and_said(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Echo({"a": gate}), limits={"runs": 1, "queued": 2}) as world:
        for text in ("a", "b", "c", "d"):
            await confirmed(world.paper, world.paper.says(text, chat=text))
        await world.paper.until(lambda paper: paper.posts_in("d") == [BUSY])
        assert (await world.gateway.desk.health()).queued == 2
        gate.open()
        await world.paper.until(lambda paper: len(paper.posts) >= 4)
        await world.settled()
        assert (await world.gateway.desk.health()).queued == 0
        world.paper.says("e", chat="e")
        await world.paper.until(lambda paper: paper.posts_in("e") == said("e"))


async def test_errands_that_wait_count_towards_the_bound(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Echo({"a": gate}), limits={"runs": 1, "queued": 3}) as world:
        await confirmed(world.paper, world.paper.says("a", chat="a"))
        await gate.reached()
        for chat in ("b", "c", "d"):
            await confirmed(world.paper, world.paper.says(f"/bg {chat}", chat=chat))
        await confirmed(world.paper, world.paper.says("e", chat="e"))
        await world.paper.until(lambda paper: paper.posts_in("e") == [BUSY])
        gate.open()
        await world.settled()
        world.paper.says("f", chat="f")
        await world.paper.until(lambda paper: paper.posts_in("f") == said("f"))


async def test_a_message_that_is_too_long_is_refused_and_said(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo, limits={"message_characters": 1000}) as world:
        key = world.paper.says("x" * 1001)
        await world.paper.until(lambda paper: paper.posts == [TOO_LONG])
        assert world.run(key)["reason"] == "refused: too long"
        world.paper.says("y" * 1000)
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        assert echo.heard == ["y" * 1000]


@pytest.mark.parametrize("text", ["\x1b[2J\x07bell", "\u202eright to left", "👩‍👩‍👧 e\u0301 \u2028 |"])
async def test_odd_characters_are_taken_as_they_are(tmp_path: Path, text: str) -> None:
    echo = Echo()
    async with World(tmp_path, echo) as world:
        world.paper.says(text)
        await world.paper.until(lambda paper: len(paper.posts) >= 1)
        assert echo.heard == [text]
        assert world.posts == said(text)


async def test_lone_surrogates_do_not_keep_a_message_out(tmp_path: Path) -> None:
    agent = Scripted(lambda turn: f"{turn.message.text} from {turn.message.sender.name}")
    async with World(tmp_path, agent) as world:
        broken = "\ud83d"
        message = replace(
            handed(f"hi {broken}!"),
            sender=Sender(id="7", name=f"Jo{broken}"),
            quoted=Quoted(text=broken, sender=broken),
            attachments=(Attachment(handle="f", name=f"{broken}.txt"),),
        )
        assert isinstance(await world.receive(message), Stored)
        await world.paper.until(lambda paper: paper.posts == ["hi \ufffd! from Jo\ufffd"])
        assert agent.turns[0].message.attachments == (Attachment(handle="f", name="\ufffd.txt"),)


async def test_a_null_character_is_dropped_before_a_message_is_stored(tmp_path: Path) -> None:
    """PostgreSQL refuses a text with NUL in it."""
    agent = Scripted(lambda turn: f"{turn.message.text} from {turn.message.sender.name}\0")
    async with World(tmp_path, agent) as world:
        message = replace(handed("h\0i"), sender=Sender(id="7", name="J\0o"))
        assert isinstance(await world.receive(message), Stored)
        await world.paper.until(lambda paper: paper.posts == ["hi from Jo"])
        assert [row["text"] for row in world.rows("SELECT text FROM history ORDER BY seq")] == ["hi", "hi from Jo"]


async def test_an_edit_corrects_and_a_deletion_cancels_what_still_waits(tmp_path: Path) -> None:
    gate = Gate()
    echo = Echo({"one": gate})
    async with World(tmp_path, echo) as world:
        one, two, three = (world.paper.says(text) for text in ("one", "two", "three"))
        await confirmed(world.paper, one, two, three)
        changes = [world.paper.edits(two, "deux"), world.paper.deletes(three)]
        await confirmed(world.paper, *changes)
        await world.paper.until(lambda paper: paper.posts == ["Cancelled: the message was deleted."])
        gate.open()
        await world.paper.until(lambda paper: len(paper.posts) >= 3)
        assert echo.heard == ["one", "deux"]
        assert world.posts[1:] == said("one", "deux")
        assert world.run(three)["outcome"] == "cancelled"
        assert (await world.gateway.desk.health()).queued == 0


async def test_an_edit_or_deletion_of_what_runs_or_ran_changes_nothing(tmp_path: Path) -> None:
    """B11."""
    gate = Gate()
    echo = Echo({"two": gate})
    async with World(tmp_path, echo) as world:
        one = world.paper.says("one")
        await world.paper.until(lambda paper: paper.posts == said("one"))
        two = world.paper.says("two")
        await gate.reached()
        changes = [world.paper.edits(one, "uno"), world.paper.edits(two, "due"), world.paper.deletes(one)]
        await confirmed(world.paper, *changes)
        gate.open()
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        await world.settled()
        assert echo.heard == ["one", "two"]
        assert world.posts == said("one", "two")
        assert [b"due" in row["message"] or b"uno" in row["message"] for row in world.runs()] == [False, False]


async def test_an_edit_of_a_message_nobody_knows_never_becomes_a_run(tmp_path: Path) -> None:
    """B11."""
    echo = Echo()
    async with World(tmp_path, echo) as world:
        await world.receive(handed("changed", kind=Kind.EDITED, about="never seen"))
        await world.receive(handed("", kind=Kind.DELETED, about="never seen"))
        await world.settled()
        assert world.runs() == []
        assert world.posts == []


async def test_a_press_nobody_waits_for_gets_one_notice(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        question = Body(text="Well?", choices=(Choice(id="y", label="Yes"),))
        await world.gateway.desk.owe(Target(adapter="paper", chat="1"), question, "test")
        await world.paper.until(lambda paper: paper.posts == ["Well?"])
        press = world.paper.presses(world.paper.sent[0].id, "y")
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        world.paper.redeliver(press)
        world.paper.says("hi")
        await world.paper.until(lambda paper: len(paper.posts) >= 3)
        assert world.posts == ["Well?", QUESTION_CLOSED, *said("hi")]


async def test_an_album_becomes_one_run_a_second_after_its_newest_row(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = Scripted(lambda turn: f"{len(turn.message.attachments)} files: {turn.message.text}")
    async with World(tmp_path, agent, kind=PLAIN, clock=clock) as world:
        await confirmed(world.paper, world.paper.says("look", group="g", files=[("1.jpg", b"1")]))
        await clock.advance(0.9)
        await confirmed(world.paper, world.paper.says("", group="g", files=[("2.jpg", b"2")]))
        await clock.advance(0.9)
        assert agent.turns == []
        await clock.advance(0.2)
        await world.paper.until(lambda paper: paper.posts == ["2 files: look"])


async def test_an_album_that_never_ends_is_taken_after_ten_seconds(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = Scripted(lambda turn: f"{len(turn.message.attachments)} files")
    async with World(tmp_path, agent, kind=PLAIN, clock=clock) as world:
        for number in range(20):
            await confirmed(world.paper, world.paper.says("", group="g", files=[(f"{number}.jpg", b"x")]))
            await clock.advance(0.5)
        await world.paper.until(lambda paper: paper.posts == ["20 files"])


async def test_an_album_is_taken_at_once_when_another_message_follows(tmp_path: Path) -> None:
    agent = Scripted(lambda turn: f"{len(turn.message.attachments)} files: {turn.message.text}")
    async with World(tmp_path, agent, kind=PLAIN, clock=FakeClock()) as world:
        world.paper.says("look", group="g", files=[("1.jpg", b"1")])
        world.paper.says("", group="g", files=[("2.jpg", b"2")])
        world.paper.says("well?")
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        assert world.posts == ["2 files: look", "0 files: well?"]


@asynccontextmanager
async def group_of_two(home: Path, clock: FakeClock) -> AsyncIterator[World]:
    """Persons 7 and 8 speak in the group g1 with a bot that counts what it is sent."""
    agent = Scripted(lambda turn: f"{len(turn.message.attachments)} files: {turn.message.text}")
    async with World(home, agent, kind=PLAIN, clock=clock, allow=["paper:7", "paper:8"]) as world:
        world.paper.open_chat("g1")
        yield world


def in_group(text: str, *, addressed: bool, sender: str = "7") -> Inbound:
    return handed(text, private=False, chat="g1", sender=sender, addressed=addressed)


def picture(text: str = "", *, addressed: bool = False, sender: str = "7") -> Inbound:
    """Part of the album g, as its sender sees it."""
    return replace(in_group(text, addressed=addressed, sender=sender), group="g", attachments=(Attachment(handle="x"),))


async def test_another_persons_message_does_not_complete_an_album(tmp_path: Path) -> None:
    clock = FakeClock()
    async with group_of_two(tmp_path, clock) as world:
        await world.receive(picture("look", addressed=True))
        await world.receive(in_group("me too", sender="8", addressed=True))
        for _ in range(2):
            await clock.advance(0.5)
            await world.receive(picture())
        await clock.advance(2)
        await world.paper.until(lambda paper: paper.posts_in("g1") == ["3 files: look", "0 files: me too"])


async def test_a_part_that_comes_after_its_album_was_answered_is_answered_too(tmp_path: Path) -> None:
    """Slow uploads bring parts of one album many seconds apart; only the first bears the words that address us."""
    clock = FakeClock()
    async with group_of_two(tmp_path, clock) as world:
        await world.receive(picture("look", addressed=True))
        await clock.advance(2)
        await world.paper.until(lambda paper: paper.posts_in("g1") == ["1 files: look"])
        assert isinstance(await world.receive(picture()), Stored)
        # The same album of somebody else is another one, and addresses no bot.
        assert isinstance(await world.receive(picture(sender="8")), Ignored)
        await clock.advance(2)
        await world.paper.until(lambda paper: paper.posts_in("g1") == ["1 files: look", "1 files:"])


async def test_an_album_in_the_making_survives_a_crash(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = Scripted(lambda turn: f"{len(turn.message.attachments)} files")
    async with World(tmp_path, agent, kind=PLAIN, clock=clock) as world:
        await confirmed(world.paper, world.paper.says("", group="g", files=[("1.jpg", b"1")]))
        await world.crash()
        await world.start()
        await confirmed(world.paper, world.paper.says("", group="g", files=[("2.jpg", b"2")]))
        assert agent.turns == []
        await clock.advance(1)
        await world.paper.until(lambda paper: paper.posts == ["2 files"])


async def test_every_row_of_an_album_names_the_run_it_became(tmp_path: Path) -> None:
    clock = FakeClock()
    async with World(tmp_path, Echo(), clock=clock) as world:
        rows = [handed(text, group="g") for text in ("a", "b")]
        first, second = [await world.receive(row) for row in rows]
        assert isinstance(first, Stored)
        assert second == first
        assert await world.receive(rows[1]) == Duplicate(run=first.run)
        await clock.advance(1)
        assert (await world.outcome(rows[0].key)).text == "you said: a\nb"


async def test_a_row_that_is_deleted_leaves_its_album_and_an_edit_corrects_it(tmp_path: Path) -> None:
    clock = FakeClock()
    async with World(tmp_path, Echo(), kind=PLAIN, clock=clock) as world:
        keys = [world.paper.says(text, group="g") for text in ("a", "b", "c")]
        changes = [world.paper.deletes(keys[1]), world.paper.edits(keys[2], "see")]
        await confirmed(world.paper, *keys, *changes)
        await clock.advance(1)
        await world.paper.until(lambda paper: paper.posts == said("a\nsee"))
        assert (await world.gateway.desk.health()).queued == 0


async def test_what_cannot_be_stored_is_not_confirmed_and_comes_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, echo = FakeClock(), Echo()
    async with World(tmp_path, echo, kind=PLAIN, clock=clock) as world:
        with armed("store.pre_commit:1:enospc"):
            world.paper.says("hi")
            await world.eventually(lambda: "the store cannot write" in caplog.text)
            with pytest.raises(Unknown):
                await world.gateway.desk.delivery("what can still be read is no proof that all is well")
            assert "No space left" in (await world.gateway.desk.health()).store
            assert world.paper.confirmed == []
            assert world.rows("SELECT * FROM inbox") == []
            await clock.advance(1)
            await world.paper.until(lambda paper: paper.posts == said("hi"))
        await world.settled()
        assert echo.heard == ["hi"]
        assert (await world.gateway.desk.health()).store == "ok"


async def test_what_was_overtaken_on_its_way_still_runs_in_the_order_in_which_it_was_said(tmp_path: Path) -> None:
    gate = Gate()
    agent = Echo({"first": gate})
    async with World(tmp_path, agent) as world:
        await world.receive(handed("first", said=1.0))
        await gate.reached()
        await world.receive(handed("third", said=3.0))
        await world.receive(handed("second", said=2.0))
        gate.open()
        await world.settled()
        assert agent.heard == ["first", "second", "third"]
