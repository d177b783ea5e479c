"""Telegram's stand in the chaos run: the real adapter over HTTP, and the simulator's truth in the paper's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What the adapter fetches when it first needs it, fetched here once for all gateways that are forked.
import pyromark  # noqa: F401
import telegramify_markdown  # noqa: F401
from pydantic import SecretStr

from tests.chaos.stand import Dye, Dyed, Ground, Stand, dyed, keep_locks_in, posted
from tests.chaos.steps import PERSON, Platform
from tests.simulators.paper.simulator import Call, Effect, Kind, Message, Odds
from tests.simulators.paper.wire import Ask, Upload
from tests.simulators.telegram.simulator import TOKEN, Entity, TelegramServer
from tests.simulators.telegram.simulator import Call as TelegramCall
from tests.simulators.telegram.simulator import Message as TelegramMessage
from tidings.adapters.shared.http_client import Timeouts
from tidings.adapters.telegram.adapter import TelegramAdapter
from tidings.adapters.telegram.client import Client
from tidings.adapters.telegram.listen import Limits
from tidings.adapters.telegram.settings import TelegramAccount
from tidings.core.adapter import Host

# A call that hangs is given up after this; a poll may take as long as it asked for.
CALL_SECONDS = 2.0
POLL_SECONDS = 4

# A chat takes one message a second and a group one in four seconds, so there are many of both.
PRIVATE_CHATS = tuple(str(chat) for chat in range(101, 161))
FORUMS = tuple(str(-1_000_000_000_200 - number) for number in range(8))
# General, and the first two that are opened in a new forum.
TOPICS = ("", "2", "3")
# Here nothing that grows is taken as a draft, so it grows by edits.
NO_DRAFTS = PRIVATE_CHATS[::3]

METHODS = {
    "sendMessage": "post",
    "sendRichMessage": "post",
    "sendDocument": "post",
    "editMessageText": "edit",
    "sendMessageDraft": "draft",
}
# How a person would have to write what they see.
MARKS = {"bold": "**", "code": "`"}


class TelegramStand(Stand):
    @property
    def people(self) -> tuple[str, ...]:
        return (PERSON, *PRIVATE_CHATS)

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        return *((chat, "") for chat in PRIVATE_CHATS), *((forum, topic) for forum in FORUMS for topic in TOPICS)

    def serve(self) -> Telegram:
        return Telegram()

    def build(self, account: str, address: str, host: Host) -> TelegramAdapter:
        keep_locks_in(host)
        settings = TelegramAccount(token=SecretStr(TOKEN), api_url=f"http://{address}")
        client = DyedClient(TOKEN, settings.api_url, timeouts=Timeouts(read=CALL_SECONDS, upload=CALL_SECONDS))
        limits = Limits(poll_seconds=POLL_SECONDS)
        return DyedAdapter(account, settings, host, limits=limits, client=client, text_units=self.platform.limit)


def telegram(odds: Odds) -> TelegramStand:
    return TelegramStand(Platform("telegram", Kind(streaming="drafts")), odds)


class DyedAdapter(Dyed, TelegramAdapter):
    """The adapter itself."""


class DyedClient(Client):
    async def call(self, method: str, parameters: Mapping[str, Any], *, seconds: float | None = None) -> Any:
        longest = POLL_SECONDS + CALL_SECONDS if method == "getUpdates" else CALL_SECONDS
        within = longest if seconds is None else min(seconds, longest)
        return await super().call(method, dyed({**parameters}), seconds=within)


class Telegram(Ground[TelegramServer]):
    """Messages are known as CHAT:NUMBER."""

    def __init__(self) -> None:
        super().__init__(TelegramServer())
        self._said: set[str] = set()

    async def _furnish(self) -> None:
        self._server.limit_rates()
        for forum in FORUMS:
            self._server.open_chat(forum, forum=True)
            opened = [self._server.open_topic(forum) for topic in TOPICS if topic]
            assert opened == [topic for topic in TOPICS if topic]
        for chat in PRIVATE_CHATS:
            self._server.open_chat(chat)
            self._server.forbid_drafts(chat, chat in NO_DRAFTS)

    def says(self, text: str, *, key: str, chat: str, thread: str, account: str) -> str:
        words = f"@tidings_bot {text}" if chat in FORUMS and not text.startswith("/") else text
        name = self._server.says(words, chat=chat, thread=thread, account=account)
        self._said.add(name)
        return name

    @property
    def confirmed(self) -> list[str]:
        """Without what the server itself had to say of its topics."""
        return [name for name in self._server.confirmed if name in self._said]

    @property
    def unconfirmed(self) -> list[str]:
        return self._server.unconfirmed

    @property
    def effects(self) -> tuple[Effect, ...]:
        return tuple(
            Effect(
                order=effect.order,
                at=effect.at,
                act=effect.act,
                account=effect.account,
                chat=effect.chat,
                thread=effect.thread,
                message=effect.message,
                text=_source(effect.text, effect.entities),
            )
            for effect in self._server.effects
        )

    @property
    def sent(self) -> tuple[Message, ...]:
        server = self._server
        posts = [(effect, effect.chat) for effect in server.effects if effect.act == "post"]
        calls = [(call, call.chat) for call in server.calls() if METHODS.get(call.method) == "post"]
        by_message = dict(posted(posts, calls))
        return tuple(_message(message, _dye(by_message[message.id])) for message in server.sent)

    def calls(self) -> tuple[Call, ...]:
        """Those that concern a chat."""
        calls = [call for call in self._server.calls() if call.chat]
        # Whoever opens a draft says for which part; whoever goes on with it does not.
        drafts = {
            call.params["draft_id"]: _dye(call).key for call in calls if "draft_id" in call.params and _dye(call).key
        }
        return tuple(
            Call(
                order=call.order,
                at=call.at,
                method=METHODS.get(call.method, call.method),
                account=call.account,
                ask=Ask(
                    chat=call.chat,
                    thread=call.thread,
                    text=call.text,
                    key=_dye(call).key,
                    message_id=f"{call.chat}:{number}" if (number := call.params.get("message_id")) else "",
                    draft_id=drafts.get(call.params.get("draft_id", ""), ""),
                ),
                verdict=call.verdict,
            )
            for call in calls
        )


def _dye(call: TelegramCall) -> Dye:
    return Dye.read(call.params.get("dye"))


def _message(message: TelegramMessage, dye: Dye) -> Message:
    return Message(
        id=message.id,
        account=message.account,
        chat=message.chat,
        thread=message.thread,
        text=_source(message.text, message.entities),
        reply_to=dye.answered,
        key=dye.key,
        at=message.at,
        order=message.order,
        files=tuple(Upload(name=file.name, data=file.data) for file in message.files),
    )


def _source(text: str, entities: tuple[Entity, ...]) -> str:
    """What stands there with its marks written out, so that it can be compared with what was owed."""
    # Two bytes for each unit in which entities count.
    units = text.encode("utf-16-le")
    marks = [(place, MARKS[each.type]) for each in entities if each.type in MARKS for place in _ends(each)]
    for place, mark in sorted(marks, reverse=True):
        units = units[: 2 * place] + mark.encode("utf-16-le") + units[2 * place :]
    return units.decode("utf-16-le")


def _ends(entity: Entity) -> tuple[int, int]:
    return entity.offset, entity.offset + entity.length
