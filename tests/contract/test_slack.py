"""Slack passes the contract in direct messages, in threads of channels and in the assistant's pane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from pydantic import SecretStr

from tests.contract.adapters import (
    PATIENCE_SECONDS,
    AdapterContract,
    Door,
    Harness,
    Seen,
    Trouble,
    opened,
    send_all,
)
from tests.contract.simulated import SimulatedHarness
from tests.simulators.slack.simulator import Channel, Message, Person, SlackServer, choices_of, text_of
from tests.worlds.builders import part
from tests.worlds.fakes import host
from tidings.adapters.shared.http_server import HttpServer
from tidings.adapters.slack import render
from tidings.adapters.slack.adapter import SlackAdapter
from tidings.adapters.slack.address import Handle
from tidings.adapters.slack.settings import SlackAccount
from tidings.adapters.slack.socket import Limits
from tidings.core.adapter import Host, MenuItem
from tidings.core.clock import SystemClock
from tidings.core.errors import ViewLost
from tidings.core.types import Audience, Body, PartKind, Target

NEVER_MOVES: Mapping[str, str] = {Trouble.MOVED: "no channel or thread of Slack's ever becomes another"}
MENU = (MenuItem("whoami", "say who you are"),)


async def knows_all(conversation: str) -> bool:
    """The bot is part of every thread: a mention, of which Slack tells twice, is not needed."""
    return True


# Time is real here, and an outage may cost several tries.
IMPATIENT = Limits(ping_seconds=0.2, pauses=(0.05,) * 20)


class Places(NamedTuple):
    here: Target
    elsewhere: Target
    thread: Target


class SlackHarness(SimulatedHarness[SlackServer]):
    """What was said is confirmed under the name of its message, by whichever way it was told."""

    limit = render.LIMIT
    exempt = NEVER_MOVES

    def __init__(self, slack: SlackServer, place: str, attachments: Path, server: HttpServer | None = None) -> None:
        self._slack = slack
        # Names are learned on the way; a message that is told twice is to be the same to the letter.
        slack.drop_scope(slack.main, "users:read")
        self._ada, self._bob = slack.person("ada"), slack.person("bob")
        self._room, self._hall = slack.channel("room"), slack.channel("hall")
        self._native = place != "pane"
        self._http = server
        self.here, self.elsewhere, self.thread = self._places(place)
        made = replace(host(SystemClock(), attachments=attachments), menu=MENU, knows=knows_all)
        self._host: Host = replace(made, server=server) if server else made
        super().__init__(slack)

    def _refuse(self, on: bool) -> None:
        if on:
            self._slack.fail_next("is_archived")

    def _revoke(self, on: bool) -> None:
        self._slack.revoke(self._slack.main, "" if on else self._token)

    def _places(self, place: str) -> Places:
        ada, bob = self._ada.direct, self._bob.direct
        if place == "private":
            below = self._ada.says(ada, "before").ts
            return Places(_target(ada), _target(bob), _target(ada, below))
        if place == "pane":
            handle = Handle(assistant=True)
            first, second = (self._ada.opens_assistant().ts for _ in range(2))
            other = self._bob.opens_assistant().ts
            return Places(_target(ada, first, handle), _target(bob, other, handle), _target(ada, second, handle))
        # With whom a stream is for.
        mine = Handle(team=self._slack.main.id, user=self._ada.id)
        theirs = Handle(team=self._slack.main.id, user=self._bob.id)
        inside, beside = (self._ada.says(self._room, word).ts for word in ("inside", "beside"))
        far = self._bob.says(self._hall, "far").ts
        return Places(
            _target(self._room, inside, mine), _target(self._hall, far, theirs), _target(self._room, beside, mine)
        )

    async def acquaint(self) -> None:
        """It has been here before, and heard how the threads began; Slack knows where to send events."""
        task = asyncio.create_task(self.adapter.listen(Door()))
        try:
            await self._attached()
            await self.until(lambda: not self._slack.unconfirmed)
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def says(self, text: str, *, at: Target | None = None, file: tuple[str, bytes] | None = None) -> str:
        place = at or self.here
        channel = self._slack.main.channels[place.chat]
        said = self._person(place).says(channel, text, thread=place.thread, files=[file] if file else [])
        self._said.append(said.id)
        return said.id

    def _person(self, place: Target) -> Person:
        return self._bob if place == self.elsewhere else self._ada

    async def tells_again(self, name: str) -> None:
        # Slack signs it anew, and not within the same second.
        self._slack.skew += 1.0
        self._slack.redeliver(name)

    async def edits(self, name: str, text: str) -> None:
        self._ada.edits(self._slack.message(name), text)

    async def deletes(self, name: str) -> None:
        self._ada.deletes(self._slack.message(name))

    async def presses(self, message: str, choice: str) -> None:
        # A press is told once, to who is there.
        await self._attached()
        self._ada.presses(self._slack.message(message), choice)

    @property
    def whispers(self) -> list[str]:
        return [text_of(message) for message in self._slack.whispers]

    async def _attached(self) -> None:
        """A socket is open, or a request that Slack makes to be sure is answered."""
        if self._http is None:
            await self.until(self._slack.attached)
            return
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    await self._slack.send_events_to(f"{self._http.address}/slack/events")
                    return
                except (LookupError, ValueError):
                    # Not open yet.
                    await asyncio.sleep(0.005)

    async def erase(self, message: str) -> None:
        self._slack.erase(self._slack.message(message))

    def _build(self) -> SlackAdapter:
        settings = SlackAccount(
            bot_token=SecretStr(self._token),
            app_token=SecretStr("" if self._http else self._slack.app_token),
            signing_secret=SecretStr(self._slack.secret if self._http else ""),
            api_url=self._slack.api_url,
            native_streams=self._native,
        )
        return SlackAdapter("main", settings, self._host, limits=IMPATIENT)

    def _seen(self, message: Message) -> Seen:
        files = tuple((file.name, file.data) for file in message.files)
        # Below a stream that says nothing yet Slack moves some dots.
        text = text_of(message) or ("…" if message.streaming else "")
        return Seen(message.id, text, files, tuple(button.id for button in choices_of(message)))


def quick() -> SlackServer:
    """With Slack's own pauses shortened, since the time is real; an outage may cost several tries."""
    return SlackServer(ack_seconds=0.4, retry_seconds=(0.0, *[0.1] * 30))


