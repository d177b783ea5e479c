"""Seeded bugs among many people: silence that fails, bots and attention without end, replies that count."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.chaos.mutation_seams import swap
from tidings.adapters.telegram.parse import Reader
from tidings.core.agent import Finished, Outcome, Turn
from tidings.core.inbound.attention import Attention, Heard
from tidings.core.inbound.bot_exchanges import BotExchanges
from tidings.core.runs import runner
from tidings.core.runs.transcript import Transcript
from tidings.core.store.store import Transaction
from tidings.core.types import Inbound


def overheard_silence_fails() -> None:
    """Whoever says something in a group gets a warning, because the bot had nothing to add."""
    real = runner._outcome

    def outcome(finished: Finished, transcript: Transcript, turn: Turn) -> Outcome:
        awaited = msgspec.structs.replace(turn.message, overheard=False)
        return real(finished, transcript, msgspec.structs.replace(turn, message=awaited))

    swap(runner, "_outcome", outcome)


def bots_answered_without_end() -> None:
    """Every message of a bot that is let in is answered."""

    def admits(self: BotExchanges, tx: Transaction, inbound: Inbound) -> bool:
        return True

    swap(BotExchanges, "admits", admits)


def bots_counted_in_memory() -> None:
    """The count begins anew with each start."""

    async def recover(self: BotExchanges) -> None:
        await self._store.insist(lambda tx: tx.execute("DELETE FROM bot_exchanges"))

    swap(BotExchanges, "recover", recover)


def listens_for_ever() -> None:
    """The time that somebody asked for is stored, and never looked at again."""
    real = Attention.hear

    def hear(self: Attention, inbound: Inbound) -> Heard:
        clock, self._clock = self._clock, _Early()  # type: ignore[assignment]
        try:
            return real(self, inbound)
        finally:
            self._clock = clock

    swap(Attention, "hear", hear)


class _Early:
    """Before everything that ever happened."""

    def now(self) -> float:
        return -1.0


def reply_counts_as_a_mention() -> None:
    """Where only mentions count, a reply to the bot wakes it all the same."""
    real = Reader._is_mentioned

    def is_mentioned(self: Reader, message: dict[str, Any]) -> bool:
        return real(self, message) or self._is_reply_to_us(message)

    swap(Reader, "_is_mentioned", is_mentioned)
