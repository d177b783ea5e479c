"""Every platform, the API and the console in one gateway, with a hundred people on each who write to the bot alone.

    async with AllPlatforms(tmp_path, Mirror()) as world:
        for surface in world.surfaces.values():
            surface.ask("who am I?")
        for surface in world.surfaces.values():
            assert await surface.answers() == surface.right("who am I?")

AllPlatforms(home, agent, people=100)  the real adapters on simulated platforms; time is real, no platform limits rates
world.surfaces            by adapter's name; `world.outages` are those that have one: telegram, discord and slack
surface.ask(text)         everybody there says it, each in a conversation of their own
await surface.answers()   when everybody has so many answers as questions: all that was said in each place, by person
surface.right(text, ...)  what that must be after these questions
await world.break_down(name, text)  the platform goes down when everybody there has asked, and their answers are owed
await world.settled()     nothing runs, and nothing is owed
Mirror(gate)              says back what it was asked and to whom it was bound, looking several times; before that it
                          waits at the gate, if there is one
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import httpx
from pydantic import SecretStr

from tests.simulators.discord.simulator import DiscordServer
from tests.simulators.slack.simulator import SlackServer, text_of
from tests.simulators.telegram.simulator import TelegramServer
from tidings.adapters.api.adapter import ApiAdapter
from tidings.adapters.api.keys import Grant
from tidings.adapters.api.settings import HttpSettings
from tidings.adapters.console.adapter import ConsoleAdapter, _owner
from tidings.adapters.console.settings import ConsoleSettings
from tidings.adapters.discord.adapter import DiscordAdapter
from tidings.adapters.discord.settings import DiscordAccount
from tidings.adapters.local import socket
from tidings.adapters.local.socket import LocalServer
from tidings.adapters.shared.http_server import HttpServer
from tidings.adapters.slack.adapter import SlackAdapter
from tidings.adapters.slack.settings import SlackAccount
from tidings.adapters.telegram.adapter import TelegramAdapter
from tidings.adapters.telegram.settings import TelegramAccount
from tidings.core.adapter import NearbyHost, Platform
from tidings.core.agent import Event, Finished, TextDelta, Turn
from tidings.core.context import current
from tidings.core.desk.people import Scope
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.settings import Access, Core, Limits
from tidings.core.store.sqlite import DATABASE

PEOPLE = 100
PATIENCE_SECONDS = 30.0
# The same numbers name people, chats and conversations on several platforms.
FIRST = 101
KEYS = 4
END = "done"
RUNNING = "SELECT count(*) FROM inbox WHERE state IN ('waiting', 'running')"
OWED = "SELECT count(*) FROM deliveries WHERE state IN ('waiting', 'doubtful')"

Answers = dict[int, list[str]]


def _line(adapter: str, chat: str, thread: str, sender: str) -> str:
    """Without colons, which could be read as an emoji, and without anything that could be read as markup."""
    return f"in {adapter} {chat} {thread or 'alone'} to {adapter} {chat} {thread or 'alone'} for {sender}"


def _bound() -> str:
    session = current()
    where, to = session.conversation, session.target
    return (
        f"in {where.adapter} {where.chat} {where.thread or 'alone'} "
        f"to {to.adapter} {to.chat} {to.thread or 'alone'} for {session.sender.id}"
    )


class Mirror:
    def __init__(self, gate: Callable[[str], Awaitable[object]] | None = None) -> None:
        self.gate = gate

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        first = _bound()
        if self.gate is not None:
            # Without a word so far: Slack takes fifty edits a minute, and whatever has begun to show ends in one.
            await self.gate(turn.message.conversation.adapter)
        yield TextDelta(f"{turn.message.text} ")
        await asyncio.sleep(0.01)
        seen = dict.fromkeys((first, await asyncio.to_thread(_bound), await asyncio.create_task(_look()), _bound()))
        yield TextDelta(" or ".join(seen))
        yield TextDelta(f" {END}")
        yield Finished()


async def _look() -> str:
    await asyncio.sleep(0)
    return _bound()


class Surface(Protocol):
    asked: int

    def ask(self, text: str) -> None: ...
    async def answers(self) -> Answers: ...
    def right(self, *texts: str) -> Answers: ...


class Outage(Surface, Protocol):
    async def outage(self, on: bool) -> None: ...


class _Chats:
    """A platform whose ground truth says what stands in each chat."""

    name = ""

    def __init__(self, chats: Mapping[int, tuple[str, str]]) -> None:
        # Where each person writes, and who they are.
        self._chats = chats
        self.asked = 0

    def ask(self, text: str) -> None:
        self.asked += 1
        for person in self._chats:
            self._say(person, f"{text} {person}")

    def right(self, *texts: str) -> Answers:
        return {
            person: [f"{text} {person} {_line(self.name, chat, '', sender)} {END}" for text in texts]
            for person, (chat, sender) in self._chats.items()
        }

    async def answers(self) -> Answers:
        wanted = self.asked * len(self._chats)
        await self._until(lambda: sum(text.endswith(END) for _, text in self._posted()) >= wanted)
        people = {chat: person for person, (chat, _) in self._chats.items()}
        found: Answers = {person: [] for person in self._chats}
        for chat, text in self._posted():
            found[people[chat]].append(text)
        return found

    def _say(self, person: int, text: str) -> None:
        raise NotImplementedError

    def _posted(self) -> list[tuple[str, str]]:
        raise NotImplementedError

    async def _until(self, holds: Callable[[], bool]) -> None:
        raise NotImplementedError


class OnTelegram(_Chats):
    name = "telegram"

    def __init__(self, server: TelegramServer, people: int) -> None:
        super().__init__({person: (str(person), str(person)) for person in range(FIRST, FIRST + people)})
        self.server = server

    def _say(self, person: int, text: str) -> None:
        self.server.says(text, chat=person)

    def _posted(self) -> list[tuple[str, str]]:
        return [(message.chat, message.text) for message in self.server.sent]

    async def _until(self, holds: Callable[[], bool]) -> None:
        await self.server.until(lambda _: holds(), PATIENCE_SECONDS)

    async def outage(self, on: bool) -> None:
        await self.server.outage(on)


class OnDiscord(_Chats):
    name = "discord"

    def __init__(self, server: DiscordServer, people: int) -> None:
        self.server = server
        self._people = {number: server.person(f"person{number}") for number in range(FIRST, FIRST + people)}
        super().__init__({number: (each.private().id, each.id) for number, each in self._people.items()})

    def _say(self, person: int, text: str) -> None:
        self._people[person].says(self._people[person].private(), text)

    def _posted(self) -> list[tuple[str, str]]:
        return [(message.channel, message.text) for message in self.server.sent]

    async def _until(self, holds: Callable[[], bool]) -> None:
        await self.server.until(lambda _: holds(), PATIENCE_SECONDS)

    async def outage(self, on: bool) -> None:
        await self.server.outage(on)


class OnSlack(_Chats):
    name = "slack"

    def __init__(self, server: SlackServer, people: int) -> None:
        self.server = server
        self._people = {number: server.person(f"person{number}") for number in range(FIRST, FIRST + people)}
        super().__init__({number: (each.direct.id, each.id) for number, each in self._people.items()})

    def _say(self, person: int, text: str) -> None:
        self._people[person].says(self._people[person].direct, text)

    def _posted(self) -> list[tuple[str, str]]:
        return [(message.channel, text_of(message)) for message in self.server.sent]

    async def _until(self, holds: Callable[[], bool]) -> None:
        await self.server.until(lambda _: holds(), PATIENCE_SECONDS)

    async def outage(self, on: bool) -> None:
        await self.server.outage(on)


class _Talks:
    """Whoever asks here waits for the answer on the same connection."""

    def __init__(self, people: int) -> None:
        self._people = range(FIRST, FIRST + people)
        self._said: Answers = {person: [] for person in self._people}
        self._talks: list[asyncio.Task[None]] = []
        self.asked = 0

    def ask(self, text: str) -> None:
        self.asked += 1
        self._talks += [asyncio.create_task(self._talk(person, f"{text} {person}")) for person in self._people]

    async def answers(self) -> Answers:
        async with asyncio.timeout(PATIENCE_SECONDS):
            talks, self._talks = self._talks, []
            await asyncio.gather(*talks)
        return {person: list(said) for person, said in self._said.items()}

    async def _talk(self, person: int, text: str) -> None:
        raise NotImplementedError


class OnApi(_Talks):
    """A conversation has the same name under each of the keys."""

    def __init__(self, people: int) -> None:
        super().__init__(people)
        self.clients: list[tuple[str, httpx.AsyncClient]] = []

    def _place(self, person: int) -> tuple[str, str]:
        return self.clients[person % KEYS][0], f"talk{person // KEYS}"

    def right(self, *texts: str) -> Answers:
        lines = {person: _line("api", *self._place(person), self._place(person)[0]) for person in self._people}
        return {person: [f"{text} {person} {line} {END}" for text in texts] for person, line in lines.items()}

    async def _talk(self, person: int, text: str) -> None:
        response = await self.clients[person % KEYS][1].post(
            "/v1/chat/completions",
            json={"model": "bot", "messages": [{"role": "user", "content": text}]},
            headers={"X-Tidings-Conversation": self._place(person)[1]},
        )
        assert response.status_code == 200, response.text
        self._said[person].append(response.json()["choices"][0]["message"]["content"])


class OnConsole(_Talks):
    def __init__(self, home: Path, people: int) -> None:
        super().__init__(people)
        self._home = home

    def right(self, *texts: str) -> Answers:
        owner = _owner().id
        lines = {person: _line("console", str(person), "", owner) for person in self._people}
        return {person: [f"{text} {person} {line} {END}" for text in texts] for person, line in lines.items()}

    async def _talk(self, person: int, text: str) -> None:
        """Sits down in a chat of one's own, and reads on until the whole answer is there."""
        async with socket.connect(self._home) as line:
            await line.write({"verb": "chat", "chat": str(person), "thread": ""})
            await line.write({"say": text, "key": f"{person} {text}"})
            ended = whole = False
            while not (ended and whole):
                heard = await line.read()
                assert heard is not None, "the gateway hung up"
                if "part" in heard:
                    await line.write({"shown": heard["part"]})
                    if heard["kind"] == "plain":
                        self._said[person].append(heard["text"])
                        whole = True
                ended = ended or "ended" in heard


