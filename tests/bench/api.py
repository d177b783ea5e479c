"""Measures the HTTP API as a client sees it, beside bare handlers in the same run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

KEY = "tdg_for-measuring-only-0123456789abcdefghij"
READERS = 10_000
ROOT = Path(__file__).resolve().parents[2]
MEASURED = {"TIDINGS_BOT__AGENT": "tests.bench.api_agents:Measured"}

Figures = dict[str, float]


class Server:
    """One server in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    @property
    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@asynccontextmanager
async def serving(kind: str, bot: Mapping[str, str] = MEASURED) -> AsyncIterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "tests.bench.api_servers", kind, str(port)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if kind == "tidings":
            command = [str(Path(sys.executable).with_name("tidings")), "run", "--no-chat"]
            environment |= {
                "TIDINGS_HOME": home,
                "TIDINGS_HTTP__PORT": str(port),
                "TIDINGS_HTTP__KEY": KEY,
                "TIDINGS_HTTP__CONNECTIONS": str(2 * READERS),
                "TIDINGS_HTTP__REQUESTS": "5000",
                "TIDINGS_LOG__LEVEL": "warning",
                **bot,
            }
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, preexec_fn=_many_descriptors
        )
        try:
            await (_is_healthy(port) if kind == "tidings" else _answers(port))
            yield Server(process, port)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _many_descriptors() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * READERS) if hard > 0 else 4 * READERS, hard))


async def _answers(port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return


async def _is_healthy(port: int) -> None:
    """The port is open before the API has its routes; /health answers 200 once it has them."""
    async with asyncio.timeout(30):
        await _answers(port)
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(_request("GET", "/health", headers="Connection: close\r\n"))
            answer = await reader.read()
            writer.close()
            if answer.startswith(b"HTTP/1.1 200"):
                return
            await asyncio.sleep(0.01)


def _request(method: str, path: str, body: object = None, headers: str = "") -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    typed = "Content-Type: application/json\r\n" if data else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n{typed}{headers}"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def _chat(text: str, *, stream: bool = False) -> bytes:
    return _request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "stream": stream})


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")):
        raise SystemExit(f"bench: {head!r}")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    assert length is not None
    return await reader.readexactly(int(length[1]))


async def requests(kind: str) -> Figures:
    """CPU of the server for each request, and requests a second with 1, 16 and 64 clients."""
    figures: Figures = {}
    async with serving(kind) as server:
        await _load(server, 16, 200)
        for clients in (1, 16, 64):
            count = 600 if clients == 1 else 3000
            cpu, began = server.cpu, time.perf_counter()
            await _load(server, clients, count)
            figures[f"rps_{clients}"] = count / (time.perf_counter() - began)
            figures[f"cpu_ms_{clients}"] = (server.cpu - cpu) / count * 1000
    return figures


async def _load(server: Server, clients: int, count: int) -> None:
    request = _chat("hello there, how are you today?")

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(count // clients):
            await _ask(reader, writer, request)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))


async def first_delta() -> Figures:
    """How much later than the agent said it a client reads the first word."""
    late: list[float] = []
    async with serving("tidings") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(100):
            writer.write(_chat("stamp", stream=True))
            seen = b""
            while b"[DONE]" not in seen:
                seen += await reader.read(65536)
                stamp = re.search(rb'"content":"(\d+\.\d+) "', seen)
                if stamp is not None and late[-1:] != [-1.0]:
                    late += [time.monotonic() - float(stamp[1]), -1.0]
            late = [each for each in late if each >= 0]
            await reader.readuntil(b"0\r\n\r\n") if b"\r\n0\r\n\r\n" not in seen else None
        writer.close()
    return {"p50_ms": statistics.median(late) * 1000}


async def conversations() -> Figures:
    """Two hundred conversations at once with an agent that takes two seconds."""
    async with serving("tidings") as server:

        async def one(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            named = f"X-Tidings-Conversation: c{number}\r\n"
            body = {"messages": [{"role": "user", "content": "wait"}]}
            await _ask(reader, writer, _request("POST", "/v1/chat/completions", body, named))
            writer.close()

        began = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(200)))
        return {"seconds": time.perf_counter() - began}


async def idle_readers() -> Figures:
    """Memory of the server while ten thousand readers wait for the next event of a run."""
    _many_descriptors()
    async with serving("tidings") as server:
        idle = server.memory
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        run = json.loads(await _ask(reader, writer, _request("POST", "/v1/runs", {"input": "stay"})))["run_id"]
        request = _request("GET", f"/v1/runs/{run}/events")
        open_connections = []

        async def attach() -> None:
            events, sender = await asyncio.open_connection("127.0.0.1", server.port, limit=4096)
            sender.write(request)
            await events.readuntil(b'"delta":"here"')
            open_connections.append(sender)

        for _ in range(READERS // 100):
            await asyncio.gather(*(attach() for _ in range(100)))
        figures = {"idle_mb": idle, "readers_mb": server.memory, "readers": float(len(open_connections))}
        for sender in open_connections:
            sender.transport.abort()
        writer.close()
        return figures


async def start() -> Figures:
    """From nothing to a 200 on /health, and the memory then."""
    began = time.perf_counter()
    async with serving("tidings") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await _ask(reader, writer, _request("GET", "/health"))
        wall = time.perf_counter() - began
        figures = {"seconds": wall, "cpu": server.cpu, "rss_mb": server.memory}
        writer.close()
        return figures


MEASURES = {
    "api_tidings": lambda: requests("tidings"),
    "api_bare": lambda: requests("bare"),
    "api_durable": lambda: requests("durable"),
    "api_first_delta": first_delta,
    "api_conversations": conversations,
    "api_idle_readers": idle_readers,
    "api_start": start,
}


def main() -> None:
    print(json.dumps(asyncio.run(MEASURES[sys.argv[1]]())))


if __name__ == "__main__":
    main()
