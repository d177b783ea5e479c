"""Files on their way in and out: read within a limit, and kept under a name that every file system takes."""

from __future__ import annotations

import asyncio
import re
import secrets
from pathlib import Path

from tidings.core.errors import Rejected
from tidings.core.types import File

MEGABYTE = 1024 * 1024


async def read(file: File, largest: int, platform: str) -> bytes:
    """Raises Rejected with a reason that a person can read."""
    try:
        size = (await asyncio.to_thread(Path(file.path).stat)).st_size
        if size > largest:
            most = f"{largest / MEGABYTE:.0f} MB"
            raise Rejected(f"it has {size / MEGABYTE:.0f} MB, and {platform} takes {most} from a bot")
        data = await asyncio.to_thread(Path(file.path).read_bytes)
    except OSError as error:
        raise Rejected(f"it cannot be read: {error.strerror}") from error
    if not data:
        raise Rejected(f"it is empty, and {platform} takes no empty files")
    return data


async def keep(folder: Path, name: str, data: bytes) -> Path:
    """Writes a fetched file under its own name, with a prefix that no other file has."""
    path = folder / f"{secrets.token_hex(8)}-{safe_name(name)}"
    await asyncio.to_thread(_write, path, data)
    return path


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(data)


def safe_name(name: str) -> str:
    """Never a path, never hidden."""
    return re.sub(r"[^\w.\- ]", "_", name).lstrip(". ")[-100:] or "file"
