"""The echo bot on Slack beside Bolt's: how soon an event is confirmed and answered, and what that costs.

`python -m tests.bench.slack` prints one JSON object. Each bot is a process of its own with a Slack of its own, which
is one too; people write to one bot after the other, in turns and in private.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROUNDS = 4
MESSAGES = 100
WARM_UP = 30
# Together below the twenty a second that the adapter allows itself, and each channel far below one a second.
PAUSE_SECONDS = 0.06
PEOPLE = 100
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.2


class Platform:
    """A simulated Slack."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.simulators.slack.process", "--people", str(PEOPLE)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about: dict[str, Any] = self._hear()

    def say(self, text: str, person: int) -> None:
        self._order({"say": text, "person": person})

    def tell(self) -> dict[str, Any]:
        self._order({"tell": True})
        told: dict[str, Any] = self._hear()
        return told

    def _order(self, order: dict[str, object]) -> None:
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def _hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


def start_tidings(slack: Platform, home: str) -> subprocess.Popen[bytes]:
    settings = {
        "TIDINGS_HOME": home,
        # The lock of a token goes with the home.
        "TMPDIR": home,
        "TIDINGS_BOT__AGENT": "echo",
        "TIDINGS_ACCESS__ALLOW": ",".join(f"slack:{person}" for person in slack.about["people"]),
        "TIDINGS_SLACK__BOT_TOKEN": slack.about["token"],
        "TIDINGS_SLACK__APP_TOKEN": slack.about["app_token"],
        "TIDINGS_SLACK__API_URL": slack.about["api_url"],
        "TIDINGS_HTTP__PORT": "0",
        "TIDINGS_LOG__LEVEL": "warning",
    }
    tidings = Path(sys.executable).with_name("tidings")
    return subprocess.Popen([tidings, "run"], env={**os.environ, **settings}, stdin=subprocess.DEVNULL)


def start_stock(slack: Platform, home: str) -> subprocess.Popen[bytes]:
    about = slack.about
    command = [sys.executable, "-m", "tests.bench.slack_stock", about["api_url"], about["token"], about["app_token"]]
    # It greets on its output, which is ours.
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


class Bot:
    def __init__(self, slack: Platform, process: subprocess.Popen[bytes]) -> None:
        self._slack = slack
        self._process = process
        self._cpu = 0.0
        self._acks: list[float] = []
        self._delays: list[float] = []

    def warm_up(self) -> None:
        self._wait(lambda told: told["attached"])
        self._talk("warm", WARM_UP)

    def round(self, number: int) -> None:
        before = self._cpu_seconds()
        acks, delays = self._talk(f"round{number}", MESSAGES)
        self._acks += acks
        self._delays += delays
        self._cpu += self._cpu_seconds() - before

    def figures(self) -> dict[str, float]:
        return {
            "ack_ms": statistics.median(self._acks) * 1000,
            "p50_ms": statistics.median(self._delays) * 1000,
            "cpu_ms": self._cpu / len(self._delays) * 1000,
        }

    def _talk(self, word: str, count: int) -> tuple[list[float], list[float]]:
        """Seconds from each message to its confirmation, and to the arrival of its answer."""
        texts = [f"{word} {number}" for number in range(count)]
        for number, text in enumerate(texts):
            self._slack.say(text, number % PEOPLE)
            time.sleep(PAUSE_SECONDS)
        due = set(texts)
        told = self._wait(lambda told: due <= _times(told["posted"]).keys() and due <= dict(told["acks"]).keys())
        said, posted, acks = _times(told["said"]), _times(told["posted"]), dict(told["acks"])
        return [acks[text] for text in texts], [posted[text] - said[text] for text in texts]

    def _wait(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds(told := self._slack.tell()):
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
            slack = Platform()
            stack.enter_context(slack.process)
            stack.callback(slack.process.kill)
            process = start(slack, home)
            stack.callback(process.wait)
            stack.callback(process.kill)
            bots[name] = Bot(slack, process)
            bots[name].warm_up()
        for number in range(ROUNDS):
            for bot in bots.values():
                bot.round(number)
        return {name: bot.figures() for name, bot in bots.items()}


if __name__ == "__main__":
    print(json.dumps(measure()))
