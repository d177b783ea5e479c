"""Runs commands on another host by ssh: the host's key must be known, and nothing of ours is forwarded."""

from __future__ import annotations

import secrets
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidings.core.desk.fence import Enclosed
from tidings.core.errors import Unfenced
from tidings.core.settings import Terminal

# Runs the command in a session of its own, and ends everything of it when it ends or the connection is gone. What has
# left the session is found by its mark.
SCRIPT = """\
umask 077; mkdir -p -- "$folder" && cd -- "$folder" || exit 125
exec 3<&0
shell=sh; command -v bash >/dev/null && shell=bash
%(limits)ssession=; command -v setsid >/dev/null && session=setsid
TIDINGS_FENCE=$mark $session "$shell" -c "$command" <&3 3<&- &
first=$!
finish() {
  kill -KILL -- "-$first" 2>/dev/null
  for each in /proc/[0-9]*; do
    grep -qs "TIDINGS_FENCE=$mark" "$each/environ" && kill -KILL "${each#/proc/}" 2>/dev/null
  done
}
parent=$PPID
( while kill -0 "$parent" 2>/dev/null && kill -0 "$first" 2>/dev/null; do sleep 1; done; finish ) \
<&- >/dev/null 2>&1 3<&- &
wait "$first"; code=$?; finish; exit "$code"
"""


class Remote:
    def __init__(self, settings: Terminal) -> None:
        self._settings = settings

    async def around(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Enclosed:
        program = self._program()
        # Whatever the shell here is called, the other host has its own.
        text = command[2] if len(command) == 3 and command[1] == "-c" else shlex.join(command)
        words = {
            "folder": f"{self._settings.folder}/{folder.name}",
            "command": text,
            "mark": secrets.token_hex(8),
            **{name: value for name, value in environment.items() if name.startswith("TIDINGS_")},
        }
        exported = " ".join(f"{name}={shlex.quote(value)}" for name, value in words.items())
        script = SCRIPT % {"limits": _limits(self._settings)}
        # What the login shell of the other host reads is one line for sh.
        line = f"export {exported}; exec sh -c {shlex.quote(script)}"
        return Enclosed([program, *options(self._settings), line], folder, environment, None, await self.describe())

    async def describe(self) -> str:
        self._program()
        return f"ssh to {self._settings.host}"

    def _program(self) -> str:
        found = shutil.which("ssh")
        if found is None:
            raise Unfenced("ssh is missing: install it (Debian, Ubuntu: apt install openssh-client)")
        known = Path(self._settings.known_hosts).expanduser()
        if not known.is_file():
            raise Unfenced(
                f"[terminal] known_hosts: there is no file {known}; make it with: ssh-keyscan {self._settings.host},"
                " and compare the key with the host's own"
            )
        return found


def options(settings: Terminal) -> list[str]:
    """The arguments of ssh up to the command; no file of the user's may change them."""
    known = Path(settings.known_hosts).expanduser()
    kept = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(known),
        "GlobalKnownHostsFile": "/dev/null",
        "UpdateHostKeys": "no",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
        "ControlMaster": "no",
        "ControlPath": "none",
        "RequestTTY": "no",
        "ConnectTimeout": "15",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "3",
        "LogLevel": "ERROR",
    }
    if settings.identity_file:
        kept |= {"IdentitiesOnly": "yes", "IdentityAgent": "none"}
    key = ("-i", str(Path(settings.identity_file).expanduser())) if settings.identity_file else ()
    written = (part for name, value in kept.items() for part in ("-o", f"{name}={value}"))
    return ["-F", "/dev/null", "-T", "-p", str(settings.port), *written, *key, f"{settings.user}@{settings.host}"]


def _limits(settings: Terminal) -> str:
    limits = [f"ulimit -v {settings.memory_bytes // 1024}"] if settings.memory_bytes else []
    if settings.disk_bytes:
        limits.append(f"ulimit -f {settings.disk_bytes // 512}")
    if settings.processes:
        limits.append(f"{{ ulimit -u {settings.processes} || ulimit -p {settings.processes}; }}")
    return "".join(f"{limit} 2>/dev/null\n" for limit in limits)
