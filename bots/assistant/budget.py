"""What one run may spend: requests, tokens, money and time; the model is warned near the limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidings.bots.assistant.prompt import NOTE
from tidings.bots.assistant.settings import BotLimits
from tidings.core.agent import Rest, Usage, no_limit

# The share of a limit from which on the model is told what is left.
NEARLY = 0.8


@dataclass(slots=True)
class Spent:
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    # Seconds of work before the last checkpoint; waiting for people is no work.
    seconds: float = 0.0

    @property
    def usage(self) -> Usage | None:
        if not self.requests:
            return None
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            requests=self.requests,
            cost=round(self.cost, 6),
        )


@dataclass(frozen=True, slots=True)
class _Line:
    used: float
    # 0 is no limit.
    limit: float
    # The amount from which on the model is told.
    near: float
    words: str
    left: str


class Budget:
    def __init__(self, limits: BotLimits, now: Callable[[], float], rest: Callable[[], Rest] = no_limit) -> None:
        """`rest` is what allowances leave to the run right now."""
        self._limits = limits
        self._now = now
        self._rest = rest
        self._began = now()
        self.spent = Spent()
        # The largest request so far: the next one may be as large.
        self._largest_tokens = 0
        self._largest_cost = 0.0

    def resume(self, spent: Spent) -> None:
        """Counts on from what the run had spent before a restart, or before it waited for people."""
        self.spent = spent
        self._began = self._now() - spent.seconds

    def stamp(self) -> None:
        """Notes the seconds of work so far, to be kept with the rest."""
        self.spent.seconds = self._now() - self._began

    def spend(self, input_tokens: int, output_tokens: int, cost: float) -> None:
        self.spent.requests += 1
        self.spent.input_tokens += input_tokens
        self.spent.output_tokens += output_tokens
        self.spent.cost += cost
        self._largest_tokens = max(self._largest_tokens, input_tokens + output_tokens)
        self._largest_cost = max(self._largest_cost, cost)

    @property
    def exhausted(self) -> str:
        """The limit that is reached, in words that follow "I stopped here:"; empty while there is room."""
        for line in self._lines():
            if line.limit and line.used >= line.limit:
                return f"my limit of {line.words} for one answer is used up"
        return self._overdrawing

    @property
    def _overdrawing(self) -> str:
        """The allowance that one more request would exceed; the first request of a run is always made."""
        spent, rest = self.spent, self._rest()
        if not spent.requests:
            return ""
        tokens = spent.input_tokens + spent.output_tokens
        # After a restart the largest request is not known, but the average is.
        next_tokens = max(self._largest_tokens, tokens / spent.requests)
        next_cost = max(self._largest_cost, spent.cost / spent.requests)
        over = (rest.tokens is not None and tokens + next_tokens > rest.tokens) or (
            rest.money is not None and spent.cost + next_cost > rest.money
        )
        return rest.words if over else ""

    @property
    def is_overdrawn(self) -> bool:
        """Tells whether the run has used all that allowances leave to it, so that not even a summary is asked for."""
        spent, rest = self.spent, self._rest()
        by_tokens = rest.tokens is not None and spent.input_tokens + spent.output_tokens >= rest.tokens
        return by_tokens or (rest.money is not None and spent.cost >= rest.money)

    @property
    def warning(self) -> str:
        """A note for the model when little is left; `exhausted` reports a limit that is reached."""
        for line in self._lines():
            if line.limit and line.near <= line.used < line.limit:
                return f"{NOTE} of {line.words} for this answer only {line.left} left. Come to an end.)"
        return ""

    def _lines(self) -> list[_Line]:
        limits, spent = self._limits, self.spent
        tokens, seconds = spent.input_tokens + spent.output_tokens, self._now() - self._began
        requests_left = limits.requests - spent.requests
        return [
            _Line(
                spent.requests,
                limits.requests,
                # With only a few requests a fifth is less than one, so the warning comes before the last request.
                min(limits.requests * NEARLY, limits.requests - 1),
                _counted(limits.requests, "request") + " to the model",
                f"{requests_left:,} {'is' if requests_left == 1 else 'are'}",
            ),
            _Line(
                tokens,
                limits.tokens,
                limits.tokens * NEARLY,
                _counted(limits.tokens, "token"),
                f"about {limits.tokens - tokens:,} are",
            ),
            _Line(
                spent.cost,
                limits.money,
                limits.money * NEARLY,
                _dollars(limits.money),
                f"{_dollars(limits.money - spent.cost)} is",
            ),
            _Line(
                seconds,
                limits.seconds,
                limits.seconds * NEARLY,
                _counted(limits.seconds, "second"),
                f"about {limits.seconds - seconds:,.0f} are",
            ),
        ]


def _counted(number: float, unit: str) -> str:
    return f"{number:,.10g} {unit}" if number == 1 else f"{number:,.10g} {unit}s"


def _dollars(amount: float) -> str:
    """Formats amounts below a cent too: a limit of half a cent must not read as no limit."""
    exact = f"{amount:,.6f}".rstrip("0")
    return "$" + (exact if len(exact.partition(".")[2]) >= 2 else f"{amount:,.2f}")
