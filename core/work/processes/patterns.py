"""Compiles regular expressions and says what is wrong with them; a separate program, since compiling one may hang."""

from __future__ import annotations

import json
import re
import signal
import sys
from types import FrameType

# CPU seconds for all patterns together.
SECONDS = 0.5
BAD = 3


class TooSlow(Exception):
    pass


def main(order: str) -> int:
    signal.signal(signal.SIGVTALRM, _too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    for pattern in json.loads(order):
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            return _refuse(f"{pattern!r} is not a valid regular expression: {error}")
        except TooSlow:
            return _refuse(f"{pattern!r} takes too long to read: use a simpler pattern")
    return 0


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def _refuse(why: str) -> int:
    sys.stdout.buffer.write(why.encode("utf-8", "backslashreplace"))
    return BAD


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
