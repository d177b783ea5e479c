"""Which way out a platform takes: direct, by its own proxy or by the environment's; and that a start says so."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.simulators.discord.simulator import DiscordServer
from tests.simulators.slack.simulator import SlackServer
from tests.simulators.telegram.simulator import TOKEN, TelegramServer
from tidings.adapters.discord.client import Client as DiscordClient
from tidings.adapters.discord.settings import DiscordSettings
from tidings.adapters.local.socket import LocalServer
from tidings.adapters.shared import proxy
from tidings.adapters.shared.http_server import HttpServer
from tidings.adapters.slack.client import Client as SlackClient
from tidings.adapters.slack.socket import Link
from tidings.adapters.telegram.client import Client as TelegramClient
from tidings.bots.app import agents
from tidings.bots.main import _gateway, _http, _load, _name_the_proxies
from tidings.core.errors import ConfigError
from tidings.core.types import Body, Target

PIECE = 65_536


class Proxy:
    """A forward proxy on loopback that writes down which hosts it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://somebody:hunter2hunter2@127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with contextlib.AsyncExitStack() as ends:
            ends.push_async_callback(_end, writer)
            head = await reader.readuntil(b"\r\n\r\n")
            method, url, version = head.split(b"\r\n", 1)[0].split()
            host, _, path = url.partition(b"://")[2].partition(b"/")
            self.asked.append(host.decode())
            name, _, port = host.decode().partition(":")
            there, to = await asyncio.open_connection(name, int(port or 80))
            ends.push_async_callback(_end, to)
            rest = head.split(b"\r\n", 1)[1]
            if b"upgrade" not in head.lower():
                # One request each, so that no second one needs to be rewritten.
                rest = b"Connection: close\r\n" + b"\r\n".join(
                    line for line in rest.split(b"\r\n") if not line.lower().startswith(b"connection:")
                )
            to.write(b" ".join((method, b"/" + path, version)) + b"\r\n" + rest)
            await asyncio.gather(_copy(reader, to), _copy(there, writer))


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def asked_about_itself(platform: str, by: str) -> AsyncIterator[tuple[str, str]]:
    """Each client asks who it is, going out as `by` says; gives the answer and the host that was to be reached."""
    if platform == "telegram":
        async with TelegramServer() as telegram:
            bot = TelegramClient(TOKEN, telegram.base_url.removesuffix("/bot"), by)
            try:
                yield (await bot.call("getMe", {}))["username"], telegram.address
            finally:
                await bot.close()
    elif platform == "discord":
        async with DiscordServer() as discord:
            client = DiscordClient(discord.token, discord.api_url, "main", by)
            try:
                yield (await client.call("GET", "/users/@me"))["id"], discord.address
            finally:
                await client.close()
    else:
        async with SlackServer() as slack:
            app = SlackClient(slack.token, slack.api_url, by)
            try:
                yield (await app.call("auth.test"))["user_id"], slack.address
            finally:
                await app.close()


@pytest.fixture(autouse=True)
def _no_proxy_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("http", "https", "no", "all"):
        monkeypatch.delenv(f"{scheme}_proxy", raising=False)
        monkeypatch.delenv(f"{scheme.upper()}_PROXY", raising=False)


