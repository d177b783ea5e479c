"""The scenarios as data: who says what, where and when."""

from __future__ import annotations

from typing import Any

from tests.chaos.scripted import KINDS, Ledger, ScriptedAgent
from tests.chaos.steps import (
    OWNER,
    PERSON,
    Delete,
    Do,
    Edit,
    Expected,
    Fate,
    Platform,
    Press,
    Say,
    Scenario,
    Step,
    Stop,
    Told,
    Wait,
    expected,
)
from tests.simulators.paper.chats import Kind

__all__ = [
    "KINDS",
    "OWNER",
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

# What a stranger is told.
PAIRING = "I don't know you yet. Your code is "

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
        Say("n14", "neither", "plain", chat="8", sender="66", reply=PAIRING),
        Say("n15", "neither", "plain", chat="8", sender="66"),
        Say("n16", "neither", "plain", chat="9", addressed=False),
        Say("o2", "keyed@other", "frail"),
        Say("d9", "drafts", "halt"),
        Say("b9", "bare", "/stop idle"),
        REST,
    ),
)


def _owner(key: str, text: str, reply: str, **others: Any) -> Say:
    return Say(key, "keyed", text, chat="home", sender=OWNER, reply=reply, **others)


def _at(key: str, where: str, text: str, who: str, fate: Fate, reply: str = "", **others: Any) -> Say:
    """Somebody in their own private chat."""
    return Say(key, where, text, chat=who, sender=who, fate=fate, reply=reply, **others)


# Strangers pair, members are removed, blocked and admitted again in the middle of their work, and people link.
PEOPLE = Scenario(
    (KEYED, READBACK, NEITHER),
    (
        _owner("k1", "/sethome", "Gateway alerts"),
        # Admitted by a button, once; the code and the button are used up, and a member's press counts for nothing.
        _at("n1", "neither", "plain", "8", Fate.LATER, PAIRING),
        _at("n2", "neither", "plain", "8", Fate.UNHEARD),
        Wait(1.0),
        Press("keyed", "home", "neither:8", "Admit", sender=PERSON),
        Press("keyed", "home", "neither:8", "Admit"),
        Press("keyed", "home", "neither:8", "Admit"),
        Wait(1.0),
        _at("n3", "neither", "stream", "8", Fate.TAKEN),
        # The platform tells once more what they said as a stranger.
        _at("n1", "neither", "plain", "8", Fate.LATER, PAIRING),
        Wait(9.0),
        _owner("k2", "/people admit {code}", "This code is wrong, expired or already used", code=("neither", "8")),
        # Admitted by id, and removed while one message runs, another waits, and a schedule and a task are to come.
        _at("n4", "neither", "plain", "9", Fate.LATER, PAIRING),
        _owner("k3", "/people admit neither:9", "neither:9 may talk to the bot now"),
        Wait(1.0),
        _at("n5", "neither", "/every 1m plain", "9", Fate.TAKEN, "Planned"),
        _at("n6", "neither", "vow", "9", Fate.WITHDRAWN),
        _at("n7", "neither", "hold", "9", Fate.ENDED),
        _at("n8", "neither", "plain", "9", Fate.ENDED),
        Wait(0.5),
        Say("k4", "keyed", "/people remove neither:9", reply="You can't use /people"),
        _owner("k5", "/people remove neither:9", "neither:9 may no longer talk to the bot"),
        _at("n9", "neither", "plain", "9", Fate.LATER, PAIRING),
        Wait(1.0),
        # Blocked as a stranger, and as a member whose message runs.
        _at("r1", "readback", "plain", "10", Fate.UNHEARD, PAIRING),
        Wait(1.0),
        Press("keyed", "home", "readback:10", "Block"),
        _at("r2", "readback", "plain", "10", Fate.UNHEARD),
        _at("n10", "neither", "hold", "8", Fate.ENDED),
        Wait(0.5),
        _owner("k6", "/people block neither:8", "neither:8 is blocked."),
        _at("n11", "neither", "/help", "8", Fate.UNHEARD),
        # Linked by a code that works once: with a stranger's account, and with one that is known, said twice.
        Say("k7", "keyed", "/link", reply="Your code is "),
        Wait(1.0),
        _at("r3", "readback", "/link {code}", "70", Fate.TAKEN, "Done: this is now also you", code=("keyed", "1")),
        _at("r4", "readback", "/link {code}", "71", Fate.TAKEN, "This code is wrong", code=("keyed", "1")),
        _at("r5", "readback", "stream", "70", Fate.TAKEN),
        _at("r6", "readback", "plain", "71", Fate.UNHEARD, PAIRING),
        Say("k8", "keyed", "/link", reply="Your code is "),
        Wait(1.0),
        Say("n12", "neither", "/link {code}", reply="This makes you and ", code=("keyed", "1")),
        Say("n13", "neither", "/link {code}", reply="Done: this is now also you", code=("keyed", "1")),
        # What the removed one had planned comes due; then they are admitted once more.
        Wait(70.0),
        _owner("k9", "/people admit neither:9", "neither:9 may talk to the bot now"),
        Wait(1.0),
        _at("n14", "neither", "stream", "9", Fate.TAKEN),
        REST,
    ),
    told=(
        Told("keyed", "home", "neither:8 would like to talk to the bot."),
        Told("keyed", "home", "neither:8 is admitted as a member."),
        Told("keyed", "home", "This request has already been answered"),
        Told("neither", "8", "You're in."),
        Told("keyed", "home", "neither:9 would like to talk to the bot.", 2),
        Told("neither", "9", "You're in.", 2),
        Told("keyed", "home", "“plain” (schedule) did not run and is paused, because neither:9 may no longer"),
        Told("keyed", "home", "“[n6]” (task) did not run, because neither:9 may no longer", task_of="n6"),
        Told("keyed", "home", "readback:10 would like to talk to the bot."),
        Told("keyed", "home", "readback:10 is blocked."),
        Told("keyed", "home", "readback:71 would like to talk to the bot."),
        Told("keyed", "1", "readback:70 is now linked with you."),
        Told("keyed", "1", "neither:7 is now linked with you."),
    ),
    decisions=(
        ("admitted", "neither:8 member"),
        ("admitted", "neither:9 member"),
        ("removed", "neither:9"),
        ("blocked", "readback:10"),
        ("blocked", "neither:8"),
        ("linked", "readback:70"),
        ("linked", "neither:7"),
        ("admitted", "neither:9 member"),
    ),
    roles=(
        ("neither:8", "blocked"),
        ("neither:9", "member"),
        ("readback:10", "blocked"),
        ("keyed:7", ""),
        ("readback:70", ""),
        ("neither:7", ""),
    ),
    linked=(("keyed:7", "readback:70", "neither:7"),),
)


