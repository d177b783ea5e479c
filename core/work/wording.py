"""Words about work for people: how long it took, what it is called, and where it cannot be promised."""

from __future__ import annotations

import re

from tidings.core.types import Audience, Inbound

BACKTICKS = re.compile(r"`{3,}")


def lasting(seconds: float) -> str:
    """In the two largest units that matter."""
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
    """In a fence that nothing in it can close: what a program prints is no markup."""
    fence = max(["``", *BACKTICKS.findall(text)], key=len) + "`"
    return f"{fence}\n{text}\n{fence}"


def short(id: str) -> str:
    """Enough of an id for a person to tell it from the others."""
    return id.rpartition("_")[2][:6]


def whispered(inbound: Inbound, command: str) -> str:
    """Why nothing is promised to one person inside a group, and what to do instead; empty anywhere else."""
    if inbound.target.audience is not Audience.ONE:
        return ""
    return (
        "I cannot promise that here: only you see what I answer to this, and only for a short while. "
        f"Write it to me as a message instead, beginning with !{command}."
    )
