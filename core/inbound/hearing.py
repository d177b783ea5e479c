"""Hands messages that came meanwhile to the agent of a run at work, and stores them with its next checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from tidings.core.agent import Checkpoint
from tidings.core.clock import Clock
from tidings.core.inbound import inbox, joining
from tidings.core.inbound.inbox import Claim
from tidings.core.inbound.joining import MayJoin
from tidings.core.redaction import plain
from tidings.core.runs.journal import Heard
from tidings.core.store.store import Store, Transaction
from tidings.core.types import Inbound

# How much of a message its event shows.
SHOWN_CHARACTERS = 1000


class Hearing:
    """What one run hears; a message stays a run of its own until it is stored together with a checkpoint."""

    def __init__(self, store: Store, clock: Clock, claimed: Claim, may_steer: MayJoin) -> None:
        self._store = store
        self._clock = clock
        self._run = claimed.run
        self._fence = claimed.fence
        self._may_steer = may_steer
        # A run that begins again, or goes on after a verdict, may have messages from before.
        self._called = claimed.attempt > 1 or claimed.said is not None
        self._heard: list[Heard] = []
        # Whether messages have become part of this run since it was claimed.
        self.took = False

    def call(self) -> None:
        """A message for this run has come."""
        self._called = True

    async def __call__(self) -> tuple[Inbound, ...]:
        if not self._called:
            return ()
        self._called = False
        now = self._clock.now()
        found, more = await self._store.insist(
            lambda tx: joining.hear(tx, self._run, self._fence, now, self._may_steer)
        )
        self._called = self._called or more
        known = {each.run for each in self._heard}
        new = [(run, message) for run, message in found if run not in known]
        self._heard += [Heard(run, joining.name_of(said), plain(said.text)[:SHOWN_CHARACTERS]) for run, said in new]
        return tuple(message for _, message in new)

    def contained(self) -> Sequence[Heard]:
        heard, self._heard = self._heard, []
        return heard

    def keep(self, tx: Transaction, checkpoint: Checkpoint, heard: Sequence[Heard], after: int) -> None:
        inbox.keep_checkpoint(tx, self._run, checkpoint, after)
        if heard:
            joining.contain(tx, self._run, self._fence, [each.run for each in heard])
            self.took = True
