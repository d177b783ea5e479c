"""Homes: where news of the gateway go, and that they go elsewhere than where the trouble is."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.simulators.paper.simulator import Kind
from tests.worlds.fakes import FakeClock
from tests.worlds.world import KEYED, Echo, World, handed
from tidings.core.errors import Unknown, Unsupported
from tidings.core.types import Body, Sender, Target
from tidings.core.types import Kind as Said

BOTH = {"paper": KEYED, "other": KEYED}


async def test_a_chat_becomes_home_by_command_and_stays_it(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), owners=["paper:7"]) as world:
        world.paper.commands("sethome", thread="news")
        await world.paper.until(lambda paper: len(paper.posts) == 1)
        await world.restart()
        await world.gateway.desk.owe(Target(adapter="paper"), Body(text="tidings"), cause="test")
        await world.paper.until(lambda paper: paper.posts_in("1", "news")[1:] == ["tidings"])


async def test_only_an_owner_or_admin_takes_the_home_and_the_old_one_is_told(tmp_path: Path) -> None:
    people = ["paper:7", "paper:8", "paper:5"]
    async with World(tmp_path, Echo(), allow=people, owners=["paper:7"]) as world:
        world.paper.commands("sethome")
        await world.paper.until(lambda paper: len(paper.posts) == 1)
        # Whoever is admitted, alone or by a group that an owner's list happens to name, has no say in it.
        for chat, private in (("2", True), ("7", False)):
            world.paper.says("/sethome", chat=chat, sender="8", private=private)
            await world.paper.until(lambda paper, chat=chat: len(paper.posts_in(chat)) == 1)
            assert world.paper.posts_in(chat)[0].startswith("You can't use /sethome: you are a")
        assert str((await world.gateway.desk.homes())["paper@main"]) == "paper:1"
        world.paper.says("/sethome", chat="3", sender="7")
        await world.paper.until(lambda paper: len(paper.posts_in("1")) == 2)
        assert world.paper.posts_in("1")[1] == "Gateway alerts are now sent to paper:3 instead of this chat."
        await world.set_home(Target(adapter="paper", chat="1"))
        await world.paper.until(lambda paper: len(paper.posts_in("3")) == 2)
        assert world.paper.posts_in("3")[1] == "Gateway alerts are now sent to paper:1 instead of this chat."
        await world.set_home(Target(adapter="paper", chat="1"))
        await world.settled()
        assert len(world.paper.posts_in("1")) == 2, "it has not moved"


async def test_whom_the_platform_has_proved_takes_the_home_too(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        said = handed("/sethome", kind=Said.COMMANDED, command="sethome")
        await world.receive(replace(said, sender=Sender(id="me", trusted=True)))
        await world.paper.until(lambda paper: len(paper.posts) == 1)
        assert str((await world.gateway.desk.homes())["paper@main"]) == "paper:1"


async def test_a_platform_without_a_home_says_how_to_get_one(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        with pytest.raises(Unknown, match="paper has no home yet; write /sethome"):
            await world.gateway.desk.owe(Target(adapter="paper"), Body(text="tidings"), cause="test")


async def test_nothing_becomes_home_that_could_not_be_told(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), kind=Kind(async_delivery=False)) as world:
        with pytest.raises(Unsupported):
            await world.set_home(Target(adapter="paper", chat="1"))
        with pytest.raises(Unknown):
            await world.set_home(Target(adapter="nowhere", chat="1"))


async def test_a_message_that_dies_is_told_at_another_platforms_home_once_an_hour(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms=BOTH) as world:
        other = world.papers["other"]
        other.open_chat("9")
        await world.set_home(Target(adapter="paper", chat="1"))
        await world.set_home(Target(adapter="other", chat="9"))
        world.paper.block("1")
        for _ in range(2):
            await world.gateway.desk.owe(Target(adapter="paper", chat="1"), Body(text="tidings"), cause="test")
        await world.eventually(lambda: len(world.rows("SELECT 1 FROM deliveries WHERE state = 'dead'")) == 2)
        await other.until(lambda paper: len(paper.posts) == 1)
        await world.settled()
        [alert] = other.posts_in("9")
        assert alert.startswith("⚠ paper@main did not take a message: ")
        assert "the bot was blocked" in alert


async def test_an_alert_goes_to_a_home_that_is_well(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms={**BOTH, "third": KEYED}) as world:
        third = world.papers["third"]
        for name, chat in (("other", "9"), ("third", "8")):
            world.papers[name].open_chat(chat)
            await world.set_home(Target(adapter=name, chat=chat))
        world.gateway._reported.troubled("other", "main", "no network")
        world.paper.block("1")
        await world.gateway.desk.owe(Target(adapter="paper", chat="1"), Body(text="tidings"), cause="test")
        await third.until(lambda paper: len(paper.posts) == 1)


async def test_an_alert_does_not_wait_for_a_platform_that_is_gone(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms={**BOTH, "third": KEYED}) as world:
        for name in ("other", "third"):
            await world.set_home(Target(adapter=name, chat="9"))
        world.absent.add("other")
        await world.restart()
        world.papers["third"].open_chat("9")
        world.paper.block("1")
        await world.gateway.desk.owe(Target(adapter="paper", chat="1"), Body(text="tidings"), cause="test")
        await world.papers["third"].until(lambda paper: len(paper.posts) == 1)


async def test_without_a_home_the_owner_is_told(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms=BOTH, owner=Target(adapter="other", chat="9")) as world:
        other = world.papers["other"]
        other.open_chat("9")
        world.paper.block("1")
        await world.gateway.desk.owe(Target(adapter="paper", chat="1"), Body(text="tidings"), cause="test")
        await other.until(lambda paper: len(paper.posts) == 1)


async def test_a_platform_that_stays_away_is_told_and_one_that_blinks_is_not(tmp_path: Path) -> None:
    clock = FakeClock()
    async with World(tmp_path, Echo(), platforms=BOTH, clock=clock) as world:
        other = world.papers["other"]
        other.open_chat("9")
        await world.set_home(Target(adapter="other", chat="9"))
        world.paper.cut()
        while not (await world.gateway.desk.health()).alarms:
            await clock.advance(0)
        await clock.advance(2)
        await world.paper.until(lambda paper: paper.attached())
        await clock.advance(100)
        assert other.posts == []
        await world.paper.outage(True)
        # The connection is a real one: that it has broken shows in real time.
        async with asyncio.timeout(10):
            while not any(part.state == "degraded" for part in (await world.gateway.desk.health()).parts):  # noqa: ASYNC110
                await asyncio.sleep(0)
        for _ in range(30):
            await clock.advance(5)
        await other.until(lambda paper: len(paper.posts) == 1)
        assert other.posts[0].startswith("⚠ paper@main does not work: ")


async def test_what_is_wrong_with_the_gateway_itself_is_told_at_any_home_once_an_hour(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await world.set_home(Target(adapter="paper", chat="1"))
        for reason in ("the store is damaged (page 7)", "the store is damaged (page 8)"):
            world.gateway._parts.essentials.alarms.sound("store", reason)
        await world.paper.until(lambda paper: len(paper.posts) == 1)
        await world.settled()
        [alert] = world.paper.posts_in("1")
        assert alert.startswith("⚠ The gateway's stored data is in danger: the store is damaged (page 7).")


async def test_broken_settings_are_told_though_nobody_listened_yet_when_they_were_found(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await world.set_home(Target(adapter="paper", chat="1"))
        world.notices = ["the settings are broken, so those of the last good start are used"]
        await world.restart()
        await world.paper.until(lambda paper: len(paper.posts) == 1)
        await world.restart()
        await world.settled()
        [alert] = world.paper.posts_in("1")
        assert alert.startswith(
            "⚠ The gateway does not run with its current settings: the settings are broken, so those"
        )


async def test_a_file_that_is_sent_from_outside_arrives_whatever_becomes_of_the_original(tmp_path: Path) -> None:
    async with World(tmp_path / "home", Echo()) as world:
        original = tmp_path / "report.txt"
        original.write_text("all is well")
        world.paper.open_chat("1")
        file = await world.gateway.desk.adopt(str(original))
        original.unlink()
        await world.gateway.desk.owe(Target(adapter="paper", chat="1"), Body(text="here", files=(file,)), cause="test")
        await world.paper.until(lambda paper: any(message.files for message in paper.sent))
        [sent] = [each for message in world.paper.sent for each in message.files]
        assert (sent.name, sent.data) == ("report.txt", b"all is well")
        with pytest.raises(Unknown, match="cannot be read"):
            await world.gateway.desk.adopt(str(original))
