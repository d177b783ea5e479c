"""What the owner may do about deliveries in trouble: list them, retry them, drop them."""

from __future__ import annotations

import msgspec

from tidings.core.desk.deliveries import DeliveryLine
from tidings.core.errors import Conflict, Unknown
from tidings.core.outbound import doubts, outbox
from tidings.core.outbound.outbox import Class, Head, Owed
from tidings.core.store.store import Row, Transaction
from tidings.core.store.wakeups import Lane
from tidings.core.types import Body, DeliveryState, PartKind, Target

TITLE_CHARACTERS = 60
DROPPED_BY_OWNER = "dropped by the owner"
IN_TROUBLE = (DeliveryState.HELD, DeliveryState.DOUBTFUL, DeliveryState.DEAD)
OPEN = (DeliveryState.WAITING, *IN_TROUBLE)


def lines(
    tx: Transaction, states: tuple[DeliveryState, ...], limit: int, before: int, ahead: float
) -> list[DeliveryLine]:
    """Lists deliveries, newest first; `before` of 0 is the first page, `ahead` turns steady time into wall time."""
    found: list[Row] = []
    # One query for each state, so that each is a short index scan.
    for state in states:
        found += tx.all(
            "SELECT seq, id, target, body, state, reason, cause, created, closed FROM deliveries"
            " WHERE state <> 'delivered' AND kind <> 'opening' AND dismissed = 0 AND state = ?"
            " AND (? = 0 OR seq < ?) ORDER BY seq DESC LIMIT ?",
            state,
            before,
            before,
            limit,
        )
    found.sort(key=lambda row: -row["seq"])
    return [_line(tx, row, ahead) for row in found[:limit]]


def _line(tx: Transaction, row: Row, ahead: float) -> DeliveryLine:
    tried = tx.one("SELECT max(attempts) AS attempts FROM parts WHERE delivery = ?", row["id"])
    body = msgspec.json.decode(row["body"], type=Body)
    text = " ".join((body.text or ", ".join(file.name for file in body.files)).split())
    return DeliveryLine(
        seq=row["seq"],
        id=row["id"],
        target=str(msgspec.json.decode(row["target"], type=Target)),
        state=row["state"],
        reason=row["reason"],
        cause=row["cause"],
        title=text if len(text) <= TITLE_CHARACTERS else f"{text[: TITLE_CHARACTERS - 1]}…",
        at=(row["closed"] or row["created"]) + ahead,
        attempts=(tried["attempts"] if tried else None) or 0,
    )


def target_of(tx: Transaction, id: str) -> Target:
    return msgspec.json.decode(_row(tx, id)["target"], type=Target)


def retry(tx: Transaction, id: str, now: float, *, edits: bool) -> str:
    """Makes a delivery due at once, and says in words how it is tried.

    A delivery that may have arrived is sent under a new key and marked as a second copy; where the platform can
    edit, an anchor is sent first, so that no further doubt can arise. Raises Conflict if it cannot be retried.
    """
    row = _changeable(tx, id)
    doubtful = row["state"] == DeliveryState.DOUBTFUL or _is_unsure(tx, id)
    if doubtful:
        _copy(tx, outbox.head_of(tx, row), edits)
    if row["state"] == DeliveryState.DEAD:
        tx.execute(
            "UPDATE parts SET state = 'waiting', attempts = 0, tried = NULL, since = 0, unsure = 0"
            " WHERE delivery = ? AND state = 'dead'",
            id,
        )
    tx.execute("UPDATE parts SET misses = 0, not_before = 0 WHERE delivery = ? AND state = 'waiting'", id)
    # The delivery expires as late as a new one.
    tx.execute(
        "UPDATE deliveries SET state = 'waiting', reason = '', closed = NULL, untold = 0, dismissed = 0, created = ?"
        " WHERE id = ?",
        now,
        id,
    )
    tx.announce(Lane(row["lane"]))
    if doubtful:
        return "is sent again, marked as a second copy, because the first may have arrived"
    return "is tried again now"


def _copy(tx: Transaction, head: Head, edits: bool) -> None:
    if head.is_bare_anchor:
        doubts.another_anchor(tx, head)
        return
    before = tx.one("SELECT key FROM parts WHERE delivery = ? AND position = 0", head.owed.id)
    doubts.again_marked(tx, head, anchored=edits and head.kind is PartKind.PLAIN)
    tx.execute(
        "UPDATE parts SET attempts = 0, unsure = 0 WHERE delivery = ? AND position = ?", head.owed.id, head.position
    )
    if before is not None and edits:
        # The earlier anchor may have arrived too, so the new one needs another key.
        tx.execute("UPDATE parts SET key = ? WHERE delivery = ? AND position = 0", f"{before['key']}+", head.owed.id)


def drop(tx: Transaction, id: str, now: float) -> Owed:
    """Gives a delivery up for good, without a notice to anyone."""
    owed = outbox.head_of(tx, _changeable(tx, id)).owed
    tx.execute("UPDATE parts SET state = 'dead' WHERE delivery = ? AND state <> 'delivered'", id)
    tx.execute(
        "UPDATE deliveries SET state = 'dead', closed = coalesce(closed, ?), untold = 0, dismissed = 1,"
        " reason = CASE WHEN state = 'dead' THEN reason ELSE ? END WHERE id = ?",
        now,
        DROPPED_BY_OWNER,
        id,
    )
    tx.announce(Lane(owed.target.lane))
    return owed


def _row(tx: Transaction, id: str) -> Row:
    row = tx.one("SELECT * FROM deliveries WHERE id = ?", id)
    if row is None:
        raise Unknown(f"there is no delivery {id}; tidings deliveries lists them")
    return row


def _changeable(tx: Transaction, id: str) -> Row:
    row = _row(tx, id)
    if row["kind"] == Class.OPENING:
        raise Conflict(f"{id} only showed a growing answer; the answer itself is a separate delivery")
    if row["state"] == DeliveryState.DELIVERED:
        raise Conflict(f"{id} has already arrived")
    if tx.one("SELECT 1 FROM parts WHERE delivery = ? AND state = 'sending'", id):
        raise Conflict(f"{id} is being sent right now; try again in a moment")
    return row


def _is_unsure(tx: Transaction, id: str) -> bool:
    """Tells whether the delivery was given up while its arrival was still in doubt."""
    return tx.one("SELECT 1 FROM parts WHERE delivery = ? AND state = 'dead' AND unsure = 1", id) is not None
