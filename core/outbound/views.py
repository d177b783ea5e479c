"""Shows what is not final: growing views and signals; each may be lost, and only the opening is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context

from tidings.core import ids
from tidings.core.adapter import Adapter
from tidings.core.background import Background
from tidings.core.clock import Clock, ended_within
from tidings.core.errors import Misconfigured, Moved, RateLimited, Rejected, ViewLost
from tidings.core.errors import Stopped as StoppedByPerson
from tidings.core.failpoints import fail_here
from tidings.core.outbound import outbox, pace, signed_messages, view_rows
from tidings.core.outbound.outbox import Class, Opening, Owed
from tidings.core.outbound.pace import Budgets
from tidings.core.store.store import Store, Transaction
from tidings.core.store.wakeups import Lane
from tidings.core.types import Body, Capabilities, Signal, Target, View

log = logging.getLogger(__name__)

# Called with a run whose answer the person stopped with the platform's own button.
Stopped = Callable[[str], Awaitable[None]]

# A show that hangs must not delay the final answer for longer than this.
PATIENCE_SECONDS = 10.0
# The signs that end all others; each comes late rather than never, because the sign before it would stay for good.
ENDS = (Signal.DONE, Signal.FAILED, Signal.NONE)
LATE_SECONDS = 60.0
# A turn that came is lost again when a message needs it; then the signal waits for at least so long.
SHORTEST_WAIT = 0.1
# How long a stop waits for signals under way.
LAST_SIGNAL_SECONDS = 2.0
# After a rate limit without a duration, shows pause as after this many failures.
UNNAMED_PAUSE = 2


class Views:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        adapters: Mapping[tuple[str, str], Adapter],
        budgets: Budgets,
        stopped: Stopped,
    ) -> None:
        self._store = store
        self._clock = clock
        self._adapters = adapters
        self._budgets = budgets
        self._stopped_by_person = stopped
        self._openings: dict[str, asyncio.Future[View | None]] = {}
        self._shows: dict[str, asyncio.Task[View | None]] = {}
        self._signals = Background(log, "a signal failed")
        # The newest reaction under way, by message.
        self._reactions: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._stopped = False

    async def stop(self, patience: float) -> None:
        self._stopped = True
        if self._signals and patience:
            # The last signal may tell that an answer has just arrived.
            await self._signals.drain(min(patience, LAST_SIGNAL_SECONDS))
        for task in self._shows.values():
            task.cancel()
        await asyncio.gather(*self._shows.values(), return_exceptions=True)
        await self._signals.close()

    async def open(self, run: str, target: Target, text: str) -> View | None:
        """Stores and sends an opening for the growing answer; None when no view could be opened."""
        owed = Owed(ids.new("dlv"), Class.OPENING, target, Body(text=text), run)
        opened: asyncio.Future[View | None] = asyncio.get_running_loop().create_future()

        def unit(tx: Transaction) -> Opening | None:
            if tx.one("SELECT 1 FROM inbox WHERE run = ? AND state = 'running'", run) is None:
                return None
            # A run has one view: an opening from before a restart, even one in doubt, is used again.
            earlier = outbox.opening_of(tx, run)
            if earlier is None:
                outbox.put(tx, owed, self._clock.now())
                return Opening(owed.id, False)
            tx.announce(Lane(target.lane))
            return earlier

        opening = await self._store.insist(unit)
        if opening is None or opening.settled:
            return opening.view if opening else None
        self._openings[opening.delivery] = opened
        try:
            return await opened
        finally:
            self._openings.pop(opening.delivery, None)

    def opened(self, delivery: str, view: View | None) -> None:
        """Called by the courier when an opening was sent or given up."""
        waiter = self._openings.get(delivery)
        if waiter and not waiter.done():
            waiter.set_result(view)

    async def show(self, run: str, target: Target, view: View, news: Callable[[], str | None]) -> View | None:
        """Shows the newest text as soon as the pace allows; None when the view no longer exists."""
        adapter = self._adapter(target)
        if adapter is None:
            return None
        can = adapter.can(target)
        paces = can.pace + can.show_pace
        while (wait := self._budgets.ready_in(paces)) > 0:
            await self._clock.sleep(wait)
        # The text is composed only now, so that no work goes into a text that is never shown.
        text = news()
        if text is None:
            return view
        self._budgets.take(paces)
        task = asyncio.create_task(self._show(adapter, run, target, view, text), context=Context())
        self._shows[run] = task
        task.add_done_callback(lambda _: self._shows.pop(run, None))
        # The final answer waits for a show under way, so closing the draft must not cancel it.
        return await asyncio.shield(task)

    async def await_show(self, run: str | None) -> None:
        """Waits for a show under way, which would otherwise overwrite the final answer."""
        task = self._shows.get(run or "")
        if task is not None and not await ended_within(self._clock, task, PATIENCE_SECONDS):
            task.cancel()
            await asyncio.wait({task})

    def signal(self, target: Target, signal: Signal) -> None:
        """Sends a signal if possible: skipped while the chat is paused, or where it would delay a message.

        The sign that ends all others waits for its turn instead.
        """
        adapter = self._adapter(target)
        if adapter is None:
            return
        turn = self._take_turn(adapter.can(target))
        if not turn and signal not in ENDS:
            return
        message = (target.lane, target.reply_to)
        before = None if signal is Signal.TYPING else self._reactions.get(message)
        task = self._signals.begin(self._signal(adapter, target, signal, before, turn))
        if signal is not Signal.TYPING:
            self._reactions[message] = task
            task.add_done_callback(lambda _: self._reacted(message, task))

    def end(self, run: str | None, target: Target, signal: Signal) -> None:
        """Shows how a run ended, on its message and on those that joined it."""
        self.signal(target, signal)
        if run is not None:
            self._signals.begin(self._end_joined(run, signal))

    async def _end_joined(self, run: str, signal: Signal) -> None:
        for target in await self._store.read(lambda tx: signed_messages.targets(tx, run)):
            self.signal(target, signal)

    def _take_turn(self, can: Capabilities) -> bool:
        return not self._budgets.is_paused(can.pace) and self._budgets.take(can.signal_pace, spare=1)

    async def _await_turn(self, can: Capabilities, until: float) -> bool:
        """Waits for a turn of a signal; false when it does not come in time."""
        while not self._take_turn(can):
            ready = max(self._budgets.ready_in(can.signal_pace, spare=1), self._budgets.ready_in(can.pace))
            wait = max(ready, SHORTEST_WAIT)
            if self._clock.now() + wait > until:
                return False
            await self._clock.sleep(wait)
        return True

    def _reacted(self, message: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self._reactions.get(message) is task:
            del self._reactions[message]

    def _adapter(self, target: Target) -> Adapter | None:
        return None if self._stopped else self._adapters.get((target.adapter, target.account))

    async def _show(self, adapter: Adapter, run: str, target: Target, view: View, text: str) -> View | None:
        try:
            shown = await adapter.show(view, text)
        except RateLimited as error:
            await self._pause(adapter.can(target), error)
            return view
        except (ViewLost, Rejected, Misconfigured, Moved) as error:
            log.info("the view of %s is gone: %s", run, error)
            if isinstance(error, StoppedByPerson):
                await self._stopped_by_person(run)
            return None
        except Exception as error:
            log.info("a show for %s was lost: %s", run, error)
            return view
        fail_here("edit.effect")
        if shown != view:
            await self._store.insist(lambda tx: view_rows.keep(tx, run, shown))
        return shown

    async def _pause(self, can: Capabilities, error: RateLimited) -> None:
        budget, until = pace.pause_of(can, error, self._clock.now(), UNNAMED_PAUSE)
        if budget:
            self._budgets.pause(budget, until)
            await self._store.insist(lambda tx: pace.store_pause(tx, budget, until))

    async def _signal(
        self, adapter: Adapter, target: Target, signal: Signal, before: asyncio.Task[None] | None, turn: bool
    ) -> None:
        if before is not None:
            # The last reaction stays, so a slow earlier one must not arrive after it.
            await ended_within(self._clock, before, PATIENCE_SECONDS)
        until = self._clock.now() + LATE_SECONDS
        while turn or await self._await_turn(adapter.can(target), until):
            turn = False
            try:
                await adapter.signal(target, signal)
            except RateLimited as error:
                await self._pause(adapter.can(target), error)
                if signal in ENDS:
                    continue
            except Exception as error:
                log.debug("signal %s to %s was lost: %s", signal, target, error)
            return
