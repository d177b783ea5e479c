"""The HTTP API passes the contract over a real port: a request is a message, and its 202 is the confirmation."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack

import httpx
import pytest
from msgspec.structs import replace
from pydantic import SecretStr

from tests.contract.adapters import PATIENCE_SECONDS, AdapterContract, Door, Harness, Seen, Trouble, never_sends
from tests.worlds.api import KEY
from tests.worlds.builders import inbound
from tests.worlds.fakes import FakeDesk, host
from tidings.adapters.api.adapter import ApiAdapter
from tidings.adapters.api.settings import HttpSettings
from tidings.adapters.shared.http_server import HttpServer
from tidings.core.adapter import Adapter
from tidings.core.agent import Ended, OutcomeKind
from tidings.core.clock import SystemClock
from tidings.core.desk.runs import Numbered, Run
from tidings.core.errors import Unreachable
from tidings.core.types import Capabilities, Part, Receipt, Target

ENDED = Numbered(1, Ended(OutcomeKind.COMPLETED, "", "done"), 0.0)
# Who is told to come back comes back; the 404 is the moment between two lifetimes of the routes.
AGAIN = (404, 503)


class Desk(FakeDesk):
    """Every run that one asks about has ended long ago."""

    async def follow(self, run: str, after: int = 0) -> AsyncIterator[Numbered]:
        yield ENDED

    async def run(self, id: str) -> Run:
        return Run(id, inbound(), "done", 0.0, 0.0, False, Ended(OutcomeKind.COMPLETED, "", "done"))


class Client:
    """Says one thing after the other in one conversation, each until it is confirmed, as whoever wants order does."""

    def __init__(self, harness: ApiHarness, name: str) -> None:
        self._harness = harness
        self._name = name
        self._said: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._task = asyncio.create_task(self._speak())

    def say(self, key: str, text: str) -> None:
        self._said.put_nowait((key, text))

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _speak(self) -> None:
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http:
            while True:
                key, text = await self._said.get()
                while not await self._is_taken(http, key, text):
                    continue
                self._harness.confirm(key)

    async def _is_taken(self, http: httpx.AsyncClient, key: str, text: str) -> bool:
        headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": key}
        asked = {"input": text, "conversation": self._name}
        try:
            answer = await http.post(f"{self._harness.url}/v1/runs", headers=headers, json=asked)
        except (LookupError, httpx.TransportError):
            # Nobody listens yet.
            await asyncio.sleep(0.005)
            return False
        assert answer.status_code in (202, *AGAIN), answer.text
        return answer.status_code == 202


class ApiHarness:
    here = Target(adapter="api", chat="owner", thread="here")
    elsewhere = Target(adapter="api", chat="owner", thread="elsewhere")
    thread = Target(adapter="api", chat="owner", thread="nobody ever spoke there")
    limit = 0
    exempt: Mapping[str, str] = {
        "sending": "a client asks and reads its run's events; nobody can hand it anything",
        **dict.fromkeys(Trouble, "nothing is sent, so nothing can befall a call"),
        "amendments": "a request that was made stays made",
        "attachments": "requests bring text alone; anything else is refused with 400",
        "bodies": "nothing is sent, so no key of ours is seen by anybody",
        "commands": "what they do has routes of its own, and a text with a slash is the agent's to read",
        "erasure": "nothing stands there that could be erased",
        "limit": "an answer is never cut: the client reads all of it",
        "lost files": "files are not declared",
    }

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._said: dict[str, tuple[str, str]] = {}
        self._clients: dict[str, Client] = {}
        self._confirmed: list[str] = []
        self._news = asyncio.Event()
        self.adapter: Adapter = self._new()

    @property
    def url(self) -> str:
        return self._server.address

    @property
    def can(self) -> Capabilities:
        return self.adapter.can(self.here)

    async def says(self, text: str, *, at: Target | None = None, file: tuple[str, bytes] | None = None) -> str:
        assert file is None
        key = f"said-{len(self._said) + 1}"
        self._said[key] = (at or self.here).thread, text
        await self.tells_again(key)
        return key

    async def tells_again(self, name: str) -> None:
        conversation, text = self._said[name]
        if conversation not in self._clients:
            self._clients[conversation] = Client(self, conversation)
        self._clients[conversation].say(name, text)

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

    async def trouble(self, trouble: Trouble) -> None:
        raise NotImplementedError

    async def heal(self) -> None:
        raise NotImplementedError

    def confirm(self, key: str) -> None:
        self._confirmed.append(key)
        self._news.set()
        self._news = asyncio.Event()

    @property
    def confirmed(self) -> list[str]:
        return list(dict.fromkeys(self._confirmed))

    def visible(self, at: Target | None = None) -> list[Seen]:
        return []

    @property
    def typings(self) -> int:
        return 0

    @property
    def reactions(self) -> list[str]:
        return []

    async def reborn(self) -> Adapter:
        return self._new()

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await self._news.wait()

    async def close(self) -> None:
        for client in self._clients.values():
            await client.leave()
        await self.adapter.close()

    def _new(self) -> ApiAdapter:
        settings = HttpSettings(port=0, key=SecretStr(KEY))
        return ApiAdapter("main", settings, dataclasses.replace(host(SystemClock(), Desk()), server=self._server))


@pytest.fixture
async def platform() -> AsyncIterator[ApiHarness]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(HttpServer("127.0.0.1", 0, patience=0.0))
        harness = ApiHarness(server)
        stack.push_async_callback(harness.close)
        yield harness


class TestApi(AdapterContract):
    @pytest.fixture
    def platform(self, platform: ApiHarness) -> Harness:
        return platform


async def test_a_port_that_somebody_else_has_ends_listen_so_that_it_is_tried_soon_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with HttpServer("127.0.0.1", taken.getsockname()[1]) as server:
            harness = ApiHarness(server)
            with pytest.raises(Unreachable, match="TIDINGS_HTTP__PORT"):
                await harness.adapter.listen(Door())


class Boaster(ApiAdapter):
    """Declares what nobody could keep who never sends."""

    def can(self, target: Target) -> Capabilities:
        return replace(super().can(target), async_delivery=True)


class Swallower(ApiAdapter):
    """Takes whatever it is handed, and nobody ever sees it."""

    async def send(self, part: Part) -> Receipt:
        return Receipt(ids=("1",))


@pytest.mark.parametrize("liar", [Boaster, Swallower])
async def test_who_is_excused_from_sending_cannot_pretend(platform: ApiHarness, liar: type[ApiAdapter]) -> None:
    assert await never_sends(platform)
    honest = platform.adapter
    assert isinstance(honest, ApiAdapter)
    platform.adapter = liar("main", honest._service.settings, honest._host)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await never_sends(platform)
