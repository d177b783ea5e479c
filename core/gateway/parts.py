"""The parts of work that ends or starts later, built in order and kept together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from tidings.core.clock import Clock
from tidings.core.inbound import abilities
from tidings.core.inbound.access import Access
from tidings.core.inbound.bots import Bots
from tidings.core.inbound.commands import Command
from tidings.core.inbound.door import Door
from tidings.core.inbound.settlement import Settlement
from tidings.core.inbound.slots import Slots
from tidings.core.operations.alerts import Alerts
from tidings.core.outbound.courier import Courier
from tidings.core.settings import Board, Work
from tidings.core.store.store import Row, Store
from tidings.core.telemetry.alarms import Alarms
from tidings.core.types import Origin, Target
from tidings.core.work.board.service import BoardService
from tidings.core.work.board.supervisor import BoardSupervisor
from tidings.core.work.mandates import Mandates
from tidings.core.work.processes.processes import Processes
from tidings.core.work.schedules.commands import ScheduleCommands
from tidings.core.work.schedules.schedules import Schedules
from tidings.core.work.schedules.shell import ScheduledShell
from tidings.core.work.tasks import rows as task_rows
from tidings.core.work.tasks.commands import TaskCommands
from tidings.core.work.tasks.delegation import Delegation, Follow
from tidings.core.work.tasks.tasks import TaskKind, Tasks


class Office:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Work,
        courier: Courier,
        slots: Slots,
        door: Door,
        follow: Follow,
        settlement: Settlement,
        alarms: Alarms,
        kinds: Iterable[TaskKind],
        home: Path,
        owner: Target | None,
        is_down: Callable[[str], bool],
        board: Board,
        bots: Bots,
        access: Access,
    ) -> None:
        """News of the gateway goes to the owner's own place if no home was chosen."""
        self._door = door
        self._alerts = Alerts(store, clock, owner, is_down)
        self._alarms = alarms
        workspaces = home / "workspaces"
        mandates = Mandates(access, clock, owner, is_down)
        self._delegation = Delegation(store, clock, settings, slots, follow, door.stop)
        settlement.report_to(Origin.TASK, self._delegation.ended)
        self.processes = Processes(store, clock, settings, home)
        stops = {task_rows.DELEGATE: self._stop_run, task_rows.PROCESS: self.processes.end}
        self.tasks = Tasks(store, clock, courier, self._delegation, kinds, workspaces, stops, mandates)
        jobs = ScheduledShell(store, clock, settings, workspaces)
        self.schedules = Schedules(store, clock, settings, courier, bots, jobs, owner, mandates)
        settlement.report_to(Origin.SCHEDULE, self.schedules.ended)
        self._schedule_commands = ScheduleCommands(clock, self.schedules)
        can = partial(abilities.promisable, can=courier.can)
        self._task_commands = TaskCommands(clock, self.tasks, self._delegation, can, access.is_owner)
        self._supervisor = BoardSupervisor(store, clock, board, door.stop, bots, home, mandates)
        settlement.report_to(Origin.CARD, self._supervisor.ended)
        self.board = BoardService(store, board, clock, courier.can, bots)

    def end_lapsed(self) -> None:
        """Stops what goes on for people who were removed."""
        self.tasks.end_lapsed()
        self._supervisor.wake()

    def commands(self) -> tuple[Command, ...]:
        return (*self._task_commands.commands(), *self._schedule_commands.commands(), *self.board.commands())

    async def start(self) -> None:
        """After recovery and before anything is sent."""
        await self.processes.start()
        await self.tasks.start()
        await self.schedules.start()
        await self._supervisor.start()
        # People may have been removed while no gateway ran.
        self.tasks.end_lapsed()

    def hear(self) -> None:
        """As soon as it is known which platforms are there: tells of each alarm, also of those that sounded before."""
        self._alarms.listen(self._alerts.sounded)

    async def sweep(self) -> None:
        await self.processes.sweep()
        await self.tasks.sweep()
        await self.schedules.sweep()
        await self._supervisor.sweep()

    @property
    def busy(self) -> bool:
        """Something goes on that would be cut off, and can be waited for."""
        return self.schedules.busy

    async def pause(self) -> None:
        """Nothing new begins by itself."""
        await self.schedules.pause()

    async def stop(self) -> None:
        await self._alerts.stop()
        await self._supervisor.stop()
        await self.schedules.stop()
        await self.tasks.stop()
        await self.processes.stop()

    async def _stop_run(self, row: Row, by: str) -> None:
        await self._door.stop(row["work"], by)
