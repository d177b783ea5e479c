"""Work without a person in front of it asks where it reports: cards and schedules."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tests.scenario.spine.test_pairing import button
from tests.worlds.board import HAND, added, until
from tests.worlds.careful import Careful
from tests.worlds.world import OwnedClock, World
from tidings.core.desk.board import CardState, NewCard
from tidings.core.roles import OWNER
from tidings.core.types import asker


async def test_a_card_waits_for_its_answer_longer_than_a_lease(tmp_path: Path) -> None:
    agent, clock = Careful(), OwnedClock()
    async with World(tmp_path, agent, owners=["paper:7"], clock=clock) as world:
        world.paper.open_chat("1")
        assert HAND.conversation
        assert HAND.target
        assert HAND.sender
        hand = replace(HAND, asker=asker(HAND.conversation, HAND.target, HAND.sender))
        card = await added(world.gateway.desk.board, NewCard("clean up", assignee="bot"), hand)
        await world.until(lambda: world.rows("SELECT 1 FROM approvals WHERE state = 'open'"))
        await clock.advance(20 * 60)
        assert len(agent.turns) == 1
        assert world.rows("SELECT state FROM cards")[0]["state"] == CardState.RUNNING
        await world.until(lambda: world.paper.posts_in("1"))
        question = next(post for post in world.paper.visible("1") if post.choices)
        world.paper.presses(question.id, button(question, "Once"))
        await world.until(lambda: len(agent.acted) == 1)
        await until(world, card.id, CardState.DONE, CardState.BLOCKED, CardState.REVIEW)


async def test_a_schedule_asks_where_it_reports(tmp_path: Path) -> None:
    agent, clock = Careful(), OwnedClock()
    async with World(tmp_path, agent, owners=["paper:7"], clock=clock) as world:
        world.paper.says("/every 1h clean up")
        await world.until(lambda: world.rows("SELECT 1 FROM approvals WHERE state = 'open'"), limit=7200)
        (question,) = await world.gateway.desk.approvals.open(OWNER)
        await world.until(lambda: any("May I run" in post for post in world.paper.posts_in("1")))
        world.paper.says(f"/approve {question.id}")
        await world.until(lambda: len(agent.acted) == 1)
        await world.until(lambda: any("Done: rm build." in post for post in world.paper.posts_in("1")))
