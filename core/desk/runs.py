"""What can be asked about runs and conversations: one run, its events, and what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tidings.core.types import Entry, Inbound

if TYPE_CHECKING:
    from tidings.core.agent import JournalEvent, Outcome


class Numbered(msgspec.Struct, frozen=True):
    """One entry of a run's journal."""

    seq: int
    event: JournalEvent
    at: float


class Run(msgspec.Struct, frozen=True):
    """One run as one can ask about it; times are by the wall clock."""

    id: str
    message: Inbound
    # waiting, running or done.
    state: str
    accepted: float
    ended: float | None
    stop_asked: bool
    outcome: Outcome | None
    # Up to this number of its journal, a restart has made everything void.
    void: int = 0
    # Who answers.
    bot: str = ""
    # Its client wants nothing kept: it is erased when it is over.
    forgotten: bool = False


class ConversationLine(msgspec.Struct, frozen=True):
    """One conversation of a list; `seq` is where the next page begins."""

    seq: int
    id: str
    messages: int
    updated: float


class HistoryLine(msgspec.Struct, frozen=True):
    seq: int
    entry: Entry
    # Taken back: no longer given to agents.
    undone: bool = False


class Remembered(msgspec.Struct, frozen=True):
    """A note about or for one person, kept across all their conversations on a platform."""

    text: str
    at: float
