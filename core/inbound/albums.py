"""Keeps early parts of albums for a few seconds, in memory only, until the part that addresses us arrives."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tidings.core.inbound.joining import ALBUM_LONGEST_SECONDS
from tidings.core.types import Inbound

# Enough for several albums; posts of strangers in busy groups must not fill the memory.
MOST = 100


class _Early(NamedTuple):
    part: Inbound
    at: float


class EarlyParts:
    """Parts of albums that arrived before the part with the words that address us.

    They are not stored, because most albums in a group are not for us.
    """

    def __init__(self) -> None:
        self._parts: deque[_Early] = deque(maxlen=MOST)

    def keep(self, part: Inbound, now: float) -> None:
        self._parts.append(_Early(part, now))

    def of(self, part: Inbound, now: float) -> list[Inbound]:
        """The earlier parts of the same album, oldest first."""
        while self._parts and self._parts[0].at < now - ALBUM_LONGEST_SECONDS:
            self._parts.popleft()
        return [each.part for each in self._parts if _album_of(each.part) == _album_of(part)]


def _album_of(part: Inbound) -> tuple[str, str, str]:
    return part.conversation.id, part.sender.id, part.group
