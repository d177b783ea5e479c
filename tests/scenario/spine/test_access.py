"""Who may speak: nobody by default; a stranger is told how, seldom and only in private."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.worlds.fakes import FakeClock
from tests.worlds.world import KEYED, Echo, World, handed
from tidings.core.errors import Unknown
from tidings.core.roles import Role
from tidings.core.types import Ignored, Sender, Stored

TELL = {"strangers": "tell"}


async def speak(world: World, text: str, **how: object) -> None:
    """Says something that will leave no row, and waits until the gateway has looked at it."""
    key = world.paper.says(text, **how)  # type: ignore[arg-type]
    world.ignored.add(key)
    await world.paper.until(lambda paper: key in paper.confirmed)


async def test_a_stranger_in_private_is_told_their_id_and_how_to_be_admitted(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo, allow=[], access=TELL) as world:
        await speak(world, "hi", sender="8")
        await world.paper.until(lambda paper: len(paper.posts) >= 1)
        assert "paper:8" in world.posts[0]
        assert "tidings people admit paper:8" in world.posts[0]
        assert echo.heard == []
        assert world.rows("SELECT * FROM inbox") == []


async def test_a_stranger_is_told_once_an_hour_at_most(tmp_path: Path) -> None:
    """D7."""
    clock = FakeClock()
    async with World(tmp_path, Echo(), allow=["paper:owner"], access=TELL, clock=clock) as world:
        for text in ("hi", "hello?", "/help"):
            await speak(world, text, sender="8")
        await world.settled()
        await clock.advance(3500)
        await speak(world, "still there?", sender="8")
        await world.settled()
        assert len(world.posts) == 1
        assert "owner" not in world.posts[0]
        await clock.advance(200)
        await speak(world, "again", sender="8")
        await world.paper.until(lambda paper: len(paper.posts) == 2)


async def test_a_stranger_in_a_group_is_ignored(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await speak(world, "hi", sender="8", private=False)
        await speak(world, "/help", sender="8", private=False)
        await world.settled()
        assert world.posts == []
        assert world.rows("SELECT * FROM inbox") == []


async def test_a_stranger_cannot_stop_what_another_asked_for(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await speak(world, "/stop", sender="8", private=False)
        key = world.paper.says("hi", private=False)
        await world.paper.until(lambda paper: paper.posts == ["you said: hi"])
        assert world.run(key)["stop_asked"] is None


async def test_whoever_is_admitted_is_answered_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=[]) as world:
        await speak(world, "hi", sender="8")
        await world.paper.until(lambda paper: len(paper.posts) == 1)
        assert (await world.admit("paper:8")).role is Role.MEMBER
        assert (await world.admit("paper:8")).identities == ("paper:8",)
        world.paper.says("now?", sender="8")
        await world.paper.until(lambda paper: paper.posts[-1:] == ["you said: now?"])
        await world.restart()
        world.paper.says("still?", sender="8")
        await world.paper.until(lambda paper: paper.posts[-1:] == ["you said: still?"])


async def test_an_id_may_name_the_account_too(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=["paper@main:8", "paper@other:9"], access=TELL) as world:
        await speak(world, "hi", sender="9", chat="2")
        world.paper.says("hi", sender="8")
        await world.paper.until(lambda paper: paper.posts_in("1") == ["you said: hi"])
        assert "paper:9" in world.paper.posts_in("2")[0]


@pytest.mark.parametrize("id", ["8", "paper", "paper:", ":8", "paper: 8", ""])
async def test_what_is_no_id_is_not_admitted(tmp_path: Path, id: str) -> None:
    async with World(tmp_path, Echo(), allow=[]) as world:
        with pytest.raises(Unknown, match="platform:ID"):
            await world.admit(id)


async def test_an_admission_holds_for_one_platform_only(tmp_path: Path) -> None:
    echo = Echo()
    platforms = {"paper": KEYED, "other": KEYED}
    async with World(tmp_path, echo, platforms=platforms, allow=["paper:7"], access=TELL) as world:
        key = world.papers["other"].says("hi")
        world.ignored.add(key)
        await world.papers["other"].until(lambda paper: len(paper.posts) == 1)
        assert "other:7" in world.papers["other"].posts[0]
        assert echo.heard == []


async def test_bots_are_ignored_even_when_they_are_admitted(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await speak(world, "beep", sender="7", bot=True)
        await world.settled()
        assert world.posts == []
        assert world.rows("SELECT * FROM inbox") == []


async def test_in_a_group_only_what_is_addressed_to_us_is_taken(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo) as world:
        await speak(world, "between us", private=False, addressed=False)
        world.paper.says("you there", private=False, addressed=True)
        await world.paper.until(lambda paper: len(paper.posts) >= 1)
        assert echo.heard == ["you there"]
        assert len(world.rows("SELECT * FROM inbox")) == 1


async def test_a_sender_the_adapter_has_proved_needs_no_admission(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo, allow=[]) as world:
        owner = replace(handed("hi"), sender=Sender(id="me", trusted=True))
        assert isinstance(await world.receive(owner), Stored)
        robot = replace(handed("beep"), sender=Sender(id="it", trusted=True, is_bot=True))
        assert await world.receive(robot) == Ignored()
        await world.settled()
        assert echo.heard == ["hi"]
