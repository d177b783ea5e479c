"""Discord passes the contract in private channels, in the channels of a server and in their threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.contract.adapters import (
    AdapterContract,
    Door,
    Harness,
    Trouble,
    listening,
)
from tests.contract.simulated import SimulatedHarness
from tests.simulators.discord.simulator import DiscordServer, Message, Person
from tests.worlds.fakes import MemoryNotebook, host
from tidings.adapters.discord import socket
from tidings.adapters.discord.adapter import DiscordAdapter
from tidings.adapters.discord.address import channel_of
from tidings.adapters.discord.settings import DiscordAccount
from tidings.core.adapter import Host, MenuItem, Receive
from tidings.core.clock import SystemClock
from tidings.core.types import Admission, Audience, Inbound, Note, Target

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


class DiscordHarness(SimulatedHarness[DiscordServer]):
    """Discord asks for no confirmation: what counts is how far the notebook says that a channel was taken in."""

    limit = 2000
    exempt = NEVER_MOVES

    def __init__(self, discord: DiscordServer, place: str, attachments: Path) -> None:
        self._discord = discord
        self._ada, self._bob = discord.person("ada"), discord.person("bob")
        self.here, self.elsewhere, self.thread = self._places(place)
        self._notebook = Diary(discord)
        self._host: Host = replace(host(SystemClock(), attachments=attachments), menu=MENU, notebook=self._notebook)
        super().__init__(discord)

    def _chat(self, place: Target) -> str:
        return channel_of(place)

    def _shown(self, place: Target) -> Sequence[Message]:
        return self._discord.visible(channel_of(place))

    def _revoke(self, on: bool) -> None:
        if on or self._discord.token != self._token:
            self._discord.revoke("another.token" if on else self._token)

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
    def whispers(self) -> list[str]:
        return [message.text for message in self._discord.sent if message.only_for]

    @property
    def confirmed(self) -> list[str]:
        return [name for name in self._said if int(name) <= self._cursor(self._discord.message(name).channel)]

    def _cursor(self, channel: str) -> int:
        return int(self._notebook.lines.get(f"cursor/{channel}", 0))

    def _refuse(self, on: bool) -> None:
        if self.here.audience is Audience.PRIVATE:
            self._ada.blocks(on)
            return
        for permission in ("send_messages", "send_messages_in_threads"):
            self._discord.permit(self.here.chat, permission, on=not on)

    def _build(self) -> DiscordAdapter:
        settings = DiscordAccount(
            token=SecretStr(self._token), api_url=self._discord.api_url, gateway_url=self._discord.gateway_url
        )
        return Noted("main", settings, self._host, limits=socket.Limits(invalid_seconds=(0.0, 0.01)))


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
