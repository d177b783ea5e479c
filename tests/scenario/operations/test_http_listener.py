"""The one HTTP listener: routes come and go, strangers cost little, and leaving it is quick."""

import asyncio
import gzip
import json
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from tidings.adapters.shared.http_limits import UNKNOWN_PER_ADDRESS
from tidings.adapters.shared.http_request import UNKNOWN_SECONDS
from tidings.adapters.shared.http_server import Handler, HttpError, HttpServer, Limits, read_body, vouch
from tidings.core.errors import Misconfigured, Unreachable

LOOPBACK = "127.0.0.1"
SECONDS = 5.0
CANARY = "hunter2-canary"


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, str]:
        body: dict[str, dict[str, str]] = json.loads(self.body)
        assert list(body) == ["error"]
        assert sorted(body["error"]) == ["message", "type"]
        return body["error"]


class Client:
    """One connection, byte by byte; nothing is waited for longer than a test may take."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, text: str | bytes) -> None:
        self._writer.write(text if isinstance(text, bytes) else text.encode())

    def ask(self, method: str, path: str, *headers: str, body: bytes | None = None) -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: tidings.test", *headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join([*lines, "", ""]).encode() + (body or b""))

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(SECONDS):
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        pairs = (line.split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value for name, value in pairs}

    async def answer(self) -> Answer:
        status, headers = await self.head()
        async with asyncio.timeout(SECONDS):
            body = await self._reader.readexactly(int(headers["content-length"]))
        return Answer(status, headers, body)

    async def rest(self) -> bytes:
        """All that still comes until the other side closes."""
        async with asyncio.timeout(SECONDS):
            return await self._reader.read()

    async def take(self, size: int) -> int:
        async with asyncio.timeout(SECONDS):
            return len(await self._reader.read(size))

    def leave(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def connected(server: HttpServer, **options: Any) -> AsyncIterator[Client]:
    host, port = server.address.removeprefix("http://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), **options)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        # The other side is told in the next turns of the loop.
        await asyncio.sleep(0)


async def ask(server: HttpServer, method: str, path: str, *headers: str, body: bytes | None = None) -> Answer:
    async with connected(server) as client:
        client.ask(method, path, *headers, body=body)
        return await client.answer()


async def until(server: HttpServer, method: str, path: str, *, status: int) -> None:
    """Asks again and again."""
    async with asyncio.timeout(SECONDS):
        while (await ask(server, method, path)).status != status:
            continue


def says(text: str) -> Handler:
    async def handler(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        return web.json_response({"says": text, **names})

    return handler


async def repeat(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
    return web.Response(body=await read_body(request))


async def guard(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
    """As a webhook does it: the secret first, the body only then."""
    if request.headers.get("X-Secret") != "right":
        raise HttpError(403, "no")
    return web.Response(body=await read_body(request))


class Desk:
    """A handler that takes its time, and what became of it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ended = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self.ended.set()
        return web.Response(text="done")


async def happens(event: asyncio.Event) -> None:
    async with asyncio.timeout(SECONDS):
        await event.wait()


@pytest.fixture
def port() -> int:
    """One that was free a moment ago."""
    with socket.create_server((LOOPBACK, 0)) as taken:
        return int(taken.getsockname()[1])


def is_free(port: int) -> bool:
    try:
        socket.create_server((LOOPBACK, port)).close()
    except OSError:
        return False
    return True


# Coming and going


