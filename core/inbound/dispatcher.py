"""Claims waiting messages, binds the session, runs the agent and settles the run in one transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextvars import copy_context
from typing import NamedTuple

from tidings.core import context
from tidings.core.agent import Agent, Outcome, OutcomeKind, Usage
from tidings.core.background import Background
from tidings.core.clock import Timer
from tidings.core.errors import Fenced
from tidings.core.failpoints import fail_here
from tidings.core.inbound import answer, inbox, joining, recovery, signs
from tidings.core.inbound.approvals import Endings
from tidings.core.inbound.asking import Asked
from tidings.core.inbound.busy_modes import BusyModes
from tidings.core.inbound.hearing import Hearing
from tidings.core.inbound.inbox import Claim
from tidings.core.inbound.parties import Parties
from tidings.core.inbound.settlement import Ending
from tidings.core.inbound.slots import Slot, Slots
from tidings.core.inbound.turns import Turns
from tidings.core.inbound.waiting_line import WaitingLine
from tidings.core.memory import ownership
from tidings.core.outbound.courier import Courier
from tidings.core.outbound.draft import Drafts
from tidings.core.outbound.outbox import Head
from tidings.core.part import Part
from tidings.core.roles import Person
from tidings.core.runs import runner, stops
from tidings.core.runs.journal import Journal
from tidings.core.runs.runner import Interrupt
from tidings.core.settings import Limits
from tidings.core.store import wakeups
from tidings.core.store.essentials import Essentials
from tidings.core.store.store import Transaction
from tidings.core.types import Asker, Body, Capabilities, Inbound, Signal

log = logging.getLogger(__name__)

# So many waiting conversations are read in one go.
PAGE = 500


class _Settled(NamedTuple):
    outcome: Outcome
    # The first part of the answer, if it may be sent at once.
    first: Head | None
    # The conversation's next message, already claimed.
    following: Claim | None


class Dispatcher(Part):
    def __init__(
        self,
        essentials: Essentials,
        turns: Turns,
        courier: Courier,
        drafts: Drafts,
        endings: Endings,
        busy: BusyModes,
        slots: Slots,
    ) -> None:
        self._store = store = essentials.store
        self._clock = essentials.clock
        self._limits = essentials.limits
        self._metrics = essentials.metrics
        self._turns = turns
        self._courier = courier
        self._drafts = drafts
        self._settlement = endings.settlement
        self._asking = endings.asking
        self._affording = endings.affording
        self._people = people = busy.people
        self._busy = busy
        self._slots = slots
        # Free conversations with waiting messages.
        self._line = WaitingLine(slots)
        slots.subscribe(self._fill)
        self._live: dict[str, Interrupt] = {}
        # By run: what its agent hears meanwhile, the person it works for, and the agent.
        self._hearings: dict[str, Hearing] = {}
        self._askers: dict[str, Asker | None] = {}
        self._at_work: dict[str, Agent] = {}
        self._run_ended = asyncio.Event()
        self._orphans: set[str] = set()
        # A run that fails by our own fault stays open in the store, where the sweep finds it.
        self._tasks = Background(log, "a run failed in the dispatcher and stays open")
        # Writes that must complete even if their run is cut off: ends of runs, and claims.
        self._settling = Background(log, "", lambda error: log.info("a run was not settled: %r", error))
        self._timers: dict[str, Timer] = {}
        # Nothing runs until the start, which finds all waiting messages.
        self._stopped = True
        store.wakeups.subscribe(wakeups.Conversation, self.expect)
        store.wakeups.subscribe(wakeups.StopAsked, lambda due: self.interrupt(due.run, due.by))
        store.wakeups.subscribe(wakeups.MessageForRun, lambda due: self.tell_of_message(due.run))
        store.wakeups.subscribe(wakeups.MessageRefused, lambda due: courier.views.signal(due.target, Signal.FAILED))
        people.subscribe(self._end_lapsed)

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    async def recover(self) -> None:
        await recovery.recover(self._store, self._clock, self._settlement)

    async def start(self) -> None:
        self._stopped = False
        await self.sweep()

    async def sweep(self) -> None:
        """Finds free conversations with waiting messages, and open runs that no task works on."""
        await self._find_waiting()
        for run, by in await self._store.insist(inbox.asked_to_stop):
            self.interrupt(run, by)
        for run in await self._store.insist(joining.steering):
            self.tell_of_message(run)
        orphans = set(await self._store.insist(inbox.open_runs)) - self._live.keys()
        for run in orphans & self._orphans:
            log.error("no task works on %s any more; it is recovered", run)
            await self._store.insist(
                lambda tx, run=run: recovery.recover_run(tx, run, self._clock, self._settlement)  # type: ignore[misc]
            )
        # A run must be found twice in a row, because it may end while the store is read.
        self._orphans = orphans

    async def _find_waiting(self) -> None:
        found = await self._store.insist(inbox.busy_conversations)
        unknown = [each for each in found if each not in self._line]
        for start in range(0, len(unknown), PAGE):
            page = unknown[start : start + PAGE]
            dues = await self._store.insist(lambda tx, page=page: [inbox.next_due(tx, each) for each in page])  # type: ignore[misc]
            for due in filter(None, dues):
                self.expect(due)

    async def stop(self, patience: float) -> None:
        """Cuts off running runs, which stay open in the store; recovery decides about them at the next start."""
        self.pause()
        await self._tasks.close()
        # An ended run is already being settled and must not look cut off.
        if patience:
            await self._settling.drain(patience)

    def pause(self) -> None:
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def renew(self, limits: Limits) -> None:
        """Applies new limits to runs that start from now on."""
        self._limits = limits
        self._slots.renew(limits.runs)

    async def released(self, agents: Iterable[Agent]) -> None:
        """Returns when no run of these agents is in progress."""
        theirs = {id(agent) for agent in agents}
        while any(id(agent) in theirs for agent in self._at_work.values()):
            self._run_ended.clear()
            await self._run_ended.wait()

    def reserve(self, inbound: Inbound, person: Person) -> Slot | None:
        """Takes a slot for a run that the door may claim in the commit that stores its message.

        While a slot is free, only conversations wait that may not take it.
        """
        who = self._turns.parties(inbound, person)
        if self._stopped or inbound.conversation.id in self._line or not self._slots.may_take(who):
            return None
        return self._slots.take(who)

    def claim(self, tx: Transaction, conversation: str) -> Claim | None:
        """Claims the conversation's next message inside a transaction, unless the gateway is stopping."""
        while not self._stopped:
            claimed = inbox.claim(tx, conversation, self._clock.now(), self._busy.may_collect, self._affording.start)
            if claimed is None:
                return None
            if stop := inbox.stop_asked(tx, claimed.run):
                # It was stopped after a verdict, before it could go on.
                self._settlement.close(tx, claimed, claimed.ended(OutcomeKind.CANCELLED, stops.reason(stop)))
            elif ownership.is_kept(tx, claimed.inbound):
                return claimed
            else:
                # It came by a hand-over, and waited while its sender lost the conversation.
                lost = claimed.ended(OutcomeKind.CANCELLED, ownership.LOST)
                self._settlement.close(tx, claimed, lost, remembered=False)
        return None

    def begin(self, claimed: Claim, slot: Slot) -> None:
        """Runs a claimed message in a slot that was reserved."""
        self._live[claimed.run] = Interrupt()
        self._tasks.begin(self._hand_back(claimed, slot) if self._stopped else self._run(claimed, slot))

    def expect(self, due: wakeups.Conversation) -> None:
        """The oldest waiting message of a conversation may be claimed from a time on."""
        if self._stopped:
            return
        if timer := self._timers.pop(due.id, None):
            timer.cancel()
        who = self._turns.parties(due.message)
        if (wait := due.at - self._clock.now()) > 0:
            self._timers[due.id] = self._clock.call_later(wait, lambda: self._due(due.id, who))
        else:
            self._due(due.id, who)

    def interrupt(self, run: str, by: str) -> None:
        if run in self._live:
            self._live[run].stop(by)

    def tell_of_message(self, run: str) -> None:
        """Lets the agent of a run hear a message at its next step."""
        if run in self._hearings:
            self._hearings[run].call()

    def _end_lapsed(self) -> None:
        """Stops runs for people who were removed; their waiting messages end when claimed."""
        for run, asker in self._askers.items():
            if self._people.lapsed(asker):
                self.interrupt(run, "the owner")

    def _due(self, conversation: str, who: Parties) -> None:
        self._timers.pop(conversation, None)
        self._line.add(conversation, who)
        self._fill()

    def _fill(self) -> None:
        while not self._stopped and (following := self._line.pop()) is not None:
            conversation, who = following
            self._tasks.begin(self._claim(conversation, self._slots.take(who)))

    async def _claim(self, conversation: str, slot: Slot) -> None:
        claimed = None
        try:
            claimed = await self._see_through(self._take(conversation))
        finally:
            if claimed is None:
                slot.give_back()
        if claimed is not None:
            await self._run(claimed, slot)

    async def _take(self, conversation: str) -> Claim | None:
        claimed = await self._store.insist(lambda tx: self.claim(tx, conversation))
        if claimed is not None:
            self._live[claimed.run] = Interrupt()
        return await self._keep(claimed)

    async def _hand_back(self, claimed: Claim, slot: Slot) -> None:
        try:
            await self._see_through(self._keep(claimed))
        finally:
            slot.give_back()

    async def _keep(self, claimed: Claim | None) -> Claim | None:
        """Returns a claim made just before the gateway began to stop; the attempt does not count."""
        if claimed is None or not self._stopped:
            return claimed
        del self._live[claimed.run]
        await self._store.insist(lambda tx: inbox.give_back(tx, claimed))
        return None

    async def _see_through(self, work: Coroutine[None, None, Claim | None]) -> Claim | None:
        """Completes a write even when its run is cut off."""
        return await asyncio.shield(self._settling.begin(work, context=copy_context()))

    async def _run(self, claimed: Claim, slot: Slot) -> None:
        """Runs claims one by one while this conversation has its turn; a run is live once its claim is committed."""
        following: Claim | None = claimed
        try:
            while following is not None:
                fail_here("run.claimed")
                slot.serve(following.run, self._turns.parties(following.inbound))
                following = await self._run_one(following, slot)
        except Fenced as error:
            log.warning("%s; what was done here is discarded", error)
        finally:
            if following is not None:
                # The run was cut off; the sweep must see that no task works on it.
                self._live.pop(following.run, None)
            slot.give_back()

    async def _run_one(self, claimed: Claim, slot: Slot) -> Claim | None:
        run, inbound = claimed.run, claimed.inbound
        hearing = Hearing(self._store, self._clock, claimed, self._busy.may_steer)
        agent, turn, session, can = self._turns.prepare(claimed, hearing)
        self._at_work[run], self._hearings[run] = agent, hearing
        journal = Journal(
            self._store,
            self._clock,
            hearing,
            run,
            person=session.person.id,
            fence=claimed.fence,
            last=claimed.journalled,
        )
        interrupt = self._live[run]
        self._askers[run] = inbound.asker
        began = self._clock.now()
        self._metrics.running += 1
        try:
            with context.bind(session):
                self._drafts.watch(run, inbound.target, can, claimed.view, quiet=inbound.overheard)
                if lapsed := self._people.lapsed(inbound.asker):
                    outcome = claimed.ended(OutcomeKind.CANCELLED, lapsed)
                else:
                    limits = self._limits_of(inbound)
                    ended = await runner.run(agent, turn, journal, interrupt, self._clock, limits, claimed.said)
                    if isinstance(ended, runner.Asked):
                        return await self._see_through(self._ask(claimed, journal, ended, session.bot, slot))
                    outcome = ended
                used = outcome.usage or Usage()
                self._metrics.ran(outcome.kind, self._clock.now() - began, used.input_tokens, used.output_tokens)
                took = claimed._replace(followed=claimed.followed or hearing.took, began=began)
                return await self._see_through(self._settle(took, journal, outcome, can, slot))
        finally:
            self._metrics.running -= 1
            self._drafts.close(run)
            # A run that goes on at once after its question is live again already.
            if self._live.get(run) is interrupt:
                del self._live[run]
            del self._askers[run]
            del self._at_work[run]
            del self._hearings[run]
            self._run_ended.set()

    async def _ask(self, claimed: Claim, journal: Journal, asked: runner.Asked, bot: str, slot: Slot) -> Claim | None:
        """Stores what a run asks people; the run then waits without a slot, or goes on at once."""
        self._drafts.close(claimed.run)
        pending = await journal.close()
        fail_here("approval.pre_ask")
        rest = (pending, journal.last, journal.person)
        question = Asked(claimed, asked.event, bot, asked.so_far, *rest)
        conversation = claimed.inbound.conversation.id
        continues = self._line.lets_continue(slot.who)

        def unit(tx: Transaction) -> Claim | None:
            self._asking.ask(tx, question)
            return self.claim(tx, conversation) if continues else None

        following = await self._store.insist(unit)
        if following is not None:
            self._live[following.run] = Interrupt()
        fail_here("approval.post_ask")
        return await self._keep(following)

    def _limits_of(self, inbound: Inbound) -> Limits:
        if inbound.errand is None:
            return self._limits
        return self._limits.model_copy(update={"run_seconds": self._limits.errand_seconds})

    async def _settle(
        self, claimed: Claim, journal: Journal, outcome: Outcome, can: Capabilities, slot: Slot
    ) -> Claim | None:
        """Stores the outcome, the terminal event and the delivery of a run in one transaction."""
        # The draft is closed before the commit, so that nothing of this run is shown after its end.
        seen = self._drafts.close(claimed.run)
        pending = await journal.close()
        fail_here("halt.pre_terminal" if outcome.kind is OutcomeKind.HALTED else "run.pre_terminal")
        conversation = claimed.inbound.conversation.id
        signals = can.reactions and signs.may_stand(claimed, self._clock.now())
        shown = claimed.view is not None
        owed = answer.final_of(claimed.run, claimed.inbound, outcome, signals=signals, shown=shown)
        # An open view is finished in its lane; only a plain answer may be sent at once.
        plain = can.async_delivery and not seen and claimed.view is None and owed.body != Body()
        reserved = self._courier.reserve(owed) if plain else None
        rest = (pending, journal.last, journal.person)
        heard = [each.run for each in self._hearings[claimed.run].contained()]
        ending = Ending(claimed, outcome, can.async_delivery, *rest, signals=signals, final=owed, heard=heard)
        continues = self._line.lets_continue(slot.who)

        def unit(tx: Transaction) -> _Settled:
            ended, final = self._settlement.settle(tx, ending)
            first = self._courier.put(tx, final, reserved if final is owed else None) if final else None
            # The conversation continues at once only if no other conversation should have its slot.
            following = self.claim(tx, conversation) if continues else None
            if following is None and (due := inbox.next_due(tx, conversation)) is not None:
                tx.announce(due)
            return _Settled(ended, first, following)

        try:
            settled = await self._store.insist(unit)
        except BaseException:
            if reserved:
                self._courier.give_back(reserved)
            raise
        if settled.following:
            # This comes first, so that a /stop from the same commit finds the run.
            self._live[settled.following.run] = Interrupt()
        log.info("run %s%s", settled.outcome.kind, f": {settled.outcome.reason}" if settled.outcome.reason else "")
        if reserved:
            self._courier.carry(reserved, settled.first)
        fail_here("run.post_terminal")
        return await self._keep(settled.following)
