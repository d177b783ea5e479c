"""What a command behind a fence tries, for real: in the sandbox and by ssh all of it fails, and local shows why."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.worlds.fence import BACKENDS, CANARY, SANDBOXES, Ground, needs_bubblewrap, needs_landlock, needs_python
from tests.worlds.tool_bench import use
from tidings.bots.assistant.tools import files
from tidings.bots.assistant.tools.tool import ToolError
from tidings.core.errors import Unfenced
from tidings.core.settings import Terminal
from tidings.core.work.processes import syscalls
from tidings.core.work.processes.foreground import Ended
from tidings.core.work.processes.sandbox import Sandbox, user_of

ROOT = Path(__file__).resolve().parents[2]

pytestmark = needs_python


class Attack(NamedTuple):
    """`command` is a template; `succeeded` tells by the machine, not by the command's own words, where it can."""

    command: str
    succeeded: Callable[[Ground, Ended], bool]
    # Whether local lets it happen; None where that depends on the machine, or would harm it.
    locally: bool | None = True
    # Whether the host of ssh is asked: its own network and kernel are its owner's business.
    remotely: bool = True


def told(ground: Ground, ended: Ended) -> bool:
    return CANARY in ended.output


def shows(word: str) -> Callable[[Ground, Ended], bool]:
    return lambda ground, ended: word in ended.output


def reaches(name: str) -> Callable[[Ground, Ended], bool]:
    return lambda ground, ended: name in ground.reached


def changes(name: str) -> Callable[[Ground, Ended], bool]:
    return lambda ground, ended: (ground.home / name).read_text() != f"{CANARY}\n"


def python(program: str) -> str:
    # Braces of the program are no fields of the template.
    return f"python3 -c {shlex.quote(program)}"


def connect(family: str, address: str, kind: str = "STREAM") -> str:
    return python(
        f"import socket; s = socket.socket(socket.{family}, socket.SOCK_{kind}); s.settimeout(5);"
        f" s.connect({address}); s.send(b'hello'); print('connected')"
    )


FORKS = python(
    "import os, time\nn = 0\nfor _ in range(300):\n    try:\n        if os.fork() == 0: time.sleep(20); os._exit(0)\n"
    "    except OSError:\n        break\n    n += 1\nprint('forked', 'all' if n == 300 else 'some')"
)
FILLS = python("import time\nfor n in range(110):\n    open('f%d' % n, 'wb').write(bytes(1000000)); time.sleep(0.03)")
EMPTY_FILES = python(
    "import os, time\nfor n in range(60000):\n    open('e%d' % n, 'wb').close()\n    n % 500 or time.sleep(0.02)\n"
)
TYPES = python(
    "import fcntl, os, termios\nlead, follow = os.openpty()\nos.fork() and os._exit(os.wait()[1] >> 8)\nos.setsid()\n"
    "fcntl.ioctl(follow, termios.TIOCSCTTY, 0); fcntl.ioctl(follow, termios.TIOCSTI, b'x'); print('typed')"
)


def calls() -> str:
    """Makes every refused system call by its number; the filter refuses each before its arguments are looked at."""
    column = list(syscalls.ARCHITECTURES).index(platform.machine())
    numbers = [each[column] for each in syscalls.CALLS.values() if each[column] is not None]
    return python(
        f"import ctypes, errno\nc = ctypes.CDLL(None, use_errno=True)\nfor n in {numbers}:\n"
        "    c.syscall(n, 0, 0, 0, 0, 0)\n    if ctypes.get_errno() != errno.EPERM: print('passed', n)"
    )


