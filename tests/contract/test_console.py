"""The console passes the contract over its real socket, with the real client on the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.adapters import PATIENCE_SECONDS, AdapterContract, Door, Harness, Seen, Trouble
from tests.worlds.fakes import host
from tidings.adapters.console.adapter import PART_CHARACTERS, ConsoleAdapter
from tidings.adapters.console.settings import ConsoleSettings
from tidings.adapters.console.terminal import Talk
from tidings.adapters.local import socket
from tidings.adapters.local.socket import LocalServer
from tidings.core.adapter import Adapter, Line
from tidings.core.clock import SystemClock
from tidings.core.errors import Unrouted
from tidings.core.types import Capabilities, Target

NEVER = "a terminal never does that"


class Screen:
    """What a person sees at one place: whole messages, and views that grow until they are whole."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.messages: dict[str, Seen] = {}
        self.typings = 0
        # The part that is being shown; the client tells its display nothing of it.
        self.part: Mapping[str, Any] = {}
        self._changed = changed

    def named(self, name: str) -> None:
        self._changed()

    def grow(self, view: str, text: str) -> None:
        # The client shows no placeholder; that one stands there is all that the contract asks.
        before = self.messages.get(view)
        self.messages[view] = Seen(before.id if before else str(self.part["part"]), text or "…")
        self._changed()

    def whole(self, view: str, text: str) -> None:
        key, files = str(self.part["part"]), self.part["files"]
        # Files are named in lines below the text.
        lines = text.split("\n")
        own = "\n".join(lines[: len(lines) - len(files)])
        data = tuple((str(file["name"]), Path(file["path"]).read_bytes()) for file in files)
        assert all(file["name"] in line for file, line in zip(files, lines[len(lines) - len(files) :], strict=True))
        self.messages[view or key] = Seen(key, own, data)
        self._changed()

    def typing(self, is_typing: bool) -> None:
        self.typings += is_typing
        self._changed()

    def aside(self, text: str) -> None:
        self._changed()


class Tap:
    """The client's end of a connection, which a test may cut in the middle of a part."""

    def __init__(self, line: Line, person: Person) -> None:
        self._line = line
        self._person = person

    async def read(self) -> dict[str, Any] | None:
        message = await self._line.read()
        if message is not None and "part" in message:
            if self._person.cut_before:
                self._person.cut_before = False
                return None
            self._person.screen.part = message
        if message is not None and "stored" in message:
            self._person.confirmed(str(message["stored"]))
        return message

    async def write(self, message: dict[str, Any]) -> None:
        if "shown" in message and self._person.cut_after:
            self._person.cut_after = False
            self._person.leave_soon()
            raise ConnectionError("cut by the test")
        await self._line.write(message)


