"""Starter passes the contract over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from pydantic import SecretStr

from tests.contract.adapters import PATIENCE_SECONDS, PAUSE_SECONDS, AdapterContract, Harness, Seen, Trouble
from tests.simulators.starter.simulator import TEXT_CHARACTERS, StarterServer
from tests.worlds.fakes import host
from tidings.adapters.starter.adapter import StarterAdapter
from tidings.adapters.starter.settings import StarterSettings
from tidings.core.adapter import Adapter
from tidings.core.clock import SystemClock
from tidings.core.types import Capabilities, Target

TOKEN = "a token"


class StarterHarness:
    here = Target(adapter="starter", chat="1")
    elsewhere = Target(adapter="starter", chat="2")
    thread = Target(adapter="starter", chat="1", thread="there are none")
    limit = TEXT_CHARACTERS
    typings = 0
    reactions = ()
    exempt: Mapping[str, str] = {
        Trouble.MOVED: "a chat never moves",
        "amendments": "nothing that was said can be changed",
        "attachments": "there are none",
        "erasure": "nothing that was posted can be removed",
    }

    def __init__(self, server: StarterServer) -> None:
        self._server = server
        self.adapter: Adapter = self._new()

    @property
    def can(self) -> Capabilities:
        return self.adapter.can(self.here)

    async def says(self, text: str, *, at: Target | None = None, file: tuple[str, bytes] | None = None) -> str:
        return self._server.says(text, (at or self.here).chat)

    async def tells_again(self, name: str) -> None:
        self._server.announce(name)

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
        return list(dict.fromkeys(self._server.confirmed))

    def visible(self, at: Target | None = None) -> list[Seen]:
        if at is not None and at.thread:
            return []
        return [Seen(each.id, each.text) for each in self._server.posted if at is None or each.chat == at.chat]

    async def trouble(self, trouble: Trouble) -> None:
        match trouble:
            case Trouble.RATE_LIMITED:
                self._server.refusal = {"error": "pause", "seconds": PAUSE_SECONDS}
            case Trouble.REFUSED:
                self._server.refusal = {"error": "blocked"}
            case Trouble.MISCONFIGURED:
                self._server.token = "another token"
            case Trouble.UNREACHABLE:
                await self._server.down()
            case Trouble.LOST_BEFORE:
                self._server.cut = "before"
            case Trouble.LOST_AFTER:
                self._server.cut = "after"
            case _:
                raise NotImplementedError(trouble)

    async def heal(self) -> None:
        self._server.refusal = None
        self._server.cut = ""
        self._server.token = TOKEN
        await self._server.up()

    async def reborn(self) -> Adapter:
        return self._new()

    async def until(self, holds: Callable[[], object]) -> None:
        await self._server.until(holds, PATIENCE_SECONDS)

    def _new(self) -> StarterAdapter:
        settings = StarterSettings(token=SecretStr(TOKEN), address=self._server.address)
        return StarterAdapter("main", settings, host(SystemClock()))


class TestStarter(AdapterContract):
    @pytest.fixture
    async def platform(self) -> AsyncIterator[Harness]:
        async with StarterServer(TOKEN) as server:
            yield StarterHarness(server)
