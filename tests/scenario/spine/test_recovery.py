"""What becomes of runs and tasks that a dead process left open: run again where nothing is done twice, else said."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.simulators.paper.simulator import Kind as PaperKind
from tests.worlds.fakes import FakeClock
from tests.worlds.world import KEYED, Echo, Gate, Scripted, Takes, World, armed, handed, opened
from tidings.core.agent import (
    Agent,
    Checkpoint,
    Effect,
    Ended,
    Event,
    OutcomeKind,
    Progress,
    Restarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
)
from tidings.core.failpoints import FailpointHit
from tidings.core.runs.feed import PAGE
from tidings.core.runs.journal import UNREADABLE
from tidings.core.work.tasks.tasks import TaskKind

NO_PUSH = PaperKind(async_delivery=False, streaming="none")


async def crash_at(world: World, gate: Gate, text: str = "go") -> str:
    """Says something, waits for the agent to come to the gate, and kills the gateway there."""
    key = world.paper.says(text)
    await gate.reached()
    await world.crash()
    return key


async def test_messages_that_only_waited_are_answered_after_a_crash(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Echo({"one": gate}), limits={"runs": 1}) as world:
        keys = [world.paper.says(text, chat=chat) for text, chat in (("one", "a"), ("two", "a"), ("three", "b"))]
        await gate.reached()
        await world.paper.until(lambda paper: set(keys) <= set(paper.confirmed))
        await world.crash()
        world.agents["bot"] = Echo()
        await world.start()
        await world.settled()
        assert world.paper.posts_in("a") == ["you said: one", "you said: two"]
        assert world.paper.posts_in("b") == ["you said: three"]


async def test_a_run_that_had_said_nothing_runs_again(tmp_path: Path) -> None:
    gate = Gate()
    agent = Takes(Scripted(gate), Scripted("whole"))
    async with World(tmp_path, agent) as world:
        key = await crash_at(world, gate)
        await world.start()
        await world.settled()
        assert [turn.attempt for turn in agent.turns] == [1, 2]
        assert agent.turns[0].run == agent.turns[1].run
        assert world.events(key) == [Restarted(2), TextDelta("whole"), Ended(OutcomeKind.COMPLETED, "", "whole")]
        assert world.posts == ["whole"]


async def test_text_before_a_restart_is_void(tmp_path: Path) -> None:
    gate = Gate()
    agent = Takes(Scripted("half ", ToolStarted("1", "clock", "", Effect.PURE), gate), Scripted("whole"))
    async with World(tmp_path, agent) as world:
        key = await crash_at(world, gate)
        await world.start()
        await world.settled()
        events = world.events(key)
        assert events[0] == TextDelta("half ")
        assert events[2:] == [Restarted(2), TextDelta("whole"), Ended(OutcomeKind.COMPLETED, "", "whole")]
        assert world.posts == ["whole"]


async def test_a_reader_that_comes_back_after_the_crash_sees_the_restart_and_the_end(tmp_path: Path) -> None:
    gate = Gate()
    agent = Takes(Scripted("half ", ToolStarted("1", "clock", "", Effect.PURE), gate), Scripted("whole"))
    async with World(tmp_path, agent, kind=NO_PUSH) as world:
        key = await crash_at(world, gate)
        await world.start()
        ended = await world.outcome(key)
        rest = [entry.event async for entry in world.gateway.desk.follow(world.run(key)["run"], 2)]
        assert rest == [Restarted(2), TextDelta("whole"), ended]


async def test_an_answer_that_was_being_shown_is_finished_in_its_place(tmp_path: Path) -> None:
    gate = Gate()
    agent = Takes(Scripted("half ", gate), Scripted("whole"))
    async with World(tmp_path, agent) as world:
        key = world.paper.says("go")
        await gate.reached()
        await world.paper.until(lambda paper: paper.posts == ["half"])
        await world.eventually(lambda: world.rows("SELECT view FROM views WHERE run = ?", world.run(key)["run"]))
        await world.crash()
        await world.start()
        await world.settled()
        assert world.posts == ["whole"]


@pytest.mark.parametrize("effect", [Effect.PURE, Effect.IDEMPOTENT])
async def test_a_tool_that_may_be_repeated_lets_the_run_start_again(tmp_path: Path, effect: Effect) -> None:
    gate = Gate()
    agent = Takes(Scripted(ToolStarted("1", "look", "", effect), gate), Scripted("found"))
    async with World(tmp_path, agent) as world:
        await crash_at(world, gate)
        await world.start()
        await world.settled()
        assert world.posts == ["found"]


@pytest.mark.parametrize(
    "steps",
    [
        (ToolStarted("1", "pay_the_bill"),),
        # Finished, but nothing was kept that a second run could go on from.
        (ToolStarted("1", "pay_the_bill"), ToolFinished("1", "paid"), ToolStarted("2", "look", "", Effect.PURE)),
        (Checkpoint(b"before"), ToolStarted("1", "pay_the_bill", "", Effect.EFFECT)),
        (
            *(ToolStarted("0", "look_up", "", Effect.EFFECT), ToolFinished("0"), Checkpoint(b"x")),
            ToolStarted("1", "pay_the_bill", "", Effect.EFFECT),
        ),
        # A call's id may be used again; what had finished under it before says nothing about now.
        (
            *(ToolStarted("1", "look_up", "", Effect.EFFECT), ToolFinished("1"), Checkpoint(b"x")),
            ToolStarted("1", "pay_the_bill", "", Effect.EFFECT),
        ),
    ],
    ids=["undeclared", "finished", "after a checkpoint", "second tool", "same call id"],
)
async def test_a_tool_with_an_effect_is_never_run_again(tmp_path: Path, steps: tuple[Event, ...]) -> None:
    gate = Gate()
    agent = Takes(Scripted("I begin. ", *steps, gate), Scripted("never"))
    async with World(tmp_path, agent) as world:
        key = await crash_at(world, gate)
        await world.start()
        await world.settled()
        ended = world.events(key)[-1]
        assert isinstance(ended, Ended)
        assert (ended.kind, ended.text) == (OutcomeKind.FAILED, "I begin. ")
        assert "pay_the_bill" in ended.reason
        assert len(world.posts) == 1
        assert "pay_the_bill" in world.posts[0]
        assert len(agent.turns) == 1


FUTURE = b'{"type":"from_the_future","text":"?"}'
KNOWN = b'{"type":"progress","text":"?"}'


def rewrite(world: World, old: bytes, new: bytes) -> int:
    with opened(world.home) as connection, connection:
        return connection.execute("UPDATE journal SET event = ? WHERE event = ?", (new, old)).rowcount


async def test_entries_of_a_newer_version_are_kept_and_break_neither_recovery_nor_a_reader(tmp_path: Path) -> None:
    """A13."""
    gate = Gate()
    async with World(tmp_path, Takes(Scripted("I begin", gate), Scripted("whole"))) as world:
        key = world.paper.says("go")
        await gate.reached()
        run = world.run(key)["run"]
        await world.eventually(lambda: world.journal(run))
        await world.crash()
        with opened(world.home) as connection, connection:
            connection.executemany(
                "INSERT INTO journal (run, seq, kind, event, at) VALUES (?, ?, 'event', ?, 0)",
                [(run, seq, FUTURE) for seq in range(2, PAGE + 2)],
            )
        await world.start()
        await world.settled()
        assert world.posts == ["whole"]
        async with asyncio.timeout(10):
            seen = [entry async for entry in world.gateway.desk.follow(run)]
        assert [entry.seq for entry in seen] == [1, *range(PAGE + 2, PAGE + 5)]
        end = Ended(OutcomeKind.COMPLETED, "", "whole")
        assert [entry.event for entry in seen] == [TextDelta("I begin"), Restarted(2), TextDelta("whole"), end]
        # An end is one, in whatever words it was written down.
        [stored] = world.rows("SELECT event FROM journal WHERE kind = 'ended'")
        rewrite(world, stored["event"], b'{"type":"ended","kind":"transcended"}')
        assert await world.outcome(key) == Ended(OutcomeKind.FAILED, UNREADABLE, "")
        rewrite(world, b'{"type":"ended","kind":"transcended"}', stored["event"])
        # Whoever checks this world knows them no more than the gateway does.
        assert rewrite(world, FUTURE, KNOWN) == PAGE


async def test_what_cannot_be_read_makes_no_effect_look_older_than_the_checkpoint(tmp_path: Path) -> None:
    gate = Gate()
    steps = (Progress("?"), Progress("?"), Checkpoint(b"x"), ToolStarted("1", "pay_the_bill"), ToolFinished("1"))
    agent = Takes(Scripted(*steps, gate), Scripted("never"))
    async with World(tmp_path, agent) as world:
        key = world.paper.says("go")
        await gate.reached()
        await world.eventually(lambda: len(world.events(key)) == 4)
        await world.crash()
        assert rewrite(world, KNOWN, FUTURE) == 2
        await world.start()
        await world.settled()
        assert len(agent.turns) == 1
        assert "pay_the_bill" in world.posts[0]
        rewrite(world, FUTURE, KNOWN)


async def test_a_run_goes_on_from_the_checkpoint_behind_its_last_effect(tmp_path: Path) -> None:
    gate = Gate()
    paid = (ToolStarted("1", "pay", "", Effect.EFFECT), ToolFinished("1", "paid"), Checkpoint(b"paid"))
    agent = Takes(Scripted(*paid, "now I ", gate), Scripted("paid it"))
    async with World(tmp_path, agent) as world:
        await crash_at(world, gate)
        await world.start()
        await world.settled()
        assert [turn.checkpoint for turn in agent.turns] == [None, b"paid"]
        assert world.posts == ["paid it"]


async def test_the_text_behind_a_restart_reaches_history_once(tmp_path: Path) -> None:
    gate = Gate()
    agent = Takes(Scripted("half", ToolStarted("1", "x", "", Effect.PURE), gate), Scripted("whole"), Scripted("next"))
    async with World(tmp_path, agent) as world:
        await crash_at(world, gate, "first")
        await world.start()
        await world.settled()
        world.paper.says("second")
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        assert [entry.text for entry in agent.turns[2].history] == ["first", "whole"]


async def test_an_attended_run_ends_with_its_connection(tmp_path: Path) -> None:
    gate = Gate()
    agent = Takes(Scripted("half ", gate), Scripted("never"))
    async with World(tmp_path, agent, kind=NO_PUSH) as world:
        message = handed("go", attended=True)
        await world.receive(message)
        await gate.reached()
        await world.crash()
        await world.start()
        ended = await world.outcome(message.key)
        assert (ended.kind, ended.reason) == (OutcomeKind.FAILED, "interrupted by a restart")
        assert len(agent.turns) == 1


async def test_a_message_that_kills_the_process_does_so_three_times_at_most(tmp_path: Path) -> None:
    gates = [Gate(), Gate(), Gate()]
    agent = Takes(*(Scripted("try ", gate) for gate in gates), Scripted("never"))
    async with World(tmp_path, agent) as world:
        key = world.paper.says("poison")
        for gate in gates:
            await gate.reached()
            await world.crash()
            await world.start()
        await world.settled()
        assert world.run(key)["outcome"] == "failed"
        assert len(agent.turns) == 3
        assert len(world.posts) == 1
        assert "interrupted 3 times" in world.posts[0]
        world.paper.says("and now?")
        await world.paper.until(lambda paper: paper.posts[1:] == ["never"])


async def test_a_run_that_was_asked_to_stop_is_cancelled_after_a_crash(tmp_path: Path) -> None:
    entered, dying = asyncio.Event(), asyncio.Event()

    class Deaf:
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            yield TextDelta("so far")
            while True:
                entered.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if dying.is_set():
                        raise

    clock = FakeClock()
    agent = Takes(Deaf(), Scripted("never"))
    async with World(tmp_path, agent, clock=clock) as world:
        try:
            key = world.paper.says("go")
            await world.eventually(entered.is_set)
            stop = world.paper.says("/stop")
            await world.paper.until(lambda paper: stop in paper.confirmed)
            assert world.run(key)["state"] == "running"
        finally:
            dying.set()
        await world.crash()
        await world.start()
        await world.settled()
        assert world.run(key)["outcome"] == "cancelled"
        assert len(agent.turns) == 1
        assert len(world.posts) == 1
        assert "Stopped" in world.posts[0]


async def test_a_message_that_comes_during_the_restart_waits_for_its_turn(tmp_path: Path) -> None:
    """A17: one agent runs at a time, and each message gets one answer."""
    gate = Gate()
    at_once = 0

    async def count(turn: Turn) -> str:
        nonlocal at_once
        at_once += 1
        await asyncio.sleep(0.01)
        assert at_once == 1
        at_once -= 1
        return f"attempt {turn.attempt} at {turn.message.text}"

    agent: Agent = Takes(Scripted(gate), Scripted(count))
    async with World(tmp_path, agent) as world:
        await crash_at(world, gate, "one")
        world.paper.says("two")
        await world.start()
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        await world.settled()
        assert world.posts == ["attempt 2 at one", "attempt 1 at two"]


async def test_a_crash_during_recovery_changes_nothing(tmp_path: Path) -> None:
    gates = [Gate(), Gate()]
    first = Echo({"a": gates[0], "b": gates[1]})
    async with World(tmp_path, first) as world:
        for chat in ("a", "b"):
            world.paper.says(chat, chat=chat)
        await asyncio.gather(*(gate.reached() for gate in gates))
        await world.crash()
        with armed("boot.mid_recover:2:raise"), pytest.raises(FailpointHit):
            await world.start()
        world.agents["bot"] = Echo()
        await world.start()
        await world.settled()
        assert [row["attempt"] for row in world.runs()] == [2, 2]
        assert sorted(world.posts) == ["you said: a", "you said: b"]


async def test_a_clean_stop_lets_a_running_answer_end(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Scripted(gate, "done"), limits={"drain_seconds": 10}) as world:
        key = world.paper.says("go")
        await gate.reached()
        ending = asyncio.create_task(world.end())
        await world.paper.until(lambda paper: not paper.attached())
        gate.open()
        await ending
        assert world.run(key)["attempt"] == 1
        assert world.posts == ["done"]


async def test_what_a_stop_cannot_wait_for_is_resumed_at_the_next_start(tmp_path: Path) -> None:
    gate = Gate()
    agent = Takes(Scripted(gate), Scripted("done"))
    async with World(tmp_path, agent) as world:
        world.paper.says("go")
        await gate.reached()
        await world.end()
        await world.start()
        await world.paper.until(lambda paper: paper.posts == ["done"])


async def promise(turn: Turn) -> str:
    await turn.desk.begin("errand", "milk", 5)
    return "I go."


async def test_a_task_that_waits_reports_back_after_a_crash(tmp_path: Path) -> None:
    async def errand(argument: str) -> str:
        return f"Here is your {argument}."

    clock = FakeClock()
    kinds = [TaskKind("errand", errand, resumable=False)]
    async with World(tmp_path, Scripted(promise), clock=clock, kinds=kinds) as world:
        world.paper.says("go", chat="c", thread="t")
        await world.paper.until(lambda paper: paper.posts == ["I go."])
        await world.crash()
        await world.start()
        await clock.advance(4)
        assert world.posts == ["I go."]
        await clock.advance(1)
        await world.paper.until(lambda paper: paper.posts_in("c", "t") == ["I go.", "Here is your milk."])
        await world.settled()
        assert [row["state"] for row in world.rows("SELECT state FROM tasks")] == ["succeeded"]


@pytest.mark.parametrize("resumable", [True, False])
async def test_a_task_that_was_at_work_is_started_again_or_reported_lost(tmp_path: Path, resumable: bool) -> None:
    gate = Gate()
    begun = 0

    async def errand(argument: str) -> str:
        nonlocal begun
        begun += 1
        if begun == 1:
            await gate.wait()
        return f"Here is your {argument}."

    clock = FakeClock()
    kinds = [TaskKind("errand", errand, resumable=resumable)]
    async with World(tmp_path, Scripted(promise), clock=clock, kinds=kinds) as world:
        world.paper.says("go")
        await world.paper.until(lambda paper: paper.posts == ["I go."])
        await clock.advance(5)
        await gate.reached()
        await world.crash()
        await world.start()
        await clock.advance(0.1)
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        await world.settled()
        if resumable:
            assert world.posts[1] == "Here is your milk."
        else:
            assert world.posts[1] == "⚠ The background task “milk” was lost in a restart; it did not report an end."
        assert begun == (2 if resumable else 1)
        assert world.rows("SELECT state FROM tasks")[0]["state"] == ("succeeded" if resumable else "lost")


async def test_a_task_that_fails_or_whose_kind_is_gone_says_so(tmp_path: Path) -> None:
    async def errand(argument: str) -> str:
        raise RuntimeError("the shop is closed")

    clock = FakeClock()
    kinds = [TaskKind("errand", errand, resumable=True)]
    async with World(tmp_path, Scripted(promise), clock=clock, kinds=kinds) as world:
        world.paper.says("go")
        await world.paper.until(lambda paper: len(paper.posts) == 1)
        await clock.advance(5)
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        assert world.posts[1] == "⚠ The background task “milk” failed: the shop is closed."
        world.paper.says("again")
        await world.paper.until(lambda paper: len(paper.posts) == 3)
        await world.crash()
        world.kinds = ()
        await world.start()
        await clock.advance(5)
        await world.paper.until(lambda paper: len(paper.posts) == 4)
        assert world.posts[3] == "⚠ The background task “milk” cannot run: its kind no longer exists."


async def test_a_promise_outlives_the_conversation_it_was_made_in(tmp_path: Path) -> None:
    """C2: where it goes was fixed when it was made."""

    async def errand(argument: str) -> str:
        return f"Here is your {argument}."

    clock = FakeClock()
    kinds = [TaskKind("errand", errand, resumable=True)]
    platforms = {"paper": KEYED, "other": KEYED}
    async with World(tmp_path, Scripted(promise), platforms=platforms, clock=clock, kinds=kinds) as world:
        world.paper.says("go", chat="c")
        await world.paper.until(lambda paper: paper.posts == ["I go."])
        world.paper.says("/new", chat="c")
        world.papers["other"].says("/whoami", chat="c")
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        await clock.advance(5)
        await world.paper.until(lambda paper: paper.posts_in("c")[2:] == ["Here is your milk."])
        assert len(world.papers["other"].posts) == 1
