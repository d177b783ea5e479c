"""Keeps a copy of the last good settings, and starts with the copy when the file is broken."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tidings.bots.app import settings
from tidings.bots.app.roster import secrets_file
from tidings.bots.app.settings import Loaded, Texts
from tidings.core.errors import ConfigError
from tidings.core.settings import Section

log = logging.getLogger(__name__)

FOLDER = "last-good"
# The first line of each copy; a copy of another file is ignored.
KEPT = "# Kept by tidings, which has last started with this: do not edit it. It is a copy of "


def load(
    sections: Mapping[str, type[Section]],
    home: Path,
    file: Path | None,
    environment: Mapping[str, str],
    check: Callable[[Loaded], object],
) -> Loaded:
    """Loads the settings; if the file is broken, loads the copy of the last good start and fills in `broken`.

    `check` raises ConfigError for settings that can be read but not used.
    """
    try:
        loaded = settings.load(sections, home, file, environment)
        check(loaded)
    except ConfigError as error:
        path = file or home / "tidings.toml"
        if (kept := recall(home, path)) is None:
            raise
        try:
            loaded = settings.load(sections, home, file, environment, texts=kept)
            check(loaded)
        except ConfigError:
            # The copy fails too, so the file is not the only cause.
            raise error from None
        return replace(loaded, broken=str(error))
    return loaded


def warning(loaded: Loaded) -> str:
    """The warning for the owner; empty if the settings are in order."""
    if not loaded.broken:
        return ""
    return (
        f"the settings are broken, so those of the last good start are used: {loaded.broken};"
        " fix the file, check it with: tidings config check, and restart"
    )


def keep(home: Path, loaded: Loaded) -> None:
    """Keeps a copy after a good start; a full disk is only logged, because the gateway runs."""
    if loaded.broken:
        return
    folder = home / FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for path, text in ((loaded.file, loaded.texts.tidings), (secrets_file(loaded.file), loaded.texts.secrets)):
            write(folder / copy_name(path), f"{KEPT}{path}\n{text or ''}")
    except OSError as error:
        log.warning("the settings of this start could not be kept in %s: %s", folder, error.strerror)


def recall(home: Path, file: Path) -> Texts | None:
    """The copy of that file, or None."""
    texts = []
    for path in (file, secrets_file(file)):
        try:
            first, _, text = (home / FOLDER / copy_name(path)).read_text(encoding="utf-8").partition("\n")
        except (OSError, UnicodeDecodeError):
            return None
        if first != f"{KEPT}{path}":
            return None
        texts.append(text)
    return Texts(*texts)


def copy_name(path: Path) -> str:
    return "secrets.toml" if path == secrets_file(path) else "tidings.toml"


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Writes a file as a whole or not at all; other users can never read it. Raises OSError."""
    # A symbolic link stays; the file behind it changes.
    path = path.resolve()
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
