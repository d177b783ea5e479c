"""Requests about runs and conversations: one run, its events, and the history."""

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
    """A run as the desk reports it; times are by the wall clock."""

    id: str
    message: Inbound
    # waiting, running, asking or done.
    state: str
    accepted: float
    ended: float | None
    stop_asked: bool
    outcome: Outcome | None
    # A restart has made the journal's entries up to this number void.
    void: int = 0
    # The name of the bot that answers.
    bot: str = ""
    # How many messages wait to be handed to the run at its next step.
    steering: int = 0
    # The client asked for the run to be erased when it is over.
    forgotten: bool = False


class ConversationLine(msgspec.Struct, frozen=True):
    """A conversation in a list; the next page begins at `seq`."""

    seq: int
    id: str
    messages: int
    updated: float


class HistoryLine(msgspec.Struct, frozen=True):
    seq: int
    entry: Entry
    # Undone entries are no longer given to agents.
    undone: bool = False


class Remembered(msgspec.Struct, frozen=True):
    """A bot's note about a person, kept across all conversations of that person."""

    text: str
    at: float
