"""What goes wrong at the simulated provider: faults that wait for the requests they fit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Literal

from tests.simulators.provider.truth import Api

# status: an error instead of an answer; stall and delay: nothing for a while; cut: the connection ends; end: a clean
# end too soon, unfinish and undone: without what belongs there; garble: JSON that is none; error: an error in the
# middle of a stream; empty, truncate and filter: other answers; unstreamed: no to whoever wants a stream; whole: no
# stream for whoever wants one; comment: nothing but signs of life.
Action = Literal[
    "status",
    "stall",
    "delay",
    "cut",
    "end",
    "unfinish",
    "undone",
    "garble",
    "error",
    "empty",
    "truncate",
    "filter",
    "unstreamed",
    "whole",
    "comment",
]
# These change what the model says, so they are none of the wire's business.
OTHER_ANSWERS = ("empty", "truncate", "filter")
# Those of an end that is not one.
MISSING = {"end": ("finish", "usage", "done"), "unfinish": ("finish",), "undone": ("done",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    action: Action
    # Neither is before the first byte; 0 chunks is after what opens a stream, 0 bytes is after the headers.
    after_chunks: int | None = None
    after_bytes: int | None = None
    # None is any.
    model: str | None = None
    api: Api | None = None
    status: int = 500
    message: str = ""
    code: str | None = None
    retry_after: float | None = None
    # Instead of the provider's own shape.
    body: bytes | None = None
    seconds: float = 0.0
    gate: asyncio.Event | None = None
    reset: bool = False
    # Of the Responses dialect, which has two ways to say it.
    failed: bool = False
    # How often more; None is until somebody heals.
    count: int | None = 1

    @property
    def is_first(self) -> bool:
        """Before the first byte."""
        return self.after_chunks is None and self.after_bytes is None

    def fits(self, api: Api, model: str, stream: bool) -> bool:
        if self.action in ("unstreamed", "whole") and not stream:
            return False
        return self.model in (None, model) and (self.api == api or (self.api is None and api != "models"))


class Faults:
    """One fault a request, the oldest that fits."""

    def __init__(self) -> None:
        self._armed: list[Fault] = []
        self._gates: list[asyncio.Event] = []

    @property
    def armed(self) -> tuple[Fault, ...]:
        return tuple(self._armed)

    def arm(self, fault: Fault) -> None:
        if fault.count is not None and fault.count < 1:
            raise ValueError("a fault happens at least once")
        if fault.gate is not None:
            self._gates.append(fault.gate)
        self._armed.append(fault)

    def clear(self) -> None:
        self._armed.clear()
        self.release()

    def release(self) -> None:
        """Lets go of whoever is stalled, and of whoever was going to be."""
        for gate in self._gates:
            gate.set()
        self._gates.clear()

    def take(self, api: Api, model: str, stream: bool) -> Fault | None:
        for position, fault in enumerate(self._armed):
            if fault.fits(api, model, stream):
                if fault.count == 1:
                    del self._armed[position]
                elif fault.count is not None:
                    self._armed[position] = replace(fault, count=fault.count - 1)
                return fault
        return None
