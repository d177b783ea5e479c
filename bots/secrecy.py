"""Keeps the memory of this process, and the environment it was started with, from other programs of the same user."""

from __future__ import annotations

import ctypes
import logging
import os
import sys

PR_SET_DUMPABLE = 4

log = logging.getLogger(__name__)


def forbid_dumps() -> None:
    """A command that a model runs is such a program; it could read every token. Only Linux knows this.

    What is started by us is dumpable again, so that its own output and end can be watched.
    """
    if not sys.platform.startswith("linux"):
        return
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        log.warning("other programs of this user can read our memory: %s", os.strerror(ctypes.get_errno()))
