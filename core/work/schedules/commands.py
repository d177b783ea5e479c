"""The commands /every, /at and /schedules."""

from __future__ import annotations

import msgspec

from tidings.core.clock import Clock
from tidings.core.desk.work import Firing, Plan, Schedule
from tidings.core.errors import Overdrawn, TidingsError, Unkeepable, Unknown, Unsupported
from tidings.core.inbound import inbox
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.people.people import People
from tidings.core.redaction import one_line
from tidings.core.roles import Permission
from tidings.core.store.store import Transaction
from tidings.core.types import Inbound
from tidings.core.work.schedules import rows as schedule_rows
from tidings.core.work.schedules import when as schedule_when
from tidings.core.work.schedules.schedules import Schedules
from tidings.core.work.schedules.zones import told
from tidings.core.work.wording import whispered

NAME_CHARACTERS = 60
HOW = {
    True: "Say how often and what, for example: /every day at 9:00 tell me the weather, /every 30m check the queue,"
    " /every 0 9 * * 1-5 say what is on today",
    False: "Say when and what, for example: /at 18:30 remind me to call mum, /at in 20m ask whether the cake is done,"
    " /at tomorrow 9:00 tell me the weather",
}
NO_LATER = "I cannot schedule this, because I could not send messages here later."
VERBS = ("pause", "resume", "run", "stop", "remove", "show")
HOW_MANY = "Write /schedules, or /schedules pause, resume, run, stop, show or remove with an id of that list."
# Errors that become a reply.
REFUSALS = (Unkeepable, Unknown, Unsupported, Overdrawn)
OUTPUT_CHARACTERS = 1_000
NOT_YOURS = "Somebody else planned “{name}”. They can change it, and so can an owner or admin."


