"""Notes belong to a person and a bot: shared by linked identities, apart for all others, and never out of private."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenario.spine.test_linking import BOTH, answer, link_code
from tests.scenario.spine.test_memory import Noting
from tests.worlds.world import OwnedClock, Scripted, World
from tidings.core.desk.work import Plan
from tidings.core.roles import OWNER
from tidings.core.settings import Rule
from tidings.core.types import Asker, Audience, Conversation, Sender, Target, asker

PRIVATE = Target(adapter="paper", chat="1")


async def say(world: World, text: str, *, platform: str = "paper", **place: object) -> None:
    paper = world.papers[platform]
    key = paper.says(text, **place)  # type: ignore[arg-type]
    await paper.until(lambda paper: key in paper.confirmed)
    await world.settled()


async def link(world: World) -> None:
    """paper:7 and other:70 become one person."""
    assert "this is now also you" in await answer(world, f"/link {await link_code(world)}")


async def test_linked_identities_share_notes_both_ways(tmp_path: Path) -> None:
    noting = Noting()
    async with World(tmp_path, Scripted(noting), platforms=BOTH, allow=["paper:7"]) as world:
        await say(world, "+likes tea", chat="1")
        await link(world)
        await say(world, "+likes cake", platform="other", chat="70", sender="70")
        await say(world, "?", platform="other", chat="70", sender="70")
        assert noting.found == ["likes cake", "likes tea"]
        await say(world, "?", chat="1")
        assert noting.found == ["likes cake", "likes tea"]


async def test_before_a_link_and_after_its_end_notes_are_apart(tmp_path: Path) -> None:
    noting = Noting()
    async with World(tmp_path, Scripted(noting), platforms=BOTH, allow=["paper:7", "other:70"]) as world:
        await say(world, "+likes tea", chat="1")
        await say(world, "?", platform="other", chat="70", sender="70")
        assert noting.found == []
        await world.gateway.desk.people.link(OWNER, "paper:7", "other:70")
        await say(world, "?", platform="other", chat="70", sender="70")
        assert noting.found == ["likes tea"]
        await world.gateway.desk.people.unlink(OWNER, "other:70")
        await say(world, "?", platform="other", chat="70", sender="70")
        assert noting.found == []


async def test_a_linked_identity_of_one_account_shares_its_notes_too(tmp_path: Path) -> None:
    noting = Noting()
    async with World(tmp_path, Scripted(noting), platforms=BOTH, allow=["paper@main:7", "other:70"]) as world:
        await say(world, "+likes tea", chat="1")
        await world.gateway.desk.people.link(OWNER, "paper@main:7", "other:70")
        await say(world, "?", platform="other", chat="70", sender="70")
        assert noting.found == ["likes tea"]


async def test_two_people_in_one_chat_have_notes_of_their_own(tmp_path: Path) -> None:
    noting = Noting()
    async with World(tmp_path, Scripted(noting), allow=["paper:7", "paper:8"]) as world:
        await say(world, "+likes tea", chat="5", private=False, sender="7")
        await say(world, "+likes coffee", chat="5", private=False, sender="8")
        for sender, found in (("7", "likes tea"), ("8", "likes coffee")):
            await say(world, "?", chat="5", private=False, sender=sender)
            assert noting.found == [found]


async def test_linked_notes_stay_with_their_bot(tmp_path: Path) -> None:
    noting, clerk = Noting(), Noting()
    agents = {"bot": Scripted(noting), "clerk": Scripted(clerk)}
    rules = [Rule(platform="other", bot="clerk")]
    async with World(tmp_path, agents, platforms=BOTH, allow=["paper:7"], rules=rules) as world:
        await link(world)
        await say(world, "+is looking for another job", chat="1")
        await say(world, "?", platform="other", chat="70", sender="70")
        assert clerk.found == []


async def test_what_was_noted_in_private_shows_in_no_group_of_a_linked_identity(tmp_path: Path) -> None:
    noting = Noting()
    async with World(tmp_path, Scripted(noting), platforms=BOTH, allow=["paper:7"]) as world:
        await link(world)
        await say(world, "+is ill", chat="1")
        await say(world, "+brings cake", chat="5", private=False)
        await say(world, "?", platform="other", chat="50", sender="70", private=False)
        assert noting.found == ["brings cake"]
        await say(world, "?", platform="other", chat="70", sender="70")
        assert noting.found == ["brings cake", "is ill"]


def asked_in_private() -> Asker:
    return asker(Conversation(adapter="paper", account="main", chat="1"), PRIVATE, Sender(id="7"))


@pytest.mark.parametrize("audience", [Audience.GROUP, Audience.PRIVATE], ids=["known as a group", "named by its id"])
async def test_a_schedule_made_in_private_takes_no_private_note_into_a_group(
    tmp_path: Path, audience: Audience
) -> None:
    """A target that was written down as platform:CHAT does not say whether it is a group."""
    noting = Noting()
    async with World(tmp_path, Scripted(noting), allow=["paper:7"], clock=OwnedClock()) as world:
        world.paper.chats.open("5", "")
        await say(world, "+is ill", chat="1")
        await say(world, "+brings cake", chat="5", private=False)
        for target, found in (
            (Target(adapter="paper", chat="5", audience=audience), ["brings cake"]),
            (PRIVATE, ["brings cake", "is ill"]),
        ):
            noting.found = []
            plan = Plan(name="look", when="in 5m", target=target, prompt="?", asker=asked_in_private(), sender="7")
            await world.gateway.desk.schedules.add(plan)
            await world.until(lambda: noting.found)
            assert noting.found == found


async def test_what_a_schedule_made_in_private_notes_stays_private(tmp_path: Path) -> None:
    noting = Noting()
    async with World(tmp_path, Scripted(noting), allow=["paper:7"], clock=OwnedClock()) as world:
        world.paper.chats.open("5", "")
        group = Target(adapter="paper", chat="5", audience=Audience.GROUP)
        plan = Plan(name="x", when="in 5m", target=group, prompt="+is ill", asker=asked_in_private(), sender="7")
        await world.gateway.desk.schedules.add(plan)
        await world.until(lambda: noting.kept)
        await say(world, "?", chat="5", private=False)
        assert noting.found == []
        await say(world, "?", chat="1")
        assert noting.found == ["is ill"]
