"""Turns away messages that an allowance does not cover: at the door, and when their run would start."""

from __future__ import annotations

import logging

from tidings.core import ids
from tidings.core.agent import OutcomeKind
from tidings.core.allowances import wording
from tidings.core.allowances.allowances import Allowances, Start, Wait
from tidings.core.allowances.wording import Over
from tidings.core.clock import Clock
from tidings.core.inbound import inbox, joining, signs
from tidings.core.inbound.settlement import Ending, Settlement
from tidings.core.outbound import outbox, signed_messages
from tidings.core.outbound.outbox import Class, Owed
from tidings.core.store.store import Transaction
from tidings.core.store.wakeups import MessageRefused
from tidings.core.types import Body, Inbound, Refusal, Refused

log = logging.getLogger(__name__)

# Longer than any window: its name tells one window from the next.
TOLD_SECONDS = 3 * 86_400.0


class Affording:
    def __init__(self, clock: Clock, allowances: Allowances, settlement: Settlement) -> None:
        self._clock = clock
        self._allowances = allowances
        self._settlement = settlement

    def refuse(self, tx: Transaction, inbound: Inbound, pressed: Inbound | None = None) -> Refused | None:
        """Refuses a message for which nothing is left; None if there is. `pressed` is the button it came by.

        The row stays, and identifies a repetition; a client with a key of its own may repeat its request later.
        """
        # An album counts once, and is never torn apart.
        if inbound.group and joining.album_leader(tx, inbound) is not None:
            return None
        over = self._allowances.arrive(tx, inbound)
        if over is None:
            return None
        if not inbound.digest:
            inbox.put_closed(tx, pressed or inbound, ids.new("run"), self._clock.now(), f"refused: {Refusal.ALLOWANCE}")
        told = self._tell(tx, inbound, over)
        log.info("refused a message in %s: %s", inbound.conversation.id, wording.reason(over))
        return Refused(reason=Refusal.ALLOWANCE, told=told, words=wording.sentence(over), seconds=over.seconds)

    def start(self, tx: Transaction, run: str, inbound: Inbound) -> Start | None:
        """Lets a run start with what it has reserved; None if it must wait for a second, or has just been ended."""
        weighed = self._allowances.weigh(tx, inbound)
        if isinstance(weighed, Start):
            return weighed
        if isinstance(weighed, Wait):
            inbox.let_rest(tx, run, inbound.conversation.id, self._clock.now() + weighed.seconds)
        else:
            self._end(tx, run, weighed)
        return None

    def _end(self, tx: Transaction, run: str, over: Over) -> None:
        """Ends a run that never started; its sender is told once in each window."""
        claimed = inbox.waiting_claim(tx, run)
        assert claimed is not None, "it waits"
        outcome = claimed.ended(OutcomeKind.FAILED, wording.reason(over))
        self._settlement.settle(tx, Ending(claimed, outcome, owes=False, last=claimed.journalled, remembered=False))
        if claimed.inbound.errand is None:
            self._tell(tx, claimed.inbound, over)
        if signs.may_stand(claimed, self._clock.now()):
            # The message, and what joined it, may have shown that it waits.
            for target in (claimed.inbound.target, *signed_messages.targets(tx, run)):
                tx.announce(MessageRefused(target))
        inbox.announce_next(tx, claimed.inbound.conversation.id)

    def _tell(self, tx: Transaction, inbound: Inbound, over: Over) -> bool:
        """Tells what is used up, once in each window; later messages are only marked as failed.

        Nobody waits for an answer to what was only overheard.
        """
        if inbound.overheard or not self._settlement.may_push(inbound.target):
            return False
        # The cause names the sender, so that each member of a group is told.
        cause = f"{over.told_once} {inbound.sender.id}"
        body = Body(text=wording.sentence(over))
        notice = Owed(ids.new("dlv"), Class.NOTICE, inbound.target, body, None, cause)
        # A platform that gave a handle for the reply waits for one.
        every = 0.0 if inbound.target.handle else TOLD_SECONDS
        told = outbox.put_notice(tx, notice, self._clock.now(), every=every)
        if not told:
            tx.announce(MessageRefused(inbound.target))
        return told
