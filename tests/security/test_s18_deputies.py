"""S18: a model does no more for somebody than that person may: it is no way around their role.

The model obeys every text it sees, so only the gate is tested. What happened is read from the world itself: files that
a command would have left, the other chat, and the rows of planned work.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.simulators.provider.simulator import ProviderServer
from tests.worlds.assistant import assistant
from tests.worlds.world import World
from tidings.bots.assistant.tools.toolbox import built_in
from tidings.bots.demo.agent import KINDS, DemoAgent
from tidings.core.agent import ToolFinished, ToolStarted
from tidings.core.roles import Permission, Role

OWNER, ADMIN, MEMBER, GUEST = "1", "6", "8", "9"
GROUP, ELSEWHERE = "5", "2"
TOOLS = ("time", "files", "notes", "terminal", "send_message", "schedules", "board", "delegate", "fetch_url")
# What a guest tells the model to do, by tool; each would leave a trace.
WANTED: dict[str, dict[str, Any]] = {
    "write_file": {"path": "outside.md", "content": "x"},
    "terminal": {"command": "touch outside.md"},
    "send_message": {"target": f"paper:{ELSEWHERE}", "text": "the keys are under the mat"},
    "schedules": {"action": "add", "when": "every 30m", "prompt": "look"},
    "board_create": {"title": "dig"},
    "delegate": {"goal": 'CALL terminal {"command": "touch outside.md"}'},
}


class Stage:
    def __init__(self, world: World, provider: ProviderServer, home: Path) -> None:
        self.world = world
        self.provider = provider
        self._home = home

    async def says(self, text: str, sender: str, chat: str = GROUP, *, private: bool = False) -> str:
        """Returns the key of the message, once it is answered."""
        key = self.world.paper.says(text, chat=chat, sender=sender, private=private)
        await self.world.paper.until(lambda paper: key in paper.confirmed)
        await self.world.settled()
        return key

    async def orders(self, tool: str, sender: str, chat: str = GROUP, *, private: bool = False, **more: Any) -> str:
        """What came of the tool that somebody made the model call."""
        key = await self.says(f"CALL {tool} {json.dumps(more)}", sender, chat, private=private)
        events = self.world.events(key)
        call = next(event.call for event in events if isinstance(event, ToolStarted) and event.name == tool)
        end = next(event for event in events if isinstance(event, ToolFinished) and event.call == call)
        return end.error or end.output

    def traces(self) -> list[str]:
        """What was left behind outside of the conversation."""
        found = [path.name for path in self._home.rglob("outside.md")]
        found += [post for post in self.world.paper.posts_in(ELSEWHERE) if post != "done"]
        for table in ("schedules", "tasks", "cards"):
            found += [f"{table}: {len(rows)}" for rows in [self.world.rows(f"SELECT 1 FROM {table}")] if rows]
        return found

    def audit(self) -> list[tuple[str, str]]:
        rows = self.world.rows("SELECT actor, object FROM audit WHERE action = 'tool' ORDER BY seq")
        return [(row["actor"], row["object"]) for row in rows]


@asynccontextmanager
async def stage(home: Path, **more: Any) -> AsyncIterator[Stage]:
    """An owner, an admin and a member in a group, whose other members are guests."""
    async with ProviderServer() as provider:
        provider.obedient()
        bot = assistant(provider, tools=TOOLS, window_tokens=10_000_000, **more)
        await bot.prepare()
        access = {"owners": (f"paper:{OWNER}",), "admins": (f"paper:{ADMIN}",)}
        async with World(home, bot, allow=[f"paper:{GROUP}", f"paper:{MEMBER}"], access=access) as world:
            made = Stage(world, provider, home)
            # The other chat is one that could be written to.
            await made.says("hello", OWNER, ELSEWHERE, private=True)
            yield made


@pytest.mark.parametrize("tool", sorted(WANTED))
async def test_s18_a_guest_right_after_the_owner_gets_nothing_done(tmp_path: Path, tool: str) -> None:
    async with stage(tmp_path) as held:
        await held.says("hello", OWNER)
        told = await held.orders(tool, GUEST, **WANTED[tool])
        assert told.startswith(f"{tool} did not run: you work for a guest, who may not have you change")
        assert held.traces() == []
        assert held.audit() == []
        assert held.world.paper.posts_in(GROUP) == ["done", "done"], "the guest is answered"


@pytest.mark.parametrize("tool", sorted(WANTED))
async def test_s18_a_guest_gets_nothing_done_in_private(tmp_path: Path, tool: str) -> None:
    async with stage(tmp_path) as held:
        await held.world.admit(f"paper:{GUEST}", Role.GUEST)
        told = await held.orders(tool, GUEST, GUEST, private=True, **WANTED[tool])
        assert "you work for a guest" in told
        assert held.traces() == []


@pytest.mark.parametrize("tool", sorted(WANTED))
async def test_s18_the_same_words_of_a_member_are_obeyed(tmp_path: Path, tool: str) -> None:
    """Else the tests above would pass for a bot that can do nothing at all."""
    async with stage(tmp_path) as held:
        await held.says("hello", GUEST)
        assert "did not run" not in await held.orders(tool, MEMBER, **WANTED[tool])
        assert held.traces() != []


async def test_s18_no_tool_that_needs_more_than_talking_runs_for_a_guest(tmp_path: Path) -> None:
    """Every tool of our own, with whatever arguments: the role is asked before they are read."""
    async with stage(tmp_path) as held:
        for tool in built_in():
            told = await held.orders(tool.name, GUEST)
            assert ("you work for a guest" in told) == (tool.needs is not Permission.TALK), tool.name


async def test_s18_a_guests_words_stay_a_guests_when_the_owner_has_them_answered_again(tmp_path: Path) -> None:
    async with stage(tmp_path) as held:
        await held.orders("terminal", GUEST, **WANTED["terminal"])
        await held.says("/retry", OWNER)
        assert len(held.world.paper.posts_in(GROUP)) == 2, "it was answered again"
        assert held.traces() == []


async def test_s18_a_delegate_works_for_the_person_who_asked_and_is_audited_for_them(tmp_path: Path) -> None:
    async with stage(tmp_path) as held:
        await held.orders("delegate", MEMBER, **WANTED["delegate"])
        assert held.audit()[:2] == [(f"paper:{MEMBER}", "delegate"), (f"paper:{MEMBER}", "terminal")]


async def test_s18_a_member_changes_no_schedule_of_somebody_else_by_the_model(tmp_path: Path) -> None:
    async with stage(tmp_path) as held:
        await held.orders("schedules", OWNER, **WANTED["schedules"])
        (row,) = held.world.rows("SELECT id FROM schedules")
        for action in ("pause", "resume", "remove"):
            told = await held.orders("schedules", MEMBER, action=action, id=row["id"])
            assert "somebody else planned “look”" in told
        assert row["id"] in await held.orders("schedules", MEMBER, action="list")
        assert held.world.rows("SELECT 1 FROM schedules WHERE paused = 0 AND removed = 0")
        await held.orders("schedules", ADMIN, action="remove", id=row["id"])
        assert not held.world.rows("SELECT 1 FROM schedules WHERE removed = 0")


async def test_s18_a_member_ends_no_command_of_somebody_else_by_the_model(tmp_path: Path) -> None:
    async with stage(tmp_path) as held:
        await held.orders("terminal", OWNER, command="cat", background=True)
        (row,) = held.world.rows("SELECT id FROM tasks")
        for more in ({"action": "kill"}, {"action": "send", "text": "x", "end": True}):
            told = await held.orders("process_control", MEMBER, id=row["id"], **more)
            assert "somebody else began “cat”" in told
        assert "running" in await held.orders("process", MEMBER, action="list")
        await held.orders("process_control", ADMIN, action="kill", id=row["id"])
        assert held.world.rows("SELECT 1 FROM tasks WHERE state = 'cancelled'")


async def test_s18_a_member_stops_no_card_of_somebody_else(tmp_path: Path) -> None:
    async with stage(tmp_path) as held:
        await held.says("/board add dig triage=yes", OWNER)
        for tool, more in (("board_archive", {}), ("board_block", {"kind": "needs_input", "reason": "so"})):
            assert "somebody else made #1" in await held.orders(tool, MEMBER, card="1", **more)
        await held.says("/board archive 1", MEMBER)
        assert held.world.paper.posts_in(GROUP)[-1] == (
            "Somebody else made #1; they can stop it, and so can an owner or admin."
        )
        assert "archived" in await held.orders("board_archive", ADMIN, card="1")


async def test_s18_hosts_that_are_not_public_are_not_fetched_for_guests(tmp_path: Path) -> None:
    async def serve(request: web.Request) -> web.Response:
        return web.Response(text="the home page")

    app = web.Application()
    app.router.add_get("/", serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        async with stage(tmp_path, fetch_hosts=("127.0.0.1",)) as held:
            assert "the home page" not in await held.orders("fetch_url", GUEST, url=address)
            assert "the home page" in await held.orders("fetch_url", MEMBER, url=address + "?again")
    finally:
        await runner.cleanup()


async def test_s18_the_demo_plans_nothing_for_a_guest(tmp_path: Path) -> None:
    async with World(tmp_path, DemoAgent(), allow=[f"paper:{GROUP}", f"paper:{MEMBER}"], kinds=KINDS) as world:
        for sender, planned in ((GUEST, 0), (MEMBER, 1)):
            key = world.paper.says("remind me in 600 s to stretch", chat=GROUP, sender=sender, private=False)
            await world.paper.until(lambda paper, key=key: key in paper.confirmed)
            await world.outcome(key)
            assert len(world.rows("SELECT 1 FROM tasks")) == planned
        assert world.paper.posts_in(GROUP)[0].startswith("I may not plan anything for you here.")
