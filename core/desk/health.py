"""What can be asked about the state of the gateway: its parts, alarms, counts and who may speak."""

from __future__ import annotations

import msgspec


class PartHealth(msgspec.Struct, frozen=True):
    """How one supervised part fares: starting, up, standing by, degraded or misconfigured."""

    name: str
    state: str
    since: float
    restarts: int
    last_error: str
    # By the wall clock; None for what has not happened, as far as anybody knows.
    last_inbound: float | None = None
    last_outbound: float | None = None


class Alarm(msgspec.Struct, frozen=True):
    """What the owner should look at: how often, and the last reason."""

    name: str
    count: int
    last: str
    at: float


class RunLine(msgspec.Struct, frozen=True):
    """A run that goes on."""

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
    """What the store tells of runs and queues; times are by the wall clock."""

    queued: int
    oldest_queued: float | None
    deliveries: dict[str, int]
    # By state.
    oldest_owed: dict[str, float]
    runs: tuple[RunLine, ...]
    lost: tuple[LostLine, ...]
    # How many people and groups were let in by command.
    admitted: int = 0


class Moments(msgspec.Struct, frozen=True):
    """When an account was last heard of and last written to."""

    heard: float | None = None
    sent: float | None = None


class Stranger(msgspec.Struct, frozen=True):
    """Who has asked to be let in, as the access list would name them."""

    id: str
    name: str
    at: float
    # Where they can be told.
    target: str


class Admissions(msgspec.Struct, frozen=True):
    """Who may speak, by the list that admits them."""

    settings: tuple[str, ...]
    # Admitted with `tidings allow`.
    command: tuple[str, ...]


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
    # The last few who spoke to us alone and are not admitted.
    strangers: tuple[Stranger, ...] = ()