class ScheduleCommands:
    def __init__(self, clock: Clock, schedules: Schedules, people: People) -> None:
        self._clock = clock
        self._schedules = schedules
        self._people = people

    def commands(self) -> tuple[Command, ...]:
        return (
            Command(
                "every", "do something repeatedly: /every day at 9:00 PROMPT", self._every, Permission.WORK, runs=True
            ),
            Command("at", "do something once, later: /at 18:30 PROMPT", self._at, Permission.WORK, runs=True),
            Command(
                "schedules",
                "list schedules; with pause, resume, run, stop or remove and an ID",
                self._look,
                Permission.WORK,
            ),
        )

    def _every(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        return self._add(tx, inbound, every=True)

    def _at(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        return self._add(tx, inbound, every=False)

    def _add(self, tx: Transaction, inbound: Inbound, *, every: bool) -> Obeyed:
        said, wall = inbound.argument, self._clock.wall()
        if not said:
            return Obeyed(HOW[every])
        try:
            when, prompt = schedule_when.split(said, "", wall, every=every)
            if not prompt:
                return Obeyed(f"You said when, but not what to do. {HOW[every]}")
            plan = Plan(
                name=one_line(prompt)[:NAME_CHARACTERS],
                when=when.text,
                target=inbound.target,
                prompt=prompt,
                bot=inbound.bot,
                zone=when.zone,
                conversation=inbound.conversation.id,
                sender=inbound.sender.id,
                asker=inbound.asker,
            )
            added = self._schedules.put(tx, plan, when)
        except Unsupported:
            return Obeyed(whispered(inbound, "every" if every else "at") or NO_LATER)
        except REFUSALS as error:
            return Obeyed(f"I cannot schedule this: {error}.")
        return Obeyed(f"{_planned(added, wall)} /schedules lists all schedules.")

    def _look(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        match inbound.argument.split():
            case []:
                return Obeyed(self._list(tx, inbound.conversation.id))
            case [verb, id] if verb.lower() in VERBS:
                return self._act(tx, inbound, verb.lower(), id)
            case [id, verb] if verb.lower() in VERBS:
                return self._act(tx, inbound, verb.lower(), id)
            case [id]:
                return self._act(tx, inbound, "show", id)
            case _:
                return Obeyed(HOW_MANY)

    def _list(self, tx: Transaction, conversation: str) -> str:
        wall = self._clock.wall()
        found = schedule_rows.all_of(tx, conversation, self._clock.ahead, wall)
        if not found:
            return f"There are no schedules here. {HOW[True]}"
        return "\n".join(["Planned here:", *(line(each, wall) for each in found)])

    def _act(self, tx: Transaction, inbound: Inbound, verb: str, id: str) -> Obeyed:
        wall = self._clock.wall()
        here = schedule_rows.all_of(tx, inbound.conversation.id, self._clock.ahead, wall)
        found = [each for each in here if each.id.startswith(id)]
        if len(found) != 1:
            many = f"Several schedules here begin with {id}: write more of the id." if found else ""
            return Obeyed(many or f"There is no schedule {id} here. /schedules lists them.")
        known = found[0]
        person = self._people.find(inbound)
        is_own = self._people.is_own(known.plan.asker, person)
        if verb != "show" and not is_own and not self._people.may(person, Permission.OTHERS):
            return Obeyed(NOT_YOURS.format(name=known.plan.name))
        try:
            if verb == "stop":
                return _stop(tx, inbound, known)
            return self._do(tx, verb, known, wall)
        except REFUSALS as error:
            return Obeyed(_sentence(error))

    def _do(self, tx: Transaction, verb: str, known: Schedule, wall: float) -> Obeyed:
        name = known.plan.name
        match verb:
            case "pause":
                self._schedules.alter(tx, known.id, msgspec.structs.replace(known.plan, paused=True))
                return Obeyed(f"“{name}” is paused. /schedules resume {known.id} continues it.")
            case "resume":
                plan = msgspec.structs.replace(known.plan, paused=False, paused_reason="")
                return Obeyed(_planned(self._schedules.alter(tx, known.id, plan), wall))
            case "run":
                self._schedules.fire_now(tx, known.id)
                return Obeyed(f"“{name}” runs now.")
            case "remove":
                self._schedules.drop(tx, known.id)
                return Obeyed(f"“{name}” is removed.")
            case _:
                return Obeyed(shown(known, wall))


def _stop(tx: Transaction, inbound: Inbound, known: Schedule) -> Obeyed:
    """Stops the current firing; its end is reported as usual."""
    run = known.last.run if known.last and known.last.state == "running" else ""
    if not run or not inbox.ask_stop(tx, run, inbound.sender.name or inbound.sender.id):
        return Obeyed(f"“{known.plan.name}” does not run now.")
    return Obeyed(f"Stopping “{known.plan.name}”.")


def _planned(schedule: Schedule, wall: float) -> str:
    plan = schedule.plan
    if schedule.next is None:
        return f"“{plan.name}” does not run again."
    due = told(schedule.next, plan.zone, wall)
    if _is_once(plan):
        return f"Planned: “{plan.name}” {due}."
    return f"Planned: “{plan.name}” {rhythm(plan)}, next {due}."


def _is_once(plan: Plan) -> bool:
    try:
        return schedule_when.known(plan.when, plan.zone).once
    except Unkeepable:
        # The time may be unreadable now, such as for a time zone that was removed; that is reported when it is due.
        return False


def rhythm(plan: Plan) -> str:
    return plan.when if plan.when.startswith(("every", "@")) else f"by “{plan.when}”"


def line(schedule: Schedule, wall: float) -> str:
    """One schedule in a list: its name, its next time, and how the last firing went."""
    plan = schedule.plan
    pieces = [f"{schedule.id} “{plan.name}”"]
    if not _is_once(plan):
        pieces.append(rhythm(plan))
    pieces.append(coming(schedule, wall))
    if schedule.last:
        pieces.append(f"last: {outcome(schedule.last)}")
    return "; ".join(pieces)


def coming(schedule: Schedule, wall: float) -> str:
    if schedule.plan.paused:
        return "paused" + (f" ({schedule.plan.paused_reason})" if schedule.plan.paused_reason else "")
    if schedule.next is not None:
        return f"next {told(schedule.next, schedule.plan.zone, wall)}"
    return "over" if schedule_rows.is_over(schedule) else "runs no more once this has arrived"


def outcome(firing: Firing) -> str:
    """How a firing went, and whether its message arrived."""
    if firing.state != "done":
        reason = f" ({firing.reason})" if firing.reason else ""
        return {"waiting": "waits for its turn", "running": "runs now", "missed": "missed"}[firing.state] + reason
    went = firing.outcome + (f" ({firing.reason})" if firing.reason else "")
    if firing.delivery == "none":
        return f"{went}, silent"
    arrived = {"delivered": "delivered", "dead": "not delivered"}.get(firing.delivery, f"delivery {firing.delivery}")
    return f"{went}, {arrived}" + (f" ({firing.delivery_reason})" if firing.delivery_reason else "")


def shown(schedule: Schedule, wall: float) -> str:
    plan = schedule.plan
    lines = [line(schedule, wall), f"What: {plan.prompt or plan.command}", f"To: {plan.target}"]
    if schedule.last and schedule.last.output:
        lines.append(f"Last said: {schedule.last.output[-OUTPUT_CHARACTERS:]}")
    return "\n".join(lines)


def _sentence(error: TidingsError) -> str:
    words = str(error)
    return f"{words[:1].upper()}{words[1:]}."
