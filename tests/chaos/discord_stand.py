"""Discord's stand in the chaos run: the real adapter over HTTP and a socket, and what is true in the paper's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from pydantic import SecretStr

from tests.chaos.stand import Dye, Dyed, Ground, Stand, dyed, keep_locks_in
from tests.chaos.steps import PERSON, Platform, Say
from tests.simulators.discord.places import PRIVATE, TEXT, THREAD, User
from tests.simulators.discord.simulator import TOKEN, Channel, DiscordServer, Person
from tests.simulators.discord.simulator import Call as DiscordCall
from tests.simulators.discord.simulator import Message as DiscordMessage
from tests.simulators.paper.simulator import Call, Effect, Kind, Message, Odds
from tests.simulators.paper.wire import Ask, Upload
from tidings.adapters.discord.adapter import DiscordAdapter
from tidings.adapters.discord.address import channel_of, handle_of
from tidings.adapters.discord.client import Client
from tidings.adapters.discord.settings import DiscordAccount
from tidings.adapters.discord.socket import Limits
from tidings.adapters.shared.http_client import Timeouts
from tidings.core.adapter import Host
from tidings.core.types import Part

# A call that hangs is given up after this, and so is getting in.
CALL_SECONDS = 2.0
CONNECT_SECONDS = 5.0
# Real ones last a minute and minutes.
SHUT_OUT_SECONDS = 1.0
RESUME_SECONDS = 5.0
# How long a person waits for a first word after a command, and then reads that there was none.
ANSWER_SECONDS = 3.0

# Ids as Discord has them, and the same in each run: those of people, then those of places.
_ids = map(str, count(700_000_000_000_000_001))
# A channel takes one message a second, so there are many.
FRIENDS = tuple(next(_ids) for _ in range(16))
PRIVATES = {next(_ids): friend for friend in FRIENDS}
CHANNELS = tuple(next(_ids) for _ in range(6))
# In each channel: one that a person has opened, and one that is the bot's own; each answer opens another.
THREADS = {next(_ids): channel for channel in CHANNELS for _ in range(2)}
OWN_THREADS = tuple(THREADS)[1::2]

# Picked from a menu where somebody listens; else they are typed.
SLASHED = ("/status", "/whoami", "/new")

METHODS = {
    "send": "post",
    "follow_up": "post",
    "edit": "edit",
    "edit_original": "edit",
    "edit_follow_up": "edit",
}
_TABLE = re.compile(r"```\n(.*?)\n```", re.DOTALL)


class DiscordStand(Stand):
    @property
    def people(self) -> tuple[str, ...]:
        return (PERSON, *FRIENDS)

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        rooms = (*PRIVATES, *CHANNELS)
        return *((chat, "") for chat in rooms), *((chat, thread) for thread, chat in THREADS.items())

    def serve(self) -> Discord:
        return Discord(self.platform.name)

    def build(self, account: str, address: str, host: Host) -> DiscordAdapter:
        keep_locks_in(host)
        settings = DiscordAccount(
            token=SecretStr(TOKEN),
            api_url=f"http://{address}/api/v10",
            gateway_url=f"ws://{address}/gateway",
            threads=True,
        )
        client = DyedClient(
            TOKEN,
            settings.api_url,
            account,
            timeouts=Timeouts(read=CALL_SECONDS, upload=CALL_SECONDS),
            shut_out_seconds=SHUT_OUT_SECONDS,
        )
        limits = Limits(connect_seconds=CONNECT_SECONDS)
        return DyedAdapter(account, settings, host, limits=limits, client=client, text_limit=self.platform.limit)


def discord(odds: Odds) -> DiscordStand:
    return DiscordStand(Platform("discord", Kind(keyed_for=90.0, readback=True, streaming="edits")), odds)


class DyedAdapter(Dyed, DiscordAdapter):
    def _answered(self, part: Part) -> str:
        target = part.target
        if token := handle_of(target).token:
            return f"interaction:{token.removeprefix('token-of-')}"
        is_opener = target.reply_to == target.thread
        return f"{target.chat if is_opener else channel_of(target)}:{target.reply_to}"


class DyedClient(Client):
    async def call(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        params: Mapping[str, str | int] | None = None,
        files: Sequence[tuple[str, bytes]] = (),
        seconds: float | None = None,
        budget: str = "",
    ) -> Any:
        said = dyed(json) if isinstance(json, dict) else json
        seconds = CALL_SECONDS if seconds is None else min(seconds, CALL_SECONDS)
        return await super().call(method, path, said, params=params, files=files, seconds=seconds, budget=budget)


class ToldOnce(NamedTuple):
    """A command that was picked from a menu. Discord tells of it once, and waits a moment for a first word."""

    at: float
    # Else Discord itself has told the person that nobody answers.
    is_heard: bool


class Discord(Ground[DiscordServer]):
    """What is said has the gateway's own names."""

    def __init__(self, name: str) -> None:
        super().__init__(DiscordServer(resume_seconds=RESUME_SECONDS))
        self._name = name
        # Who speaks, by the chat.
        self._people: dict[str, Person] = {}

    async def _furnish(self) -> None:
        server = self._server
        server.limit_rates()
        guild = server.guild()
        ada = self._person(PERSON)
        for number, channel in enumerate(CHANNELS):
            server.places.add(Channel(channel, TEXT, f"channel{number}", guild.id))
            self._people[channel] = ada
        for number, (thread, channel) in enumerate(THREADS.items()):
            owner = server.bot.id if thread in OWN_THREADS else ada.id
            server.places.add(Channel(thread, THREAD, f"thread{number}", guild.id, parent=channel, owner=owner))
        for private, friend in PRIVATES.items():
            self._people[private] = self._person(friend)
            server.places.add(Channel(private, PRIVATE, account="main", person=friend))

    # Nobody confirms anything to Discord; what was taken in is in the database.
    @property
    def confirmed(self) -> list[str]:
        return []

    @property
    def unconfirmed(self) -> list[str]:
        return []

    def _person(self, id: str) -> Person:
        user = self._server.places.users[id] = User(id, f"person{id}")
        return Person(self._server, user)

    async def introduce(self) -> list[Say]:
        """Everybody writes in private once: where that never happened, nobody can find what was said meanwhile."""
        await self.until(lambda _: self._server.attached(), CALL_SECONDS * 5)
        return [
            Say(self.says("plain", key="", chat=chat, thread="", account="main"), f"{self._name}@main", "plain", chat)
            for chat in PRIVATES
        ]

    def says(self, text: str, *, key: str, chat: str, thread: str, account: str) -> str:
        person, channel = self._people[chat], thread or chat
        if text in SLASHED and self._server.attached():
            return f"interaction:{person.commands(text, channel)}"
        return f"{channel}:{person.says(channel, text, mention=chat in CHANNELS and thread not in OWN_THREADS)}"

    @property
    def told_once(self) -> dict[str, ToldOnce]:
        asked = self._server.truth.interactions.values()
        return {f"interaction:{each.id}": ToldOnce(each.at, bool(each.answer)) for each in asked}

    @property
    def effects(self) -> tuple[Effect, ...]:
        return tuple(
            Effect(
                order=effect.order,
                at=effect.at,
                act=effect.act,
                account=effect.account,
                chat=self._place(effect.channel)[0],
                thread=self._place(effect.channel)[1],
                message=effect.message,
                text=source(effect.text),
            )
            for effect in self._server.effects
        )

    @property
    def sent(self) -> tuple[Message, ...]:
        nonces = {call.nonce: _dye(call) for call in self._server.calls("send")}
        dyed = [call for call in self._server.calls() if any(_dye(call))]
        answers = {token: _dye(call) for call in dyed if (token := _token(call))}
        return tuple(
            self._message(message, nonces.get(message.nonce) or answers[f"token-of-{message.interaction}"])
            for message in self._server.sent
        )

    def calls(self) -> tuple[Call, ...]:
        """Those that concern a channel, or the answer to a command."""
        tokens = {each.token: each.channel for each in self._server.truth.interactions.values()}
        found = []
        for call in self._server.calls():
            if not (channel := call.channel or tokens.get(_token(call), "")):
                continue
            chat, thread = self._place(channel)
            message = call.path.split("/")[4] if call.method == "edit" else ""
            ask = Ask(chat=chat, thread=thread, text=call.text, key=_dye(call).key, message_id=message)
            method = METHODS.get(call.method, call.method)
            found.append(
                Call(order=call.order, at=call.at, method=method, account=call.account, ask=ask, verdict=call.verdict)
            )
        return tuple(found)

    def _message(self, message: DiscordMessage, dye: Dye) -> Message:
        chat, thread = self._place(message.channel)
        if not thread and f"{chat}:{message.channel}" != dye.answered and message.channel != chat:
            # It stands in the thread of another message.
            thread = message.channel
        return Message(
            id=message.id,
            account=message.account,
            chat=chat,
            thread=thread,
            text=source(message.text),
            reply_to=dye.answered,
            key=dye.key,
            at=message.at,
            order=message.order,
            # Discord takes no colon in a file's name, and ours have no other sign that it minds.
            files=tuple(Upload(name=file.name.replace("_", ":"), data=file.data) for file in message.files),
        )

    def _place(self, channel: str) -> tuple[str, str]:
        """A thread that an answer has opened stands where its message was said."""
        found = self._server.places.channels.get(channel)
        if found is None or not found.is_thread:
            return channel, ""
        return found.parent, "" if channel in self._server.truth.messages else channel


def _dye(call: DiscordCall) -> Dye:
    return Dye.read(call.body.get("dye") if isinstance(call.body, dict) else "")


def _token(call: DiscordCall) -> str:
    """Of the command that it answers."""
    return call.path.split("/")[3] if call.path.startswith(("/webhooks/", "/interactions/")) else ""


def source(text: str) -> str:
    """What stands there as it was written, so that it can be compared with what was owed."""
    return _TABLE.sub(lambda found: "\n".join(map(_row, found[1].split("\n"))), text)


def _row(line: str) -> str:
    if not line.strip("-+"):
        return "|" + "---|" * len(line.split("+"))
    return f"| {' | '.join(cell.strip() for cell in line.split('|'))} |"
