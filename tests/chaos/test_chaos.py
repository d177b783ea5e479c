"""The chaos run in short: two fixed seeds are green, and one that is known to be wrong is red in words."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.chaos import chaos, crowd, plans, visitors
from tests.chaos.mutants import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(
    r"chaos: seed=\d+ messages=\d+ kills=\d+ lost=\d+ silent=\d+ misplaced=\d+ unmarked_duplicates=\d+"
    r" terminal_errors=\d+ people=\d+ approvals=\d+ api_unknown=\d+ api_twice=\d+ api_endings=\d+ api_events=\d+"
    r" api_texts=\d+ api_status=\d+ api_leaks=\d+ orphans=\d+\n"
)


class Run(NamedTuple):
    seed: int
    mutant: str
    process: "subprocess.Popen[str]"

    def ended(self) -> tuple[int, str, str]:
        told, words = self.process.communicate(timeout=300)
        return self.process.returncode, told, words


# They share their runs, so one process tells them all.
pytestmark = pytest.mark.xdist_group("chaos")


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, Run]]:
    """All at once: each spends most of its time waiting for a clock."""
    wanted = {"first": (1, ""), "second": (7, ""), "broken": (3, "drop-when-in-doubt")}
    begun = {name: Run(seed, mutant, _start(seed, mutant)) for name, (seed, mutant) in wanted.items()}
    yield begun
    for run in begun.values():
        # Where only some of these tests were asked for.
        with run.process:
            run.process.kill()


def _start(seed: int, mutant: str) -> "subprocess.Popen[str]":
    sizes = ["--messages", "80", "--kills", "6"]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.chaos", "--seed", str(seed), *sizes],
        cwd=ROOT,
        env={**os.environ, VARIABLE: mutant},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("name", ["first", "second"])
def test_nothing_is_lost_hidden_misplaced_or_repeated(runs: dict[str, Run], name: str) -> None:
    status, told, words = runs[name].ended()
    assert status == 0, words
    assert LINE.fullmatch(told), told
    zeros = "lost=0 silent=0 misplaced=0 unmarked_duplicates=0 terminal_errors=0 people=0 approvals=0"
    zeros += " api_unknown=0 api_twice=0 api_endings=0 api_events=0 api_texts=0 api_status=0 api_leaks=0"
    assert told.startswith(f"chaos: seed={runs[name].seed} messages=80 kills=6 {zeros} "), told


def test_a_red_run_says_what_is_wrong_where_to_look_and_how_to_see_it_again(runs: dict[str, Run]) -> None:
    status, told, words = runs["broken"].ended()
    assert status == 1, words
    assert LINE.fullmatch(told), told
    assert " silent=0 " not in told
    assert "nobody saw" in words
    assert f"make chaos SEED={runs['broken'].seed} MESSAGES=80 KILLS=6" in words
    (folder,) = map(Path, re.findall(r"look into (\S+):", words))
    assert (folder / "home" / "tidings.db").exists()
    chaos.forget(folder)


def test_a_seed_decides_everything_that_can_be_decided() -> None:
    assert plans.plan(5, 300, 20) == plans.plan(5, 300, 20)
    assert plans.plan(5, 300, 20) != plans.plan(6, 300, 20)
    drawn = plans.plan(random.randint(1, 10**6), 300, 20)
    assert (len(drawn.said), len({say.key for say in drawn.said}), len(drawn.kills)) == (300, 300, 20)
    assert {say.platform for say in drawn.said} == crowd.STANDS.keys()
    assert len({ask.key for ask in drawn.asks}) == 30
    assert {visit.story for visit in drawn.visits} == set(visitors.STORIES)


def test_what_is_said_on_each_platform_has_keys_of_its_own() -> None:
    assert len({name[0] for name in crowd.STANDS}) == len(crowd.STANDS)
