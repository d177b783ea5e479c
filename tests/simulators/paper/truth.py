"""The ground truth of the paper platform: what really happened, kept where the gateway cannot reach it."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from tests.simulators.paper.wire import Ask, Message
from tidings.core.clock import Clock
from tidings.core.types import Value


class Effect(Value, frozen=True, kw_only=True):
    """One thing that changed the platform; `order` counts all effects."""

    order: int
    at: float
    # post, edit, draft, draft_clear, stream, append, stop, react, typing, erase or confirm.
    act: str
    account: str
    chat: str = ""
    thread: str = ""
    # The message's id, the draft's id, or the event's id for a confirmation.
    message: str = ""
    text: str = ""
    key: str = ""


class Call(Value, frozen=True, kw_only=True):
    """One call as it arrived; its verdict is empty while it is open.

    A verdict is "ok", the code of a refusal, or "lost before" and "lost after" the effect when the
    caller never heard.
    """

    order: int
    at: float
    method: str
    account: str
    ask: Ask
    verdict: str = ""


class Truth:
    """Append-only; a message's present state is kept beside the log."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.effects: list[Effect] = []
        self.calls: list[Call] = []
        # Keys of events, in order of confirmation.
        self.confirmed: list[str] = []
        self.messages: dict[str, Message] = {}
        # (chat, thread) to (account, draft id, text).
        self.drafts: dict[tuple[str, str], tuple[str, str, str]] = {}
        self.changed = asyncio.Event()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def log(
        self,
        act: str,
        account: str,
        *,
        chat: str = "",
        thread: str = "",
        message: str = "",
        text: str = "",
        key: str = "",
    ) -> int:
        order = len(self.effects) + 1
        self.effects.append(
            Effect(
                order=order,
                at=self.clock.wall(),
                act=act,
                account=account,
                chat=chat,
                thread=thread,
                message=message,
                text=text,
                key=key,
            )
        )
        self.wake()
        return order

    def arrived(self, method: str, account: str, ask: Ask) -> Call:
        call = Call(order=len(self.calls), at=self.clock.wall(), method=method, account=account, ask=ask)
        self.calls.append(call)
        self.wake()
        return call

    def decided(self, call: Call, verdict: str) -> None:
        self.calls[call.order] = replace(call, verdict=verdict)
        self.wake()

    def sent(self, chat: str | None = None, thread: str | None = None) -> tuple[Message, ...]:
        """What the bot wrote and nobody erased, oldest first."""
        return tuple(
            message
            for message in self.messages.values()
            if not message.sender and chat in (None, message.chat) and thread in (None, message.thread)
        )

    def visible(self, chat: str, thread: str) -> tuple[Message, ...]:
        shown = self.sent(chat, thread)
        draft = self.drafts.get((chat, thread))
        if draft is None:
            return shown
        account, draft_id, text = draft
        return (
            *shown,
            Message(
                id="",
                account=account,
                chat=chat,
                thread=thread,
                text=text,
                reply_to="",
                key=draft_id,
                at=self.clock.wall(),
                order=len(self.effects),
                streaming=True,
            ),
        )
