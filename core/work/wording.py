"""Sentences about work for people: durations, short ids, and why something cannot be promised."""

from __future__ import annotations

import re

from tidings.core.types import Audience, Inbound

BACKTICKS = re.compile(r"`{3,}")


def lasting(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = round(max(seconds, 0.0))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _joined(whole // 60, "min", whole % 60, "s")
    if whole < 86_400:
        return _joined(whole // 3600, "h", whole % 3600 // 60, "min")
    return _joined(whole // 86_400, "d", whole % 86_400 // 3600, "h")


def _joined(more: int, unit: str, less: int, small: str) -> str:
    return f"{more} {unit} {less} {small}" if less else f"{more} {unit}"


def fenced(text: str) -> str:
    """Puts program output into a code fence that is longer than any inside it."""
    fence = max(["``", *BACKTICKS.findall(text)], key=len) + "`"
    return f"{fence}\n{text}\n{fence}"


def short(id: str) -> str:
    """The beginning of an id, enough for a person to tell tasks apart."""
    return id.rpartition("_")[2][:6]


def whispered(inbound: Inbound, command: str) -> str:
    """Why an ephemeral reply in a group cannot promise a later message, and what to do; empty elsewhere."""
    if inbound.target.audience is not Audience.ONE:
        return ""
    return (
        "I cannot do that here: only you can see my reply, and only for a short time. "
        f"Send it as a message instead, beginning with !{command}."
    )
