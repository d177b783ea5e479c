"""The ground truth of the paper platform: what really happened, kept where the gateway cannot reach it."""

from __future__ import annotations

from tests.simulators.paper.wire import Ask, Message
from tests.simulators.shared import truth
from tidings.core.clock import Clock


class Effect(truth.Effect, frozen=True, kw_only=True):
    """An act is post, edit, draft, draft_clear, stream, append, stop, react, typing, whisper, erase or confirm.

    `message` is the message's id, the draft's id, or the event's id for a confirmation.
    """

    chat: str = ""
    thread: str = ""
    key: str = ""


class Call(truth.Call, frozen=True, kw_only=True):
    ask: Ask


class Truth(truth.Truth[Effect, Call, Message]):
    """A message's present state is kept beside the log."""

    effect, call = Effect, Call

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        # Keys of events, in order of confirmation.
        self.confirmed: list[str] = []
        self.messages: dict[str, Message] = {}
        # (chat, thread) to (account, draft id, text).
        self.drafts: dict[tuple[str, str], tuple[str, str, str]] = {}

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
