"""Which bot answers where: by name, else by the first rule that matches, else the default."""

from pathlib import Path

import pytest

from tests.worlds.world import KEYED, Scripted, World, handed
from tidings.core.errors import ConfigError
from tidings.core.settings import Core, Rule

BOTS = ("bot", "a", "b", "c")


def bots() -> dict[str, Scripted]:
    return {name: Scripted(f"{name} answers") for name in BOTS}


async def answers(world: World, adapter: str = "paper", **fields: str) -> str:
    """Who answers a message there."""
    chat, thread = fields.get("chat", "1"), fields.get("thread", "")
    paper = world.papers[adapter]
    paper.open_chat(chat, thread)
    before = len(paper.posts_in(chat))
    await world.receive(handed("hi", adapter=adapter, **fields))
    await paper.until(lambda paper: len(paper.posts_in(chat)) > before)
    assert paper.posts_in(chat, thread)
    return paper.posts_in(chat)[-1].removesuffix(" answers")


async def test_the_first_rule_that_matches_wins(tmp_path: Path) -> None:
    rules = [
        Rule(chat="1", thread="t", bot="a"),
        Rule(platform="paper", chat="1", bot="b"),
        Rule(platform="other", bot="c"),
        Rule(chat="1", bot="a"),
    ]
    platforms = {"paper": KEYED, "other": KEYED}
    async with World(tmp_path, bots(), platforms=platforms, rules=rules) as world:
        assert await answers(world, chat="1", thread="t") == "a"
        assert await answers(world, chat="1") == "b"
        # A thread without a rule of its own has its chat's.
        assert await answers(world, chat="1", thread="u") == "b"
        assert await answers(world, chat="2") == "bot"
        assert await answers(world, chat="2", thread="t") == "bot"
        assert await answers(world, "other", chat="2") == "c"
        assert await answers(world, "other", chat="1", thread="t") == "a"


async def test_who_is_asked_for_by_name_answers_whatever_the_rules_say(tmp_path: Path) -> None:
    async with World(tmp_path, bots(), rules=[Rule(platform="paper", bot="b")]) as world:
        assert await answers(world, bot="a") == "a"
        assert await answers(world, bot="bot") == "bot"
        assert await answers(world, bot="nobody") == "b"
        assert await answers(world) == "b"


async def test_an_account_has_rules_of_its_own(tmp_path: Path) -> None:
    async with World(tmp_path, bots(), rules=[Rule(account="second", bot="b"), Rule(account="main", bot="a")]) as world:
        assert await answers(world) == "a"


@pytest.mark.parametrize("named", ["1", "2"])
async def test_a_chat_that_has_moved_may_be_named_by_either_id(tmp_path: Path, named: str) -> None:
    async with World(tmp_path, bots(), rules=[Rule(chat=named, bot="a")]) as world:
        await world.gateway._reported.moved("paper", "main", "1", "2")
        assert await answers(world, chat="2") == "a"


async def test_the_session_and_the_turn_name_the_bot_of_the_rule(tmp_path: Path) -> None:
    agents = bots()
    async with World(tmp_path, agents, rules=[Rule(bot="c")]) as world:
        await answers(world)
        assert [turn.bot for turn in agents["c"].turns] == ["c"]


async def test_a_rule_for_a_bot_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    async with World(tmp_path, bots()) as world:
        await world.stop()
        world.rules = (Rule(bot="a"), Rule(platform="paper", chat="5", bot="nobody"))
        with pytest.raises(ConfigError) as refused:
            await world.start()
    assert str(refused.value) == (
        "[[rules]] 2 (platform paper, chat 5): there is no bot named 'nobody'; there are: a, b, bot, c"
    )


def test_an_id_may_be_written_as_a_number() -> None:
    written = {"rules": [{"platform": "paper", "chat": -100123, "thread": 4, "bot": "a"}]}
    assert Core.model_validate(written).rules == (Rule(platform="paper", chat="-100123", thread="4", bot="a"),)
