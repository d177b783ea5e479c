"""People choose the model and the persona of their own conversation: /model, /persona and /compact."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds.world import Scripted, World
from tidings.bots.app.roster import Bot
from tidings.bots.assistant.commands import commands
from tidings.bots.assistant.model_choice import permit
from tidings.bots.assistant.settings import ModelChoice
from tidings.core.inbound.bots import Bots
from tidings.core.settings import Rule

ROSA = Bot(
    name="rosa",
    model="openai:gpt-5-mini",
    fallbacks=(ModelChoice(model="anthropic:claude"),),
    persona="You are Rosa.",
)
PICKY = Bot(name="picky", model="openai:gpt-5-mini", models=("gpt-5", "google:gemini"))
LOCAL = Bot(name="local", model="llama3", base_url="http://127.0.0.1:1/v1")
PARROT = Bot(name="parrot", agent="echo")


class Kitchen(World):
    """Rosa answers, and in the chat "attic" the parrot, which has no model."""

    def __init__(self, home: Path, *bots: Bot) -> None:
        settings = {bot.called: bot for bot in bots or (ROSA, PARROT)}
        agents = {name: Scripted("well") for name in settings}
        rules = [Rule(chat="attic", bot="parrot")] if "parrot" in agents else []
        found = Bots(agents, next(iter(agents)), rules).find
        super().__init__(home, agents, commands=commands(found, settings), rules=rules)
        self.scripts = agents

    async def asks(self, text: str, **where: str) -> str:
        """What is posted in reply."""
        before = len(self.posts)
        self.paper.says(text, **where)
        await self.paper.until(lambda paper: len(paper.posts) > before)
        return self.posts[before]


async def test_model_says_which_one_answers_and_what_else_there_is(tmp_path: Path) -> None:
    async with Kitchen(tmp_path) as world:
        told = await world.asks("/model")
        assert told == (
            "openai:gpt-5-mini answers here.\n"
            "/model NAME chooses another:\n  anthropic:claude\n"
            "/model NAME chooses any other model of openai, by its name."
        )
        assert world.runs() == [], "no model was asked for that"


async def test_a_chosen_model_reaches_the_bot_of_that_conversation_alone_until_it_is_taken_back(
    tmp_path: Path,
) -> None:
    async with Kitchen(tmp_path) as world:
        told = await world.asks("/model gpt-5", chat="one")
        assert told == "From now on openai:gpt-5 answers here. /model default goes back to openai:gpt-5-mini."
        await world.restart()
        assert "openai:gpt-5 answers here, as was chosen by /model." in await world.asks("/model", chat="one")
        await world.asks("hi", chat="one")
        await world.asks("hi", chat="two")
        await world.asks("/model default", chat="one")
        await world.asks("hi again", chat="one")
        chosen = [turn.preferences.get("model", "") for turn in world.scripts["rosa"].turns]
        assert chosen == ["openai:gpt-5", "", ""]


async def test_a_model_that_may_not_be_asked_is_refused_with_a_reason_and_nothing_changes(tmp_path: Path) -> None:
    async with Kitchen(tmp_path) as world:
        told = await world.asks("/model mistral:large")
        assert "I cannot ask mistral:large: another provider would need another key." in told
        assert "/model openai:NAME" in told
        assert "anthropic:claude" in told
        assert (await world.asks("/model")).startswith("openai:gpt-5-mini answers here.")


@pytest.mark.parametrize(
    ("bot", "wanted", "name"),
    [
        (ROSA, "gpt-5", "openai:gpt-5"),
        (ROSA, "openai:gpt-5", "openai:gpt-5"),
        (ROSA, "anthropic:claude", "anthropic:claude"),
        (ROSA, "gpt-5-mini", "openai:gpt-5-mini"),
        (ROSA, "anthropic:other", ""),
        (ROSA, "two words", ""),
        (ROSA, "openai:", ""),
        (ROSA, "x" * 300, ""),
        (PICKY, "gpt-5", "openai:gpt-5"),
        (PICKY, "google:gemini", "google:gemini"),
        (PICKY, "gpt-5-mini", "openai:gpt-5-mini"),
        (PICKY, "gpt-4", ""),
        (LOCAL, "qwen3:8b", "qwen3:8b"),
        (LOCAL, "llama3", "llama3"),
    ],
)
def test_which_models_may_be_chosen(bot: Bot, wanted: str, name: str) -> None:
    found, trouble = permit(bot, wanted)
    assert found == name
    assert bool(trouble) is not bool(name)


async def test_a_list_of_models_is_all_there_is_to_choose_from(tmp_path: Path) -> None:
    async with Kitchen(tmp_path, PICKY) as world:
        assert await world.asks("/model") == (
            "openai:gpt-5-mini answers here.\n/model NAME chooses another:\n  openai:gpt-5\n  google:gemini"
        )
        told = await world.asks("/model gpt-4")
        assert told.startswith("gpt-4 is not among the models of this bot. There are:\n  openai:gpt-5-mini\n")


async def test_a_persona_is_chosen_shown_and_taken_back(tmp_path: Path) -> None:
    async with Kitchen(tmp_path) as world:
        assert await world.asks("/persona") == "I am:\nYou are Rosa."
        assert "/persona default goes back" in await world.asks("/persona You are a pirate.\nSay arr.")
        shown = await world.asks("/persona")
        assert "You are a pirate.\nSay arr." in shown
        await world.asks("hi")
        await world.asks("/persona default")
        await world.asks("hi again")
        chosen = [turn.preferences.get("persona", "") for turn in world.scripts["rosa"].turns]
        assert chosen == ["You are a pirate.\nSay arr.", ""]


async def test_a_persona_has_its_limit(tmp_path: Path) -> None:
    async with Kitchen(tmp_path) as world:
        assert "4,001 characters, and 4,000 are possible" in await world.asks(f"/persona {'x' * 4001}")
        assert await world.asks("/persona") == "I am:\nYou are Rosa."
        assert "goes back" in await world.asks(f"/persona {'x' * 4000}")


async def test_a_bot_without_a_model_has_none_to_choose(tmp_path: Path) -> None:
    async with Kitchen(tmp_path) as world:
        assert await world.asks("/model", chat="attic") == "This bot has no model to choose."
        assert await world.asks("/model gpt-5", chat="attic") == "This bot has no model to choose."
        assert await world.asks("/persona", chat="attic") == "This bot has no persona to choose."


async def test_compact_is_left_to_the_bot_in_a_run_of_its_own(tmp_path: Path) -> None:
    async with Kitchen(tmp_path) as world:
        assert await world.asks("/compact") == "well"
        (turn,) = world.scripts["rosa"].turns
        assert turn.message.command == "compact"
        assert "/compact – " in await world.asks("/help")


async def test_where_no_bot_has_a_model_there_are_no_such_commands(tmp_path: Path) -> None:
    assert commands(lambda inbound: "parrot", {"parrot": PARROT}) == ()
    async with Kitchen(tmp_path, PARROT) as world:
        assert "/model" not in await world.asks("/help")
