"""Shows that each seeded bug is caught: what must find it is green without it and red with it.

`python -m tests.chaos.mutation`, or `make mutants`; names as arguments choose some of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.chaos.mutants import MUTANTS, VARIABLE, Mutant

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2
# Nothing that catches a mutant takes so long; a mutant may hang what it breaks.
SECONDS = 180.0
# What pytest says when tests have failed, and not when there were none.
PYTEST_FAILED = 1


class Ran(NamedTuple):
    status: int
    output: str


async def _run(arguments: list[str], mutant: str) -> Ran:
    environment = {**os.environ, VARIABLE: mutant}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *arguments,
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return Ran(-1, f"not done after {SECONDS:g} s")
    return Ran(process.returncode or 0, output.decode(errors="replace"))


def _command(mutant: Mutant) -> list[str]:
    if mutant.is_swept:
        return ["tests.chaos.sweep", *mutant.caught_by]
    return ["pytest", "-x", "-p", "no:cacheprovider", *mutant.caught_by]


def is_red(mutant: Mutant, ran: Ran) -> bool:
    """Red for the right reason: a test failed, or the checker that was named has found something."""
    if mutant.is_swept:
        counts = dict(re.findall(r"(\w+)=(\d+)", ran.output.splitlines()[-1] if ran.output else ""))
        return ran.status == 1 and int(counts.get(mutant.caught_by[-1], 0)) > 0 and counts.get("harness") == "0"
    return ran.status == PYTEST_FAILED and "Rotten" not in ran.output


def name_of_catcher(mutant: Mutant) -> str:
    if mutant.is_swept:
        touching, checker = mutant.caught_by[-3], mutant.caught_by[-1]
        return f"sweep of “{touching}”: {checker}"
    return mutant.caught_by[0].removeprefix("tests/").removeprefix("scenario/")


class Table:
    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._workers = asyncio.Semaphore(WORKERS)
        # What each command says when nothing is broken.
        self._green: dict[tuple[str, ...], asyncio.Task[bool]] = {}

    async def show(self) -> int:
        rows = [asyncio.create_task(self._try(name)) for name in self._names]
        caught = 0
        print(f"{'mutant':41}{'stands for':36}{'red?':8}caught by")
        for name, row in zip(self._names, rows, strict=True):
            mutant, (word, output) = MUTANTS[name], await row
            caught += word == "red"
            print(f"{name:41}{mutant.bug:36}{word:8}{name_of_catcher(mutant)}", flush=True)
            if word != "red":
                print(*output.splitlines()[-15:], sep="\n", file=sys.stderr)
        print(f"mutants: {caught} of {len(self._names)} caught")
        return 0 if caught == len(self._names) else 1

    async def _try(self, name: str) -> tuple[str, str]:
        mutant = MUTANTS[name]
        if not await self._is_green(mutant):
            return "always", f"{' '.join(_command(mutant))} fails without the mutant too"
        async with self._workers:
            ran = await _run(_command(mutant), name)
        return "red" if is_red(mutant, ran) else "NO", ran.output

    async def _is_green(self, mutant: Mutant) -> bool:
        if mutant.caught_by not in self._green:
            self._green[mutant.caught_by] = asyncio.create_task(self._play(mutant))
        return await self._green[mutant.caught_by]

    async def _play(self, mutant: Mutant) -> bool:
        async with self._workers:
            return (await _run(_command(mutant), "")).status == 0


def show(names: Iterable[str]) -> int:
    return asyncio.run(Table(list(names)).show())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.mutation", description="Shows what catches each bug.")
    parser.add_argument("names", nargs="*", metavar="MUTANT", choices=[[], *MUTANTS], help="only these")
    return show(parser.parse_args().names or MUTANTS)


if __name__ == "__main__":
    sys.exit(main())
