"""How often a bot may write: Telegram's limits as known, with pauses that grow for who ignores them."""

from __future__ import annotations

from math import ceil

from tests.simulators.telegram.chats import Chat
from tests.simulators.telegram.texts import Refusal
from tidings.core.clock import Clock

# Pauses double up to this.
PENALTY_SECONDS = 300


class Rate:
    """One call every `per_seconds`, `burst` at once."""

    def __init__(self, per_seconds: float, burst: int, clock: Clock) -> None:
        self._per_seconds = per_seconds
        self._slack = per_seconds * (burst - 1)
        self._clock = clock
        self._due = clock.now()
        self._paused_until = 0.0
        self._strikes = 0

    def wait(self) -> int:
        """The pause that is asked for before the next call; 0 when it may pass."""
        now = self._clock.now()
        if now < self._paused_until:
            # Whoever does not wait must wait longer.
            self._strikes += 1
        elif (missing := self._due - self._slack - now) > 1e-6:
            self._paused_until = now + ceil(missing)
        else:
            return 0
        pause = min(PENALTY_SECONDS, max(1, ceil(self._paused_until - now)) * 2**self._strikes)
        self._paused_until = max(self._paused_until, now + pause)
        return ceil(self._paused_until - now)

    def spend(self) -> None:
        self._due = max(self._due, self._clock.now()) + self._per_seconds
        self._strikes = 0


class Rates:
    """Off until asked for. Sends, edits and drafts count; a call that is refused costs nothing but patience."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By kind of chat: seconds and burst.
        self._rules: dict[str, tuple[float, int]] = {}
        self._rates: dict[tuple[str, str], Rate] = {}

    def limit(self, chat: str | None, per_seconds: float, burst: int) -> None:
        """None limits each bot as a whole."""
        self._rules[f"chat {chat}" if chat else "bot"] = (per_seconds, burst)
        self._rates.clear()

    def limit_as_known(self) -> None:
        self._rules |= {"private": (1.0, 3), "group": (3.0, 20), "bot": (1 / 30, 30)}
        self._rates.clear()

    def lift(self) -> None:
        self._rules.clear()
        self._rates.clear()

    def admit(self, account: str, chat: Chat) -> None:
        kind = "private" if chat.kind == "private" else "group"
        specific = f"chat {chat.id}"
        scopes = [("bot", account), (specific if specific in self._rules else kind, chat.key)]
        rates = [self._rate(rule, scope) for rule, scope in scopes if rule in self._rules]
        if pause := max((rate.wait() for rate in rates), default=0):
            raise Refusal(429, f"Too Many Requests: retry after {pause}", retry_after=pause)
        for rate in rates:
            rate.spend()

    def _rate(self, rule: str, scope: str) -> Rate:
        if (rule, scope) not in self._rates:
            self._rates[rule, scope] = Rate(*self._rules[rule], self._clock)
        return self._rates[rule, scope]
