"""Named places in the code where a test can make the process die, stop, fail or wait: `fail_here("out.effect")`.

TIDINGS_FAILPOINT=name:n[:action] arms failpoints, several separated by commas; the n-th hit acts. Actions are
kill (the default), stop, raise, enospc and delay=MILLISECONDS.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections import Counter


class FailpointHit(RuntimeError):
    pass


_armed: dict[str, list[tuple[int, str]]] = {}
_hits: Counter[str] = Counter()
# The file that gets the name of every failpoint passed, so that a test can tell which were reached.
_trace = os.environ.get("TIDINGS_FAILPOINT_TRACE", "")


def arm(specification: str) -> None:
    """Replaces all armed failpoints; an empty specification disarms everything."""
    _armed.clear()
    _hits.clear()
    for item in filter(None, specification.split(",")):
        name, _, rest = item.partition(":")
        count, _, action = rest.partition(":")
        _armed.setdefault(name.strip(), []).append((int(count or 1), action or "kill"))


def fail_here(name: str) -> None:
    if _armed or _trace:
        _hit(name)


def _hit(name: str) -> None:
    _hits[name] += 1
    if _trace and _hits[name] == 1:
        with open(_trace, "a", encoding="utf-8") as trace:
            trace.write(name + "\n")
    for count, action in _armed.get(name, ()):
        if _hits[name] == count:
            _act(name, action)


def _act(name: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
        # Another thread may get the signal first; this thread must do nothing after it.
        time.sleep(60)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "enospc":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
    elif action.startswith("delay="):
        time.sleep(float(action.removeprefix("delay=")) / 1000)
    else:
        raise FailpointHit(name)


arm(os.environ.get("TIDINGS_FAILPOINT", ""))
