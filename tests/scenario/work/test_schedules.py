"""Schedules by an owned clock: each instant at most once, no one-shot lost, and every end told at the fixed target."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from tests.simulators.paper.simulator import Kind
from tests.worlds import builders
from tests.worlds.world import KEYED, Echo, Gate, OwnedClock, Scripted, Takes, World
from tidings.core import context
from tidings.core.agent import Agent, Event, Finished, OutcomeKind, TextDelta, Turn
from tidings.core.desk.work import Firing, Missed, Plan, Schedule
from tidings.core.errors import Overdrawn, Unkeepable, Unknown, Unsupported
from tidings.core.gateway.gateway import SWEEP_SECONDS
from tidings.core.store.sqlite import DATABASE
from tidings.core.store.store import Transaction
from tidings.core.types import Target
from tidings.core.work.schedules import rows as schedule_rows
from tidings.core.work.schedules.shell import AT_ONCE

BERLIN = "Europe/Berlin"
DAY = 86_400.0
MONDAY = "2026-06-15 08:59"


def clock_at(local: str = MONDAY, *, fold: int = 0) -> OwnedClock:
    clock = OwnedClock()
    clock.jump(datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(BERLIN), fold=fold).timestamp() - clock.wall())
    return clock


def plan(when: str = "every day at 9:00", prompt: str = "report", **fields: Any) -> Plan:
    known = {"name": "the report", "target": builders.target(), "zone": BERLIN, "prompt": prompt, "when": when}
    return Plan(**{**known, **fields})


def begun(world: World) -> list[str]:
    """By the clock of Berlin, when each run was due that has begun."""
    rows = world.rows("SELECT due FROM firings WHERE state <> 'missed' ORDER BY due")
    return [datetime.fromtimestamp(row["due"], ZoneInfo(BERLIN)).strftime("%d %H:%M%z") for row in rows]


async def last(world: World, id: str) -> Firing:
    schedule: Schedule = await world.gateway.desk.schedules.get(id)
    assert schedule.last is not None
    return schedule.last


async def away(world: World, seconds: float) -> None:
    """The process dies, time goes on, and another one starts."""
    await world.crash()
    assert isinstance(world.clock, OwnedClock)
    await world.clock.advance(seconds)
    await world.start()
    await world.clock.advance(10)


async def test_a_job_runs_in_a_talk_of_its_own_and_its_answer_comes_to_its_target(tmp_path: Path) -> None:
    sessions: list[context.Session] = []

    def look(turn: Turn) -> str:
        sessions.append(context.current())
        return f"all is well, {len(turn.history)} before"

    clock, agent = clock_at(), Scripted(look)
    async with World(tmp_path, agent, clock=clock) as world:
        world.paper.says("hi")
        await world.until(lambda: len(world.posts) == 1)
        added = await world.gateway.desk.schedules.add(plan())
        await clock.advance(70)
        assert world.posts[1:] == ["all is well, 0 before"]
        firing = await last(world, added.id)
        assert (firing.state, firing.outcome, firing.delivery) == ("done", "completed", "delivered")
        assert sessions[-1].errand is not None
        assert sessions[-1].can.async_delivery is False
        assert sessions[-1].conversation.id == f"schedule:main:{added.id}"
        assert added.id in str(sessions[-1].workspace)
        # A second time without what was said the first time; and where it was told, it is remembered as a notice.
        await world.gateway.desk.schedules.fire(added.id)
        await world.until(lambda: len(world.posts) == 3)
        assert world.posts[2] == "all is well, 0 before"
        await world.settled()
        told = world.rows("SELECT text, source FROM history WHERE conversation = 'paper:main:1' AND author = 'notice'")
        expected = ("all is well, 0 before", "the schedule “the report”")
        assert [(row["text"], row["source"]) for row in told] == [expected] * 2


@pytest.mark.parametrize(
    ("start", "minutes", "expected"),
    [
        # 2:30 is skipped in spring, and comes at three.
        ("2026-03-29 01:50", 20, ["29 03:00+0200"]),
        # It comes twice in autumn, and runs the first time.
        ("2026-10-25 02:25", 10, ["25 02:30+0200"]),
    ],
)
async def test_a_change_of_the_clocks_neither_loses_nor_doubles_a_run(
    tmp_path: Path, start: str, minutes: int, expected: list[str]
) -> None:
    clock = clock_at(start)
    async with World(tmp_path, Echo(), clock=clock) as world:
        added = await world.gateway.desk.schedules.add(plan("every day at 2:30"))
        await clock.advance(minutes * 60)
        assert begun(world) == expected
        # Through the hour that may come a second time, and a restart in it.
        await away(world, 3600 - 120)
        await clock.advance(240)
        assert begun(world) == expected
        assert world.posts == ["you said: report"]
        following = (await world.gateway.desk.schedules.get(added.id)).next
        assert following is not None
        assert datetime.fromtimestamp(following, ZoneInfo(BERLIN)).strftime("%H:%M") == "02:30"


async def test_a_day_s_jump_forward_and_back_fires_nothing_twice_and_loses_no_one_shot(tmp_path: Path) -> None:
    clock = clock_at("2026-06-15 08:55")
    async with World(tmp_path, Echo(), clock=clock) as world:
        add = world.gateway.desk.schedules.add
        await add(plan("every day at 9:00", "daily"))
        await add(plan("tomorrow 8:00", "once"))
        await add(plan("in 10m", "soon"))
        await add(plan("every 30m", "often"))
        await add(plan("*/10 * * * *", "cron"))
        clock.jump(DAY)
        await clock.advance(40)
        # What counts from when it was said does not care what the wall clock shows.
        assert sorted(world.posts) == sorted([late("daily", world), late("once", world), "you said: cron"])
        clock.jump(-DAY)
        await clock.advance(600)
        assert sorted(world.posts[3:]) == ["you said: cron", "you said: soon"]
        await clock.advance(1200)
        assert world.posts.count("you said: often") == 1
        # By its own time again, since it is not yet tomorrow: 9:00, 9:10 and 9:20.
        assert world.posts.count("you said: cron") == 1 + 3
        assert [post for post in world.posts if post.endswith(("daily", "once", "soon"))] == [
            late("daily", world),
            late("once", world),
            "you said: soon",
        ]


def late(prompt: str, world: World) -> str:
    found = [post for post in world.posts if post.endswith(f"you said: {prompt}") and post.startswith("(This was due")]
    assert len(found) == 1, world.posts
    return found[0]


async def test_an_instant_that_comes_again_after_a_jump_back_is_not_run_again(tmp_path: Path) -> None:
    clock = clock_at()
    async with World(tmp_path, Echo(), clock=clock) as world:
        added = await world.gateway.desk.schedules.add(plan())
        await world.gateway.desk.schedules.add(plan("every 5m", "often"))
        await clock.advance(70)
        assert begun(world) == ["15 09:00+0200"]
        clock.jump(-DAY)
        await clock.advance(60)
        clock.jump(DAY - 120)
        # It is a few seconds before nine of the same day once more.
        await clock.advance(60)
        assert begun(world) == ["15 09:00+0200"]
        # A day's jump back does not keep for a day what runs every few minutes.
        clock.jump(-DAY)
        await clock.advance(200)
        assert world.posts == ["you said: report", "you said: often"]
        following = (await world.gateway.desk.schedules.get(added.id)).next
        assert following is not None
        assert datetime.fromtimestamp(following, ZoneInfo(BERLIN)).strftime("%d %H:%M") in ("14 09:00", "16 09:00")


@pytest.mark.parametrize("when", ["0 * * * *", "every 1h"])
async def test_after_a_night_of_downtime_what_was_missed_runs_once(tmp_path: Path, when: str) -> None:
    clock = clock_at("2026-06-15 22:29")
    async with World(tmp_path, Echo(), clock=clock) as world:
        added = await world.gateway.desk.schedules.add(plan(when))
        await away(world, 9.4 * 3600)
        await world.until(lambda: len(world.posts) == 1)
        assert world.posts[0].startswith("(This was due today at 07:")
        assert world.posts[0].endswith("I could not run it then.)\n\nyou said: report")
        await away(world, 60)
        assert len(world.posts) == 1
        following = (await world.gateway.desk.schedules.get(added.id)).next
        assert following is not None
        assert 0 < following - clock.wall() < 3600


@pytest.mark.parametrize("when", ["0 * * * *", "every 1h", "tomorrow 1:00"])
async def test_what_shall_be_skipped_is_skipped_and_told_once(tmp_path: Path, when: str) -> None:
    clock = clock_at("2026-06-15 22:29")
    async with World(tmp_path, Echo(), clock=clock) as world:
        added = await world.gateway.desk.schedules.add(plan(when, on_missed=Missed.SKIP))
        await away(world, 9.4 * 3600)
        await away(world, 60)
        assert len(world.posts) == 1
        assert world.posts[0].startswith("⚠ “the report” did not run today at 0")
        assert ": I could not run it then." in world.posts[0]
        assert begun(world) == []
        assert (await last(world, added.id)).state == "missed"
        assert ("It runs again today at 0" in world.posts[0]) == (when != "tomorrow 1:00")


async def test_a_one_shot_that_was_due_while_nobody_was_there_is_not_lost(tmp_path: Path) -> None:
    clock = clock_at("2026-06-15 22:29")
    async with World(tmp_path, Echo(), clock=clock) as world:
        for when in ("tomorrow 1:00", "in 2h"):
            await world.gateway.desk.schedules.add(plan(when))
        await away(world, 9.4 * 3600)
        await away(world, 60)
        assert len(world.posts) == 2
        assert all(post.endswith("you said: report") for post in world.posts)


async def test_many_that_are_due_at_once_do_not_all_begin_at_once(tmp_path: Path) -> None:
    gate, clock = Gate(), clock_at()
    async with World(tmp_path, Scripted(gate), clock=clock) as world:
        for number in range(12):
            await world.gateway.desk.schedules.add(plan(name=f"job {number}"))
        await world.crash()
        await clock.advance(7200)
        await world.start()
        await clock.advance(0.5)
        assert len(begun(world)) == 5
        await clock.advance(2)
        assert len(begun(world)) == 12
        gate.open()
        await world.settled()


STAGES = ("before it is due", "fired", "running", "ended", "sending", "delivered")
DAILY = ("fired", "ended")


@pytest.mark.parametrize(
    ("stage", "when"),
    [*((stage, "9:00") for stage in STAGES), *((stage, "every day at 9:00") for stage in DAILY)],
)
async def test_a_kill_between_any_two_commits_neither_loses_nor_doubles_a_run(
    tmp_path: Path, stage: str, when: str
) -> None:
    gate, clock = Gate(), clock_at()
    slow = Scripted(gate, "done") if stage == "running" else Scripted("done")
    agent = {"bot": Takes(slow, Scripted("done")), "busy": Scripted(Gate())}
    limits = {"runs": 1} if stage == "fired" else {}
    async with World(tmp_path, agent, clock=clock, limits=limits) as world:
        added = await world.gateway.desk.schedules.add(plan(when))
        if stage == "fired":
            # The only slot is taken, so what was fired waits.
            await world.gateway.desk.schedules.add(plan("in 30s", "block", name="other", bot="busy"))
        if stage == "ended":
            await world.paper.outage(True)
        held = world.paper.hold_next("post") if stage == "sending" else None
        if stage != "before it is due":
            await clock.advance(70)
        if stage == "running":
            await gate.reached()
        rows = world.rows("SELECT state FROM firings WHERE schedule = ?", added.id)
        assert [row["state"] for row in rows] == {
            "before it is due": [],
            "fired": ["waiting"],
            "running": ["waiting"],
        }.get(stage, ["done"])
        await world.crash()
        if held:
            held.set()
        await world.paper.outage(False)
        world.limits.pop("runs", None)
        world.agents["busy"] = Scripted()
        await world.start()
        await clock.advance(90)
        await world.until(lambda: world.posts)
        await away(world, 60)
        assert world.posts == ["done"]
        assert begun(world).count("15 09:00+0200") == 1
        assert (await world.gateway.desk.schedules.get(added.id)).fired == 1


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_whatever_clock_and_process_do_no_one_shot_is_lost_and_nothing_runs_twice(
    tmp_path: Path, seed: int
) -> None:
    chance, clock = random.Random(seed), clock_at()
    started = clock.wall()
    async with World(tmp_path, Echo(), clock=clock) as world:
        add = world.gateway.desk.schedules.add
        moments = ["9:00", "9:01", "13:00", "tomorrow 9:00", "in 1m", "in 3m", "in 2h"]
        for when in moments:
            await add(plan(when, when))
        await add(plan("*/2 * * * *", "cron"))
        await add(plan("every 3m", "interval"))
        for _ in range(12):
            await clock.advance(chance.choice((20, 45)))
            clock.jump(chance.choice((0, 0, DAY, -DAY, 3600, -3600)))
            if chance.random() < 0.4:
                await away(world, chance.choice((5, 90, 3600)))
        # At last the clock is right again, and everything has been due.
        clock.jump(started + 3 * DAY - clock.wall())
        await away(world, 7200)
        await clock.advance(60)
        await world.settled()
        said = [post.rpartition("you said: ")[2] for post in world.posts]
        assert {when: said.count(when) for when in moments} == dict.fromkeys(moments, 1)
        for name in ("cron", "interval"):
            query = "SELECT 1 FROM firings WHERE state = 'done' AND instr(plan, ?) > 0"
            rows = world.rows(query, f'"{name}"'.encode())
            assert said.count(name) == len(rows) > 0


async def test_a_delivery_that_the_platform_refuses_shows_as_failed_and_reaches_the_other_place(tmp_path: Path) -> None:
    """A29, F15: the run went well, what it said did not arrive, and somebody hears of it."""
    clock, elsewhere = clock_at(), builders.target("9")
    async with World(tmp_path, Echo(), clock=clock) as world:
        world.paper.open_chat("9")
        added = await world.gateway.desk.schedules.add(plan(failures=elsewhere))
        world.paper.block("1")
        await clock.advance(90)
        await world.until(lambda: world.paper.posts_in("9"))
        firing = await last(world, added.id)
        assert (firing.outcome, firing.delivery) == ("completed", "dead")
        assert firing.delivery_reason
        told = world.paper.posts_in("9")
        assert len(told) == 1
        assert told[0].startswith("⚠ “the report” ran, but its message could not be delivered to paper:1: ")
        assert told[0].endswith("you said: report")


async def test_a_delivery_that_dies_is_told_at_the_home_of_another_platform(tmp_path: Path) -> None:
    """A29: also where nobody said where failures are told."""
    clock = clock_at()
    async with World(tmp_path, Echo(), platforms={"paper": KEYED, "other": KEYED}, clock=clock) as world:
        other = world.papers["other"]
        for name, chat in (("paper", "2"), ("other", "9")):
            world.papers[name].open_chat(chat)
            await world.set_home(Target(adapter=name, chat=chat))
        added = await world.gateway.desk.schedules.add(plan())
        world.paper.block("1")
        await clock.advance(90)
        await world.until(lambda: other.posts_in("9"))
        firing = await last(world, added.id)
        assert (firing.outcome, firing.delivery) == ("completed", "dead")
        [alert] = other.posts_in("9")
        assert alert.startswith("⚠ paper@main did not take a message: ")
        assert firing.delivery_reason in alert
        assert world.posts == []


async def test_a_one_shot_is_over_only_when_its_answer_has_arrived(tmp_path: Path) -> None:
    """A30."""
    clock = clock_at()
    async with World(tmp_path, Echo(), clock=clock) as world:
        added = await world.gateway.desk.schedules.add(plan("9:00"))
        world.paper.fail_next(503, method="post", count=3)
        await clock.advance(61)
        known = await world.gateway.desk.schedules.get(added.id)
        assert known.next is None
        assert known.last is not None
        assert (known.last.outcome, known.last.delivery) == ("completed", "waiting")
        await away(world, 120)
        await world.until(lambda: world.posts)
        assert world.posts == ["you said: report"]
        assert (await last(world, added.id)).delivery == "delivered"


class Halts:
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        yield TextDelta("so far")
        yield Finished(OutcomeKind.HALTED, "the budget is spent")


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (lambda: Scripted("half ", ValueError("no such ticker")), "⚠ “the report” failed: "),
        (Halts, "⚠ “the report” was halted: the budget is spent.\n\nso far"),
        (lambda: Scripted(Gate()), "⚠ “the report” was halted: "),
    ],
    ids=["fails", "halts", "takes too long"],
)
@pytest.mark.parametrize("apart", [False, True])
async def test_a_job_that_does_not_complete_says_so_with_its_name_and_the_reason(
    tmp_path: Path, agent: Callable[[], Agent], words: str, apart: bool
) -> None:
    """A31."""
    clock = clock_at()
    failures = builders.target("9") if apart else None
    async with World(tmp_path, agent(), clock=clock, limits={"errand_seconds": 5}) as world:
        world.skip.add("I4")
        world.paper.open_chat("9")
        added = await world.gateway.desk.schedules.add(plan(failures=failures))
        await clock.advance(90)
        told = world.paper.posts_in("9" if apart else "1")
        assert len(told) == 1
        assert told[0].startswith(words)
        assert len(world.posts) == 1
        firing = await last(world, added.id)
        assert firing.outcome in ("failed", "halted")
        assert firing.delivery == "delivered"


async def test_an_answer_goes_to_the_stored_target_whoever_wrote_last(tmp_path: Path) -> None:
    """A33."""
    gate, clock = Gate(), clock_at()
    async with World(tmp_path, Echo({"report": gate}), clock=clock, allow=["paper:7", "paper:8"]) as world:
        key = world.paper.says("/at in 1m report", chat="boss")
        await world.until(lambda: len(world.posts) == 1)
        assert key
        await clock.advance(70)
        await gate.reached()
        world.paper.says("what is new?", chat="employee", sender="8")
        await world.until(lambda: world.paper.posts_in("employee"))
        gate.open()
        await world.until(lambda: len(world.paper.posts_in("boss")) == 2)
        assert world.paper.posts_in("employee") == ["you said: what is new?"]
        assert world.paper.posts_in("boss")[1] == "you said: report"


@pytest.mark.parametrize("words", ["", " [SILENT]\n"])
async def test_who_has_nothing_to_say_is_silent_and_that_can_be_seen(tmp_path: Path, words: str) -> None:
    """A7."""
    clock = clock_at()
    async with World(tmp_path, Scripted(words), clock=clock) as world:
        added = await world.gateway.desk.schedules.add(plan())
        await clock.advance(70)
        firing = await last(world, added.id)
        assert (firing.state, firing.outcome, firing.delivery) == ("done", "completed", "none")
        assert firing.output == words
        assert world.posts == []


async def test_a_run_that_is_still_going_lets_one_wait_and_tells_of_those_beyond(tmp_path: Path) -> None:
    gate, clock = Gate(), clock_at()
    async with World(tmp_path, Takes(Scripted(gate, "one"), Scripted("two")), clock=clock) as world:
        added = await world.gateway.desk.schedules.add(plan("* * * * *"))
        await clock.advance(250)
        assert len(begun(world)) == 2
        await world.until(lambda: world.posts)
        assert len(world.posts) == 1
        assert world.posts[0].startswith("⚠ “the report” did not run today at 09:02 (Europe/Berlin): the run before")
        with pytest.raises(Overdrawn):
            await world.gateway.desk.schedules.fire(added.id)
        gate.open()
        await world.until(lambda: len(world.posts) == 3)
        assert world.posts[1:] == ["one", "two"]


async def test_a_job_repeats_as_often_as_was_said(tmp_path: Path) -> None:
    clock = clock_at()
    async with World(tmp_path, Echo(), clock=clock) as world:
        added = await world.gateway.desk.schedules.add(plan("* * * * *", repeat=2))
        await clock.advance(250)
        assert world.posts == ["you said: report"] * 2
        known = await world.gateway.desk.schedules.get(added.id)
        assert (known.next, known.fired) == (None, 2)
        await world.gateway.desk.schedules.fire(added.id)
        await world.until(lambda: len(world.posts) == 3)
        assert (await world.gateway.desk.schedules.get(added.id)).fired == 2


async def test_what_is_paused_does_not_run_and_misses_nothing(tmp_path: Path) -> None:
    clock = clock_at()
    async with World(tmp_path, Echo(), clock=clock) as world:
        schedules = world.gateway.desk.schedules
        added, once = await schedules.add(plan("* * * * *")), await schedules.add(plan("in 2m", "once"))
        for each in (added, once):
            await schedules.change(each.id, _with(each.plan, paused=True))
        await clock.advance(200)
        assert await schedules.all(paused=False) == []
        assert world.posts == []
        resumed = await schedules.change(added.id, _with(added.plan, paused=False))
        assert resumed.next is not None
        assert resumed.next > clock.wall()
        with pytest.raises(Unkeepable, match="its time has passed"):
            await schedules.change(once.id, _with(once.plan, paused=False))
        await schedules.change(once.id, _with(once.plan, paused=False, when="in 1m"))
        await clock.advance(65)
        assert sorted(world.posts) == ["you said: once", "you said: report"]


def _with(known: Plan, **fields: Any) -> Plan:
    return replace(known, **fields)


async def test_what_is_removed_runs_no_more_and_what_runs_of_it_still_ends(tmp_path: Path) -> None:
    gate, clock = Gate(), clock_at()
    async with World(tmp_path, Echo({"report": gate}), clock=clock) as world:
        added = await world.gateway.desk.schedules.add(plan("* * * * *"))
        await clock.advance(65)
        await gate.reached()
        await world.gateway.desk.schedules.remove(added.id)
        with pytest.raises(Unknown):
            await world.gateway.desk.schedules.get(added.id)
        gate.open()
        await world.until(lambda: world.posts)
        await clock.advance(120)
        assert world.posts == ["you said: report"]


async def test_a_time_zone_that_is_gone_pauses_what_went_by_it_and_says_so(tmp_path: Path) -> None:
    clock = clock_at()
    async with World(tmp_path, Echo(), clock=clock) as world:
        world.paper.says(f"/every day at 9:00 {BERLIN} report")
        await world.until(lambda: len(world.posts) == 1)
        await world.gateway.desk.schedules.add(plan(prompt="other"))
        await world.crash()
        with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
            database.execute("UPDATE schedules SET plan = replace(plan, 'Berlin', 'Bonn') WHERE owner <> ''")
            database.commit()
        await world.start()
        world.paper.says("/schedules")
        await world.until(lambda: len(world.posts) == 2)
        assert "“report”; every day at 9:00; next today at 07:00 (UTC)" in world.posts[1]
        await clock.advance(70)
        # What goes by another zone is not held up by it.
        gone = "⚠ “report” is paused: there is no time zone 'Europe/Bonn'; write for example Europe/Berlin or UTC."
        assert sorted(world.posts[2:]) == ["you said: other", gone]
        world.paper.says("/schedules")
        await world.until(lambda: len(world.posts) == 5)
        assert "paused (there is no time zone 'Europe/Bonn'" in world.posts[4]
        # It does not go on by another clock behind anybody's back.
        [row] = world.rows("SELECT id FROM schedules WHERE paused = 1")
        world.paper.says(f"/schedules resume {row['id']}")
        await world.until(lambda: len(world.posts) == 6)
        assert world.posts[5].startswith("There is no time zone 'Europe/Bonn'")


NO_PUSH = Kind(async_delivery=False, streaming="none")


REFUSED: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
    ({"target": builders.target(adapter="fax")}, Unknown, "no platform fax@main is configured"),
    ({"target": builders.target(adapter="mute")}, Unsupported, "no async delivery"),
    ({"failures": builders.target(adapter="mute")}, Unsupported, "no async delivery"),
    ({"target": builders.target("")}, Unknown, "has no home yet"),
    ({"when": "0 0 30 2 *"}, Unkeepable, "never happens"),
    ({"zone": "Mars/Olympus"}, Unkeepable, "there is no time zone"),
    ({"bot": "nobody"}, Unkeepable, "there is no bot named 'nobody'; there are: bot"),
    ({"prompt": " "}, Unkeepable, "either a prompt or a command"),
    ({"command": "true"}, Unkeepable, "either a prompt or a command"),
    ({"name": " "}, Unkeepable, "a schedule needs a name"),
)


async def test_what_could_not_be_told_or_done_is_refused_before_anybody_relies_on_it(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms={"paper": KEYED, "mute": NO_PUSH}) as world:
        for changed, error, words in REFUSED:
            with pytest.raises(error, match=words):
                await world.gateway.desk.schedules.add(plan(**changed))
        assert await world.gateway.desk.schedules.all() == []


async def test_a_headless_run_can_promise_nothing(tmp_path: Path) -> None:
    refused: list[str] = []

    async def promise(turn: Turn) -> str:
        try:
            await turn.desk.begin("sleep", "1", 0.0)
        except Unsupported as error:
            refused.append(str(error))
        return "I did it at once"

    clock = clock_at()
    async with World(tmp_path, Scripted(promise), clock=clock) as world:
        await world.gateway.desk.schedules.add(plan())
        await clock.advance(70)
        assert world.posts == ["I did it at once"]
        assert refused == ["paper:1 has no async delivery"]


async def test_a_command_runs_with_next_to_nothing_around_it_and_its_output_is_told(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        schedules = world.gateway.desk.schedules
        seen = await schedules.add(plan(prompt="", command="echo in $(basename $PWD); env | sort | cut -d= -f1"))
        quiet = await schedules.add(plan(prompt="", command="true", name="quiet"))
        wrong = await schedules.add(plan(prompt="", command="echo no disk; exit 3", name="the backup"))
        await schedules.fire(seen.id)
        await world.until(lambda: len(world.posts) == 1)
        lines = world.posts[0].splitlines()
        assert lines[1].startswith("in schedule")
        assert {line for line in lines[2:-1] if not line.startswith("TIDINGS_SESSION_")} <= {
            *("HOME", "LANG", "PATH", "PWD", "SHLVL", "_")
        }
        await schedules.fire(wrong.id)
        await world.until(lambda: len(world.posts) == 2)
        assert world.posts[1] == "⚠ “the backup” failed: exit code 3.\n\n```\nno disk\n```"
        silent = await schedules.fire(quiet.id)
        await world.eventually(lambda: world.rows("SELECT 1 FROM firings WHERE id = ? AND state = 'done'", silent.id))
        assert (await schedules.firing(silent.id)).delivery == "none"
        assert len(world.posts) == 2


async def test_a_command_that_takes_too_long_is_ended_and_told(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), work={"command_seconds": 0.3}) as world:
        added = await world.gateway.desk.schedules.add(plan(prompt="", command="echo begun; sleep 60"))
        await world.gateway.desk.schedules.fire(added.id)
        await world.until(lambda: world.posts)
        assert world.posts == ["⚠ “the report” failed: the command was ended after 0.3 s.\n\n```\nbegun\n```"]


async def test_commands_have_a_limit_of_memory_and_only_a_few_run_at_once(tmp_path: Path) -> None:
    go, marks = tmp_path / "go", tmp_path / "marks"
    async with World(tmp_path / "home", Echo(), work={"process_memory_bytes": 500_000_000}) as world:
        schedules = world.gateway.desk.schedules
        large = await schedules.add(plan(prompt="", command=f"{sys.executable} -S -c 'bytes(10**9)' 2>&1 | tail -1"))
        await schedules.fire(large.id)
        await world.until(lambda: world.posts == ["```\nMemoryError\n```"])
        command = f"echo x >> {marks}; until [ -e {go} ]; do sleep 0.05; done"
        for _ in range(AT_ONCE + 2):
            await schedules.fire((await schedules.add(plan(prompt="", command=command))).id)
        await world.eventually(lambda: marks.exists() and len(marks.read_text().split()) >= AT_ONCE)
        states = [row["state"] for row in world.rows("SELECT state FROM firings WHERE schedule <> ?", large.id)]
        assert (states.count("running"), states.count("waiting")) == (AT_ONCE, 2)
        go.touch()
        await world.eventually(lambda: not world.rows("SELECT 1 FROM firings WHERE state <> 'done'"))
        assert len(marks.read_text().split()) == AT_ONCE + 2


async def test_a_clean_stop_waits_for_a_command_and_begins_no_other(tmp_path: Path) -> None:
    go, marks = tmp_path / "go", tmp_path / "marks"
    async with World(tmp_path / "home", Echo(), limits={"drain_seconds": 10}) as world:
        command = f"echo begun >> {marks}; until [ -e {go} ]; do sleep 0.05; done; echo over"
        added = await world.gateway.desk.schedules.add(plan(prompt="", command=command))
        await world.gateway.desk.schedules.fire(added.id)
        await world.eventually(lambda: marks.exists() and marks.read_text())
        await world.gateway.desk.schedules.fire(added.id)
        stopping = asyncio.create_task(world.end())
        await asyncio.sleep(0)
        go.touch()
        await stopping
        states = [row["state"] for row in world.rows("SELECT state FROM firings ORDER BY due")]
        assert states == ["done", "waiting"]
        await world.start()
        await world.until(lambda: len(world.posts) == 2)
        assert world.posts == ["```\nover\n```"] * 2


async def test_a_command_that_a_kill_cut_off_is_told_as_interrupted_and_not_run_again(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    async with World(tmp_path / "home", Echo()) as world:
        command = f"echo once >> {marks}; sleep 60"
        added = await world.gateway.desk.schedules.add(plan(prompt="", command=command))
        await world.gateway.desk.schedules.fire(added.id)
        await world.eventually(lambda: marks.exists() and marks.read_text())
        await world.crash()
        await world.start()
        await world.until(lambda: world.posts)
        await world.restart()
        assert world.posts == ["⚠ “the report” failed: interrupted by a restart; whether it took effect is unknown."]
        assert marks.read_text() == "once\n"


async def test_a_job_whose_platform_is_gone_can_still_be_paused(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms={"paper": KEYED, "other": KEYED}, clock=clock_at()) as world:
        target = replace(builders.target(), adapter="other")
        known = await world.gateway.desk.schedules.add(plan(target=target))
        world.absent.add("other")
        await world.restart()
        paused = await world.gateway.desk.schedules.change(known.id, replace(known.plan, paused=True))
        assert (paused.plan.paused, paused.next) == (True, None)
        with pytest.raises(Unknown, match="no platform other@main"):
            await world.gateway.desk.schedules.change(known.id, replace(paused.plan, paused=False))


async def test_what_was_removed_goes_after_a_month_with_all_of_its_instants_a_slice_at_a_time(tmp_path: Path) -> None:
    clock = clock_at()
    async with World(tmp_path, Echo(), clock=clock) as world:
        kept, removed = [(await world.gateway.desk.schedules.add(plan())).id for _ in range(2)]
        await clock.advance(70)
        await world.settled()
        await world.gateway.desk.schedules.remove(removed)

        def fill(tx: Transaction) -> None:
            for instant in range(schedule_rows.FORGOTTEN_AT_ONCE):
                tx.execute(
                    "INSERT INTO firings (id, schedule, instant, due, plan, state, ended)"
                    " VALUES (?, ?, ?, ?, '', 'done', ?)",
                    f"fire_{instant}",
                    removed,
                    instant,
                    instant,
                    instant,
                )

        def left() -> tuple[int, int]:
            firings = world.rows("SELECT id FROM firings WHERE schedule = ?", removed)
            return len(world.rows("SELECT id FROM schedules")), len(firings)

        await world.gateway._store.write(fill)
        await clock.advance(SWEEP_SECONDS)
        assert left() == (2, schedule_rows.FORGOTTEN_AT_ONCE + 1), "it is too young"
        clock.confirmed = False
        clock.jump(schedule_rows.KEPT_SECONDS)
        await clock.advance(4 * SWEEP_SECONDS)
        assert left() == (2, schedule_rows.FORGOTTEN_AT_ONCE + 1), "a clock that may be wrong ends nothing"
        clock.confirmed = True
        await clock.advance(SWEEP_SECONDS)
        assert left() == (2, 1)
        await clock.advance(4 * SWEEP_SECONDS)
        assert left() == (1, 0)
        assert world.rows("SELECT id FROM schedules")[0]["id"] == kept
