"""S23: no page is a bomb or goes on for ever, and whatever comes of a fetch is a plain sentence or a readable text."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web as server

from tests.security.test_s23_fetches import PUBLIC, fetcher, refusal
from tests.simulators.tools.web import Page, Web
from tidings.bots.assistant.tools import guard
from tidings.bots.assistant.tools import web as fetching
from tidings.bots.assistant.tools.tool import ToolError
from tidings.bots.assistant.tools.web import Fetcher


@pytest.fixture
async def net() -> AsyncIterator[Web]:
    async with Web({"good.example": [(PUBLIC,)]}) as net:
        yield net


MEBIBYTE = 1024 * 1024


def zipped(data: bytes) -> bytes:
    # Without the time, so that every process collects the same tests.
    return gzip.compress(data, mtime=0)


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("compression", "body", "reason"),
    # Packed when their turn has come: every process that collects the tests would else pack hundreds of megabytes.
    [
        ("gzip", lambda: zipped(bytes(100 * MEBIBYTE)), "larger than 10 MiB"),
        ("gzip", lambda: zipped(bytes(9 * MEBIBYTE)), "compressed far beyond"),
        ("gzip", lambda: zipped(bytes(5 * MEBIBYTE)) * 3, "compressed far beyond"),
        ("gzip", lambda: zipped(b"") * 1000, "too many parts"),
        ("gzip", lambda: zipped(b"Hello." * 100)[:-12], "breaks off"),
        ("gzip", lambda: b"Hello.", "compressed wrongly"),
        ("deflate", lambda: zlib.compress(bytes(100 * MEBIBYTE)), "larger than 10 MiB"),
        ("deflate", lambda: raw_deflate(bytes(9 * MEBIBYTE)), "compressed far beyond"),
        ("br", lambda: b"\x00" * 100, "not asked for"),
        ("gzip, gzip", lambda: zipped(zipped(bytes(100 * MEBIBYTE))), "not asked for"),
    ],
    ids=range(10),
)
async def test_s23_a_compressed_page_that_blows_up_is_not_read(
    net: Web, compression: str, body: Callable[[], bytes], reason: str
) -> None:
    net.page("/", body(), Content_Encoding=compression)
    assert reason in await refusal(net, "http://good.example/")


@pytest.mark.parametrize(
    ("compression", "body"),
    [
        ("", b"Hello."),
        ("identity", b"Hello."),
        ("gzip", zipped(b"Hello.")),
        ("gzip", zipped(b"Hel") + zipped(b"lo.") + b"\0\0"),
        ("GZIP", zipped(b"Hello.")),
        ("deflate", zlib.compress(b"Hello.")),
        ("deflate", raw_deflate(b"Hello.")),
    ],
    ids=range(7),
)
async def test_s23_an_honestly_compressed_page_is_read(net: Web, compression: str, body: bytes) -> None:
    net.page("/", body, Content_Encoding=compression)
    assert (await fetcher(net).fetch("http://good.example/")).endswith("\n\nHello.")


async def test_s23_a_page_that_says_it_is_too_large_is_not_begun(net: Web) -> None:
    async def boast(request: server.Request) -> server.StreamResponse:
        answer = server.StreamResponse(headers={"Content-Length": str(11 * MEBIBYTE), "Content-Type": "text/plain"})
        await answer.prepare(request)
        # Nothing ever comes.
        await asyncio.Event().wait()
        return answer

    net.pages["/"] = boast
    assert "larger than 10 MiB" in await refusal(net, "http://good.example/")


async def test_s23_a_page_without_an_end_is_left(net: Web) -> None:
    left = asyncio.Event()

    async def babble(request: server.Request) -> server.StreamResponse:
        answer = server.StreamResponse(headers={"Content-Type": "text/plain"})
        await answer.prepare(request)
        try:
            while True:
                await answer.write(b"x" * 65536)
        except (ConnectionError, asyncio.CancelledError):
            left.set()
            raise

    net.pages["/"] = babble
    assert "larger than 10 MiB" in await refusal(net, "http://good.example/")
    await left.wait()


async def drip(request: server.Request) -> server.StreamResponse:
    answer = server.StreamResponse(headers={"Content-Type": "text/plain"})
    await answer.prepare(request)
    while True:
        await answer.write(b"x")
        await asyncio.sleep(0.01)


async def hang(request: server.Request) -> server.StreamResponse:
    await asyncio.Event().wait()
    return server.Response()


async def wander(request: server.Request) -> server.StreamResponse:
    await asyncio.sleep(0.15)
    return server.Response(status=302, headers={"Location": "/"})


@pytest.mark.parametrize("slow", [drip, hang, wander])
async def test_s23_a_slow_page_is_given_up_in_time(net: Web, slow: Page) -> None:
    net.pages["/"] = slow
    sentence = await refusal(net, "http://good.example/", seconds=0.3)
    assert sentence == "good.example did not answer in full within 0.3 seconds."


async def test_s23_a_slow_lookup_counts_as_well(net: Web) -> None:
    async def look_up(host: str, port: int) -> tuple[str, ...]:
        await asyncio.Event().wait()
        return (PUBLIC,)

    with pytest.raises(ToolError, match="within 0.1 seconds"):
        await Fetcher(seconds=0.1, look_up=look_up, open_socket=net.open_socket).fetch("http://good.example/")
    assert net.dialled == []


def test_s23_the_limits_that_a_bot_runs_with() -> None:
    assert Fetcher().seconds == fetching.SECONDS == 20
    assert fetching.BODY_BYTES == 10 * MEBIBYTE
    assert (fetching.REDIRECTS, fetching.RATIO, guard.PORTS) == (3, 100, (80, 443))
    assert Fetcher().allowed == frozenset()


async def test_s23_a_server_that_does_not_speak_http_is_told_of_in_a_sentence(net: Web) -> None:
    async def mumble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(mumble, "127.0.0.1", 0) as listener:
        net.port = listener.sockets[0].getsockname()[1]
        sentence = await refusal(net, "http://good.example/")
    assert sentence == "the answer of good.example broke off, or is not proper HTTP."


async def test_s23_a_server_that_is_not_there_is_told_of_in_a_sentence(net: Web) -> None:
    listener = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    net.port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    assert await refusal(net, "http://good.example/") == "good.example cannot be reached."


async def test_a_page_is_told_with_its_status_and_its_text(net: Web) -> None:
    net.page("/", "<title>A</title><p>See <a href='/b'>b</a>.", "text/html; charset=utf-8", status=404)
    assert await fetcher(net).fetch("http://good.example/") == (
        "Status: 404 Not Found\nAddress: http://good.example/\nType: text/html\n\n"
        "Title: A\n\nSee b (http://good.example/b)."
    )


async def test_what_is_not_text_is_told_by_its_type_and_size(net: Web) -> None:
    net.page("/", bytes(2000), "image/png")
    assert (await fetcher(net).fetch("http://good.example/")).endswith(
        "\n\n[This is not text, so it was not read: image/png, 2,000 bytes.]"
    )


async def test_a_page_with_nothing_in_it_says_so(net: Web) -> None:
    net.page("/")
    assert (await fetcher(net).fetch("http://good.example/")).endswith("\n\n[The page is empty.]")
