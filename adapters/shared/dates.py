"""Reads a platform's own time from its answers, since our clock may be wrong."""

from __future__ import annotations

from email.utils import parsedate_to_datetime


def date_of(header: str) -> float | None:
    """Seconds since 1970 in a Date header; None where there is none."""
    try:
        return parsedate_to_datetime(header).timestamp()
    except ValueError:
        return None
