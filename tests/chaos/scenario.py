"""The scenarios as data: who says what, where and when."""

from __future__ import annotations

from tests.chaos.scripted import KINDS, Ledger, ScriptedAgent
from tests.chaos.steps import PERSON, Delete, Do, Edit, Expected, Platform, Say, Scenario, Step, Stop, Wait, expected
from tests.simulators.paper.chats import Kind

__all__ = [
    "KINDS",
    "PERSON",
    "Delete",
    "Do",
    "Edit",
    "Expected",
    "Ledger",
    "Platform",
    "Say",
    "Scenario",
    "ScriptedAgent",
    "Step",
    "Stop",
    "Wait",
    "expected",
]

KEYED = Platform("keyed", Kind(keyed_for=120.0, streaming="edits"), ("main", "other"))
READBACK = Platform("readback", Kind(readback=True, streaming="append", typing=False, reactions=False))
NEITHER = Platform("neither", Kind(streaming="edits"))
DRAFTS = Platform("drafts", Kind(streaming="drafts"))
BARE = Platform("bare", Kind(streaming="none", typing=False, reactions=False))

# Liveness asks for an outcome within 60 s and an attempt within 15 s; who is not done by then never will be.
REST = Wait(90.0)

TEN = Scenario(
    (KEYED, READBACK, NEITHER),
    (
        Say("k1", "keyed", "stream"),
        Wait(0.2),
        Say("n1", "neither", "stream", thread="t"),
        Wait(0.4),
        Say("r1", "readback", "pure"),
        Wait(0.6),
        Say("n2", "neither", "effect", chat="2"),
        Say("n3", "neither", "plain", chat="2"),
        Wait(0.4),
        Say("k2", "keyed", "slow", thread="t"),
        Wait(1.2),
        Say("k3", "keyed", "/status", thread="t"),
        Say("r2", "readback", "long", thread="t"),
        Say("k4", "keyed", "/stop", thread="t"),
        Wait(0.5),
        Say("k1", "keyed", "stream"),
        Say("n4", "neither", "fail"),
        Say("o1", "keyed@other", "task"),
        Wait(0.5),
        Say("n5", "neither", "long", thread="t"),
        REST,
    ),
)


# What the ten do not come by: lost calls, a guardrail, and a stop by SIGTERM while an answer grows.
ODD = Scenario(
    (READBACK, NEITHER),
    (
        Do("neither", "drop_next", (True, "post")),
        Say("n1", "neither", "plain"),
        Do("readback", "drop_next", (False, "post")),
        Say("r1", "readback", "plain"),
        Say("n2", "neither", "halt", chat="2"),
        Wait(20.0),
        Do("neither", "drop_next", (False, "post")),
        Say("n3", "neither", "plain", chat="3"),
        Do("readback", "drop_next", (True, "post")),
        Say("r2", "readback", "halt", chat="2"),
        Wait(20.0),
        Say("n4", "neither", "stream", chat="3"),
        Wait(0.7),
        Stop(),
        Say("r3", "readback", "plain"),
        REST,
    ),
)

