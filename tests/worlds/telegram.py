"""A gateway on Telegram in a box: a home, the real adapter on a simulated Telegram, and scripted agents.

    async with TelegramWorld(tmp_path, Scripted("hello")) as world:
        world.telegram.says("hi")
        await world.telegram.until(lambda telegram: telegram.posts == ["hello"])

TelegramWorld(home, agent, ...)  as a PlatformWorld; person 7 is allowed; bots=("other",) makes bots and adds their
                          accounts; webhook=True listens by a webhook on a real HttpServer, `world.webhook` is its
                          address; telegram= shares a server with another world
world.telegram            the platform, which outlives the gateway
world.address(account)    where the platform delivers what it has for an account
async with process(home, telegram, TIDINGS_FAILPOINT="in.pre_ack:1"): the same as a real process
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from tests.contract.test_telegram import free_port
from tests.simulators.telegram.simulator import TelegramServer
from tests.worlds.platform import PlatformWorld
from tests.worlds.process import echo_on, gateway
from tests.worlds.world import Counted
from tidings.adapters.shared.http_server import HttpServer
from tidings.adapters.telegram.adapter import TelegramAdapter
from tidings.adapters.telegram.settings import TelegramAccount
from tidings.core.adapter import Host
from tidings.core.agent import Agent

SECRET = "a-secret-of-thirty-two-characters"


class CountedTelegram(Counted, TelegramAdapter):
    pass


class TelegramWorld(PlatformWorld[TelegramServer]):
    name = "telegram"
    simulator = TelegramServer
    lasting_calls = ("getUpdates",)

    def __init__(
        self,
        home: Path,
        agent: Agent | Mapping[str, Agent],
        *,
        accounts: Mapping[str, Mapping[str, Any]] | None = None,
        bots: Iterable[str] = (),
        server: Mapping[str, Any] | None = None,
        webhook: bool = False,
        telegram: TelegramServer | None = None,
        **more: Any,
    ) -> None:
        super().__init__(home, agent, shared=telegram, server={"webhook_pause": 0.0, **(server or {})}, **more)
        for name in bots:
            self.telegram.add_bot(name, f"{2_000_000 + len(self.telegram.chats.bots)}:{name}-token", f"{name}_bot")
            self.accounts[name] = {}
        self.accounts |= {name: dict(each) for name, each in (accounts or {}).items()}
        self._port = free_port() if webhook else 0
        # How often each account's webhook had been set before this gateway began.
        self._hooks_before: dict[str, int] = {}

    @property
    def telegram(self) -> TelegramServer:
        return self.platform

    def _admitted(self) -> str:
        return "7"

    @property
    def webhook(self) -> str:
        return f"http://127.0.0.1:{self._port}" if self._port else ""

    def address(self, account: str = "main") -> str:
        return f"{self.webhook}/webhooks/telegram/{account}"

    def account(self, name: str = "main") -> TelegramAccount:
        webhook = {"mode": "webhook", "webhook_url": self.webhook, "webhook_secret": SecretStr(SECRET)}
        return TelegramAccount(
            **{
                "token": SecretStr(self.telegram.chats.bot(name).token),
                "api_url": f"http://{self.telegram.address}",
                **(webhook if self._port else {}),
                **self.account_settings,
                **self.accounts[name],
            }
        )

    def _build(self, account: str, host: Host) -> CountedTelegram:
        return CountedTelegram(account, self.account(account), host, **self._built_with)

    async def _open_listeners(self) -> None:
        # A webhook stays set while nobody listens; only one that is set anew leads to this gateway.
        self._hooks_before = {name: self._hooks(name) for name in self.accounts}
        if self._port:
            self._http = await self._around.enter_async_context(HttpServer("127.0.0.1", self._port, patience=0.0))

    async def _attach_account(self, account: str) -> None:
        await self.telegram.until(lambda _: self._is_attached(account))

    def _is_attached(self, account: str) -> bool:
        is_webhook = self.account(account).mode == "webhook"
        is_set = not is_webhook or self._hooks(account) > self._hooks_before[account]
        return self.telegram.attached(account) and is_set

    def _hooks(self, account: str) -> int:
        calls = self.telegram.calls("setWebhook")
        return sum(call.account == account and call.verdict == "ok" for call in calls)

    def _moving(self) -> bool:
        listens = self._gateway is not None and self.telegram.attached()
        return super()._moving() or bool(listens and self.telegram.unconfirmed)


def process(
    home: Path, telegram: TelegramServer, *, webhook_port: int = 0, **more: str
) -> AbstractAsyncContextManager[subprocess.Popen[bytes]]:
    """`tidings run` as a person runs it, with the settings of `environment`; ready when it answers."""
    return gateway(home, **environment(telegram, webhook_port=webhook_port, **more))  # type: ignore[arg-type]


def environment(telegram: TelegramServer, *, webhook_port: int = 0, **more: str) -> dict[str, str]:
    """An echo answers person 7, by long polling or, where a port is given, by a webhook."""
    variables = {"TOKEN": telegram.token, "API_URL": f"http://{telegram.address}"}
    if webhook_port:
        url = f"http://127.0.0.1:{webhook_port}"
        variables |= {"MODE": "webhook", "WEBHOOK_URL": url, "WEBHOOK_SECRET": SECRET}
        more = {"TIDINGS_HTTP__PORT": str(webhook_port), **more}
    return echo_on("telegram", "7", variables, **more)
