"""Silence in groups: a bot that reads everything may say nothing, and a bot that is asked may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worlds.world import KEYED, Gate, OwnedClock, Scripted, Takes, World, handed
from tidings.core.agent import ChoicesOffered, Effect, Finished, Progress, TextDelta, ToolFinished, ToolStarted
from tidings.core.inbound.answer import NOTHING_TO_ADD
from tidings.core.types import Author

OVERHEARD = {"private": False, "overheard": True}
# Ways in which an agent says nothing.
SILENCES: dict[str, tuple[Any, ...]] = {
    "no text": (),
    "blank": (" \n", "  "),
    "sign": ("[SILENT]",),
    "sign in pieces": ("[SIL", "ENT]", "\n"),
    "other sign": ("no_reply",),
    "after a tool": (
        ToolStarted("1", "look", "{}", Effect.PURE),
        ToolFinished("1", "nothing", ""),
        "[SILENT]",
    ),
    "after progress": (Progress("I look …"), "[SILENT]"),
    "buttons without words": (ChoicesOffered(("yes", "no")),),
}


def shown(world: World) -> list[str]:
    """All that a person could see of the bot, also what was taken back."""
    return [effect.act for effect in world.paper.effects]


@pytest.mark.parametrize("script", SILENCES.values(), ids=SILENCES)
async def test_a_bot_may_say_nothing_to_what_it_only_overhears(tmp_path: Path, script: tuple[Any, ...]) -> None:
    """F18: no notice, no reaction, no typing and no view, however long it takes; but one end, and a memory of it."""
    clock, gate = OwnedClock(), Gate()
    agent = Takes(Scripted(*script[:-1], gate, *script[-1:]), Scripted("here"))
    async with World(tmp_path, agent, clock=clock, kind=KEYED) as world:
        world.paper.open_chat("1")
        said = handed("lunch?", **OVERHEARD)
        await world.receive(said)
        await gate.reached()
        await clock.advance(30)
        gate.open()
        outcome = await world.outcome(said.key)
        await world.settled()
        await clock.advance(60)

        assert (outcome.kind, outcome.reason, outcome.text.strip(), outcome.choices) == ("completed", "", "", ())
        assert shown(world) == []
        assert world.rows("SELECT * FROM deliveries") == []
        # The bot knows later what was said.
        world.paper.says("what was that?", private=False)
        await world.until(lambda: world.paper.posts == ["here"])
        assert [entry.text for entry in agent.turns[1].history if entry.author is Author.PERSON] == ["lunch?"]


@pytest.mark.parametrize(
    "script", [script for name, script in SILENCES.items() if "sign" not in name and "after" not in name]
)
async def test_a_bot_that_is_asked_fails_with_words_if_it_says_nothing(tmp_path: Path, script: tuple[Any, ...]) -> None:
    """A7."""
    async with World(tmp_path, Scripted(*script), clock=OwnedClock()) as world:
        key = world.paper.says("what time is it?", private=False)
        await world.until(lambda: world.paper.posts)
        assert (await world.outcome(key)).kind == "failed"
        assert world.paper.posts == ["⚠ I could not finish this: the agent ended without an answer."]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (("No", ", thanks."), "No, thanks."),
        (("NO",), "NO"),
        (("[SILENT] is a sign",), "[SILENT] is a sign"),
        (("[SILENT", Gate, "? no"), "[SILENT? no"),
    ],
)
async def test_an_answer_that_only_begins_like_a_sign_is_whole(
    tmp_path: Path, script: tuple[Any, ...], text: str
) -> None:
    clock, gate = OwnedClock(), Gate()
    steps = [gate if step is Gate else step for step in script]
    async with World(tmp_path, Scripted(*steps), clock=clock) as world:
        said = handed("lunch?", **OVERHEARD)
        await world.receive(said)
        if gate in steps:
            await gate.reached()
            await clock.advance(5)
            assert shown(world) == []
            gate.open()
        await world.until(lambda: world.paper.posts == [text])
        assert (await world.outcome(said.key)).text == text


async def test_a_failure_is_told_although_nobody_asked(tmp_path: Path) -> None:
    """Silence is a choice; an error is none, and hiding it would leave a broken bot unnoticed."""
    async with World(tmp_path, Scripted(RuntimeError("no more paper")), clock=OwnedClock()) as world:
        await world.receive(handed("lunch?", **OVERHEARD))
        await world.until(lambda: world.paper.posts == ["⚠ I could not finish this: no more paper."])


async def test_an_overheard_message_that_is_answered_grows_in_place(tmp_path: Path) -> None:
    clock, gate = OwnedClock(), Gate()
    async with World(tmp_path, Scripted("Soup", gate, " at noon."), clock=clock) as world:
        await world.receive(handed("lunch?", **OVERHEARD))
        await gate.reached()
        await world.until(lambda: [message.text for message in world.paper.visible()] == ["Soup"])
        gate.open()
        await world.until(lambda: [message.text for message in world.paper.visible()] == ["Soup at noon."])
        await world.settled()
        assert not [effect for effect in world.paper.effects if effect.act == "react"]


async def test_what_was_shown_before_a_crash_does_not_stay_half_said(tmp_path: Path) -> None:
    clock, gate = OwnedClock(), Gate()
    async with World(tmp_path, Takes(Scripted("Sou", gate), Scripted("[SILENT]")), clock=clock) as world:
        said = handed("lunch?", **OVERHEARD)
        await world.receive(said)
        await gate.reached()
        await world.until(lambda: [message.text for message in world.paper.visible()] == ["Sou"])
        await world.crash()
        await world.start()
        await world.until(lambda: [message.text for message in world.paper.visible()] == [NOTHING_TO_ADD])
        assert (await world.outcome(said.key)).kind == "completed"


async def test_a_flood_of_blanks_is_halted_like_any_other(tmp_path: Path) -> None:
    async def flood(turn: object) -> TextDelta:
        return TextDelta(" " * 500)

    limits = {"output_characters": 1000}
    async with World(tmp_path, Scripted(*[flood] * 5, Finished()), limits=limits, clock=OwnedClock()) as world:
        said = handed("lunch?", **OVERHEARD)
        await world.receive(said)
        outcome = await world.outcome(said.key)
        await world.settled()
        assert outcome.kind == "halted"
