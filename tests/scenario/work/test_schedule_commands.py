"""Schedules as people ask for them: in a chat, by the assistant's tool and at the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from typer.testing import CliRunner

from tests.simulators.paper.simulator import Kind
from tests.worlds.process import tidings as process
from tests.worlds.world import KEYED, Echo, Gate, OwnedClock, Scripted, Takes, World, handed
from tidings.adapters.local.socket import LocalServer
from tidings.adapters.local.verbs import routes_for
from tidings.bots import main
from tidings.bots.assistant.tools import schedules
from tidings.bots.assistant.tools.tool import Occasion, ToolError
from tidings.bots.cli import app
from tidings.core import context
from tidings.core.agent import Turn
from tidings.core.errors import TidingsError

BERLIN = "Europe/Berlin"


def clock_at(local: str) -> OwnedClock:
    clock = OwnedClock()
    clock.jump(datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(BERLIN)).timestamp() - clock.wall())
    return clock


async def say(world: World, text: str, chat: str = "1") -> str:
    """What was answered to a command."""
    before = len(world.paper.posts_in(chat))
    world.paper.says(text, chat=chat)
    await world.until(lambda: len(world.paper.posts_in(chat)) > before)
    return world.paper.posts_in(chat)[-1]


def ids(world: World) -> list[str]:
    return [row["id"] for row in world.rows("SELECT id FROM schedules WHERE removed = 0 ORDER BY created, rowid")]


async def test_a_chat_plans_lists_pauses_runs_and_removes(tmp_path: Path) -> None:
    clock = clock_at("2026-06-15 08:59")
    async with World(tmp_path, Echo(), clock=clock) as world:
        planned = await say(world, f"/every day at 9:00 {BERLIN} tell me the weather")
        assert planned == (
            "Planned: “tell me the weather” every day at 9:00, next today at 09:00 (Europe/Berlin)."
            " /schedules lists all schedules."
        )
        [id] = ids(world)
        await clock.advance(70)
        assert world.posts[-1] == "you said: tell me the weather"
        assert await say(world, "/schedules") == (
            f"Planned here:\n{id} “tell me the weather”; every day at 9:00; next tomorrow at 09:00 (Europe/Berlin);"
            " last: completed, delivered"
        )
        assert await say(world, f"/schedules pause {id[:5]}") == (
            f"“tell me the weather” is paused. /schedules resume {id} continues it."
        )
        assert "; paused; last:" in await say(world, "/schedules")
        assert "next tomorrow at 09:00" in await say(world, f"/schedules resume {id}")
        world.paper.says(f"/schedules run {id}")
        await world.until(lambda: world.posts.count("you said: tell me the weather") == 2)
        assert "“tell me the weather” runs now." in world.posts
        shown = await say(world, f"/schedules {id}")
        assert "What: tell me the weather\nTo: paper:1\nLast said: you said: tell me the weather" in shown
        assert await say(world, f"/schedules remove {id}") == "“tell me the weather” is removed."
        assert (await say(world, "/schedules")).startswith("There are no schedules here. Say how often")


async def test_a_one_shot_comes_once_to_the_thread_it_was_asked_for_in(tmp_path: Path) -> None:
    clock = clock_at("2026-06-15 18:29")
    async with World(tmp_path, Echo(), clock=clock) as world:
        world.paper.says(f"/at 18:30 {BERLIN}\ncall mum", chat="7", thread="t", sender="7")
        await world.until(lambda: world.paper.posts_in("7", "t"))
        assert world.paper.posts_in("7", "t") == [
            "Planned: “call mum” today at 18:30 (Europe/Berlin). /schedules lists all schedules."
        ]
        await clock.advance(90)
        assert world.paper.posts_in("7", "t")[1:] == ["you said: call mum"]
        [row] = world.rows("SELECT target FROM deliveries WHERE cause LIKE 'fire_%'")
        assert json.loads(row["target"])["reply_to"] == ""
        world.paper.says("/schedules", chat="7", thread="t")
        await world.until(lambda: len(world.paper.posts_in("7", "t")) == 3)
        assert world.paper.posts_in("7", "t")[2].endswith("“call mum”; over; last: completed, delivered")


async def test_a_run_that_takes_too_long_for_somebody_can_be_stopped(tmp_path: Path) -> None:
    gate, clock = Gate(), clock_at("2026-06-15 08:59")
    async with World(tmp_path, Echo({"count to a million": gate}), clock=clock) as world:
        world.skip.add("I4")
        await say(world, "/at in 1m count to a million")
        [id] = ids(world)
        assert await say(world, f"/schedules stop {id}") == "“count to a million” does not run now."
        await clock.advance(70)
        await gate.reached()
        world.paper.says(f"/schedules stop {id}")
        await world.until(lambda: len(world.posts) == 4)
        assert sorted(world.posts[2:]) == [
            "Stopping “count to a million”.",
            "“count to a million” was cancelled: stopped by 7.",
        ]


async def test_what_is_not_understood_is_said_and_nothing_is_planned(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        assert (await say(world, "/every")).startswith("Say how often and what, for example: /every day at 9:00")
        assert (await say(world, "/at")).startswith("Say when and what, for example: /at 18:30")
        assert (await say(world, "/every full moon howl")).startswith(
            "I cannot schedule this: “every full moon howl” is not a time that I understand"
        )
        assert (await say(world, "/every 30 2 30 2 * never")).startswith("I cannot schedule this: “30 2 30 2 *” never")
        assert (await say(world, "/at 2020-01-01 09:00 too late")).endswith("has already passed.")
        assert (await say(world, "/at 18:30")).startswith("You said when, but not what to do.")
        assert await say(world, "/schedules pause abc") == ("There is no schedule abc here. /schedules lists them.")
        assert (await say(world, "/schedules what is this")).startswith("Write /schedules, or /schedules pause")
        assert ids(world) == []


async def test_a_chat_sees_and_changes_only_its_own(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), work={"schedules": 2}) as world:
        await say(world, "/every 30m watch", chat="a")
        [id] = ids(world)
        assert (await say(world, "/schedules", chat="b")).startswith("There are no schedules here.")
        for verb in ("pause", "remove", "run", "show"):
            assert (await say(world, f"/schedules {verb} {id}", chat="b")).startswith("There is no schedule")
        assert ids(world) == [id]
        await say(world, "/every 30m watch more", chat="a")
        assert await say(world, "/every 30m too much", chat="a") == (
            "I cannot schedule this: there are 2 schedules here already; remove one first."
        )
        assert (await say(world, "/every 30m elsewhere", chat="b")).startswith("Planned")


async def test_the_same_command_that_comes_twice_plans_once(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        message = handed("/every 30m watch", key="k1")
        await world.receive(message)
        await world.receive(message)
        assert len(ids(world)) == 1


async def use(turn: Turn, **arguments: Any) -> str:
    [tool] = schedules.TOOLS
    try:
        return (await tool.act(json.dumps(arguments), Occasion(turn.desk, "call"))).text
    except ToolError as error:
        return f"refused: {error}"


async def test_the_assistant_plans_and_changes_what_belongs_to_this_conversation(tmp_path: Path) -> None:
    async def plan(turn: Turn) -> str:
        return await use(turn, action="add", when="every 30m", prompt="look at the queue", name="the queue")

    async def listed(turn: Turn) -> str:
        return await use(turn, action="list")

    async def removed(turn: Turn) -> str:
        known = turn.message.text
        return await use(turn, action="pause", id=known) + "\n" + await use(turn, action="remove", id=known)

    agent = Takes(Scripted(plan), Scripted(listed), Scripted(listed), Scripted(removed), Scripted(removed))
    async with World(tmp_path, agent) as world:
        assert "“the queue”; every 30m; next t" in await say(world, "watch the queue", chat="a")
        [id] = ids(world)
        assert (await say(world, "what is planned?", chat="a")).startswith(f"{id} “the queue”; every 30m; next")
        assert await say(world, "what is planned?", chat="b") == "Nothing is planned in this conversation."
        assert f"there is no schedule {id} in this conversation" in await say(world, id, chat="b")
        assert (await say(world, id, chat="a")).endswith(f"paused\n{id} is removed.")
        assert ids(world) == []


async def test_the_assistant_plans_nothing_where_nobody_could_be_told(tmp_path: Path) -> None:
    answers: list[str] = []

    async def plan(turn: Turn) -> None:
        answers.append(await use(turn, action="add", when="every 30m", prompt="look"))

    async def headless(turn: Turn) -> None:
        session = context.current()
        assert session.errand is not None
        answers.append(await use(turn, action="add", when="every 30m", prompt="look"))

    clock = clock_at("2026-06-15 08:59")
    agent = Takes(Scripted(plan), Scripted(headless))
    mute = Kind(async_delivery=False, streaming="none")
    async with World(tmp_path, agent, platforms={"paper": KEYED, "mute": mute}, clock=clock) as world:
        world.skip.add("I4")
        await world.receive(handed("hi", adapter="mute"))
        await world.until(lambda: answers)
        await say(world, "/at in 1m do it")
        await clock.advance(70)
        assert answers == [
            f"refused: {schedules.UNDELIVERABLE}",
            f"refused: {schedules.HEADLESS}",
        ]
        [row] = world.rows("SELECT plan FROM schedules")
        assert json.loads(row["plan"])["prompt"] == "do it"


@asynccontextmanager
async def at_the_socket(world: World) -> AsyncIterator[None]:
    async with LocalServer() as server:
        with server.routes(routes_for(world.gateway.desk)):
            async with server.serving(world.home):
                yield


async def tidings(home: Path, *arguments: str) -> tuple[int, str, str]:
    """The command line in this process, so that a story is not mostly starts of Python; 2 is a wrong one."""
    asked = ["--home", str(home), "schedule", *arguments]
    result = await asyncio.to_thread(CliRunner().invoke, app.app, asked, obj=main.place)
    said = f"{result.exception}" if isinstance(result.exception, TidingsError) else result.stderr
    return result.exit_code, result.stdout, said


async def test_the_command_line_plans_runs_and_prints_the_real_result(tmp_path: Path) -> None:
    """A32."""
    gate = Gate()
    async with World(tmp_path, Takes(Scripted(gate, "sunny"), Scripted(ValueError("no network")))) as world:
        world.skip.add("I4")
        async with at_the_socket(world):
            when = ("--when", "every day at 9:00", "--zone", BERLIN, "--to", "paper:1")
            code, out, _ = await tidings(tmp_path, "add", "weather", *when, "--prompt", "how is the weather?")
            assert (code, "“weather”; every day at 9:00; next t" in out) == (0, True)
            [id] = ids(world)
            running = asyncio.create_task(tidings(tmp_path, "run", id[:6]))
            await gate.reached()
            gate.open()
            assert await running == (0, "sunny\ntidings: completed, delivered\n", "")
            assert world.posts == ["sunny"]
            code, out, _ = await tidings(tmp_path, "run", id)
            assert code == 1
            assert "tidings: failed (no network" in out
            code, out, _ = await tidings(tmp_path, "show", id)
            assert "failed (no network" in out
            assert "completed, delivered" in out
            listed = json.loads((await tidings(tmp_path, "list", "--json"))[1])
            assert [each["id"] for each in listed] == [id]
            assert "paused" in (await tidings(tmp_path, "pause", id))[1]
            assert "next t" in (await tidings(tmp_path, "resume", id))[1]
            assert (await tidings(tmp_path, "remove", id))[1] == "“weather” is removed and will not run again\n"
            assert "nothing is planned" in (await tidings(tmp_path, "list"))[2]


async def test_the_owner_may_plan_a_command_and_hears_what_is_wrong(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world, at_the_socket(world):
        what = ("--when", "@daily", "--command", "echo 3 disks", "--to", "paper:1")
        assert (await tidings(tmp_path, "add", "disks", *what))[0] == 0
        ran = await tidings(tmp_path, "run", ids(world)[0])
        assert ran == (0, "```\n3 disks\n```\ntidings: completed, delivered\n", "")
        wrong = (
            (("x", "--when", "someday", "--prompt", "p", "--to", "paper:1"), 1, "is not a time that I understand"),
            (("x", "--when", "@daily", "--prompt", "p", "--to", "fax:1"), 1, "no platform fax@main is configured"),
            (("x", "--when", "@daily", "--prompt", "p"), 1, "no platform console@main is configured"),
            (("x", "--when", "@daily"), 2, "either --prompt or --command"),
        )
        for arguments, code, words in wrong:
            found, _, errors = await tidings(tmp_path, "add", *arguments)
            assert (found, words in " ".join(errors.split())) == (code, True), errors
        assert len(ids(world)) == 1


async def test_without_a_gateway_it_says_so(tmp_path: Path) -> None:
    """A32: nothing is bound to a process that goes away."""
    shown = await asyncio.to_thread(process, tmp_path, "schedule", "run", "0123456789ab")
    assert (shown.returncode, shown.stdout) == (69, "")
    assert "no gateway runs in" in shown.stderr


async def test_a_home_is_where_the_command_line_s_jobs_go(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), owners=["paper:7"]) as world, at_the_socket(world):
        await say(world, "/sethome", chat="h")
        assert (await tidings(tmp_path, "add", "x", "--when", "@daily", "--prompt", "report"))[0] == 0
        [known] = await world.gateway.desk.schedules.all()
        assert str(known.plan.target) == "paper:h"
