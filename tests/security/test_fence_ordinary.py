"""What people have a bot do in a terminal works behind every fence."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import shutil
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.worlds.fence import BACKENDS, Ground, needs_bubblewrap, needs_python
from tidings.core.work.processes.sandbox import PATHS

GIT = "git -c user.name=Ada -c user.email=ada@example.com"
MAKEFILE = "all: out\\nout: in\\n\\tcp in out\\n"
COMMANDS = {
    "git": (f"git init -q . && echo a > a && git add a && {GIT} commit -qm one && git status -s && echo ok", "ok\n"),
    "python": ("echo 'print(6 * 7)' > it.py && python3 it.py", "42\n"),
    "venv": ("python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix[-2:])'", "/v\n"),
    "make": (f"printf '{MAKEFILE}' > Makefile && echo x > in && make -s && cat out", "x\n"),
    "tar": ("mkdir d && echo x > d/f && tar czf d.tgz d && rm -r d && tar xzf d.tgz && cat d/f", "x\n"),
    "find": ("mkdir -p a/b && touch a/b/c && find . -type f", "./a/b/c\n"),
    "a pipe": ("seq 100 | grep 7 | sort -rn | head -1", "97\n"),
    "process substitution": ("diff <(echo a) <(echo a) && echo same", "same\n"),
    "a here document": ("cat <<END\nline\nEND", "line\n"),
    "a script of its own": ("printf '#!/bin/sh\\necho mine\\n' > s && chmod +x s && ./s", "mine\n"),
    "a temporary file": ("f=$(mktemp) && echo x > $f && cat $f && rm $f", "x\n"),
    "the way home": ('cd "$HOME" && mkdir -p sub && cd sub && cd ~ && pwd | grep -c .', "1\n"),
    "work side by side": ("(sleep 0.1; echo b) & echo a; wait", "a\nb\n"),
    "names and time": ("id -u >/dev/null && date >/dev/null && echo ok", "ok\n"),
}  # fmt: skip
NEEDED = {"git": "git", "make": "make", "python": "python3", "venv": "python3"}


def missing(name: str) -> bool:
    return shutil.which(NEEDED.get(name, "sh"), path=PATHS) is None


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.skipif(missing(name), reason="not here")) for name in COMMANDS]
)
@pytest.mark.parametrize("backend", BACKENDS)
async def test_an_ordinary_command_works(tmp_path: Path, backend: str, name: str) -> None:
    command, expected = COMMANDS[name]
    async with Ground(tmp_path, backend) as ground:
        ended = await ground.run(command)
        assert (ended.code, ended.output) == (0, expected)


@asynccontextmanager
async def package_index(folder: Path) -> AsyncIterator[int]:
    """A package index on loopback with one tiny package; the port."""
    wheel = folder / "tiny-1.0-py3-none-any.whl"
    content = {
        "tiny.py": "word = 'tiny'\n",
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in content.items())
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {**content, "tiny-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    pages = {
        b"/simple/tiny/": f'<a href="/{wheel.name}">{wheel.name}</a>'.encode(),
        f"/{wheel.name}".encode(): wheel.read_bytes(),
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
        body = pages.get(path, b"")
        status = b"200 OK" if body else b"404 Not Found"
        kind = b"text/html" if path.endswith(b"/") else b"application/zip"
        head = b"HTTP/1.1 " + status + b"\r\nContent-Type: " + kind + b"\r\nConnection: close\r\n"
        writer.write(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@needs_python
@pytest.mark.skipif(missing("python"), reason="there is no system's Python")
@pytest.mark.parametrize("backend", [each for each in BACKENDS if each.values[0] != "landlock"])
async def test_pip_installs_from_an_index_that_the_list_names(tmp_path: Path, backend: str) -> None:
    async with package_index(tmp_path) as port:
        listed = {"private_hosts": (f"127.0.0.1:{port}",)} if backend == "bubblewrap" else {}
        async with Ground(tmp_path, backend, disk_bytes=100_000_000, **listed) as ground:
            made = await ground.run("python3 -m venv v && echo made")
            if "made" not in made.output:
                pytest.skip("the system's Python has no venv")
            index = f"http://127.0.0.1:{port}/simple/"
            install = f"v/bin/pip install -q --disable-pip-version-check --index-url {index} tiny"
            ended = await ground.run(f"{install} && v/bin/python -c 'import tiny; print(tiny.word)'")
            assert (ended.code, ended.output) == (0, "tiny\n")


@needs_python
@needs_bubblewrap
async def test_a_command_with_a_list_reaches_only_what_it_names(tmp_path: Path) -> None:
    """Not another port of the same machine, not around the proxy, and no name that leads to a private address."""
    ask = (
        "import urllib.request, urllib.error\n"
        "def get(url, *handlers):\n"
        "    try: return urllib.request.build_opener(*handlers).open(url, timeout=20).status\n"
        "    except urllib.error.HTTPError as error: return error.read().decode().strip()\n"
        "    except OSError as error: return type(error).__name__\n"
        "around = urllib.request.ProxyHandler({})\n"
    )
    async with package_index(tmp_path) as port:
        listed = {"network": ("localhost", "metadata.invalid"), "private_hosts": (f"127.0.0.1:{port}",)}
        async with Ground(tmp_path, "bubblewrap", **listed) as ground:
            (ground.workspace / "ask.py").write_text(
                f"{ask}print(get('http://127.0.0.1:{port}/simple/tiny/'))\n"
                f"print(get('http://127.0.0.1:{ground.port}/'))\n"
                f"print(get('http://127.0.0.1:{port}/', around))\n"
                "print(get('http://169.254.169.254/'))\n"
                "print(get('http://localhost/'))\n"
                "print(get('http://packages.example.com/'))\n"
                "print(get('https://packages.example.com/'))\n"
            )
            ended = await ground.run("python3 ask.py")
            assert ended.output.splitlines() == [
                "200",
                "Tidings: 127.0.0.1 is not in the list [terminal] network.",
                "URLError",
                "Tidings: 169.254.169.254 is not in the list [terminal] network.",
                "Tidings: localhost is not at a public address, so I may not fetch it.",
                "Tidings: packages.example.com is not in the list [terminal] network.",
                "URLError",
            ]
            assert ground.reached == set()


@needs_bubblewrap
async def test_the_outlet_s_forwarder_ends_with_its_command(tmp_path: Path) -> None:
    async with Ground(tmp_path, "bubblewrap", network=("packages.example.com",)) as ground:
        ended = await ground.run("sleep 987652 & echo begun; sleep 987652", 2)
        assert ended.output == "begun\n"
        await ground.until(lambda: not _programs("outlet_forwarder", "987652"))


def _programs(*words: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        found += [line for word in words if word in line and str(Path.cwd()) in line or word in line.split()]
    return found
