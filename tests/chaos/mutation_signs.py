"""Seeded bugs in the signs on messages: shown too long, too late, one beside the other, or on too few."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.chaos.mutation_seams import swap
from tidings.adapters.shared.standing import Standing
from tidings.core.inbound import signs
from tidings.core.inbound.signs import Signs
from tidings.core.outbound import signed_messages


def sign_ends_with_its_process() -> None:
    """How a run ended is shown only on messages that this process has marked itself."""
    watched: set[str] = set()
    start, show = Signs.start, Signs._show

    async def started(self: Signs) -> None:
        watched.clear()
        await start(self)

    def shown(self: Signs, sign: Any) -> None:
        watched.add(sign.run)
        show(self, sign)

    swap(Signs, "start", started)
    swap(Signs, "_show", shown)
    swap(signs, "may_stand", lambda claimed, now: claimed.run in watched)


def waiting_shown_at_work() -> None:
    """Nobody asks whether a message still waits before that is shown."""

    async def look_at(self: Signs, signs: Sequence[Any], due: float = -math.inf) -> None:
        for sign in signs:
            if sign.run in self._signs:
                await self._pass_time(sign, due)

    swap(Signs, "_look_at", look_at)
    swap(Signs, "_began", lambda self, began: None)


def reactions_stacked() -> None:
    """A new reaction is added, and the earlier one stays."""
    swap(Standing, "others", lambda self, message, signal: ())


def joined_messages_keep_their_sign() -> None:
    """Only the message of a run itself shows how the run ended."""
    swap(signed_messages, "targets", lambda tx, run: ())
