"""Many conversations for a long time, with restarts: does it stay as small as it was? `make soak`.

`python -m tests.bench.soak --minutes 60` talks to a gateway by a simulated Telegram. What it holds is looked at every
few seconds; at the end its last lives are compared with the first ones. Exits with 1 if anything grows, or if a message
has no answer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from tests.simulators.telegram.simulator import TelegramServer
from tests.worlds.process import end
from tests.worlds.telegram import process

FIRST_PERSON = 1001
LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 120.0
# The memory of a life may differ from the first ones' by so much: allocators and page caches breathe.
MEMORY_SHARE, MEMORY_MB = 0.15, 6.0
DESCRIPTORS = 6
# The connections that are kept for answers, and all else.
MOST_DESCRIPTORS = 160
# A log that is checkpointed as it should be stays far below this.
LOG_MB = 64.0


class Look(NamedTuple):
    at: float
    life: int
    memory_mb: float
    descriptors: int
    log_mb: float
    store_mb: float


def look(home: Path, pid: int, life: int, began: float) -> Look:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Look(
        time.monotonic() - began,
        life,
        pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        len(os.listdir(f"/proc/{pid}/fd")),
        _megabytes(home / "tidings.db-wal"),
        _megabytes(home / "tidings.db"),
    )


def _megabytes(path: Path) -> float:
    return path.stat().st_size / 1e6 if path.exists() else 0.0


class Soak:
    def __init__(self, telegram: TelegramServer, home: Path, people: int, rate: float, seed: int) -> None:
        self._telegram = telegram
        self._home = home
        self._people = range(FIRST_PERSON, FIRST_PERSON + people)
        self._rate = rate
        self._random = random.Random(seed)
        self.said = 0
        self.looks: list[Look] = []

    async def run(self, minutes: float, life_seconds: float) -> None:
        began = time.monotonic()
        over = began + minutes * 60
        talking = asyncio.create_task(self._talk(over))
        life = 0
        allow = ",".join(f"telegram:{person}" for person in self._people)
        try:
            while time.monotonic() < over:
                life += 1
                quiet = {"TIDINGS_ACCESS__ALLOW": allow, "TIDINGS_LOG__LEVEL": "warning", "TMPDIR": str(self._home)}
                async with process(self._home, self._telegram, **quiet) as child:
                    await self._live(child, life, min(time.monotonic() + life_seconds, over), began)
                    if time.monotonic() >= over:
                        await talking
                        await self._answered()
                    await end(child, signal.SIGTERM)
        finally:
            talking.cancel()

    async def _live(self, child: subprocess.Popen[bytes], life: int, until: float, began: float) -> None:
        while time.monotonic() < until:
            await asyncio.sleep(min(LOOK_SECONDS, max(until - time.monotonic(), 0.01)))
            assert child.poll() is None, "the gateway has ended by itself"
            self.looks.append(look(self._home, child.pid, life, began))
            now = self.looks[-1]
            print(
                f"{now.at:7.0f} s  life {now.life:3}  {now.memory_mb:7.1f} MB  {now.descriptors:4} descriptors  "
                f"log {now.log_mb:6.2f} MB  store {now.store_mb:7.2f} MB  said {self.said}",
                flush=True,
            )

    async def _talk(self, over: float) -> None:
        """First everybody once, then whoever comes."""
        while time.monotonic() < over:
            nobody_yet = self.said < len(self._people)
            person = self._people[self.said] if nobody_yet else self._random.choice(self._people)
            self._telegram.says(f"message {self.said}", chat=person)
            self.said += 1
            await asyncio.sleep(1 / self._rate)

    async def _answered(self) -> None:
        await self._telegram.until(lambda _: not self.missing(), PATIENCE_SECONDS)

    def missing(self) -> set[str]:
        return {f"message {number}" for number in range(self.said)} - {
            " ".join(call.text.split()[-2:]) for call in self._telegram.calls("sendMessage")
        }

    def twice(self) -> int:
        answers = [call for call in self._telegram.calls("sendMessage") if call.verdict == "ok"]
        return len(answers) - len({" ".join(call.text.split()[-2:]) for call in answers})


def complaints(looks: list[Look]) -> Iterator[str]:
    """What grows; a life is judged by its last look, when it is largest."""
    lasts = list({each.life: each for each in looks}.values())
    if len(lasts) < 3:
        yield "too few lives to compare: let it run longer, or restart it more often"
        return
    # The last life may have been cut short, and a first one fills what the others find.
    early, late = lasts[: max(len(lasts) // 3, 1)], lasts[-max(len(lasts) // 3, 1) :]
    before = statistics.median(each.memory_mb for each in early)
    after = statistics.median(each.memory_mb for each in late)
    if after > before * (1 + MEMORY_SHARE) + MEMORY_MB:
        yield f"memory grows: {before:.1f} MB in the first lives, {after:.1f} MB in the last"
    # Each life begins with as many connections as it takes to answer what has waited, so only what comes on top counts.
    firsts = {each.life: each for each in reversed(looks)}
    if (more := statistics.median(each.descriptors - firsts[each.life].descriptors for each in lasts)) > DESCRIPTORS:
        yield f"descriptors grow: by {more:g} in each life"
    if (most := max(each.descriptors for each in looks)) > MOST_DESCRIPTORS:
        yield f"descriptors grow to {most}"
    if (largest := max(each.log_mb for each in looks)) > LOG_MB:
        yield f"the write-ahead log grows to {largest:.0f} MB"


async def soak(minutes: float, people: int, life_seconds: float, rate: float, seed: int) -> list[str]:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER"))))
        telegram = await stack.enter_async_context(TelegramServer())
        work = Soak(telegram, home, people, rate, seed)
        await work.run(minutes, life_seconds)
        found = list(complaints(work.looks))
        if missing := work.missing():
            found.append(f"{len(missing)} messages have no answer")
        if twice := work.twice():
            found.append(f"{twice} answers came twice")
        memory = [each.memory_mb for each in work.looks]
        print(
            f"{work.said} messages of {people} conversations in {minutes:g} minutes and {work.looks[-1].life} lives: "
            f"memory {min(memory):.1f} to {max(memory):.1f} MB, "
            f"descriptors {min(each.descriptors for each in work.looks)} to "
            f"{max(each.descriptors for each in work.looks)}, "
            f"write-ahead log at most {max(each.log_mb for each in work.looks):.2f} MB, "
            f"store {work.looks[-1].store_mb:.1f} MB"
        )
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--restart-seconds", type=float, default=180.0)
    parser.add_argument("--rate", type=float, default=10.0, help="messages a second")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = asyncio.run(soak(given.minutes, given.conversations, given.restart_seconds, given.rate, given.seed))
    print("flat" if not found else "NOT FLAT: " + "; ".join(found))
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
