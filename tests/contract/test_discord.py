"""Discord passes the contract in private channels, in the channels of a server and in their threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.contract.adapters import (
    PATIENCE_SECONDS,
    PAUSE_SECONDS,
    AdapterContract,
    Door,
    Harness,
    Seen,
    Trouble,
    listening,
)
from tests.simulators.discord.simulator import DiscordServer, Person
from tests.worlds.fakes import MemoryNotebook, host
from tidings.adapters.discord import socket
from tidings.adapters.discord.adapter import DiscordAdapter
from tidings.adapters.discord.address import channel_of
from tidings.adapters.discord.settings import DiscordAccount
from tidings.core.adapter import Adapter, Host, MenuItem, Receive
from tidings.core.clock import SystemClock
from tidings.core.types import Admission, Audience, Capabilities, Inbound, Note, Target

NEVER_MOVES: Mapping[str, str] = {Trouble.MOVED: "no channel or thread of Discord's ever becomes another"}
MENU = (MenuItem("whoami", "say who you are"),)


class Diary(MemoryNotebook):
    """Whoever waits for the platform looks again when something was written down."""

    def __init__(self, discord: DiscordServer) -> None:
        super().__init__()
        self._discord = discord

    async def write(self, name: str, value: str) -> None:
        await super().write(name, value)
        self._discord.truth.wake()


class Noted(DiscordAdapter):
    """Writes down with each message how far it has come, as the gateway's own door does."""

    async def listen(self, receive: Receive) -> None:
        async def take(inbound: Inbound, note: Note | None = None) -> Admission:
            admission = await receive(inbound, note)
            if note is not None:
                await self._host.notebook.write(note.name, note.value)
            return admission

        await super().listen(take)


