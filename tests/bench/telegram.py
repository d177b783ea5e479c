"""The echo bot on Telegram beside the stock library's: how soon an answer comes, and what it costs.

`python -m tests.bench.telegram` prints one JSON object. Each bot is a process of its own with a Telegram of its own;
those and their people are in this process, and speak to one bot after the other, in turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from tests.simulators.telegram.simulator import TelegramServer

ROUNDS = 4
MESSAGES = 100
WARM_UP = 30
# Together below what Telegram lets a bot send, and each chat far below one message a second.
PAUSE_SECONDS = 0.04
PEOPLE = range(1001, 1101)
PATIENCE_SECONDS = 60.0


def start_tidings(telegram: TelegramServer, home: str) -> subprocess.Popen[bytes]:
    settings = {
        "TIDINGS_HOME": home,
        # The lock of a token goes with the home.
        "TMPDIR": home,
        "TIDINGS_BOT__AGENT": "echo",
        "TIDINGS_ACCESS__ALLOW": ",".join(f"telegram:{person}" for person in PEOPLE),
        "TIDINGS_TELEGRAM__TOKEN": telegram.token,
        "TIDINGS_TELEGRAM__API_URL": f"http://{telegram.address}",
        "TIDINGS_HTTP__PORT": "0",
        "TIDINGS_LOG__LEVEL": "warning",
    }
    tidings = Path(sys.executable).with_name("tidings")
    return subprocess.Popen([tidings, "run"], env={**os.environ, **settings}, stdin=subprocess.DEVNULL)


def start_stock(telegram: TelegramServer, home: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.bench.telegram_stock", telegram.token, f"http://{telegram.address}"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


class Bot:
    def __init__(self, telegram: TelegramServer, process: subprocess.Popen[bytes]) -> None:
        self._telegram = telegram
        self._process = process
        self._cpu = 0.0
        self._delays: list[float] = []

    async def warm_up(self) -> None:
        await self._telegram.until(lambda telegram: telegram.attached(), PATIENCE_SECONDS)
        await self._talk("warm", WARM_UP)

    async def round(self, number: int) -> None:
        before = self._cpu_seconds()
        self._delays += await self._talk(f"round{number}", MESSAGES)
        self._cpu += self._cpu_seconds() - before

    def figures(self) -> dict[str, float]:
        return {"p50_ms": statistics.median(self._delays) * 1000, "cpu_ms": self._cpu / len(self._delays) * 1000}

    async def _talk(self, word: str, count: int) -> list[float]:
        """Seconds from each message to the arrival of its answer."""
        said: dict[str, float] = {}
        for number in range(count):
            text = f"{word} {number}"
            said[text] = self._telegram.clock.now()
            self._telegram.says(text, chat=PEOPLE[number % len(PEOPLE)])
            await asyncio.sleep(PAUSE_SECONDS)
        await self._telegram.until(lambda _: said.keys() <= self._answers().keys(), PATIENCE_SECONDS)
        answers = self._answers()
        return [answers[text] - at for text, at in said.items()]

    def _answers(self) -> dict[str, float]:
        """When they came, by their last two words, which are those of the question."""
        return {" ".join(call.text.split()[-2:]): call.now for call in self._telegram.calls("sendMessage")}

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure() -> dict[str, dict[str, float]]:
    async with AsyncExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")))
        bots = {}
        for name, start in (("tidings", start_tidings), ("stock", start_stock)):
            telegram = await stack.enter_async_context(TelegramServer())
            process = start(telegram, home)
            stack.callback(process.wait)
            stack.callback(process.kill)
            bots[name] = Bot(telegram, process)
            await bots[name].warm_up()
        for number in range(ROUNDS):
            for bot in bots.values():
                await bot.round(number)
        return {name: bot.figures() for name, bot in bots.items()}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure())))
