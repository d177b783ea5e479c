"""Turns attachments into what a model can take: images, texts, or a sentence that says why not."""

from __future__ import annotations

import asyncio
import re
import shutil
from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic_ai.messages import ImageUrl, UserContent

from tidings.bots.assistant.images import SCHEME
from tidings.bots.assistant.prompt import NOTE, SIGN, WORDLESS, fence, heard, label
from tidings.bots.assistant.tools.workspace import ATTACHMENTS
from tidings.core import context, ids
from tidings.core.agent import Turn
from tidings.core.errors import TidingsError
from tidings.core.redaction import one_line
from tidings.core.types import Attachment, Inbound

# The image types that providers document.
IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
IMAGE_BYTES = 5 * 1024 * 1024
TEXT_BYTES = 200_000
NAME_BYTES = 100


@dataclass(frozen=True, slots=True)
class Heard:
    content: str | Sequence[UserContent]
    # Tells the person which attachments the model will not see.
    refused: tuple[str, ...] = ()


async def take(turn: Turn, *, images: bool, message: Inbound | None = None) -> Heard:
    """Takes in the message of a turn, or another `message` that came while the turn goes on."""
    label_of = turn.run if message is None else f"{turn.run}-{ids.new('later')[-8:]}"
    message = message or turn.message
    text = heard(message)
    if not message.attachments:
        return Heard(text if text.strip() else WORDLESS)
    content: list[UserContent] = [text] if text.strip() else []
    refused = []
    for number, attachment in enumerate(message.attachments, start=1):
        name = label(attachment.name) or f"file {number}"
        try:
            path = await turn.desk.fetch(attachment)
            kept = await asyncio.to_thread(_keep, path, f"{label_of}-{number}", attachment.name)
            piece, complaint = await asyncio.to_thread(_look, path, attachment, name, images)
        except (TidingsError, OSError) as error:
            reason = one_line((error.strerror if isinstance(error, OSError) else "") or str(error))
            refused.append(f"I could not fetch {name}: {reason.rstrip('.')}.")
            content.append(f'{NOTE} "{name}" was attached, but it could not be fetched.)')
            continue
        content.append(f'(Attached{SIGN}: "{name}", kept in the workspace as {kept})')
        content.append(piece)
        if complaint:
            refused.append(complaint)
    return Heard(content, tuple(refused))


def _keep(path: Path, prefix: str, name: str) -> str:
    """Copies the file into the workspace under a safe name, so that tools can work with it."""
    folder = context.current().workspace / ATTACHMENTS
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The end of a name says more than its beginning, and file systems limit bytes, not characters.
    ending = re.sub(r"[^\w.-]+", "_", name).encode()[-NAME_BYTES:].decode(errors="ignore")
    safe = f"{prefix}-{ending}".rstrip("-.")
    draft = folder / f".{prefix}.part"
    shutil.copyfile(path, draft)
    draft.replace(folder / safe)
    return f"{ATTACHMENTS}/{safe}"


def _look(path: Path, attachment: Attachment, name: str, images: bool) -> tuple[UserContent, str]:
    """Returns what the model gets and what the person is told."""
    size, kind = path.stat().st_size, _image_type(path)
    if kind or attachment.media_type.startswith("image/"):
        if not images:
            return _unseen(name), f"I cannot look at {name}: the model I use takes no images."
        if kind not in IMAGES:
            return _unseen(name), f"I cannot look at {name}: models take PNG, JPEG, WebP and GIF images only."
        if size > IMAGE_BYTES:
            limit = IMAGE_BYTES // 1024 // 1024
            return _unseen(name), f"I cannot look at {name}: it has {size / 2**20:.1f} MB, and {limit} MB is the most."
        return ImageUrl(f"{SCHEME}{path}", media_type=kind), ""
    if (text := _read_text(path)) is None:
        return _unseen(name), f"I cannot read {name} by itself: it is neither an image nor a text."
    if size > TEXT_BYTES:
        much = f"it has {size:,} bytes, and {TEXT_BYTES:,} are the most"
        return _unseen(name), f"I cannot read {name} by itself: {much} for a text."
    return fence(text, f"the file {name}"), ""


def _unseen(name: str) -> str:
    return f'{NOTE} you cannot see the content of "{name}"; only tools that open files can work with it.)'


def _image_type(path: Path) -> str:
    """Judges an image by its first bytes, because a sender can write any name and type."""
    with path.open("rb") as file:
        head = file.read(16)
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return ""


def _read_text(path: Path) -> str | None:
    """Reads the beginning of a text file, up to the limit."""
    with path.open("rb") as file:
        data = file.read(TEXT_BYTES + 1)
    if b"\0" in data:
        return None
    try:
        # The limit may cut a character in half.
        decoder = getincrementaldecoder("utf-8-sig")()
        return decoder.decode(data, final=len(data) <= TEXT_BYTES)
    except UnicodeDecodeError:
        return None
