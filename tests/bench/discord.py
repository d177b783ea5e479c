"""The echo bot on Discord beside the stock library's: how soon an answer comes, and what it costs.

`python -m tests.bench.discord` prints one JSON object. Each bot is a process of its own with a Discord of its own,
which is one too; people speak to one bot after the other, in turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROUNDS = 4
MESSAGES = 100
WARM_UP = 30
# Together below what Discord lets a bot send, and each channel far below one message a second.
PAUSE_SECONDS = 0.04
CHANNELS = 100
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.2


class Platform:
    """A simulated Discord."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.simulators.discord.process", "--channels", str(CHANNELS)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about: dict[str, str] = self._hear()

    def say(self, text: str, channel: int) -> None:
        self._order({"say": text, "channel": channel})

    def tell(self) -> dict[str, Any]:
        self._order({"tell": True})
        return self._hear()

    def _order(self, order: dict[str, object]) -> None:
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def _hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


def start_tidings(discord: Platform, home: str) -> subprocess.Popen[bytes]:
    settings = {
        "TIDINGS_HOME": home,
        # The lock of a token goes with the home.
        "TMPDIR": home,
        "TIDINGS_BOT__AGENT": "echo",
        "TIDINGS_ACCESS__ALLOW": f"discord:{discord.about['person']}",
        "TIDINGS_DISCORD__TOKEN": discord.about["token"],
        "TIDINGS_DISCORD__API_URL": discord.about["api"],
        "TIDINGS_DISCORD__GATEWAY_URL": discord.about["gateway"],
        "TIDINGS_HTTP__PORT": "0",
        "TIDINGS_LOG__LEVEL": "warning",
    }
    tidings = Path(sys.executable).with_name("tidings")
    return subprocess.Popen([tidings, "run"], env={**os.environ, **settings}, stdin=subprocess.DEVNULL)


def start_stock(discord: Platform, home: str) -> subprocess.Popen[bytes]:
    about = discord.about
    command = [sys.executable, "-m", "tests.bench.discord_stock", about["token"], about["api"], about["gateway"]]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


class Bot:
    def __init__(self, discord: Platform, process: subprocess.Popen[bytes]) -> None:
        self._discord = discord
        self._process = process
        self._cpu = 0.0
        self._delays: list[float] = []

    def warm_up(self) -> None:
        self._wait(lambda told: told["attached"])
        self._talk("warm", WARM_UP)

    def round(self, number: int) -> None:
        before = self._cpu_seconds()
        self._delays += self._talk(f"round{number}", MESSAGES)
        self._cpu += self._cpu_seconds() - before

    def figures(self) -> dict[str, float]:
        return {"p50_ms": statistics.median(self._delays) * 1000, "cpu_ms": self._cpu / len(self._delays) * 1000}

    def _talk(self, word: str, count: int) -> list[float]:
        """Seconds from each message to the arrival of its answer."""
        texts = [f"{word} {number}" for number in range(count)]
        for number, text in enumerate(texts):
            self._discord.say(text, number % CHANNELS)
            time.sleep(PAUSE_SECONDS)
        told = self._wait(lambda told: set(texts) <= _times(told["posted"]).keys())
        said, posted = _times(told["said"]), _times(told["posted"])
        return [posted[text] - said[text] for text in texts]

    def _wait(self, holds: Any) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds(told := self._discord.tell()):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise SystemExit("bench: the bot does not answer")
            time.sleep(LOOK_SECONDS)
        return told

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _times(messages: list[tuple[str, float, str]]) -> dict[str, float]:
    """By the last two words, which are the same in a question and its answer."""
    return {" ".join(text.split()[-2:]): at for _, at, text in messages}


def measure() -> dict[str, dict[str, float]]:
    with ExitStack() as stack:
        bots = {}
        for name, start in (("tidings", start_tidings), ("stock", start_stock)):
            home = stack.enter_context(tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")))
            discord = Platform()
            stack.enter_context(discord.process)
            stack.callback(discord.process.kill)
            process = start(discord, home)
            stack.callback(process.wait)
            stack.callback(process.kill)
            bots[name] = Bot(discord, process)
            bots[name].warm_up()
        for number in range(ROUNDS):
            for bot in bots.values():
                bot.round(number)
        return {name: bot.figures() for name, bot in bots.items()}


if __name__ == "__main__":
    print(json.dumps(measure()))
