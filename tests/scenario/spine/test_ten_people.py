"""Ten people in one group for an hour: every mode and limit at once, and each message still ends in one place."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.worlds.world import OwnedClock, World
from tidings.core.agent import Checkpoint, Event, Finished, TextDelta, Turn, Usage

GROUP: dict[str, Any] = {"chat": "g", "private": False}
OWNER, ADMIN = "1", "2"
MEMBERS = ("3", "4", "5", "6")
GUESTS = ("7", "8", "9", "10")
RANKS = {OWNER: 3, ADMIN: 2, **dict.fromkeys(MEMBERS, 1), **dict.fromkeys(GUESTS, 0)}
# What a guest may have in a day, and a member in a minute.
GUESTS_RUNS, MEMBERS_MESSAGES = 6, 5
TOKENS = 100
STEPS = 120
HOUR = 3600.0


class Worked(NamedTuple):
    """What the agent itself knows of one attempt."""

    run: str
    sender: str
    messages: tuple[str, ...]


class Slow:
    """Works for a while in steps, listens between them, and answers everything that it took in by name."""

    def __init__(self, clock: OwnedClock, lots: random.Random) -> None:
        self._clock = clock
        self._lots = lots
        self.began: list[Worked] = []
        self.answered: list[Worked] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        # The newest checkpoint may be that of an earlier run.
        owner, _, kept = (turn.checkpoint or b"").decode().partition(" ")
        taken = names_in(kept if owner == turn.run else turn.message.text)
        self.began.append(Worked(turn.run, turn.message.sender.id, tuple(taken)))
        used = Usage(input_tokens=TOKENS, requests=1)
        for _ in range(self._lots.randint(1, 4)):
            await self._clock.sleep(self._lots.uniform(0.2, 8.0))
            heard = [name for message in await turn.heard() for name in names_in(message.text)]
            if heard:
                taken += heard
                yield Checkpoint(" ".join([turn.run, *taken]).encode(), used)
        yield TextDelta(f"re {' '.join(taken)}")
        self.answered.append(Worked(turn.run, turn.message.sender.id, tuple(taken)))
        yield Finished(usage=used)


def names_in(text: str) -> list[str]:
    """Each message of the story has a name of its own."""
    return re.findall(r"\bm\d+\b", text)


class Hour:
    """Says by lot what happens, and keeps who said what."""

    def __init__(self, world: World, clock: OwnedClock, lots: random.Random) -> None:
        self._world, self._clock, self._lots = world, clock, lots
        self.said: dict[str, tuple[str, str]] = {}

    async def pass_by(self) -> None:
        for step in range(STEPS):
            await self._happen(step)
            await self._clock.advance(self._lots.expovariate(STEPS / HOUR))
        await self._clock.advance(600.0)

    async def _happen(self, step: int) -> None:
        lot, sender = self._lots.random(), self._lots.choice(list(RANKS))
        if step % 12 == 0:
            modes = ("queue", "collect", "steer", "interrupt")
            await self._say(f"/busy {modes[step // 12 % 4]}", OWNER)
        elif lot < 0.05:
            await self._say("/stop", sender)
        elif lot < 0.1:
            await self._message(sender, "/steer ")
        elif lot < 0.25:
            # A burst of one person, with somebody else in between.
            other = self._lots.choice(list(RANKS))
            for each in (sender, other, sender, sender):
                await self._message(each)
                await self._clock.advance(self._lots.uniform(0.0, 0.6))
        elif lot < 0.3:
            await self._restart()
        else:
            await self._message(sender)

    async def _message(self, sender: str, before: str = "") -> None:
        name = f"m{len(self.said) + 1}"
        self.said[name] = (await self._say(f"{before}{name} please", sender), sender)

    async def _say(self, text: str, sender: str) -> str:
        key = self._world.paper.says(text, sender=sender, **GROUP)
        await self._world.until(lambda: key in self._world.paper.confirmed)
        return key

    async def _restart(self) -> None:
        await self._world.crash()
        await self._world.start()


def group_world(tmp_path: Path, clock: OwnedClock, agent: Slow) -> World:
    return World(
        tmp_path,
        agent,
        clock=clock,
        owners=[f"paper:{OWNER}"],
        allow=["paper:g", *(f"paper:{member}" for member in MEMBERS)],
        access={"admins": (f"paper:{ADMIN}",)},
        limits={"burst_seconds": 0.8, "queued_per_conversation": 1000},
        allowances={
            "zone": "UTC",
            "roles": {"guest": {"runs": GUESTS_RUNS}, "member": {"messages": MEMBERS_MESSAGES}},
        },
    )


def fates(world: World, hour: Hour) -> dict[str, str]:
    """What the store says became of each message: the run that it belongs to, or why there is none."""
    found = {}
    for name, (key, _) in hour.said.items():
        rows = world.rows("SELECT * FROM inbox WHERE key IN (?, ?) ORDER BY seq DESC", key, f"said by {key}")
        found[name] = rows[0]["joined"] or (rows[0]["run"] if rows[0]["state"] == "done" else rows[0]["reason"])
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_an_hour_of_ten_people(tmp_path: Path, seed: int) -> None:
    lots, clock = random.Random(seed), OwnedClock()
    agent = Slow(clock, lots)
    async with group_world(tmp_path, clock, agent) as world:
        hour = Hour(world, clock, lots)
        await hour.pass_by()
        await world.settled()
        assert len(hour.said) > STEPS
        check_outcomes(world, hour, agent)
        check_ranks(hour, agent)
        check_limits(world, hour)
        check_signs(world)


def check_outcomes(world: World, hour: Hour, agent: Slow) -> None:
    """Each message belongs to one run that ended, or was refused with a reason; no answer names it twice."""
    ended = {row["run"]: row["outcome"] for row in world.rows("SELECT run, outcome FROM inbox WHERE state = 'done'")}
    answers = {worked.run: worked for worked in agent.answered}
    posts = Counter(name for post in world.posts if post.startswith("re ") for name in set(names_in(post)))
    for name, fate in fates(world, hour).items():
        if fate in ended and ended[fate] == "completed":
            assert name in answers[fate].messages, f"{name} is part of a run that does not know it"
            told = [post for post in world.posts if name in names_in(post)]
            assert posts[name] == 1, f"{name} was answered {posts[name]} times: {told}"
        else:
            assert posts[name] == 0, f"{name} was {fate or 'lost'} and answered"
            assert fate in ended or fate.startswith("refused"), f"{name} has no outcome"


def check_ranks(hour: Hour, agent: Slow) -> None:
    """No run ever works on the words of somebody who may do less than its person."""
    for worked in (*agent.began, *agent.answered):
        for name in worked.messages:
            assert RANKS[hour.said[name][1]] >= RANKS[worked.sender], f"{name} reached a run of {worked.sender}"


def check_limits(world: World, hour: Hour) -> None:
    """Guests get so many runs, members so many messages a minute; each is told once in a window, politely."""
    rows = world.rows("SELECT message, attempt FROM inbox WHERE kind = 'message' AND state = 'done'")
    runs: Counter[str] = Counter()
    for row in rows:
        if row["attempt"]:
            runs[re.search(r'"sender":\{"id":"(\d+)"', row["message"].decode()).group(1)] += 1  # type: ignore[union-attr]
    assert all(runs[guest] <= GUESTS_RUNS for guest in GUESTS), runs
    told = Counter(post for post in world.posts if "allowance" in post)
    refused = Counter(hour.said[name][1] for name, fate in fates(world, hour).items() if "allowance" in fate)
    minutes = defaultdict(int, {post: count for post, count in told.items() if "minute" in post})
    assert sum(count for post, count in told.items() if post not in minutes) <= len(GUESTS)
    assert bool(refused) == bool(told)
    spent = {row["name"]: row["runs"] for row in world.rows("SELECT name, runs FROM spending WHERE scope = 'person'")}
    for guest in GUESTS:
        assert spent.get(f"paper:{guest}", 0) == runs[guest], f"{guest} is charged for {spent}, and had {runs}"
    assert world.rows("SELECT 1 FROM spending WHERE reserved_tokens <> 0 OR reserved_cost <> 0") == []


def check_signs(world: World) -> None:
    """Every run is over, so no message still says that it waits or is worked on."""
    left = {message.reaction for message in world.paper.truth.messages.values()} - {"", "✅", "❌"}
    assert left == set()
