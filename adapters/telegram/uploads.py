"""Files on their way out: what each can be sent as."""

from __future__ import annotations

from typing import NamedTuple

from telegram import InputFile

from tidings.adapters.shared import files
from tidings.core.types import File

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
    return Upload(file.name, await files.read(file, LARGEST, "Telegram"))
