"""Slows down a gateway that is started again and again, so that no loop of crashes storms a platform (pure)."""

from __future__ import annotations

import msgspec

# So many quick starts in a row are nobody's fault: a person tries things out, a deployment goes in two steps.
FREE_STARTS = 5
# Seven hundred starts in a day: fewer than any platform minds.
LONGEST_SECONDS = 120.0
# Whoever listened for so long before the next start was well. It is more than the longest pause, or a loop at that
# pace would count as health.
WELL_SECONDS = 300.0


class Starts(msgspec.Struct, frozen=True):
    """How often in a row we began to listen soon after the last time, and when we last did, by the steady clock."""

    quick: int
    at: float


def wait(last: Starts | None, now: float) -> float:
    """Seconds until we may listen again.

    Counted from when we last listened, not from the start: whoever dies every few minutes for another reason still
    listens for a part of each life.
    """
    if last is None or not _is_soon(last, now):
        return 0.0
    return max(0.0, last.at + pause(last.quick) - now)


def begun(last: Starts | None, now: float) -> Starts:
    """What to write down before anybody listens, so that no crash can keep it from being counted."""
    return Starts(last.quick + 1 if last is not None and _is_soon(last, now) else 0, now)


def pause(quick: int) -> float:
    if quick < FREE_STARTS:
        return 0.0
    # An exponent that grows without end would be too much for a float.
    return min(2.0 ** min(quick - FREE_STARTS, 16), LONGEST_SECONDS)


def _is_soon(last: Starts, now: float) -> bool:
    return now - last.at < WELL_SECONDS
