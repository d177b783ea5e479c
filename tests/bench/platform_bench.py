"""The echo bot on a platform beside a stock library's: how soon an answer comes, and what it costs.

Each bot is a process of its own with a simulated platform of its own, which is a process too; people speak to one bot
after the other, in turns. A platform's own module says how its simulator is started and what each bot is told.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUNDS = 4
MESSAGES = 100
WARM_UP = 30
# How many people or channels there are, so that each is far below one message a second.
PLACES = 100
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.2

Told = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformBench:
    """`about` is what the simulator's process says of itself: addresses, tokens and people."""

    # "discord": the simulator is tests.simulators.discord.process, the stock bot is tests.bench.discord_stock.
    name: str
    # Seconds between two messages: together below what the platform lets a bot send.
    pause: float
    # The environment of the gateway, beside what every gateway needs.
    settings: Callable[[Told], Mapping[str, str]]
    # The arguments of the stock bot.
    arguments: Callable[[Told], Sequence[str]]

    def measure(self) -> dict[str, dict[str, float]]:
        with ExitStack() as stack:
            bots = {}
            for name, start in (("tidings", self._start_tidings), ("stock", self._start_stock)):
                home = stack.enter_context(tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")))
                platform = Simulator(self.name)
                stack.enter_context(platform.process)
                stack.callback(platform.process.kill)
                process = start(platform.about, home)
                stack.callback(process.wait)
                stack.callback(process.kill)
                bots[name] = Bot(platform, process, self.pause)
                bots[name].warm_up()
            for number in range(ROUNDS):
                for bot in bots.values():
                    bot.round(number)
            return {name: bot.figures() for name, bot in bots.items()}

    def _start_tidings(self, about: Told, home: str) -> subprocess.Popen[bytes]:
        settings = {
            "TIDINGS_HOME": home,
            # The lock of a token goes with the home.
            "TMPDIR": home,
            "TIDINGS_BOT__AGENT": "echo",
            "TIDINGS_HTTP__PORT": "0",
            "TIDINGS_LOG__LEVEL": "warning",
            **self.settings(about),
        }
        tidings = Path(sys.executable).with_name("tidings")
        return subprocess.Popen([tidings, "run"], env={**os.environ, **settings}, stdin=subprocess.DEVNULL)

    def _start_stock(self, about: Told, home: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"tests.bench.{self.name}_stock", *self.arguments(about)]
        # A stock bot may greet on its output, which is ours.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


class Simulator:
    """A simulated platform in a process of its own."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, "-m", f"tests.simulators.{name}.process", "--places", str(PLACES)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about: Told = self._hear()

    def say(self, text: str, place: int) -> None:
        self._order({"say": text, "place": place})

    def tell(self) -> Told:
        self._order({"tell": True})
        return self._hear()

    def _order(self, order: dict[str, object]) -> None:
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def _hear(self) -> Told:
        assert self.process.stdout is not None
        told: Told = json.loads(self.process.stdout.readline())
        return told


class Bot:
    def __init__(self, platform: Simulator, process: subprocess.Popen[bytes], pause: float) -> None:
        self._platform = platform
        self._process = process
        self._pause = pause
        self._cpu = 0.0
        # Seconds from each message to its confirmation, where the platform asks for one, and to its answer.
        self._acks: list[float] = []
        self._delays: list[float] = []

    def warm_up(self) -> None:
        self._wait(lambda told: told["attached"])
        self._talk("warm", WARM_UP)
        self._acks.clear()
        self._delays.clear()

    def round(self, number: int) -> None:
        before = self._cpu_seconds()
        self._talk(f"round{number}", MESSAGES)
        self._cpu += self._cpu_seconds() - before

    def figures(self) -> dict[str, float]:
        acks = {"ack_ms": statistics.median(self._acks) * 1000} if self._acks else {}
        p50, cpu = statistics.median(self._delays), self._cpu / len(self._delays)
        return {**acks, "p50_ms": p50 * 1000, "cpu_ms": cpu * 1000}

    def _talk(self, word: str, count: int) -> None:
        texts = [f"{word} {number}" for number in range(count)]
        for number, text in enumerate(texts):
            self._platform.say(text, number % PLACES)
            time.sleep(self._pause)
        told = self._wait(lambda told: _is_over(told, set(texts)))
        said, posted = times(told["said"]), times(told["posted"])
        if "acks" in told:
            self._acks += [dict(told["acks"])[text] for text in texts]
        self._delays += [posted[text] - said[text] for text in texts]

    def _wait(self, holds: Callable[[Told], object]) -> Told:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds(told := self._platform.tell()):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise SystemExit("bench: the bot does not answer")
            time.sleep(LOOK_SECONDS)
        return told

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _is_over(told: Told, texts: set[str]) -> bool:
    """Every text was answered, and confirmed where the platform asks for that."""
    is_confirmed = "acks" not in told or texts <= dict(told["acks"]).keys()
    return is_confirmed and texts <= times(told["posted"]).keys()


def times(messages: list[tuple[str, float, str]]) -> dict[str, float]:
    """When each message came, by its last two words, which are the same in a question and its answer."""
    return {" ".join(text.split()[-2:]): at for _, at, text in messages}
