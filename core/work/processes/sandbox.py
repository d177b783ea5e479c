"""The sandbox for commands: bubblewrap, else Landlock with seccomp; where neither holds, no command starts."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tidings.core.desk.fence import Enclosed, Wall
from tidings.core.errors import Unfenced
from tidings.core.settings import Terminal
from tidings.core.work.processes import identity, launcher, syscalls, wall
from tidings.core.work.processes.enclosed import arguments, fields

log = logging.getLogger(__name__)

# What programs need to run; of /etc only these parts, and nothing of /home, /root, /run, /srv or /var.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Each costs a third of a millisecond at every start.
CONFIGURATION = tuple(
    f"/etc/{name}"
    for name in (
        *("alternatives", "fonts", "ld.so.cache", "localtime", "mime.types", "nsswitch.conf", "os-release"),
        # Beside the certificates there may be private keys.
        *("pki/ca-trust", "pki/tls/certs", "protocols", "services", "ssl/certs", "ssl/openssl.cnf"),
    )
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Landlock shows that these are there, and programs give up when they cannot read what is there.
UNREADABLE = {"GIT_CONFIG_NOSYSTEM": "1", "PIP_CONFIG_FILE": os.devnull}
PATHS = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
# The user that the command sees itself as.
INSIDE = 1000
# As root, each workspace gets a user of its own from these numbers, which no distribution gives away.
FIRST_USER, USERS = 1_900_000_000, 100_000_000
SHARED_MEMORY_BYTES = 64_000_000
# dash limits processes by -p, and other shells by -u.
LIMITED = '{ ulimit -p "$0" || ulimit -u "$0"; } 2>/dev/null || exit 125; exec "$@"'
PROBE = 'test -w . && : >.fence && rm .fence && test ! -w /usr && ! cat "$1" >/dev/null 2>&1 && echo held'
PROBE_SECONDS = 20.0
# In the sandbox's own network; nothing else listens there.
PROXY = "http://127.0.0.1:3128"

INSTALL = "install bubblewrap (Debian, Ubuntu: apt install bubblewrap)"
UBUNTU = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")


@dataclass(frozen=True, slots=True)
class Outlet:
    """The way out for commands with a list of hosts: the program of our forwarder, and the socket of the proxy."""

    program: str
    socket: Path


@dataclass(frozen=True, slots=True)
class _Held:
    """The wall that held when it was tried; `why` tells why a better one did not."""

    name: str
    why: str
    enclose: Callable[[Sequence[str], Path, Mapping[str, str]], Enclosed]


class Sandbox:
    def __init__(self, settings: Terminal, home: Path, outlet: Outlet | None = None, *, program: str = "bwrap") -> None:
        """`program` is bubblewrap's name or path; without one, only Landlock is left."""
        self._settings = settings
        self._home = home
        self._outlet = outlet if settings.by_list else None
        self._program = program
        self._trying: asyncio.Task[_Held] | None = None

    async def around(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Enclosed:
        held = await self._wall()
        folder = await asyncio.to_thread(_handed_over, folder)
        return held.enclose(command, folder, environment)

    async def describe(self) -> str:
        held = await self._wall()
        return f"{held.name}{f' ({held.why})' if held.why else ''}"

    async def _wall(self) -> _Held:
        """The wall that was tried once; a failure is tried again, since it may have been mended."""
        if self._trying is None or (self._trying.done() and (self._trying.cancelled() or self._trying.exception())):
            self._trying = asyncio.create_task(self._try_all())
        return await asyncio.shield(self._trying)

    async def _try_all(self) -> _Held:
        if sys.platform != "linux":
            raise Unfenced(f"no sandbox is known for {sys.platform}; choose another [terminal] backend")
        if not syscalls.program(()):
            raise Unfenced("no sandbox is known for this processor; choose another [terminal] backend")
        network = "no network"
        if self._settings.by_list:
            network = "network by list"
            if self._outlet is None:
                raise Unfenced('there is no proxy for [terminal] network here; set it to "off"')
        whys: list[str] = []
        for name, enclose in (("bubblewrap", self._by_bubblewrap), ("Landlock and seccomp", self._by_landlock)):
            held = _Held(f"{name}, {network}", "; ".join(whys), enclose)
            if not (why := await self._trouble(name, held)):
                log.info("commands run behind %s", held.name)
                return held
            whys.append(f"{name}: {why}")
        raise Unfenced(f"no command can run, because no sandbox holds here: {'; '.join(whys)}")

    async def _trouble(self, name: str, held: _Held) -> str:
        """Why this wall does not hold; empty if it does."""
        if name == "bubblewrap" and shutil.which(self._program) is None:
            return f"it is missing: {INSTALL}"
        if name != "bubblewrap" and self._settings.by_list:
            return f'it cannot pass a list of hosts: set [terminal] network = "off", or {INSTALL}'
        if name != "bubblewrap" and not wall.landlock_version():
            return f"this kernel has no Landlock, or it is switched off: {INSTALL}"
        try:
            told = await asyncio.to_thread(self._probe, held)
        except (OSError, subprocess.SubprocessError) as error:
            told = str(error)
        return "" if told.endswith("held") else f"{told or 'it does not hold'}{_remedy(name)}"

    def _probe(self, held: _Held) -> str:
        """Tries the exact arguments in a folder of its own: it must be writable, and a file beside it unreadable."""
        above = self._home / "workspaces"
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".probe-", dir=above.resolve()) as name:
            folder, secret = Path(name, "workspace"), Path(name, "secret")
            folder.mkdir(mode=0o700)
            secret.write_bytes(b"secret")
            tried = held.enclose(("/bin/sh", "-c", PROBE, "sh", str(secret)), _handed_over(folder), {"PATH": PATHS})
            with _lifeline() as stdin:
                ended = subprocess.run(
                    identity.program(launcher.__file__, *arguments(tried)),
                    cwd=tried.folder,
                    env=dict(tried.environment),
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=PROBE_SECONDS,
                    check=False,
                )
        return " ".join(ended.stdout.decode("utf-8", "replace").split())[-300:]

    def _by_bubblewrap(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Enclosed:
        settings, inside = self._settings, str(folder)
        network = () if self._outlet else ("--unshare-net",)
        started = [
            shutil.which(self._program) or self._program,
            *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", *network),
            *("--uid", str(INSIDE), "--gid", str(INSIDE), "--hostname", "sandbox"),
            *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--seccomp", str(wall.FILTER)),
            *_shown((*SYSTEM, *CONFIGURATION, *settings.readable)),
        ]
        for number, name in enumerate(("passwd", "group", "hosts"), wall.FILTER + 1):
            started += ["--perms", "0444", "--file", str(number), f"/etc/{name}"]
        started += [
            *("--proc", "/proc", "--dev", "/dev", "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"),
            *("--size", str(settings.temporary_bytes), "--perms", "1777", "--tmpfs", "/tmp"),
            *("--remount-ro", "/dev", "--bind", inside, inside, "--remount-ro", "/", "--chdir", inside, "--"),
        ]
        # As root, the limit of the command's own user is enough.
        if settings.processes and not user_of(folder):
            started += ["/bin/sh", "-c", LIMITED, str(settings.processes)]
        around = Wall(
            folder=inside,
            user=user_of(folder),
            memory=settings.memory_bytes,
            processes=settings.processes if user_of(folder) else 0,
            disk=settings.disk_bytes,
            filter=syscalls.program(syscalls.NAMESPACED_FAMILIES),
            texts=_texts(inside),
            waits=True,
        )
        started += command
        words = {**environment, "PATH": PATHS}
        if self._outlet is None:
            return Enclosed(started, folder, words, around, "bubblewrap, no network")
        # The forwarder puts up the wall itself, after it has made a network of its own.
        written = wall.written(fields(around))
        forwarder = identity.program(self._outlet.program, str(self._outlet.socket), written, *started)
        outside = Wall(folder=inside, disk=settings.disk_bytes, waits=True)
        proxies = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        words |= dict.fromkeys(proxies, PROXY) | {"NO_PROXY": "", "no_proxy": ""}
        return Enclosed(forwarder, folder, words, outside, "bubblewrap, network by list")

    def _by_landlock(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Enclosed:
        settings, inside = self._settings, str(folder)
        around = Wall(
            folder=inside,
            user=user_of(folder),
            memory=settings.memory_bytes,
            processes=settings.processes,
            disk=settings.disk_bytes,
            # A socket by a path is not Landlock's business, so no socket at all is opened.
            filter=syscalls.program((), truncates=wall.landlock_version() >= wall.KNOWS_TRUNCATING, is_apart=False),
            readable=(*SYSTEM, *CONFIGURATION, *settings.readable, "/etc/passwd", "/etc/group", "/etc/hosts", "/proc"),
            writable=(inside, *DEVICES),
        )
        words = {**environment, "PATH": PATHS, "TMPDIR": inside, **UNREADABLE}
        return Enclosed(list(command), folder, words, around, "Landlock and seccomp, no network")


@contextmanager
def _lifeline() -> Iterator[int]:
    """The input of a launcher, which begins at once and ends the command when this is closed."""
    outlet, inlet = os.pipe()
    try:
        os.write(inlet, b"!")
        yield outlet
    finally:
        os.close(outlet)
        os.close(inlet)


def _shown(paths: Iterable[str]) -> list[str]:
    """Shows paths read-only, as far as they exist; links such as /bin stay links."""
    arguments: list[str] = []
    for path in paths:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            arguments += ["--ro-bind", path, path]
    return arguments


def _texts(home: str) -> tuple[str, ...]:
    """What the command sees as /etc/passwd, /etc/group and /etc/hosts."""
    return (
        f"root:x:0:0::/:/bin/sh\nsandbox:x:{INSIDE}:{INSIDE}::{home}:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
        f"root:x:0:\nsandbox:x:{INSIDE}:\nnogroup:x:65534:\n",
        "127.0.0.1 localhost sandbox\n::1 localhost\n",
    )


def _remedy(name: str) -> str:
    if name != "bubblewrap":
        return ""
    with suppress(OSError):
        if UBUNTU.read_text().strip() == "1":
            return (
                "; this Ubuntu forbids user namespaces to programs without a profile"
                " (apparmor_restrict_unprivileged_userns): give bwrap one, as docs/fence.md shows"
            )
    return ""


def _handed_over(folder: Path) -> Path:
    """The real path of a workspace, which belongs to the command's user now."""
    folder = folder.resolve()
    if user := user_of(folder):
        give(folder, user)
    return folder


def user_of(folder: Path) -> int:
    """The user for commands in a workspace, if we are root; limits on processes do not bind root."""
    return FIRST_USER + zlib.crc32(os.fsencode(folder)) % USERS if os.geteuid() == 0 else 0


def give(folder: Path, user: int) -> None:
    """Gives a workspace with everything in it to its user; links are not followed."""
    os.chown(folder, user, user, follow_symlinks=False)
    for path, folders, files, descriptor in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                if os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_uid != user:
                    os.chown(name, user, user, dir_fd=descriptor, follow_symlinks=False)
        # What lies deeper is by a command, and belongs to its user already; each level takes a descriptor.
        if path.count("/") - str(folder).count("/") >= launcher.DEEPEST:
            folders.clear()
