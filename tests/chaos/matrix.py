"""Every label of a failpoint with the kills that reach it, and what else than a kill may happen at some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.chaos.crew import Ask


class Way(NamedTuple):
    """How a label is reached: in which scenario, and behind which first kill."""

    scenario: str = "ten"
    after: str = ""

    def ask(self, label: str, hit: int, action: str = "", then: str = "") -> Ask:
        here = ":".join(filter(None, (label, str(hit), action)))
        return Ask(at=",".join(filter(None, (self.after, here, then))), scenario=self.scenario)


PLAIN = Way()
ODD = Way("odd")
ASKED = Way("approvals")
# A kill that leaves runs open, for labels that only a recovery comes by.
RECOVERED = Way(after="run.mid_stream:1")

MATRIX: dict[str, Way] = {
    "in.received": PLAIN,
    "in.pre_commit": PLAIN,
    "in.post_commit": PLAIN,
    "in.pre_ack": PLAIN,
    "in.post_ack": PLAIN,
    "in.dup": PLAIN,
    "run.claimed": PLAIN,
    "run.pre_model": PLAIN,
    "run.mid_stream": PLAIN,
    "run.post_model": PLAIN,
    "tool.pre_start": PLAIN,
    "tool.started": PLAIN,
    "tool.effect": PLAIN,
    "tool.pre_finish": PLAIN,
    "run.pre_terminal": PLAIN,
    "run.post_terminal": PLAIN,
    "halt.pre_terminal": ODD,
    "cancel.requested": PLAIN,
    "approval.pre_ask": ASKED,
    "approval.post_ask": ASKED,
    "approval.decided": ASKED,
    "out.claimed": PLAIN,
    "out.dispatching_committed": PLAIN,
    "out.bytes_written": PLAIN,
    "out.effect": PLAIN,
    "out.pre_receipt": PLAIN,
    "out.post_receipt": PLAIN,
    "out.between_parts": PLAIN,
    "out.ambiguous_pre_commit": ODD,
    "rec.read_done": ODD,
    "rec.pre_commit": ODD,
    "anchor.effect": ODD,
    "edit.effect": PLAIN,
    "bg.promised": PLAIN,
    "bg.spawned": PLAIN,
    "bg.pre_notify": PLAIN,
    "boot.pre_recover": PLAIN,
    "boot.mid_recover": RECOVERED,
    "boot.post_recover": PLAIN,
    "migrate.mid": PLAIN,
    "shutdown.drain": ODD,
    "store.pre_commit": PLAIN,
    "store.post_commit": PLAIN,
}

# Passed by what an owner does now and then: tests/scenario/operations/test_backup.py kills there.
ELSEWHERE = {"store.copied", "restore.pre_store"}
# Only a command in the background comes by: tests/scenario/work/test_processes.py kills there.
ELSEWHERE |= {"bg.pid", "bg.go"}

# Where a process that is stopped for a while, and goes on, must not lose or repeat anything.
OUTBOX = [label for label in MATRIX if label.startswith(("out.", "rec.", "anchor.", "edit."))]

# What goes on after a fault: a commit that fails is tried again, and a door that fails is knocked at again.
ACTIONS = (
    "in.pre_commit:2:stop",
    "out.dispatching_committed:1:stop",
    "out.effect:2:stop",
    "run.mid_stream:3:stop",
    "store.pre_commit:30:stop",
    "in.received:2:raise",
    "in.pre_commit:4:raise",
    "in.post_commit:1:raise",
    "in.dup:1:raise",
    "run.claimed:1:raise",
    "out.claimed:1:raise",
    "store.pre_commit:12:raise",
    "store.pre_commit:40:raise",
    "store.pre_commit:3:enospc",
    "store.pre_commit:12:enospc",
    "store.pre_commit:25:enospc",
    "store.pre_commit:60:enospc",
    "in.received:3:enospc",
    "out.effect:1:delay=30",
    "store.post_commit:20:delay=30",
    "run.claimed:2:delay=30",
)


def kills(counts: Mapping[str, Mapping[str, int]], hits: tuple[int, ...] = (1, 2)) -> Iterator[Ask]:
    """One kill at each label, and more where it is passed more often; `counts` are those of each scenario."""
    for label, way in MATRIX.items():
        passed = 1 if way.after else counts[way.scenario].get(label, 1)
        # A label that is never passed is killed at all the same: then the kill that never comes is the violation.
        yield from (way.ask(label, hit) for hit in hits if hit <= max(passed, 1))


def actions() -> Iterator[Ask]:
    yield from (Ask(at=at) for at in ACTIONS)


def full(scenario: str, counts: Mapping[str, int]) -> Iterator[Ask]:
    """In the large scenario, where it passes the label: three hits, a second kill after the recovery, a stop."""
    for label, way in MATRIX.items():
        large = Way(scenario) if counts.get(label) and not way.after else way
        hits = [hit for hit in (1, 2, 7) if hit <= counts.get(label, 1)]
        yield from (large.ask(label, hit) for hit in hits)
        yield large.ask(label, hits[-1], then="boot.post_recover:1")
        if label in OUTBOX:
            yield large.ask(label, hits[-1], "stop")
    yield from actions()