class DiscordHarness:
    """Discord asks for no confirmation: what counts is how far the notebook says that a channel was taken in."""

    limit = 2000
    exempt = NEVER_MOVES

    def __init__(self, discord: DiscordServer, place: str, attachments: Path) -> None:
        self._discord = discord
        self._token = discord.token
        self._ada, self._bob = discord.person("ada"), discord.person("bob")
        self._said: list[str] = []
        self.here, self.elsewhere, self.thread = self._places(place)
        self._notebook = Diary(discord)
        self._host: Host = replace(host(SystemClock(), attachments=attachments), menu=MENU, notebook=self._notebook)
        self.made: list[DiscordAdapter] = []
        self.adapter: Adapter = self._new()

    def _places(self, place: str) -> tuple[Target, Target, Target]:
        if place == "private":
            mine, other = self._ada.private().id, self._bob.private().id
            return (
                _target(mine, Audience.PRIVATE),
                _target(other, Audience.PRIVATE),
                _target(mine, Audience.PRIVATE, 99),
            )
        room, hall = self._discord.channel("room"), self._discord.channel("hall")
        beside, inside = (self._ada.opens_thread(room, name).id for name in ("beside", "inside"))
        if place == "channel":
            return _target(room.id), _target(hall.id), _target(room.id, thread=beside)
        far = self._ada.opens_thread(hall, "far").id
        return _target(room.id, thread=inside), _target(hall.id, thread=far), _target(room.id, thread=beside)

    @property
    def can(self) -> Capabilities:
        return self.adapter.can(self.here)

    async def acquaint(self) -> None:
        """It has been here before: what is said before a bot's first day is nobody's business."""
        places = [self.here, self.elsewhere, *([self.thread] if self.can.threads else [])]
        door = Door()
        async with listening(self, door):
            await self.until(self._discord.attached)
            for place in places:
                await self.says("hello", at=place)
            await self.until(lambda: len(self.confirmed) == len(places))
        self._said.clear()

    async def says(self, text: str, *, at: Target | None = None, file: tuple[str, bytes] | None = None) -> str:
        place = at or self.here
        is_private = place.audience is Audience.PRIVATE
        # In a channel the bot only hears what is addressed to it.
        name = self._person(place).says(channel_of(place), text, mention=not is_private, files=[file] if file else [])
        self._said.append(name)
        return name

    def _person(self, place: Target) -> Person:
        return self._bob if place == self.elsewhere else self._ada

    async def tells_again(self, name: str) -> None:
        self._discord.redeliver(name)

    async def edits(self, name: str, text: str) -> None:
        is_private = self.here.audience is Audience.PRIVATE
        self._ada.edits(name, text if is_private else f"<@{self._discord.bot.id}> {text}")

    async def deletes(self, name: str) -> None:
        self._ada.deletes(name)

    async def presses(self, message: str, choice: str) -> None:
        # A press is told once, to who is there.
        await self.until(self._discord.attached)
        self._ada.presses(message, choice)

    @property
    def confirmed(self) -> list[str]:
        return [name for name in self._said if int(name) <= self._cursor(self._discord.message(name).channel)]

    def _cursor(self, channel: str) -> int:
        return int(self._notebook.lines.get(f"cursor/{channel}", 0))

    def visible(self, at: Target | None = None) -> list[Seen]:
        places = [at] if at else [self.here, self.thread, self.elsewhere]
        return [
            Seen(
                message.id,
                message.text,
                tuple((file.name, file.data) for file in message.files),
                tuple(button.id for button in message.choices),
            )
            for place in places
            for message in self._discord.visible(channel_of(place))
        ]

    @property
    def typings(self) -> int:
        return len(self._discord.typing_times(channel_of(self.here)))

    @property
    def reactions(self) -> int:
        return len(self._discord.reactions)

    async def trouble(self, trouble: Trouble) -> None:
        match trouble:
            case Trouble.RATE_LIMITED:
                self._discord.fail_next(429, retry_after=PAUSE_SECONDS)
            case Trouble.REFUSED:
                self._refuse(True)
            case Trouble.MISCONFIGURED:
                self._discord.revoke("another.token")
            case Trouble.UNREACHABLE:
                await self._discord.outage(True)
            case Trouble.LOST_BEFORE:
                self._discord.drop_next(after_effect=False)
            case Trouble.LOST_AFTER:
                self._discord.drop_next(after_effect=True)
            case Trouble.MOVED:
                raise NotImplementedError

    def _refuse(self, on: bool) -> None:
        if self.here.audience is Audience.PRIVATE:
            self._ada.blocks(on)
            return
        for permission in ("send_messages", "send_messages_in_threads"):
            self._discord.permit(self.here.chat, permission, on=not on)

    async def heal(self) -> None:
        self._discord.heal()
        self._refuse(False)
        if self._discord.token != self._token:
            self._discord.revoke(self._token)
        await self._discord.outage(False)

    async def erase(self, message: str) -> None:
        self._discord.erase(message)

    async def reborn(self) -> DiscordAdapter:
        return self._new()

    async def until(self, holds: Callable[[], object]) -> None:
        await self._discord.until(lambda _: holds(), timeout=PATIENCE_SECONDS)

    async def close(self) -> None:
        for adapter in self.made:
            await adapter.close()

    def _new(self) -> DiscordAdapter:
        settings = DiscordAccount(
            token=SecretStr(self._token), api_url=self._discord.api_url, gateway_url=self._discord.gateway_url
        )
        adapter = Noted("main", settings, self._host, limits=socket.Limits(invalid_seconds=(0.0, 0.01)))
        self.made.append(adapter)
        return adapter


def _target(chat: str, audience: Audience = Audience.GROUP, thread: str | int = "") -> Target:
    return Target(adapter="discord", chat=chat, thread=str(thread), audience=audience)


@pytest.mark.parametrize("platform", ["private", "channel", "thread"], indirect=True)
class TestDiscord(AdapterContract):
    @pytest.fixture
    async def platform(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
        async with DiscordServer() as discord:
            harness = DiscordHarness(discord, request.param, tmp_path)
            await harness.acquaint()
            yield harness
            await harness.close()

    async def test_what_could_not_be_stored_comes_again_before_what_was_said_after_it(self, platform: Harness) -> None:
        """What was said while nobody listened, and what is said now."""
        names = [await platform.says(text) for text in ("first", "second")]
        door = Door(unstored=1)
        async with listening(platform, door):
            names.append(await platform.says("third"))
            await platform.until(lambda: platform.confirmed == names)
        assert [said.text for said in door.taken] == ["first", "second", "third"]
