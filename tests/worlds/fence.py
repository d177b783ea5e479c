"""A gateway's home with everything worth stealing, and a command beside it behind one of the fences.

    async with Ground(tmp_path, "bubblewrap") as ground:
        ended = await ground.run(f"cat {ground.home}/api.key")

ground.home          holds a key, secrets, a database, the settings and the workspaces of two conversations
ground.socket        where the gateway answers; `ground.reached` names everybody who was reached from a command
ground.port          a loopback port of the machine, also for datagrams
ground.victim        a process of the gateway's user with a secret in its environment
BACKENDS             every fence that can be tried here, each with the mark that skips it where a program is missing
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from tests.worlds.tool_bench import in_session
from tidings.bots.app.outlet import OutletServer
from tidings.core import context
from tidings.core.desk.fence import Fence
from tidings.core.settings import Terminal
from tidings.core.work.processes import foreground, wall
from tidings.core.work.processes.fence import Local
from tidings.core.work.processes.foreground import Ended
from tidings.core.work.processes.remote import Remote
from tidings.core.work.processes.sandbox import PATHS, Sandbox

PATIENCE_SECONDS = 60.0
CANARY = "canary-4711"
# A user that no distribution gives away.
VISITOR = 1_899_999_999
# Small enough that a fence that fails does no harm to the machine.
LIMITS = {"processes": 60, "memory_bytes": 1_500_000_000, "disk_bytes": 20_000_000, "temporary_bytes": 20_000_000}

ON_LINUX = sys.platform == "linux"
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")


def _has_bubblewrap() -> bool:
    """Whether it is installed, and the kernel lets it work."""
    if not ON_LINUX or shutil.which("bwrap") is None:
        return False
    tried = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


needs_bubblewrap = pytest.mark.skipif(not _has_bubblewrap(), reason="bubblewrap is not here, or may not work")
needs_landlock = pytest.mark.skipif(not ON_LINUX or not wall.landlock_version(), reason="this kernel has no Landlock")
needs_sshd = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None or not _has_bubblewrap(), reason="sshd is not here"
)
needs_python = pytest.mark.skipif(shutil.which("python3", path=PATHS) is None, reason="there is no system's Python")
on_linux = pytest.mark.skipif(not ON_LINUX, reason="only Linux has these walls")

BACKENDS = [
    pytest.param("bubblewrap", marks=[on_linux, needs_bubblewrap]),
    pytest.param("landlock", marks=needs_landlock),
    pytest.param("ssh", marks=[on_linux, needs_sshd]),
    pytest.param("local", marks=on_linux),
]
# The sandbox in both of its forms.
SANDBOXES = BACKENDS[:2]


class Ground:
    def __init__(self, path: Path, backend: str, **settings: Any) -> None:
        self._stack = AsyncExitStack()
        self.backend = backend
        self.home = path / "home"
        self.workspace = self.home / "workspaces" / "one"
        self.other = self.home / "workspaces" / "two"
        self.socket = self.home / "tidings.sock"
        self.abstract = f"tidings-{os.getpid()}-{path.name}"
        self.reached: set[str] = set()
        self.fence: Fence
        # Where another user can come to.
        self._far = Path(self._stack.enter_context(tempfile.TemporaryDirectory())) if backend == "ssh" else path
        self._settings = {**LIMITS, **settings}

    async def __aenter__(self) -> Self:
        for folder in (self.workspace, self.other):
            folder.mkdir(mode=0o700, parents=True)
        self.home.chmod(0o700)
        for name in ("api.key", "secrets.toml", "tidings.db", "tidings.toml", "workspaces/two/diary"):
            (self.home / name).write_text(f"{CANARY}\n")
            (self.home / name).chmod(0o600)
        await self._listen()
        self.victim = self._stack.enter_context(_sleeper())
        self.fence = await self._build()
        self._stack.enter_context(in_session(self.workspace))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _listen(self) -> None:
        servers = [
            await asyncio.start_unix_server(self._met("socket"), self.socket),
            await asyncio.start_unix_server(self._met("abstract"), f"\0{self.abstract}"),
            await asyncio.start_server(self._met("port"), "127.0.0.1", 0),
        ]
        self.port = servers[-1].sockets[0].getsockname()[1]
        for server in servers:
            self._stack.callback(server.close)
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._stack.callback(datagrams.close)
        datagrams.bind(("127.0.0.1", self.port))
        datagrams.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(datagrams, lambda: (datagrams.recv(100), self.reached.add("datagram")))
        self._stack.callback(loop.remove_reader, datagrams)

    def _met(self, name: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.reached.add(name)
            writer.close()

        return meet

    async def _build(self) -> Fence:
        match self.backend:
            case "local":
                return Local()
            case "ssh":
                self.settings = await self._stack.enter_async_context(_another_host(self._far, self._settings))
                return Remote(self.settings)
        self.settings = settings = Terminal(**self._settings)
        outlet = None
        if settings.by_list:
            outlet = (await self._stack.enter_async_context(OutletServer(self.home, settings))).outlet
        program = "bwrap" if self.backend == "bubblewrap" else "no-such-program"
        return Sandbox(settings, self.home, outlet, program=program)

    async def run(self, command: str, seconds: float = PATIENCE_SECONDS) -> Ended:
        shell = shutil.which("bash") or "/bin/sh"
        enclosed = await self.fence.around((shell, "-c", command), self.workspace, context.child_environment())
        return await foreground.run(enclosed, seconds, 20_000)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            # Another process can tell only by being looked at.
            while True:
                if holds():
                    return
                await asyncio.sleep(0.02)

    @property
    def held(self) -> Path:
        """Where the files of the conversation are, seen from here."""
        return self._far / "home" / "tidings" / "one" if self.backend == "ssh" else self.workspace


@contextmanager
def _sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"], env={"PATH": os.defpath, "KEY": CANARY}) as process:
        try:
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def _another_host(far: Path, settings: dict[str, Any]) -> AsyncIterator[Terminal]:
    """A host of its own: an sshd that has its own users, files and processes, and listens on loopback."""
    (far / "home").mkdir()
    for name in ("host", "key"):
        await _done("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(far / name))
    (far / "passwd").write_text("root:x:0:0::/:/bin/sh\nvisitor:x:1000:1000::/home/visitor:/bin/sh\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lines = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": "/etc/ssh/host",
        "AuthorizedKeysFile": "/etc/ssh/key.pub",
        "PidFile": "none",
        "UsePAM": "no",
        "StrictModes": "no",
        "PasswordAuthentication": "no",
    }
    (far / "config").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    (far / "known").write_text(f"[127.0.0.1]:{port} {(far / 'host.pub').read_text()}")
    system = [
        part
        for name in ("bin", "sbin", "lib", "lib64")
        for part in (("--symlink", f"usr/{name}", f"/{name}") if Path(f"/{name}").is_symlink() else ())
    ]
    assert SSHD is not None
    command = [
        *("bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--uid", "1000", "--gid", "1000"),
        *("--die-with-parent", "--ro-bind", "/usr", "/usr", *system, "--proc", "/proc", "--dev", "/dev"),
        *("--tmpfs", "/tmp", "--dir", "/run/sshd", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"),
        *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
        *("--ro-bind", str(far / "passwd"), "/etc/passwd", "--ro-bind", str(far), "/etc/ssh"),
        *("--bind", str(far / "home"), "/home/visitor", "--", SSHD, "-D", "-e", "-f", "/etc/ssh/config"),
    ]
    stranger: dict[str, Any] = {}
    if os.geteuid() == 0:
        # Limits on processes do not bind root.
        stranger = {"user": VISITOR, "group": VISITOR, "extra_groups": ()}
        for path in (far, *far.rglob("*")):
            os.chown(path, VISITOR, VISITOR)
        (far / "key").chmod(0o600)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **stranger) as host:
        try:
            assert host.stderr is not None
            said = await asyncio.to_thread(host.stderr.readline)
            assert "Server listening" in said, said
            yield Terminal(
                backend="ssh",
                host="127.0.0.1",
                port=port,
                user="visitor",
                identity_file=str(far / "key"),
                known_hosts=str(far / "known"),
                **{name: value for name, value in settings.items() if name not in ("network", "private_hosts")},
            )
        finally:
            host.kill()


async def _done(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0
