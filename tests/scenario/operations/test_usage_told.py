"""`tidings usage` and `/usage`: who has used what, with and without a running gateway; and how long it is kept."""

from __future__ import annotations

import json
from pathlib import Path

from tests.scenario.spine.test_allowances import Costly, ask, members
from tests.scenario.work.test_schedule_commands import at_the_socket
from tests.worlds.command_line import command, lines
from tests.worlds.world import OwnedClock, World
from tidings.core.roles import OWNER, Role

DAY = 86_400.0


async def test_the_command_line_tells_the_same_with_and_without_a_gateway(tmp_path: Path) -> None:
    assert (await command(tmp_path, "usage"))[1].startswith("tidings: nothing was used since ")
    async with World(tmp_path, Costly(cost=0.25), allow=[]) as world, at_the_socket(world):
        for sender, name in (("7", "Ann"), ("8", "Bob")):
            await world.gateway.desk.people.admit(OWNER, f"paper:{sender}", Role.MEMBER, name)
        for sender in ("7", "7", "8"):
            world.paper.says("hi", chat=sender, sender=sender)
        await world.paper.until(lambda paper: paper.posts.count("fine") == 3)
        await world.settled()
        told = [await lines(tmp_path, "usage", *more) for more in ((), ("--by", "bot"), ("--since", "7d", "--json"))]
    assert [
        await lines(tmp_path, "usage", *more) for more in ((), ("--by", "bot"), ("--since", "7d", "--json"))
    ] == told
    people = told[0][1].splitlines()
    assert people[0].split() == ["PERSON", "ANSWERS", "TOKENS", "IN", "TOKENS", "OUT", "REQUESTS", "DOLLARS"]
    assert people[1].startswith("Ann (psn_")
    assert people[1].split()[-5:] == ["2", "180", "20", "2", "0.5000"]
    assert people[3].split() == ["together", "3", "270", "30", "3", "0.7500"]
    assert told[1][1].splitlines()[1].split() == ["bot", "3", "270", "30", "3", "0.7500"]
    assert [each["label"] for each in json.loads(told[2][1])["figures"]] == ["Ann", "Bob"]


async def test_usage_tells_what_is_left_and_admins_see_others(tmp_path: Path) -> None:
    access = {"admins": ("paper:9",)}
    allowed = members(runs=5, tokens=1000, money=2.0)
    async with World(tmp_path, Costly(cost=0.5), clock=OwnedClock(), access=access, allowances=allowed) as world:
        await ask(world)
        assert (await ask(world, "/usage")).splitlines()[-1] == (
            "Your allowance: 4 of 5 answers, 900 of 1,000 tokens, $1.50 of $2.00 left today"
        )
        assert "Only an owner or admin" in await ask(world, "/usage people")
        told = await ask(world, "/usage people", chat="9", sender="9")
        assert told.splitlines()[1] == "paper:7: 90 tokens in, 10 out, for 1 answer; $0.5000"


async def test_days_of_usage_are_removed_after_their_time_and_the_sums_stay(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with World(tmp_path, Costly(), clock=clock) as world:
        await ask(world)
        clock.jump(500 * DAY)
        await ask(world)
        await world.gateway.desk.upkeep.prune(None, rehearsal=False)
        days = {row["span"] for row in world.rows("SELECT span FROM spending WHERE scope = 'person'")}
        assert len(days) == 1
        assert "Total: 180 tokens in" in await ask(world, "/usage")


async def test_of_a_forgotten_person_only_the_sums_of_others_stay(tmp_path: Path) -> None:
    async with World(tmp_path, Costly(), clock=OwnedClock(), allow=[]) as world:
        await world.admit("paper:7")
        await ask(world)
        await world.gateway.desk.people.forget(OWNER, "paper:7")
        left = {row["scope"] for row in world.rows("SELECT scope FROM spending")}
        assert left == {"bot", "gateway"}, "a private chat mostly has the id of its person"
