"""The system calls that a fenced command may not make, as a seccomp filter for the kernel (pure)."""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# The numbers on x86_64 and on aarch64; None where the call does not exist.
CALLS: dict[str, tuple[int | None, int | None]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "userfaultfd": (323, 282),
    "unshare": (272, 97),
    "setns": (308, 268),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
}
CLONE, CLONE3, SOCKET, IOCTL, TRUNCATE = (56, 220), (435, 435), (41, 198), (16, 29), (76, 45)
# Memory and messages that outlive the command and that every process of the user can open.
SHARED: dict[str, tuple[int, int]] = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}
# These change a process of the same user, such as the gateway, without asking Landlock; 0 is the caller itself.
OF_A_PROCESS: dict[str, tuple[int, int]] = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}
# The same by two arguments: first the kind, of which this is the one for a process, then the process.
OF_A_KIND: dict[str, tuple[int, int, int]] = {"setpriority": (141, 140, 0), "ioprio_set": (251, 30, 1)}
SOCKETPAIR = (53, 199)
# Pairs of these stay a pair; one of datagrams can be sent to any path.
STREAM, PACKETS, KIND_OF_SOCKET = 1, 5, 0xF
# Each kind of namespace that clone can make.
NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
# Both put text into a terminal as if a person had typed it.
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
# Unix, IPv4, IPv6 and netlink, which name lookups use. Other kinds, such as vsock, are not bound to a namespace.
NAMESPACED_FAMILIES = (1, 2, 10, 16)
# System calls of the x32 kind have this bit in their number.
X32 = 0x40000000

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN, AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
NUMBER, ARCHITECTURE, FIRST, SECOND = 0, 4, 16, 24
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000


def program(
    families: Iterable[int], machine: str = platform.machine(), *, truncates: bool = True, is_apart: bool = True
) -> str:
    """The filter in hexadecimal digits; empty for a processor whose numbers we do not know.

    `families` are the kinds of sockets that the command may open. `truncates` permits to truncate a file by its path.
    A command that `is_apart` has its own namespaces; another one must be kept from the processes of its user.
    """
    if machine not in ARCHITECTURES:
        return ""
    column = list(ARCHITECTURES).index(machine)
    refused = FAIL | errno.EPERM
    lines = [
        *_step(LOAD, ARCHITECTURE),
        *_when(EQUAL, ARCHITECTURES[machine], [], otherwise=_step(RETURN, KILL)),
        *_step(LOAD, NUMBER),
    ]
    if machine == "x86_64":
        lines += _when(AT_LEAST, X32, _step(RETURN, refused))
    for numbers in (*CALLS.values(), *(() if truncates else (TRUNCATE,))):
        if (number := numbers[column]) is not None:
            lines += _when(EQUAL, number, _step(RETURN, refused))
    if not is_apart:
        lines += _kept_to_itself(column, refused)
    # Its flags are in memory, which a filter cannot read; programs fall back to clone.
    lines += _when(EQUAL, CLONE3[column], _step(RETURN, FAIL | errno.ENOSYS))
    flags = [*_step(LOAD, FIRST), *_when(ANY_BIT, NAMESPACES, _step(RETURN, refused)), *_step(RETURN, ALLOW)]
    lines += _when(EQUAL, CLONE[column], flags)
    opened = _step(LOAD, FIRST)
    for family in families:
        opened += _when(EQUAL, family, _step(RETURN, ALLOW))
    lines += _when(EQUAL, SOCKET[column], [*opened, *_step(RETURN, FAIL | errno.EACCES)])
    orders = _step(LOAD, SECOND)
    for order in (TIOCSTI, TIOCLINUX):
        orders += _when(EQUAL, order, _step(RETURN, refused))
    lines += _when(EQUAL, IOCTL[column], [*orders, *_step(RETURN, ALLOW)])
    return b"".join([*lines, *_step(RETURN, ALLOW)]).hex()


def _kept_to_itself(column: int, refused: int) -> list[bytes]:
    lines: list[bytes] = []
    for numbers in SHARED.values():
        lines += _when(EQUAL, numbers[column], _step(RETURN, refused))
    itself = [*_when(EQUAL, 0, _step(RETURN, ALLOW)), *_step(RETURN, refused)]
    for numbers in OF_A_PROCESS.values():
        lines += _when(EQUAL, numbers[column], [*_step(LOAD, FIRST), *itself])
    for *pair, kind in OF_A_KIND.values():
        asked = [*_step(LOAD, FIRST), *_when(EQUAL, kind, [*_step(LOAD, SECOND), *itself]), *_step(RETURN, refused)]
        lines += _when(EQUAL, pair[column], asked)
    paired = [*_step(LOAD, SECOND), *_step(AND, KIND_OF_SOCKET)]
    for kind in (STREAM, PACKETS):
        paired += _when(EQUAL, kind, _step(RETURN, ALLOW))
    return lines + _when(EQUAL, SOCKETPAIR[column], [*paired, *_step(RETURN, FAIL | errno.EACCES)])


def _step(code: int, value: int) -> list[bytes]:
    return [struct.pack("=HBBI", code, 0, 0, value)]


def _when(code: int, value: int, steps: list[bytes], otherwise: list[bytes] | None = None) -> list[bytes]:
    """The steps if the test holds; else `otherwise`, which must end the filter, or what comes after the steps."""
    if otherwise is not None:
        return [struct.pack("=HBBI", code, len(otherwise), 0, value), *otherwise, *steps]
    return [struct.pack("=HBBI", code, 0, len(steps), value), *steps]
