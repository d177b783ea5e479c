"""Spoils the traces of a clean run, one way for each checker: whoever does not see it sees nothing.

`python -m tests.chaos.tampering` prints what each checker found and ends with 1 if one of them found nothing.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from tests.chaos import checkers, driver, zygote
from tests.chaos.driver import Played, Seen
from tests.chaos.scenario import APPROVALS, BUSY, PEOPLE, SIXTY, TEN
from tests.simulators.paper.simulator import Message
from tidings.core.outbound.outbox import MARK
from tidings.core.types import Choice

Tamper = Callable[[Played], Played]


def _sql(*statements: str) -> Tamper:
    def tamper(played: Played) -> Played:
        connection = sqlite3.connect(played.database, isolation_level=None)
        connection.execute("PRAGMA writable_schema = ON")
        # The schema itself forbids most of this, which is why it must be put out of the way first.
        connection.execute("DELETE FROM sqlite_master WHERE name IN ('one_end_per_run', 'one_final_per_run')")
        connection.close()
        connection = sqlite3.connect(played.database, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()
        return played

    return tamper


def _messages(platform: str, change: Callable[[tuple[Message, ...]], tuple[Message, ...]]) -> Tamper:
    def tamper(played: Played) -> Played:
        seen: Seen = played.seen[platform]
        return played._replace(seen={**played.seen, platform: seen._replace(messages=change(seen.messages))})

    return tamper


def _twice(played: Played) -> Played:
    return played._replace(ledger=played.ledger * 2)


def _late(played: Played) -> Played:
    """The first part of a long answer is written anew, behind the last one."""
    seen = played.seen["readback"]
    first = next(message for message in seen.messages if message.reply_to == "r2")
    posted = next(effect for effect in seen.effects if effect.message == first.id)
    again = replace(posted, order=len(seen.effects) + 1, act="edit")
    return played._replace(seen={**played.seen, "readback": seen._replace(effects=(*seen.effects, again))})


def _changed(key: str, **fields: str) -> Callable[[tuple[Message, ...]], tuple[Message, ...]]:
    return lambda messages: tuple(replace(each, **fields) if each.reply_to == key else each for each in messages)


def _without(key: str) -> Callable[[tuple[Message, ...]], tuple[Message, ...]]:
    return lambda messages: tuple(each for each in messages if each.reply_to != key)


def _loose_without(begins: str) -> Callable[[tuple[Message, ...]], tuple[Message, ...]]:
    return lambda messages: tuple(each for each in messages if not each.text.startswith(begins))


def _loose_moved(begins: str, chat: str) -> Callable[[tuple[Message, ...]], tuple[Message, ...]]:
    return lambda messages: tuple(
        replace(each, chat=chat) if each.text.startswith(begins) else each for each in messages
    )


def _answering(known: str, unheard: str) -> Callable[[tuple[Message, ...]], tuple[Message, ...]]:
    """What answered one message answers another one too."""
    return lambda messages: (*messages, *(replace(m, reply_to=unheard) for m in messages if m.reply_to == known))


def _renamed(old: str, new: str) -> Callable[[tuple[Message, ...]], tuple[Message, ...]]:
    return lambda messages: tuple(replace(each, text=each.text.replace(old, new)) for each in messages)


def _with_button(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    last = messages[-1]
    return (*messages[:-1], replace(last, choices=(Choice(id="ask_1/once", label="Once"),)))


def _drafted_elsewhere(played: Played) -> Played:
    seen = played.seen["drafts"]
    effects = tuple(replace(each, chat="2") if each.act == "draft" else each for each in seen.effects)
    return played._replace(seen={**played.seen, "drafts": seen._replace(effects=effects)})


# As if the same transaction had been carried out twice.
_AGAIN = (
    "INSERT INTO deliveries (id, kind, lane, target, body, state, cause, created) SELECT id || 'x', kind, lane, target,"
    " body, state, cause, created FROM deliveries"
)
_PARTED = (
    "INSERT INTO persons (id, role, made_by, at) VALUES ('psn_other', '', 'owner', 0)",
    "UPDATE identities SET person = 'psn_other' WHERE id = 'readback:70'",
)
_AUDIT_AGAIN = (
    "INSERT INTO audit (at, actor, action, object, detail) SELECT at, actor, action, object, detail FROM audit"
    " WHERE action = 'blocked'"
)

_INTERRUPTED = "UPDATE inbox SET outcome = 'cancelled', reason = 'interrupted by your next message' WHERE key = 'r11'"

# A checker and a way to spoil what it looks after; some have several.
TAMPERINGS: tuple[tuple[str, str, Tamper], ...] = (
    ("acked", "a stored message is gone", _sql("DELETE FROM inbox WHERE key = 'n4'")),
    ("lost", "a run never ends", _sql("UPDATE inbox SET state = 'running', outcome = NULL WHERE key = 'n4'")),
    ("lost", "a delivery is left lying", _sql("UPDATE deliveries SET state = 'doubtful' WHERE seq = 5")),
    ("outcomes", "another outcome", _sql("UPDATE inbox SET outcome = 'failed' WHERE key = 'k1'")),
    ("silent", "an answer is not there", _messages("neither", lambda all: tuple(m for m in all if m.reply_to != "n3"))),
    ("silent", "half an answer", _messages("neither", _changed("n1", text="[n1] This answer grows"))),
    ("misplaced", "another chat", _messages("neither", _changed("n3", chat="1"))),
    ("misplaced", "another thread", _messages("readback", _changed("r2", thread=""))),
    ("misplaced", "another account", _messages("keyed", _changed("o1", account="main"))),
    ("unmarked_duplicates", "a second copy", _messages("neither", lambda all: (*all, all[-1]))),
    (
        "unmarked_duplicates",
        "a marked copy without a doubt",
        _messages("keyed", lambda all: (*all, replace(all[-1], text=MARK + all[-1].text))),
    ),
    ("terminal_errors", "no terminal event", _sql("DELETE FROM journal WHERE kind = 'ended' AND run LIKE '%1'")),
    (
        "terminal_errors",
        "two terminal events",
        _sql("INSERT INTO journal SELECT run, seq + 1, kind, event, at FROM journal WHERE kind = 'ended'"),
    ),
    ("terminal_errors", "a gap", _sql("UPDATE journal SET seq = seq + 7 WHERE kind = 'ended'")),
    ("order", "parts in disorder", _late),
    ("effects", "an effect happened twice", _twice),
    ("integrity", "pages that belong to nobody", _sql("SELECT 1")),
    ("left_behind", "a placeholder", _messages("keyed", lambda all: (*all, replace(all[-1], text="…")))),
)


# The same for what only the large scenario has.
LARGE_TAMPERINGS: tuple[tuple[str, str, Tamper], ...] = (
    ("silent", "a command without its reply", _messages("keyed", _without("k4"))),
    ("silent", "a stranger who is told nothing", _messages("neither", _without("n14"))),
    ("silent", "a picture that nobody looked at", _messages("readback", _changed("r5", text="[r5]"))),
    ("silent", "a file that is not there", _messages("keyed", lambda all: tuple(m for m in all if not m.files))),
    ("silent", "the end of a queued message that was deleted", _messages("drafts", _without("d4"))),
    ("silent", "a text that was in doubt once", _messages("bare", _without("b4"))),
    ("silent", "a refusal that nobody hears of", _sql("DELETE FROM deliveries WHERE cause = 'lost'")),
    ("silent", "a task that was lost unsaid", _sql("UPDATE tasks SET state = 'lost' WHERE kind = 'frail'")),
    ("lost", "a resumable task that was given up", _sql("UPDATE tasks SET state = 'lost' WHERE kind = 'report'")),
    ("lost", "a stranger is let in", _sql("UPDATE inbox SET key = 'n15' WHERE key = 'n3'")),
    ("misplaced", "in the chat that has moved away", _messages("bare", _changed("b6", chat="3"))),
    ("misplaced", "a draft in another chat", _drafted_elsewhere),
    ("unmarked_duplicates", "a file twice", _messages("neither", lambda all: (*all, *(m for m in all if m.files)))),
    ("effects", "a payment twice beside what may be repeated", _twice),
)

# The same for what only people do.
PEOPLE_TAMPERINGS: tuple[tuple[str, str, Tamper], ...] = (
    ("silent", "an admitted stranger without an answer", _messages("neither", _loose_without("[n1]"))),
    ("silent", "a stranger who gets no code", _messages("neither", _without("n9"))),
    ("misplaced", "an admitted stranger's answer elsewhere", _messages("neither", _loose_moved("[n1]", "9"))),
    ("misplaced", "a question about a stranger elsewhere", _messages("keyed", _loose_moved("neither:8 would", "1"))),
    ("acked", "a press that is gone", _sql("DELETE FROM inbox WHERE reason = 'pressed'")),
    ("lost", "a removed person's task went on", _sql("UPDATE tasks SET state = 'succeeded'")),
    ("outcomes", "a removed person's run went on", _sql("UPDATE inbox SET outcome = 'completed' WHERE key = 'n8'")),
    ("people", "answered while still a stranger", _messages("neither", _answering("n1", "n2"))),
    ("people", "answered after the block", _messages("neither", _answering("n10", "n11"))),
    ("people", "welcomed twice", _sql(f"{_AGAIN} WHERE cause = 'pairing' AND lane = 'neither:main:8'")),
    ("people", "the owner is not asked", _sql("DELETE FROM deliveries WHERE cause = 'pairing' AND lane LIKE '%home'")),
    ("people", "a schedule held back unsaid", _sql("DELETE FROM deliveries WHERE cause = 'lapsed'")),
    ("people", "a decision without a trace", _sql("DELETE FROM audit WHERE action = 'removed'")),
    ("people", "one decision, two entries", _sql(_AUDIT_AGAIN)),
    ("people", "somebody nobody admitted", _sql("UPDATE identities SET id = 'neither:66' WHERE id = 'neither:9'")),
    ("people", "a block that is gone", _sql("UPDATE persons SET role = 'member' WHERE role = 'blocked'")),
    ("people", "a link of two persons", _sql(*_PARTED)),
)


# The same for what is asked of people.
APPROVAL_TAMPERINGS: tuple[tuple[str, str, Tamper], ...] = (
    ("approvals", "a question that hangs", _sql("UPDATE approvals SET state = 'open' WHERE call = 'n7-pay'")),
    (
        "approvals",
        "a denial that counts as a yes",
        _sql("UPDATE approvals SET state = 'granted' WHERE call = 'r1-pay'"),
    ),
    ("approvals", "paid without an approval", lambda played: played._replace(ledger=(*played.ledger, "r1-pay"))),
    ("approvals", "asked twice", _sql("UPDATE approvals SET run = (SELECT run FROM inbox WHERE key = 'k2')")),
    ("approvals", "an answer without a trace", _sql("DELETE FROM audit WHERE action = 'denied'")),
    (
        "approvals",
        "an answer that nobody hears of",
        _sql("DELETE FROM journal WHERE CAST(event AS TEXT) LIKE '%approval_answered%'"),
    ),
    ("approvals", "buttons that stay", _messages("keyed", _with_button)),
    ("effects", "a tool acts twice", _twice),
    ("silent", "a question without its end", _messages("readback", _loose_without("Denied by"))),
    ("misplaced", "a member's question elsewhere", _messages("keyed", _loose_moved("Approved once by", "1"))),
)


# The same for messages to a chat that is busy.
BUSY_TAMPERINGS: tuple[tuple[str, str, Tamper], ...] = (
    (
        "busy",
        "answered where it joined, and by itself",
        _messages("keyed", lambda all: (*all, replace(all[-1], key="other.1", text="[k32] is answered."))),
    ),
    ("busy", "joined, and left out of the answer", _messages("neither", _renamed("[n23]", "[n29]"))),
    ("busy", "in a checkpoint, and a run of its own", _sql("UPDATE inbox SET joined = run WHERE key = 'k32'")),
    ("busy", "joined after it had run", _sql("UPDATE inbox SET attempt = 1 WHERE key = 'r33'")),
    ("busy", "never answered", _sql("UPDATE inbox SET outcome = 'failed' WHERE key = 'n11'")),
    ("busy", "interrupted in a chat that queues", _sql(_INTERRUPTED)),
    ("busy", "answered in another order", _sql("UPDATE inbox SET ended = 0 WHERE key = 'k13'")),
    ("busy", "nothing joins at all", lambda played: played._replace(scenario=played.scenario._replace(joins=()))),
)


PLAYS = (
    (TEN, TAMPERINGS),
    (SIXTY, LARGE_TAMPERINGS),
    (PEOPLE, PEOPLE_TAMPERINGS),
    (APPROVALS, APPROVAL_TAMPERINGS),
    (BUSY, BUSY_TAMPERINGS),
)


async def _tamper(line: socket.socket, folder: Path) -> int:
    blind = 0
    for scenario, tamperings in PLAYS:
        own = folder / f"{len(tamperings)} tamperings"
        own.mkdir()
        async with driver.Nursery(line).open() as nursery:
            played = await driver.play(scenario, (), own, nursery)
        if told := checkers.judge(played).violations:
            print(f"the clean run is not clean: {told}")
            return 1
        blind += _spoil(played, tamperings, own)
    return 1 if blind else 0


def _spoil(played: Played, tamperings: tuple[tuple[str, str, Tamper], ...], folder: Path) -> int:
    blind = 0
    for number, (checker, what, tamper) in enumerate(tamperings):
        copy = folder / f"{number}.db"
        shutil.copy(played.database, copy)
        found = checkers.CHECKERS[checker](checkers.Case(tamper(played._replace(database=copy))))
        blind += not found
        print(f"{checker}: {what}: {found[0] if found else 'NOT SEEN'}")
    return blind


def main() -> int:
    line = zygote.start()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_tamper(line, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
