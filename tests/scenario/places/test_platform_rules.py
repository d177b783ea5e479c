"""Rules by place and by person on the real platforms: the first that matches wins, and bots share no memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.worlds.discord import DiscordWorld
from tests.worlds.slack import SlackWorld
from tests.worlds.stages import PLATFORMS, stage
from tests.worlds.world import KEYED, Echo, OwnedClock, Scripted, World, handed
from tidings.core.agent import Event, Finished, TextDelta, Turn
from tidings.core.errors import ConfigError
from tidings.core.settings import Rule
from tidings.core.types import Author, Body, Target

each = pytest.mark.parametrize("platform", PLATFORMS)


class Named:
    """Says its own name and what was said to it here before."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        before = [entry.text for entry in turn.history if entry.author is Author.PERSON]
        yield TextDelta(f"{self._name}: {turn.message.text} after {', '.join(before) or 'nothing'}")
        yield Finished()


def named(*names: str) -> dict[str, Named]:
    return {name: Named(name) for name in names}


async def test_rules_name_the_server_the_channel_the_thread_and_the_person(tmp_path: Path) -> None:
    """F3: on Discord; the first that matches wins, and each chat and thread has a memory of its own."""
    agents = named("bot", "guild", "channel", "thread", "person")
    async with DiscordWorld(tmp_path, agents, clock=OwnedClock()) as world:
        discord, ada = world.discord, world.ada
        work = discord.guild("Work")
        office, lab = discord.channel("office", work), discord.channel("lab", work)
        aside = ada.opens_thread(lab, "aside")
        bob = discord.person("bob")
        await world.admit(f"discord:{bob.id}")
        world.rules = (
            Rule(platform="slack", bot="bot"),
            Rule(person=f"discord:{bob.id}", server=work.id, bot="person"),
            Rule(chat=lab.id, thread=aside.id, bot="thread"),
            Rule(chat=lab.id, bot="channel"),
            Rule(platform="discord", server=work.id, bot="guild"),
            Rule(server=work.id, bot="bot"),
        )
        await world.restart()
        for place in (office, lab, aside, world.room):
            ada.says(place, "hi", mention=True)
            await world.until(lambda place=place: len(discord.posts_in(place)) == 1)  # type: ignore[misc]
        ada.says(ada.private(), "hi")
        await world.until(lambda: discord.posts_in(ada.private()))
        assert discord.posts_in(office) == ["guild: hi after nothing"]
        assert discord.posts_in(lab) == ["channel: hi after nothing"]
        assert discord.posts_in(aside) == ["thread: hi after nothing"]
        assert discord.posts_in(world.room) == ["bot: hi after nothing"]
        assert discord.posts_in(ada.private()) == ["bot: hi after nothing"]
        bob.says(office, "hello", mention=True)
        await world.until(lambda: len(discord.posts_in(office)) == 2)
        assert discord.posts_in(office)[1].startswith("person: hello")
        bob.says(world.room, "hello", mention=True)
        await world.until(lambda: len(discord.posts_in(world.room)) == 2)
        assert discord.posts_in(world.room)[1].startswith("bot: hello")
        runs = [turn for agent in agents.values() for turn in agent.turns]
        assert {turn.message.target.server for turn in runs} == {work.id, world.room.guild, ""}


async def test_a_rule_may_name_the_workspace(tmp_path: Path) -> None:
    """F3: on Slack; messages, direct messages and slash commands belong to the workspace of the account."""
    agents = {"bot": Echo(), "theirs": Scripted("from the other workspace")}
    async with SlackWorld(tmp_path, agents, accounts={"other": {}}) as world:
        other = world.workspace("other")
        eve = other.person("eve")
        await world.admit(f"slack:{eve.id}")
        world.rules = (Rule(server=other.id, bot="theirs"),)
        await world.restart()
        room = other.channel("lounge")
        first = eve.says(room, "hi", mention=True)
        await world.until(lambda: world.slack.posts_in(room, first.ts) == ["from the other workspace"])
        eve.says(eve.direct, "hi")
        await world.until(lambda: world.slack.posts_in(eve.direct) == ["from the other workspace"])
        eve.commands("/tidings", "how are you?", room)
        await world.until(lambda: world.slack.whispers)
        world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: world.slack.posts_in(world.ada.direct) == ["you said: hi"])
        rows = world.rows("SELECT account, json_extract(message, '$.target.server') AS server FROM inbox")
        assert {tuple(row) for row in rows} == {("other", other.id), ("main", world.workspace().id)}


