"""Notes about one person, kept across all conversations of that person and all linked identities."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta

from tidings.bots.assistant.tools.tool import Arguments, Occasion, Result, ToolError, define
from tidings.core.agent import Effect
from tidings.core.errors import Unkeepable, Unstored
from tidings.core.roles import Permission

NOTE_CHARACTERS = 2_000
MOST_NOTES = 50


class Note(Arguments, frozen=True):
    text: Annotated[str, Meta(description="One fact, in a sentence that is understood without this talk.")]


async def remember(asked: Note, occasion: Occasion) -> Result:
    text = asked.text.strip()
    if not text:
        raise ToolError("There is nothing to remember in an empty note.")
    if len(text) > NOTE_CHARACTERS:
        raise ToolError(f"A note has at most {NOTE_CHARACTERS:,} characters; this one has {len(text):,}.")
    try:
        is_new = await occasion.desk.remember(text)
    except (Unkeepable, Unstored) as error:
        raise ToolError(f"The note was not stored: {error}.") from error
    return Result("Noted." if is_new else "That was noted before.")


class Question(Arguments, frozen=True):
    words: Annotated[str, Meta(description="Words that the notes may have in them; empty means all notes.")] = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_NOTES)] = 20


async def recall(asked: Question, occasion: Occasion) -> Result:
    found = await occasion.desk.recall(asked.words.strip(), asked.limit)
    if not found:
        return Result("There are no such notes." if asked.words.strip() else "There are no notes about this person.")
    lines = [f"- {datetime.fromtimestamp(note.at, UTC):%Y-%m-%d}: {note.text}" for note in found]
    return Result("\n".join(["Notes about this person, the newest first:", *lines]))


TOOLS = (
    define(
        "remember",
        "Keeps a note about the person you talk to, for all later conversations with them.",
        Note,
        Effect.IDEMPOTENT,
        Permission.TALK,
        remember,
    ),
    define(
        "recall",
        "Finds the notes you kept about the person you talk to.",
        Question,
        Effect.PURE,
        Permission.TALK,
        recall,
        # A note may hold a stranger's words.
        untrusted=True,
        source=lambda _: "notes from earlier talks",
    ),
)
