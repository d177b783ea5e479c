"""Buttons of an answer: a press says the button's words, once, and a full house only puts it off."""

from __future__ import annotations

from pathlib import Path

from tests.worlds.world import Echo, Gate, Scripted, Takes, World
from tidings.core.agent import ChoicesOffered

ASKS = Scripted("Tea?", ChoicesOffered(("Yes", "No")))


async def test_a_press_that_is_turned_away_does_not_use_up_the_question(tmp_path: Path) -> None:
    gate = Gate()
    agent = Takes(ASKS, Scripted(gate, "one"), Scripted("two"), Echo())
    async with World(tmp_path, agent, limits={"queued_per_conversation": 1}) as world:
        world.paper.says("ask me")
        await world.eventually(lambda: world.paper.posts)
        await world.settled()
        (question,) = world.paper.visible()
        world.paper.says("first")
        await gate.reached()
        world.paper.says("second")
        await world.eventually(lambda: len(world.runs()) == 3)
        yes = question.choices[0].id
        world.paper.presses(question.id, yes)
        await world.eventually(lambda: any("Too many messages are waiting" in post for post in world.paper.posts))
        gate.open()
        await world.settled()
        world.paper.presses(question.id, yes)
        await world.eventually(lambda: world.paper.posts[-1].endswith("Yes"))
        await world.settled()
        world.paper.presses(question.id, yes)
        await world.settled()
    assert [turn.message.text for turn in agent.turns] == ["ask me", "first", "second", "Yes"]


async def test_an_answer_that_did_not_complete_has_no_buttons(tmp_path: Path) -> None:
    agent = Scripted("Tea?", ChoicesOffered(("Yes",)), RuntimeError("broken"))
    async with World(tmp_path, agent) as world:
        world.paper.says("ask me")
        await world.eventually(lambda: world.paper.posts)
        assert [message.choices for message in world.paper.visible()] == [()]
