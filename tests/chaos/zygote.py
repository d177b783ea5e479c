"""A warmed parent: it has imported everything, runs nothing, and forks a gateway when asked."""

from __future__ import annotations

import array
import gc
import os
import select
import signal
import socket
import traceback
from contextlib import suppress

import msgspec

from tests.chaos import child
from tidings.core.types import Value

_REQUEST_BYTES = 65536


class Born(Value, frozen=True, kw_only=True, tag=True):
    pid: int


class Ended(Value, frozen=True, kw_only=True, tag=True):
    """The status is negative for a signal."""

    pid: int
    status: int


def start(*not_its_own: socket.socket) -> socket.socket:
    """Forks the parent-to-be from a caller that is single-threaded still. It ends with the returned socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            for each in (ours, *not_its_own):
                each.close()
            _serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    return ours


def ask(zygote: socket.socket, spec: child.Spec) -> socket.socket:
    """Asks for a gateway and returns the line to it; `Born` and `Ended` come back over the zygote's own."""
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(zygote, [msgspec.json.encode(spec)], [theirs.fileno()])
    return ours


def _serve(line: socket.socket) -> None:
    # What is shared with the children is not touched again, so that their pages stay shared.
    gc.collect()
    gc.freeze()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    while True:
        ready, _, _ = select.select([line, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report_dead(line)
        if line in ready:
            data, control, _, _ = line.recvmsg(_REQUEST_BYTES, socket.CMSG_SPACE(4))
            if not data:
                return
            descriptors = array.array("i")
            descriptors.frombytes(control[0][2])
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor in (line.fileno(), woken, wakes):
                    os.close(descriptor)
                _become_child(msgspec.json.decode(data, type=child.Spec), descriptors[0])
            os.close(descriptors[0])
            line.send(msgspec.json.encode(Born(pid=pid)))


def _report_dead(line: socket.socket) -> None:
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = found
            line.send(msgspec.json.encode(Ended(pid=pid, status=os.waitstatus_to_exitcode(status))))


def _become_child(spec: child.Spec, descriptor: int) -> None:
    try:
        with open(spec.log, "a") as log:
            os.dup2(log.fileno(), 2)
        child.main(spec, socket.socket(fileno=descriptor))
        os._exit(0)
    finally:
        # Nothing may run on in the parent's frames below this one.
        traceback.print_exc()
        os._exit(1)