class Person:
    """Somebody at `tidings chat` in one place; comes back with the same client when the connection was lost."""

    def __init__(self, home: Path, place: tuple[str, str], changed: Callable[[], None], names: list[str]) -> None:
        self.screen = Screen(changed)
        self.talk = Talk(self.screen)
        self.cut_before = False
        self.cut_after = False
        self._home = home
        self._place = place
        self._changed = changed
        self._names = names
        self._task: asyncio.Task[None] | None = None
        self._line: Line | None = None

    def confirmed(self, key: str) -> None:
        self._names.append(key)
        self._changed()

    async def sit_down(self) -> None:
        """Raises Unrouted when nobody listens."""
        attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._sit(attached))
        await asyncio.wait([self._task, attached], return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()

    async def leave(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def leave_soon(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def repeat(self, key: str, text: str) -> None:
        assert self._line is not None
        await self._line.write({"say": text, "key": key})

    async def _sit(self, attached: asyncio.Future[None]) -> None:
        chat, thread = self._place
        async with socket.connect(self._home) as line:
            await line.write({"verb": "chat", "chat": chat, "thread": thread})
            socket.checked(await line.read() or {})
            self._line = line
            attached.set_result(None)
            await self.talk.hear(Tap(line, self))


class ConsoleHarness:
    here = Target(adapter="console", chat="local")
    elsewhere = Target(adapter="console", chat="other")
    thread = Target(adapter="console", chat="local", thread="t")
    limit = PART_CHARACTERS
    exempt: Mapping[str, str] = {
        Trouble.RATE_LIMITED: NEVER,
        Trouble.REFUSED: NEVER,
        Trouble.MISCONFIGURED: "there are no credentials",
        Trouble.MOVED: NEVER,
        "amendments": "what is typed stays typed",
        "attachments": "a terminal takes none",
        "bodies": "a client compares keys alone; core gives every body a key of its own",
        "erasure": NEVER,
        "limit": "what is composed always fits into a line of the socket",
        "lost files": "a terminal is told where a file is, it is not sent there",
    }

    def __init__(self, home: Path) -> None:
        self._home = home
        self._server = LocalServer()
        self._names: list[str] = []
        self._said: dict[str, tuple[Person, str]] = {}
        self._news = asyncio.Event()
        self._people = {
            (place.chat, place.thread): Person(home, (place.chat, place.thread), self._changed, self._names)
            for place in (self.here, self.elsewhere, self.thread)
        }
        self.adapter: Adapter = self._new()

    async def open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._server)
        await stack.enter_async_context(self._server.serving(self._home))
        stack.push_async_callback(self._all_leave)
        await self._all_come(self.adapter)

    @property
    def can(self) -> Capabilities:
        return self.adapter.can(self.here)

    async def says(self, text: str, *, at: Target | None = None, file: tuple[str, bytes] | None = None) -> str:
        assert file is None
        place = at or self.here
        person = self._people[place.chat, place.thread]
        said = await person.talk.say(text)
        self._said[said.key] = (person, text)
        return said.key

    async def tells_again(self, name: str) -> None:
        person, text = self._said[name]
        await person.repeat(name, text)

    async def edits(self, name: str, text: str) -> None:
        raise NotImplementedError

    async def deletes(self, name: str) -> None:
        raise NotImplementedError

    async def presses(self, message: str, choice: str) -> None:
        raise NotImplementedError

    @property
    def whispers(self) -> list[str]:
        raise NotImplementedError

    async def erase(self, message: str) -> None:
        raise NotImplementedError

    @property
    def confirmed(self) -> list[str]:
        return list(dict.fromkeys(self._names))

    def visible(self, at: Target | None = None) -> list[Seen]:
        people = [self._people[at.chat, at.thread]] if at else self._people.values()
        return [seen for person in people for seen in person.screen.messages.values()]

    @property
    def typings(self) -> int:
        return sum(person.screen.typings for person in self._people.values())

    @property
    def reactions(self) -> list[str]:
        return []

    async def trouble(self, trouble: Trouble) -> None:
        person = self._people[self.here.chat, self.here.thread]
        match trouble:
            case Trouble.UNREACHABLE:
                await self._all_leave()
            case Trouble.LOST_BEFORE:
                person.cut_before = True
            case Trouble.LOST_AFTER:
                person.cut_after = True
            case _:
                raise NotImplementedError(trouble)

    async def heal(self) -> None:
        await self._all_leave()
        await self._all_come(self.adapter)

    async def reborn(self) -> Adapter:
        """The old process is gone, and its people have found the new one."""
        await self._all_leave()
        adapter = self._new()
        await self._all_come(adapter)
        return adapter

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await self._news.wait()

    def _new(self) -> ConsoleAdapter:
        return ConsoleAdapter("main", ConsoleSettings(), replace(host(SystemClock()), local=self._server))

    def _changed(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _all_come(self, adapter: Adapter) -> None:
        """A route lives as long as a `listen`; whoever came by it stays when that has ended."""
        try:
            await self._all_sit_down()
        except Unrouted:
            listening = asyncio.create_task(adapter.listen(Door()))
            await asyncio.sleep(0)
            await self._all_sit_down()
            listening.cancel()
            await asyncio.wait([listening])

    async def _all_sit_down(self) -> None:
        for person in self._people.values():
            await person.sit_down()

    async def _all_leave(self) -> None:
        for person in self._people.values():
            await person.leave()


class TestConsole(AdapterContract):
    @pytest.fixture
    async def platform(self, tmp_path: Path) -> AsyncIterator[Harness]:
        async with AsyncExitStack() as stack:
            harness = ConsoleHarness(tmp_path)
            await harness.open(stack)
            yield harness
