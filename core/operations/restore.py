"""Restores a backup into a home without a store: checks all of it first, and puts the store in place last."""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import tarfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple, Self

import msgspec

from tidings.core.errors import StoreRefused, TidingsError
from tidings.core.failpoints import fail_here
from tidings.core.inbound import inbox
from tidings.core.operations import backup
from tidings.core.operations.backup import COPY_BYTES, FOLDERS, MANIFEST, OUTSIDE, SEAL, SECRET_MODE, STORE, Manifest
from tidings.core.outbound import files, outbox
from tidings.core.store import at_rest
from tidings.core.store.lock import HomeLock
from tidings.core.types import File
from tidings.core.work.board import cards

# The folder where a backup is unpacked, in the same file system as the home.
STAGE = ".restoring"
# The largest manifest or seal, and the largest header of a member, such as its name: all are read into memory.
INDEX_BYTES = 64 * 1024 * 1024
HEADER_BYTES = 1024 * 1024
# Disk space that unpacking always leaves free.
SPARE_BYTES = 64 * 1024 * 1024
# The files of a store.
STORE_FILES = (STORE, f"{STORE}-wal", f"{STORE}-shm")


class Restored(NamedTuple):
    manifest: Manifest
    files: int
    # Messages being answered or waiting, deliveries not yet sent, and those of them that may have arrived.
    runs: int
    owed: int
    doubtful: int
    # The folder with the files that were in the home before; None if there were none.
    aside: Path | None
    # Restored files that were put beside existing files of the same name.
    beside: tuple[Path, ...]


def restore(file: Path, home: Path, *, move_aside: bool) -> Restored:
    """Raises HomeInUse while a gateway runs there, StoreRefused for a bad backup; then the home is unchanged."""
    if not file.is_file():
        raise TidingsError(f"there is no file {file}")
    lock = HomeLock(home)
    lock.take()
    before = os.umask(0o077)
    stage = home / STAGE
    try:
        _check_room(home, move_aside=move_aside)
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(mode=backup.FOLDER_MODE)
        manifest, files = _unpack(file, stage)
        runs, owed, doubtful = _check_store(stage / STORE, manifest, home)
        aside = _move_aside(home) if move_aside else None
        beside = _put_in_place(stage, home)
        return Restored(manifest, files, runs, owed, doubtful, aside, beside)
    except OSError as error:
        raise TidingsError(f"{home} cannot be restored: {error.strerror or error}") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        os.umask(before)
        lock.release()


def _in_the_way(home: Path) -> list[Path]:
    return [path for name in (*STORE_FILES, *FOLDERS, "api.key") if (path := home / name).exists()]


def _check_room(home: Path, *, move_aside: bool) -> None:
    if not move_aside and (found := _in_the_way(home)):
        names = ", ".join(path.name for path in found)
        advice = "use --move-aside to move these into a folder of their own, or choose another home with --home"
        raise TidingsError(f"{home} already has {names}; {advice}")


def _unpack(file: Path, stage: Path) -> tuple[Manifest, int]:
    digests: dict[str, str] = {}
    seal: dict[str, str] | None = None
    manifest: Manifest | None = None
    try:
        with tarfile.open(file, "r:*", tarinfo=_Member) as tar:
            for member in tar:
                _check_size(member, file, stage)
                content = tar.extractfile(member) if member.isreg() else None
                if content is None or not _is_harmless(member.name, manifest.named if manifest else ()):
                    raise StoreRefused(f"{file} contains {member.name!r}, which no backup has; nothing was restored")
                if member.name == MANIFEST:
                    data = content.read(INDEX_BYTES)
                    manifest = backup.read_manifest(data, file)
                    digests[MANIFEST] = hashlib.sha256(data).hexdigest()
                elif member.name == SEAL:
                    seal = msgspec.json.decode(content.read(INDEX_BYTES), type=dict[str, str])
                elif manifest is None:
                    raise StoreRefused(f"{file} is not a backup of Tidings")
                else:
                    digests[member.name] = _extract(content, stage / member.name, member)
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, msgspec.MsgspecError) as error:
        raise StoreRefused(f"{file} is damaged or not a backup of Tidings: {error}") from error
    if manifest is None or STORE not in digests:
        raise StoreRefused(f"{file} is not a backup of Tidings")
    if seal != digests:
        what = "is incomplete" if seal is None else "is damaged: its content does not match its checksums"
        raise StoreRefused(f"{file} {what}; use another backup")
    return manifest, len(digests) - 1


