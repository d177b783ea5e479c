"""The busy modes: what becomes of a message that comes while a run goes on in its conversation."""

from __future__ import annotations

from enum import StrEnum


class Busy(StrEnum):
    # The message runs afterwards, in order.
    QUEUE = "queue"
    # All that came meanwhile is one run afterwards.
    COLLECT = "collect"
    # The running agent gets the message at its next step; if the run ends first, the message is a run of its own.
    STEER = "steer"
    # The run is stopped, and the message runs next.
    INTERRUPT = "interrupt"