SIXTY = Scenario(
    (KEYED, READBACK, NEITHER, DRAFTS, BARE),
    (
        # Everybody says something, some in bursts, and some of it is stopped.
        Say("k1", "keyed", "stream"),
        Wait(0.2),
        Say("n1", "neither", "stream", thread="t"),
        Wait(0.2),
        Say("d1", "drafts", "stream"),
        Wait(0.2),
        Say("r1", "readback", "pure"),
        Say("r2", "readback", "put"),
        Say("b1", "bare", "plain"),
        Say("b2", "bare", "tale"),
        Wait(0.5),
        Say("n2", "neither", "effect", chat="2"),
        Say("n3", "neither", "plain", chat="2"),
        Say("n4", "neither", "/status", chat="2"),
        Wait(0.4),
        Say("k2", "keyed", "slow", thread="t"),
        Wait(1.2),
        Say("k3", "keyed", "/status", thread="t"),
        Say("k4", "keyed", "/whoami", thread="t"),
        Say("r4", "readback", "tale", thread="t"),
        Say("k5", "keyed", "/stop", thread="t"),
        Wait(0.5),
        Say("k1", "keyed", "stream"),
        Say("n5", "neither", "fail"),
        Say("o1", "keyed@other", "task"),
        Wait(0.5),
        Say("n6", "neither", "long", thread="t"),
        Wait(5.0),
        # A queue whose messages are corrected and taken back; albums; a new conversation while an old answer runs.
        Say("d2", "drafts", "hold"),
        Say("d3", "drafts", "fail"),
        Say("d4", "drafts", "plain"),
        Say("d5", "drafts", "think"),
        Wait(0.2),
        Edit("d3", "drafts", "plain"),
        Delete("d4", "drafts"),
        Say("k6", "keyed", "slow", chat="2"),
        Say("k7", "keyed", "plain", chat="2"),
        Wait(0.7),
        Say("k8", "keyed", "/stop", chat="2"),
        Say("r5", "readback", "album", group="g", file="one.png"),
        Wait(0.3),
        Say("r6", "readback", "album", group="g", file="two.png"),
        Say("d6", "drafts", "album", chat="2", group="h", file="red.png"),
        Wait(0.3),
        Say("r7", "readback", "album", group="g", file="three.png"),
        Say("d7", "drafts", "album", chat="2", group="h", file="green.png"),
        Say("n7", "neither", "hold", chat="3"),
        Wait(0.5),
        Say("n8", "neither", "/new", chat="3"),
        Say("n9", "neither", "recall 0", chat="3"),
        Say("k9", "keyed", "plain", chat="5"),
        Wait(5.0),
        Say("k10", "keyed", "recall 2", chat="5"),
        Say("k11", "keyed", "/new", chat="5"),
        Say("k12", "keyed", "recall 0", chat="5"),
        # The platforms' own faults.
        Do("neither", "drop_next", (True, "post")),
        Say("n10", "neither", "plain", chat="4"),
        Do("readback", "drop_next", (True, "post")),
        Say("r8", "readback", "plain"),
        Do("keyed", "drop_next", (True, "post")),
        Say("k13", "keyed", "plain", chat="3"),
        Do("bare", "drop_next", (True, "post")),
        Say("b4", "bare", "plain", chat="4"),
        Wait(1.0),
        Do("neither", "drop_next", (False, "post")),
        Say("n11", "neither", "long", chat="5"),
        Do("readback", "drop_next", (False, "post")),
        Say("r9", "readback", "plain", chat="2"),
        Do("keyed", "fail_next", (429, 3.0, "post")),
        Say("k14", "keyed", "plain", chat="4"),
        Do("bare", "limit_rate", ("2", 2.0, 1)),
        Say("b3", "bare", "long", chat="2"),
        Do("neither", "drop_next", (True, "edit")),
        Say("n12", "neither", "stream", chat="6"),
        Do("drafts", "drop_next", (True, "draft")),
        Say("d8", "drafts", "stream", chat="3"),
        Do("readback", "garble_next", ("append",)),
        Say("r10", "readback", "stream", chat="3"),
        Say("b5", "bare", "late", chat="3"),
        Wait(0.5),
        Do("bare", "move", ("3", "33")),
        Do("bare", "block", ("5",)),
        Say("b7", "bare", "plain", chat="5"),
        Wait(3.0),
        Do("bare", "block", ("5", False)),
        Say("b6", "bare", "plain", chat="33"),
        Say("b8", "bare", "plain", chat="5"),
        # Files, strangers, a task that cannot be resumed, a guardrail.
        Say("n13", "neither", "file", chat="7"),
        Say("k15", "keyed", "file", chat="6"),
        Say("n14", "neither", "plain", chat="8", sender="66"),
        Say("n15", "neither", "plain", chat="8", sender="66"),
        Say("n16", "neither", "plain", chat="9", addressed=False),
        Say("o2", "keyed@other", "frail"),
        Say("d9", "drafts", "halt"),
        Say("b9", "bare", "/stop idle"),
        REST,
    ),
)

SCENARIOS = {"ten": TEN, "odd": ODD, "sixty": SIXTY}
