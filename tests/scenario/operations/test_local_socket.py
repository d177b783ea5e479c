"""The one Unix socket: who may connect, what a bad line does, and what is said when nobody listens."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tidings.adapters.local import socket, verbs
from tidings.adapters.local.socket import LINE_BYTES, LocalServer
from tidings.core.adapter import Line
from tidings.core.desk.health import Alarm, Health, PartHealth
from tidings.core.desk.people import PersonLine
from tidings.core.errors import Declined, NotRunning, TidingsError, Unknown, Unrouted
from tidings.core.roles import OWNER, Permission, Person, Role
from tidings.core.types import Body, Delivery, DeliveryState, File, Target


class FakePeople:
    """Lets the person at the machine do what is not in `refused`."""

    def __init__(self) -> None:
        self.refused: set[Permission] = set()
        self.admitted: list[str] = []

    def may(self, person: Person, permission: Permission) -> bool:
        return person == OWNER and permission not in self.refused

    async def all(self) -> list[PersonLine]:
        return [PersonLine(id, "", Role.MEMBER, (id,)) for id in self.admitted]

    async def admit(self, by: Person, who: str, role: Role | None, name: str) -> PersonLine:
        self.admitted.append(who)
        return PersonLine(who, name, role or Role.MEMBER, (who,))


class FakeDesk:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.owed: list[tuple[Target, str, str]] = []
        self.people = FakePeople()
        self.chosen: dict[str, Target] = {}

    async def owe(self, target: Target, body: Body, cause: str) -> str:
        if target.adapter != "console":
            raise Unknown(f"no platform {target.adapter} is configured")
        self.owed.append((target, body.text, cause))
        return "dlv_1"

    async def adopt(self, path: str) -> File:
        return File(path=f"kept/{path}", name=path)

    async def delivery(self, id: str) -> Delivery:
        target = self.owed[-1][0]
        return Delivery(id=id, target=target, state=DeliveryState.WAITING, reason="", cause="notify", receipts=())

    async def homes(self) -> dict[str, Target]:
        return self.chosen

    async def set_home(self, by: Person, target: Target) -> None:
        assert by == OWNER
        self.chosen[target.at] = target

    async def health(self) -> Health:
        parts = (PartHealth("console@main", "up", 1.0, 0, ""),)
        return Health("0", "ok", parts, 2, 3, {"waiting": 4}, (Alarm("lost", 1, "a reason", 5.0),))


async def echo(line: Line) -> None:
    while (message := await line.read()) is not None:
        await line.write({"heard": message})


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[LocalServer]:
    async with LocalServer() as server:
        with server.route("echo", echo):
            async with server.serving(home):
                yield server


async def test_only_the_owner_may_connect(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with serving(tmp_path):
            assert stat.S_IMODE((tmp_path / "tidings.sock").stat().st_mode) == 0o600
    finally:
        os.umask(before)


async def test_the_socket_goes_with_the_server_and_a_dead_ones_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "tidings.sock").write_text("left behind")
    async with serving(tmp_path):
        assert await socket.call(tmp_path, {"verb": "echo"}) == {"heard": {"verb": "echo"}}
    assert list(tmp_path.iterdir()) == []


async def test_a_home_with_a_very_long_path_is_served_too(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 40)
    home.mkdir()
    with pytest.raises(NotRunning):
        await socket.call(home, {"verb": "echo"})
    async with serving(home):
        address = Path((home / "tidings.sock.path").read_text())
        assert stat.S_IMODE(address.parent.stat().st_mode) == 0o700
        assert await socket.call(home, {"verb": "echo"}) == {"heard": {"verb": "echo"}}
    assert list(home.iterdir()) == []
    assert not address.parent.exists()


async def test_a_stale_pointer_never_removes_more_than_a_socket(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "tidings.sock").write_text("a plain file")
    home = tmp_path / "home"
    home.mkdir()
    (home / "tidings.sock.path").write_text(str(precious / "tidings.sock"))
    async with serving(home):
        assert await socket.call(home, {"verb": "echo"}) == {"heard": {"verb": "echo"}}
    assert (precious / "tidings.sock").read_text() == "a plain file"


async def test_when_nobody_listens_it_says_how_to_start(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="start one with: tidings run"):
        await socket.call(tmp_path, {"verb": "status"})


@pytest.mark.parametrize(
    "bad",
    [
        b"nonsense\n",
        b"[1, 2]\n",
        b"7\n",
        b'{"verb": "\xff"}\n',
        b'{"verb": "\\ud800"}\n',
        b"[" * 100_000 + b"\n",
        b'{"a": ' * 100_000 + b"\n",
        b'{"long": "' + b"x" * (3 * LINE_BYTES) + b'"}\n',
    ],
)
async def test_a_bad_line_is_answered_and_the_connection_lives_on(tmp_path: Path, bad: bytes) -> None:
    async with serving(tmp_path):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "tidings.sock")
        for _ in range(2):
            writer.write(bad)
            assert b'"error"' in await reader.readline()
        writer.write(b'\n{"verb": "echo"}\n')
        assert b'{"heard":{"verb":"echo"}}' in await reader.readline()
        writer.close()


@pytest.mark.parametrize("first", [{"verb": "dance"}, {"verb": ["echo"]}, {}])
async def test_a_verb_that_nobody_routes_is_answered(tmp_path: Path, first: dict[str, Any]) -> None:
    async with serving(tmp_path):
        with pytest.raises(Unrouted, match="there are: echo"):
            await socket.call(tmp_path, first)


async def test_a_route_ends_for_new_connections_and_old_ones_go_on(tmp_path: Path) -> None:
    async with LocalServer() as server, server.serving(tmp_path), socket.connect(tmp_path) as line:
        with server.route("echo", echo):
            await line.write({"verb": "echo"})
            await line.read()
        with pytest.raises(Unrouted):
            await socket.call(tmp_path, {"verb": "echo"})
        await line.write({"still": "there"})
        assert await line.read() == {"heard": {"still": "there"}}


async def test_one_verb_has_one_route() -> None:
    server = LocalServer()
    with server.route("echo", echo), pytest.raises(LookupError), server.route("echo", echo):
        pass


async def test_leaving_ends_every_connection(tmp_path: Path) -> None:
    async with serving(tmp_path):
        connection = socket.connect(tmp_path)
        line = await connection.__aenter__()
        await line.write({"verb": "echo"})
        await line.read()
    assert await line.read() is None
    await connection.__aexit__(None, None, None)


async def test_a_handler_that_fails_tells_why(tmp_path: Path) -> None:
    async def refuse(line: Line) -> None:
        raise TidingsError("not today")

    async with serving(tmp_path) as server:
        with server.route("refuse", refuse), pytest.raises(Declined, match="not today"):
            await socket.call(tmp_path, {"verb": "refuse"})


async def test_a_handler_that_breaks_takes_only_its_own_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(line: Line) -> None:
        raise LookupError("a mistake of ours")

    async with serving(tmp_path) as server:
        with server.route("broken", broken), pytest.raises(Declined, match="its log says why"):
            await socket.call(tmp_path, {"verb": "broken"})
        assert await socket.call(tmp_path, {"verb": "echo"}) == {"heard": {"verb": "echo"}}
    assert "a mistake of ours" in caplog.text


async def test_what_does_not_fit_into_a_line_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with pytest.raises(TidingsError, match="too long"):
            await socket.call(tmp_path, {"verb": "echo", "text": "x" * LINE_BYTES})


async def test_the_words_of_the_command_line_reach_the_desk(tmp_path: Path) -> None:
    desk = FakeDesk()
    async with LocalServer() as server, server.serving(tmp_path):
        with server.routes(verbs.routes_for(desk)):
            answer = await socket.call(tmp_path, {"verb": "notify", "target": "console", "text": "hi"})
            assert answer == {"owed": "dlv_1", "target": "console"}
            assert desk.owed == [(Target(adapter="console"), "hi", "notify")]
            files = {"verb": "notify", "target": "console", "files": ["a.txt"]}
            assert (await socket.call(tmp_path, files))["owed"] == "dlv_1"
            assert await socket.call(tmp_path, {"verb": "home"}) == {"homes": {}}
            chosen = await socket.call(tmp_path, {"verb": "home", "target": "console:1"})
            assert chosen == {"homes": {"console@main": "console:1"}}
            admit = {"verb": "people", "do": "admit", "who": "x:1", "role": "guest"}
            assert (await socket.call(tmp_path, admit))["person"]["role"] == "guest"
            assert (await socket.call(tmp_path, admit))["before"] == "member"
            health = (await socket.call(tmp_path, {"verb": "status"}))["health"]
            assert health["parts"][0]["state"] == "up"
            assert health["alarms"][0]["last"] == "a reason"


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ({"verb": "notify", "target": "pigeon:1", "text": "hi"}, "no platform pigeon"),
        ({"verb": "notify", "target": "a:b:c:d", "text": "hi"}, "not a target"),
        ({"verb": "notify", "target": "console", "text": ""}, '"text" must be a text'),
        ({"verb": "notify", "target": 7, "text": "hi"}, '"target" must be a text'),
        ({"verb": "people", "do": "dance"}, "'dance' is nothing that can be done with people"),
        ({"verb": "people", "do": "admit", "who": "x:1", "role": "blocked"}, "there is no role blocked"),
    ],
)
async def test_a_wrong_question_is_answered_with_what_is_wrong(
    tmp_path: Path, question: dict[str, Any], complaint: str
) -> None:
    async with LocalServer() as server, server.serving(tmp_path):
        with server.routes(verbs.routes_for(FakeDesk())), pytest.raises(Declined, match=complaint):
            await socket.call(tmp_path, question)


@pytest.mark.parametrize("name", verbs.VERBS)
async def test_each_verb_asks_for_its_permission_first(tmp_path: Path, name: str) -> None:
    desk = FakeDesk()
    desk.people.refused.add(verbs.VERBS[name].needs)
    async with LocalServer() as server, server.serving(tmp_path):
        with server.routes(verbs.routes_for(desk)), pytest.raises(Declined, match="this needs the permission"):
            await socket.call(tmp_path, {"verb": name})
