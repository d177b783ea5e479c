"""The question whether a tool call may run, in words for people: how it is asked, and how it ended (pure)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tidings.core.desk.approvals import Answer, Choice, Question
from tidings.core.inbound.approval_rows import SHORT
from tidings.core.redaction import one_line
from tidings.core.types import Body, is_passing
from tidings.core.types import Choice as Button

# The buttons below a question; the prefix of its id tells them from the buttons of an answer.
PREFIX = "ask_"
LABELS = {Choice.ONCE: "Once", Choice.TALK: "For this talk", Choice.ALWAYS: "Always", Choice.DENY: "Deny"}
GRANTED = {
    Choice.ONCE: "Approved once",
    Choice.TALK: "Approved for this talk",
    Choice.ALWAYS: "Approved always",
}
BACKTICKS = re.compile("`+")
# People see all of what they approve, in several messages if need be; a longer call cannot be approved.
LONGEST_DETAIL = 6_000
# Of a question that is over, the beginning is a reminder.
REMINDER_CHARACTERS = 400
# How many of the texts that a run has read are named, and how much of each name is shown.
SHOWN_TEXTS, NAME_CHARACTERS = 8, 80
# Whoever offers a tool chooses its name, which must not look like words of ours.
ODD = re.compile(r"[^\w .:/-]")
# The same for people and talks, whose ids stand in parentheses behind names.
ODD_LABEL = re.compile(r"[^\w .,:/()@+-]")
DAY_SECONDS = 86_400

ELSEWHERE = "I need an approval before I can go on. An owner or admin has been asked."
NEXT_HERE = "I wait for an answer to my question above. Your message is next."
NEXT_ELSEWHERE = "I wait for an owner or admin to approve a tool call. Your message is next."
UNREACHABLE = "nobody who may approve it can be reached"
TOO_LONG = f"it is too long to be shown to people; make it shorter than {LONGEST_DETAIL:,} characters, or split it up"


def short(id: str) -> str:
    """As much of an id as people write."""
    return id.removeprefix(PREFIX)[:SHORT]


def body_of(question: Question, *, buttons: bool, here: bool) -> Body:
    """The question itself. What will run comes from the call, never from the model's own words about it."""
    lines = [f"May I run **{_name(question.tool)}**?", _fenced(question.detail)]
    if not here:
        lines.append(ODD_LABEL.sub("·", f"For {question.asker}, {_where(question.conversation)}") + ".")
    if question.read:
        more = len(question.read) - SHOWN_TEXTS
        names = [_name(each) for each in question.read[:SHOWN_TEXTS]] + ([f"{more} more"] if more > 0 else [])
        lines.append(f"Before this I read: {', '.join(names)}.")
    choices = question.choices if buttons else ()
    if buttons:
        lines.append(f"Without an answer by {_deadline(question)}, I will not run it.")
    else:
        id = short(question.id)
        longer = [f"/approve {id} {each}" for each in question.choices if each in (Choice.TALK, Choice.ALWAYS)]
        ways = ", ".join([f"/approve {id}", *longer])
        lines.append(f"Answer with {ways} or /deny {id} by {_deadline(question)}.")
    return Body(
        text="\n\n".join(lines),
        choices=tuple(Button(id=f"{question.id}/{each}", label=LABELS[each]) for each in choices),
    )


def ended_body(question: Question) -> Body:
    """What stands in the place of a question that is over."""
    return Body(text=f"{ended(question)}\n\n**{_name(question.tool)}**\n\n{_fenced(_reminder(question.detail))}")


def ended(question: Question) -> str:
    """How a question ended, in one line."""
    at = clock_time(question.decided)
    match question.state:
        case Answer.GRANTED:
            return f"{GRANTED.get(question.choice or Choice.ONCE, 'Approved')} by {question.by} at {at}."
        case Answer.DENIED:
            return f"Denied by {question.by} at {at}."
        case Answer.EXPIRED:
            return f"Nobody answered until {at}, so it did not run."
        case Answer.WITHDRAWN:
            return f"No longer needed: the run ended at {at}."
        case Answer.OPEN:
            return "This question is still open."


def line_of(question: Question) -> str:
    """A question in a list."""
    detail = one_line(question.detail)
    shown = detail if len(detail) <= 80 else f"{detail[:80]}…"
    asker, until = ODD_LABEL.sub("·", question.asker), _deadline(question)
    return f"{short(question.id)} · {_name(question.tool)}: {shown} · for {asker} · until {until}"


def clock_time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%H:%M UTC")


def _deadline(question: Question) -> str:
    """When a question expires, with the day if the time alone would come sooner."""
    is_far = question.expires - question.asked >= DAY_SECONDS
    return datetime.fromtimestamp(question.expires, UTC).strftime("%d %B, %H:%M UTC" if is_far else "%H:%M UTC")


def _where(conversation: str) -> str:
    """Where a question comes from; a conversation for one request only has no name that people know."""
    return f"from {conversation.partition(':')[0]}" if is_passing(conversation) else f"in {conversation}"


def _name(given: str) -> str:
    """A name that others chose, as plain words of bounded length."""
    name = ODD.sub("·", given)
    return name if len(name) <= NAME_CHARACTERS else f"{name[:NAME_CHARACTERS]}…"


def _reminder(detail: str) -> str:
    return detail if len(detail) <= REMINDER_CHARACTERS else f"{detail[:REMINDER_CHARACTERS]}\n…"


def _fenced(text: str) -> str:
    """Puts what will run into a code fence that is longer than any inside it."""
    fence = max(["``", *BACKTICKS.findall(text)], key=len) + "`"
    return f"{fence}\n{text}\n{fence}"
