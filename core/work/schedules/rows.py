"""The rows of schedules and firings: each instant fires once, and its end and report are one transaction."""

from __future__ import annotations

import msgspec

from tidings.core import ids
from tidings.core.agent import Outcome, OutcomeKind
from tidings.core.clock import Clock
from tidings.core.desk.work import Firing, Plan, Schedule
from tidings.core.errors import Unknown
from tidings.core.inbound import inbox
from tidings.core.inbound.inbox import Claim
from tidings.core.memory import conversations, ownership
from tidings.core.outbound import notices, outbox
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.redaction import one_line, plain
from tidings.core.store.steady_time import Lag
from tidings.core.store.store import Row, Transaction
from tidings.core.store.wakeups import CommandDue
from tidings.core.types import Body, Conversation, Errand, File, Given, Inbound, Origin, Sender, Target, encode
from tidings.core.work.schedules.zones import told
from tidings.core.work.tasks import delegation
from tidings.core.work.tasks import rows as task_rows

# The adapter name of a schedule's own conversation; no platform has this name.
ADAPTER = "schedule"
OPEN = "state IN ('waiting', 'running')"
# A schedule that has ended is listed for a day, and removed after a month.
LISTED_SECONDS = 86_400.0
KEPT_SECONDS = 30 * 86_400.0
# A slice is small, so that other writers do not wait long.
FORGOTTEN_AT_ONCE = 200
# States of a delivery that never change.
FINAL = ("delivered", "dead")
# The answer of a job that has nothing to report; every agent is told about it.
SILENCE = "[SILENT]"
INSTRUCTIONS = (
    "This is a scheduled job, due {due}. It was requested earlier, and no person is present to answer "
    "a question or approve anything. What you answer is sent as a message of its own; if there is nothing worth "
    "telling, answer with " + SILENCE + " and nothing else."
)


def conversation_of(schedule: str) -> Conversation:
    return Conversation(adapter=ADAPTER, account="main", chat=schedule)


def plan_of(row: Row) -> Plan:
    return msgspec.json.decode(row["plan"], type=Plan)


def find(tx: Transaction, id: str) -> Row:
    row = tx.one("SELECT * FROM schedules WHERE id = ? AND removed = 0", id)
    if row is None:
        raise Unknown(f"there is no schedule {id}")
    return row


def begin(tx: Transaction, schedule: str, plan: Plan, instant: float, due: float, clock: Clock, late: bool) -> str:
    """Stores a firing and returns its id; empty if this instant was already fired."""
    firing, run = ids.new("fire"), "" if plan.command else ids.new("run")
    new = tx.count(
        "INSERT INTO firings (id, schedule, instant, due, plan, late, state, run, started)"
        " VALUES (?, ?, ?, ?, ?, ?, 'waiting', ?, ?) ON CONFLICT (schedule, instant) DO NOTHING",
        firing,
        schedule,
        instant,
        due,
        encode(plan),
        int(late),
        run,
        clock.wall() if run else None,
    )
    if not new:
        return ""
    if not run:
        tx.announce(CommandDue(schedule))
        return firing
    message = _message(schedule, plan, firing, told(due, plan.zone, clock.wall()))
    # Each firing starts without the memory of the last one.
    conversations.begin_generation(tx, message.conversation.id)
    inbox.put_unclaimed(tx, message, run, clock.now())
    return firing


def _message(schedule: str, plan: Plan, firing: str, due: str) -> Inbound:
    return Inbound(
        key=f"schedule/{firing}",
        conversation=conversation_of(schedule),
        target=plan.target,
        sender=Sender(id=plan.sender or "owner"),
        origin=Origin.SCHEDULE,
        text=plan.prompt,
        bot=plan.bot,
        given=Given(instructions=INSTRUCTIONS.format(due=due)),
        errand=Errand(id=firing, tools=plan.tools, asker=plan.asker),
    )


def postpone(tx: Transaction, lag: Lag) -> None:
    """Moves relative schedules made while steady time was late, so that they keep their due times."""
    tx.execute(
        "UPDATE schedules SET next = next + ? WHERE next IS NOT NULL AND paused = 0 AND removed = 0 AND steady = 1"
        " AND created > ?",
        lag.seconds,
        lag.since_wall,
    )


def awaits_its_turn(tx: Transaction, schedule: str) -> bool:
    """Tells whether a firing already waits behind one that runs."""
    row = tx.one(
        "SELECT 1 FROM firings f LEFT JOIN inbox i ON i.run = f.run AND f.run <> ''"
        f" WHERE f.schedule = ? AND f.{OPEN} AND coalesce(i.state, f.state) = 'waiting'",
        schedule,
    )
    return row is not None


