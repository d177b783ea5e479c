"""Kills a gateway before and after every commit of a scenario, and says what became of each message.

`python -m tests.chaos.sweep` is the whole sweep of ten messages and `make sweep` that of sixty, with a second kill
during each recovery and the matrix of failpoints. `--at pre:17` plays one case (`--keep` leaves its folder to be
looked at, `--at pre:17,post:2` kills the second start too), and `--runs 5` shows that the commits are the same in
every run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.chaos import checkers, driver, matrix, mutants
from tests.chaos.crew import WORKERS, Ask, Crew, Result
from tests.chaos.driver import Commit, Kill
from tests.chaos.scenario import SCENARIOS


class Tally:
    """Counts and tells; every case is measured against the commits of the run that was counted."""

    def __init__(self, counted: Result) -> None:
        self.found: Counter[str] = Counter()
        self.recovered: Counter[Kill] = Counter()
        self._scenario = counted.scenario
        self._commits = counted.commits
        self._cases = 0
        self._orphans = 0
        self._marked = 0

    def add(self, result: Result) -> None:
        self._cases += 1
        self._orphans += result.orphans
        self._marked += result.marked
        violations = dict(result.violations)
        if result.scenario == self._scenario and (strayed := self._strays(result)):
            violations["harness"] = [*violations.get("harness", []), strayed]
        for name, told in violations.items():
            self.found[name] += len(told)
            for sentence in told:
                print(f"{result.at or 'clean'} {name}: {sentence} | {_replay(result)}", flush=True)
        if violations or result.folder:
            print(f"    {self._label(result.at)} {result.folder}".rstrip(), flush=True)

    def line(self, seconds: float) -> str:
        counts = " ".join(f"{name}={self.found[name]}" for name in (*checkers.CHECKERS, "harness"))
        return (
            f"sweep: messages={len(SCENARIOS[self._scenario].said())} commits={len(self._commits)} cases={self._cases}"
            f" double={self.recovered.total()} recovery={max((kill.hit for kill in self.recovered), default=0)}"
            f" {counts} orphans={self._orphans} marked={self._marked} seconds={seconds:.1f}"
        )

    def _strays(self, result: Result) -> str:
        """The commits up to the kill must be those that were counted; else a gap may hide anywhere."""
        kills = driver.parse(result.at)
        if kills and kills[0].action != "kill":
            # Whoever goes on after a fault goes another way.
            return ""
        for number, (here, there) in enumerate(zip(result.commits, self._commits, strict=False), start=1):
            if here != there:
                return f"commit {number} is not the one that was counted: {here} instead of {there}"
        if not kills and len(result.commits) != len(self._commits):
            return f"{len(result.commits)} commits instead of {len(self._commits)}"
        if kills and kills[0].point in driver.SHORT and len(result.commits) != kills[0].hit:
            return f"it died at commit {len(result.commits)}"
        return ""

    def _label(self, at: str) -> str:
        kills = driver.parse(at)
        known = kills and kills[0].point in driver.SHORT and kills[0].hit <= len(self._commits)
        return f"{at} {self._commits[kills[0].hit - 1]}" if known else at

    def second(self, first: Result) -> Kill | None:
        """Which commit of the recovery is hit next time: the one that was hit least so far, by its number."""
        kill = min(_seconds(first), key=lambda kill: self.recovered[kill], default=None)
        if kill is not None:
            self.recovered[kill] += 1
        return kill


def _seconds(first: Result) -> list[Kill]:
    """Before and after every commit of the recovery."""
    return [Kill(point, hit) for hit in range(1, len(first.recovery) + 1) for point in driver.SHORT]


def _replay(result: Result) -> str:
    mutant = os.environ.get(mutants.VARIABLE, "")
    prefix = f"{mutants.VARIABLE}={mutant} " if mutant else ""
    command = f"{prefix}python -m tests.chaos.sweep --scenario {result.scenario} "
    return command + (f"--at {result.at}" if result.at else "--runs 1")


class Sweep:
    def __init__(self, arguments: argparse.Namespace, crew: Crew) -> None:
        self._arguments = arguments
        self._crew = crew
        (counted,) = crew.play([Ask(at="", scenario=arguments.scenario, labels=True)])
        self._counted = counted
        self.tally = Tally(counted)
        self.tally.add(counted)
        if arguments.commits:
            print(*(f"{number:4} {commit}" for number, commit in enumerate(counted.commits, start=1)), sep="\n")

    def run(self) -> None:
        arguments = self._arguments
        if arguments.at:
            self._play("cases", [self._ask(at) for at in arguments.at])
            return
        if arguments.runs:
            self._play("runs", [self._ask("")] * arguments.runs)
            return
        asks = part([self._ask(str(kill)) for kill in kills(self._counted.commits, arguments.touching)], arguments.part)
        firsts = self._play("kills", asks)
        if arguments.doubles:
            # In the order of the commits, whoever ended first: the same second kills each time.
            ordered = sorted(firsts, key=lambda first: asks.index(self._ask(first.at)))[:: arguments.doubles]
            self._play("double kills", [self._ask(f"{first.at},{kill}") for first, kill in self._doubles(ordered)])
        if arguments.failpoints:
            self._play("failpoints", part(list(matrix.full(arguments.scenario, self._counted.labels)), arguments.part))

    def _doubles(self, firsts: Sequence[Result]) -> Iterator[tuple[Result, Kill]]:
        """One behind each first kill; where few recoveries are that long, one more for what was not hit yet."""
        for first in firsts:
            if (kill := self.tally.second(first)) is not None:
                yield first, kill
        if self._arguments.doubles == 1:
            for first in firsts:
                for kill in _seconds(first):
                    if not self.tally.recovered[kill]:
                        self.tally.recovered[kill] += 1
                        yield first, kill

    def _ask(self, at: str) -> Ask:
        return Ask(at=at, scenario=self._arguments.scenario, keep=self._arguments.keep)

    def _play(self, what: str, asks: Sequence[Ask]) -> list[Result]:
        results = []
        until = self._arguments.until
        if until and self.tally.found[until]:
            return []
        for number, result in enumerate(self._crew.play(asks), start=1):
            results.append(result)
            self.tally.add(result)
            if self._arguments.progress:
                _show(f"{number} of {len(asks)} {what}, {self.tally.found.total()} violations", number == len(asks))
            if until and self.tally.found[until]:
                break
        return results


def kills(commits: Sequence[Commit], touching: str) -> Iterator[Kill]:
    """Before and after every commit; or only those that touch something. Either half has a kill at each of them."""
    pairs = (tuple(driver.SHORT), tuple(reversed(driver.SHORT)))
    for number, (hit, _) in enumerate(each for each in enumerate(commits, start=1) if touching in each[1].touched):
        yield from (Kill(point, hit) for point in pairs[number % 2])


def part(asks: list[Ask], part: str) -> list[Ask]:
    """`2/4` is every fourth case, from the second on: four such parts are the whole."""
    number, _, count = part.partition("/")
    return asks[int(number) - 1 :: int(count)]


def _show(progress: str, last: bool) -> None:
    if sys.stderr.isatty():
        print(f"\r{progress}\x1b[K", end="\n" if last else "", file=sys.stderr, flush=True)
    elif last or progress.split()[0].endswith("00"):
        print(progress, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.sweep",
        description="Kills a gateway before and after every commit of a scenario.",
    )
    parser.add_argument("--scenario", choices=SCENARIOS, default="ten", help="what is played")
    parser.add_argument("--at", action="append", help="one case: pre:17, post:17 or LABEL:1; a comma adds a kill")
    parser.add_argument("--keep", action="store_true", help="leave the folders of such cases")
    parser.add_argument("--runs", type=int, default=0, help="so many runs without a kill, compared commit by commit")
    parser.add_argument("--touching", default="", help='only commits that touch this, such as "INSERT INTO inbox"')
    parser.add_argument("--doubles", type=int, default=0, help="a second kill behind every n-th first one")
    parser.add_argument("--failpoints", action="store_true", help="kill at every label too, and try other actions")
    parser.add_argument("--part", default="1/1", help="2/4 plays the second quarter of the cases")
    parser.add_argument("--until", default="", help="stop when this checker has found something")
    parser.add_argument("--commits", action="store_true", help="list the commits")
    parser.add_argument("--progress", action="store_true", help="say how far it is")
    parser.add_argument("--workers", type=int, default=WORKERS, help="cases at once")
    arguments = parser.parse_args()
    began = time.monotonic()
    with Crew(arguments.workers, keep=arguments.keep) as crew:
        sweep = Sweep(arguments, crew)
        sweep.run()
    print(sweep.tally.line(time.monotonic() - began))
    return 1 if sweep.tally.found else 0


if __name__ == "__main__":
    sys.exit(main())