def _target(channel: Channel, thread: str = "", handle: Handle | None = None) -> Target:
    audience = Audience.PRIVATE if channel.kind == "im" else Audience.GROUP
    return Target(
        adapter="slack", chat=channel.id, thread=thread, audience=audience, handle=(handle or Handle()).write()
    )


@pytest.mark.parametrize("platform", ["private", "thread", "pane"], indirect=True)
class TestSlack(AdapterContract):
    """By Socket Mode. What grows is a native stream in a thread, and an edited message elsewhere."""

    @pytest.fixture
    async def platform(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
        async with quick() as slack:
            harness = SlackHarness(slack, request.param, tmp_path)
            await harness.acquaint()
            yield harness
            await harness.close()

    async def test_the_end_of_a_long_answer_can_be_shown_and_its_parts_follow_the_view(self, platform: Harness) -> None:
        """A long text cannot take the place of a stream, which goes away then: the parts stand where it stood."""
        if not msgspec.json.decode(platform.here.handle or "{}").get("team"):
            await super().test_the_end_of_a_long_answer_can_be_shown_and_its_parts_follow_the_view(platform)
            return
        bodies = platform.adapter.compose(platform.here, Body(text=" ".join(["word"] * platform.limit)))
        view = await opened(platform, part("…", to=platform.here, kind=PartKind.OPENING))
        view = await platform.adapter.show(view, bodies[-1].text)
        with pytest.raises(ViewLost):
            await send_all(platform, bodies, view)
        assert platform.visible() == []
        await send_all(platform, bodies)
        assert [seen.text for seen in platform.visible(platform.here)] == [body.text for body in bodies]


class _ByRequests:
    @pytest.fixture
    async def platform(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
        async with quick() as slack, HttpServer("127.0.0.1", 0, patience=0.0) as server:
            harness = SlackHarness(slack, request.param, tmp_path, server)
            await harness.acquaint()
            yield harness
            await harness.close()


# What comes in by signed requests; what goes out does not differ. Requests are made side by side and come in no order:
# by when each was said the core has to sort them.
INBOUND = (
    "test_a_message_is_confirmed_only_after_it_was_received",
    "test_what_could_not_be_stored_is_not_confirmed_and_comes_again",
    "test_one_chat_that_waits_does_not_keep_another_waiting",
    "test_a_message_that_is_told_twice_has_the_same_key",
    "test_messages_with_the_same_text_have_keys_of_their_own",
    "test_a_message_knows_where_it_was_said_and_by_whom",
    "test_an_answer_appears_where_the_message_was_said_and_nowhere_else",
    "test_a_command_is_told_as_one",
    "test_an_edit_and_a_deletion_name_the_message_and_have_keys_of_their_own",
    "test_an_attachment_can_be_fetched",
    "test_an_attachment_that_is_not_there_is_a_typed_error",
    "test_cancelling_listen_stops_it_at_once",
    "test_what_was_said_during_an_outage_comes_afterwards",
    "test_wrong_credentials_end_listen_with_misconfigured",
    "test_buttons_are_shown_and_can_be_pressed",
)
by_requests = type("TestSlackByRequests", (_ByRequests,), {name: vars(AdapterContract)[name] for name in INBOUND})
TestSlackByRequests = pytest.mark.parametrize("platform", ["private", "thread"], indirect=True)(by_requests)