def _asks(key: str, where: str, text: str, chat: str, **others: Any) -> Say:
    """The owner, who is asked in the same chat."""
    return Say(key, where, text, chat=chat, sender=OWNER, **others)


# Runs ask before they pay: approved, denied, expired, stopped, withdrawn, at home and in the chat, across a stop.
APPROVALS = Scenario(
    (KEYED, READBACK, NEITHER),
    (
        _owner("k1", "/sethome", "Gateway alerts"),
        # Answered by buttons, and by words where nothing settles a doubt.
        _asks("k2", "keyed", "ask", "2"),
        _asks("r1", "readback", "beg", "2"),
        _asks("n1", "neither", "ask", "2"),
        Wait(12.0),
        Press("keyed", "2", "pay for k2", "Once"),
        Press("readback", "2", "pay for r1", "Deny"),
        _asks("n2", "neither", "/approve", "2", reply="Approved once by"),
        _asks("n3", "neither", "/approve", "2", reply="No question is open here."),
        Wait(3.0),
        # A member's question is asked at home, where the member cannot answer it; the next message waits.
        Say("n4", "neither", "ask", chat="1"),
        Wait(12.0),
        Say("n5", "neither", "plain", chat="1"),
        Press("keyed", "home", "pay for n4", "Once", sender=PERSON),
        Press("keyed", "home", "pay for n4", "Once"),
        Wait(3.0),
        # For the talk: the next one is not asked about.
        _asks("k3", "keyed", "ask", "3"),
        Wait(12.0),
        Press("keyed", "3", "pay for k3", "For this talk"),
        Wait(2.0),
        _asks("k4", "keyed", "ask", "3"),
        # Stopped while it asks.
        _asks("r2", "readback", "beg", "3", fate=Fate.ENDED),
        Wait(3.0),
        _asks("r3", "readback", "/stop", "3"),
        Wait(1.0),
        _asks("r4", "readback", "plain", "3"),
        # Whoever is removed while the owner is asked; and whoever nobody answers.
        _owner("k5", "/people admit neither:9", "neither:9 may talk to the bot now"),
        Wait(1.0),
        _at("n6", "neither", "beg", "9", Fate.ENDED),
        _asks("n7", "neither", "beg", "4"),
        Wait(12.0),
        _owner("k6", "/people remove neither:9", "neither:9 may no longer talk to the bot"),
        # The gateway is stopped while a question is open.
        _asks("k7", "keyed", "ask", "4"),
        Wait(12.0),
        Stop(),
        Wait(3.0),
        Press("keyed", "4", "pay for k7", "Once"),
        Wait(200.0),
        REST,
    ),
    told=(
        Told("keyed", "home", "Approved once by keyed:1"),
        Told("keyed", "home", "No longer needed: the run ended"),
    ),
    decisions=(("admitted", "neither:9 member"), ("removed", "neither:9")),
    roles=(),
    asked=(
        ("k2", "granted"),
        ("r1", "denied"),
        ("n1", "granted"),
        ("n4", "granted"),
        ("k3", "granted"),
        ("k4", "granted"),
        ("r2", "withdrawn"),
        ("n6", "withdrawn"),
        ("n7", "expired"),
        ("k7", "granted"),
    ),
)

