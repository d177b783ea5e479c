"""Deliveries in doubt, which may or may not have arrived: functions that settle them inside a transaction."""

from __future__ import annotations

from enum import Enum, auto

from tidings.core.outbound.outbox import Head, delivered, head_of, is_taken, key_of, marked, next_generation
from tidings.core.store.store import Transaction
from tidings.core.store.wakeups import Lane
from tidings.core.types import Body, DeliveryState, Receipt, encode


def doubt(tx: Transaction, next_part: Head) -> None:
    _set_states(tx, next_part, "doubtful", DeliveryState.DOUBTFUL)


def again(tx: Transaction, next_part: Head, *, absent: bool = True) -> None:
    """Repeats a doubtful part under the same key: it was proved absent, or repeating it is harmless for now."""
    _set_states(tx, next_part, "waiting", DeliveryState.WAITING)
    tx.execute(
        "UPDATE parts SET not_before = 0, tried = CASE WHEN ? = 1 THEN NULL ELSE tried END"
        " WHERE delivery = ? AND position = ?",
        int(absent),
        next_part.owed.id,
        next_part.position,
    )
    tx.announce(Lane(next_part.owed.target.lane))


class Arrival(Enum):
    """What a part's receipt says about its delivery."""

    WHOLE = auto()
    PART = auto()
    # The platform answered a repeated send with a message that already proves another part.
    OF_ANOTHER_PART = auto()


def deliver(tx: Transaction, sent: Head, receipt: Receipt, now: float, wall: float, *, unique: bool) -> Arrival:
    """Stores a receipt; if the receipt already belongs to another part, this part is sent again.

    `unique` means that message ids are unique in an account; elsewhere each chat numbers its own messages.
    """
    repeated = unique and sent.attempts and sent.view is None
    if repeated and any(is_taken(tx, sent, id) for id in receipt.ids):
        again(tx, sent)
        tx.execute(
            "UPDATE parts SET key = ?, since = 0 WHERE delivery = ? AND position = ?",
            key_of(sent.owed.id, sent.position, next_generation(sent)),
            sent.owed.id,
            sent.position,
        )
        return Arrival.OF_ANOTHER_PART
    return Arrival.WHOLE if delivered(tx, sent, receipt, now, wall) else Arrival.PART


def again_marked(tx: Transaction, next_part: Head, *, anchored: bool) -> None:
    """Repeats a doubtful part once, marked as a second copy.

    Where the platform can edit, an anchor is sent first, so that no further doubt can arise.
    """
    again(tx, next_part)
    body = marked(next_part.body)
    generation = next_generation(next_part)
    tx.execute(
        "UPDATE parts SET marked = 1, key = ?, body = ?, view = NULL, tried = NULL, since = 0"
        " WHERE delivery = ? AND position = ?",
        key_of(next_part.owed.id, next_part.position, generation),
        encode(body),
        next_part.owed.id,
        next_part.position,
    )
    if anchored:
        tx.execute("DELETE FROM parts WHERE delivery = ? AND position = 0", next_part.owed.id)
        tx.execute(
            "INSERT INTO parts (delivery, position, kind, key, body, state) VALUES (?, 0, 'anchor', ?, ?, 'waiting')",
            next_part.owed.id,
            key_of(next_part.owed.id, 0, next_part.position),
            encode(Body(text="…")),
        )


def another_anchor(tx: Transaction, next_part: Head) -> None:
    """Sends a new anchor under a new key: a lost anchor leaves only a "…" behind."""
    again(tx, next_part)
    tx.execute(
        "UPDATE parts SET key = ?, tried = NULL, since = 0 WHERE delivery = ? AND position = 0",
        f"{next_part.key}+",
        next_part.owed.id,
    )


def replace_files(tx: Transaction, next_part: Head) -> None:
    """Replaces a file in doubt by a line that names it, because a file is never sent twice."""
    names = ", ".join(file.name for file in next_part.body.files)
    text = f"I tried to send {names}, but the connection broke; it may not have arrived."
    again(tx, next_part)
    generation = next_generation(next_part)
    tx.execute(
        "UPDATE parts SET marked = 1, key = ?, body = ?, tried = NULL, since = 0 WHERE delivery = ? AND position = ?",
        key_of(next_part.owed.id, next_part.position, generation),
        encode(Body(text=f"{next_part.body.text}\n\n{text}".strip())),
        next_part.owed.id,
        next_part.position,
    )


def doubtful(tx: Transaction, delivery: str) -> Head | None:
    row = tx.one("SELECT * FROM deliveries WHERE id = ? AND state = 'doubtful'", delivery)
    return None if row is None else head_of(tx, row)


def recover(tx: Transaction) -> int:
    """Marks parts as doubtful that were being sent when the process died."""
    tx.execute(
        "UPDATE deliveries SET state = 'doubtful' WHERE id IN (SELECT delivery FROM parts WHERE state = 'sending')"
    )
    return tx.count("UPDATE parts SET state = 'doubtful' WHERE state = 'sending'")


def open_doubts(tx: Transaction) -> list[str]:
    return [row["id"] for row in tx.all("SELECT id FROM deliveries WHERE state <> 'delivered' AND state = 'doubtful'")]


def _set_states(tx: Transaction, next_part: Head, part: str, delivery: DeliveryState) -> None:
    tx.execute(
        "UPDATE parts SET state = ? WHERE delivery = ? AND position = ?",
        part,
        next_part.owed.id,
        next_part.position,
    )
    tx.execute("UPDATE deliveries SET state = ? WHERE id = ?", delivery, next_part.owed.id)
