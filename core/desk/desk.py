"""The desk: everything that adapters, commands, tools and the command line may ask of the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from tidings.core.desk.board import BoardDesk
from tidings.core.desk.deliveries import UpkeepDesk
from tidings.core.desk.health import Admissions, Health
from tidings.core.desk.runs import ConversationLine, HistoryLine, Numbered, Remembered, Run
from tidings.core.desk.work import ProcessDesk, ScheduleDesk, TaskDesk
from tidings.core.telemetry.metrics import Meters
from tidings.core.types import Attachment, Body, Delivery, Entry, File, Target


class Desk(Protocol):
    def follow(self, run: str, after: int = 0) -> AsyncIterator[Numbered]:
        """Replays the journal behind `after`, goes on live, ends with the terminal event.

        Raises Unknown for a run that never was, Lagged when the reader is too slow.
        """
        ...

    async def stop(self, run: str, by: str) -> bool:
        """Asks a live run to end as cancelled; false when it has ended already."""
        ...

    def bots(self) -> tuple[str, ...]:
        """Who may be asked for by name; the default is the first."""
        ...

    async def run(self, id: str) -> Run:
        """Raises Unknown."""
        ...

    async def forget(self, run: str) -> None:
        """Erases its text, events and files once it has ended and its deliveries are settled.

        The wish is stored, so it survives a crash. Raises Unknown.
        """
        ...

    async def conversations(
        self, adapter: str, chat: str, limit: int, before: int, member: str = ""
    ) -> list[ConversationLine]:
        """The newest first; an empty adapter, chat or member means all, a `before` of 0 the first page.

        A member is looked for in one chat only.
        """
        ...

    async def memory(self, conversation: str, before: str, limit: int) -> tuple[Entry, ...]:
        """What was said last before that run."""
        ...

    async def history(self, conversation: str, limit: int, after: int) -> list[HistoryLine]: ...

    async def owe(self, target: Target, body: Body, cause: str, key: str = "", digest: str = "") -> str:
        """Durably owes a body to a target and names the delivery; refuses what could never arrive.

        A key that is known names the delivery that it made; with another digest it raises Conflict.
        """
        ...

    async def adopt(self, path: str) -> File:
        """Keeps a copy of a file, so that it can be sent whatever becomes of it; raises Unknown for what is none."""
        ...

    async def permitted(self, target: Target) -> bool:
        """May something be sent there that nobody there asked for? To known conversations and who is admitted."""
        ...

    async def delivery(self, id: str) -> Delivery: ...

    async def begin(self, kind: str, argument: str, after: float) -> str:
        """Starts background work of a registered kind for the current session, which is told how it ends.

        Raises Unsupported where the current interface has no async delivery.
        """
        ...

    async def allow(self, id: str) -> bool:
        """Admits `adapter:sender`, effective at once; false when they were admitted before, also by the settings."""
        ...

    async def withdraw(self, id: str) -> None:
        """Takes back what `allow` gave: stops their running work, and keeps their planned work from beginning.

        Raises Unknown for an id that `allow` did not admit.
        """
        ...

    async def admissions(self) -> Admissions: ...

    async def fetch(self, attachment: Attachment) -> Path:
        """Fetches what came with the current session's message."""
        ...

    async def knows(self, conversation: str) -> bool: ...

    async def remember(self, text: str) -> bool:
        """Keeps a note of the current bot for the sender of the session's message; false when it is already known.

        Raises Unkeepable for one that is empty or too long.
        """
        ...

    async def recall(self, words: str, limit: int) -> list[Remembered]:
        """This bot's notes about that person, the newest first: those with any of the words, or all for no words.

        In a group, only those that were not made in private.
        """
        ...

    @property
    def tasks(self) -> TaskDesk: ...

    @property
    def processes(self) -> ProcessDesk: ...

    @property
    def schedules(self) -> ScheduleDesk: ...

    @property
    def board(self) -> BoardDesk: ...

    async def homes(self) -> dict[str, Target]:
        """Where each platform's own news go, by `adapter@account`."""
        ...

    async def set_home(self, target: Target) -> None:
        """Raises Unknown or Unsupported for a place that could not be told."""
        ...

    @property
    def upkeep(self) -> UpkeepDesk: ...

    @property
    def meters(self) -> Meters: ...

    async def health(self) -> Health: ...
