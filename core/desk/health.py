"""Requests about the gateway's health: its parts, alarms, counts and admitted people."""

from __future__ import annotations

import msgspec


class PartHealth(msgspec.Struct, frozen=True):
    """The state of one supervised part: starting, up, standing by, degraded or misconfigured."""

    name: str
    state: str
    since: float
    restarts: int
    last_error: str
    # By the wall clock; None if unknown or never.
    last_inbound: float | None = None
    last_outbound: float | None = None


class Alarm(msgspec.Struct, frozen=True):
    """An alarm for the owner: how often it sounded, and the last reason."""

    name: str
    count: int
    last: str
    at: float


class RunLine(msgspec.Struct, frozen=True):
    """A run in progress."""

    id: str
    conversation: str
    accepted: float
    attempt: int


class LostLine(msgspec.Struct, frozen=True):
    """A delivery that will not arrive, and why."""

    id: str
    target: str
    reason: str
    cause: str
    at: float


class Overview(msgspec.Struct, frozen=True):
    """Runs and queues as the store knows them; times are by the wall clock."""

    queued: int
    oldest_queued: float | None
    deliveries: dict[str, int]
    # The creation time of the oldest delivery, by state.
    oldest_owed: dict[str, float]
    runs: tuple[RunLine, ...]
    lost: tuple[LostLine, ...]
    # The number of people whom the store admits.
    admitted: int = 0
    # The number of runs that wait for an answer of people.
    asking: int = 0


class Moments(msgspec.Struct, frozen=True):
    """When an account last received a message and last sent one."""

    heard: float | None = None
    sent: float | None = None


class Stranger(msgspec.Struct, frozen=True):
    """A person or group that asked to be admitted; `id` is written as in the access list."""

    id: str
    name: str
    at: float
    # Where a message reaches this stranger.
    target: str


class Health(msgspec.Struct, frozen=True):
    version: str
    store: str
    parts: tuple[PartHealth, ...]
    running: int
    queued: int
    deliveries: dict[str, int]
    alarms: tuple[Alarm, ...]
    # When the gateway started.
    started: float = 0.0
    overview: Overview | None = None
    # The last few people who wrote in private without being admitted.
    strangers: tuple[Stranger, ...] = ()
