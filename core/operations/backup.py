"""Packs a home into one file: a copy of the store, the files it refers to, keys and settings; never the log."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from tidings.core.errors import StoreRefused, TidingsError
from tidings.core.inbound import inbox
from tidings.core.outbound import files
from tidings.core.store import at_rest
from tidings.core.store.checks import inspect
from tidings.core.work.tasks import rows as task_rows

FORMAT = 1
# The manifest is the first member and describes the backup; the seal is the last and proves that it is complete.
MANIFEST, SEAL = "manifest.json", "seal.json"
STORE, SETTINGS, SECRETS = "tidings.db", "tidings.toml", "secrets.toml"
# The folder in the backup for files of open deliveries that lie outside the home.
OUTSIDE = "outside"
FOLDERS = ("attachments", "board", "workspaces")
# Files in the home that belong to the running process or are not part of a backup.
LEFT_OUT = ("lock", "tidings.db", "tidings.sock", "tidings.log", "stderr.log")
LEFT_OUT_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tmp", ".log")
# A larger file is buffered on disk while it is read, not in memory.
SPOOLED_BYTES = 8 * 1024 * 1024
COPY_BYTES = 1024 * 1024
SECRET_MODE = 0o600
FOLDER_MODE = 0o700


class Manifest(msgspec.Struct, frozen=True):
    format: int
    version: str
    schema: int
    # The folder of the home; paths in the store begin with it.
    home: str
    # When the store was copied, by the wall clock.
    made: float
    # Whether a gateway was running meanwhile.
    running: bool
    # The names in the backup of files from outside the home, by their paths.
    outside: dict[str, str] = {}
    # Files that the settings name, relative to the settings' folder.
    named: tuple[str, ...] = ()


class Packed(NamedTuple):
    files: int
    bytes: int
    # Files that could not be read or are not plain files.
    skipped: tuple[str, ...]


@contextmanager
def written(file: Path, *, replace: bool) -> Iterator[IO[bytes]]:
    """Writes a file that appears only when it is complete; only its owner may read it."""
    if file.exists() and not replace:
        raise TidingsError(f"{file} already exists; choose another name, or use --force")
    part = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET_MODE)
    except OSError as error:
        raise TidingsError(f"{file} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
        sync_folder(file.parent)
    except OSError as error:
        raise TidingsError(f"{file} cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy_at_rest(database: Path, to: Path) -> None:
    """Copies a store that no gateway uses, without upgrading it; the caller must hold the home's lock."""
    if not database.exists():
        raise TidingsError(f"there is nothing to back up in {database.parent}")
    inspect(database)
    to.touch(mode=SECRET_MODE)
    at_rest.copy(database, to)


def pack(
    home: Path,
    snapshot: Path,
    settings: Path,
    stream: IO[bytes],
    *,
    version: str,
    made: float,
    running: bool,
    essential: bool = False,
    named: Sequence[str] = (),
) -> Packed:
    """With `essential`, packs only the files that open work refers to; `named` are paths below the settings' folder."""
    at_rest.make_single(snapshot)
    inspect(snapshot)
    with at_rest.looked_at(snapshot, immutable=True) as found:
        schema, owed = found.schema, files.owed(found.tx)
        at_work = inbox.open_workspaces(found.tx) | task_rows.open_workspaces(found.tx)
    places = {("workspaces", name) for name in at_work}
    strangers = sorted(path for path in owed if not Path(path).is_relative_to(home) and Path(path).is_file())
    outside = {path: f"{OUTSIDE}/{number}/{Path(path).name}" for number, path in enumerate(strangers, start=1)}
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        archive = _Archive(tar, made)
        manifest = Manifest(FORMAT, version, schema, str(home), made, running, outside, tuple(named))
        archive.add_bytes(MANIFEST, msgspec.json.encode(manifest))
        archive.add(STORE, snapshot)
        for name in named:
            archive.add(name, settings.parent / name)
        for name, path in _beside(home, settings):
            archive.add(name, path)
        for folder in FOLDERS:
            for path in _files_below(home / folder, archive.skipped):
                inside = path.relative_to(home)
                if not essential or str(path) in owed or inside.parts[:2] in places:
                    archive.add(str(inside), path)
        for path_outside, name in outside.items():
            archive.add(name, Path(path_outside))
        archive.add_bytes(SEAL, msgspec.json.encode(archive.digests))
    return Packed(len(archive.digests), archive.bytes, tuple(archive.skipped))


class _Archive:
    def __init__(self, tar: tarfile.TarFile, made: float) -> None:
        self.digests: dict[str, str] = {}
        self.skipped: list[str] = []
        self.bytes = 0
        self._tar = tar
        self._made = made

    def add(self, name: str, path: Path) -> None:
        """Adds a file; if it changes while it is read, the content that was read is packed."""
        if name in self.digests:
            return
        with tempfile.SpooledTemporaryFile(SPOOLED_BYTES) as spool:
            try:
                with path.open("rb") as source:
                    mode, written_at = os.fstat(source.fileno()).st_mode, os.fstat(source.fileno()).st_mtime
                    while piece := source.read(COPY_BYTES):
                        spool.write(piece)
            except OSError as error:
                self.skipped.append(f"{path}: {error.strerror}")
                return
            spool.seek(0)
            self._put(name, spool, mode & 0o700 or SECRET_MODE, written_at)

    def add_bytes(self, name: str, data: bytes) -> None:
        self._put(name, io.BytesIO(data), SECRET_MODE, self._made)

    def _put(self, name: str, stream: IO[bytes], mode: int, written_at: float) -> None:
        info = tarfile.TarInfo(name)
        digest = hashlib.sha256()
        while piece := stream.read(COPY_BYTES):
            digest.update(piece)
            info.size += len(piece)
        stream.seek(0)
        info.mode, info.mtime = mode, written_at
        self._tar.addfile(info, stream)
        self.digests[name] = digest.hexdigest()
        self.bytes += info.size


def _beside(home: Path, settings: Path) -> Iterator[tuple[str, Path]]:
    """Settings, keys and texts in the home; settings from elsewhere get the names that they would have here."""
    given = {SETTINGS: settings, SECRETS: settings.with_name(SECRETS)}
    yield from ((name, path) for name, path in given.items() if path.is_file())
    for path in sorted(home.iterdir()):
        if not path.is_file() or path.is_symlink() or path.name in given or path.name.startswith("."):
            continue
        if not path.name.startswith(LEFT_OUT) and not path.name.endswith(LEFT_OUT_ENDINGS):
            yield path.name, path


def may_lie_below(name: str) -> bool:
    """Tells whether a name stays inside the home and does not overwrite a file of the running process."""
    first, *rest = parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in name:
        return False
    if first in FOLDERS:
        return bool(rest)
    return not first.startswith((*LEFT_OUT, ".")) and first not in (OUTSIDE, MANIFEST, SEAL)


def _files_below(folder: Path, skipped: list[str]) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for where, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(where, name)
            if path.is_symlink() or not path.is_file():
                # A link may lead anywhere, and a pipe may never end.
                skipped.append(f"{path}: no plain file")
            else:
                yield path


def read_manifest(data: bytes, file: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise StoreRefused(f"{file} is not a backup of Tidings: {error}") from error
    if manifest.format > FORMAT:
        raise StoreRefused(f"{file} was made by a newer version ({manifest.version}); upgrade first")
    return manifest
