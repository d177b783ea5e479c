"""Commands in the background and of schedules behind the sandbox: kept, adopted and ended as without a fence."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.scenario.work.test_processes import PATIENCE_SECONDS, Hands, answered, begun, call, until
from tests.worlds.fence import needs_bubblewrap
from tests.worlds.world import World
from tidings.core.desk.work import Plan, TaskState
from tidings.core.types import Target

SANDBOX = {"backend": "sandbox", "disk_bytes": 20_000_000}

pytestmark = needs_bubblewrap


def seen(word: str) -> list[int]:
    """The processes that have a word in their environment, as the machine sees them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if word.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def written(world: World, name: str) -> list[Path]:
    return list((world.home / "workspaces").glob(f"*/{name}"))


async def test_a_command_in_the_background_outlives_the_gateway_and_is_told_of_by_the_next(tmp_path: Path) -> None:
    async with World(tmp_path, Hands(), terminal=SANDBOX) as world:
        task = await begun(world, "touch began; while [ ! -e go ]; do sleep 0.05; done; echo after")
        await until(lambda: written(world, "began"))
        await world.crash()
        assert seen(task)
        await world.start()
        (folder,) = written(world, "began")
        folder.with_name("go").touch()
        await world.until(lambda: any("after" in post and "exit code 0" in post for post in world.posts))
        assert not seen(task)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_whoever_ends_the_keeper_ends_everything_in_the_sandbox(tmp_path: Path, number: signal.Signals) -> None:
    async with World(tmp_path, Hands(), terminal=SANDBOX) as world:
        task = await begun(world, "trap '' TERM; (setsid sleep 600 &); touch began; sleep 600")
        await until(lambda: written(world, "began"))
        (row,) = world.rows("SELECT pid FROM processes WHERE task = ?", task)
        os.kill(row[0], number)
        await world.until(lambda: any(post.startswith("⚠") for post in world.posts))
        await until(lambda: not seen(task))


async def test_a_command_may_clean_up_before_it_is_ended(tmp_path: Path) -> None:
    async with World(tmp_path, Hands(), terminal=SANDBOX) as world:
        task = await begun(world, "trap 'echo tidied > tidied; exit' TERM; touch began; while :; do sleep 0.05; done")
        await until(lambda: written(world, "began"))
        assert await world.gateway.desk.tasks.cancel(task, "somebody")
        await world.gateway.desk.processes.wait(task, PATIENCE_SECONDS)
        assert written(world, "tidied")
        assert (await world.gateway.desk.tasks.get(task)).state is TaskState.CANCELLED


async def test_a_command_that_fills_its_workspace_is_ended_and_told_of(tmp_path: Path) -> None:
    async with World(tmp_path, Hands(), terminal=SANDBOX) as world:
        await begun(world, "for n in $(seq 60); do head -c 1000000 /dev/zero > f$n; sleep 0.05; done; echo never")
        await world.until(lambda: any("its folder holds more than 20,000,000 bytes" in post for post in world.posts))


async def test_a_command_in_the_background_sees_nothing_of_the_gateway(tmp_path: Path) -> None:
    async with World(tmp_path, Hands(), terminal=SANDBOX) as world:
        (world.home / "api.key").write_text("canary-4711")
        task = await begun(world, f"echo said; cat {world.home}/api.key; touch began; ls {world.home}; sleep 600")
        await until(lambda: written(world, "began"))
        log = await world.gateway.desk.processes.log(task, 0, 1000)
        assert log.text.startswith("said\n")
        assert "canary-4711" not in log.text
        assert await world.gateway.desk.tasks.cancel(task, "somebody")
        await world.gateway.desk.processes.wait(task, PATIENCE_SECONDS)


async def test_a_scheduled_command_runs_behind_the_same_fence(tmp_path: Path) -> None:
    async with World(tmp_path, Hands(), terminal=SANDBOX) as world:
        (world.home / "api.key").write_text("canary-4711")
        plan = Plan(
            name="peek",
            when="every 1h",
            target=Target(adapter="paper", chat="1"),
            command=f"cat {world.home}/api.key; id -un",
        )
        schedule = await world.gateway.desk.schedules.add(plan)
        await world.gateway.desk.schedules.fire(schedule.id)
        await world.until(lambda: any("sandbox" in post for post in world.posts))
        assert not any("canary-4711" in post for post in world.posts)


async def test_without_a_wall_the_tool_says_what_to_do(tmp_path: Path) -> None:
    listed = {"backend": "sandbox", "network": ("packages.example.com",)}
    async with World(tmp_path, Hands(), terminal=listed) as world:
        told = await answered(world, call("terminal", command="touch began"))
        assert told == 'refused: Nothing was started: there is no proxy for [terminal] network here; set it to "off".'
        assert not written(world, "began")
