"""A program that gives a command a network of its own, in which only the way to our proxy exists.

It makes an empty network, listens there, and forks: one process carries bytes to the proxy's socket, the other puts
up the command's wall and becomes the command, which shares nothing with the first but that network.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import threading
from pathlib import Path

# This program is started without the project on its path.
sys.path.append(str(Path(__file__).parents[3]))

from tidings.core.work.processes import wall

ADDRESS = ("127.0.0.1", 3128)
CHUNK_BYTES = 65_536
# Connections at once; further ones wait.
MOST = 32

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
GET_FLAGS, SET_FLAGS, IS_UP = 0x8913, 0x8914, 1


def main(path: str, written: str, command: list[str]) -> None:
    _enter_a_network()
    listener = socket.create_server(ADDRESS)
    folder, name = os.path.split(path)
    # A descriptor of the folder: the way to it may be closed to the command's user, and a new gateway has a new socket.
    outlet = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    parent = os.getpid()
    if os.fork() == 0:
        _forward(listener, f"/proc/self/fd/{outlet}/{name}", parent, wall.read(written))
    listener.close()
    os.close(outlet)
    try:
        wall.enter(wall.read(written))
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"the fence does not hold: {error.strerror}\n".encode())
        os._exit(127)


def _enter_a_network() -> None:
    """An empty network: as root by right, else in a user namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(NEW_NETWORK if user == 0 else NEW_NETWORK | NEW_USER):
        raise OSError(ctypes.get_errno(), "no network of its own can be made")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(asked, GET_FLAGS, request))[1]
        fcntl.ioctl(asked, SET_FLAGS, struct.pack("16sH14x", b"lo", flags | IS_UP))


def _forward(listener: socket.socket, outlet: str, parent: int, around: dict[str, int]) -> None:
    """Carries bytes until the command ends; as root, this process becomes the command's user first."""
    if user := around.get("user", 0):
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    libc = ctypes.CDLL(None)
    # After a change of the user, /proc/self would be closed to us.
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    places = threading.BoundedSemaphore(MOST)
    while os.getppid() == parent:
        places.acquire()
        connection, _ = listener.accept()
        threading.Thread(target=_carry, args=(connection, outlet, places), daemon=True).start()
    os._exit(0)


def _carry(inside: socket.socket, outlet: str, places: threading.BoundedSemaphore) -> None:
    try:
        with inside, socket.socket(socket.AF_UNIX) as outside:
            outside.connect(outlet)
            others = {inside: outside, outside: inside}
            while others:
                for ready in select.select(list(others), [], [])[0]:
                    data = ready.recv(CHUNK_BYTES)
                    if data:
                        others[ready].sendall(data)
                    else:
                        others.pop(ready).shutdown(socket.SHUT_WR)
    except OSError:
        # Without a gateway, or with a peer that is gone, the connection just ends.
        return
    finally:
        places.release()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
