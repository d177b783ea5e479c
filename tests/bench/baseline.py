"""The bare baseline: a thread that writes the same rows by grouped FULL commits, and nothing else."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

GROUP = 64

Statement = tuple[str, tuple[object, ...]]

SCHEMA = """
CREATE TABLE inbox (seq INTEGER PRIMARY KEY, run TEXT UNIQUE, chat TEXT, key TEXT UNIQUE, state TEXT, message BLOB);
CREATE TABLE history (seq INTEGER PRIMARY KEY, chat TEXT, text TEXT);
CREATE TABLE journal (run TEXT, seq INTEGER, event BLOB, PRIMARY KEY (run, seq)) WITHOUT ROWID;
CREATE TABLE deliveries (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, chat TEXT, state TEXT, body BLOB);
CREATE TABLE parts (delivery TEXT, position INTEGER, state TEXT, body BLOB, receipt BLOB,
                    PRIMARY KEY (delivery, position)) WITHOUT ROWID;
"""


class BareWriter:
    def __init__(self, path: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[Sequence[Statement], asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, args=(path,), daemon=True)
        self._thread.start()

    def write(self, statements: Sequence[Statement]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((statements, future))
        return future

    async def close(self) -> None:
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self, path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(SCHEMA)
        while (job := self._jobs.get()) is not None:
            batch = [job]
            while len(batch) < GROUP and not self._jobs.empty() and (more := self._jobs.get()) is not None:
                batch.append(more)
            connection.execute("BEGIN IMMEDIATE")
            for statements, _ in batch:
                for sql, parameters in statements:
                    connection.execute(sql, parameters)
            connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(_resolve, [future for _, future in batch])
        connection.close()


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


async def turn(writer: BareWriter, chat: str, number: int) -> None:
    """The rows of one echo turn in the same three commits: stored, settled, delivered."""
    run, text = f"run_{chat}_{number}", b'{"text":"hello there, how are you today?"}'
    await writer.write(
        [("INSERT INTO inbox (run, chat, key, state, message) VALUES (?, ?, ?, 'running', ?)", (run, chat, run, text))]
    )
    await writer.write(
        [
            ("UPDATE inbox SET state = 'done' WHERE run = ?", (run,)),
            ("INSERT INTO journal VALUES (?, 1, ?)", (run, text)),
            ("INSERT INTO journal VALUES (?, 2, ?)", (run, text)),
            ("INSERT INTO history (chat, text) VALUES (?, ?)", (chat, "hello there")),
            ("INSERT INTO history (chat, text) VALUES (?, ?)", (chat, "you said: hello there")),
            ("INSERT INTO deliveries (id, chat, state, body) VALUES (?, ?, 'waiting', ?)", (run, chat, text)),
            ("INSERT INTO parts VALUES (?, 1, 'sending', ?, NULL)", (run, text)),
        ]
    )
    await writer.write(
        [
            ("UPDATE parts SET state = 'delivered', receipt = ? WHERE delivery = ? AND position = 1", (b"1", run)),
            ("UPDATE deliveries SET state = 'delivered' WHERE id = ?", (run,)),
        ]
    )
