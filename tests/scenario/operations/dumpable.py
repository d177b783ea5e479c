"""An agent that says whether other programs of the same user may read the memory of its process, and of a child."""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import AsyncIterator

from tidings.core.agent import Event, Finished, TextDelta, Turn

PR_GET_DUMPABLE = 3
ASK = f"import ctypes; print(ctypes.CDLL(None).prctl({PR_GET_DUMPABLE}, 0, 0, 0, 0))"


class Agent:
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", ASK, stdout=asyncio.subprocess.PIPE)
        told, _ = await child.communicate()
        ours = ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
        yield TextDelta(f"dumpable: {ours}, a child: {told.decode().strip()}")
        yield Finished()
