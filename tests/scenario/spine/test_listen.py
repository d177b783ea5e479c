"""/listen: for a while, everything that somebody writes in a group is for the bot, without a mention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.simulators.paper.simulator import Kind as Paper
from tests.worlds.world import KEYED, Echo, Gate, OwnedClock, Scripted, World, handed
from tidings.core.inbound import listen_command
from tidings.core.roles import OWNER, Role
from tidings.core.types import Ignored, Inbound, Kind, Sender, Stored

ALLOW = ["paper:7", "paper:8", "paper:1"]


def aside(text: str = "aside", **more: Any) -> Inbound:
    """What people say between them."""
    return handed(text, private=False, addressed=False, **more)


async def taken(world: World, text: str = "aside", **more: Any) -> bool:
    return isinstance(await world.receive(aside(text, **more)), Stored)


def unsettled_in(world: World) -> bool:
    """Whether an answer to something earlier is still to come."""
    open_rows = "SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')"
    return bool(world.rows(open_rows) or world.rows("SELECT 1 FROM deliveries WHERE state <> 'delivered'"))


async def asks(world: World, command: str, sender: str = "7", **more: Any) -> str:
    """What the bot replies to a command in the group."""
    if command != "/status":
        await world.until(lambda: not unsettled_in(world))
    before = len(world.paper.posts)
    await world.receive(handed(command, sender=sender, **{"private": False, **more}))
    await world.until(lambda: len(world.paper.posts) > before)
    return world.paper.posts[before]


async def test_it_listens_to_one_person_in_one_chat_until_the_time_is_over(tmp_path: Path) -> None:
    echo, clock = Echo(), OwnedClock()
    async with World(tmp_path, echo, clock=clock, allow=ALLOW) as world:
        assert not await taken(world)
        assert "everything you write here is for me" in await asks(world, "/listen 10m")
        assert await taken(world, "one")
        # In the chat's threads too, and nowhere else; others are not listened to.
        assert await taken(world, "two", thread="A")
        assert not await taken(world, "three", chat="2")
        assert not await taken(world, "four", sender="8")
        await world.settled()
        await clock.advance(599)
        assert await taken(world, "five")
        await clock.advance(1)
        assert not await taken(world, "six")
        await world.settled()
        await clock.advance(60)
        assert world.rows("SELECT * FROM attention") == []
    assert echo.heard == ["one", "two", "five"]


async def test_what_it_hears_while_it_listens_may_be_left_without_an_answer(tmp_path: Path) -> None:
    agent = Scripted("[SILENT]")
    async with World(tmp_path, agent, clock=OwnedClock(), allow=ALLOW) as world:
        await asks(world, "/listen 10m")
        said = aside("hm")
        await world.receive(said)
        assert (await world.outcome(said.key)).kind == "completed"
        await world.settled()
        assert len(world.paper.posts) == 1
        assert agent.turns[0].message.overheard


async def test_it_goes_on_listening_after_a_crash_and_no_longer_than_promised(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with World(tmp_path, Echo(), clock=clock, allow=ALLOW) as world:
        await asks(world, "/listen 10m")
        await world.settled()
        await world.crash()
        await clock.advance(300)
        await world.start()
        assert await taken(world)
        await world.settled()
        await world.stop()
        await clock.advance(300)
        await world.start()
        assert not await taken(world)


async def test_the_very_next_message_counts_already(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), clock=OwnedClock(), allow=ALLOW) as world:
        await world.receive(handed("/listen 10m", private=False))
        assert await taken(world)
        await world.receive(handed("/listen off", private=False))
        assert not await taken(world)
        await world.settled()


async def test_an_admin_lets_it_listen_to_everybody_guests_too_but_never_to_bots(tmp_path: Path) -> None:
    access = {"admins": ("paper:6",), "bots": ("paper:99",)}
    async with World(tmp_path, Echo(), clock=OwnedClock(), allow=ALLOW, access=access) as world:
        assert "An owner or admin" in await asks(world, "/listen 10m all")
        assert not await taken(world, sender="9")
        assert "everybody writes" in await asks(world, "/listen 10m all", sender="6")
        for sender in ("6", "7", "9"):
            assert await taken(world, sender=sender)
        robot = replace(aside("beep"), sender=Sender(id="99", is_bot=True))
        assert await world.receive(robot) == Ignored()
        # Blocked people and strangers stay outside.
        await world.gateway.desk.people.block(OWNER, "paper:9")
        assert not await taken(world, sender="9")
        # A member cannot end what an admin gave to all.
        assert "I still listen to everybody until" in await asks(world, "/listen off")
        assert await taken(world, sender="7")
        assert "I have stopped listening" in await asks(world, "/listen off", sender="6")
        assert not await taken(world, sender="7")
        await world.settled()


async def test_an_admin_names_one_person_by_id(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), clock=OwnedClock(), allow=ALLOW, access={"admins": ("paper:6",)}) as world:
        assert "An owner or admin" in await asks(world, "/listen 10m 9")
        assert "paper:9 writes" in await asks(world, "/listen 10m @9", sender="6")
        assert await taken(world, sender="9")
        assert not await taken(world, sender="6")
        assert "paper:9 until" in await asks(world, "/listen", sender="8")
        await world.settled()


@pytest.mark.parametrize(
    ("role", "is_heard"),
    [(Role.OWNER, True), (Role.ADMIN, True), (Role.MEMBER, True), (Role.GUEST, False)],
)
async def test_members_and_above_may_let_it_listen(tmp_path: Path, role: Role, is_heard: bool) -> None:
    async with World(tmp_path, Echo(), clock=OwnedClock(), allow=["paper:1"]) as world:
        await world.admit("paper:20", role)
        told = await asks(world, "/listen 10m", sender="20")
        assert ("everything you write" in told) is is_heard
        assert ("You can't use /listen" in told) is not is_heard
        assert await taken(world, sender="20") is is_heard
        await world.settled()


@pytest.mark.parametrize(
    ("command", "private", "kind", "words"),
    [
        ("/listen 10m", True, KEYED, listen_command.IN_PRIVATE),
        ("/listen", True, KEYED, listen_command.IN_PRIVATE),
        ("/listen 10m", False, Paper(keyed_for=3600.0, hears_all=False), listen_command.HIDDEN),
        ("/listen 25h", False, KEYED, listen_command.TOO_LONG),
        ("/listen 9999999m", False, KEYED, listen_command.HELP),
        ("/listen soon", False, KEYED, listen_command.HELP),
        ("/listen 0m", False, KEYED, listen_command.HELP),
        ("/listen 10m all day", False, KEYED, listen_command.HELP),
        ("/listen off", False, KEYED, listen_command.NOBODY),
    ],
)
async def test_what_it_cannot_promise_it_refuses_with_a_sentence(
    tmp_path: Path, command: str, private: bool, kind: Paper, words: str
) -> None:
    async with World(tmp_path, Echo(), clock=OwnedClock(), kind=kind) as world:
        assert await asks(world, command, private=private) == words
        assert world.rows("SELECT * FROM attention") == []


@pytest.mark.parametrize("time", ["24h", "1d", "90m", "1h30m", "90min", "30s"])
async def test_times_are_read_as_people_write_them(tmp_path: Path, time: str) -> None:
    async with World(tmp_path, Echo(), clock=OwnedClock()) as world:
        assert (await asks(world, f"/listen {time}")).startswith("Until ")


async def test_commands_edits_and_albums_of_those_it_listens_to_count_too(tmp_path: Path) -> None:
    gate, clock = Gate(), OwnedClock()
    echo = Echo({"wait": gate})
    async with World(tmp_path, echo, clock=clock, allow=ALLOW) as world:
        await asks(world, "/listen 10m")
        await world.receive(aside("wait"))
        await gate.reached()
        said = aside("oen")
        await world.receive(said)
        await world.receive(aside("one", kind=Kind.EDITED, about=said.key))
        gone = aside("never mind")
        await world.receive(gone)
        await world.receive(replace(aside("", kind=Kind.DELETED, about=gone.key), sender=Sender(id="", trusted=True)))
        for number in range(3):
            await world.receive(aside(f"picture {number}", group="a1"))
        await asks(world, "/status")
        await world.until(lambda: any("Working on your message" in post for post in world.posts))
        gate.open()
        await world.until(lambda: len(echo.heard) == 3)
        await world.settled()
    assert echo.heard == ["wait", "one", "picture 0\npicture 1\npicture 2"]
