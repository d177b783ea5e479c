"""Departures: what a removed or blocked person is no longer told, though their private chat was a home or watched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenario.work.test_schedule_commands import say
from tests.worlds.board import obeyed
from tests.worlds.world import Echo, Scripted, World
from tidings.core import context
from tidings.core.agent import Turn
from tidings.core.desk.board import Hand, Order
from tidings.core.desk.work import Launch, Manner
from tidings.core.roles import OWNER, Role
from tidings.core.types import Target

HAND = Hand("the owner")


async def tell(world: World, text: str, sender: str, chat: str = "", *, private: bool = True) -> str:
    """Says something and returns the answer."""
    chat = chat or sender
    before = len(world.paper.posts_in(chat))
    world.paper.says(text, sender=sender, chat=chat, private=private)
    await world.paper.until(lambda paper: len(paper.posts_in(chat)) > before)
    return world.paper.posts_in(chat)[-1]


def stranger_asks(world: World) -> None:
    world.paper.open_chat("30")
    world.ignored.add(world.paper.says("let me in", sender="30", chat="30"))


def homes(world: World) -> list[str]:
    return [row["adapter"] for row in world.rows("SELECT adapter FROM homes")]


# A private chat has its person's id on some platforms, and an id of its own on others.
@pytest.mark.parametrize("chat", ["8", "dm-8"])
@pytest.mark.parametrize("how", ["block", "remove", "forget"])
async def test_the_private_home_of_an_admin_who_left_hears_of_no_strangers(tmp_path: Path, chat: str, how: str) -> None:
    async with World(tmp_path, Echo(), allow=[], owners=["paper:5"]) as world:
        await world.admit("paper:8", Role.ADMIN)
        await tell(world, "/sethome", "8", chat)
        await getattr(world.gateway.desk.people, how)(OWNER, "paper:8")
        await world.eventually(lambda: homes(world) == [])
        heard = len(world.paper.posts_in(chat))
        stranger_asks(world)
        await world.paper.until(lambda paper: paper.posts_in("30"))
        await world.settled()
        assert len(world.paper.posts_in(chat)) == heard
        [entry] = world.rows("SELECT actor, object FROM audit WHERE action = 'home' AND detail = 'removed'")
        assert (entry["actor"], entry["object"]) == ("owner", f"paper:{chat}")
        await tell(world, "/sethome", "5")
        await world.settled()
        assert len(world.paper.posts_in(chat)) == heard, "nor of the new home"


async def test_a_home_in_a_group_stays_when_the_admin_who_chose_it_leaves(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=[], owners=["paper:5"]) as world:
        await world.admit("paper:8", Role.ADMIN)
        await tell(world, "/sethome", "8", "20", private=False)
        await world.gateway.desk.people.block(OWNER, "paper:8")
        stranger_asks(world)
        await world.paper.until(lambda paper: len(paper.posts_in("20")) == 2)
        assert "would like to talk to the bot" in world.paper.posts_in("20")[1]


async def test_a_home_that_the_owner_chose_for_a_chat_in_which_nobody_wrote_stays(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=[], owners=["paper:5"]) as world:
        world.paper.open_chat("40")
        await world.set_home(Target(adapter="paper", chat="40"))
        await world.admit("paper:8")
        await world.remove("paper:8")
        await world.restart()
        assert homes(world) == ["paper"]


async def test_a_home_ends_at_the_next_start_when_the_settings_no_longer_name_its_admin(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=["paper:7"], owners=["paper:5"], access={"admins": ["paper:7"]}) as world:
        assert "now sent here" in await say(world, "/sethome")
        await world.restart()
        assert homes(world) == ["paper"]
        await world.stop()
        world.allow.remove("paper:7")
        world.access["admins"] = []
        await world.start()
        assert homes(world) == []


@pytest.mark.parametrize("chat", ["8", "dm-8"])
@pytest.mark.parametrize("how", ["block", "remove", "forget"])
async def test_a_member_who_left_is_not_told_how_a_card_ends(tmp_path: Path, chat: str, how: str) -> None:
    async with World(tmp_path, Echo(), allow=["paper:5"], board={"people": "all"}) as world:
        await world.admit("paper:8", Role.MEMBER)
        await tell(world, "/board add the plan triage=yes", "8", chat)
        await tell(world, "/board watch 1", "5")
        await getattr(world.gateway.desk.people, how)(OWNER, "paper:8")
        await world.eventually(lambda: len(world.rows("SELECT * FROM card_watchers")) == 1)
        heard = len(world.paper.posts_in(chat))
        await obeyed(world.gateway.desk.board, Order("done", id="1", text="the secret result"), HAND)
        await world.paper.until(lambda paper: "the secret result" in paper.posts_in("5")[-1])
        await world.settled()
        assert len(world.paper.posts_in(chat)) == heard


@pytest.mark.parametrize("private", [True, False])
async def test_a_person_who_left_is_not_told_how_their_process_ends(tmp_path: Path, private: bool) -> None:
    """In a group the others are told."""

    async def launch(turn: Turn) -> None:
        here = context.current().workspace
        here.mkdir(parents=True, exist_ok=True)
        command = ("sh", "-c", "echo the secret output; exec sleep 600")
        await turn.desk.processes.launch(Launch(command, "dig", here, context.child_environment(), Manner.TELL))

    async with World(tmp_path, Scripted(launch, "begun"), allow=["paper:20"]) as world:
        await world.admit("paper:8", Role.MEMBER)
        chat = "8" if private else "20"
        assert await tell(world, "dig", "8", chat, private=private) == "begun"
        [task] = await world.gateway.desk.tasks.all("", 10)
        await world.eventually(lambda: world.rows("SELECT 1 FROM processes WHERE pid IS NOT NULL"))
        await world.remove("paper:8")
        await world.eventually(lambda: world.rows("SELECT 1 FROM tasks WHERE ended IS NOT NULL"))
        await world.settled()
        assert (await world.gateway.desk.tasks.get(task.id)).state == "cancelled"
        assert len(world.paper.posts_in(chat)) == (1 if private else 2)