@each
async def test_a_rule_for_a_person_holds_in_private_and_in_the_room(tmp_path: Path, platform: str) -> None:
    agents = {"bot": Echo(), "hers": Scripted("for carol")}
    async with stage(tmp_path, platform, agents, members=["carol"]) as there:
        there.world.rules = (Rule(person=there.identity("carol"), bot="hers"),)
        await there.world.restart()
        there.says("carol", "hi")
        await there.until(lambda: there.told("carol") == ["for carol"])
        there.says("carol", "hi", room=True)
        await there.until(lambda: there.heard == ["for carol"])
        there.says("ada", "hi", room=True)
        await there.until(lambda: there.heard == ["for carol", "you said: hi"])


async def test_a_rule_for_a_person_holds_for_every_linked_identity(tmp_path: Path) -> None:
    """By the identity that the rule names, by one that is linked later, and by the stored id."""
    agents = {"bot": Scripted("anybody"), "hers": Scripted("for her")}
    async with World(tmp_path, agents, platforms={"paper": KEYED, "other": KEYED}, allow=()) as world:
        first = await world.admit("paper:8")
        await world.admit("other:9")
        world.rules = (Rule(person="paper:8", bot="hers"),)
        await world.restart()
        assert await answer(world, "paper", "8") == "for her"
        assert await answer(world, "other", "9") == "anybody"
        world.paper.says("/link", sender="8", chat="8")
        await world.paper.until(lambda paper: len(paper.posts_in("8")) == 2)
        code = next(word for word in world.paper.posts_in("8")[-1].split() if "-" in word).strip(".,:")
        other = world.papers["other"]
        while (await link(world, code)) != "linked":
            assert len(other.posts_in("9")) < 6, other.posts_in("9")
        assert await answer(world, "other", "9") == "for her"
        world.rules = (Rule(person=first.id, bot="hers"),)
        await world.restart()
        assert await answer(world, "other", "9") == "for her"


async def link(world: World, code: str) -> str:
    other = world.papers["other"]
    before = len(other.posts_in("9"))
    other.says(f"/link {code}", sender="9", chat="9")
    await other.until(lambda paper: len(paper.posts_in("9")) > before)
    await world.settled()
    return "linked" if len(world.rows("SELECT DISTINCT person FROM identities")) == 1 else "asked"


async def answer(world: World, adapter: str, chat: str) -> str:
    paper = world.papers[adapter]
    before = len(paper.posts_in(chat))
    paper.says("hi", sender=chat, chat=chat)
    await paper.until(lambda paper: len(paper.posts_in(chat)) > before)
    await world.settled()
    return paper.posts_in(chat)[-1]


async def test_a_rule_for_a_person_holds_for_what_they_planned(tmp_path: Path) -> None:
    """An errand is for the person who asked for it, wherever it reports."""
    agents = {"bot": Scripted("anybody"), "hers": Scripted("for her")}
    async with World(tmp_path, agents, allow=["paper:7", "paper:8"]) as world:
        world.rules = (Rule(person="paper:8", bot="hers"),)
        await world.restart()
        for sender in ("7", "8"):
            world.paper.says("/bg look into it", sender=sender, chat=sender)
            await world.paper.until(lambda paper, sender=sender: len(paper.posts_in(sender)) == 2)  # type: ignore[misc]
        assert "anybody" in world.paper.posts_in("7")[1]
        assert "for her" in world.paper.posts_in("8")[1]


async def test_the_server_changes_neither_lane_nor_conversation_nor_home(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        said = handed("hi", chat="1")
        served = replace(said, target=replace(said.target, server="S1"))
        assert served.target.lane == said.target.lane
        assert str(served.target) == str(said.target)
        assert served.target.lasting().server == "S1"
        world.paper.open_chat("1")
        await world.receive(served)
        await world.paper.until(lambda paper: paper.posts == ["you said: hi"])
        await world.set_home(served.target)
        await world.set_home(said.target)
        await world.settled()
        # The old home is told of the new one only if it is another chat.
        assert world.posts == ["you said: hi"]
        assert await world.gateway.desk.permitted(Target(adapter="paper", chat="1"))
        await world.gateway._reported.moved("paper", "main", "1", "2")
        world.paper.open_chat("2")
        await world.gateway.desk.owe(served.target, Body(text="moved"), "test")
        await world.paper.until(lambda paper: paper.posts_in("2") == ["moved"])


async def test_a_rule_that_is_refused_names_its_server_and_its_person(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await world.stop()
        world.rules = (Rule(server="S1", person="paper:8", bot="nobody"),)
        with pytest.raises(ConfigError, match=r"\[\[rules\]\] 1 \(server S1, person paper:8\): there is no bot"):
            await world.start()
