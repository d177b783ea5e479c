"""The parts of a gateway, each built once from those before it, and the order in which they begin and end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tidings.core.allowances.allowances import Allowances
from tidings.core.allowances.gateway_watch import GatewayWatch
from tidings.core.allowances.usage import UsageService
from tidings.core.clock import Clock
from tidings.core.gateway.options import Options, Team
from tidings.core.gateway.supervisor import Supervisor
from tidings.core.inbound import abilities
from tidings.core.inbound.affording import Affording
from tidings.core.inbound.approval_commands import ApprovalCommands
from tidings.core.inbound.approvals import Approvals
from tidings.core.inbound.asking import Asking
from tidings.core.inbound.attention import Attention
from tidings.core.inbound.bot_exchanges import BotExchanges
from tidings.core.inbound.bots import Bots
from tidings.core.inbound.busy_modes import BusyModes
from tidings.core.inbound.commands import Command
from tidings.core.inbound.continuing import Continuing
from tidings.core.inbound.door import Entrance
from tidings.core.inbound.listen_command import ListenCommand
from tidings.core.inbound.pairing import Pairing
from tidings.core.inbound.people_commands import PeopleCommands
from tidings.core.inbound.people_service import PeopleService
from tidings.core.inbound.settlement import Sent, Settlement
from tidings.core.inbound.signs import Signs
from tidings.core.inbound.slots import Slots
from tidings.core.inbound.stopping import Stopping
from tidings.core.inbound.strangers import Strangers
from tidings.core.inbound.talk_commands import TalkCommands
from tidings.core.inbound.usage_commands import UsageCommands
from tidings.core.operations.alerts import Alerts
from tidings.core.operations.departures import Departures
from tidings.core.operations.erasure import Erasure
from tidings.core.operations.upkeep import Upkeep
from tidings.core.outbound.accounts import Accounts
from tidings.core.outbound.courier import Courier
from tidings.core.part import Part
from tidings.core.people.people import People
from tidings.core.people.register import Register
from tidings.core.runs.feed import Feed
from tidings.core.settings import Core
from tidings.core.store.essentials import Essentials
from tidings.core.types import Origin
from tidings.core.work.board.conclusions import Conclusions
from tidings.core.work.board.service import BoardService
from tidings.core.work.board.supervisor import BoardSupervisor
from tidings.core.work.mandates import Mandates
from tidings.core.work.processes.fence import choose
from tidings.core.work.processes.processes import Processes
from tidings.core.work.schedules import rows as schedule_rows
from tidings.core.work.schedules.commands import ScheduleCommands
from tidings.core.work.schedules.schedules import Schedules
from tidings.core.work.schedules.shell import ScheduledShell
from tidings.core.work.tasks import delegation
from tidings.core.work.tasks import rows as task_rows
from tidings.core.work.tasks.commands import TaskCommands
from tidings.core.work.tasks.delegation import Delegation
from tidings.core.work.tasks.tasks import Tasks


@dataclass(frozen=True, kw_only=True)
class Parts:
    """All parts except those that receive messages; the desk is built from them, and the dispatcher from the desk."""

    essentials: Essentials
    home: Path
    accounts: Accounts
    supervisor: Supervisor
    people: People
    people_service: PeopleService
    departures: Departures
    entrance: Entrance
    bots: Bots
    busy: BusyModes
    feed: Feed
    courier: Courier
    signs: Signs
    allowances: Allowances
    affording: Affording
    usage: UsageService
    settlement: Settlement
    asking: Asking
    approvals: Approvals
    stopping: Stopping
    slots: Slots
    processes: Processes
    tasks: Tasks
    schedules: Schedules
    board: BoardService
    board_supervisor: BoardSupervisor
    erasure: Erasure
    upkeep: Upkeep
    alerts: Alerts
    commands: tuple[Command, ...]

    def in_order(self, dispatcher: Part) -> tuple[Part, ...]:
        """The parts in the order of recovery, start and sweep; they stop in reverse, so that last messages are sent."""
        return (
            self.people,
            self.allowances,
            self.departures,
            self.entrance.pairing,
            self.entrance.continuing,
            self.entrance.attention,
            self.entrance.bot_exchanges,
            self.courier,
            self.signs,
            self.feed,
            self.processes,
            self.tasks,
            self.schedules,
            self.board_supervisor,
            self.erasure,
            self.upkeep,
            self.approvals,
            dispatcher,
        )


def build(
    essentials: Essentials, home: Path, settings: Core, team: Team, options: Options, supervisor: Supervisor
) -> Parts:
    store, clock, workspaces = essentials.store, essentials.clock, home / "workspaces"
    accounts = Accounts()
    people = People(store, settings.permissions)
    bots = Bots(team.agents, team.default, settings.rules, people.called, team.busy)
    busy = BusyModes(people, bots, essentials.limits)
    register = Register(people, options.owner.adapter if options.owner else "")
    pairing = Pairing(store, people, register, clock, options.owner, supervisor.is_down)
    continuing = Continuing(store, people)
    attention = Attention(store, clock)
    bot_exchanges = BotExchanges(store, settings.groups.bot_exchanges)
    slots = Slots(essentials.limits.runs, lambda: len(bots.agents))
    feed = Feed(store)
    conclusions = Conclusions(clock, settings.board)
    watch = GatewayWatch(clock, options.owner, supervisor.is_down)
    allowances = Allowances(store, clock, settings.allowances, people, bots.find, watch.look)
    usage = UsageService(store, clock, people, allowances)
    settlement = Settlement(clock, accounts.can, _senders(clock, conclusions), allowances)
    asking = Asking(clock, settings.approvals, people, settlement, options.owner, supervisor.is_down)
    approvals = Approvals(essentials, settings.approvals, people, settlement)
    people_service = PeopleService(store, clock, people, register, pairing, settlement)
    stopping = Stopping(store, clock, settlement)
    courier = Courier(essentials, accounts, stopping.stop_for_sender)
    mandates = Mandates(people, clock, options.owner, supervisor.is_down)
    delegated = Delegation(store, clock, settings.work, slots, feed.follow, stopping.stop)
    fence = choose(settings.terminal, home, options.outlet)
    processes = Processes(store, clock, settings.work, home, fence)
    stops = {task_rows.DELEGATE: stopping.stop_task, task_rows.PROCESS: processes.end}
    tasks = Tasks(essentials, accounts.can, delegated, team.kinds, workspaces, stops, mandates)
    jobs = ScheduledShell(store, clock, settings.work, workspaces, fence)
    schedules = Schedules(essentials, settings.work, accounts.can, bots, jobs, options.owner, mandates)
    board = BoardService(store, settings.board, clock, accounts.can, bots, people)
    commands = (
        *PeopleCommands(clock, people, register, people_service, pairing).commands(),
        *ApprovalCommands(approvals, people).commands(),
        *busy.commands(),
        *UsageCommands(usage, people).commands(),
        *TalkCommands(clock, continuing).commands(),
        *ListenCommand(clock, attention, people, accounts.can).commands(),
        *TaskCommands(clock, tasks, delegated, partial(abilities.promisable, can=accounts.can), people).commands(),
        *ScheduleCommands(clock, schedules, people).commands(),
        *board.commands(),
    )
    return Parts(
        essentials=essentials,
        home=home,
        accounts=accounts,
        supervisor=supervisor,
        people=people,
        people_service=people_service,
        departures=Departures(store, clock, people),
        entrance=Entrance(people, pairing, Strangers(), settings.groups, continuing, busy, attention, bot_exchanges),
        bots=bots,
        busy=busy,
        feed=feed,
        courier=courier,
        signs=Signs(essentials, accounts.can, courier.views),
        allowances=allowances,
        affording=Affording(clock, allowances, settlement),
        usage=usage,
        settlement=settlement,
        asking=asking,
        approvals=approvals,
        stopping=stopping,
        slots=slots,
        processes=processes,
        tasks=tasks,
        schedules=schedules,
        board=board,
        board_supervisor=BoardSupervisor(essentials, settings.board, stopping.stop, bots, home, mandates, conclusions),
        erasure=Erasure(store, clock, home, feed.is_followed),
        upkeep=Upkeep(store, clock, courier, essentials.alarms, settings.retention, home),
        alerts=Alerts(essentials, options.owner, supervisor.is_down),
        commands=commands,
    )


def _senders(clock: Clock, conclusions: Conclusions) -> dict[Origin, Sent]:
    """Who is told how the run of an errand ended, by where the errand came from."""
    return {
        Origin.TASK: partial(delegation.end_run, clock=clock),
        Origin.SCHEDULE: partial(schedule_rows.end_run, clock=clock),
        Origin.CARD: conclusions.end_run,
    }
