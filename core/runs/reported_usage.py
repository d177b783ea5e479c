"""Makes the usage that an agent reports fit to be stored and added up, whatever the agent says."""

from __future__ import annotations

import logging
import math

from tidings.core.agent import Usage

log = logging.getLogger(__name__)

# More than one run can use: a million such runs can still be added up.
MOST_TOKENS = 10**12
MOST_DOLLARS = 1e6


def countable(reported: Usage | None) -> Usage | None:
    """Counts what is no amount, or less than nothing, as nothing, and cuts what no run can use."""
    if reported is None:
        return None
    counted = Usage(
        input_tokens=int(_amount(reported, "input_tokens", MOST_TOKENS)),
        output_tokens=int(_amount(reported, "output_tokens", MOST_TOKENS)),
        requests=int(_amount(reported, "requests", MOST_TOKENS)),
        cost=float(_amount(reported, "cost", MOST_DOLLARS)),
    )
    if counted != reported:
        log.warning("an agent reported an impossible usage, %.200r; it is counted as %r", reported, counted)
    return counted


def _amount(reported: Usage, name: str, most: float) -> float:
    amount = getattr(reported, name, 0)
    if not isinstance(amount, int | float) or math.isnan(amount):
        return 0
    return min(max(amount, 0), most)
