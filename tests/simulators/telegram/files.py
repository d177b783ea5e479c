"""Files on Telegram: what may be uploaded as what, and what can be fetched back."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tests.simulators.telegram.texts import bad
from tests.simulators.telegram.truth import File

DOWNLOAD_BYTES = 20 * 2**20
UPLOAD_BYTES = 50 * 2**20
PHOTO_BYTES = 10 * 2**20
# Width and height together, and how much longer one side may be.
PHOTO_SIDES = 10_000
PHOTO_RATIO = 20

_FOLDERS = {"photo": "photos", "voice": "voice"}


class Upload(NamedTuple):
    name: str
    data: bytes


class Shelf:
    """Every file by its id. It can be fetched by its path only after getFile has named that."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.paths: dict[str, File] = {}
        self._kinds: dict[str, str] = {}

    def put(self, name: str, data: bytes, kind: str = "document") -> File:
        file = File(id=f"AgAD{len(self.files):012d}", name=name, data=data)
        self.files[file.id] = file
        self._kinds[file.id] = kind
        return file

    def find_path(self, id: str) -> tuple[File, str]:
        if not id:
            raise bad("file_id not specified")
        if id not in self.files:
            raise bad("wrong file_id or the file is temporarily unavailable")
        file = self.files[id]
        if len(file.data) > DOWNLOAD_BYTES:
            raise bad("file is too big")
        ending = file.name.rpartition(".")[2] if "." in file.name else "bin"
        path = f"{_FOLDERS.get(self._kinds[id], 'documents')}/file_{int(id[4:])}.{ending}"
        self.paths[path] = file
        return file, path

    def take(self, kind: str, params: dict[str, str], uploads: dict[str, Upload]) -> tuple[str, File]:
        """The file that a call sends, and what it is sent as."""
        named = params.get(kind, "")
        upload = uploads.get(named.removeprefix("attach://") if named.startswith("attach://") else kind)
        if upload is None:
            if not named:
                raise bad(f"there is no {kind} in the request")
            if named not in self.files:
                raise bad("wrong file identifier/HTTP URL specified")
            return kind, self.files[named]
        if not upload.data:
            raise bad("file must be non-empty")
        if kind == "photo":
            check_photo(upload.data)
        elif kind == "voice" and not is_voice(upload.data):
            # Not refused, but not a voice message either.
            kind = "document"
        return kind, self.put(upload.name or f"{kind}.bin", upload.data, kind)


def is_voice(data: bytes) -> bool:
    return data.startswith((b"OggS", b"ID3")) or data[4:8] == b"ftyp" or data[:2] in (b"\xff\xfb", b"\xff\xf3")


def is_image(data: bytes) -> bool:
    return data.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")) or (
        data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    )


def check_photo(data: bytes) -> None:
    if len(data) > PHOTO_BYTES:
        raise bad(f"file of size {len(data)} bytes is too big for a photo; the maximum size is {PHOTO_BYTES} bytes")
    if not is_image(data):
        raise bad("IMAGE_PROCESS_FAILED")
    if data.startswith(b"\x89PNG") and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        if width + height > PHOTO_SIDES or max(width, height) > PHOTO_RATIO * max(1, min(width, height)):
            raise bad("PHOTO_INVALID_DIMENSIONS")