class AllPlatforms:
    def __init__(self, home: Path, mirror: Mirror, *, people: int = PEOPLE) -> None:
        self.home = home
        self._mirror = mirror
        self._people = people
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def break_down(self, name: str, text: str) -> None:
        begun, gone = asyncio.Semaphore(0), asyncio.Event()

        async def wait(adapter: str) -> None:
            if adapter == name:
                begun.release()
                await gone.wait()

        self._mirror.gate = wait
        self.outages[name].ask(text)
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(self._people):
                await begun.acquire()
        await self.outages[name].outage(True)
        gone.set()
        await self._eventually(RUNNING, 0)
        await self._eventually(OWED, self._people)
        self._mirror.gate = None

    async def settled(self) -> None:
        await self._eventually(RUNNING, 0)
        await self._eventually(OWED, 0)

    async def _eventually(self, sql: str, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with closing(sqlite3.connect(self.home / DATABASE)) as connection:
            while (found := connection.execute(sql).fetchone()[0]) != count:
                assert time.monotonic() < deadline, f"{found} and not {count}: {sql}"
                await asyncio.sleep(0.01)

    async def _open(self, stack: AsyncExitStack) -> None:
        telegram = OnTelegram(await stack.enter_async_context(TelegramServer()), self._people)
        discord = OnDiscord(await stack.enter_async_context(DiscordServer()), self._people)
        slack = OnSlack(await stack.enter_async_context(SlackServer()), self._people)
        api, console = OnApi(self._people), OnConsole(self.home, self._people)
        self.outages: dict[str, Outage] = {"telegram": telegram, "discord": discord, "slack": slack}
        self.surfaces: dict[str, Surface] = {**self.outages, "api": api, "console": console}
        local_server = await stack.enter_async_context(LocalServer())
        await stack.enter_async_context(local_server.serving(self.home))
        http_server = await stack.enter_async_context(HttpServer("127.0.0.1", 0, patience=0.0))
        allowed = [f"{each.name}:{sender}" for each in (telegram, discord, slack) for _, sender in each._chats.values()]
        self.gateway = await stack.enter_async_context(
            Gateway(
                self.home,
                Core(access=Access(allow=tuple(allowed)), limits=Limits(burst_seconds=0, drain_seconds=0)),
                self._platforms(telegram.server, discord.server, slack.server),
                Team({"bot": self._mirror}, "bot"),
                local_server,
                http_server,
            )
        )
        await telegram.server.until(lambda server: server.attached())
        await discord.server.until(lambda server: server.attached())
        await slack.server.until(lambda server: server.attached())
        for number in range(KEYS):
            secret = await self._api.keys.add(f"client{number}", Grant((Scope.CHAT,)), 0.0)
            client = httpx.AsyncClient(
                base_url=http_server.address,
                headers={"Authorization": f"Bearer {secret}"},
                timeout=PATIENCE_SECONDS,
                trust_env=False,
                verify=False,
            )
            await stack.enter_async_context(client)
            key = next(each for each in self._api.keys.all() if each.name == f"client{number}")
            api.clients.append((key.id, client))

    def _platforms(self, telegram: TelegramServer, discord: DiscordServer, slack: SlackServer) -> list[Platform]:
        on_telegram = TelegramAccount(token=SecretStr(telegram.token), api_url=f"http://{telegram.address}")
        on_discord = DiscordAccount(
            token=SecretStr(discord.token), api_url=discord.api_url, gateway_url=discord.gateway_url
        )
        on_slack = SlackAccount(
            bot_token=SecretStr(slack.token), app_token=SecretStr(slack.app_token), api_url=slack.api_url
        )
        on_http = HttpSettings(port=0)
        return [
            Platform("telegram", "main", lambda host: TelegramAdapter("main", on_telegram, host)),
            Platform("discord", "main", lambda host: DiscordAdapter("main", on_discord, host)),
            Platform("slack", "main", lambda host: SlackAdapter("main", on_slack, host)),
            Platform("api", "main", lambda host: self._build_api(on_http, host), nearby=True),
            Platform("console", "main", lambda host: ConsoleAdapter("main", ConsoleSettings(), host), nearby=True),
        ]

    def _build_api(self, settings: HttpSettings, host: NearbyHost) -> ApiAdapter:
        self._api = ApiAdapter("main", settings, host)
        return self._api
