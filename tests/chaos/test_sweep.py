"""The commit-boundary sweep: no kill loses, hides, misplaces or repeats a message, and seeded bugs are found."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.checkers import CHECKERS
from tests.chaos.crew import Ask
from tests.chaos.mutants import MUTANTS, VARIABLE
from tests.chaos.played import Commit
from tests.chaos.sweep import kills, part
from tests.chaos.tampering import APPROVAL_TAMPERINGS, BUSY_TAMPERINGS, PEOPLE_TAMPERINGS, TAMPERINGS

ROOT = Path(__file__).resolve().parents[2]


class Report:
    def __init__(self, *arguments: str, mutant: str = "") -> None:
        command = [sys.executable, "-m", "tests.chaos.sweep", *arguments]
        environment = {**os.environ, VARIABLE: mutant}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        self.status = done.returncode
        self.text = done.stdout + done.stderr
        # One that broke down has said nothing, and its text says why.
        last = (done.stdout.splitlines() or [""])[-1]
        self.counts = {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)\b", last)}


def test_nothing_is_lost_whichever_commit_a_kill_hits() -> None:
    # A kill before or after each of them, in turns; `make sweep` has both at each.
    report = Report("--part", "1/2", "--doubles", "4")
    assert report.status == 0, report.text
    # One run that is counted, then each commit, then a second kill behind every fourth.
    assert report.counts["cases"] == report.counts["commits"] + 1 + report.counts["double"]
    assert report.counts["commits"] > 60
    assert report.counts["double"] > 20
    assert report.counts["recovery"] > 3


@pytest.mark.parametrize("touching", ["INSERT INTO audit", "INSERT INTO codes"])
def test_people_are_admitted_removed_blocked_and_linked_once_whichever_decision_a_kill_hits(touching: str) -> None:
    # Before or after each of them, in turns; `make sweep` has both at every commit, and a second kill behind each.
    report = Report("--scenario", "people", "--touching", touching, "--part", "1/2", "--doubles", "3")
    assert report.status == 0, report.text
    assert report.counts["people"] == report.counts["misplaced"] == report.counts["unmarked_duplicates"] == 0
    assert report.counts["cases"] > 8
    assert report.counts["double"] > 1


def test_a_tool_acts_once_whichever_commit_about_its_question_a_kill_hits() -> None:
    # Before or after each of them, in turns; `make sweep` has both at every commit, and a second kill behind each.
    report = Report("--scenario", "approvals", "--touching", "approvals", "--part", "1/2", "--doubles", "4")
    assert report.status == 0, report.text
    assert report.counts["approvals"] == report.counts["effects"] == 0
    assert report.counts["cases"] > 15
    assert report.counts["double"] > 2


def test_a_message_to_a_busy_chat_has_one_outcome_whichever_checkpoint_a_kill_hits() -> None:
    # Before or after each checkpoint that may hold a message, in turns; `make sweep` has both at every commit.
    report = Report("--scenario", "busy", "--touching", "INSERT INTO journal; UPDATE inbox", "--part", "1/2")
    assert report.status == 0, report.text
    assert report.counts["busy"] == report.counts["lost"] == 0
    assert report.counts["cases"] > 5


@pytest.mark.parametrize(
    ("scenario", "messages"), [("ten", 12), ("odd", 7), ("sixty", 60), ("people", 29), ("approvals", 18), ("busy", 67)]
)
def test_the_commits_are_the_same_in_every_run(scenario: str, messages: int) -> None:
    report = Report("--scenario", scenario, "--runs", "3")
    assert report.status == 0, report.text
    assert report.counts["messages"] == messages


def test_the_parts_of_a_sweep_are_the_whole() -> None:
    kills = [Ask(at=str(number)) for number in range(11)]
    parts = [ask for number in range(1, 5) for ask in part(kills, f"{number}/4")]
    assert sorted(ask.at for ask in parts) == sorted(ask.at for ask in kills)


def test_half_a_sweep_has_a_kill_at_every_commit() -> None:
    touched = ["INSERT INTO inbox" if number % 3 else "DELETE FROM aliases" for number in range(20)]
    commits = [Commit(at=0.0, touched=each, digest="") for each in touched]
    for touching in ("", "INSERT"):
        everywhere = [Ask(at=str(kill)) for kill in kills(commits, touching)]
        halves = [[ask.at.split(":") for ask in part(everywhere, f"{number}/2")] for number in (1, 2)]
        assert [hit for _, hit in halves[0]] == [hit for _, hit in halves[1]]
        assert {point for point, _ in halves[0]} == {"pre", "post"}


def test_a_kill_that_never_comes_is_no_success() -> None:
    report = Report("--at", "pre:100000")
    assert report.status == 1
    assert report.counts["harness"] > 0


# For each seeded bug: the commits of a scenario around which it shows, and the checker that must see it.
SIGNS = {
    "acknowledge-before-commit": ("ten", "INSERT INTO inbox", "acked"),
    "delivery-in-second-transaction": ("ten", "INSERT INTO history", "lost"),
    "no-doubtful-state": ("ten", "UPDATE parts; UPDATE deliveries", "unmarked_duplicates"),
    "drop-when-in-doubt": ("ten", "UPDATE parts; UPDATE deliveries", "silent"),
    "admitted-after-the-welcome": ("people", "UPDATE codes", "people"),
    "steer-never-runs": ("busy", "INSERT INTO journal; UPDATE inbox", "busy"),
}


def test_every_sign_is_of_a_mutant() -> None:
    assert SIGNS.keys() <= MUTANTS.keys()


@pytest.mark.parametrize("mutant", SIGNS)
def test_the_sweep_finds_a_seeded_bug(mutant: str) -> None:
    scenario, touching, checker = SIGNS[mutant]
    report = Report("--scenario", scenario, "--touching", touching, "--until", checker, mutant=mutant)
    assert report.status == 1, report.text
    assert report.counts[checker] > 0, report.text
    assert report.counts["harness"] == 0, report.text
    assert f"{VARIABLE}={mutant} python -m tests.chaos.sweep --scenario {scenario} --at " in report.text


def test_every_checker_sees_spoilt_traces() -> None:
    tamperings = (*TAMPERINGS, *PEOPLE_TAMPERINGS, *APPROVAL_TAMPERINGS, *BUSY_TAMPERINGS)
    assert {checker for checker, _, _ in tamperings} == CHECKERS.keys()
    command = [sys.executable, "-m", "tests.chaos.tampering"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
