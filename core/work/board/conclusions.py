"""Concludes attempts at a card whose worker ended without a verdict of its own."""

from __future__ import annotations

from tidings.core.agent import Outcome
from tidings.core.clock import Clock
from tidings.core.inbound.inbox import Claim
from tidings.core.runs import journal
from tidings.core.settings import Board
from tidings.core.store.store import Row, Transaction
from tidings.core.work.board import rules as board_rules
from tidings.core.work.board import verdicts
from tidings.core.work.board.cards import Moment
from tidings.core.work.board.rules import Hold
from tidings.core.work.board.verdicts import Verdict

LONGEST_PAUSE_SECONDS = 600.0
TWICE = "; it had begun something that must not be done twice"


class Conclusions:
    def __init__(self, clock: Clock, settings: Board) -> None:
        self._clock = clock
        self._settings = settings

    def end_run(self, tx: Transaction, claimed: Claim, outcome: Outcome) -> None:
        """Concludes the attempt that a run was for, in the transaction that ends the run."""
        attempt = tx.one("SELECT * FROM card_attempts WHERE run = ? AND run <> '' AND ended IS NULL", claimed.run)
        if attempt is None:
            # The run has already given its verdict.
            return
        events = [entry.event for entry in journal.read(tx, claimed.run, 0, journal.last(tx, claimed.run))]
        effect = verdicts.had_effect(events)
        tx.execute("UPDATE card_attempts SET effect = ? WHERE run = ? AND run <> ''", int(effect), claimed.run)
        verdict = verdicts.of_run(claimed.run, outcome, events)
        self.conclude(tx, attempt, verdict, outcome.text, effect=effect)

    def end_process(self, tx: Transaction, hold: Hold, verdict: Verdict, notes: str) -> None:
        """Concludes the attempt of a process that has ended; most processes gave their verdict before."""
        attempt = tx.one(
            "SELECT * FROM card_attempts WHERE card = ? AND number = ? AND ended IS NULL", hold.card, hold.attempt
        )
        if attempt is not None:
            self.conclude(tx, attempt, verdict, notes)

    def conclude(self, tx: Transaction, attempt: Row, verdict: Verdict, notes: str, *, effect: bool = False) -> None:
        """Makes the card ready again if no effect would be repeated; otherwise blocks it with the reason."""
        at = Moment.of(self._clock)
        hold = Hold(attempt["card"], attempt["number"], attempt["fence"])
        card = board_rules.held(tx, hold)
        effect = effect or bool(attempt["effect"])
        if verdict.may_retry and not effect and card["tries"] < self._settings.attempts:
            pause = min(self._settings.retry_seconds * 2 ** (card["tries"] - 1), LONGEST_PAUSE_SECONDS)
            board_rules.put_back(tx, hold, verdict.kind, verdict.reason, notes, at.now + pause, at)
            return
        twice = TWICE if verdict.may_retry and effect else ""
        board_rules.block(tx, hold, verdict.kind, verdict.reason + twice, notes, at)
