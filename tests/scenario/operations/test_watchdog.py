"""What the service manager hears of us: ready, stopping, and signs of life only while the gateway can work."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worlds.fakes import FakeClock
from tidings.bots.app.watchdog import FAULT_SECONDS, Watchdog, sentence
from tidings.core.desk.health import Health, PartHealth
from tidings.core.errors import Unstored

ROOT = Path(__file__).resolve().parents[3]
SIGNS = {"WATCHDOG_USEC": "30000000"}
PERIOD = 10.0


class Manager:
    """systemd's end of the socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        """Everything since the last time, one line each."""
        lines: list[str] = []
        while True:
            try:
                lines += self._socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return lines

    async def next(self) -> list[str]:
        async with asyncio.timeout(20):
            return (await asyncio.get_running_loop().sock_recv(self._socket, 4096)).decode().splitlines()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Manager]:
    found = Manager(str(tmp_path / "notify"))
    yield found
    found.close()


def healthy(store: str = "ok", *parts: PartHealth) -> Health:
    return Health(version="1", store=store, parts=parts, running=2, queued=1, deliveries={"waiting": 3}, alarms=())


class Asked:
    """A gateway's health that the test can hold back."""

    def __init__(self) -> None:
        self.now = healthy()
        self.error: Unstored | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.times = 0

    async def __call__(self) -> Health:
        self.times += 1
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return self.now


def watched(manager: Manager, clock: FakeClock, **environment: str) -> Watchdog:
    return Watchdog({"NOTIFY_SOCKET": manager.address, **environment}, clock)


async def test_ready_comes_first_then_signs_of_life_and_a_line_for_people(manager: Manager) -> None:
    clock = FakeClock()
    async with watched(manager, clock, **SIGNS) as watchdog:
        assert manager.heard() == []
        watchdog.ready(Asked())
        assert manager.heard() == ["READY=1", "STATUS=serving"]
        for _ in range(3):
            await clock.advance(PERIOD)
            assert manager.heard()[-2:] == ["STATUS=running 2, queued 1, owed 3", "WATCHDOG=1"]


async def test_a_store_that_does_not_answer_ends_the_signs_until_it_does(manager: Manager) -> None:
    clock, gateway = FakeClock(), Asked()
    async with watched(manager, clock, **SIGNS) as watchdog:
        watchdog.ready(gateway)
        await clock.advance(PERIOD)
        manager.heard()
        gateway.answers.clear()
        for _ in range(6):
            await clock.advance(PERIOD)
        assert set(manager.heard()) == {"STATUS=stuck: the store does not answer"}
        gateway.answers.set()
        await clock.advance(2 * PERIOD)
        assert "WATCHDOG=1" in manager.heard()


async def test_a_store_that_says_why_it_cannot_write_is_given_time_before_a_fresh_start(manager: Manager) -> None:
    clock, gateway = FakeClock(), Asked()
    gateway.now = healthy("the store cannot write: disk full")
    async with watched(manager, clock, **SIGNS) as watchdog:
        watchdog.ready(gateway)
        await clock.advance(PERIOD)
        first = "STATUS=the store cannot write: disk full; running 2, queued 1, owed 3"
        assert manager.heard()[-2:] == [first, "WATCHDOG=1"]
        await clock.advance(FAULT_SECONDS)
        manager.heard()
        await clock.advance(3 * PERIOD)
        assert set(manager.heard()) == {first}
        gateway.now = healthy()
        await clock.advance(PERIOD)
        assert "WATCHDOG=1" in manager.heard()


async def test_a_store_that_fails_while_it_is_asked_is_given_the_same_time(manager: Manager) -> None:
    clock, gateway = FakeClock(), Asked()
    gateway.error = Unstored("the store cannot write: disk full")
    async with watched(manager, clock, **SIGNS) as watchdog:
        watchdog.ready(gateway)
        for _ in range(6):
            await clock.advance(PERIOD)
            assert manager.heard()[-2:] == ["STATUS=the store cannot write: disk full", "WATCHDOG=1"]
        await clock.advance(FAULT_SECONDS)
        manager.heard()
        await clock.advance(3 * PERIOD)
        assert "WATCHDOG=1" not in manager.heard()
        gateway.error = None
        await clock.advance(PERIOD)
        assert "WATCHDOG=1" in manager.heard()


async def test_while_the_gateway_drains_the_loop_alone_is_asked(manager: Manager) -> None:
    clock, gateway = FakeClock(), Asked()
    async with watched(manager, clock, **SIGNS) as watchdog:
        watchdog.ready(gateway)
        await clock.advance(PERIOD)
        manager.heard()
        gateway.answers.clear()
        watchdog.stopping()
        assert manager.heard()[0] == "STOPPING=1"
        await clock.advance(3 * PERIOD)
        assert "WATCHDOG=1" in manager.heard()


@pytest.mark.parametrize("environment", [{}, {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}])
async def test_where_nobody_waits_for_signs_only_the_line_for_people_is_told(
    manager: Manager, environment: dict[str, str]
) -> None:
    clock = FakeClock()
    async with watched(manager, clock, **environment) as watchdog:
        watchdog.ready(Asked())
        await clock.advance(60)
        heard = manager.heard()
    assert "STATUS=running 2, queued 1, owed 3" in heard
    assert "WATCHDOG=1" not in heard


async def test_without_a_service_manager_nothing_is_told_and_nobody_is_asked(manager: Manager) -> None:
    clock, asked = FakeClock(), Asked()
    async with Watchdog({}, clock) as watchdog:
        watchdog.ready(asked)
        await clock.advance(10 * PERIOD)
        watchdog.stopping()
    assert manager.heard() == []
    assert asked.times == 0


async def test_a_manager_that_has_gone_takes_nobody_with_it(manager: Manager, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with watched(manager, clock, **SIGNS) as watchdog:
        watchdog.ready(Asked())
        manager.close()
        await clock.advance(5 * PERIOD)
    assert [record.message for record in caplog.records if "does not hear us" in record.message] == [
        f"the service manager does not hear us at {manager.address}: [Errno 111] Connection refused"
    ]


async def test_an_abstract_address_is_spoken_to() -> None:
    manager = Manager(f"@tidings-test-{os.getpid()}")
    async with watched(manager, FakeClock()) as watchdog:
        watchdog.ready(Asked())
        assert manager.heard() == ["READY=1", "STATUS=serving"]
    manager.close()


def test_the_line_names_what_is_not_well_and_nothing_else() -> None:
    up = PartHealth("console@main", "up", 0.0, 0, "")
    down = PartHealth("paper@main", "degraded", 0.0, 3, "cannot be\nreached")
    assert sentence(healthy("ok", up, down)) == (
        "running 2, queued 1, owed 3; paper@main is degraded: cannot be reached"
    )


async def test_a_real_gateway_says_ready_gives_signs_and_says_when_it_stops(manager: Manager, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TIDINGS_HOME": str(tmp_path / "home"),
        "TIDINGS_HTTP__ENABLED": "false",
        "NOTIFY_SOCKET": manager.address,
        "WATCHDOG_USEC": "1500000",
    }
    environment.pop("WATCHDOG_PID", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "tidings.bots.main", "run"], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL
    )
    try:
        assert (await manager.next())[0] == "READY=1"
        lines: list[str] = []
        while "WATCHDOG=1" not in lines:
            lines = await manager.next()
        process.send_signal(signal.SIGTERM)
        while "STOPPING=1" not in lines:
            lines = await manager.next()
        assert await asyncio.to_thread(process.wait, 30) == 0
    finally:
        process.kill()
        process.wait()
