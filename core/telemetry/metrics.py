"""Counters since the start, for monitoring systems; they never contain text of a message."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

# Upper bounds of the buckets for the duration of runs, in seconds.
BOUNDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class Meters:
    def __init__(self) -> None:
        self.inbound: Counter[str] = Counter()
        # By adapter and result of a send: delivered, rate limited, unreachable, rejected, doubtful, …
        self.outbound: Counter[tuple[str, str]] = Counter()
        self.runs: Counter[str] = Counter()
        self.run_seconds = 0.0
        # The last bucket counts runs that took longer than every bound.
        self.run_buckets = [0] * (len(BOUNDS) + 1)
        self.input_tokens = 0
        self.output_tokens = 0
        # Runs that go on right now.
        self.running = 0
        # By `adapter@account`: the time of the last inbound message, and of the last message the platform accepted.
        self.heard_at: dict[str, float] = {}
        self.sent_at: dict[str, float] = {}

    def ran(self, outcome: str, seconds: float, input_tokens: int, output_tokens: int) -> None:
        self.runs[outcome] += 1
        self.run_seconds += seconds
        self.run_buckets[bisect_left(BOUNDS, seconds)] += 1
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
