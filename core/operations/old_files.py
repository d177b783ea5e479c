"""Removes old files: attachments, and the logs of workers on cards that have ended."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidings.core.desk.deliveries import Pruned
from tidings.core.store.store import Transaction
from tidings.core.types import Body

log = logging.getLogger(__name__)

ATTACHMENTS, BOARD = "attachments", "board"
# Logs of worker processes, in the folder of each card.
RECORDS = "attempt-*.log"


class Kept(NamedTuple):
    """What must be kept: files by their paths, and open cards by their numbers."""

    files: frozenset[str]
    cards: frozenset[str]


def kept(tx: Transaction) -> Kept:
    """Files of deliveries that may still be sent or retried, files of cards, and open cards."""
    rows = tx.all(
        "SELECT body FROM deliveries WHERE state <> 'delivered' AND kind <> 'opening' AND dismissed = 0"
        " AND has_files = 1"
    )
    owed = {file.path for row in rows for file in msgspec.json.decode(row["body"], type=Body).files}
    attached = {row["place"] for row in tx.all("SELECT place FROM card_files")}
    open_cards = tx.all(
        "SELECT id FROM cards WHERE state IN ('triage', 'todo', 'ready', 'running', 'blocked', 'review')"
    )
    return Kept(frozenset(owed | attached), frozenset(str(row["id"]) for row in open_cards))


def remove(home: Path, kept: Kept, fetched: float, records: float, *, rehearsal: bool) -> Pruned:
    """Removes attachments fetched before `fetched` and worker logs written before `records`, by the wall clock."""
    # The home may have had another path when the file was stored.
    places = {os.path.realpath(path) for path in kept.files}
    attachments, board = home / ATTACHMENTS, home / BOARD

    def is_wanted(path: Path) -> bool:
        return os.path.realpath(path) in places

    def is_open(path: Path) -> bool:
        return path.parent.name in kept.cards or is_wanted(path)

    gone = _remove_old(_below(attachments), fetched, is_wanted, attachments, rehearsal=rehearsal)
    return gone + _remove_old(board.glob(f"*/{RECORDS}"), records, is_open, board, rehearsal=rehearsal)


def _remove_old(
    paths: Iterable[Path], before: float, stays: Callable[[Path], bool], folder: Path, *, rehearsal: bool
) -> Pruned:
    count = size = 0
    for path in paths:
        try:
            found = path.lstat()
            if found.st_mtime < before and not stays(path):
                if not rehearsal:
                    path.unlink()
                    _remove_empty(path.parent, folder)
                count, size = count + 1, size + found.st_size
        except OSError as error:
            # The file may be gone already or belong to another user; the others are still removed.
            log.warning("%s cannot be removed: %s", path, error.strerror)
    return Pruned(files=count, bytes=size)


def _remove_empty(place: Path, folder: Path) -> None:
    """Removes the empty folder of a sent file or a card; the folders of platforms stay."""
    if place != folder and (folder.name == BOARD or place.parent != folder):
        # The folder may contain other files.
        with suppress(OSError):
            place.rmdir()


def _below(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                yield Path(entry.path)