def miss(
    tx: Transaction,
    schedule: str,
    plan: Plan,
    instant: float,
    due: float,
    reason: str,
    words: str,
    clock: Clock,
    *,
    hourly: bool,
) -> None:
    """Stores a missed instant, and reports it if there are words; at most once an hour if it may recur."""
    firing, wall = ids.new("fire"), clock.wall()
    new = tx.count(
        "INSERT INTO firings (id, schedule, instant, due, plan, state, reason, ended) VALUES (?, ?, ?, ?, ?, 'missed',"
        " ?, ?) ON CONFLICT (schedule, instant) DO NOTHING",
        firing,
        schedule,
        instant,
        due,
        encode(plan),
        reason,
        wall,
    )
    if not new or not words:
        return
    where = plan.failures or plan.target
    if not hourly:
        _tell(tx, firing, plan, where, words, clock)
        return
    cause, source = f"missed/{schedule}", _source(plan)
    notice = Owed(ids.new("dlv"), Class.NOTICE, where, Body(text=words), None, cause, source=source)
    outbox.put_notice(tx, notice, clock.now())


def end(tx: Transaction, firing: str, outcome: Outcome, clock: Clock) -> None:
    """Ends a firing; a second call finds it ended and reports nothing."""
    row = tx.one(f"SELECT * FROM firings WHERE id = ? AND {OPEN}", firing)
    if row is None:
        return
    tx.execute(
        "UPDATE firings SET state = 'done', outcome = ?, reason = ?, output = ?, ended = ? WHERE id = ?",
        outcome.kind,
        one_line(outcome.reason),
        plain(outcome.text)[-task_rows.OUTPUT_CHARACTERS :],
        clock.wall(),
        firing,
    )
    plan = plan_of(row)
    if outcome.kind is not OutcomeKind.COMPLETED:
        _tell(tx, firing, plan, plan.failures or plan.target, delegation.told(plan.name, outcome), clock)
        return
    words = outcome.text.strip()
    if words in ("", SILENCE) and not outcome.files:
        return
    if row["late"]:
        words = f"(This was due {told(row['due'], plan.zone, clock.wall())}; I could not run it then.)\n\n{words}"
    _tell(tx, firing, plan, plan.target, words, clock, outcome.files)


def end_run(tx: Transaction, claimed: Claim, outcome: Outcome, *, clock: Clock) -> None:
    """Ends the firing that a run was for, in the transaction that ends the run."""
    assert claimed.inbound.errand is not None
    end(tx, claimed.inbound.errand.id, outcome, clock)


def _tell(
    tx: Transaction, firing: str, plan: Plan, where: Target, words: str, clock: Clock, files: tuple[File, ...] = ()
) -> None:
    """Sends the report to the schedule's target, and adds it to the memory of that conversation."""
    body, key = Body(text=plain(words), files=files), f"firing/{firing}"
    owed = Owed(ids.new("dlv"), Class.REPLY, where, body, None, firing, key, source=_source(plan))
    outbox.put(tx, owed, clock.now())
    tx.execute("UPDATE firings SET delivery = ? WHERE id = ?", owed.id, firing)
    if plan.conversation and where == plan.target:
        # In other conversations the notice is remembered when it arrives.
        memory = ownership.memory_of(tx, plan.asker, plan.conversation)
        notices.remember(tx, memory, owed.notice, clock.wall())


def _source(plan: Plan) -> str:
    return f"the schedule “{plan.name}”"


def follow_deliveries(tx: Transaction, clock: Clock) -> None:
    """Stores the final states of deliveries; a lost one is reported where the schedule reports failures."""
    rows = tx.all(
        "SELECT f.*, d.state AS settled, d.reason AS why, d.target AS place FROM firings f"
        " JOIN deliveries d ON d.id = f.delivery"
        " WHERE f.delivery <> '' AND f.delivery_state = '' AND d.state IN ('delivered', 'dead')"
    )
    for row in rows:
        tx.execute(
            "UPDATE firings SET delivery_state = ?, delivery_reason = ? WHERE id = ?",
            row["settled"],
            row["why"],
            row["id"],
        )
        plan, place = plan_of(row), msgspec.json.decode(row["place"], type=Target)
        if row["settled"] == "dead" and plan.failures and plan.failures.lane != place.lane:
            said = row["output"].strip()
            words = f"⚠ “{plan.name}” ran, but its message could not be delivered to {place}: {row['why']}."
            text = "\n\n".join(filter(None, (words, said)))
            key = f"undelivered/{row['id']}"
            body, source = Body(text=text), _source(plan)
            owed = Owed(ids.new("dlv"), Class.REPLY, plan.failures, body, None, row["id"], key, source=source)
            outbox.put_once(tx, owed, clock.now())


