"""What a body becomes on Discord: its text, what is attached to it, its buttons, and the key that makes it one."""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

from tidings.adapters.discord import render
from tidings.adapters.shared import files
from tidings.core.errors import Unfit
from tidings.core.types import Body, Choice, Part, encode

# More messages than this in a row are a file.
MOST_PARTS = 5
# Longer than this, it need not be cut to see that it is a file.
SURELY_A_FILE = 3 * MOST_PARTS * render.LIMIT
PREVIEW = 600
LARGEST_FILE = 10 * files.MEGABYTE
ANSWER_FILE = "answer.md"
IN_THE_FILE = "\u2026 The whole answer is in the file below."
BUTTONS_IN_ROW, MOST_ROWS = 5, 5
LABEL_CHARACTERS = 80
TITLE_CHARACTERS = 80
NONCE_CHARACTERS = 24
# Turns off link previews.
SUPPRESS_EMBEDS = 1 << 2
# A bot's words never ping anyone.
NO_MENTIONS: dict[str, list[str]] = {"parse": []}


_MENTION = re.compile(r"<@[!&]?\d+>")


class Words(NamedTuple):
    content: str
    # The text itself, where it goes as a file.
    attached: tuple[tuple[str, bytes], ...] = ()


def cut(text: str, *, in_one: bool, may_attach: bool = True, limit: int = render.LIMIT) -> tuple[str, ...]:
    """A few parts, or one that is longer than a message, which then goes as a file where one may be attached."""
    if not text.strip():
        return ()
    if in_one or (may_attach and len(text) > SURELY_A_FILE):
        return (text,)
    parts = render.compose(text, limit)
    return parts if len(parts) <= MOST_PARTS or not may_attach else (text,)


def word(text: str, *, in_one: bool, limit: int = render.LIMIT) -> Words:
    """Raises Unfit where the text should have been cut."""
    if len(text) <= SURELY_A_FILE:
        content = render.render(text)
        if len(content) <= limit:
            return Words(content)
        if len(cut(text, in_one=in_one, limit=limit)) > 1:
            raise Unfit(f"it has {len(content)} characters, and Discord takes at most {limit}")
    whole = render.clean(text).encode()
    return Words(f"{render.preview(text, PREVIEW)}\n\n{IN_THE_FILE}", ((ANSWER_FILE, whole),))


async def attached(body: Body, words: Words) -> tuple[tuple[str, bytes], ...]:
    """Raises Rejected with a reason that a person can read."""
    loaded = [(file.name, await files.read(file, LARGEST_FILE, "Discord")) for file in body.files]
    return (*words.attached, *loaded)


def names(body: Body, words: Words) -> list[str]:
    """The names of the attached files, as Discord writes them."""
    return [plain_name(name) for name in (*(name for name, _ in words.attached), *(file.name for file in body.files))]


def plain_name(name: str) -> str:
    return re.sub(r"[^\w.\-]", "_", name)


def message(
    body: Body, words: Words, uploads: tuple[tuple[str, bytes], ...], *, previews: bool = False
) -> dict[str, Any]:
    """The message as a call says it. What it names as attached replaces what was: so it may be said twice."""
    said: dict[str, Any] = {
        "content": words.content,
        "allowed_mentions": NO_MENTIONS,
        "components": _rows(body.choices),
        # A preview fetches the link: text that a stranger tricks a model into putting there would leak.
        "flags": 0 if previews else SUPPRESS_EMBEDS,
    }
    if uploads:
        said["attachments"] = [{"id": number, "filename": name} for number, (name, _) in enumerate(uploads)]
    return said


def title(text: str) -> str:
    """A name for the thread that a message opens."""
    words = " ".join(_MENTION.sub("", text).split())
    return (words if len(words) <= TITLE_CHARACTERS else f"{words[: TITLE_CHARACTERS - 1]}\u2026") or "Conversation"


def nonce_of(part: Part) -> str:
    """The body is in it: another one under the same key is another message."""
    return hashlib.sha256(part.key.encode() + b"\0" + encode(part.body)).hexdigest()[:NONCE_CHARACTERS]


def is_said(found: dict[str, Any], body: Body, words: Words) -> bool:
    """Whether a message of ours says this; Discord trims what surrounds a text."""
    attachments = [plain_name(str(file.get("filename"))) for file in found.get("attachments") or ()]
    return str(found.get("content") or "").split() == words.content.split() and attachments == names(body, words)


def _rows(choices: tuple[Choice, ...]) -> list[dict[str, Any]]:
    buttons = [
        {"type": 2, "style": 2, "label": choice.label[:LABEL_CHARACTERS] or "\u2026", "custom_id": choice.id}
        for choice in choices[: BUTTONS_IN_ROW * MOST_ROWS]
    ]
    return [
        {"type": 1, "components": buttons[start : start + BUTTONS_IN_ROW]}
        for start in range(0, len(buttons), BUTTONS_IN_ROW)
    ]
