"""Tells the owner when the gateway's own allowance is nearly used up, and when it is."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidings.core import ids
from tidings.core.allowances import rows, windows, wording
from tidings.core.allowances.reservation import Payer
from tidings.core.clock import Clock
from tidings.core.desk.usage import Counts, Key
from tidings.core.outbound import homes, outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.settings import Allowance
from tidings.core.store.store import Transaction
from tidings.core.types import Body, Target

log = logging.getLogger(__name__)

# The shares of the allowance, in percent, at which the owner is told, once a day each.
SHARES = (100, 80)


class GatewayWatch:
    def __init__(self, clock: Clock, fallback: Target | None, is_down: Callable[[str], bool]) -> None:
        """`fallback` is where alerts go without a home chat."""
        self._clock = clock
        self._fallback = fallback
        self._is_down = is_down

    def look(self, tx: Transaction, gateway: Payer, used: Counts) -> None:
        """Owes the owner a line in the transaction that reached a share."""
        share, told = _share(gateway.allowance, used)
        reached = next((each for each in SHARES if share * 100 >= each), 0)
        if reached <= used.told:
            return
        target = homes.elsewhere(tx, "", self._fallback, self._is_down)
        if target is None:
            # There is no home yet; it is told later if there is one by then.
            return
        rows.mark_told(tx, Key(gateway.scope, gateway.name, gateway.span), reached)
        again = windows.clock_time(windows.end_of_day(self._clock.wall(), gateway.zone), gateway.zone)
        words = f"⚠ The gateway has used {reached} % of its allowance for today: {told}."
        words += f" It goes on at {again}." if reached == 100 else f" At 100 % it answers nobody until {again}."
        cause = f"allowance gateway {gateway.span} {reached}"
        notice = Owed(ids.new("dlv"), Class.NOTICE, target, Body(text=words), None, cause, source="the gateway")
        outbox.put(tx, notice, self._clock.now())
        log.warning("%s", words)


def _share(allowed: Allowance, used: Counts) -> tuple[float, str]:
    """The largest share of a limit that is used, and that limit in words."""
    shares = [(0.0, "")]
    if allowed.runs:
        shares.append((used.runs / allowed.runs, f"{used.runs:,} of {wording.answers(allowed.runs)}"))
    if allowed.tokens:
        shares.append((used.tokens / allowed.tokens, f"{used.tokens:,} of {wording.tokens(allowed.tokens)}"))
    if allowed.money:
        spent = f"{wording.dollars(round(used.cost, 4))} of {wording.dollars(allowed.money)}"
        shares.append((used.cost / allowed.money, spent))
    return max(shares)
