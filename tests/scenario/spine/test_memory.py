"""What a conversation remembers: exchanges can be taken back or tried again, and choices and notes stay."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worlds.board import Verdict, until
from tests.worlds.builders import store_of_version
from tests.worlds.world import Echo, Gate, Scripted, Takes, World, handed
from tidings.core.agent import Checkpoint, Event, Finished, OutcomeKind, Turn
from tidings.core.desk.board import CardState
from tidings.core.errors import Unkeepable
from tidings.core.inbound import inbox
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.memory import person_notes, preferences
from tidings.core.roles import Permission
from tidings.core.settings import Rule
from tidings.core.store.sqlite import DATABASE
from tidings.core.store.store import Transaction
from tidings.core.types import Author, Conversation, Duplicate, Inbound, Kind, Origin, Refusal, Refused

BROKEN = Finished(OutcomeKind.FAILED, "the model is away")


async def say(world: World, text: str, **fields: str) -> str:
    """Returns when everything that follows from it is over."""
    key = world.paper.says(text, **fields)  # type: ignore[arg-type]
    await world.paper.until(lambda paper: key in paper.confirmed)
    await world.settled()
    return key


def given(turn: Turn) -> list[str]:
    return [entry.text for entry in turn.history]


def learning() -> Scripted:
    """Its checkpoint is everything it was told so far."""

    def learn(turn: Turn) -> Event:
        return Checkpoint((turn.checkpoint or b"") + turn.message.text.encode())

    return Scripted("fine", learn)


# Taking back.


async def test_after_an_undo_the_agent_knows_nothing_of_the_last_exchange(tmp_path: Path) -> None:
    agent = learning()
    async with World(tmp_path, agent) as world:
        for text in ("a", "b", "/undo", "c"):
            await say(world, text)
        assert "“b”" in world.posts[2]
        assert (given(agent.turns[2]), agent.turns[2].checkpoint) == (["a", "fine"], b"a")
        await world.restart()
        await say(world, "d")
        assert (given(agent.turns[3]), agent.turns[3].checkpoint) == (["a", "fine", "c", "fine"], b"ac")


async def test_each_undo_goes_one_exchange_further_until_there_is_none(tmp_path: Path) -> None:
    agent = learning()
    async with World(tmp_path, agent) as world:
        for text in ("a", "b", "/undo", "/undo", "/undo", "c"):
            await say(world, text)
        assert ["“b”" in world.posts[2], "“a”" in world.posts[3]] == [True, True]
        assert world.posts[4] == "There is nothing here to undo."
        assert (agent.turns[2].history, agent.turns[2].checkpoint) == ((), None)


async def test_the_memory_of_few_runs_is_kept_beside_the_conversation(tmp_path: Path) -> None:
    """Each holds all that was said: of a long talk they would fill the disk."""
    agent = Scripted(lambda turn: Checkpoint(turn.message.text.encode()), "fine")
    async with World(tmp_path, agent) as world:
        for number in range(inbox.KEPT_CHECKPOINTS + 5):
            await say(world, f"turn {number}")
        kept = world.rows("SELECT checkpoint FROM inbox WHERE checkpoint IS NOT NULL ORDER BY seq")
        assert [row["checkpoint"] for row in kept] == [
            f"turn {number}".encode() for number in range(5, inbox.KEPT_CHECKPOINTS + 5)
        ]
        await say(world, "/undo")
        await say(world, "once more")
        assert agent.turns[-1].checkpoint == f"turn {inbox.KEPT_CHECKPOINTS + 3}".encode()


async def test_what_was_said_last_is_taken_back_though_it_came_in_first(tmp_path: Path) -> None:
    """What was overtaken on its way runs in the order in which it was said."""
    gate = Gate()
    later = (Scripted("fine", Checkpoint(number)) for number in (b"2", b"3", b"4"))
    agent = Takes(Scripted(gate, "fine", Checkpoint(b"1")), *later)
    async with World(tmp_path, agent) as world:
        for text, said in (("first", 1.0), ("third", 3.0), ("second", 2.0)):
            await world.receive(handed(text, said=said))
            await gate.reached()
        gate.open()
        await world.settled()
        assert [turn.message.text for turn in agent.turns] == ["first", "second", "third"]
        await say(world, "/undo")
        assert "“third”" in world.posts[-1]
        await say(world, "fourth")
        assert (given(agent.turns[3]), agent.turns[3].checkpoint) == (["first", "fine", "second", "fine"], b"2")


async def test_an_undo_told_twice_takes_back_once(tmp_path: Path) -> None:
    agent = learning()
    async with World(tmp_path, agent) as world:
        await say(world, "a")
        await say(world, "b")
        key = await say(world, "/undo")
        await world.restart()
        world.paper.redeliver(key)
        await say(world, "c")
        assert given(agent.turns[2]) == ["a", "fine"]


async def test_a_run_that_left_no_checkpoint_takes_none_with_it(tmp_path: Path) -> None:
    agent = Takes(Scripted("fine", Checkpoint(b"a")), Scripted(BROKEN), Scripted(BROKEN), Scripted("fine"))
    async with World(tmp_path, agent) as world:
        for text in ("a", "b", "c", "/undo", "d"):
            await say(world, text)
        assert given(agent.turns[3]) == ["a", "fine", "b", "the model is away"]
        assert agent.turns[3].checkpoint == b"a"


async def test_what_was_taken_back_is_named_in_one_short_line(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await say(world, "one\ntwo\n" + "word " * 100)
        await say(world, "/undo")
        quoted = world.posts[1].partition("“")[2].partition("”")[0]
        assert quoted.startswith("one two word")
        assert quoted.endswith("…")
        assert len(quoted) <= 80


async def test_what_was_taken_back_stays_readable(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await say(world, "a")
        await say(world, "b")
        await say(world, "/undo")
        key = await say(world, "c")
        conversation = world.run(key)["conversation"]
        lines = await world.gateway.desk.history(conversation, limit=100, after=0)
        assert [(line.entry.text, line.undone) for line in lines if line.entry.author is Author.PERSON] == [
            ("a", False),
            ("b", True),
            ("c", False),
        ]
        memory = await world.gateway.desk.memory(conversation, before=world.run(key)["run"], limit=100)
        assert [entry.text for entry in memory] == ["a", "you said: a"]


@pytest.mark.parametrize("command", ["/undo", "/retry"])
async def test_nothing_is_taken_back_while_something_runs_or_waits(tmp_path: Path, command: str) -> None:
    gate = Gate()
    echo = Echo({"b": gate})
    async with World(tmp_path, echo) as world:
        await say(world, "a")
        world.paper.says("b")
        await gate.reached()
        world.paper.says(command)
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        assert "/stop" in world.posts[1]
        gate.open()
        await world.settled()
        assert echo.heard == ["a", "b"]
        assert world.rows("SELECT 1 FROM history WHERE undone = 1") == []


@pytest.mark.parametrize("command", ["/undo", "/retry"])
async def test_an_old_conversation_is_not_touched_from_a_new_one(tmp_path: Path, command: str) -> None:
    async with World(tmp_path, Echo()) as world:
        await say(world, command)
        for text in ("a", "/new", command):
            await say(world, text)
        assert [post.startswith("There is nothing here to") for post in world.posts] == [True, False, False, True]
        assert world.rows("SELECT 1 FROM history WHERE undone = 1") == []


async def test_a_message_that_was_cancelled_in_the_queue_can_be_taken_back(tmp_path: Path) -> None:
    """It never ran, yet it belongs to the conversation that it was said in."""
    gate = Gate()
    echo = Echo({"b": gate})
    async with World(tmp_path, echo) as world:
        await say(world, "a")
        await say(world, "/new")
        first, waiting = world.paper.says("b"), world.paper.says("c")
        await world.paper.until(lambda paper: {first, waiting} <= set(paper.confirmed))
        assert await world.gateway.desk.stop(world.run(waiting)["run"], "the owner")
        gate.open()
        await world.settled()
        # The exchange that ended last is the first to go.
        await say(world, "/undo")
        assert "“b”" in world.posts[-1]
        await say(world, "/undo")
        assert "“c”" in world.posts[-1]


async def test_a_message_that_was_deleted_is_not_tried_again(tmp_path: Path) -> None:
    gate = Gate()
    echo = Echo({"a": gate})
    async with World(tmp_path, echo) as world:
        world.paper.says("a")
        await gate.reached()
        deleted = world.paper.says("b")
        await world.paper.until(lambda paper: deleted in paper.confirmed)
        world.paper.deletes(deleted)
        await world.eventually(lambda: world.run(deleted)["state"] == "done")
        gate.open()
        await world.settled()
        await say(world, "/retry")
        assert echo.heard == ["a", "a"]


async def test_what_ran_by_itself_after_the_exchange_goes_with_it(tmp_path: Path) -> None:
    """It has seen what is taken back, and so has its checkpoint."""
    agent = learning()
    async with World(tmp_path, agent) as world:
        await say(world, "a")
        await say(world, "b")
        await world.receive(handed("the daily report", origin=Origin.SCHEDULE))
        await world.settled()
        await say(world, "/undo")
        assert "“b”" in world.posts[-1]
        await say(world, "c")
        assert (given(agent.turns[3]), agent.turns[3].checkpoint) == (["a", "fine"], b"a")


# Trying again.


async def test_a_retry_after_a_failure_is_answered_as_if_nothing_had_happened(tmp_path: Path) -> None:
    agent = Takes(Scripted("fine", Checkpoint(b"a")), Scripted("half", Checkpoint(b"ab"), BROKEN), Scripted("whole"))
    async with World(tmp_path, agent) as world:
        for text in ("a", "b", "/retry"):
            await say(world, text)
        assert world.posts == ["fine", "half\n\n⚠ I could not finish this: the model is away.", "whole"]
        again = agent.turns[2]
        assert (again.message.text, again.message.kind, again.message.command) == ("b", Kind.MESSAGE, "")
        assert (given(again), again.checkpoint) == (["a", "fine"], b"a")
        assert again.run != agent.turns[1].run
        await say(world, "c")
        assert given(agent.turns[3]) == ["a", "fine", "b", "whole"]


async def test_one_can_try_again_as_often_as_one_likes(tmp_path: Path) -> None:
    agent = Takes(Scripted("first"), Scripted("second"), Scripted("third"))
    async with World(tmp_path, agent) as world:
        for text in ("a", "/retry", "/retry"):
            await say(world, text)
        assert world.posts == ["first", "second", "third"]
        assert [given(turn) for turn in agent.turns] == [[], [], []]


async def test_however_often_it_is_tried_again_it_goes_back_to_the_same_memory(tmp_path: Path) -> None:
    agent = learning()
    async with World(tmp_path, agent) as world:
        await say(world, "a")
        await say(world, "b")
        for _ in range(inbox.KEPT_CHECKPOINTS + 2):
            await say(world, "/retry")
        assert {turn.checkpoint for turn in agent.turns[1:]} == {b"a"}
        assert {tuple(given(turn)) for turn in agent.turns[1:]} == {("a", "fine")}
        kept = world.rows("SELECT checkpoint FROM inbox WHERE checkpoint IS NOT NULL ORDER BY seq")
        assert [row["checkpoint"] for row in kept] == [b"a", b"ab"], "nobody goes back to what was taken back"


async def test_a_retry_told_twice_is_one_run(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo) as world:
        await say(world, "a")
        key = await say(world, "/retry")
        world.paper.redeliver(key)
        assert isinstance(await world.receive(handed("/retry", key=key)), Duplicate)
        await world.restart()
        assert isinstance(await world.receive(handed("/retry", key=key)), Duplicate)
        await world.settled()
        assert echo.heard == ["a", "a"]
        assert len(world.posts) == 2


@pytest.mark.parametrize("grouped", [True, False])
async def test_a_retry_that_was_just_stored_survives_a_crash_and_is_answered_once(
    tmp_path: Path, grouped: bool
) -> None:
    gate = Gate()
    agent = Takes(Scripted("first"), Scripted(gate, "never"), Scripted("second"))
    async with World(tmp_path, agent, grouped=grouped) as world:
        await say(world, "a")
        key = world.paper.says("/retry")
        await gate.reached()
        await world.crash()
        await world.start()
        world.paper.redeliver(key)
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        await world.settled()
        assert world.posts == ["first", "second"]
        assert [(row["outcome"], row["undone"]) for row in world.runs()] == [("completed", 1), ("completed", 0)]
        assert (agent.turns[2].run, agent.turns[2].attempt) == (agent.turns[1].run, 2)


async def test_a_retry_is_for_whoever_asks_and_answers_where_they_ask(tmp_path: Path) -> None:
    agent = Scripted("fine")
    async with World(tmp_path, agent, allow=["paper:7", "paper:8"]) as world:
        asked = await say(world, "a", chat="c", thread="t")
        retried = await say(world, "/retry", chat="c", thread="t", sender="8")
        first, second = (turn.message for turn in agent.turns)
        assert (first.sender.id, second.sender.id) == ("7", "8")
        assert (first.target.reply_to, second.target.reply_to) == (asked, retried)
        assert world.paper.posts_in("c", "t") == ["fine", "fine"]


async def test_an_album_is_tried_again_as_a_whole(tmp_path: Path) -> None:
    agent = Scripted("nice")
    async with World(tmp_path, agent) as world:
        for name in ("one.png", "two.png"):
            world.paper.says("look" if name == "one.png" else "", group="g", files=[(name, b"x")])
        await world.paper.until(lambda paper: len(paper.posts) >= 1)
        await world.settled()
        await say(world, "/retry")
        told = [(turn.message.text, [file.name for file in turn.message.attachments]) for turn in agent.turns]
        assert told == [("look", ["one.png", "two.png"])] * 2


async def test_a_retry_that_finds_the_queue_full_takes_nothing_back(tmp_path: Path) -> None:
    gate = Gate()
    echo = Echo({"busy": gate})
    async with World(tmp_path, echo, limits={"runs": 1, "queued": 1}) as world:
        await say(world, "a")
        world.paper.says("busy", chat="2")
        await gate.reached()
        waiting = world.paper.says("later", chat="3")
        await world.paper.until(lambda paper: waiting in paper.confirmed)
        assert await world.receive(handed("/retry")) == Refused(reason=Refusal.BUSY)
        assert world.rows("SELECT 1 FROM inbox WHERE undone = 1") == []
        gate.open()
        await world.settled()
        await say(world, "/retry")
        assert echo.heard == ["a", "busy", "later", "a"]
        assert "Too many messages are waiting" in world.paper.posts_in("1")[1]


# What was chosen.


def _choose(tx: Transaction, inbound: Inbound) -> Obeyed:
    preferences.choose(tx, inbound.conversation.id, "model", inbound.argument)
    return Obeyed("chosen")


async def test_what_a_conversation_has_chosen_is_told_to_every_turn_and_outlives_all(tmp_path: Path) -> None:
    agent = Scripted("fine")
    async with World(tmp_path, agent, commands=[Command("model", "choose a model", _choose, Permission.WORK)]) as world:
        for text in ("a", "/model big", "b", "/new", "c"):
            await say(world, text)
        await say(world, "elsewhere", chat="2")
        await world.restart()
        for text in ("d", "/model small", "e", "/model", "f"):
            await say(world, text)
        chosen = [turn.preferences.get("model") for turn in agent.turns]
        assert chosen == [None, "big", "big", None, "big", "small", None]


# Notes.


class Noting:
    """Keeps what begins with +, looks for what begins with ?, and puts down what it found."""

    def __init__(self) -> None:
        self.kept: list[bool] = []
        self.found: list[str] = []

    async def __call__(self, turn: Turn) -> str:
        sign, words = turn.message.text[0], turn.message.text[1:]
        if sign == "+":
            self.kept.append(await turn.desk.remember(words))
        else:
            self.found = [note.text for note in await turn.desk.recall(words, limit=10)]
        return "done"


async def test_notes_follow_a_person_through_their_conversations_and_nobody_else(tmp_path: Path) -> None:
    noting = Noting()
    async with World(tmp_path, Scripted(noting), allow=["paper:7", "paper:8"]) as world:
        await say(world, "+likes tea")
        await say(world, "+lives in Übersee", chat="2")
        await say(world, "+likes coffee", chat="3", sender="8")
        await say(world, "+likes tea", chat="2")
        assert noting.kept == [True, True, True, False]
        await world.restart()
        for words, found in {
            "?": ["lives in Übersee", "likes tea"],
            "?TEA": ["likes tea"],
            "?ÜBERSEE tea": ["lives in Übersee", "likes tea"],
            "?%": [],
            "?l_kes": [],
            "?coffee": [],
        }.items():
            await say(world, words, chat="4")
            assert noting.found == found
        await say(world, "?", sender="8")
        assert noting.found == ["likes coffee"]


async def test_each_bot_has_its_own_notes_about_a_person(tmp_path: Path) -> None:
    noting, other = Noting(), Noting()
    agents = {"bot": Scripted(noting), "other": Scripted(other)}
    async with World(tmp_path, agents, rules=[Rule(chat="2", bot="other")]) as world:
        await say(world, "+is looking for another job", chat="2")
        await say(world, "?", chat="1")
        await say(world, "?", chat="2")
        assert (noting.found, other.found) == ([], ["is looking for another job"])


async def test_what_was_noted_in_private_does_not_show_in_a_group(tmp_path: Path) -> None:
    noting = Noting()
    async with World(tmp_path, Scripted(noting), allow=["paper:7"]) as world:
        world.paper.open_chat("9", "")

        async def said(text: str, *, private: bool) -> list[str]:
            await world.receive(handed(text, chat="1" if private else "9", private=private, addressed=True))
            await world.settled()
            return noting.found

        await said("+is ill", private=True)
        await said("+brings cake", private=False)
        assert await said("?", private=False) == ["brings cake"]
        assert await said("?ill cake", private=False) == ["brings cake"]
        assert await said("?", private=True) == ["brings cake", "is ill"]
        # Said again where all may hear it, it is no longer private.
        await said("+is ill", private=False)
        assert await said("?ill", private=False) == ["is ill"]
        assert await said("?ill", private=True) == ["is ill"]


async def test_what_was_noted_in_private_does_not_show_in_a_group_by_way_of_a_card(tmp_path: Path) -> None:
    found: list[list[str]] = []

    async def worker(turn: Turn) -> AsyncIterator[Event]:
        found.append([note.text for note in await turn.desk.recall("", 10)])
        await turn.desk.remember(f"noted {len(found)}")
        await turn.desk.board.complete("done", ())
        yield Finished()

    async with World(tmp_path, Verdict(worker)) as world:
        for number, (chat, private) in enumerate((("1", True), ("5", False), ("1", True)), start=1):
            world.paper.says("/board add look", chat=chat, private=private)
            await world.until(lambda wanted=number: len(found) == wanted)  # type: ignore[misc]
            await until(world, str(number), CardState.DONE)
        assert found == [[], [], ["noted 2", "noted 1"]]
        assert {row["person"] for row in world.rows("SELECT person FROM notes")} == {"paper:7"}


async def test_a_note_that_cannot_be_kept_is_refused_in_words(tmp_path: Path) -> None:
    refusals: list[str] = []

    async def remember(turn: Turn) -> str:
        for text in ("x" * (person_notes.NOTE_CHARACTERS + 1), "  "):
            with pytest.raises(Unkeepable) as refused:
                await turn.desk.remember(text)
            refusals.append(str(refused.value))
        assert await turn.desk.remember("x" * person_notes.NOTE_CHARACTERS)
        assert await turn.desk.remember("broken \ud800 text")
        return "done"

    async with World(tmp_path, Scripted(remember)) as world:
        await say(world, "a")
        assert world.posts == ["done"]
        assert ["2,000" in refusals[0], "empty" in refusals[1]] == [True, True]


async def test_the_oldest_notes_give_way(tmp_path: Path) -> None:
    found: list[str] = []

    async def remember(turn: Turn) -> str:
        await asyncio.gather(*(turn.desk.remember(f"note {number}") for number in range(person_notes.NOTES + 2)))
        found.extend(note.text for note in await turn.desk.recall("", limit=person_notes.NOTES * 2))
        return "done"

    async with World(tmp_path, Scripted(remember)) as world:
        await say(world, "a")
        assert found == [f"note {number}" for number in range(person_notes.NOTES + 1, 1, -1)]


# A home from before.


async def test_a_home_of_an_earlier_version_keeps_its_memory(tmp_path: Path) -> None:
    conversation = Conversation(adapter="paper", account="main", chat="1").id
    with store_of_version(tmp_path / DATABASE, 2) as connection:
        connection.execute("INSERT INTO conversations (id, checkpoint) VALUES (?, ?)", (conversation, b"old"))
        connection.execute(
            "INSERT INTO history (conversation, generation, author, text, at) VALUES (?, 1, 'person', 'before', 0)",
            (conversation,),
        )
    agent = Scripted("fine")
    async with World(tmp_path, agent) as world:
        await say(world, "now")
        assert (given(agent.turns[0]), agent.turns[0].checkpoint) == (["before"], b"old")
