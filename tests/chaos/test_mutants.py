"""Each seeded bug still fits its seam and still has a test that knows it; some are caught here and now."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.mutants import MUTANTS, VARIABLE
from tests.chaos.mutation_seams import Rotten, swap

ROOT = Path(__file__).resolve().parents[2]

# What the issue asks for by name.
DUE = {
    "acknowledge-before-commit",
    "delivery-in-second-transaction",
    "no-doubtful-state",
    "blind-resend",
    "drop-when-in-doubt",
    "session-not-bound-in-a-thread",
    "final-dropped-after-a-rate-limit",
    "terminal-event-twice",
    "retry-after-forgotten-on-restart",
    "attempt-counted-though-nothing-was-sent",
    "dedupe-only-in-memory",
    "parts-resent-whole",
}
# Quick ones of different kinds; `make mutants` tries them all.
SAMPLE = ("dedupe-only-in-memory", "terminal-event-twice")


def _python(*arguments: str, mutant: str = "") -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, VARIABLE: mutant}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_the_twelve_that_are_due_are_there() -> None:
    assert MUTANTS.keys() >= DUE


def test_every_mutant_still_fits_its_seam() -> None:
    # Each in a process of its own, since there is no way back; all the forks share one start and what they break.
    script = (
        "import os, sys\n"
        "import tidings.adapters.api.adapter, tidings.adapters.discord.adapter\n"
        "import tidings.adapters.slack.adapter, tidings.adapters.telegram.adapter\n"
        "import tidings.bots.assistant.run, pydantic_ai.messages\n"
        "from tests.chaos.mutants import MUTANTS, become\n"
        "for name in MUTANTS:\n"
        "    if os.fork() == 0:\n"
        "        become(name)\n"
        "        os._exit(0)\n"
        "    if os.wait()[1]:\n"
        "        print(name)\n"
    )
    done = _python("-c", script)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_every_test_that_catches_a_mutant_is_still_there(request: pytest.FixtureRequest) -> None:
    nodes = {mutant.caught_by[0] for mutant in MUTANTS.values() if not mutant.is_swept}
    # Where the whole suite runs, they have been found already.
    here = {name for item in request.session.items for name in (item.nodeid, re.split(r"[@\[]", item.nodeid)[0])}
    if nodes <= here:
        return
    done = _python("-m", "pytest", "--collect-only", *sorted(nodes - here))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_shows_what_is_caught() -> None:
    done = _python("-m", "tests.chaos.mutation", *SAMPLE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"mutants: {len(SAMPLE)} of {len(SAMPLE)} caught\n")


def test_a_mutant_that_nobody_catches_is_said_and_fails() -> None:
    # The crash loop is not caught here: nothing dies in that test.
    script = (
        "import sys\n"
        "from tests.chaos import mutants, mutation\n"
        "name = 'crash-loop-for-ever'\n"
        "blind = ('tests/unit/test_fakes.py',)\n"
        "mutants.MUTANTS[name] = mutants.MUTANTS[name]._replace(caught_by=blind)\n"
        "sys.exit(mutation.show([name]))\n"
    )
    done = _python("-c", script)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.endswith("mutants: 0 of 1 caught\n")


class Seam:
    def __init__(self) -> None:
        self.value = 1

    def add(self, other: int) -> int:
        return self.value + other


def test_a_seam_that_is_gone_or_takes_something_else_is_no_seam() -> None:
    with pytest.raises(Rotten, match="no subtract"):
        swap(Seam, "subtract", lambda self, other: other)
    with pytest.raises(Rotten, match="takes"):
        swap(Seam, "add", lambda self, other, third: other)
    swap(Seam, "add", lambda self, other: -other)
    assert Seam().add(2) == -2