@pytest.mark.parametrize("platform", ["telegram", "discord", "slack"])
async def test_a_platform_goes_by_the_proxy_that_its_own_setting_names(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of the environment is dead, and takes no platform with it that has another. E12."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with Proxy() as ours:
        async with asked_about_itself(platform, ours.url) as (me, host):
            assert me
        assert ours.asked == [host.removeprefix("http://")]


@pytest.mark.parametrize("platform", ["telegram", "discord", "slack"])
async def test_none_goes_direct_though_the_environment_names_a_proxy(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Proxy() as ours:
        monkeypatch.setenv("http_proxy", ours.url)
        async with asked_about_itself(platform, "none") as (me, _):
            assert me
        assert ours.asked == []
        async with asked_about_itself(platform, "") as (me, _):
            assert me
        assert len(ours.asked) == 1


async def test_a_socket_goes_by_the_proxy_too() -> None:
    async def take(kind: str, payload: dict[str, object]) -> None:
        return None

    async with SlackServer() as slack, Proxy() as ours:
        app = SlackClient(slack.token, slack.api_url, ours.url)
        link = Link(slack.app_token, take, ours.url)
        try:
            opened = await app.call("apps.connections.open", token=slack.app_token)
            await link.open(opened["url"])
            assert link.greeted.is_set()
            assert len(ours.asked) == 2
        finally:
            await link.close()
            await app.close()


def test_a_start_names_each_way_out_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tidings.toml").write_text(
        '[bot]\nmodel = "openai:gpt-5-mini"\napi_key = "k"\n'
        f'[telegram]\ntoken = "{TOKEN}"\n[discord]\ntoken = "T"\nproxy = "none"\n'
        '[slack]\nbot_token = "xoxb-1"\napp_token = "xapp-1"\nproxy = "http://ann:sesame-open@inside:8080/"\n'
    )
    monkeypatch.setenv("HTTPS_PROXY", "http://joe:hunter2hunter2@gate.example:3128")
    with caplog.at_level(logging.INFO, "tidings.bots.main"):
        _name_the_proxies(_load(tmp_path, None))
    (line,) = caplog.messages
    assert line == (
        "the way out: telegram@main by http://joe:***@gate.example:3128 (HTTPS_PROXY); discord@main direct;"
        " slack@main by http://ann:***@inside:8080 (its own setting);"
        " assistant's model by http://joe:***@gate.example:3128 (HTTPS_PROXY)"
    )


def test_where_nothing_is_proxied_nothing_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tidings.toml").write_text(f'[telegram]\ntoken = "{TOKEN}"\n')
    with caplog.at_level(logging.INFO, "tidings.bots.main"):
        _name_the_proxies(_load(tmp_path, None))
    assert caplog.messages == []


async def test_a_kind_of_proxy_that_cannot_be_used_strands_its_platforms_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tidings.toml").write_text(
        f'[http]\nenabled = false\n[limits]\ndrain_seconds = 0\n[telegram]\ntoken = "{TOKEN}"\n'
    )
    monkeypatch.setenv("https_proxy", "socks5://me:hunter2hunter2@127.0.0.1:1080")
    loaded = _load(tmp_path, None)
    _name_the_proxies(loaded)
    made = _gateway(
        tmp_path, loaded, _http(loaded), agents.build(loaded.bots), LocalServer(), HttpServer("127.0.0.1", 0)
    )
    async with made as running, asyncio.timeout(20):
        owed = await running.desk.owe(Target(adapter="telegram", chat="7"), Body(text="hi"), cause="test")
        while (known := await running.desk.delivery(owed)).state != "held":
            assert known.state == "waiting"
            await asyncio.sleep(0.01)
        parts = {part.name: part for part in (await running.desk.health()).parts}
        assert parts["console@main"].state == "up"
        assert parts["telegram@main"].state == "misconfigured"
        for told in (parts["telegram@main"].last_error, known.reason):
            assert told.startswith("HTTPS_PROXY names socks5://me:")
            assert "only http:// and https:// proxies can be used" in told
            assert "hunter2" not in told


@pytest.mark.parametrize("wrong", ["socks5://joe:hunter2@x:1", "gate:3128", "http://", "direct"])
def test_a_wrong_setting_is_named_without_its_value(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "tidings.toml").write_text(f'[discord]\nproxy = "{wrong}"\n')
    with pytest.raises(ConfigError, match="proxy must be") as caught:
        _load(tmp_path, None)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("named", "url", "way"),
    [
        ("gate:3128", "https://api.example.org", "by http://gate:3128 (HTTPS_PROXY)"),
        ("http://gate:3128/", "wss://sockets.example.org/x", "by http://gate:3128 (HTTPS_PROXY)"),
        ("http://gate:3128", "https://inside.example.org", "direct"),
        ("http://gate:3128", "http://api.example.org", "direct"),
    ],
)
def test_the_environment_is_read_as_others_read_it(
    named: str, url: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", named)
    monkeypatch.setenv("no_proxy", "inside.example.org,localhost")
    assert str(proxy.way("", url)) == way


def test_an_account_takes_the_proxy_of_its_section_or_has_its_own() -> None:
    section = DiscordSettings(
        token="a", proxy="none", accounts={"work": {"token": "b", "proxy": "http://x:1"}, "home": {"token": "c"}}
    )
    assert [each.proxy for each in section.by_account().values()] == ["none", "http://x:1", "none"]
