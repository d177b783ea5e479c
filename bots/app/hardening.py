"""Keeps the memory of this process, and the environment it was started with, from other programs of the same user."""

from __future__ import annotations

import ctypes
import logging
import os
import sys

PR_SET_DUMPABLE = 4

log = logging.getLogger(__name__)


def forbid_dumps() -> None:
    """Without this, a command that a model runs could read every token from our memory. Linux only.

    The programs that we start are dumpable again, so that we can watch their output and end.
    """
    if not sys.platform.startswith("linux"):
        return
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        log.warning(
            "other programs of this user can read the gateway's memory and its tokens: %s",
            os.strerror(ctypes.get_errno()),
        )
