"""Seeded bugs on the way out: doubts, pauses, attempts, parts, keys, places and what is only shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.chaos.mutation_seams import swap
from tidings.core.errors import RateLimited
from tidings.core.operations import offline
from tidings.core.outbound import compose, courier, doubts, draft, outbox, pace, resolver
from tidings.core.outbound.courier import Courier, Lane
from tidings.core.outbound.draft import Draft
from tidings.core.outbound.moved_chats import Aliases
from tidings.core.outbound.outbox import Head, Owed
from tidings.core.outbound.resolver import Settler
from tidings.core.store.at_rest import StoreFile
from tidings.core.store.store import Transaction
from tidings.core.types import Body, Capabilities, DeliveryState, Target


def no_doubtful_state() -> None:
    """What was in flight when the process died is sent again as if it had never left."""

    def recover(tx: Transaction) -> int:
        forgotten = "UPDATE parts SET state = 'waiting', attempts = attempts - 1, tried = NULL WHERE state = 'sending'"
        return tx.count(forgotten)

    swap(doubts, "recover", recover)


def blind_resend() -> None:
    """A send without a verdict is simply tried once more."""

    async def doubt(self: Courier, sending: Head, error: Exception) -> None:
        soon = self._clock.now() + pace.backoff(sending.misses)
        await self._store.insist(lambda tx: outbox.not_sent(tx, sending, soon, missed=True))

    swap(Courier, "_doubt", doubt)


def drop_when_in_doubt() -> None:
    """What may have arrived is taken to have arrived."""

    async def settle(self: Settler, delivery: str) -> None:
        doubtful = await self._store.read(lambda tx: doubts.doubtful(tx, delivery))
        if doubtful is not None:
            now = self._clock.now()
            await self._close(doubtful, lambda tx: outbox.die(tx, doubtful, "dropped", now, silent=True))

    swap(Settler, "_settle", settle)


def marker_missing() -> None:
    """The second copy looks like the first."""

    def marked(body: Body) -> Body:
        return body

    swap(doubts, "marked", marked)


def key_reused_for_a_changed_body() -> None:
    """A copy that was marked or cut anew goes out under the old key."""

    def key_of(delivery: str, position: int, generation: int = 0) -> str:
        return f"{delivery}.{position}"

    swap(outbox, "key_of", key_of)
    swap(doubts, "key_of", key_of)


def losses_never_told() -> None:
    """What is given up is known to the database alone."""

    def tell_losses(tx: Transaction, lanes: tuple[str, ...], notice: Owed, now: float) -> bool:
        return False

    swap(outbox, "tell_losses", tell_losses)


def losses_told_under_one_id_only() -> None:
    """A chat has moved, and what was lost under its old id is told nowhere."""

    def lanes(self: Aliases, target: Target) -> tuple[str, ...]:
        return (target.lane,)

    swap(Aliases, "lanes", lanes)


def second_move_hides_where_it_began() -> None:
    """What a chat was called in the middle is taken for its beginning."""

    def load(self: Aliases, tx: Transaction) -> None:
        for row in tx.all("SELECT adapter, account, chat, moved_to FROM aliases ORDER BY chat"):
            self._moved[row["adapter"], row["account"], row["chat"]] = row["moved_to"]
            self._origins[row["adapter"], row["account"], row["moved_to"]] = row["chat"]

    swap(Aliases, "load", load)


def decided_about_another_doubt() -> None:
    """Whoever asked about the first copy says what becomes of the second."""

    def is_still(doubtful: Head | None, asked: Head) -> bool:
        return doubtful is not None

    swap(resolver, "is_still", is_still)


def asks_for_ever() -> None:
    """An adapter whose code fails each time is asked until the answer has expired."""
    swap(resolver, "READBACK_FAULTS", 1_000_000)


def half_of_it_is_done() -> None:
    """What belongs together is committed piece by piece."""

    @contextmanager
    def transaction(self: StoreFile) -> Iterator[Transaction]:
        yield self.tx

    swap(StoreFile, "transaction", transaction)


def looks_where_it_may_not() -> None:
    """Whoever asks whether there is a home is shown what the system says about it."""

    def is_there(home: Path, name: str = "") -> bool:
        return (home / name).exists()

    swap(offline, "is_there", is_there)


def final_dropped_after_a_rate_limit() -> None:
    """The platform asked us to wait, and nobody comes back."""

    async def pause(self: Courier, can: Capabilities, sending: Head, error: RateLimited) -> None:
        now = self._clock.now()
        await self._store.insist(lambda tx: outbox.die(tx, sending, "rate limited", now, silent=True))

    swap(Courier, "_pause", pause)


def retry_after_forgotten_on_restart() -> None:
    """A pause that the platform named lives in memory only."""

    def load_pauses(tx: Transaction) -> dict[str, float]:
        tx.execute("DELETE FROM pauses")
        tx.execute("UPDATE parts SET not_before = 0 WHERE state = 'waiting'")
        return {}

    swap(pace, "load_pauses", load_pauses)


def attempt_counted_though_nothing_was_sent() -> None:
    """The budget of attempts is spent on a platform that was never reached."""
    real = outbox.not_sent

    def not_sent(tx: Transaction, next_part: Head, not_before: float, *, missed: bool) -> None:
        real(tx, next_part, not_before, missed=missed)
        tx.execute(
            "UPDATE parts SET attempts = attempts + 1 WHERE delivery = ? AND position = ?",
            next_part.owed.id,
            next_part.position,
        )

    swap(outbox, "not_sent", not_sent)


def parts_resent_whole() -> None:
    """When one part of a long answer fails, the answer begins anew."""
    not_sent, again, recover = outbox.not_sent, doubts.again, doubts.recover

    def anew(tx: Transaction, delivery: str) -> None:
        tx.execute(
            "UPDATE parts SET state = 'waiting', tried = NULL, receipt = NULL"
            " WHERE delivery = ? AND state = 'delivered' AND kind = 'plain'",
            delivery,
        )

    def limited(tx: Transaction, next_part: Head, not_before: float, *, missed: bool) -> None:
        not_sent(tx, next_part, not_before, missed=missed)
        anew(tx, next_part.owed.id)

    def absent(tx: Transaction, next_part: Head, *, absent: bool = True) -> None:
        again(tx, next_part, absent=absent)
        anew(tx, next_part.owed.id)

    def restarted(tx: Transaction) -> int:
        found = recover(tx)
        for row in tx.all("SELECT id FROM deliveries WHERE state = 'waiting'"):
            anew(tx, row["id"])
        return found

    swap(outbox, "not_sent", limited)
    swap(doubts, "again", absent)
    swap(doubts, "recover", restarted)


def permanent_error_retried() -> None:
    """What the platform will never take is offered again and again."""

    async def reject(self: Courier, sending: Head, reason: str) -> None:
        soon = self._clock.now() + pace.backoff(sending.misses)
        await self._store.insist(lambda tx: outbox.not_sent(tx, sending, soon, missed=True))

    swap(Courier, "_reject", reject)


class _NeverRaised(Exception):
    pass


def failure_before_dispatch_is_a_doubt() -> None:
    """A connection that was never made counts as one that was lost."""
    swap(courier, "Unreachable", _NeverRaised)


def misconfigured_is_lost() -> None:
    """A token that was refused costs everything that was owed meanwhile."""

    def hold(tx: Transaction, next_part: Head, reason: str) -> None:
        outbox.die(tx, next_part, reason, 0.0)

    swap(outbox, "hold", hold)


def answer_beside_its_thread() -> None:
    """The answer appears in the chat, not in the thread where it was asked for."""

    def where(self: Aliases, target: Target) -> Target:
        return msgspec.structs.replace(target, thread="")

    swap(Aliases, "where", where)


def newest_first() -> None:
    """A lane is worked off from its end."""

    def head(tx: Transaction, lane: str) -> Head | None:
        row = tx.one("SELECT * FROM deliveries WHERE lane = ? AND state = 'waiting' ORDER BY seq DESC LIMIT 1", lane)
        return None if row is None else outbox.head_of(tx, row)

    swap(outbox, "head", head)


def typing_outlives_the_run() -> None:
    """Nobody tells the typing that the answer is there."""

    def close(self: Draft) -> None:
        for task in self._tasks:
            if getattr(task.get_coro(), "__name__", "") != "_type":
                task.cancel()

    swap(Draft, "close", close)


def growing_answer_composed_whole() -> None:
    """Each time that more is shown of an answer, all of it is looked at again."""
    swap(draft, "_end", lambda text: text)


def long_final_composed_on_the_loop() -> None:
    """Nobody else is served while a long answer is cut into parts."""
    swap(compose, "is_quick", lambda body: True)


def done_before_delivered() -> None:
    """A message is marked as done while its answer is still on its way."""
    prepare = Courier._prepare

    async def prepared(self: Courier, due: Head, lane: Lane) -> Head | None:
        self._signal(due.owed, DeliveryState.DELIVERED)
        return await prepare(self, due, lane)

    swap(Courier, "_prepare", prepared)


def dead_answer_marked_as_done() -> None:
    """A message is marked as done though its answer will never arrive."""
    signal = Courier._signal

    def ended(self: Courier, owed: Owed, state: DeliveryState | None) -> None:
        signal(self, owed, DeliveryState.DELIVERED if state is DeliveryState.DEAD else state)

    swap(Courier, "_signal", ended)


def one_message_proves_many() -> None:
    """What says the same is taken for the same, though it is another part's receipt."""

    def is_taken(tx: Transaction, next_part: Head, message: str) -> bool:
        return False

    swap(outbox, "is_taken", is_taken)
