"""Seeded bugs in the Telegram adapter: offsets, doubts, topics and floods.

The adapter is imported by who becomes one of these, and by nobody else: its library takes half a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.chaos.mutation_seams import later, swap
from tidings.core.adapter import Receive
from tidings.core.inbound import inbox
from tidings.core.store.store import Transaction
from tidings.core.types import Target


def offset_before_the_commit() -> None:
    """Telegram forgets an update that is only in memory yet."""
    from tidings.adapters.telegram.listen import Intake

    real = Intake.take

    async def take(self: Intake, update: dict[str, Any], receive: Receive) -> None:
        later(real(self, update, receive))

    swap(Intake, "take", take)


def doubtful_call_repeated() -> None:
    """A call without a verdict is simply made once more."""
    from tidings.adapters.telegram.client import Client, Unanswered

    real = Client.call

    async def call(self: Client, method: str, parameters: Mapping[str, Any], *, seconds: float | None = None) -> Any:
        try:
            return await real(self, method, parameters, seconds=seconds)
        except Unanswered:
            return await real(self, method, parameters, seconds=seconds)

    swap(Client, "call", call)


def topic_dropped_from_a_send() -> None:
    """What belongs into a topic appears in General."""
    from tidings.adapters.telegram import adapter

    def place(target: Target) -> dict[str, Any]:
        return {"chat_id": target.chat}

    swap(adapter, "place_of", place)


def plain_words_after_a_flood() -> None:
    """Whoever is asked to wait says it at once in plainer words."""
    from tidings.adapters.telegram.adapter import TelegramAdapter
    from tidings.adapters.telegram.client import Flooded
    from tidings.adapters.telegram.render import Rendered

    real = TelegramAdapter._say

    async def say(self: TelegramAdapter, method: str, call: dict[str, Any], text: str | Rendered) -> Any:
        try:
            return await real(self, method, call, text)
        except Flooded:
            plain = text if isinstance(text, str) else text.text
            return await self._client.call(method, {**call, "text": plain})

    swap(TelegramAdapter, "_say", say)


def flood_on_a_draft_opens_a_message() -> None:
    """A draft that must wait is taken for one that is not allowed."""
    from telegram.error import TelegramError

    from tidings.adapters.telegram import adapter
    from tidings.adapters.telegram.client import Flooded

    real = adapter._refuses_draft

    def refuses_draft(error: TelegramError) -> bool:
        return isinstance(error, Flooded) or real(error)

    swap(adapter, "_refuses_draft", refuses_draft)


def old_button_stops_what_runs_now() -> None:
    """Whichever answer the button stood below."""

    def is_shown_in(tx: Transaction, run: str, handle: str) -> bool:
        return True

    swap(inbox, "is_shown_in", is_shown_in)


def button_of_an_older_server() -> None:
    """Whoever does not know the button is not asked again without it."""
    from tidings.adapters.telegram import adapter

    def says(error: Exception, fragments: Iterable[str]) -> bool:
        return "can_stop" not in fragments and any(each in str(error).lower() for each in fragments)

    swap(adapter, "says", says)