# Each mode on each platform: the letter of the platform, and in tens the number of the mode, name a message.
BUSY_MODES = ("queue", "collect", "steer", "interrupt")
BUSY_PLATFORMS = (("k", "keyed"), ("r", "readback"), ("n", "neither"))


def _busy(key: str, where: str, mode: str) -> Say:
    return Say(key, where, f"busy {key}", chat=mode, fate=Fate.SHARED)


def _everywhere(digit: int, platforms: tuple[tuple[str, str], ...] = BUSY_PLATFORMS) -> list[Step]:
    return [
        _busy(f"{letter}{tens}{digit}", where, mode)
        for tens, mode in enumerate(BUSY_MODES, start=1)
        for letter, where in platforms
    ]


def _chosen() -> list[Step]:
    return [
        Say(f"{letter}{tens}", where, f"/busy {mode}", chat=mode, reply=f"The mode here is {mode} (chosen")
        for tens, mode in enumerate(BUSY_MODES, start=1)
        for letter, where in BUSY_PLATFORMS
    ]


def _joining(letter: str) -> tuple[tuple[str, str], ...]:
    """The last two messages before the end of a run are a burst, whatever the mode does with it."""
    burst = tuple((f"{letter}{tens}4", f"{letter}{tens}3") for tens in (1, 4))
    collected = tuple((f"{letter}2{digit}", f"{letter}22") for digit in (3, 4))
    return (*burst, *collected, *((f"{letter}3{digit}", f"{letter}31") for digit in (2, 3, 4)))


# What is said while a run goes on, in every mode and on every platform; and across a stop by SIGTERM.
BUSY = Scenario(
    (KEYED, READBACK, NEITHER),
    (
        *_chosen(),
        Wait(0.2),
        *_everywhere(1),
        Wait(1.7),
        *_everywhere(2),
        Wait(1.1),
        *_everywhere(3),
        Wait(0.2),
        *_everywhere(4),
        Edit("k24", "keyed", "busy k24 after all"),
        Wait(0.7),
        # Behind the last step of the first runs.
        *_everywhere(5, BUSY_PLATFORMS[:1]),
        Wait(30.0),
        _busy("k61", "keyed", "steer"),
        Wait(1.8),
        _busy("k62", "keyed", "steer"),
        Stop(),
        _busy("k63", "keyed", "steer"),
        REST,
    ),
    joins=(*_joining("k"), ("k25", "k22"), ("k62", "k61"), *_joining("r"), *_joining("n")),
    burst_seconds=0.5,
)

SCENARIOS = {"ten": TEN, "odd": ODD, "sixty": SIXTY, "people": PEOPLE, "approvals": APPROVALS, "busy": BUSY}
