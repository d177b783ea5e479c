"""Approvals on the wire: a question whether a tool may run, and its answer, as all streams and routes show them."""

from __future__ import annotations

from typing import Any

from tidings.core.agent import ApprovalAnswered, ApprovalRequested
from tidings.core.desk.approvals import Choice, Question

REQUEST, RESPONDED = "approval.request", "approval.responded"
# Clients of this kind call an approval for a talk "session".
WORDS = {Choice.ONCE: "once", Choice.TALK: "session", Choice.ALWAYS: "always", Choice.DENY: "deny"}
CHOICES = {**{word: choice for choice, word in WORDS.items()}, "talk": Choice.TALK}


def event_of(run: str, event: ApprovalRequested | ApprovalAnswered) -> dict[str, Any]:
    """The same object on every stream."""
    if isinstance(event, ApprovalRequested):
        asked = _asked(event.tool, event.detail, event.choices, event.expires, event.read)
        return {"event": REQUEST, "run_id": run, "request_id": event.id, **asked}
    answered = {"choice": word_of(event.choice, granted=event.granted), "resolved": 1, "granted": event.granted}
    return {
        **{"event": RESPONDED, "run_id": run, "request_id": event.id},
        **answered,
        **{"by": event.by, "reason": event.reason},
    }


def waiting(question: Question) -> dict[str, Any]:
    """The open question of a run, in the run's own description."""
    asked = _asked(question.tool, question.detail, question.choices, question.expires, question.read)
    return {"request_id": question.id, **asked}


def described(question: Question) -> dict[str, Any]:
    """A question by itself: who asks, and what has become of it."""
    asked = _asked(question.tool, question.detail, question.choices, question.expires, question.read)
    return {
        **{"object": "approval", "request_id": question.id, "run_id": question.run, "status": question.state.value},
        **{"model": question.bot, "conversation": question.conversation, "asker": question.asker},
        **asked,
        "asked_at": question.asked,
        "choice": word_of(question.choice) if question.choice else None,
        "by": question.by or None,
        "decided_at": question.decided or None,
        "reason": question.reason or None,
    }


def word_of(choice: Choice | None, *, granted: bool = False) -> str:
    """A question that no person answered ends as if somebody had chosen so."""
    return WORDS[choice] if choice else WORDS[Choice.ONCE if granted else Choice.DENY]


def _asked(
    tool: str, detail: str, choices: tuple[Choice, ...], expires: float, read: tuple[str, ...]
) -> dict[str, Any]:
    before = f" Before this it read: {', '.join(read)}." if read else ""
    return {
        "tool": tool,
        # What will run, redacted, from the call itself.
        "command": detail,
        "description": f"The bot asks whether it may run {tool}.{before}",
        "choices": [WORDS[choice] for choice in choices],
        "expires_at": expires,
        "read": list(read),
    }
