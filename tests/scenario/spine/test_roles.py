"""Roles: what a guest, a member, an admin and an owner may do, and what they may do about each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenario.spine.test_access import speak
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted, World
from tidings.core.errors import Unkeepable
from tidings.core.roles import Role
from tidings.core.settings import Access
from tidings.core.types import Target

GROUP = {"chat": "5", "private": False}


async def says(world: World, text: str, sender: str = "9", chat: str = "5", *, private: bool = False) -> str:
    """What is answered to somebody in a group."""
    before = len(world.paper.posts_in(chat))
    world.paper.says(text, sender=sender, chat=chat, private=private)
    await world.until(lambda: len(world.paper.posts_in(chat)) > before)
    return world.paper.posts_in(chat)[-1]


async def test_a_guest_talks_where_their_group_is_admitted_and_nowhere_else(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=["paper:5"], access={"strangers": "tell"}) as world:
        assert await says(world, "hi") == "you said: hi"
        assert "a guest here" in await says(world, "/whoami")
        for command in (
            "/bg dig",
            "/every 30m look",
            "/at 18:30 call",
            "/board",
            "/tasks",
            "/undo",
            "/retry",
            "/people",
        ):
            assert (await says(world, command)).startswith(f"You can't use {command.split()[0]}: you are a guest here.")
        assert "/bg" not in await says(world, "/help")
        assert (await says(world, "/status")).startswith("Nothing is running here")
        await speak(world, "hi", sender="9", chat="9")
        await speak(world, "hi", sender="9", chat="6", private=False)
        await world.settled()
        assert "I don't know you yet" in world.paper.posts_in("9")[0]
        assert world.paper.posts_in("6") == []


async def test_a_guest_by_name_talks_in_private(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=[]) as world:
        await world.admit("paper:9", Role.GUEST)
        assert await says(world, "hi", chat="9", private=True) == "you said: hi"
        assert "you are a guest" in await says(world, "/bg dig", chat="9", private=True)


async def test_in_a_group_only_the_asker_and_admins_stop_an_answer(tmp_path: Path) -> None:
    gate = Gate()
    people = {"allow": ["paper:5", "paper:8"], "access": {"admins": ("paper:6",)}}
    async with World(tmp_path, Scripted(gate, "hello"), **people) as world:  # type: ignore[arg-type]
        asked = world.paper.says("work", sender="9", **GROUP)  # type: ignore[arg-type]
        await gate.reached()
        for other in ("10", "8"):
            assert (await says(world, "/stop", sender=other)).startswith("Somebody else asked for this answer.")
        assert world.run(asked)["stop_asked"] is None
        world.paper.says("/stop", sender="9", **GROUP)  # type: ignore[arg-type]
        assert (await world.outcome(asked)).kind == "cancelled"
        gate.entered.clear()
        again = world.paper.says("work", sender="9", **GROUP)  # type: ignore[arg-type]
        await gate.reached()
        world.paper.says("/stop", sender="6", **GROUP)  # type: ignore[arg-type]
        assert (await world.outcome(again)).kind == "cancelled"


async def test_a_member_changes_only_their_own_schedules_and_tasks(tmp_path: Path) -> None:
    clock, gate = OwnedClock(), Gate()
    people = {"allow": ["paper:8", "paper:9"], "access": {"admins": ("paper:6",)}}
    async with World(tmp_path, Scripted(gate, "done"), clock=clock, **people) as world:  # type: ignore[arg-type]
        await says(world, "/every 30m look", sender="8")
        (schedule,) = await world.gateway.desk.schedules.all()
        for verb in ("pause", "remove", "run"):
            assert "Somebody else planned" in await says(world, f"/schedules {verb} {schedule.id}")
        assert "is paused" in await says(world, f"/schedules pause {schedule.id}", sender="8")
        assert "is removed" in await says(world, f"/schedules remove {schedule.id}", sender="6")
        await says(world, "/bg dig", sender="8")
        (task,) = await world.gateway.desk.tasks.all("", 10)
        id = task.id.removeprefix("task_")[:8]
        assert "Somebody else began" in await says(world, f"/tasks cancel {id}")
        world.paper.says(f"/tasks cancel {id}", sender="6", **GROUP)  # type: ignore[arg-type]
        await world.until(lambda: any("“dig” was cancelled" in post for post in world.paper.posts_in("5")))


async def test_who_becomes_a_guest_keeps_talking_and_their_plans_rest(tmp_path: Path) -> None:
    clock, echo = OwnedClock(), Echo()
    async with World(tmp_path, echo, allow=[], owners=["paper:1"], clock=clock) as world:
        world.paper.open_chat("home")
        await world.set_home(Target(adapter="paper", chat="home"))
        await world.admit("paper:9")
        await says(world, "/every 30m look", chat="9", private=True)
        await says(world, "/people role paper:9 guest", sender="1", chat="1", private=True)
        await clock.advance(2000)
        await world.until(lambda: len(world.paper.posts_in("home")) == 1)
        assert world.paper.posts_in("home") == [
            "“look” (schedule) did not run and is paused, because paper:9 is only a guest now."
        ]
        assert await says(world, "hi", chat="9", private=True) == "you said: hi"


async def test_admins_manage_only_people_below_them_and_owners_everybody(tmp_path: Path) -> None:
    """D2: nobody grants more than they hold."""
    access = {"admins": ("paper:6", "paper:16"), "owners": ("paper:1",)}
    async with World(tmp_path, Echo(), allow=["paper:7"], access=access) as world:

        async def admin(text: str, sender: str = "6") -> str:
            return await says(world, text, sender=sender, chat=sender, private=True)

        assert await admin("/people admit paper:20") == "paper:20 may talk to the bot now."
        for wish in (
            "/people admit paper:21 admin",
            "/people admit paper:21 owner",
            "/people role paper:20 admin",
            "/people role paper:6 owner",
            "/people remove paper:16",
            "/people block paper:1",
            "/people role paper:1 guest",
            "/people link paper:16 paper:20",
        ):
            assert (await admin(wish)).startswith("Only an owner may"), wish
        assert await admin("/people role paper:20 admin", "1") == "paper:20 is an admin now."
        assert (await admin("/people admit paper:30", "7")).startswith("You can't use /people: you are a member here.")
        assert await admin("/people role paper:20 king", "1") == (
            "There is no role king; there are: guest, member, admin, owner."
        )


async def test_a_role_in_the_settings_is_changed_there(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), owners=["paper:1"], access={"admins": ("paper:6",)}, allow=["paper:7"]) as world:
        assert await says(world, "/people role paper:6 member", sender="1", chat="1", private=True) == (
            "The settings make paper:6 an admin; change that there."
        )
        assert await says(world, "/people role paper:7 admin", sender="1", chat="1", private=True) == (
            "paper:7 is an admin now."
        )
        await world.stop()
        world.allow.clear()
        await world.start()
        line = await world.gateway.desk.people.get("paper:7")
        assert (line.role, line.stored, line.in_settings) == (Role.ADMIN, "admin", ())


async def test_settings_may_give_guests_more_but_never_people_or_the_gateway(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=["paper:5"], access={"requires": {"work": "guest"}}) as world:
        assert (await says(world, "/every 30m look")).startswith("Planned")
    for permission in ("people", "operate", "home"):
        with pytest.raises(ValueError, match=f"{permission} cannot be given to the role guest"):
            Access.model_validate({"requires": {permission: "guest"}})


async def test_a_removed_owner_of_schedules_is_held_back_and_told_of_once(tmp_path: Path) -> None:
    """C: what somebody planned is checked again when it fires."""
    clock, echo = OwnedClock(), Echo()
    async with World(tmp_path, echo, allow=["paper:1"], clock=clock) as world:
        world.paper.open_chat("home")
        await world.set_home(Target(adapter="paper", chat="home"))
        await world.admit("paper:9")
        for text in ("/every 30m look", "/every 30m peek"):
            await says(world, text, chat="9", private=True)
        await world.remove("paper:9")
        await clock.advance(7300)
        await world.until(lambda: len(world.paper.posts_in("home")) == 2)
        await clock.advance(7300)
        await world.settled()
        assert len(world.paper.posts_in("home")) == 2
        assert echo.heard == []


async def test_an_admin_cannot_be_removed_by_an_equal_and_the_console_removes_everybody(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=["paper:7"]) as world:
        await world.admit("paper:6", Role.ADMIN)
        await world.admit("paper:16", Role.ADMIN)
        assert (await says(world, "/people remove paper:16", sender="6", chat="6", private=True)).startswith("Only an")
        await world.remove("paper:16")
        with pytest.raises(Unkeepable, match="named in the settings"):
            await world.remove("paper:7")
