"""A gateway that speaks to a simulated Telegram: a home, the Bot API over HTTP and scripted agents.

    async with TelegramWorld(tmp_path, Scripted("hello")) as world:
        world.telegram.says("hi")
        await world.telegram.until(lambda telegram: telegram.posts == ["hello"])

TelegramWorld(home, agent, ...)  agent is one Agent or {name: Agent}; person 7 is allowed;
                          settings={"groups": "all"} changes the account, accounts={"other": {...}} adds bots (which
                          the test has given to `world.telegram.add_bot`, or is given by `bots=("other",)`);
                          server={"drafts": False} goes to TelegramServer; limits=, access= and allow= to the core;
                          webhook=True listens by a webhook on a real HttpServer, `world.webhook` is its address;
                          clock=OwnedClock() for time that the test owns, else time is real;
                          platforms=[Platform(...)] for others beside it; kinds=, commands= as the gateway has them
world.telegram            the platform, which outlives the gateway
world.gateway             the running gateway, which is also the desk
await world.until(holds)  waits for anything, moving an owned clock
await world.eventually(f) waits for what only the database, a file or the gateway knows, without moving the clock
await world.settled()     nothing runs, waits or is on its way
await world.start()       also again in the same home, with whatever was changed in `world.settings`, `.agents` ...
await world.end()         as SIGTERM does; `stop()` settles before it, `restart()` also starts again
await world.crash()       as kill -9 leaves it: the home is put back to what was committed at this moment
await world.health()      what `tidings status` shows; `world.listener()` is the part that listens to Telegram
async with process(home, telegram, TIDINGS_FAILPOINT="in.pre_ack:1"): the same as a real process
world.rows(sql, *values)  reads the database directly; also runs() and run(name) by the simulator's "CHAT:MESSAGE"
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import SecretStr

from tests.contract.test_telegram import free_port
from tests.scenario.operations.test_process import gateway
from tests.simulators.telegram.simulator import TelegramServer
from tests.worlds.fakes import FakeClock, FakeLocal, FakeServer, calm
from tests.worlds.world import LOOP_TURNS, REST_SECONDS, SETTLE_SECONDS, STORE_ROUNDS, OwnedClock, opened, unsettled
from tidings.adapters.shared.http_server import HttpServer
from tidings.adapters.telegram.adapter import TelegramAdapter
from tidings.adapters.telegram.settings import TelegramAccount
from tidings.core.adapter import Host, Platform, Server
from tidings.core.agent import Agent
from tidings.core.clock import Clock
from tidings.core.desk.health import Health, PartHealth
from tidings.core.gateway.gateway import Gateway
from tidings.core.inbound.commands import Command
from tidings.core.settings import Access, Core, Limits
from tidings.core.store.sqlite import DATABASE
from tidings.core.store.store import Transaction
from tidings.core.types import Part, Receipt, Signal, Target, View
from tidings.core.work.tasks.tasks import TaskKind

SECRET = "a-secret-of-thirty-two-characters"

T = TypeVar("T")


class Counted(TelegramAdapter):
    """The adapter itself, with a count of its open calls, so that an owned clock waits for them."""

    open_calls = 0

    async def send(self, part: Part) -> Receipt:
        return await self._counted(super().send(part))

    async def show(self, view: View, text: str) -> View:
        return await self._counted(super().show(view, text))

    async def signal(self, target: Target, signal: Signal) -> None:
        await self._counted(super().signal(target, signal))

    async def _counted(self, call: Awaitable[T]) -> T:
        self.open_calls += 1
        try:
            return await call
        finally:
            self.open_calls -= 1


class TelegramWorld:
    def __init__(
        self,
        home: Path,
        agent: Agent | Mapping[str, Agent],
        *,
        settings: Mapping[str, Any] | None = None,
        accounts: Mapping[str, Mapping[str, Any]] | None = None,
        bots: Iterable[str] = (),
        server: Mapping[str, Any] | None = None,
        webhook: bool = False,
        allow: Iterable[str] = ("telegram:7",),
        access: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        platforms: Sequence[Platform] = (),
        kinds: Iterable[TaskKind] = (),
        commands: Iterable[Command] = (),
        telegram: TelegramServer | None = None,
        grouped: bool = True,
    ) -> None:
        self.home = home
        self.agents: dict[str, Agent] = dict(agent) if isinstance(agent, Mapping) else {"bot": agent}
        self.clock = clock
        if isinstance(clock, OwnedClock):
            clock.rest = self.rest
        # A server that is given is shared with others, and outlives this world.
        self._owns_telegram = telegram is None
        self.telegram = telegram or TelegramServer(**{"clock": clock, "webhook_pause": 0.0, **(server or {})})
        for name in bots:
            self.telegram.add_bot(name, f"{2_000_000 + len(self.telegram.chats.bots)}:{name}-token", f"{name}_bot")
        self.settings = dict(settings or {})
        self.accounts: dict[str, dict[str, Any]] = {"main": {}, **{name: {} for name in bots}}
        self.accounts |= {name: dict(each) for name, each in (accounts or {}).items()}
        self.allow = tuple(allow)
        self.access = dict(access or {})
        self.limits: dict[str, Any] = {"drain_seconds": 0, **(limits or {})}
        self.platforms = list(platforms)
        self.kinds, self.commands = tuple(kinds), tuple(commands)
        self.adapters: dict[str, Counted] = {}
        self._grouped = grouped
        self._port = free_port() if webhook else 0
        self._gateway: Gateway | None = None
        self._around = AsyncExitStack()
        self._outside = AsyncExitStack()

    @property
    def gateway(self) -> Gateway:
        assert self._gateway is not None, "the gateway is not running"
        return self._gateway

    @property
    def webhook(self) -> str:
        return f"http://127.0.0.1:{self._port}" if self._port else ""

    def address(self, account: str = "main") -> str:
        """Where the platform delivers what it has for an account."""
        return f"{self.webhook}/webhooks/telegram/{account}"

    async def __aenter__(self) -> Self:
        if self._owns_telegram:
            await self._outside.enter_async_context(self.telegram)
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()
        await self._outside.aclose()

    def account(self, name: str = "main") -> TelegramAccount:
        webhook = {"mode": "webhook", "webhook_url": self.webhook, "webhook_secret": SecretStr(SECRET)}
        return TelegramAccount(
            **{
                "token": SecretStr(self.telegram.chats.bot(name).token),
                "api_url": f"http://{self.telegram.address}",
                **(webhook if self._port else {}),
                **self.settings,
                **self.accounts[name],
            }
        )

    async def start(self, *, attached: bool = True) -> None:
        """Returns when every account listens, unless the test says that none will."""
        access = Access(**{"allow": self.allow, **self.access})
        # A webhook stays set while nobody listens; only one that is set anew leads to this gateway.
        earlier = {name: self._hooks(name) for name in self.accounts}
        server: Server = FakeServer()
        if self._port:
            server = await self._around.enter_async_context(HttpServer("127.0.0.1", self._port, patience=0.0))
        gateway = Gateway(
            self.home,
            Core(access=access, limits=Limits(**self.limits)),
            [*(Platform("telegram", name, self._builder(name)) for name in self.accounts), *self.platforms],
            self.agents,
            next(iter(self.agents)),
            FakeLocal(),
            server,
            self.kinds,
            self.commands,
            clock=self.clock,
            grouped=self._grouped,
        )
        await gateway.__aenter__()
        self._gateway = gateway
        for name in self.accounts if attached else ():
            await self.telegram.until(lambda _, name=name: self._attached(name, earlier[name]))  # type: ignore[misc]

    def _hooks(self, account: str) -> int:
        calls = self.telegram.calls("setWebhook")
        return sum(call.account == account and call.verdict == "ok" for call in calls)

    def _attached(self, account: str, hooks: int) -> bool:
        is_webhook = self.account(account).mode == "webhook"
        return self.telegram.attached(account) and (not is_webhook or self._hooks(account) > hooks)

    async def end(self) -> None:
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            await gateway.__aexit__(None, None, None)
        await self._around.aclose()

    async def stop(self) -> None:
        await self.settled()
        await self.end()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def crash(self) -> None:
        database, frozen = self.home / DATABASE, self.home / "frozen.db"
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(frozen)) as copy:
            source.backup(copy)
        await self.end()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{database}{suffix}").unlink(missing_ok=True)
        frozen.rename(database)

    async def health(self) -> Health:
        return await self.gateway.health()

    async def listener(self, account: str = "main") -> PartHealth:
        parts = (await self.health()).parts
        return next(part for part in parts if part.name == f"telegram@{account}")

    async def settled(self) -> None:
        with opened(self.home) as connection:
            await self.eventually(lambda: not unsettled(connection), lambda: f"not settled: {unsettled(connection)}")

    async def eventually(self, holds: Callable[[], object], complaint: Callable[[], str] = lambda: "never") -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, complaint()
            await asyncio.sleep(0.005)

    async def until(self, holds: Callable[[], object], *, limit: float = 3600.0, real_limit: float = 30.0) -> None:
        if not isinstance(self.clock, FakeClock):
            await self.telegram.until(lambda _: holds(), real_limit)
            return
        try:
            await self.clock.advance_until(holds, limit=limit, real_limit=real_limit)
        except TimeoutError:
            calls = [(call.method, call.verdict or "open") for call in self.telegram.calls()[-10:]]
            owed = [tuple(row) for row in self.rows("SELECT kind, state, reason FROM deliveries ORDER BY seq")]
            posts = self.telegram.posts[-10:]
            raise TimeoutError(f"not so: posts {posts}, last calls {calls}, owed {owed[-10:]}") from None

    async def rest(self) -> None:
        """Returns when nothing goes on by itself: only time, the test or a gate can bring the next event."""
        deadline = time.monotonic() + REST_SECONDS
        before: list[int] = []
        while time.monotonic() < deadline:
            marks = [len(self.telegram.truth.effects), len(self.telegram.truth.calls)]
            for _ in range(STORE_ROUNDS):
                if self._gateway is not None:
                    marks.append(await self._gateway._store.read(_count_changes))
                await calm(LOOP_TURNS)
            if marks == before and not self._moving():
                return
            before = marks

    def _moving(self) -> bool:
        """A call that the platform has taken and not decided is held there by the test."""
        held = sum(not call.verdict and call.method != "getUpdates" for call in self.telegram.calls())
        if sum(adapter.open_calls for adapter in self.adapters.values()) > held:
            return True
        listens = self._gateway is not None and self.telegram.attached()
        return bool(listens and self.telegram.unconfirmed)

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        with opened(self.home) as connection:
            return connection.execute(sql, values).fetchall()

    def runs(self) -> list[sqlite3.Row]:
        return self.rows("SELECT * FROM inbox WHERE state IN ('waiting', 'running', 'done') ORDER BY seq")

    def run(self, name: str) -> sqlite3.Row:
        found = self.rows("SELECT * FROM inbox WHERE key = ?", name)
        assert len(found) == 1, f"{len(found)} rows for {name}"
        return found[0]

    def _builder(self, name: str) -> Callable[[Host], Counted]:
        def build(host: Host) -> Counted:
            adapter = self.adapters[name] = Counted(name, self.account(name), host)
            return adapter

        return build


def process(
    home: Path, telegram: TelegramServer, *, webhook_port: int = 0, **more: str
) -> AbstractAsyncContextManager[subprocess.Popen[bytes]]:
    """`tidings run` as a person runs it, with the settings of `environment`; ready when it answers."""
    return gateway(home, **environment(telegram, webhook_port=webhook_port, **more))  # type: ignore[arg-type]


def environment(telegram: TelegramServer, *, webhook_port: int = 0, **more: str) -> dict[str, str]:
    """An echo answers person 7, by long polling or, where a port is given, by a webhook."""
    webhook = {
        "TIDINGS_TELEGRAM__MODE": "webhook",
        "TIDINGS_TELEGRAM__WEBHOOK_URL": f"http://127.0.0.1:{webhook_port}",
        "TIDINGS_TELEGRAM__WEBHOOK_SECRET": SECRET,
    }
    return {
        "TIDINGS_BOT__AGENT": "echo",
        "TIDINGS_ACCESS__ALLOW": "telegram:7",
        "TIDINGS_TELEGRAM__TOKEN": telegram.token,
        "TIDINGS_TELEGRAM__API_URL": f"http://{telegram.address}",
        # Others may use the usual port at the same time.
        "TIDINGS_HTTP__PORT": str(webhook_port),
        **(webhook if webhook_port else {}),
        **more,
    }


def _count_changes(tx: Transaction) -> int:
    row = tx.one("SELECT total_changes() AS n")
    assert row is not None
    return int(row["n"])
