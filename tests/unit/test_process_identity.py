"""A process is known by its number, its birth and its boot, and nothing is signalled on the word of less."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tidings.core import clock
from tidings.core.work.processes import identity

SLEEP = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(SLEEP, start_new_session=True)
    yield started
    started.kill()
    started.wait()


def incomplete(birth: str) -> list[str]:
    """What a row may hold that does not prove which process it means."""
    boot, _, ticks = birth.partition("/")
    return ["", ticks, f"/{ticks}", f"another-boot/{ticks}", f"{boot}/1", boot]


def test_a_birth_names_the_boot_and_stays_the_same(process: subprocess.Popen[bytes]) -> None:
    birth = identity.born(process.pid)
    assert birth.startswith(f"{clock.boot_id()}/")
    assert identity.born(process.pid) == birth
    assert identity.is_from_this_boot(birth)


def test_nothing_is_signalled_on_the_word_of_a_birth_that_is_incomplete_or_anothers(
    process: subprocess.Popen[bytes],
) -> None:
    birth = identity.born(process.pid)
    for less in incomplete(birth):
        assert not identity.tell(process.pid, less, signal.SIGKILL), less
        identity.kill_group(process.pid, less)
    assert process.poll() is None
    assert identity.tell(process.pid, birth, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


async def test_the_group_of_a_known_process_is_killed_with_all_that_is_in_it() -> None:
    begin = f"subprocess.Popen({SLEEP!r}, stdout=subprocess.DEVNULL)"
    script = f"import subprocess, sys; print({begin}.pid, flush=True); sys.stdin.read()"
    leader = subprocess.Popen(
        (sys.executable, "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    birth = identity.born(leader.pid)
    # The leader has died without tidying up; its group still has the number.
    leader.kill()
    leader.wait()
    assert leader.stdin is not None
    leader.stdin.close()
    leader.stdout.close()
    birth_of_child = identity.born(child)
    assert birth_of_child
    identity.kill_group(leader.pid, birth)
    async with asyncio.timeout(30):
        await identity.until_gone(child, birth_of_child)


def test_a_process_that_has_ended_has_no_birth(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert identity.born(process.pid) == "", "also while its parent has not asked for it"


async def test_waiting_for_another_process_than_the_one_that_is_meant_ends_at_once(
    process: subprocess.Popen[bytes],
) -> None:
    async with asyncio.timeout(30):
        for less in incomplete(identity.born(process.pid)):
            await identity.until_gone(process.pid, less)
    assert process.poll() is None
