"""A gateway that is called by HTTP: a home, the real API on a real port, and scripted agents.

    async with ApiWorld(tmp_path, Scripted("hello")) as api:
        answer = await api.http.post("/v1/runs", json={"input": "hi"})
        assert (await api.ended(answer.json()["run_id"]))["output"] == "hello"

ApiWorld(home, agent, ...)  agent is one Agent or {name: Agent}; settings={"stop_when_gone": False} changes [http];
                          console=True puts the console beside it, on its real socket in the home;
                          platforms={"paper": Kind()} puts paper platforms beside it, each as `api.papers[name]`;
                          allow=, limits=, kinds=, commands= as a World has them; time is real
api.url, api.key          where it is, and the owner's key
api.http                  an httpx client with the owner's key; `api.client(secret)` is one with another
api.openai                the OpenAI SDK with the owner's key, without retries; `api.sdk(secret)` with another
await api.new_key(name, *scopes)  the secret of a new key; person=, bots=, targets= bind it
await api.restart()       a clean stop and a start in the same home: another port, another `url`, another `http`
await api.crash()         as kill -9 leaves it; then `await api.start()`
api.adapter               the adapter itself; api.gateway.desk the desk
await api.ended(run)      the status object of a run, as soon as it has ended
await api.watch(run)      what a plain reader of its events gets until the stream closes, as `Frame`s
api.frames(response)      the same, one by one, of any streamed response
api.rows(sql)             reads the database directly, and all else that a World has
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import msgspec
from pydantic import SecretStr

from tests.simulators.paper.simulator import Kind
from tests.worlds.world import World
from tidings.adapters.api.adapter import ApiAdapter
from tidings.adapters.api.keys import Grant
from tidings.adapters.api.settings import HttpSettings
from tidings.adapters.console.adapter import ConsoleAdapter
from tidings.adapters.console.settings import ConsoleSettings
from tidings.adapters.local.socket import LocalServer
from tidings.adapters.shared.http_server import HttpServer, Limits
from tidings.core.adapter import NearbyHost, Platform
from tidings.core.agent import Agent
from tidings.core.desk.people import Scope
from tidings.core.types import Target

if TYPE_CHECKING:
    # It takes a second to load, which only some tests need.
    from openai import AsyncOpenAI

KEY = "the-owner's-key-0123456789-abcdefghijkl"
PATIENCE_SECONDS = 30.0


class Frame(NamedTuple):
    """One server-sent event; comments are no frames."""

    id: str
    event: str
    data: str

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.data)
        return value


class ApiWorld(World):
    adapter: ApiAdapter

    def __init__(
        self,
        home: Path,
        agent: Agent | Mapping[str, Agent],
        *,
        settings: Mapping[str, Any] | None = None,
        console: bool = False,
        platforms: Mapping[str, Kind] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(home, agent, platforms=platforms or {}, **more)
        self.http_settings: dict[str, Any] = dict(settings or {})
        self.key = KEY
        # What a client is answered is its run's journal: no delivery is owed for it, as `__aexit__` checks.
        self.skip.add("I4")
        self._console = console
        if console:
            self.owner = Target(adapter="console")
        self._sdk: AsyncOpenAI | None = None

    @property
    def url(self) -> str:
        return self._listening.address

    def _settings(self) -> HttpSettings:
        return HttpSettings(**{"port": 0, "key": SecretStr(self.key), **self.http_settings})

    async def _open_listeners(self) -> None:
        if self._console:
            self._local = await self._around.enter_async_context(self._serving())
        settings = self._settings()
        self._listening = HttpServer(
            settings.host, settings.port, limits=Limits(connections=settings.connections), patience=0.0
        )
        self._http = await self._around.enter_async_context(self._listening)

    def _platforms(self) -> list[Platform]:
        platforms = [*super()._platforms(), Platform("api", "main", self._build, nearby=True)]
        if self._console:
            platforms.append(Platform("console", "main", _build_console, nearby=True))
        return platforms

    async def start(self, *, attached: bool = True) -> None:
        """Returns when the API answers."""
        await super().start(attached=attached)
        await self._until_it_answers()
        self.http = await self._around.enter_async_context(self.client(self.key))
        self._sdk = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        if error is None:
            targets = [msgspec.json.decode(row["target"], type=Target) for row in self.rows("SELECT * FROM deliveries")]
            assert [target for target in targets if target.adapter == "api"] == [], "nothing is ever pushed there"

    def client(self, secret: str | None = None) -> httpx.AsyncClient:
        """Reads as long as it takes within a test's patience; proxies of the environment do not concern it."""
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        return httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False, verify=False
        )

    @property
    def openai(self) -> AsyncOpenAI:
        if self._sdk is None:
            self._sdk = self.sdk(self.key)
        return self._sdk

    def sdk(self, secret: str) -> AsyncOpenAI:
        """Closed with the world's present life."""
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        client = AsyncOpenAI(
            base_url=f"{self.url}/v1",
            api_key=secret,
            max_retries=0,
            timeout=PATIENCE_SECONDS,
            http_client=DefaultAsyncHttpxClient(trust_env=False, verify=False),
        )
        self._around.push_async_callback(client.close)
        return client

    async def new_key(
        self, name: str, *scopes: str, person: str = "", bots: tuple[str, ...] = (), targets: tuple[str, ...] = ()
    ) -> str:
        grant = Grant(tuple(Scope(scope) for scope in scopes), person, bots, targets)
        return await self.adapter.keys.add(name, grant, 0.0)

    async def ended(self, run: str) -> dict[str, Any]:
        await self.watch(run)
        status: dict[str, Any] = (await self.http.get(f"/v1/runs/{run}")).json()
        return status

    async def watch(self, run: str, after: str = "") -> list[Frame]:
        headers = {"Last-Event-ID": after} if after else {}
        async with self.http.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            return [frame async for frame in self.frames(response)]

    @staticmethod
    async def frames(response: httpx.Response) -> AsyncIterator[Frame]:
        async for frame in frames_of(response.aiter_lines()):
            yield frame

    async def _until_it_answers(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    async with self.client() as http:
                        if (await http.get("/health")).status_code == 200:
                            return
                except (LookupError, httpx.TransportError):
                    # Not open yet.
                    await asyncio.sleep(0.005)

    def _build(self, host: NearbyHost) -> ApiAdapter:
        self.adapter = ApiAdapter("main", self._settings(), host)
        return self.adapter

    def _serving(self) -> _Serving:
        return _Serving(self.home)


class _Serving:
    """The local socket in the home, as the command line's process has it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> LocalServer:
        server = await self._stack.enter_async_context(LocalServer())
        await self._stack.enter_async_context(server.serving(self._home))
        return server

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


def _build_console(host: NearbyHost) -> ConsoleAdapter:
    return ConsoleAdapter("main", ConsoleSettings(), host)


async def frames_of(lines: AsyncIterator[str]) -> AsyncIterator[Frame]:
    """As the standard of server-sent events reads them: a frame ends with an empty line, and only then counts."""
    id = event = ""
    data: list[str] = []
    async for line in lines:
        if line == "":
            if data:
                yield Frame(id, event, "\n".join(data))
            id, event, data = "", "", []
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "id":
                id = value
            case "event":
                event = value
            case "data":
                data.append(value)
            case _:
                continue
