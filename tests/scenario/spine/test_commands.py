"""Control commands are obeyed at once and once, also while a run is busy; the agent never sees them."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worlds.fakes import FakeClock, calm, settle
from tests.worlds.world import LOOP_TURNS, Echo, Gate, Scripted, World, handed
from tidings.core.agent import Checkpoint, Event, Finished, OutcomeKind, TextDelta, Turn
from tidings.core.errors import Clash, Unknown
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.memory import conversations
from tidings.core.roles import Permission
from tidings.core.store.store import Transaction
from tidings.core.types import Admission, Author, Inbound, Kind

NOTHING_RUNS = "Nothing is running."


class Deaf:
    """Does not end when it is cancelled, until the test lets it."""

    def __init__(self) -> None:
        self.at_work = asyncio.Event()
        self.tired = asyncio.Event()
        self.cancelled = 0

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        yield TextDelta("begun")
        self.at_work.set()
        while not self.tired.is_set():
            try:
                await self.tired.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        yield TextDelta(" and gone on")
        yield Finished()


async def test_help_lists_every_command_and_start_is_help(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        world.paper.says("/help")
        world.paper.says("/start")
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        assert world.posts[0] == world.posts[1]
        for name in ("/help", "/status", "/whoami", "/new", "/stop", "/undo", "/retry", "/usage"):
            assert name in world.posts[0]
        assert world.runs() == []


async def test_whoami_names_the_sender_and_the_conversation(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        world.paper.says("/whoami", chat="c", thread="t")
        await world.paper.until(lambda paper: len(paper.posts) >= 1)
        assert "paper:7" in world.posts[0]
        assert "paper:main:c:t" in world.posts[0]


async def test_status_is_told_while_a_run_is_busy(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Echo({"one": gate})) as world:
        key = world.paper.says("one")
        await gate.reached()
        world.paper.says("two")
        world.paper.says("/status")
        await world.paper.until(lambda paper: len(paper.posts) >= 1)
        assert world.run(key)["run"] in world.posts[0]
        assert "1 more waiting" in world.posts[0]
        gate.open()
        await world.settled()
        world.paper.says("/status")
        await world.paper.until(lambda paper: len(paper.posts) >= 4)
        assert world.posts[3] == f"{NOTHING_RUNS[:-1]} here.\nNothing is waiting."


async def test_a_command_told_again_is_obeyed_once(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        world.paper.says("hi")
        key = world.paper.says("/new")
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        await world.restart()
        world.paper.redeliver(key)
        world.paper.says("there")
        await world.paper.until(lambda paper: len(paper.posts) >= 3)
        assert world.posts[2] == "you said: there"
        assert [row["generation"] for row in world.rows("SELECT generation FROM conversations")] == [2]


async def test_a_command_nobody_registered_is_a_message_for_the_agent(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo) as world:
        world.paper.says("/weather in Rome")
        await world.paper.until(lambda paper: paper.posts == ["you said: /weather in Rome"])
        assert echo.heard == ["/weather in Rome"]


async def test_a_registered_command_is_obeyed_in_the_storing_transaction(tmp_path: Path) -> None:
    def count(tx: Transaction, message: Inbound) -> Obeyed:
        row = tx.one("SELECT count(*) AS n FROM inbox")
        assert row is not None
        return Obeyed(f"{row['n']} so far, {message.argument}")

    async with World(tmp_path, Echo(), commands=[Command("count", "how many came", count, Permission.BASICS)]) as world:
        world.paper.says("/count please")
        await world.paper.until(lambda paper: paper.posts == ["0 so far, please"])
        world.paper.says("/help")
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        assert "/count – how many came" in world.posts[1]


@pytest.mark.parametrize(
    "fault",
    [
        ValueError("a fault of ours"),
        Unknown("nobody caught it"),
        Clash("UNIQUE constraint"),
        sqlite3.OperationalError("no such column"),
        OSError(2, "no such file"),
        StopIteration(),
        SystemExit(1),
        asyncio.CancelledError(),
    ],
    ids=lambda fault: type(fault).__name__,
)
async def test_a_command_that_breaks_says_so_and_the_next_message_is_heard(
    tmp_path: Path, fault: BaseException
) -> None:
    def breaks(tx: Transaction, inbound: Inbound) -> Obeyed:
        conversations.begin_generation(tx, inbound.conversation.id)
        raise fault

    async with World(tmp_path, Echo(), commands=[Command("boom", "breaks", breaks, Permission.BASICS)]) as world:
        world.paper.says("/boom")
        world.paper.says("hello")
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        assert world.posts[0].startswith("⚠ /boom failed, and nothing was changed.")
        assert world.posts[1] == "you said: hello"
        [row] = world.rows("SELECT generation FROM conversations")
        assert row["generation"] == 1


async def test_a_command_without_a_handler_is_listed_and_obeyed_by_the_bot_in_its_turn(tmp_path: Path) -> None:
    agent = Scripted("compacted")
    async with World(
        tmp_path, agent, commands=[Command("compact", "sum up what was said", None, Permission.WORK)]
    ) as world:
        world.paper.says("/compact the rest")
        await world.paper.until(lambda paper: paper.posts == ["compacted"])
        told = agent.turns[0].message
        assert (told.kind, told.command, told.argument) == (Kind.MESSAGE, "compact", "the rest")
        world.paper.says("/help")
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        assert "/compact – sum up what was said" in world.posts[1]


async def test_a_message_that_a_command_makes_is_a_run_and_its_reply_comes_before(tmp_path: Path) -> None:
    def again(tx: Transaction, message: Inbound) -> Obeyed:
        return Obeyed("as you wish", again=handed(message.argument, key=f"by {message.key}"))

    echo = Echo()
    async with World(tmp_path, echo, commands=[Command("say", "say something", again, Permission.BASICS)]) as world:
        key = world.paper.says("/say hello")
        await world.paper.until(lambda paper: paper.posts == ["as you wish", "you said: hello"])
        world.paper.redeliver(key)
        world.paper.says("/status")
        await world.paper.until(lambda paper: len(paper.posts) >= 3)
        assert echo.heard == ["hello"]


async def test_a_command_inside_a_quote_or_a_sentence_does_nothing(tmp_path: Path) -> None:
    """D10."""
    gate = Gate()
    echo = Echo({"one": gate})
    async with World(tmp_path, echo) as world:
        world.paper.says("one")
        await gate.reached()
        quoting = world.paper.says("what is this?", quotes="/stop")
        saying = world.paper.says("I wrote /stop before")
        await world.paper.until(lambda paper: {quoting, saying} <= set(paper.confirmed))
        gate.open()
        await world.settled()
        assert [row["outcome"] for row in world.runs()] == ["completed"] * 3
        assert echo.heard == ["one", "what is this?", "I wrote /stop before"]


async def test_stop_ends_the_run_and_its_outcome_is_the_answer(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted("so far", gate, "never")) as world:
        key = world.paper.says("go")
        await gate.reached()
        world.paper.says("/stop")
        ended = await world.outcome(key)
        assert (ended.kind, ended.text) == (OutcomeKind.CANCELLED, "so far")
        await world.settled()
        assert len(world.posts) == 1
        assert world.posts[0].startswith("so far\n\nStopped")


async def test_stop_leaves_the_queue_and_other_conversations_alone(tmp_path: Path) -> None:
    gates = {"one": Gate(), "elsewhere": Gate()}
    async with World(tmp_path, Echo(gates)) as world:
        world.paper.says("one")
        world.paper.says("elsewhere", chat="2")
        await asyncio.gather(*(gate.reached() for gate in gates.values()))
        world.paper.says("two")
        world.paper.says("/stop")
        await world.paper.until(lambda paper: paper.posts_in("1")[1:] == ["you said: two"])
        gates["elsewhere"].open()
        await world.paper.until(lambda paper: paper.posts_in("2") == ["you said: elsewhere"])


async def test_a_message_right_after_stop_is_answered(tmp_path: Path) -> None:
    """A6."""
    gate = Gate()
    async with World(tmp_path, Echo({"one": gate})) as world:
        world.paper.says("one")
        await gate.reached()
        await asyncio.gather(world.receive(handed("/stop")), world.receive(handed("two")))
        await world.settled()
        assert len(world.posts) == 2
        assert world.posts[0].startswith("Stopped")
        assert world.posts[1] == "you said: two"


async def test_stop_right_after_a_message_stops_it(tmp_path: Path) -> None:
    """The two may share a commit, before anybody has begun to run what the first one claimed."""
    async with World(tmp_path, Echo({"one": Gate()})) as world:
        await asyncio.gather(world.receive(handed("one")), world.receive(handed("/stop")))
        await world.paper.until(lambda paper: len(paper.posts) >= 1)
        assert world.posts[0].startswith("Stopped")


class Pause:
    """A command that keeps the store busy: what is written meanwhile shares the next commit."""

    def __init__(self, name: str = "pause") -> None:
        self.reached = threading.Event()
        self._over = threading.Event()
        self.asked = handed(f"/{name}", chat="elsewhere")
        self.command = Command(name, "keep the store busy", self._wait, Permission.BASICS)

    def _wait(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        self.reached.set()
        assert self._over.wait(10)
        return Obeyed()

    async def begin(self, world: World) -> asyncio.Task[Admission]:
        pausing = asyncio.create_task(world.receive(self.asked))
        await world.eventually(self.reached.is_set)
        return pausing

    def end(self) -> None:
        self._over.set()


async def about_to_hand_over(world: World, gate: Gate, pause: Pause) -> tuple[Inbound, asyncio.Task[Admission]]:
    """The message "one" has ended but not its commit, which will claim the message that is returned."""
    world.paper.open_chat("elsewhere")
    await world.receive(handed("one"))
    await gate.reached()
    await world.receive(two := handed("two"))
    pausing = await pause.begin(world)
    gate.open()
    await calm(LOOP_TURNS)
    return two, pausing


async def test_stop_reaches_a_run_that_is_being_handed_over(tmp_path: Path) -> None:
    """The end of the run before claims the next message; a /stop in that very commit is for that message."""
    gate, pause = Gate(), Pause()
    # Time stands still, so that no sweep finds a stop that went unheard.
    clock = FakeClock()
    async with World(tmp_path, Echo({"one": gate, "two": Gate()}), commands=[pause.command], clock=clock) as world:
        two, pausing = await about_to_hand_over(world, gate, pause)
        stopping = asyncio.create_task(world.receive(handed("/stop")))
        await calm(LOOP_TURNS)
        pause.end()
        await asyncio.gather(pausing, stopping)
        assert (await world.outcome(two.key)).kind is OutcomeKind.CANCELLED
        await world.settled()
        assert world.posts == ["you said: one", "Stopped by 7."]


async def test_a_clean_stop_claims_no_further_message(tmp_path: Path) -> None:
    """It would be claimed and run by nobody, and one of its three attempts would be gone."""
    gate, pause = Gate(), Pause()
    async with World(tmp_path, Echo({"one": gate}), commands=[pause.command]) as world:
        two, pausing = await about_to_hand_over(world, gate, pause)
        ending = asyncio.create_task(world.end())
        await settle()
        pause.end()
        await asyncio.gather(pausing, ending)
        row = world.run(two.key)
        assert (row["state"], row["attempt"]) == ("waiting", 0)
        await world.start()
        await world.paper.until(lambda paper: set(paper.posts) == {"you said: one", "you said: two"})


async def test_a_message_that_was_claimed_just_before_a_clean_stop_waits_again(tmp_path: Path) -> None:
    gate, first, second = Gate(), Pause("first"), Pause("second")
    commands = [first.command, second.command]
    async with World(tmp_path, Echo({"one": gate}), commands=commands, limits={"drain_seconds": 10}) as world:
        two, begun = await about_to_hand_over(world, gate, first)
        pausing = [begun]
        # In one commit: the end of the first run, which claims the second message, and the second pause.
        pausing.append(asyncio.create_task(world.receive(second.asked)))
        await calm(LOOP_TURNS)
        first.end()
        await world.eventually(second.reached.is_set)
        ending = asyncio.create_task(world.end())
        await world.eventually(lambda: not world.paper.attached())
        await settle()
        second.end()
        await asyncio.gather(*pausing, ending)
        row = world.run(two.key)
        assert (row["state"], row["attempt"]) == ("waiting", 0)
        await world.start()
        await world.paper.until(lambda paper: paper.posts == ["you said: one", "you said: two"])


async def test_an_agent_that_ignores_stop_is_settled_after_ten_seconds(tmp_path: Path) -> None:
    clock, deaf = FakeClock(), Deaf()
    async with World(tmp_path, {"deaf": deaf, "echo": Echo()}, clock=clock) as world:
        try:
            key = world.paper.says("go")
            await world.eventually(deaf.at_work.is_set)
            stop = world.paper.says("/stop")
            await world.paper.until(lambda paper: stop in paper.confirmed)
            await clock.advance(9.9)
            world.paper.says("/status")
            await world.paper.until(lambda paper: any(world.run(key)["run"] in post for post in paper.posts))
            await clock.advance(0.2)
            assert (await world.outcome(key)).kind is OutcomeKind.CANCELLED
        finally:
            deaf.tired.set()
        await settle()
        await world.settled()
        assert deaf.cancelled >= 1
        assert "gone on" not in "".join(world.posts)
        await world.receive(handed("still here?", bot="echo"))
        await world.paper.until(lambda paper: paper.posts[-1] == "you said: still here?")


async def test_stop_with_nothing_running_says_so(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        world.paper.says("/stop")
        await world.paper.until(lambda paper: paper.posts == [NOTHING_RUNS])


async def test_two_stops_give_one_outcome(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Echo({"one": gate})) as world:
        world.paper.says("one")
        await gate.reached()
        await asyncio.gather(world.receive(handed("/stop")), world.receive(handed("/stop")))
        await world.settled()
        assert [post[:7] for post in world.posts] == ["Stopped"]


@pytest.mark.parametrize("grouped", [True, False])
async def test_a_stop_that_races_the_end_is_answered_exactly_once(tmp_path: Path, grouped: bool) -> None:
    async def dawdle(turn: Turn) -> None:
        for _ in range(int(turn.message.text)):
            await asyncio.sleep(0)

    async with World(tmp_path, Scripted("done", dawdle), grouped=grouped) as world:
        chats = [f"c{number}" for number in range(24)]
        for number, chat in enumerate(chats):
            world.paper.open_chat(chat)
            await world.receive(handed(f"{number * 2}", chat=chat))
            await world.receive(handed("/stop", chat=chat))
        await world.settled()
        for chat, run in zip(chats, world.runs(), strict=True):
            posts = world.paper.posts_in(chat)
            if run["outcome"] == "cancelled":
                assert posts in (["Stopped by 7."], ["done\n\nStopped by 7."])
            else:
                assert posts == ["done", NOTHING_RUNS]


async def test_the_desk_stops_a_run_that_waits_and_one_that_runs(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Echo({"one": gate})) as world:
        one, two = world.paper.says("one"), world.paper.says("two")
        await world.paper.until(lambda paper: {one, two} <= set(paper.confirmed))
        assert await world.gateway.desk.stop(world.run(two)["run"], "the owner") is True
        assert await world.gateway.desk.stop(world.run(one)["run"], "the owner") is True
        await world.settled()
        assert [row["outcome"] for row in world.runs()] == ["cancelled", "cancelled"]
        assert ["the owner" in post for post in world.posts] == [True, True]
        assert await world.gateway.desk.stop(world.run(one)["run"], "the owner") is False


async def test_after_new_the_next_turn_has_no_history_and_the_old_one_is_kept(tmp_path: Path) -> None:
    agent = Scripted("fine", Checkpoint(b"memory"))
    async with World(tmp_path, agent) as world:
        for number, text in enumerate(("one", "two", "/new", "three", "four"), start=1):
            world.paper.says(text)
            await world.paper.until(lambda paper, number=number: len(paper.posts) >= number)  # type: ignore[misc]
        await world.settled()
        told = [[(entry.author, entry.text) for entry in turn.history] for turn in agent.turns]
        assert told == [
            [],
            [(Author.PERSON, "one"), (Author.BOT, "fine")],
            [],
            [(Author.PERSON, "three"), (Author.BOT, "fine")],
        ]
        assert [turn.checkpoint for turn in agent.turns] == [None, b"memory", None, b"memory"]
        old = world.rows("SELECT text FROM history WHERE generation = 1 ORDER BY seq")
        assert [row["text"] for row in old] == ["one", "fine", "two", "fine"]


async def test_new_during_a_run_leaves_that_run_to_the_old_conversation(tmp_path: Path) -> None:
    gate = Gate()
    agent = Scripted(gate, "fine")
    async with World(tmp_path, agent) as world:
        world.paper.says("one")
        await gate.reached()
        world.paper.says("/new")
        await world.paper.until(lambda paper: len(paper.posts) >= 1)
        assert "still running" in world.posts[0]
        gate.open()
        world.paper.says("two")
        await world.paper.until(lambda paper: len(paper.posts) >= 3)
        assert agent.turns[1].history == ()
