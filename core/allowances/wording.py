"""Sentences about allowances for people: what is used up, when it goes on, and what is left (pure)."""

from __future__ import annotations

from typing import NamedTuple

from tidings.core.allowances import windows
from tidings.core.desk.usage import Counts, Scope
from tidings.core.settings import Allowance


class Over(NamedTuple):
    """An allowance that is used up."""

    scope: Scope
    # The window, so that people are told once in each.
    span: str
    # What was allowed, such as "50 answers".
    limit: str
    zone: str
    # When it goes on, by the wall clock.
    until: float
    seconds: float

    @property
    def told_once(self) -> str:
        """The same for everything that needs no second word."""
        return f"allowance {self.scope} {self.span}"


OWNERS = {
    Scope.PERSON: "your allowance",
    Scope.CHAT: "this chat's allowance",
    Scope.BOT: "this bot's allowance",
    Scope.GATEWAY: "this gateway's allowance",
}
USERS = {
    Scope.PERSON: "You have used",
    Scope.CHAT: "This chat has used",
    Scope.BOT: "This bot has used",
    Scope.GATEWAY: "This gateway has used",
}


def sentence(over: Over) -> str:
    """What a person is told: what is used up, and when it goes on."""
    user = USERS[over.scope]
    if over.limit.endswith("a minute"):
        return f"{user} the allowance of {over.limit}. I can go on in {lasting(over.seconds)}; please send it again."
    when = f"at {windows.clock_time(over.until, over.zone)} (in {lasting(over.seconds)})"
    return f"{user} today's allowance of {over.limit}. I can go on {when}; please send it again then."


def reason(over: Over) -> str:
    """The same as the reason of an outcome."""
    return f"{OWNERS[over.scope]} of {over.limit} is used up until {windows.clock_time(over.until, over.zone)}"


def rest_words(scopes: set[Scope]) -> str:
    """Why a run is cut, in words that follow "I stopped here:"; tokens and money may be limited for two scopes."""
    whose = OWNERS[next(iter(scopes))] if len(scopes) == 1 else "an allowance"
    return f"{whose} for today is used up" if scopes else ""


def lasting(seconds: float) -> str:
    """A duration in one unit: 3 h, 20 min or 40 s."""
    if seconds >= 5400:
        return f"{round(seconds / 3600)} h"
    return f"{round(seconds / 60)} min" if seconds >= 90 else f"{max(round(seconds), 1)} s"


def answers(number: int) -> str:
    return "1 answer" if number == 1 else f"{number:,} answers"


def tokens(number: int) -> str:
    return "1 token" if number == 1 else f"{number:,} tokens"


def messages(number: int) -> str:
    return "1 message a minute" if number == 1 else f"{number:,} messages a minute"


def dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:,.4f}".rstrip("0")


def amount(counts: Counts) -> str:
    """What was used, in words."""
    if not (counts.requests or counts.tokens):
        return f"{answers(counts.runs)} without a model"
    money = f"${counts.cost:.4f}" if counts.cost > 0 else "price unknown"
    return f"{counts.input_tokens:,} tokens in, {counts.output_tokens:,} out, for {answers(counts.runs)}; {money}"


def left(scope: Scope, allowance: Allowance, counts: Counts) -> str:
    """What is left of each limit of an allowance for today; empty if it has none for a day."""
    lines = []
    if allowance.runs:
        lines.append(f"{max(allowance.runs - counts.runs, 0):,} of {answers(allowance.runs)}")
    if allowance.tokens:
        lines.append(f"{max(allowance.tokens - counts.tokens, 0):,} of {tokens(allowance.tokens)}")
    if allowance.money:
        lines.append(f"{dollars(max(allowance.money - counts.cost, 0.0))} of {dollars(allowance.money)}")
    return f"{OWNERS[scope].capitalize()}: {', '.join(lines)} left today" if lines else ""