ATTACKS = {
    "the owner's key": Attack("cat {home}/api.key", told),
    "the secrets": Attack("cat {home}/secrets.toml; find / -name secrets.toml -exec cat {{}} + 2>/dev/null", told),
    "the environment of the gateway": Attack("cat /proc/{pid}/environ /proc/[0-9]*/environ | tr '\\0' '\\n'", told),
    "the memory of the gateway": Attack("head -c 1 /proc/{pid}/maps && echo mapped", shows("mapped")),
    "killing the gateway": Attack("kill -9 {pid}; sleep 0.2", lambda ground, _: ground.victim.poll() is not None),
    "reading the database": Attack("cat {home}/tidings.db", told),
    "writing the database": Attack(": > {home}/tidings.db", changes("tidings.db")),
    "a link to the database": Attack("ln {home}/tidings.db mine && cat mine", told),
    "the fence's own settings": Attack("echo 'backend = local' >> {home}/tidings.toml", changes("tidings.toml")),
    "reading another conversation": Attack("cat {other}/diary ../two/diary", told),
    "writing to another conversation": Attack("touch {other}/left", lambda ground, _: (ground.other / "left").exists()),
    "what lies beside the workspace": Attack(
        "touch ../new {home}/new", lambda ground, _: (ground.home / "new").exists() or _beside(ground)
    ),
    "the gateway's socket": Attack(connect("AF_UNIX", "'{socket}'"), reaches("socket")),
    "an abstract socket": Attack(connect("AF_UNIX", "chr(0) + '{abstract}'"), reaches("abstract"), remotely=False),
    "a port of this machine": Attack(connect("AF_INET", "('127.0.0.1', {port})"), reaches("port"), remotely=False),
    "a datagram to this machine": Attack(
        connect("AF_INET", "('127.0.0.1', {port})", "DGRAM"), reaches("datagram"), remotely=False
    ),
    "the metadata of a cloud": Attack(
        connect("AF_INET", "('169.254.169.254', 80)", "DGRAM"), shows("connected"), locally=None, remotely=False
    ),
    "a name on the internet": Attack(
        connect("AF_INET", "('192.0.2.1', 53)", "DGRAM"), shows("connected"), locally=None, remotely=False
    ),
    "a socket of a virtual machine": Attack(
        python("import socket; socket.socket(socket.AF_VSOCK); print('opened')"),
        shows("opened"),
        locally=None,
        remotely=False,
    ),
    "a fork bomb": Attack(FORKS, shows("forked all")),
    "too much memory": Attack(python("x = bytes(2000000000); print('held')"), shows("held")),
    "filling the disk": Attack(FILLS, lambda ground, _: _held(ground.held) > 100_000_000, remotely=False),
    "a file that is too big": Attack(
        "head -c 60000000 /dev/zero > big", lambda ground, _: _held(ground.held) > 50_000_000
    ),
    "too many empty files": Attack(
        EMPTY_FILES, lambda ground, _: len(os.listdir(ground.held)) >= 60_000, remotely=False
    ),
    "filling /tmp": Attack("head -c 60000000 /dev/zero > /tmp/big && echo full", shows("full"), None, remotely=False),
    "filling shared memory": Attack(
        "head -c 90000000 /dev/zero > /dev/shm/big && echo full", shows("full"), None, remotely=False
    ),
    "mounting": Attack(
        "mkdir m && mount -t tmpfs none m && echo mounted; unshare -Urm mount -t tmpfs none m && echo mounted",
        shows("mounted"),
        locally=None,
        remotely=False,
    ),
    "another user": Attack(python("import os; os.setuid(0); print('root')"), shows("root"), locally=None),
    "a program with more rights": Attack("grep 'NoNewPrivs:.0' /proc/self/status", shows("NoNewPrivs"), None, False),
    "a capability": Attack(
        "grep CapEff /proc/self/status | grep -v 0000000000000000 && echo capable", shows("capable"), None, False
    ),
    "typing into a terminal": Attack(TYPES, shows("typed"), locally=None, remotely=False),
    "a device": Attack("head -c 1 /dev/vda /dev/sda /dev/mem && echo leaked", shows("leaked"), None, remotely=False),
    "the system's files": Attack("touch /usr/new || touch /etc/new && echo kept", shows("kept"), None, remotely=False),
    "the system's passwords": Attack("cat /etc/shadow && echo leaked", shows("leaked"), None, remotely=False),
    "system calls that no command needs": Attack(calls(), shows("passed"), locally=None, remotely=False),
}