def test_who_does_not_listen_does_not_load_the_library() -> None:
    code = """
import asyncio, sys
from tidings.adapters.shared.http_server import HttpServer, HttpError, read_body

async def main():
    async with HttpServer("127.0.0.1", 0):
        pass

asyncio.run(main())
print(sorted({"aiohttp", "httpx", "ssl"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # asyncio itself brings ssl; it stands here to show that the list can be anything but empty.
    assert done.stdout.strip() == "['ssl']"


async def test_the_port_is_taken_by_the_first_route_and_given_back_at_the_end(port: int) -> None:
    async with HttpServer(LOOPBACK, port) as server:
        assert is_free(port)
        with pytest.raises(LookupError):
            _ = server.address
        async with server.route("GET", "/", says("hi")):
            assert server.address == f"http://{LOOPBACK}:{port}"
            assert not is_free(port)
            assert (await ask(server, "GET", "/")).status == 200
        assert (await ask(server, "GET", "/")).status == 404
    assert is_free(port)
    with pytest.raises(LookupError):
        async with server.route("GET", "/", says("hi")):
            pass


async def test_routes_come_and_go_while_others_stay() -> None:
    async with (
        HttpServer(LOOPBACK, 0) as server,
        server.route("GET", "/stays", says("stays")),
        connected(server) as client,
    ):
        for _ in range(2):
            client.ask("GET", "/comes")
            assert (await client.answer()).status == 404
            async with server.route("GET", "/comes", says("comes")):
                client.ask("GET", "/comes")
                assert json.loads((await client.answer()).body) == {"says": "comes"}
        client.ask("GET", "/stays")
        assert json.loads((await client.answer()).body) == {"says": "stays"}


async def test_two_who_open_it_at_once_share_one_listener(port: int) -> None:
    both = asyncio.Barrier(3)

    async def hold(server: HttpServer, path: str) -> None:
        async with server.route("GET", path, says(path)):
            await both.wait()
            await both.wait()

    async with HttpServer(LOOPBACK, port) as server, asyncio.TaskGroup() as group:
        group.create_task(hold(server, "/one"))
        group.create_task(hold(server, "/two"))
        await both.wait()
        assert [(await ask(server, "GET", path)).status for path in ("/one", "/two")] == [200, 200]
        await both.wait()


@pytest.mark.parametrize("turns", range(6))
async def test_who_is_cancelled_while_it_opens_leaves_no_port_behind(port: int, turns: int) -> None:
    async def hold(server: HttpServer) -> None:
        async with server.route("GET", "/", says("hi")):
            await asyncio.Event().wait()

    async with HttpServer(LOOPBACK, port) as server:
        task = asyncio.create_task(hold(server))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with server.route("GET", "/", says("hi")):
            assert (await ask(server, "GET", "/")).status == 200
    assert is_free(port)


async def test_a_port_in_use_is_named_with_the_setting_and_may_be_tried_again(port: int) -> None:
    async with HttpServer(LOOPBACK, port) as server:
        with socket.create_server((LOOPBACK, port)), pytest.raises(Unreachable) as caught:
            async with server.route("GET", "/", says("hi")):
                pass
        assert str(caught.value) == (
            f"port {port} on {LOOPBACK} is in use by another program: stop that one, "
            "or set another `port` in [http] of the settings (or TIDINGS_HTTP__PORT)"
        )
        async with server.route("GET", "/", says("hi")):
            assert (await ask(server, "GET", "/")).status == 200


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_an_address_that_is_not_ours_is_named_with_the_setting(host: str) -> None:
    async with HttpServer(host, 0) as server:
        with pytest.raises(Misconfigured, match=rf"has no address {host} .*`host` in \[http\].*TIDINGS_HTTP__HOST"):
            async with server.route("GET", "/", says("hi")):
                pass


# Finding the way


async def test_a_path_gives_its_names_and_what_is_written_out_wins() -> None:
    async with HttpServer(LOOPBACK, 0) as server, AsyncExitStack() as stack:
        for method, path in [
            ("GET", "/runs/{run}"),
            ("GET", "/{any}/latest"),
            ("GET", "/runs/newest"),
            ("POST", "/runs/oldest"),
            ("GET", "/runs/{run}/parts/{part}"),
            ("GET", "/a b"),
        ]:
            await stack.enter_async_context(server.route(method, path, says(path)))

        async def found(path: str) -> dict[str, str] | int:
            answer = await ask(server, "GET", path)
            return json.loads(answer.body) if answer.status == 200 else answer.status

        assert await found("/runs/7") == {"says": "/runs/{run}", "run": "7"}
        assert await found("/runs/7?part=8") == {"says": "/runs/{run}", "run": "7"}
        assert await found("/runs/newest") == {"says": "/runs/newest"}
        assert await found("/runs/oldest") == {"says": "/runs/{run}", "run": "oldest"}
        assert await found("/runs/latest") == {"says": "/runs/{run}", "run": "latest"}
        assert await found("/x/latest") == {"says": "/{any}/latest", "any": "x"}
        assert await found("/runs/7/parts/8") == {"says": "/runs/{run}/parts/{part}", "run": "7", "part": "8"}
        assert await found("/runs/t%C3%BCr%2F..%2F%7Brun%7D") == {"says": "/runs/{run}", "run": "tür/../{run}"}
        assert await found("/a%20b") == {"says": "/a b"}
        for nowhere in ("/runs/", "/runs", "/runs/7/", "//runs/7", "/runs/7/parts/", "/runs/%FF", "/runs/../runs/7"):
            assert await found(nowhere) == 404


async def test_two_cannot_have_one_path() -> None:
    async with HttpServer(LOOPBACK, 0) as server, server.route("POST", "/hooks/{account}", says("first")):
        with pytest.raises(Misconfigured, match=r"two platforms want POST /hooks/\{name\}"):
            async with server.route("POST", "/hooks/{name}", says("second")):
                pass
        async with server.route("GET", "/hooks/{name}", says("another method")):
            assert json.loads((await ask(server, "POST", "/hooks/x")).body) == {"says": "first", "account": "x"}
            assert json.loads((await ask(server, "GET", "/hooks/x")).body) == {"says": "another method", "name": "x"}


async def test_a_wrong_address_and_a_wrong_method_are_told_and_nothing_else() -> None:
    async with (
        HttpServer(LOOPBACK, 0) as server,
        server.route("POST", "/runs", says("")),
        server.route("GET", "/{any}", says("")),
    ):
        nowhere, wrong = await ask(server, "GET", "/a/b"), await ask(server, "PUT", "/runs")
    assert nowhere.status == 404
    assert nowhere.error == {"message": "there is nothing at this address", "type": "invalid_request_error"}
    assert wrong.status == 405
    assert wrong.error == {"message": "this address does not take this method", "type": "invalid_request_error"}
    assert wrong.headers["allow"] == "GET, POST"
    for answer in (nowhere, wrong):
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["server"] == "tidings"


async def test_no_answer_names_a_version_not_even_one_that_is_streamed() -> None:
    async def stream(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        return response

    async with HttpServer(LOOPBACK, 0) as server, server.route("GET", "/", stream), connected(server) as client:
        client.ask("GET", "/")
        _, headers = await client.head()
        assert headers["server"] == "tidings"
        assert headers.keys() == {"server", "date", "content-type", "transfer-encoding"}


# What strangers cost


def knowing(handler: Handler) -> Handler:
    """As a handler that has checked a key before it does anything else."""

    async def handle(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        vouch(request)
        return await handler(request, names)

    return handle


async def test_one_connection_too_many_is_told_to_come_back_and_the_others_go_on() -> None:
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(connections=2)) as server,
        server.route("GET", "/", knowing(says("hi"))),
        connected(server) as first,
    ):
        async with connected(server) as second:
            for client in (first, second):
                client.ask("GET", "/")
                assert (await client.answer()).status == 200
            async with connected(server) as silent, connected(server) as third:
                silence = asyncio.create_task(silent.rest())
                third.ask("GET", "/")
                answer = await third.answer()
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
                assert answer.headers["server"] == "tidings"
                assert answer.error["type"] == "server_error"
                assert await third.rest() == b""
                # Who asks is told at once, who does not a little later.
                assert not silence.done()
                assert (await silence).startswith(b"HTTP/1.1 503 ")
            for client in (first, second):
                client.ask("GET", "/")
                assert (await client.answer()).status == 200
        # The second has left; its place is free as soon as that is known.
        await until(server, "GET", "/", status=200)
        first.ask("GET", "/")
        assert (await first.answer()).status == 200


async def test_who_leaves_keeps_its_place_while_its_handler_works() -> None:
    """Else whoever asks and leaves, again and again, could pile up any amount of work."""
    desk = Desk()
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(connections=1)) as server,
        server.route("GET", "/", knowing(desk)),
        connected(server) as client,
    ):
        client.ask("GET", "/")
        await happens(desk.begun)
        client.leave()
        for _ in range(20):
            assert (await ask(server, "GET", "/")).status == 503
        desk.may_end.set()
        await until(server, "GET", "/", status=200)


async def test_connections_that_show_nothing_make_room_for_who_comes_later() -> None:
    """Silent ones, half a request, and a handler that waits for a body before it can check a signature."""
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(connections=3, young_seconds=0.0)) as server,
        server.route("GET", "/", knowing(says("hi"))),
        server.route("POST", "/signed", repeat),
        connected(server) as known,
        connected(server) as silent,
        connected(server) as slow,
    ):
        known.ask("GET", "/")
        assert (await known.answer()).status == 200
        silent.send("GET / HT")
        slow.ask("POST", "/signed", "Content-Length: 10")
        async with connected(server) as third, connected(server) as fourth:
            for client in (third, fourth, known):
                client.ask("GET", "/")
                assert (await client.answer()).status == 200
            assert await silent.rest() == b""
            assert await slow.rest() == b""


async def test_one_address_holds_only_so_many_connections_that_show_nothing() -> None:
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(connections=512, young_seconds=0.0)) as server,
        server.route("GET", "/", says("hi")),
        AsyncExitStack() as crowd,
    ):
        elsewhere = await crowd.enter_async_context(connected(server, local_addr=("127.0.0.2", 0)))
        silent = [await crowd.enter_async_context(connected(server)) for _ in range(UNKNOWN_PER_ADDRESS + 1)]
        assert await silent[0].rest() == b""
        for client in (elsewhere, silent[1], silent[-1]):
            client.ask("GET", "/")
            assert (await client.answer()).status == 200


async def test_a_crowd_that_has_only_just_come_is_heard_to_the_end() -> None:
    """Behind one proxy all have one address, and each needs a moment to show its key."""
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(connections=512, young_seconds=3600.0)) as server,
        server.route("GET", "/", knowing(says("hi"))),
        AsyncExitStack() as crowd,
    ):
        clients = [await crowd.enter_async_context(connected(server)) for _ in range(3 * UNKNOWN_PER_ADDRESS)]
        for client in clients:
            client.ask("GET", "/")
        assert {(await client.answer()).status for client in clients} == {200}


async def test_who_has_shown_a_key_may_rest_longer_than_who_has_not() -> None:
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(idle_seconds=75.0)) as server,
        server.route("GET", "/known", knowing(says("hi"))),
        server.route("GET", "/unknown", says("hi")),
        connected(server) as client,
    ):
        client.ask("GET", "/unknown")
        assert (await client.answer()).status == 200
        [connection] = server._listener.held  # type: ignore[union-attr]
        assert connection.keepalive_timeout == UNKNOWN_SECONDS
        client.ask("GET", "/known")
        assert (await client.answer()).status == 200
        assert connection.keepalive_timeout == 75.0


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_is_taken_up_to_the_limit_of_its_route(is_chunked: bool) -> None:
    def send(client: Client, path: str, size: int) -> None:
        if is_chunked:
            client.ask("POST", path, "Transfer-Encoding: chunked")
            client.send(f"{size:x}\r\n".encode() + b"x" * size + b"\r\n0\r\n\r\n")
        else:
            client.ask("POST", path, body=b"x" * size)

    async with (
        HttpServer(LOOPBACK, 0) as server,
        server.route("POST", "/small", repeat, body_bytes=1000),
        server.route("POST", "/usual", repeat),
    ):
        for path, limit in (("/small", 1000), ("/usual", 1024 * 1024)):
            async with connected(server) as client:
                send(client, path, limit)
                fits = await client.answer()
                assert (fits.status, len(fits.body)) == (200, limit)
                send(client, path, limit + 1)
                refused = await client.answer()
                assert refused.status == 413
                assert refused.error["message"] == f"the body is too long: {limit} bytes are taken at most"


@pytest.mark.parametrize(
    ("header", "beginning"),
    [("Content-Length: 1001", b""), ("Transfer-Encoding: chunked", b"1000000\r\n" + b"x" * 1001)],
)
async def test_a_body_that_is_too_long_is_refused_before_it_has_come(header: str, beginning: bytes) -> None:
    async with (
        HttpServer(LOOPBACK, 0) as server,
        server.route("POST", "/", repeat, body_bytes=1000),
        connected(server) as client,
    ):
        client.ask("POST", "/", header)
        client.send(beginning)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")


async def test_a_handler_may_take_less_than_its_route() -> None:
    async def taste(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        return web.Response(body=await read_body(request, 3))

    async with HttpServer(LOOPBACK, 0) as server, server.route("POST", "/", taste):
        assert (await ask(server, "POST", "/", body=b"abc")).body == b"abc"
        assert (await ask(server, "POST", "/", body=b"abcd")).status == 413


async def test_a_compressed_body_is_not_taken_and_never_unpacked() -> None:
    async def careless(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        return web.Response(body=await request.read())

    bomb = gzip.compress(bytes(1_000_000))
    async with (
        HttpServer(LOOPBACK, 0) as server,
        server.route("POST", "/", repeat),
        server.route("POST", "/careless", careless),
    ):
        assert (await ask(server, "POST", "/", "Content-Encoding: gzip", body=bomb)).status == 415
        assert (await ask(server, "POST", "/careless", "Content-Encoding: gzip", body=bomb)).body == bomb


async def test_a_secret_is_checked_although_none_of_the_body_has_come() -> None:
    async with (
        HttpServer(LOOPBACK, 0) as server,
        server.route("POST", "/", guard),
        connected(server) as stranger,
        connected(server) as friend,
    ):
        stranger.ask("POST", "/", "X-Secret: wrong", "Content-Length: 1000")
        answer = await stranger.answer()
        assert (answer.status, answer.error["message"]) == (403, "no")
        friend.ask("POST", "/", "X-Secret: right", "Content-Length: 5")
        friend.send("hel")
        friend.send("lo")
        assert (await friend.answer()).body == b"hello"


async def test_only_who_is_let_in_is_invited_to_send_a_body() -> None:
    async with (
        HttpServer(LOOPBACK, 0) as server,
        server.route("POST", "/", guard),
        connected(server) as stranger,
        connected(server) as friend,
    ):
        stranger.ask("POST", "/", "X-Secret: wrong", "Content-Length: 5", "Expect: 100-continue")
        assert (await stranger.head())[0] == 403
        friend.ask("POST", "/", "X-Secret: right", "Content-Length: 5", "Expect: 100-continue")
        assert await friend.head() == (100, {})
        friend.send("hello")
        assert (await friend.answer()).body == b"hello"
        friend.ask("POST", "/", "X-Secret: right", "Transfer-Encoding: chunked", "Expect: 100-continue")
        assert await friend.head() == (100, {})
        friend.send(b"1000000\r\n" + b"x" * (1024 * 1024 + 1))
        assert (await friend.answer()).status == 413


async def test_headers_that_come_too_slowly_are_not_waited_for() -> None:
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(header_seconds=0.1)) as server,
        server.route("GET", "/", says("hi")),
        connected(server) as slow,
        connected(server) as silent,
        connected(server) as second,
    ):
        second.ask("GET", "/")
        assert (await second.answer()).status == 200
        slow.send("GET / HTTP/1.1\r\nHost: ")
        # Who asked for nothing is told nothing.
        assert await silent.rest() == b""
        second.send("GET / HTTP/1.1\r\nHost: ")
        for client in (slow, second):
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (408, "close")
            assert answer.error["message"] == "the headers did not come in time"
            assert await client.rest() == b""


async def test_the_time_for_headers_begins_with_their_first_byte() -> None:
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(header_seconds=0.4)) as server,
        server.route("GET", "/", says("hi")),
        connected(server) as client,
    ):
        client.ask("GET", "/")
        assert (await client.answer()).status == 200
        await asyncio.sleep(0.3)
        client.send("GET / HTTP/1.1\r\n")
        await asyncio.sleep(0.2)
        client.send("Host: tidings.test\r\n\r\n")
        assert (await client.answer()).status == 200


async def test_a_slow_handler_is_not_taken_for_slow_headers() -> None:
    desk = Desk()
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(header_seconds=0.05)) as server,
        server.route("GET", "/", desk),
        connected(server) as client,
    ):
        client.ask("GET", "/")
        await happens(desk.begun)
        # The beginning of the next request; nobody waits for it yet.
        client.send("GET / HTTP/1.1\r\n")
        await asyncio.sleep(0.1)
        desk.may_end.set()
        assert (await client.answer()).body == b"done"
        client.send("Host: tidings.test\r\n\r\n")
        assert (await client.answer()).body == b"done"


async def test_a_connection_that_rests_too_long_is_closed() -> None:
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(idle_seconds=0.1)) as server,
        server.route("GET", "/", says("hi")),
        connected(server) as client,
    ):
        for _ in range(2):
            client.ask("GET", "/")
            assert (await client.answer()).status == 200
        assert await client.rest() == b""


async def test_a_body_that_comes_too_slowly_is_not_waited_for() -> None:
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(body_seconds=0.1)) as server,
        server.route("POST", "/", repeat),
        connected(server) as client,
    ):
        client.ask("POST", "/", "Content-Length: 5")
        client.send("hell")
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert answer.error["message"] == "the body did not come in time"


BIG = 16 * 1024 * 1024


async def big(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
    return web.Response(body=bytes(BIG))


async def brimful(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
    """Stops as soon as the client takes no more: all that is left would fit into the usual buffer."""
    response = web.StreamResponse()
    await response.prepare(request)
    transport = request.transport
    while transport is not None and not transport.get_write_buffer_size():
        await response.write(bytes(16 * 1024))
    return response


@pytest.mark.parametrize("answer", [big, brimful])
async def test_who_does_not_take_its_answer_loses_its_place(answer: Handler) -> None:
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(connections=1, answer_seconds=0.1)) as server,
        server.route("GET", "/big", answer),
        connected(server, limit=1024) as greedy,
    ):
        greedy.ask("GET", "/big")
        assert (await greedy.head())[0] == 200
        await until(server, "GET", "/", status=404)


async def test_who_takes_its_answer_slowly_but_steadily_gets_all_of_it() -> None:
    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(answer_seconds=0.2)) as server,
        server.route("GET", "/big", big),
        connected(server, limit=1024) as steady,
    ):
        steady.ask("GET", "/big")
        assert (await steady.head())[0] == 200
        taken = 0
        for _ in range(20):
            taken += await steady.take(256 * 1024)
            await asyncio.sleep(0.02)
        while more := await steady.take(BIG - taken):
            taken += more
        assert taken == BIG
        # Later nobody remembers that it was slow once.
        await asyncio.sleep(0.5)
        steady.ask("GET", "/")
        assert (await steady.answer()).status == 404


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (f"{CANARY}\r\n\r\n", 400),
        (f"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1{CANARY}\r\n\r\n", 400),
        (f"GET / HTTP/1.1\r\nHost: a\r\nBad Header {CANARY}\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: " + CANARY * 700 + "\r\n\r\n", 431),
        ("GET /" + CANARY * 700 + " HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        ("GET / HTTP/1.1\r\nHost: a\r\n" + f"X: {CANARY * 100}\r\n" * 15 + "\r\n", 431),
        ("GET / HTTP/1.1\r\nHost: a\r\n" + f"X: {CANARY * 100}\r\n" * 30, 431),
    ],
)
async def test_what_is_no_request_is_refused_and_leaves_no_trace(
    caplog: pytest.LogCaptureFixture, bad: str, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        HttpServer(LOOPBACK, 0) as server,
        server.route("GET", "/", says("hi")),
        connected(server) as client,
    ):
        client.send(bad)
        answer = await client.answer()
        assert (answer.status, answer.headers["server"]) == (status, "tidings")
        assert answer.error["type"] == "invalid_request_error"
        assert CANARY not in answer.error["message"]
        assert (await ask(server, "GET", "/")).status == 200
    assert CANARY not in caplog.text


async def test_headers_without_an_end_are_refused_as_soon_as_they_are_too_long() -> None:
    async with HttpServer(LOOPBACK, 0) as server, server.route("GET", "/", says("hi")), connected(server) as client:
        client.ask("GET", "/")
        assert (await client.answer()).status == 200
        client.send("GET / HTTP/1.1\r\nHost: a\r\n")
        for number in range(30):
            client.send(f"X-{number}: {'x' * 1000}\r\n")
        assert (await client.answer()).status == 431


async def test_a_body_that_breaks_its_grammar_ends_like_one_that_does_not_come(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reading = asyncio.Event()

    async def read(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        reading.set()
        return web.Response(body=await read_body(request))

    async with (
        HttpServer(LOOPBACK, 0, limits=Limits(body_seconds=0.1)) as server,
        server.route("POST", "/", read),
        connected(server) as client,
    ):
        client.ask("POST", "/", "Transfer-Encoding: chunked")
        await happens(reading)
        client.send(f"{CANARY}\r\n")
        assert (await client.answer()).status == 408
    assert caplog.records == []


# Handlers and their clients


@pytest.mark.parametrize("fault", [LookupError("a mistake of ours"), TimeoutError("a mistake of ours")])
async def test_a_handler_that_fails_is_a_500_and_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    async def broken(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        await read_body(request)
        raise fault

    caplog.set_level(logging.DEBUG)
    async with (
        HttpServer(LOOPBACK, 0) as server,
        server.route("POST", "/broken/{name}", broken),
        connected(server) as client,
    ):
        for _ in range(2):
            caplog.clear()
            client.ask("POST", f"/broken/{CANARY}?key={CANARY}", f"X-Secret: {CANARY}", body=CANARY.encode())
            answer = await client.answer()
            assert answer.status == 500
            assert answer.error == {
                "message": "something went wrong here; the log of the gateway says what",
                "type": "server_error",
            }
            (record,) = [record for record in caplog.records if record.levelno >= logging.INFO]
            assert record.getMessage() == "the handler of POST /broken/{name} failed"
            assert record.exc_info is not None
            assert record.exc_info[1] is fault
            assert CANARY not in caplog.text


async def test_a_stream_that_fails_looks_broken_and_not_ended(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        raise HttpError(418, "too late") if names["how"] == "refused" else ConnectionResetError("of another server")

    async with HttpServer(LOOPBACK, 0) as server, server.route("GET", "/{how}", broken):
        for how in ("refused", "failed"):
            caplog.clear()
            async with connected(server) as client:
                client.ask("GET", f"/{how}")
                await client.head()
                assert await client.rest() == b"4\r\nhalf\r\n"
            assert [record.getMessage() for record in caplog.records] == ["the handler of GET /{how} failed"]


async def test_a_handler_may_refuse_with_a_sentence_a_kind_and_headers() -> None:
    async def refuse(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        raise HttpError(429, "slowly, please", "rate_limit_error", {"Retry-After": "7"})

    async with HttpServer(LOOPBACK, 0) as server, server.route("POST", "/", refuse), connected(server) as client:
        for _ in range(2):
            client.ask("POST", "/", body=b"all of it")
            answer = await client.answer()
            assert (answer.status, answer.headers["retry-after"]) == (429, "7")
            assert answer.error == {"message": "slowly, please", "type": "rate_limit_error"}


@pytest.mark.parametrize("cancel_when_gone", [False, True])
async def test_a_client_that_leaves_ends_its_handler_only_where_the_route_says_so(cancel_when_gone: bool) -> None:
    desk = Desk()
    async with (
        HttpServer(LOOPBACK, 0) as server,
        server.route("GET", "/", desk, cancel_when_gone=cancel_when_gone),
        connected(server) as client,
    ):
        client.ask("GET", "/")
        await happens(desk.begun)
        client.leave()
        if cancel_when_gone:
            await happens(desk.cancelled)
        else:
            # Another request is answered meanwhile: by then the server knows that the first client has gone.
            assert (await ask(server, "GET", "/nowhere")).status == 404
            desk.may_end.set()
            await happens(desk.ended)
        assert desk.cancelled.is_set() == cancel_when_gone


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_nobodys_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[type[BaseException]] = []
    reading, over = asyncio.Event(), asyncio.Event()

    async def read(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        reading.set()
        try:
            return web.Response(body=await read_body(request))
        except ConnectionError as error:
            seen.append(type(error))
            raise
        finally:
            over.set()

    async with HttpServer(LOOPBACK, 0) as server, server.route("POST", "/", read), connected(server) as client:
        client.ask("POST", "/", "Content-Length: 5")
        client.send("hell")
        await happens(reading)
        client.leave()
        await happens(over)
    assert seen == [ConnectionResetError]
    assert caplog.records == []


# Leaving


async def test_leaving_lets_handlers_end_and_their_clients_hear_of_it(port: int) -> None:
    desk, slower = Desk(), Desk()
    async with (
        HttpServer(LOOPBACK, port, patience=SECONDS) as server,
        server.route("GET", "/", desk),
        server.route("GET", "/slower", slower),
        connected(server) as client,
        connected(server) as patient,
        connected(server) as idle,
    ):
        client.ask("GET", "/")
        patient.ask("GET", "/slower")
        await happens(desk.begun)
        await happens(slower.begun)
        leaving = asyncio.create_task(server.__aexit__(None, None, None))
        # The one that rests is closed, and nobody new gets in, while the handlers still work.
        assert await idle.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(LOOPBACK, port)
        for one, its in ((client, desk), (patient, slower)):
            assert not leaving.done()
            its.may_end.set()
            assert (await one.answer()).body == b"done"
            assert await one.rest() == b""
        await leaving


async def test_leaving_cancels_a_handler_that_takes_too_long(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    async with AsyncExitStack() as clients:
        async with (
            asyncio.timeout(SECONDS),
            HttpServer(LOOPBACK, 0, patience=0.05) as server,
            server.route("GET", "/", desk),
        ):
            client = await clients.enter_async_context(connected(server))
            client.ask("GET", "/")
            await happens(desk.begun)
        assert desk.cancelled.is_set()
        assert await client.rest() == b""
    assert caplog.records == []


async def test_leaving_does_not_wait_for_who_does_not_take_its_answer() -> None:
    async with AsyncExitStack() as clients:
        async with HttpServer(LOOPBACK, 0, patience=0.05) as server, server.route("GET", "/big", big):
            greedy = await clients.enter_async_context(connected(server, limit=1024))
            greedy.ask("GET", "/big")
            assert (await greedy.head())[0] == 200
        assert len(await greedy.rest()) < BIG


async def test_leaving_does_not_wait_for_ever_for_a_handler_that_does_not_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        begun.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()
        ended.set()
        return web.Response()

    async with AsyncExitStack() as stack:
        # However this ends: a test that fails must not hang.
        stack.callback(may_end.set)
        async with HttpServer(LOOPBACK, 0, patience=0) as server, server.route("GET", "/", stubborn):
            client = await stack.enter_async_context(connected(server))
            client.ask("GET", "/")
            await happens(begun)
        assert await client.rest() == b""
        assert [record.getMessage() for record in caplog.records] == [
            "1 HTTP handlers do not end although they were cancelled"
        ]
        assert not ended.is_set()
    await happens(ended)


async def test_leaving_does_not_wait_for_clients_in_any_state(port: int) -> None:
    """One that says nothing, one in its headers, one in its body, one refused that still sends, and one too many."""
    async with AsyncExitStack() as clients:
        async with HttpServer(LOOPBACK, port, limits=Limits(connections=4)) as server, server.route("POST", "/", guard):
            all_of_them = [await clients.enter_async_context(connected(server)) for _ in range(5)]
            silent, headers, body, refused, _ = all_of_them
            refused.ask("POST", "/", "Content-Length: 5")
            assert (await refused.answer()).status == 403
            headers.send("POST /")
            body.ask("POST", "/", "X-Secret: right", "Content-Length: 5", "Expect: 100-continue")
            assert await body.head() == (100, {})
            leaving = asyncio.create_task(server.__aexit__(None, None, None))
            assert await silent.rest() == b""
            body.send("hello")
            assert (await body.answer()).body == b"hello"
            await leaving
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for client in all_of_them:
            assert await client.rest() == b""
    assert is_free(port)


async def test_a_session_of_the_one_request_is_not_that_of_the_next() -> None:
    """Each handler runs in a task of its own, also on a connection that is used again."""
    tasks: list[asyncio.Task[Any] | None] = []

    async def note(request: web.BaseRequest, names: Mapping[str, str]) -> web.StreamResponse:
        tasks.append(asyncio.current_task())
        return web.Response()

    async with HttpServer(LOOPBACK, 0) as server, server.route("GET", "/", note), connected(server) as client:
        for _ in range(2):
            client.ask("GET", "/")
            await client.answer()
    assert len(set(tasks)) == 2
