"""Keeps other programs of the same user from reading the gateway's memory and environment."""

from __future__ import annotations

import ctypes
import logging
import os
import sys

PR_SET_DUMPABLE = 4

log = logging.getLogger(__name__)


def forbid_dumps() -> None:
    """Forbids memory dumps, so that a command that a model runs cannot read tokens from the gateway. Linux only.

    Child processes are dumpable again, so that the gateway can watch their output and end.
    """
    if not sys.platform.startswith("linux"):
        return
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        log.warning(
            "other programs of this user can read the gateway's memory and its tokens: %s",
            os.strerror(ctypes.get_errno()),
        )
