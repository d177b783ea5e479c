"""Files on their way out: what each can be sent as, and why one cannot be sent."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import NamedTuple

from telegram import InputFile

from core.errors import Rejected
from core.types import File

MEGABYTE = 1024 * 1024
LARGEST = 50 * MEGABYTE
LARGEST_PHOTO = 10 * MEGABYTE

NOT_WHAT_IT_SEEMS = ("image_process_failed", "photo_", "wrong file", "voice_messages_forbidden", "voice")
PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
VOICE = b"OggS"


class Upload(NamedTuple):
    name: str
    data: bytes

    @property
    def ways(self) -> tuple[tuple[str, str], ...]:
        """Method and field, the best first; by what is in the file and not by its name."""
        document = ("sendDocument", "document")
        if self.data.startswith(PICTURES) and len(self.data) <= LARGEST_PHOTO:
            return ("sendPhoto", "photo"), document
        if self.data.startswith(VOICE) and self.name.endswith((".ogg", ".oga", ".opus")):
            return ("sendVoice", "voice"), document
        return (document,)

    def content(self) -> InputFile:
        return InputFile(self.data, filename=self.name)


async def load(file: File) -> Upload:
    """Raises Rejected with a reason that a person can read."""
    try:
        size = (await asyncio.to_thread(Path(file.path).stat)).st_size
        if size > LARGEST:
            raise Rejected(f"it has {size / MEGABYTE:.0f} MB, and Telegram takes 50 MB from a bot")
        data = await asyncio.to_thread(Path(file.path).read_bytes)
    except OSError as error:
        raise Rejected(f"it cannot be read: {error.strerror}") from error
    if not data:
        raise Rejected("it is empty, and Telegram takes no empty files")
    return Upload(file.name, data)


def safe_name(name: str) -> str:
    """Only what every file system takes; never a path, never hidden."""
    return re.sub(r"[^\w.\- ]", "_", name).lstrip(". ")[-100:] or "file"
