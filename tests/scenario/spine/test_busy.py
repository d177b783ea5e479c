"""What becomes of a message that comes while a run goes on: queued, collected, handed over, or an interruption."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.worlds.world import Gate, OwnedClock, Scripted, World, armed, handed
from tidings.core.agent import Checkpoint, Finished, OutcomeKind, Steered, TextDelta, Turn
from tidings.core.busy import Busy
from tidings.core.settings import Rule
from tidings.core.types import Sender

ADA, BEN = "7", "8"
GROUP: dict[str, Any] = {"chat": "g", "private": False}


class Listener:
    """Says what it was asked, waits, hears what came meanwhile, and answers all of it."""

    def __init__(self, *, checkpoints: bool = True, hears: bool = True) -> None:
        self.gates: list[Gate] = []
        self.turns: list[Turn] = []
        self.heard: list[str] = []
        self._checkpoints = checkpoints
        self._hears = hears

    def gate(self) -> Gate:
        self.gates.append(Gate())
        return self.gates[-1]

    async def run(self, turn: Turn) -> Any:
        self.turns.append(turn)
        known = (turn.checkpoint or b"").decode() if turn.attempt > 1 else ""
        texts = known.split("+") if known else [turn.message.text]
        if self.gates:
            await self.gates.pop(0).wait()
        if self._hears:
            said = [message.text for message in await turn.heard()]
            self.heard += said
            texts += said
            if said and self._checkpoints:
                yield Checkpoint("+".join(texts).encode())
        if self.gates:
            await self.gates.pop(0).wait()
        yield TextDelta(f"answer to {'+'.join(texts)}")
        yield Finished()


async def says(world: World, text: str, **place: Any) -> str:
    """Says something, and returns when it is stored."""
    key = world.paper.says(text, **place)
    await world.paper.until(lambda paper: key in paper.confirmed)
    return key


def states(world: World) -> dict[str, str]:
    return {row["key"]: row["state"] for row in world.rows("SELECT key, state FROM inbox WHERE kind = 'message'")}


def world_of(tmp_path: Path, agent: Any, mode: str, **more: Any) -> World:
    limits = {"busy": mode, **more.pop("limits", {})}
    return World(tmp_path, agent, limits=limits, allow=[f"paper:{ADA}", f"paper:{BEN}"], **more)


# Queue.


async def test_three_queued_messages_are_all_answered_next_in_order(tmp_path: Path) -> None:
    """F1."""
    agent = Listener()
    gate = agent.gate()
    async with world_of(tmp_path, agent, "queue") as world:
        world.paper.says("a")
        await gate.reached()
        for text in ("b", "c", "d"):
            await says(world, text)
        gate.open()
        await world.settled()
        assert world.posts == [f"answer to {text}" for text in "abcd"]


# Collect.


async def test_what_came_meanwhile_is_one_run(tmp_path: Path) -> None:
    agent = Listener()
    gate = agent.gate()
    async with world_of(tmp_path, agent, "collect") as world:
        world.paper.says("a")
        await gate.reached()
        keys = [await says(world, text) for text in ("b", "c", "d")]
        gate.open()
        await world.settled()
        assert world.posts == ["answer to a", "answer to b\nc\nd"]
        assert [states(world)[key] for key in keys] == ["done", "joined", "joined"]
        assert [part.text for part in agent.turns[1].message.parts] == ["b", "c", "d"]


async def test_collected_messages_of_several_people_name_their_senders(tmp_path: Path) -> None:
    agent = Listener()
    gate = agent.gate()
    async with world_of(tmp_path, agent, "collect") as world:
        await says(world, "a", **GROUP)
        await gate.reached()
        for id, name, text in ((ADA, "Ada", "tea"), (BEN, "Ben\nAda: water", "coffee")):
            said = structs.replace(handed(text, **GROUP), sender=Sender(id=id, name=name))
            await world.receive(said)
        gate.open()
        await world.settled()
        assert agent.turns[1].message.text == "Ada: tea\nBen Ada: water: coffee"


async def test_a_guests_words_are_not_collected_into_an_owners_run(tmp_path: Path) -> None:
    agent = Listener()
    gate = agent.gate()
    async with world_of(tmp_path, agent, "collect", owners=[f"paper:{ADA}"]) as world:
        await says(world, "a", sender=ADA, **GROUP)
        await gate.reached()
        await says(world, "b", sender=ADA, **GROUP)
        await says(world, "c", sender=BEN, **GROUP)
        await says(world, "d", sender=ADA, **GROUP)
        gate.open()
        await world.settled()
        assert [turn.message.text for turn in agent.turns] == ["a", "b", "c", "d"]


# Steer.


@pytest.mark.parametrize("checkpoints", [True, False])
async def test_a_message_is_handed_to_the_running_agent_and_is_no_run(tmp_path: Path, checkpoints: bool) -> None:
    """With a checkpoint or, for an agent without one, with its completed answer."""
    agent = Listener(checkpoints=checkpoints)
    gate = agent.gate()
    async with world_of(tmp_path, agent, "steer") as world:
        first = world.paper.says("a")
        await gate.reached()
        second = await says(world, "b")
        gate.open()
        await world.settled()
        assert world.posts == ["answer to a+b"]
        assert states(world) == {first: "done", second: "joined"}
        told = [event for event in world.events(first) if isinstance(event, Steered)]
        assert told == ([Steered("7", "b")] if checkpoints else [])


async def test_an_agent_that_does_not_listen_loses_nothing(tmp_path: Path) -> None:
    agent = Listener(hears=False)
    gate = agent.gate()
    async with world_of(tmp_path, agent, "steer") as world:
        world.paper.says("a")
        await gate.reached()
        await says(world, "b")
        gate.open()
        await world.settled()
        assert world.posts == ["answer to a", "answer to b"]


async def test_a_message_that_comes_after_the_last_step_is_a_run_of_its_own(tmp_path: Path) -> None:
    agent = Listener()
    first, last = agent.gate(), agent.gate()
    async with world_of(tmp_path, agent, "steer") as world:
        world.paper.says("a")
        await first.reached()
        first.open()
        await last.reached()
        await says(world, "b")
        last.open()
        await world.settled()
        assert world.posts == ["answer to a", "answer to b"]


class Deaf(Listener):
    """Hears, and fails before it has stored what it heard."""

    async def run(self, turn: Turn) -> Any:
        self.turns.append(turn)
        if self.gates:
            await self.gates.pop(0).wait()
            self.heard += [message.text for message in await turn.heard()]
            raise RuntimeError("broken")
        yield TextDelta(f"answer to {turn.message.text}")
        yield Finished()


async def test_what_a_failed_run_had_only_read_is_a_run_of_its_own(tmp_path: Path) -> None:
    agent = Deaf()
    gate = agent.gate()
    async with world_of(tmp_path, agent, "steer") as world:
        world.paper.says("a")
        await gate.reached()
        await says(world, "b")
        gate.open()
        await world.settled()
        assert agent.heard == ["b"]
        assert world.posts == ["⚠ I could not finish this: broken.", "answer to b"]


@pytest.mark.parametrize("contained", [True, False])
async def test_after_a_kill_a_message_is_either_in_the_checkpoint_or_a_run_of_its_own(
    tmp_path: Path, contained: bool
) -> None:
    agent = Listener(checkpoints=contained)
    gate, late = agent.gate(), agent.gate()
    async with world_of(tmp_path, agent, "steer") as world:
        first = world.paper.says("a")
        await gate.reached()
        second = await says(world, "b")
        gate.open()
        await late.reached()
        await world.crash()
        world.agents["bot"] = again = Listener(checkpoints=contained)
        await world.start()
        await world.settled()
        assert world.posts == ["answer to a+b"]
        # Without a checkpoint the new attempt reads the message again.
        assert again.heard == ([] if contained else ["b"])
        assert states(world) == {first: "done", second: "joined"}


async def test_a_handed_over_message_is_remembered_and_undone_with_its_run(tmp_path: Path) -> None:
    agent = Listener()
    gate = agent.gate()
    async with world_of(tmp_path, agent, "steer") as world:
        world.paper.says("a")
        await gate.reached()
        await says(world, "b")
        gate.open()
        await world.settled()
        await says(world, "c")
        await world.settled()
        assert [entry.text for entry in agent.turns[-1].history] == ["a", "b", "answer to a+b"]
        await says(world, "/undo")
        await says(world, "/undo")
        await says(world, "d")
        await world.settled()
        assert agent.turns[-1].history == ()


async def test_somebody_who_may_do_less_cannot_steer_an_owners_run(tmp_path: Path) -> None:
    agent = Listener()
    gate = agent.gate()
    async with world_of(tmp_path, agent, "steer", owners=[f"paper:{ADA}"]) as world:
        await says(world, "a", sender=ADA, **GROUP)
        await gate.reached()
        await says(world, "delete all", sender=BEN, **GROUP)
        gate.open()
        await world.settled()
        assert agent.heard == []
        assert [turn.message.text for turn in agent.turns] == ["a", "delete all"]


async def test_a_message_is_changed_until_it_is_heard_and_not_after(tmp_path: Path) -> None:
    agent = Listener(checkpoints=False)
    first, late = agent.gate(), agent.gate()
    async with world_of(tmp_path, agent, "steer") as world:
        world.paper.says("a")
        await first.reached()
        key = await says(world, "b")
        edit = world.paper.edits(key, "better")
        await world.paper.until(lambda paper: edit in paper.confirmed)
        first.open()
        await late.reached()
        gone = world.paper.deletes(key)
        await world.paper.until(lambda paper: gone in paper.confirmed)
        late.open()
        await world.settled()
        assert world.posts == ["answer to a+better"]


async def test_steer_by_command_and_queue_by_command(tmp_path: Path) -> None:
    agent = Listener()
    gate = agent.gate()
    async with world_of(tmp_path, agent, "collect") as world:
        world.paper.says("a")
        await gate.reached()
        await says(world, "/steer be brief")
        await says(world, "/queue and then?")
        gate.open()
        await world.settled()
        assert world.posts == ["answer to a+be brief", "answer to and then?"]
        assert agent.heard == ["be brief"]


# Interrupt.


async def test_the_next_message_interrupts_and_sees_both(tmp_path: Path) -> None:
    """A24: nothing is lost, and the person reads why the first answer ended."""
    agent = Listener(hears=False)
    agent.gate()
    async with world_of(tmp_path, agent, "interrupt") as world:
        first = world.paper.says("a")
        await world.eventually(lambda: bool(agent.turns))
        await says(world, "b")
        await world.settled()
        assert world.posts == ["Interrupted by your next message.", "answer to b"]
        assert world.run(first)["reason"] == "interrupted by your next message"
        assert [entry.text for entry in agent.turns[1].history] == ["a", "interrupted by your next message"]


async def test_nobody_interrupts_somebody_elses_answer(tmp_path: Path) -> None:
    agent = Listener(hears=False)
    gate = agent.gate()
    async with world_of(tmp_path, agent, "interrupt") as world:
        await says(world, "a", sender=ADA, **GROUP)
        await gate.reached()
        await says(world, "b", sender=BEN, **GROUP)
        gate.open()
        await world.settled()
        assert world.posts == ["answer to a", "answer to b"]


async def test_an_interruption_survives_a_kill(tmp_path: Path) -> None:
    agent = Listener(hears=False)
    agent.gate()
    async with world_of(tmp_path, agent, "interrupt") as world:
        world.paper.says("a")
        await world.eventually(lambda: bool(agent.turns))
        with armed("run.pre_terminal:1:raise"):
            await says(world, "b")
            await asyncio.sleep(0)
        await world.crash()
        await world.start()
        await world.settled()
        assert world.posts[-1] == "answer to b"
        assert "Interrupted by your next message." in world.posts


# Where the mode comes from.


async def test_busy_tells_and_changes_the_mode_of_the_chat(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted("x")) as world:
        for text in ("/busy", "/busy steer", "/busy loud", "/busy default"):
            await says(world, text)
        await world.settled()
        told, chosen, unknown, back = world.posts
        assert told.startswith(
            "The mode here is queue (the default). When a message comes while I am busy, I answer it next"
        )
        assert "queue, collect, steer, interrupt" in told
        assert chosen.startswith("The mode here is steer (chosen here).")
        assert unknown.startswith("I don't know “loud”.")
        assert "(the default)" in back


RULES = {
    "platform": (Rule(platform="paper", busy=Busy.STEER),),
    "chat": (Rule(chat="1", busy=Busy.STEER),),
    "the first that has one": (Rule(bot="bot"), Rule(chat="1", busy=Busy.STEER), Rule(busy=Busy.INTERRUPT)),
    "another chat": (Rule(chat="2", busy=Busy.STEER),),
}


@pytest.mark.parametrize("rules", RULES)
async def test_a_rule_chooses_the_mode_of_a_platform_or_chat(tmp_path: Path, rules: str) -> None:
    agent = Listener()
    gate = agent.gate()
    async with world_of(tmp_path, agent, "queue", rules=RULES[rules]) as world:
        world.paper.says("a")
        await gate.reached()
        await says(world, "b")
        gate.open()
        await world.settled()
        steered = rules != "another chat"
        assert world.posts == (["answer to a+b"] if steered else ["answer to a", "answer to b"])


# Bursts.


async def test_a_burst_of_one_person_is_one_run(tmp_path: Path, clock: OwnedClock) -> None:
    agent = Listener()
    async with World(tmp_path, agent, clock=clock, limits={"burst_seconds": 0.8}) as world:
        for text in ("one", "two", "three"):
            await says(world, text)
            await clock.advance(0.5)
        assert world.posts == []
        await clock.advance(1.0)
        await world.until(lambda: world.posts == ["answer to one\ntwo\nthree"])
        await says(world, "later")
        await clock.advance(1.0)
        await world.until(lambda: world.posts[1:] == ["answer to later"])


async def test_bursts_of_two_people_are_two_runs(tmp_path: Path, clock: OwnedClock) -> None:
    agent = Listener()
    async with world_of(tmp_path, agent, "queue", clock=clock, limits={"burst_seconds": 0.8}) as world:
        for sender, text in ((ADA, "a1"), (BEN, "b1"), (ADA, "a2"), (BEN, "b2")):
            await says(world, text, sender=sender, **GROUP)
        await clock.advance(3.0)
        await world.until(lambda: world.posts == ["answer to a1\na2", "answer to b1\nb2"])


async def test_who_keeps_writing_is_answered_all_the_same(tmp_path: Path, clock: OwnedClock) -> None:
    agent = Listener()
    async with World(tmp_path, agent, clock=clock, limits={"burst_seconds": 0.8}) as world:
        for number in range(20):
            await says(world, str(number))
            await clock.advance(0.5)
        await clock.advance(5.0)
        await world.settled()
        assert len(world.posts) > 1
        words = [word for post in world.posts for word in post.removeprefix("answer to ").split("\n")]
        assert words == [str(number) for number in range(20)]


async def test_a_stop_right_behind_a_message_stops_its_answer(tmp_path: Path, clock: OwnedClock) -> None:
    """A6."""
    agent = Listener()
    async with World(tmp_path, agent, clock=clock, limits={"burst_seconds": 0.8}) as world:
        await says(world, "a")
        await says(world, "/stop")
        await clock.advance(5.0)
        await world.settled()
        assert agent.turns == []
        assert world.posts == ["Stopped by 7."]


async def test_the_first_message_of_a_burst_is_deleted_and_the_others_stay(tmp_path: Path, clock: OwnedClock) -> None:
    agent = Listener()
    async with World(tmp_path, agent, clock=clock, limits={"burst_seconds": 0.8}) as world:
        first = await says(world, "one")
        await says(world, "two")
        await says(world, "three")
        gone = world.paper.deletes(first)
        await world.paper.until(lambda paper: gone in paper.confirmed)
        await clock.advance(2.0)
        await world.settled()
        assert [turn.message.text for turn in agent.turns] == ["two\nthree"]


async def test_a_burst_survives_a_kill(tmp_path: Path, clock: OwnedClock) -> None:
    agent = Listener()
    async with World(tmp_path, agent, clock=clock, limits={"burst_seconds": 0.8}) as world:
        await says(world, "one")
        await says(world, "two")
        await world.crash()
        await world.start()
        await clock.advance(2.0)
        await world.until(lambda: world.posts == ["answer to one\ntwo"])


async def test_usage_of_a_run_that_a_restart_ends_is_kept(tmp_path: Path) -> None:
    from tidings.core.agent import ToolStarted, Usage

    gate = Gate()
    used = Usage(input_tokens=30, output_tokens=5, requests=1)
    agent = Scripted(Checkpoint(b"{}", used), ToolStarted("c1", "pay"), gate)
    async with World(tmp_path, agent) as world:
        key = world.paper.says("go")
        await gate.reached()
        await world.crash()
        await world.start()
        outcome = await world.outcome(key)
        assert (outcome.kind, outcome.usage) == (OutcomeKind.FAILED, used)
