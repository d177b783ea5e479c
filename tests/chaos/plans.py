"""All that a seed decides of a chaos run: who says what and when, who visits or asks the API, kills and outages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from tests.chaos import api_clients, crowd, visitors
from tests.chaos.steps import Say

# Between two kills on average, and between two messages at least.
LIFE_SECONDS = 1.7
PAUSE_SECONDS = 0.02

# Where a process dies if not by the clock.
LABELS = (
    "store.pre_commit",
    "store.post_commit",
    "in.pre_commit",
    "in.post_commit",
    "run.mid_stream",
    "tool.started",
    "run.pre_terminal",
    "run.post_terminal",
    "out.dispatching_committed",
    "out.effect",
    "out.pre_receipt",
    "out.between_parts",
    "edit.effect",
    "anchor.effect",
    "rec.pre_commit",
    "boot.mid_recover",
    "bg.pre_notify",
    "approval.pre_ask",
    "approval.post_ask",
    "approval.decided",
)


class Kill(NamedTuple):
    # Not before so many messages were said, and then after so many seconds.
    after: int
    seconds: float
    # Dies here if it comes to it sooner.
    failpoint: str


class Outage(NamedTuple):
    after: int
    platform: str
    seconds: float


class Plan(NamedTuple):
    """All that a seed decides."""

    seed: int
    said: tuple[Say, ...]
    pauses: tuple[float, ...]
    kills: tuple[Kill, ...]
    outages: tuple[Outage, ...]
    asks: tuple[api_clients.Ask, ...]
    visits: tuple[visitors.Visit, ...]


def plan(seed: int, messages: int, kills: int) -> Plan:
    lots = random.Random(f"{seed}/plan")
    pause = max(PAUSE_SECONDS, LIFE_SECONDS * kills / messages)
    names = sorted(crowd.STANDS)
    outages = [
        Outage(lots.randint(1, messages), lots.choice(names), lots.uniform(0.5, 2.5)) for _ in range(messages // 100)
    ]
    return Plan(
        seed,
        tuple(crowd.say_all(seed, messages)),
        tuple(lots.uniform(0.0, 2 * pause) for _ in range(messages)),
        tuple(_kills(lots, messages, kills)),
        tuple(sorted(outages)),
        tuple(api_clients.ask_all(seed, messages)),
        tuple(visitors.plan_visits(seed, messages)),
    )


def _kills(lots: random.Random, messages: int, kills: int) -> Iterator[Kill]:
    moments = sorted(lots.randint(1, messages) for _ in range(kills))
    for number, moment in enumerate(moments):
        label = lots.choice(LABELS)
        # Commits are so many that the first few would only ever be those of a start.
        hit = lots.randint(1, 60 if label.startswith("store.") else 6)
        failpoint = f"{label}:{hit}:kill" if lots.random() < 0.5 else ""
        if number and lots.random() < 0.25:
            # The next start is hit while it recovers.
            yield Kill(moments[number - 1], lots.uniform(0.0, 0.5), failpoint)
        else:
            yield Kill(moment, lots.uniform(0.0, 0.2), failpoint)