def _held(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _beside(ground: Ground) -> bool:
    return (ground.workspace.parent / "new").exists()


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("backend", BACKENDS)
async def test_an_attack_fails_behind_a_fence_and_local_is_none(tmp_path: Path, backend: str, name: str) -> None:
    attack = ATTACKS[name]
    expected = attack.locally if backend == "local" else False if backend != "ssh" or attack.remotely else None
    if expected is None:
        return
    async with Ground(tmp_path, backend) as ground:
        words = {"home": ground.home, "other": ground.other, "socket": ground.socket, "abstract": ground.abstract}
        ended = await ground.run(attack.command.format(**words, pid=ground.victim.pid, port=ground.port))
        # What was sent over a socket arrives with the next round of the loop.
        await asyncio.sleep(0)
        assert attack.succeeded(ground, ended) is expected, ended


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_link_that_a_command_leaves_leads_no_file_tool_outside(tmp_path: Path, backend: str) -> None:
    async with Ground(tmp_path, backend) as ground:
        await ground.run(f"ln -s {ground.home}/api.key key; ln -s {ground.home} all; echo mine > own")
        if backend == "ssh":
            assert not (ground.workspace / "key").exists()
            return
        for path in ("key", "all/api.key"):
            with pytest.raises(ToolError, match="outside of the workspace"):
                await use(files.TOOLS, "read_file", path=path)
        found = (await use(files.TOOLS, "search_files", text=CANARY)).text
        assert f"{CANARY}\n" not in found
        assert "mine" in (await use(files.TOOLS, "read_file", path="own")).text


@pytest.mark.parametrize("backend", BACKENDS)
async def test_nothing_of_a_command_is_left_when_its_time_is_up(tmp_path: Path, backend: str) -> None:
    async with Ground(tmp_path, backend) as ground:
        ended = await ground.run("trap '' TERM; (setsid sleep 987653 &); sleep 987653 & echo begun; sleep 987653", 2)
        assert (ended.code, ended.output) == (None, "begun\n")
        await ground.until(lambda: not _running("987653"))


OUTSIDE = python(
    "import ctypes, os, resource, socket\n"
    "c = ctypes.CDLL(None)\n"
    "def attempt(name, act):\n"
    "    try:\n        print(name, 'passed', act())\n    except OSError:\n        print(name, 'refused')\n"
    "def send(path):\n"
    "    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):\n"
    "        socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b'hello', path)\n"
    "pid = int(os.environ['VICTIM'])\n"
    "attempt('limit', lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)))\n"
    "attempt('priority', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))\n"
    "attempt('all priorities', lambda: os.setpriority(os.PRIO_USER, 0, 19))\n"
    "attempt('processors', lambda: os.sched_setaffinity(pid, [0]))\n"
    "attempt('scheduler', lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))\n"
    "attempt('datagram', lambda: send(os.environ['DATAGRAMS']))\n"
    "print('memory', 'refused' if c.shmget(4711, 4096, 0o1600) < 0 else 'passed')\n"
    "print('messages', 'refused' if c.msgget(4711, 0o1600) < 0 else 'passed')\n"
    "socket.socketpair(); os.setpriority(os.PRIO_PROCESS, 0, 5); resource.prlimit(0, resource.RLIMIT_NOFILE)\n"
    "print('its own', os.getpriority(os.PRIO_PROCESS, 0))"
)


@needs_landlock
async def test_landlock_keeps_a_command_from_other_processes_of_its_user(tmp_path: Path) -> None:
    """They stand for a gateway that is not root: Landlock alone would let a command take its descriptors away."""
    async with Ground(tmp_path, "landlock") as ground:
        user = user_of(ground.workspace.resolve())
        with (
            tempfile.TemporaryDirectory() as near,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
            subprocess.Popen(["sleep", "600"], user=user or None, group=user or None) as victim,
        ):
            try:
                datagrams.bind(f"{near}/socket")
                for path, mode in ((near, 0o755), (f"{near}/socket", 0o666)):
                    os.chmod(path, mode)
                command = f"VICTIM={victim.pid} DATAGRAMS={near}/socket {OUTSIDE}"
                ended = await ground.run(command)
                limits = Path(f"/proc/{victim.pid}/limits").read_text()
            finally:
                victim.kill()
        *tried, own = ended.output.splitlines()
        assert len(tried) == 8
        assert [line for line in tried if not line.endswith(" refused")] == []
        assert own == "its own 5"
        assert not re.search(r"Max open files +0 ", limits)


OWNER = """
import asyncio, os, sys
from pathlib import Path
from tidings.core.settings import Terminal
from tidings.core.work.processes import foreground
from tidings.core.work.processes.remote import Remote
from tidings.core.work.processes.sandbox import Sandbox

async def main(written, home, program):
    settings = Terminal.model_validate_json(written)
    fence = Remote(settings) if settings.backend == "ssh" else Sandbox(settings, Path(home), program=program)
    folder = Path(home, "workspaces", "one")
    command = ("/bin/sh", "-c", "(setsid sleep 987651 &); sleep 987651")
    await foreground.run(await fence.around(command, folder, {"PATH": os.defpath, "HOME": str(folder)}), 600, 1000)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("backend", BACKENDS[:3])
async def test_nothing_of_a_command_is_left_when_the_gateway_is_killed(tmp_path: Path, backend: str) -> None:
    async with Ground(tmp_path, backend) as ground:
        program = "bwrap" if backend == "bubblewrap" else "no-such-program"
        arguments = (ground.settings.model_dump_json(), str(ground.home), program)
        owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, *arguments, cwd=ROOT)
        await ground.until(lambda: _running("987651"))
        owner.kill()
        await owner.wait()
        await ground.until(lambda: not _running("987651"))


def _running(word: str) -> bool:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if word.encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("backend", SANDBOXES)
async def test_what_a_command_leaves_can_be_read_and_removed(tmp_path: Path, backend: str) -> None:
    async with Ground(tmp_path, backend) as ground:
        (ground.workspace / "given").write_text("by the gateway")
        await ground.run("cat given > taken; mkdir -m 000 closed; echo done > own; chmod 000 own")
        assert (ground.workspace / "taken").read_text() == "by the gateway"
        if os.geteuid() == 0:
            assert (ground.workspace / "own").read_text() == "done\n"
        # A file that the gateway writes into it later can be changed by the next command.
        (ground.workspace / "later").write_text("by the gateway")
        assert (await ground.run("echo changed > later && rm -r closed && echo removed")).output == "removed\n"
        assert (ground.workspace / "later").read_text() == "changed\n"
        shutil.rmtree(ground.workspace)


DIGS = python("import os\nfor _ in range(1100):\n    os.mkdir('d'); os.chdir('d')")


@pytest.mark.parametrize("backend", SANDBOXES)
async def test_folders_without_end_leave_the_next_command_a_way_to_remove_them(tmp_path: Path, backend: str) -> None:
    async with Ground(tmp_path, backend) as ground:
        try:
            await ground.run(DIGS)
            assert (ground.workspace / "d").exists()
            assert (await ground.run("rm -r d && echo removed")).output == "removed\n"
        finally:
            # What cleans up after the tests would not get to their bottom either.
            await asyncio.to_thread(subprocess.run, ["rm", "-rf", str(ground.workspace)], check=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
@pytest.mark.parametrize("backend", SANDBOXES)
async def test_a_folder_that_cannot_be_listed_hides_nothing_from_the_limit(tmp_path: Path, backend: str) -> None:
    async with Ground(tmp_path, backend) as ground:
        ended = await ground.run(f"mkdir -m 300 c && cd c && {FILLS} && echo filled")
        assert "filled" not in ended.output
        (ground.workspace / "c").chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its commands another user")
@pytest.mark.parametrize("backend", SANDBOXES)
async def test_each_conversation_of_root_has_a_user_of_its_own(tmp_path: Path, backend: str) -> None:
    async with Ground(tmp_path, backend) as ground:
        await ground.run("touch mine")
        first = (ground.workspace / "mine").stat()
        ground.workspace = ground.other
        await ground.run("touch mine")
        second = (ground.other / "mine").stat()
        assert 0 not in (first.st_uid, second.st_uid)
        assert first.st_uid != second.st_uid
        assert stat.S_IMODE(ground.home.stat().st_mode) == 0o700


@needs_landlock
async def test_landlock_cannot_pass_a_list_of_hosts_and_says_so(tmp_path: Path) -> None:
    async with Ground(tmp_path, "landlock", network=("packages.example.com",)) as ground:
        with pytest.raises(Unfenced, match='cannot pass a list of hosts: set .terminal. network = "off"'):
            await ground.run("true")


async def test_where_no_wall_holds_nothing_starts(tmp_path: Path) -> None:
    """A bubblewrap that does not work is no reason to go without; the probe notices a wall with a gap, too."""
    broken = tmp_path / "bwrap"
    for script in ("exit 1", 'while [ "$1" != "--" ]; do shift; done; shift; exec "$@"'):
        broken.write_text(f"#!/bin/sh\n{script}\n")
        broken.chmod(0o755)
        fence = Sandbox(Terminal(network=("packages.example.com",)), tmp_path, _outlet(tmp_path), program=str(broken))
        with pytest.raises(Unfenced, match="no command can run, because no sandbox holds here: bubblewrap: "):
            await fence.around(("touch", str(tmp_path / "done")), tmp_path, {})
    assert not (tmp_path / "done").exists()


def _outlet(home: Path) -> object:
    from tidings.bots.app.outlet import OutletServer

    return OutletServer(home, Terminal(network=("packages.example.com",))).outlet


@needs_bubblewrap
async def test_each_result_names_the_wall_that_held(tmp_path: Path) -> None:
    async with Ground(tmp_path, "bubblewrap") as ground:
        enclosed = await ground.fence.around(("true",), ground.workspace, {})
        assert enclosed.words == "bubblewrap, no network"
        assert json.dumps(list(enclosed.command)).count("--unshare-net") == 1
