"""An agent that asks people, without a gateway: the story answers as the core would, or kills it as a crash would.

talk = Talk(tmp_path, agent)
asked = await talk.says("clean up")        # the ApprovalAsked, or None where the run has ended
await talk.answers()                       # granted; the run goes on with its newest checkpoint
await talk.answers("Ada denied it: no")    # denied, for this reason
await talk.crashes()                       # the run starts again, with the same checkpoint and verdicts
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from tests.worlds.builders import inbound
from tests.worlds.fakes import FakeDesk, FakePeople
from tests.worlds.tool_bench import in_session
from tidings.core.agent import (
    Agent,
    ApprovalAsked,
    Checkpoint,
    Event,
    Finished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
    Verdict,
)
from tidings.core.errors import Unknown
from tidings.core.roles import Permission, Person, Role
from tidings.core.types import Attachment, Entry


class People(FakePeople):
    """People who can lose what they may do."""

    def __init__(self) -> None:
        super().__init__()
        self.barred: set[Permission] = set()

    def may(self, person: Person, permission: Permission) -> bool:
        return permission not in self.barred


class Desk(FakeDesk):
    """Hands out attachments by their handle."""

    def __init__(self) -> None:
        super().__init__()
        self.people: People = People()
        self.files: dict[str, Path] = {}
        self.tasks: Any = None
        self.schedules: Any = None

    async def fetch(self, attachment: Attachment) -> Path:
        try:
            return self.files[attachment.handle]
        except KeyError:
            raise Unknown(f"no attachment {attachment.name}") from None


class Talk:
    """One conversation; what a run has left behind is what the next one gets."""

    def __init__(self, home: Path, agent: Agent, role: Role = Role.OWNER) -> None:
        self.agent = agent
        self.desk = Desk()
        self.workspace = home / "workspace"
        self._home = home
        self.role = role
        self._number = 0
        self._turn: Turn | None = None
        self._checkpoint: bytes | None = None
        self.asked: ApprovalAsked | None = None
        # Of the run so far, across all its attempts.
        self.events: list[Event] = []

    async def says(
        self,
        text: str = "go on",
        *,
        files: Mapping[str, str] | None = None,
        history: tuple[Entry, ...] = (),
        **more: Any,
    ) -> Any:
        """A new run for this message; returns its question, or None where it has ended."""
        attachments = []
        for name, content in (files or {}).items():
            path = self._home / f"attached {len(self.desk.files)}"
            path.write_text(content)
            self.desk.files[path.name] = path
            attachments.append(Attachment(handle=path.name, name=name, size=path.stat().st_size))
        self._number += 1
        message = inbound(text, attachments=tuple(attachments), **more)
        run = f"run_{self._number}"
        self._turn = Turn(run=run, attempt=1, bot="bot", message=message, desk=self.desk, history=history)
        self.events = []
        return await self._run()

    async def answers(self, denied: str = "", *, granted: bool = True, digest: str | None = None) -> Any:
        """Somebody has answered the question, or nobody has in time."""
        assert self.asked is not None, "nothing was asked"
        assert self._turn is not None
        verdict = Verdict(
            call=self.asked.call,
            granted=granted and not denied,
            reason=denied,
            digest=self.asked.digest if digest is None else digest,
        )
        self._turn = structs.replace(self._turn, verdicts=(*self._turn.verdicts, verdict), goes_on=True)
        return await self._run()

    async def crashes(self) -> Any:
        assert self._turn is not None
        self._turn = structs.replace(self._turn, attempt=self._turn.attempt + 1, goes_on=False)
        return await self._run()

    def forgets(self) -> None:
        """As /new does."""
        self._checkpoint = None

    @property
    def memory(self) -> dict[str, Any]:
        """What the newest checkpoint holds."""
        return dict(json.loads(self._checkpoint or b"{}"))

    def remembers(self, memory: Mapping[str, Any]) -> None:
        """Replaces the checkpoint; an empty one is none."""
        self._checkpoint = json.dumps(memory).encode() if memory else None

    async def _run(self) -> ApprovalAsked | None:
        assert self._turn is not None
        self._turn = structs.replace(self._turn, checkpoint=self._checkpoint)
        self.asked = None
        last: Event | None = None
        with in_session(self.workspace, run=self._turn.run, role=self.role):
            async for event in self.agent.run(self._turn):
                assert not isinstance(last, Finished | ApprovalAsked), "these are the last of an attempt"
                if isinstance(event, ApprovalAsked):
                    assert isinstance(last, Checkpoint), "a question follows its checkpoint"
                    self.asked = event
                if isinstance(event, Checkpoint):
                    self._checkpoint = event.data
                self.events.append(event)
                last = event
        assert isinstance(last, Finished | ApprovalAsked)
        return self.asked

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def end(self) -> Finished:
        assert isinstance(self.events[-1], Finished)
        return self.events[-1]

    @property
    def started(self) -> list[ToolStarted]:
        return [event for event in self.events if isinstance(event, ToolStarted)]

    @property
    def finished(self) -> list[ToolFinished]:
        return [event for event in self.events if isinstance(event, ToolFinished)]
