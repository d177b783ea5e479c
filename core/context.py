"""The session of the running task: one ContextVar with a frozen value and no default."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from tidings.core.errors import NoSession, Unsupported
from tidings.core.roles import Permission, Person
from tidings.core.types import Asker, Capabilities, Conversation, Errand, Sender, Target, Value, asker


class Session(Value, frozen=True, kw_only=True):
    run: str
    conversation: Conversation
    sender: Sender
    bot: str
    target: Target
    can: Capabilities
    workspace: Path
    # The person this run works for, and what that person may do.
    person: Person
    permissions: frozenset[Permission]
    # The conversation of the chat itself, where the chat goes on with another one.
    began: Conversation | None = None
    # Where that other conversation has its own chat.
    place: Target | None = None
    # Set for a run that no person waits for: such a run can ask nothing and promise nothing.
    errand: Errand | None = None

    @property
    def asker(self) -> Asker | None:
        """The person this work is for: the sender, or the person behind an errand."""
        if self.errand:
            return self.errand.asker
        return asker(self.conversation, self.target, self.sender, self.began, self.place)

    def require(self, ability: str) -> None:
        """Raises Unsupported for an ability that the platform does not declare."""
        if not getattr(self.can, ability):
            raise Unsupported(ability, str(self.target))


_session: ContextVar[Session] = ContextVar("session")


def current() -> Session:
    try:
        return _session.get()
    except LookupError:
        raise NoSession("no session is bound to this task; only a run has one") from None


def current_or_none() -> Session | None:
    """The session, or None outside a run; only the log filter needs this."""
    return _session.get(None)


@contextmanager
def bind(session: Session) -> Iterator[Session]:
    token = _session.set(session)
    try:
        yield session
    finally:
        _session.reset(token)


def child_environment() -> dict[str, str]:
    """The environment for one subprocess of the current run; `os.environ` never contains a session."""
    session = current()
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(session.workspace),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "TIDINGS_SESSION_RUN": session.run,
        "TIDINGS_SESSION_CONVERSATION": session.conversation.id,
        "TIDINGS_SESSION_SENDER": session.sender.id,
        "TIDINGS_SESSION_TARGET": str(session.target),
        "TIDINGS_SESSION_BOT": session.bot,
        "TIDINGS_SESSION_WORKSPACE": str(session.workspace),
    }
