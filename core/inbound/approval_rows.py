"""The rows of approvals: questions that wait for an answer, and approvals that hold for longer than once."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidings.core import ids
from tidings.core.agent import ApprovalAsked, Verdict
from tidings.core.desk.approvals import Answer, Choice, Question, Standing
from tidings.core.roles import Person
from tidings.core.store.steady_time import Lag
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Target, encode

# How many characters of an id people write; more are needed only if two open questions begin alike.
SHORT = 6
# How many questions that begin alike are looked at.
ALIKE = 50


class NewQuestion(NamedTuple):
    """A question on its way into the store."""

    id: str
    run: str
    bot: str
    conversation: str
    generation: int
    event: ApprovalAsked
    choices: tuple[Choice, ...]
    person: Person
    asked: float
    deadline: float
    delivery: str = ""
    target: Target | None = None


class Decision(NamedTuple):
    """How a question ends."""

    state: Answer
    choice: Choice | None = None
    # Who decided, in words.
    by: str = ""
    # Why the call does not run, in words for the model.
    reason: str = ""

    @property
    def granted(self) -> bool:
        return self.state is Answer.GRANTED


def add(tx: Transaction, new: NewQuestion, decision: Decision | None = None) -> None:
    """Stores a question, or one that is decided before anybody is asked."""
    event = new.event
    tx.execute(
        "INSERT INTO approvals (id, run, call, digest, bot, conversation, generation, tool, detail, texts, covers,"
        " choices, person, asker, state, choice, decider, reason, delivery, target, asked, deadline, decided)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(new.id, new.run, event.call, event.digest, new.bot, new.conversation, new.generation),
        *(event.tool, event.detail, msgspec.json.encode(event.read).decode(), event.covers),
        *(" ".join(new.choices), new.person.id, new.person.label),
        *(decision.state if decision else Answer.OPEN, (decision.choice or "") if decision else ""),
        *(decision.by if decision else "", decision.reason if decision else ""),
        *(new.delivery, encode(new.target) if new.target else None),
        *(new.asked, new.deadline, new.asked if decision else None),
    )


def decide(tx: Transaction, id: str, decision: Decision, now: float) -> bool:
    """Ends an open question; false if it is already over, so each question is answered once."""
    return bool(
        tx.count(
            "UPDATE approvals SET state = ?, choice = ?, decider = ?, reason = ?, decided = ?"
            " WHERE id = ? AND state = 'open'",
            *(decision.state, decision.choice or "", decision.by, decision.reason, now, id),
        )
    )


def get(tx: Transaction, id: str) -> Row | None:
    return tx.one("SELECT * FROM approvals WHERE id = ?", id)


def find(tx: Transaction, id: str) -> list[Row]:
    """The question with this id or of this run, or those whose ids begin like this: the open ones, if there are any."""
    if (row := get(tx, id)) is not None:
        return [row]
    of_run = tx.all("SELECT * FROM approvals WHERE run = ? AND state = 'open'", id)
    if of_run or len(id) < SHORT:
        return of_run
    begins = id if id.startswith("ask_") else f"ask_{id}"
    alike = tx.all("SELECT * FROM approvals WHERE id >= ? AND id < ? ORDER BY id LIMIT ?", begins, f"{begins}~", ALIKE)
    return [row for row in alike if row["state"] == Answer.OPEN] or alike


def open_of_run(tx: Transaction, run: str) -> Row | None:
    return tx.one("SELECT * FROM approvals WHERE run = ? AND state = 'open'", run)


def open_page(tx: Transaction, person: str, limit: int) -> list[Row]:
    """Open questions, the first to expire first; of one person, or of all for an empty person."""
    if person:
        return tx.all("SELECT * FROM approvals WHERE state = 'open' AND person = ? ORDER BY seq LIMIT ?", person, limit)
    return tx.all("SELECT * FROM approvals WHERE state = 'open' ORDER BY deadline LIMIT ?", limit)


def due(tx: Transaction, now: float, limit: int) -> list[Row]:
    return tx.all(
        "SELECT * FROM approvals WHERE state = 'open' AND deadline <= ? ORDER BY deadline LIMIT ?", now, limit
    )


def next_deadline(tx: Transaction) -> float | None:
    row = tx.one("SELECT deadline FROM approvals WHERE state = 'open' ORDER BY deadline LIMIT 1")
    return float(row["deadline"]) if row else None


def count_open(tx: Transaction) -> int:
    row = tx.one("SELECT count(*) AS n FROM approvals WHERE state = 'open'")
    return int(row["n"]) if row else 0


def verdicts(tx: Transaction, run: str) -> tuple[Verdict, ...]:
    """The answers to all questions of a run so far, in order."""
    rows = tx.all(
        "SELECT call, digest, state, reason FROM approvals WHERE run = ? AND state IN ('granted', 'denied', 'expired')"
        " ORDER BY seq",
        run,
    )
    return tuple(
        Verdict(call=row["call"], granted=row["state"] == Answer.GRANTED, reason=row["reason"], digest=row["digest"])
        for row in rows
    )


def deliveries(tx: Transaction, run: str) -> list[Row]:
    """The deliveries of a run's questions, and of what replaced them."""
    asked = "SELECT delivery FROM approvals WHERE run = ? AND delivery <> ''"
    return tx.all(
        f"SELECT id FROM deliveries WHERE id IN ({asked})"
        f" UNION ALL SELECT id FROM deliveries WHERE replaces <> '' AND replaces IN ({asked})",
        *(run, run),
    )


