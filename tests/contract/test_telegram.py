"""Telegram passes the contract in private chats, in groups and in topics, by polling and by webhook."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import SecretStr

from tests.contract.adapters import (
    AdapterContract,
    Door,
    Harness,
    Seen,
    Trouble,
    listening,
)
from tests.contract.simulated import SimulatedHarness
from tests.simulators.telegram.simulator import Message, TelegramServer
from tests.worlds.fakes import host
from tidings.adapters.shared.http_server import HttpServer
from tidings.adapters.telegram.adapter import TelegramAdapter
from tidings.adapters.telegram.settings import TelegramAccount
from tidings.core.clock import SystemClock
from tidings.core.types import Audience, Target

SECRET = "a-secret-of-thirty-two-characters"

NEVER_MOVES = {Trouble.MOVED: "a private chat never moves, and a supergroup has moved already"}
UNTOLD = {"amendments": "Telegram tells bots of edits, but never of deletions; edits have a scenario of their own"}


class Place(NamedTuple):
    """Where the contract is played: two chats, and a topic of the first or one that is not there."""

    here: str
    elsewhere: str
    audience: Audience
    is_forum: bool = False

    def open(self, telegram: TelegramServer) -> tuple[Target, Target, Target]:
        for chat in (self.here, self.elsewhere):
            telegram.open_chat(chat, forum=self.is_forum)
        topic = telegram.open_topic(self.here) if self.is_forum else "99"
        return self._target(self.here), self._target(self.elsewhere), self._target(self.here, topic)

    def _target(self, chat: str, thread: str = "") -> Target:
        return Target(adapter="telegram", chat=chat, thread=thread, audience=self.audience)


PRIVATE = Place("7", "8", Audience.PRIVATE)
GROUP = Place("-5", "-1000000000006", Audience.GROUP)
FORUM = Place("-1000000000005", "-1000000000006", Audience.GROUP, is_forum=True)


class TelegramHarness(SimulatedHarness[TelegramServer]):
    limit = 4096

    def __init__(
        self,
        telegram: TelegramServer,
        place: Place,
        attachments: Path,
        server: HttpServer | None = None,
        webhook_url: str = "",
    ) -> None:
        self._http = server
        self._webhook_url = webhook_url
        self._attachments = attachments
        self.here, self.elsewhere, self.thread = place.open(telegram)
        self.exempt = {**UNTOLD, **({} if place is GROUP else NEVER_MOVES)}
        super().__init__(telegram)

    def _refuse(self, on: bool) -> None:
        self._server.block(self.here.chat, on=on)

    def _revoke(self, on: bool) -> None:
        self._server.revoke("1000001:another-token" if on else self._token)

    def _move(self) -> None:
        self._server.migrate(self.here.chat, self.elsewhere.chat)

    def _seen(self, message: Message) -> Seen:
        return super()._seen(message)._replace(id=str(message.message_id) if message.id else "")

    async def says(self, text: str, *, at: Target | None = None, file: tuple[str, bytes] | None = None) -> str:
        place = at or self.here
        # In a group the bot only hears what is addressed to it.
        words = text if place.audience is Audience.PRIVATE or text.startswith("/") else f"@tidings_bot {text}"
        name = self._server.says(words, chat=place.chat, user="7", thread=place.thread, files=[file] if file else [])
        self._said.append(name)
        return name

    async def edits(self, name: str, text: str) -> None:
        self._server.edits(name, text)

    async def deletes(self, name: str) -> None:
        raise NotImplementedError

    async def presses(self, message: str, choice: str) -> None:
        self._server.presses(message, choice, self.here.chat, user="7")

    @property
    def whispers(self) -> list[str]:
        return [effect.text for effect in self._server.effects if effect.act == "answer" and effect.text]

    async def erase(self, message: str) -> None:
        self._server.erase(message, self.here.chat)

    def _build(self) -> TelegramAdapter:
        settings = TelegramAccount(
            token=SecretStr(self._token),
            api_url=f"http://{self._server.address}",
            mode="webhook" if self._http else "polling",
            webhook_url=self._webhook_url,
            webhook_secret=SecretStr(SECRET),
        )
        here = host(SystemClock(), attachments=self._attachments)
        return TelegramAdapter("main", settings, replace(here, server=self._http or here.server))


class TelegramContract(AdapterContract):
    async def test_what_could_not_be_stored_comes_again_before_what_was_said_after_it(self, platform: Harness) -> None:
        names = [await platform.says(text) for text in ("first", "second", "third")]
        door = Door(unstored=1)
        async with listening(platform, door):
            await platform.until(lambda: platform.confirmed == names)
        assert [said.text for said in door.taken] == ["first", "second", "third"]


class TestPrivateChats(TelegramContract):
    """By drafts where the server has them, by edits where it does not."""

    @pytest.fixture(params=["drafts", "edits"])
    async def platform(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
        new = request.param == "drafts"
        async with TelegramServer(rich=new, drafts=new) as telegram:
            harness = TelegramHarness(telegram, PRIVATE, tmp_path)
            yield harness
            await harness.close()


class TestGroups(TelegramContract):
    @pytest.fixture(params=[GROUP, FORUM], ids=["group", "forum"])
    async def platform(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
        async with TelegramServer() as telegram:
            harness = TelegramHarness(telegram, request.param, tmp_path)
            yield harness
            await harness.close()


class TestWebhook(TelegramContract):
    @pytest.fixture
    async def platform(self, tmp_path: Path) -> AsyncIterator[Harness]:
        port = free_port()
        async with TelegramServer(webhook_pause=0.0) as telegram, HttpServer("127.0.0.1", port) as server:
            harness = TelegramHarness(telegram, FORUM, tmp_path, server, f"http://127.0.0.1:{port}")
            yield harness
            await harness.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
