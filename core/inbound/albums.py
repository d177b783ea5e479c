"""Parts of albums that came before the one that addresses us: kept for a few seconds, in memory only."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tidings.core.inbound.inbox import ALBUM_LONGEST_SECONDS
from tidings.core.types import Inbound

# More parts than any few albums have; what strangers post in busy groups must not fill the memory.
MOST = 100


class _Early(NamedTuple):
    part: Inbound
    at: float


class EarlyParts:
    """Only one part of an album bears the words that address us, and it need not be the first.

    Nothing of this is stored: most albums in a group are not for us.
    """

    def __init__(self) -> None:
        self._parts: deque[_Early] = deque(maxlen=MOST)

    def keep(self, part: Inbound, now: float) -> None:
        self._parts.append(_Early(part, now))

    def of(self, part: Inbound, now: float) -> list[Inbound]:
        """The parts of the same album that came before this one, the oldest first."""
        while self._parts and self._parts[0].at < now - ALBUM_LONGEST_SECONDS:
            self._parts.popleft()
        return [each.part for each in self._parts if _album_of(each.part) == _album_of(part)]


def _album_of(part: Inbound) -> tuple[str, str, str]:
    return part.conversation.id, part.sender.id, part.group