def all_of(tx: Transaction, owner: str, ahead: float, wall: float) -> list[Schedule]:
    """Schedules of one conversation, or of all for an empty name; the next due first."""
    rows = tx.all(
        "SELECT * FROM schedules WHERE removed = 0 AND (? = '' OR owner = ?) ORDER BY next IS NULL, next, created",
        owner,
        owner,
    )
    found = [schedule_of(tx, row, ahead) for row in rows]
    return [each for each in found if not is_over(each) or (each.last and _ended(each.last) > wall - LISTED_SECONDS)]


def _ended(firing: Firing) -> float:
    return firing.ended or firing.instant


def is_over(schedule: Schedule) -> bool:
    """Tells whether a schedule never runs again and its last message has arrived or is lost."""
    last = schedule.last
    if schedule.next is not None or schedule.plan.paused:
        return False
    return last is None or (last.state in ("done", "missed") and last.delivery in ("none", *FINAL))


def schedule_of(tx: Transaction, row: Row, ahead: float) -> Schedule:
    """`ahead` turns steady time into wall time."""
    last = tx.one("SELECT * FROM firings WHERE schedule = ? ORDER BY due DESC, instant DESC LIMIT 1", row["id"])
    due = row["next"]
    return Schedule(
        id=row["id"],
        plan=plan_of(row),
        created=row["created"],
        next=None if due is None or row["paused"] else due + (ahead if row["steady"] else 0.0),
        fired=row["fired"],
        last=firing_of(tx, last) if last else None,
    )


def firing_of(tx: Transaction, row: Row) -> Firing:
    state = row["state"]
    run = tx.one("SELECT state FROM inbox WHERE run = ?", row["run"]) if row["run"] and state == "waiting" else None
    owed = tx.one("SELECT state, reason FROM deliveries WHERE id = ?", row["delivery"]) if row["delivery"] else None
    # The present state of the delivery, if it still exists: the owner may have retried it.
    kept = (row["delivery_state"] or "none", row["delivery_reason"])
    settled, why = (owed["state"], owed["reason"]) if owed else kept
    return Firing(
        id=row["id"],
        schedule=row["schedule"],
        instant=row["due"],
        state="running" if run and run["state"] == "running" else state,
        outcome=row["outcome"],
        reason=row["reason"],
        delivery=settled,
        delivery_reason=why,
        run=row["run"],
        started=row["started"],
        ended=row["ended"],
        output=row["output"],
    )


def forget(tx: Transaction, wall: float) -> None:
    """Removes one slice of firings and schedules that ended long ago; a schedule goes after its last firing."""
    over = tx.one(
        "SELECT id FROM schedules WHERE (removed = 1 OR (next IS NULL AND paused = 0)) AND created < ? AND NOT EXISTS"
        f" (SELECT 1 FROM firings f WHERE f.schedule = schedules.id AND f.{OPEN}) AND ? > coalesce"
        "((SELECT f.ended FROM firings f WHERE f.schedule = schedules.id ORDER BY f.due DESC LIMIT 1), 0) LIMIT 1",
        wall - KEPT_SECONDS,
        wall - KEPT_SECONDS,
    )
    if over is None:
        return
    gone = tx.all("SELECT instant FROM firings WHERE schedule = ? LIMIT ?", over["id"], FORGOTTEN_AT_ONCE)
    for row in gone:
        tx.execute("DELETE FROM firings WHERE schedule = ? AND instant = ?", over["id"], row["instant"])
    if len(gone) < FORGOTTEN_AT_ONCE:
        tx.execute("DELETE FROM schedules WHERE id = ?", over["id"])


def is_at_work(tx: Transaction, owner: str) -> bool:
    """Tells whether a firing of this conversation's schedules is open, or its report is on its way."""
    owed = "(delivery <> '' AND delivery_state = '')"
    return any(
        tx.one(f"SELECT 1 FROM firings WHERE schedule = ? AND ({OPEN} OR {owed}) LIMIT 1", row["id"])
        for row in tx.all("SELECT id FROM schedules WHERE owner = ?", owner)
    )


def erase(tx: Transaction, owner: str) -> list[str]:
    """Removes the schedules of a conversation with their firings; returns the runs of these."""
    runs: list[str] = []
    for row in tx.all("SELECT id FROM schedules WHERE owner = ?", owner):
        fired = tx.all("SELECT run FROM firings WHERE schedule = ?", row["id"])
        runs += [each["run"] for each in fired if each["run"]]
        tx.execute("DELETE FROM firings WHERE schedule = ?", row["id"])
        tx.execute("DELETE FROM schedules WHERE id = ?", row["id"])
    return runs
