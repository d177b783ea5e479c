"""Seeded bugs in busy modes: messages that join a run twice, never, too late, or that are somebody else's."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tests.chaos.mutation_seams import swap
from tidings.core.inbound import inbox, joining
from tidings.core.inbound.busy_modes import BusyModes
from tidings.core.inbound.joining import MayJoin, Messages
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Inbound


def steer_runs_twice() -> None:
    """The checkpoint holds the message, and its row still waits for a run of its own."""

    def contain(tx: Transaction, run: str, fence: int, heard: Sequence[str]) -> None:
        return

    swap(joining, "contain", contain)


def steer_never_runs() -> None:
    """What the agent has only read counts as taken in, and is gone if the process dies before the checkpoint."""
    real = joining.hear

    def hear(tx: Transaction, run: str, fence: int, now: float, may_join: MayJoin) -> Messages:
        heard = real(tx, run, fence, now, may_join)
        joining.contain(tx, run, fence, [each for each, _ in heard.said])
        return heard

    swap(joining, "hear", hear)


def guests_are_collected() -> None:
    """A run with an owner's tools takes in what a guest says."""

    def may_collect(self: BusyModes, first: Inbound, other: Inbound) -> bool:
        return True

    swap(BusyModes, "may_collect", may_collect)


def anybody_interrupts() -> None:
    def _may_stop(self: BusyModes, live: Inbound, inbound: Inbound) -> bool:
        return True

    swap(BusyModes, "_may_stop", _may_stop)


def burst_joins_two_people() -> None:
    """Who writes into a group within the same second speaks with one voice."""

    def _is_by(message: Inbound, inbound: Inbound) -> bool:
        return True

    swap(joining, "_is_by", _is_by)


def heard_message_is_deleted() -> None:
    """The agent has read it and answers it, and its person is told that it was deleted."""
    real = inbox.amend

    def amend(tx: Transaction, change: Inbound) -> Row | None:
        tx.execute(
            "UPDATE inbox SET heard_fence = -1 WHERE adapter = ? AND key = ?", change.target.adapter, change.about
        )
        return real(tx, change)

    swap(inbox, "amend", amend)


def messages_for_a_run_only_by_wakeup() -> None:
    swap(joining, "steering", lambda tx: [])


def album_grows_after_it_was_heard() -> None:
    """A later picture joins what the agent has read, and the checkpoint does not hold it."""

    def album_leader(tx: Transaction, inbound: Inbound) -> Row | None:
        rows = joining._album(tx, inbound) if inbound.group else ()
        return next((row for row in rows if row["state"] == "waiting"), None)

    swap(joining, "album_leader", album_leader)


def followers_of_a_lost_checkpoint() -> None:
    """The message with the checkpoint is deleted; the others still count as taken in by it."""
    real = joining.hand_over

    def hand_over(tx: Transaction, run: str) -> None:
        rows = tx.all("SELECT run FROM inbox WHERE joined = ? AND steered = 1", run)
        real(tx, run)
        for row in rows:
            tx.execute("UPDATE inbox SET steered = 1 WHERE run = ?", row["run"])

    swap(joining, "hand_over", hand_over)


def other_bots_messages_steer() -> None:
    """Only rank and place decide, whichever bot the message was for."""
    real = BusyModes.may_steer

    def may_steer(self: BusyModes, first: Inbound, other: Inbound) -> bool:
        return real(self, first, replace(other, sender=first.sender))

    swap(BusyModes, "may_steer", may_steer)
