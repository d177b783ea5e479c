"""The levers of the Telegram simulator: what goes wrong, when, and for which calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.simulators.shared.faults import Action
from tests.simulators.shared.levers import HttpLevers
from tests.simulators.telegram.chats import Chats, Id
from tests.simulators.telegram.faults import HTML, Fault, Faults, limited
from tests.simulators.telegram.rates import Rates
from tests.simulators.telegram.switchboard import Switchboard

DESCRIPTIONS = {
    400: "Bad Request: armed by the test",
    401: "Unauthorized",
    403: "Forbidden: armed by the test",
    404: "Not Found",
    409: "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
    413: "Request Entity Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
}


class Levers(HttpLevers):
    """A method is any but getUpdates unless it is named; a chat is any unless it is named."""

    faults: Faults
    rates: Rates
    chats: Chats
    _switchboard: Switchboard

    def fail_next(
        self,
        code: int,
        retry_after: int | None = None,
        method: str | None = None,
        count: int = 1,
        *,
        chat: Id | None = None,
        description: str = "",
        parameters: Mapping[str, int] | None = None,
        html: bool = False,
        body: bytes = b"",
        after_effect: bool = False,
    ) -> None:
        """Any status with any words; without `after_effect` the call does nothing."""
        known = limited(retry_after).parameters if retry_after is not None else {}
        told = limited(retry_after).description if retry_after is not None else DESCRIPTIONS.get(code, "Error")
        self.faults.arm(
            Fault(
                action="fail",
                code=code,
                description=description or told,
                parameters={**known, **(parameters or {})},
                body=body or (HTML if html else b""),
                after_effect=after_effect,
                method=method,
                chat=None if chat is None else str(chat),
            ),
            count,
        )

    def reorder_next(self, count: int = 1, *, account: str = "main") -> None:
        """The next batches of more than one update are told in reverse."""
        self.chats.bot(account).queue.reverse_next = count

    def revoke(self, token: str = "", *, account: str = "main") -> None:
        """The bot's token is worthless from now on; another may take its place. Who polls is told at once."""
        bot = self.chats.bot(account)
        self._switchboard.revoked.add(bot.token)
        if token:
            bot.token = token
            self._switchboard.revoked.discard(token)
        bot.queue.wake()

    def limit_rate(self, chat: Id | None, per_seconds: float, burst: int) -> None:
        """None limits each bot as a whole; reading is free."""
        self.rates.limit(None if chat is None else str(chat), per_seconds, burst)

    def limit_rates(self, on: bool = True) -> None:
        """Limits as known of Telegram: 1/s in a private chat, 20/min in a group, 30/s overall."""
        if on:
            self.rates.limit_as_known()
        else:
            self.rates.lift()

    def _fault(self, action: Action, *, chat: Id | None = None, **fields: Any) -> Fault:
        return Fault(action=action, chat=None if chat is None else str(chat), **fields)