def erase(tx: Transaction, run: str) -> None:
    tx.execute("DELETE FROM approvals WHERE run = ?", run)


def forget(tx: Transaction, run: str) -> None:
    """Erases the questions of a run with what was approved for longer, which is in its words."""
    erase(tx, run)
    tx.execute("DELETE FROM standing_approvals WHERE run = ?", run)


def postpone(tx: Transaction, lag: Lag) -> None:
    """Moves questions that were asked while steady time was late, so that they stay open as long as promised."""
    tx.execute(
        "UPDATE approvals SET deadline = deadline + ?, asked = asked + ? WHERE state = 'open' AND asked > ?",
        *(lag.seconds, lag.seconds, lag.since),
    )


def target_of(row: Row) -> Target:
    """Where the question was asked; only for a question with a delivery."""
    return msgspec.json.decode(row["target"], type=Target)


def question_of(row: Row, ahead: float) -> Question:
    """`ahead` turns steady time into wall time."""
    return Question(
        id=row["id"],
        run=row["run"],
        bot=row["bot"],
        conversation=row["conversation"],
        tool=row["tool"],
        detail=row["detail"],
        choices=tuple(Choice(each) for each in row["choices"].split()),
        asked=row["asked"] + ahead,
        expires=row["deadline"] + ahead,
        asker=row["asker"],
        person=row["person"],
        read=tuple(msgspec.json.decode(row["texts"])),
        state=Answer(row["state"]),
        choice=Choice(row["choice"]) if row["choice"] else None,
        by=row["decider"],
        decided=0.0 if row["decided"] is None else row["decided"] + ahead,
        reason=row["reason"],
    )


# Approvals that hold for longer than once.


def covering(tx: Transaction, new: NewQuestion, now: float) -> list[Row]:
    """The standing approvals for exactly this call, whoever gave them.

    One that was given to a run without texts of others covers no run with such texts.
    """
    event = new.event
    return tx.all(
        "SELECT * FROM standing_approvals WHERE bot = ? AND tool = ? AND covers = ? AND covers <> '' AND expires > ?"
        " AND (conversation = '' OR (conversation = ? AND generation = ?)) AND tainted >= ?",
        *(new.bot, event.tool, event.covers, now, new.conversation, new.generation, int(bool(event.read))),
    )


def let_stand(tx: Transaction, row: Row, by: Person, *, everywhere: bool, expires: float) -> None:
    """Stores that the call of a question may run again, in its talk or everywhere."""
    tx.execute(
        "INSERT INTO standing_approvals (id, bot, tool, covers, conversation, generation, tainted, person, giver, run,"
        " expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(ids.new("sta"), row["bot"], row["tool"], row["covers"]),
        *("" if everywhere else row["conversation"], row["generation"], int(row["texts"] != "[]")),
        *(by.id, by.label, row["run"], expires),
    )


def standing(tx: Transaction, person: str, now: float) -> list[Row]:
    """The approvals that one person gave, or all for an empty person."""
    rows = tx.all("SELECT * FROM standing_approvals WHERE expires > ? ORDER BY expires", now)
    return [row for row in rows if not person or row["person"] == person]


def revoke(tx: Transaction, id: str) -> None:
    tx.execute("DELETE FROM standing_approvals WHERE id = ?", id)


def purge(tx: Transaction, now: float) -> None:
    tx.execute("DELETE FROM standing_approvals WHERE expires <= ?", now)


def standing_of(row: Row, ahead: float) -> Standing:
    return Standing(
        *(row["id"], row["bot"], row["tool"], row["covers"], row["conversation"], row["giver"], row["expires"] + ahead)
    )
