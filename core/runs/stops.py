"""Why a run was stopped from outside, in words for people."""

from __future__ import annotations

# Stands in place of a name where a person's next message stops the run before it.
NEXT_MESSAGE = "your next message"


def reason(by: str) -> str:
    """The reason of a run that `by` asked to stop."""
    if by == NEXT_MESSAGE:
        return f"interrupted by {by}"
    return f"stopped by {by}" if by else "stopped"
