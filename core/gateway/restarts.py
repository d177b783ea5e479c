"""Slows down a gateway that restarts repeatedly, so that a crash loop does not flood a platform (pure)."""

from __future__ import annotations

import msgspec

# This many quick starts in a row are normal: a person tries things out, or a deployment has several steps.
FREE_STARTS = 5
# This allows about seven hundred starts a day, fewer than any platform minds.
LONGEST_SECONDS = 120.0
# An adapter that listened for this long was healthy. The time is longer than the longest pause; otherwise a crash loop
# at that pace would count as healthy.
WELL_SECONDS = 300.0


class Starts(msgspec.Struct, frozen=True):
    """How many quick starts there were in a row, and when the adapter last began to listen, by the steady clock."""

    quick: int
    at: float


def wait(last: Starts | None, now: float) -> float:
    """Seconds until the adapter may listen again.

    The pause counts from when the adapter last began to listen, not from the start of the process, so a gateway that
    dies every few minutes for another reason still listens for a part of the time.
    """
    if last is None or not _is_soon(last, now):
        return 0.0
    return max(0.0, last.at + pause(last.quick) - now)


def begun(last: Starts | None, now: float) -> Starts:
    """The value to store before listening, so that a crash cannot keep the start from being counted."""
    return Starts(last.quick + 1 if last is not None and _is_soon(last, now) else 0, now)


def pause(quick: int) -> float:
    if quick < FREE_STARTS:
        return 0.0
    # A larger exponent would overflow a float.
    return min(2.0 ** min(quick - FREE_STARTS, 16), LONGEST_SECONDS)


def _is_soon(last: Starts, now: float) -> bool:
    return now - last.at < WELL_SECONDS
