"""Shows people that the bot types, and how their message stands: seen, waiting, at work, done or failed."""

from __future__ import annotations

from telegram.error import BadRequest

from tidings.adapters.telegram.address import place_of, question_of
from tidings.adapters.telegram.client import Client, says
from tidings.core.types import Signal, Target

# A signal that comes late is worse than none.
SIGNAL_SECONDS = 3.0
# Among the few that Telegram lets a bot use everywhere.
REACTIONS = {
    Signal.SEEN: "👀",
    Signal.WAITING: "🫡",
    Signal.WORKING: "✍",
    Signal.DONE: "👍",
    Signal.FAILED: "💔",
}


class Signals:
    def __init__(self, client: Client, *, reactions: bool) -> None:
        self._client = client
        self._reactions = reactions
        # Chats that have turned a reaction down; they are not asked again by this process.
        self._refused: set[str] = set()

    async def show(self, target: Target, signal: Signal) -> None:
        """Raises TelegramError."""
        if signal is Signal.TYPING:
            call = {**place_of(target), "action": "typing"}
            await self._client.call("sendChatAction", call, seconds=SIGNAL_SECONDS)
        elif self._reactions and target.chat not in self._refused and (answered := question_of(target)):
            await self._react(target.chat, answered, signal)

    async def _react(self, chat: str, message: int, signal: Signal) -> None:
        # A bot has one reaction on a message: the new one replaces it, and an empty list takes it away.
        reaction = [] if signal is Signal.NONE else [{"type": "emoji", "emoji": REACTIONS[signal]}]
        call = {"chat_id": chat, "message_id": message, "reaction": reaction}
        try:
            await self._client.call("setMessageReaction", call, seconds=SIGNAL_SECONDS)
        except BadRequest as error:
            if says(error, ("reaction",)):
                self._refused.add(chat)
            raise