class _Member(tarfile.TarInfo):
    """A member of the archive with a size limit on its headers, such as its name, which are read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type not in tarfile.REGULAR_TYPES and found.size > HEADER_BYTES:
            raise StoreRefused("a name in this backup is too long; nothing was restored")
        return found


def _check_size(member: tarfile.TarInfo, file: Path, stage: Path) -> None:
    """Refuses a member that would fill memory or the disk: a small archive can contain a huge file."""
    if member.name in (MANIFEST, SEAL) and member.size > INDEX_BYTES:
        raise StoreRefused(f"{file}: {member.name} is too large; nothing was restored")
    room = shutil.disk_usage(stage).free - SPARE_BYTES
    if member.size > room:
        need = f"{member.name} has {member.size:,} bytes, and there is room for {max(room, 0):,}"
        raise StoreRefused(f"{file} cannot be unpacked: {need}; free some space, or choose another home with --home")


def _is_harmless(name: str, named: Sequence[str]) -> bool:
    """Tells whether a backup may contain this name: in its own folders, beside the settings, or named by them."""
    if name in (MANIFEST, SEAL, STORE):
        return True
    first, *rest = name.split("/")
    if first == OUTSIDE:
        return bool(rest) and backup.may_lie_below("/".join(rest))
    return backup.may_lie_below(name) and (not rest or first in FOLDERS or name in named)


def _extract(content: IO[bytes], to: Path, member: tarfile.TarInfo) -> str:
    to.parent.mkdir(mode=backup.FOLDER_MODE, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, member.mode & 0o700 | SECRET_MODE)
    with os.fdopen(descriptor, "wb") as written:
        while piece := content.read(COPY_BYTES):
            digest.update(piece)
            written.write(piece)
        written.flush()
        os.fsync(written.fileno())
    # Retention removes files by their age.
    os.utime(to, (member.mtime, member.mtime))
    return digest.hexdigest()


def _check_store(database: Path, manifest: Manifest, home: Path) -> tuple[int, int, int]:
    """Checks that the store is intact, ours and not newer, and redirects its paths to this home."""
    moved = {path: str(home / "attachments" / "restored" / name) for path, name in manifest.outside.items()}

    def here(place: str) -> str:
        path = Path(place)
        if path.is_relative_to(manifest.home):
            return str(home / path.relative_to(manifest.home))
        return moved.get(place, place)

    with at_rest.adopted(database) as tx:
        files.redirect(tx, lambda file: File(path=here(file.path), name=file.name))
        cards.redirect_files(tx, here)
        owed, doubtful = outbox.count_owed(tx)
        return inbox.count_open(tx), owed, doubtful


def _move_aside(home: Path) -> Path | None:
    found = _in_the_way(home)
    if not found:
        return None
    aside = home / time.strftime("before-restore-%Y%m%d-%H%M%S")
    aside.mkdir(mode=backup.FOLDER_MODE)
    # The store is moved first: a folder without a store does not count as a home.
    for path in found:
        path.rename(aside / path.name)
    return aside


def _put_in_place(stage: Path, home: Path) -> tuple[Path, ...]:
    """Moves everything into the home, the store last: after a crash, a home without a store can be restored again."""
    beside = []
    if (stage / OUTSIDE).is_dir():
        restored = stage / "attachments" / "restored"
        restored.mkdir(mode=backup.FOLDER_MODE, parents=True)
        (stage / OUTSIDE).rename(restored / OUTSIDE)
    for path in sorted(stage.iterdir()):
        there = home / path.name
        if path.name == STORE or (path.is_file() and there.is_file() and path.read_bytes() == there.read_bytes()):
            continue
        if there.exists():
            # The existing file stays: the home may already be set up.
            there = there.with_name(f"{there.name}.restored")
            beside.append(there)
        path.replace(there)
    fail_here("restore.pre_store")
    backup.sync_folder(home)
    (stage / STORE).replace(home / STORE)
    backup.sync_folder(home)
    return tuple(beside)
