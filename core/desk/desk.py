"""The desk: every request that adapters, commands, tools and the command line may make to the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from tidings.core.desk.approvals import ApprovalDesk
from tidings.core.desk.board import BoardDesk
from tidings.core.desk.deliveries import UpkeepDesk
from tidings.core.desk.health import Health
from tidings.core.desk.people import PeopleDesk
from tidings.core.desk.runs import ConversationLine, HistoryLine, Numbered, Remembered, Run
from tidings.core.desk.usage import UsageDesk
from tidings.core.desk.work import ProcessDesk, ScheduleDesk, TaskDesk
from tidings.core.roles import Person
from tidings.core.telemetry.metrics import Meters
from tidings.core.types import Attachment, Body, Delivery, Entry, File, Target


class Desk(Protocol):
    def follow(self, run: str, after: int = 0) -> AsyncIterator[Numbered]:
        """Yields the journal's entries after `after`, then new ones as they are stored; ends with the terminal event.

        Raises Unknown for a run that does not exist, Lagged when the reader is too slow.
        """
        ...

    async def stop(self, run: str, by: str) -> bool:
        """Asks a run to end as cancelled; false when the run has already ended."""
        ...

    def bots(self) -> tuple[str, ...]:
        """The names of all bots; the first is the default."""
        ...

    async def run(self, id: str) -> Run:
        """Raises Unknown."""
        ...

    async def forget(self, run: str) -> None:
        """Erases a run's text, events and files once the run has ended and its deliveries are settled.

        The request is stored, so it survives a crash. Raises Unknown.
        """
        ...

    async def conversations(
        self, adapter: str, chat: str, limit: int, before: int, member: str = ""
    ) -> list[ConversationLine]:
        """Lists conversations, newest first; an empty adapter, chat or member means all, `before` of 0 the first page.

        A member is searched only together with a chat.
        """
        ...

    async def memory(self, conversation: str, before: str, limit: int) -> tuple[Entry, ...]:
        """The last entries of the conversation before that run."""
        ...

    async def history(self, conversation: str, limit: int, after: int) -> list[HistoryLine]: ...

    async def owe(self, target: Target, body: Body, cause: str, key: str = "", digest: str = "") -> str:
        """Stores a delivery and returns its id; refuses one that could never arrive.

        With a known key, the earlier delivery's id is returned; with another digest as well, Conflict is raised.
        """
        ...

    async def adopt(self, path: str) -> File:
        """Copies a file, so that it can be sent even if the original is removed; raises Unknown for a missing file."""
        ...

    async def permitted(self, target: Target) -> bool:
        """Tells whether unrequested messages may be sent there: to known conversations and to admitted people only."""
        ...

    async def delivery(self, id: str) -> Delivery: ...

    async def begin(self, kind: str, argument: str, after: float) -> str:
        """Starts background work of a registered kind for the current session, and tells the session how it ends.

        Raises Unsupported where the session's platform cannot deliver messages later.
        """
        ...

    async def fetch(self, attachment: Attachment) -> Path:
        """Fetches an attachment of the current session's message."""
        ...

    async def knows(self, conversation: str) -> bool: ...

    async def name_talk(self, run: str, title: str) -> bool:
        """Gives the talk that began with this run a title; false if its title is no longer from that run."""
        ...

    async def remember(self, text: str) -> bool:
        """Stores a note of the current bot about the session's sender; false when that note is already known.

        Raises Unkeepable for a note that is empty or too long.
        """
        ...

    async def recall(self, words: str, limit: int) -> list[Remembered]:
        """The bot's notes about the session's sender, newest first: those with any of the words, or all for no words.

        In a group, only notes that were not made in a private chat.
        """
        ...

    @property
    def people(self) -> PeopleDesk: ...

    @property
    def approvals(self) -> ApprovalDesk: ...

    @property
    def usage(self) -> UsageDesk: ...

    @property
    def tasks(self) -> TaskDesk: ...

    @property
    def processes(self) -> ProcessDesk: ...

    @property
    def schedules(self) -> ScheduleDesk: ...

    @property
    def board(self) -> BoardDesk: ...

    async def homes(self) -> dict[str, Target]:
        """Where alerts of each account are sent, by `adapter@account`."""
        ...

    async def set_home(self, by: Person, target: Target) -> None:
        """Raises Unknown or Unsupported for a target that could not receive alerts."""
        ...

    @property
    def upkeep(self) -> UpkeepDesk: ...

    @property
    def meters(self) -> Meters: ...

    async def health(self) -> Health: ...
