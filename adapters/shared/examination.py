"""What asking a platform about an account has found, one line for each thing."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """Says what is and, where something is wrong, what to change."""

    words: str
    is_fault: bool = False
