"""The outbox: every delivery and its state, from waiting to delivered or dead; written in the caller's transaction."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from tidings.core.errors import Conflict, Unknown
from tidings.core.outbound import notices, view_rows
from tidings.core.outbound.notices import Notice
from tidings.core.redaction import one_line, plain
from tidings.core.store.steady_time import Lag
from tidings.core.store.store import Row, Transaction
from tidings.core.store.wakeups import Lane
from tidings.core.types import (
    Body,
    Choice,
    Delivery,
    DeliveryState,
    File,
    Part,
    PartKind,
    Receipt,
    Signal,
    Target,
    View,
    encode,
)

# A delivery that could not be made for this long is given up, and its chat is told.
EXPIRES_SECONDS = 72 * 3600.0
NOTICE_SECONDS = 3600.0
MARK = "↻ Sent again after a lost connection; you may see this twice.\n\n"
# The reason of a dead opening whose doubt could not be settled: it may have arrived all the same.
DROPPED = "dropped"
# Matches the lanes of one account, not those of a longer name with the same beginning; empty matches all lanes.
INSIDE = "(? = '' OR lane = ? OR substr(lane, 1, length(?) + 1) = ? || ':')"


class Class(StrEnum):
    """What a delivery is for; each run has one final delivery."""

    FINAL = "final"
    REPLY = "reply"
    NOTICE = "notice"
    OPENING = "opening"


class Owed(NamedTuple):
    id: str
    kind: Class
    target: Target
    body: Body
    run: str | None = None
    cause: str = ""
    # Repeated requests with the same key make one delivery.
    key: str = ""
    digest: str = ""
    # For a notice: its sender in words, which the conversation's memory keeps.
    source: str = ""
    # The reaction to show on arrival; None if the message was not marked as seen.
    signal: Signal | None = None
    # Whether a later delivery may replace the message in place.
    editable: bool = False
    # The delivery whose message this one replaces; where that is impossible, this one is a new message.
    replaces: str = ""

    @property
    def notice(self) -> Notice:
        return Notice(self.id, self.source, safe(self.body))


class Opening(NamedTuple):
    """The part that opens a run's view, and whether it was sent."""

    delivery: str
    settled: bool
    view: View | None = None


class Head(NamedTuple):
    """The part that a lane must send next."""

    owed: Owed
    position: int
    total: int
    kind: PartKind
    key: str
    body: Body
    not_before: float
    attempts: int
    misses: int
    marked: bool
    tried: float | None
    since: float
    view: View | None
    # False until the courier has cut the body into parts.
    composed: bool
    # The part was marked as sending, and no verdict is stored.
    in_flight: bool = False

    @property
    def shows(self) -> bool:
        """Tells whether the part opens or finishes a view."""
        return self.view is not None or self.kind is not PartKind.PLAIN

    @property
    def is_bare_anchor(self) -> bool:
        """Tells whether the part only makes room for the next one, and has no text of its own."""
        return self.kind is PartKind.ANCHOR and self.position == 0

    def part(self, target: Target, age: float = 0.0) -> Part:
        return Part(
            key=self.key,
            kind=self.kind,
            target=target,
            body=self.body,
            position=self.position,
            count=self.total,
            view=self.view,
            age=age,
        )


def put(tx: Transaction, owed: Owed, now: float) -> None:
    if owed.kind is Class.FINAL:
        _supersede_opening(tx, owed.run, now)
    tx.execute(
        "INSERT INTO deliveries (id, lane, kind, run, cause, target, body, state, created, key, digest, source, signal,"
        " has_files, editable, replaces) VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', ?, ?, ?, ?, ?, ?, ?, ?)",
        owed.id,
        owed.target.lane,
        owed.kind,
        owed.run,
        owed.cause,
        encode(owed.target),
        encode(safe(owed.body)),
        now,
        owed.key,
        owed.digest,
        owed.source,
        owed.signal or "",
        int(bool(owed.body.files)),
        int(owed.editable),
        owed.replaces,
    )
    tx.announce(Lane(owed.target.lane))


def put_once(tx: Transaction, owed: Owed, now: float) -> str:
    """Stores a delivery, or returns the earlier one with its key; raises Conflict if that has another digest."""
    known = tx.one("SELECT id, digest FROM deliveries WHERE key = ? AND key <> ''", owed.key) if owed.key else None
    if known is None:
        put(tx, owed, now)
        return owed.id
    if known["digest"] != owed.digest:
        raise Conflict("this key was used for another message")
    return str(known["id"])


def withdraw(tx: Transaction, key: str, now: float) -> None:
    """Gives up the message with this key if it was not sent yet, without a notice: it has become pointless."""
    row = tx.one("SELECT id, lane FROM deliveries WHERE key = ? AND key <> '' AND state IN ('waiting', 'held')", key)
    if row is None or tx.one(
        "SELECT 1 FROM parts WHERE delivery = ? AND (state <> 'waiting' OR tried IS NOT NULL)", row["id"]
    ):
        return
    tx.execute("UPDATE parts SET state = 'dead' WHERE delivery = ?", row["id"])
    tx.execute(
        "UPDATE deliveries SET state = 'dead', closed = ?, untold = 0, dismissed = 1, reason = 'superseded'"
        " WHERE id = ?",
        *(now, row["id"]),
    )
    tx.announce(Lane(row["lane"]))


def is_withdrawn(tx: Transaction, id: str) -> bool:
    row = tx.one("SELECT 1 FROM deliveries WHERE id = ? AND state = 'dead' AND dismissed = 1", id)
    return row is not None


def safe(body: Body) -> Body:
    """Redacts a body and makes it storable; every body passes here on its way into a row."""
    return Body(
        text=plain(body.text),
        files=tuple(File(path=file.path, name=plain(file.name)) for file in body.files),
        choices=tuple(Choice(id=choice.id, label=plain(choice.label)) for choice in body.choices),
    )


def put_notice(tx: Transaction, owed: Owed, now: float, *, every: float = NOTICE_SECONDS) -> bool:
    """Stores a notice, unless the same one went to the same lane within `every` seconds; tells whether it did."""
    recent = tx.one(
        "SELECT 1 FROM deliveries WHERE kind = 'notice' AND lane = ? AND cause = ? AND created > ?",
        owed.target.lane,
        owed.cause,
        now - every,
    )
    if recent is None:
        put(tx, owed, now)
    return recent is None


def _supersede_opening(tx: Transaction, run: str | None, now: float) -> None:
    """Gives up an opening that was not sent yet: it would only flash before the final answer."""
    tx.execute(
        "UPDATE deliveries SET state = 'dead', reason = 'superseded', closed = ? WHERE kind = 'opening' AND run = ?"
        " AND state IN ('waiting', 'held')"
        " AND NOT EXISTS (SELECT 1 FROM parts WHERE delivery = id AND (state = 'sending' OR tried IS NOT NULL))",
        now,
        run,
    )


def head(tx: Transaction, lane: str) -> Head | None:
    """The next part of the lane's oldest delivery that is neither doubtful, held nor settled.

    A final answer waits until its opening is no longer in doubt, so that it can finish the view; a delivery that
    replaces a message waits for that message likewise.
    """
    row = tx.one(
        "SELECT * FROM deliveries d WHERE lane = ? AND state = 'waiting' AND NOT (kind = 'final' AND EXISTS ("
        " SELECT 1 FROM deliveries o WHERE o.run = d.run AND o.kind = 'opening' AND o.state = 'doubtful'))"
        " AND NOT (replaces <> '' AND EXISTS ("
        " SELECT 1 FROM deliveries q WHERE q.id = d.replaces AND q.state = 'doubtful'))"
        " ORDER BY seq LIMIT 1",
        lane,
    )
    return None if row is None else head_of(tx, row)


def head_of(tx: Transaction, row: Row) -> Head:
    owed = _owed(row)
    part = tx.one(
        "SELECT *, (SELECT max(position) FROM parts WHERE delivery = ?) AS total FROM parts"
        " WHERE delivery = ? AND state <> 'delivered' ORDER BY position LIMIT 1",
        owed.id,
        owed.id,
    )
    if part is None:
        kind = PartKind.OPENING if owed.kind is Class.OPENING else PartKind.PLAIN
        view = _view_to_finish(tx, owed)
        return Head(owed, 1, 1, kind, f"{owed.id}.1", owed.body, 0.0, 0, 0, False, None, 0.0, view, False)
    return _head(owed, part)


def _view_to_finish(tx: Transaction, owed: Owed) -> View | None:
    """The view that a delivery finishes in place: of its run, or of the message that it replaces."""
    if owed.kind is Class.FINAL:
        return view_rows.find(tx, owed.run)
    if not owed.replaces:
        return None
    row = tx.one(
        "SELECT receipt FROM parts WHERE delivery = ? AND kind = 'anchor' AND position > 0 AND receipt IS NOT NULL"
        " ORDER BY position DESC LIMIT 1",
        owed.replaces,
    )
    return msgspec.json.decode(row["receipt"], type=Receipt).view if row else None


def opening_of(tx: Transaction, run: str) -> Opening | None:
    row = tx.one(
        "SELECT d.id, d.state, v.view FROM deliveries d LEFT JOIN views v ON v.run = d.run"
        " WHERE d.run = ? AND d.kind = 'opening'",
        run,
    )
    if row is None:
        return None
    return Opening(row["id"], row["state"] in ("delivered", "dead"), _decode_view(row["view"]))


def _head(owed: Owed, part: Row) -> Head:
    return Head(
        owed=owed,
        position=part["position"],
        total=part["total"],
        kind=PartKind(part["kind"]),
        key=part["key"],
        body=msgspec.json.decode(part["body"], type=Body),
        not_before=part["not_before"],
        attempts=part["attempts"],
        misses=part["misses"],
        marked=bool(part["marked"]),
        tried=part["tried"],
        since=part["since"],
        view=_decode_view(part["view"]),
        composed=True,
        in_flight=part["state"] == "sending",
    )


def compose(tx: Transaction, next_part: Head, bodies: tuple[Body, ...]) -> Head:
    """Writes the parts of a delivery; the first finishes the run's view in place, if there is one by now."""
    owed = next_part.owed
    kinds = [PartKind.OPENING if owed.kind is Class.OPENING else PartKind.PLAIN] * len(bodies)
    if owed.editable:
        kinds[_lasting_part(bodies)] = PartKind.ANCHOR
    view = _view_to_finish(tx, owed)
    bodies = tuple(safe(body) for body in bodies)
    second = view is None and _was_shown_whole(tx, owed)
    if second:
        bodies = (marked(bodies[0]), *bodies[1:])
    for position, body in enumerate(bodies, start=1):
        tx.execute(
            "INSERT INTO parts (delivery, position, kind, key, body, state, marked, view)"
            " VALUES (?, ?, ?, ?, ?, 'waiting', ?, ?)",
            owed.id,
            position,
            kinds[position - 1],
            key_of(owed.id, position),
            encode(body),
            int(second and position == 1),
            encode(view) if view and position == 1 else None,
        )
    marked_first = second or next_part.marked
    return next_part._replace(
        body=bodies[0], total=len(bodies), kind=kinds[0], view=view, composed=True, marked=marked_first
    )


def _lasting_part(bodies: tuple[Body, ...]) -> int:
    """The part that may be replaced later: the one with the buttons, else the last one with a text."""
    found = [number for number, body in enumerate(bodies) if body.choices] or [
        number for number, body in enumerate(bodies) if body.text and not body.files
    ]
    return found[-1] if found else 0


def _was_shown_whole(tx: Transaction, owed: Owed) -> bool:
    """Tells whether an opening that may have arrived already showed this whole text."""
    if owed.kind is not Class.FINAL:
        return False
    row = tx.one("SELECT body FROM deliveries WHERE run = ? AND kind = 'opening' AND reason = ?", owed.run, DROPPED)
    return row is not None and msgspec.json.decode(row["body"], type=Body).text.strip() == owed.body.text.strip()


def marked(body: Body) -> Body:
    """Adds the mark of a second copy to a body."""
    return body if body.text.startswith(MARK) else msgspec.structs.replace(body, text=MARK + body.text)


def recompose(tx: Transaction, next_part: Head, bodies: tuple[Body, ...]) -> None:
    """Replaces a part that did not fit by smaller ones, which get new keys because their bodies are new."""
    owed, position, more = next_part.owed, next_part.position, len(bodies) - 1
    generation = next_generation(next_part)
    view = tx.one("SELECT view FROM parts WHERE delivery = ? AND position = ?", owed.id, position)
    later = tx.all(
        "SELECT position FROM parts WHERE delivery = ? AND position > ? ORDER BY position DESC",
        owed.id,
        position,
    )
    for row in later:
        tx.execute(
            "UPDATE parts SET position = ?, key = ? WHERE delivery = ? AND position = ?",
            row["position"] + more,
            key_of(owed.id, row["position"] + more, generation),
            owed.id,
            row["position"],
        )
    tx.execute("DELETE FROM parts WHERE delivery = ? AND position = ?", owed.id, position)
    for offset, body in enumerate(bodies):
        tx.execute(
            "INSERT INTO parts (delivery, position, kind, key, body, state, marked, view)"
            " VALUES (?, ?, ?, ?, ?, 'waiting', ?, ?)",
            owed.id,
            position + offset,
            next_part.kind,
            key_of(owed.id, position + offset, generation),
            encode(safe(body)),
            int(next_part.marked),
            view["view"] if view and offset == 0 else None,
        )


def key_of(delivery: str, position: int, generation: int = 0) -> str:
    """The key of a part; each change of a part's body is a new generation with a new key."""
    return f"{delivery}.{position}" + (f"#{generation}" if generation > 1 else "")


def next_generation(part: Head) -> int:
    return int(part.key.partition("#")[2] or 1) + 1


def mark_sending(tx: Transaction, next_part: Head, now: float) -> bool:
    """Marks a part as sending just before it is sent; false when it is no longer this part's turn."""
    return bool(
        tx.count(
            "UPDATE parts SET state = 'sending', attempts = attempts + 1, tried = coalesce(tried, ?),"
            " since = CASE WHEN since = 0 THEN ? ELSE since END"
            " WHERE delivery = ? AND position = ? AND state = 'waiting'"
            " AND EXISTS (SELECT 1 FROM deliveries WHERE id = ? AND state = 'waiting')",
            now,
            now,
            next_part.owed.id,
            next_part.position,
            next_part.owed.id,
        )
    )


def delivered(tx: Transaction, next_part: Head, receipt: Receipt, now: float, wall: float) -> bool:
    """Stores a receipt; true when this was the last part."""
    owed, position = next_part.owed, next_part.position
    if owed.source and not next_part.is_bare_anchor:
        notices.land(tx, owed.notice, owed.target, receipt, wall)
    tx.execute(
        "UPDATE parts SET state = 'delivered', receipt = ?, posted = ? WHERE delivery = ? AND position = ?",
        encode(receipt),
        receipt.ids[0] if receipt.ids else "",
        owed.id,
        position,
    )
    if next_part.kind is PartKind.OPENING and receipt.view:
        view_rows.keep(tx, owed.run, receipt.view)
    if next_part.is_bare_anchor and receipt.view:
        _hand_over_anchor(tx, owed.id, receipt.view)
    if next_part.marked and next_part.view:
        _anchor_next(tx, owed.id, position + 1)
    open_part = tx.one("SELECT 1 FROM parts WHERE delivery = ? AND state <> 'delivered'", owed.id)
    tx.execute(
        "UPDATE deliveries SET state = ?, closed = ? WHERE id = ?",
        DeliveryState.WAITING if open_part else DeliveryState.DELIVERED,
        None if open_part else now,
        owed.id,
    )
    return open_part is None


def is_taken(tx: Transaction, next_part: Head, message: str) -> bool:
    """Tells whether a message is already the receipt of another part, perhaps the opening of the same view."""
    target = next_part.owed.target
    place = msgspec.structs.replace(target, chat="", thread="").lane
    row = tx.one(
        "SELECT 1 FROM parts p JOIN deliveries d ON d.id = p.delivery WHERE p.posted = ? AND p.posted <> ''"
        f" AND p.key <> ? AND {INSIDE}",
        message,
        next_part.key,
        *(place,) * 4,
    )
    return row is not None


def _hand_over_anchor(tx: Transaction, delivery: str, view: View) -> None:
    tx.execute(
        "UPDATE parts SET view = ? WHERE delivery = ? AND position ="
        " (SELECT min(position) FROM parts WHERE delivery = ? AND position > 0 AND state <> 'delivered')",
        encode(view),
        delivery,
        delivery,
    )


def _anchor_next(tx: Transaction, delivery: str, position: int) -> None:
    """Gives each further piece of a second copy an anchor too, so that no further doubt can arise."""
    tx.execute(
        "UPDATE parts SET state = 'waiting', key = ?, attempts = 0, misses = 0, tried = NULL, since = 0,"
        " receipt = NULL, posted = ''"
        " WHERE delivery = ? AND position = 0 AND EXISTS (SELECT 1 FROM parts WHERE delivery = ? AND position = ?"
        " AND state = 'waiting' AND marked = 1 AND view IS NULL)",
        key_of(delivery, 0, position),
        delivery,
        delivery,
        position,
    )


def not_sent(tx: Transaction, next_part: Head, not_before: float, *, missed: bool) -> None:
    """Sets a part back to waiting: nothing reached the platform, so the attempt does not count."""
    tx.execute(
        "UPDATE parts SET state = 'waiting', attempts = attempts - 1, tried = ?, misses = misses + ?, not_before = ?"
        " WHERE delivery = ? AND position = ?",
        next_part.tried,
        int(missed),
        not_before,
        next_part.owed.id,
        next_part.position,
    )


def forget_view(tx: Transaction, next_part: Head) -> None:
    """Forgets a view that no longer exists, so that the same text is sent as a new message."""
    not_sent(tx, next_part, 0.0, missed=False)
    tx.execute(
        "UPDATE parts SET view = NULL, tried = NULL, since = 0 WHERE delivery = ? AND position = ?",
        next_part.owed.id,
        next_part.position,
    )
    view_rows.remove(tx, next_part.owed.run)


def hold(tx: Transaction, next_part: Head, reason: str) -> None:
    """Holds a delivery until the owner has corrected the settings; the attempt does not count."""
    if next_part.composed:
        tx.execute(
            "UPDATE parts SET state = 'waiting', attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END,"
            " tried = ? WHERE delivery = ? AND position = ? AND state = 'sending'",
            next_part.tried,
            next_part.owed.id,
            next_part.position,
        )
    tx.execute("UPDATE deliveries SET state = 'held', reason = ? WHERE id = ?", one_line(reason), next_part.owed.id)


def release(tx: Transaction, place: str) -> None:
    """Sets held deliveries back to waiting."""
    rows = tx.all(
        "UPDATE deliveries SET state = 'waiting', reason = ''"
        f" WHERE state <> 'delivered' AND state = 'held' AND {INSIDE} RETURNING lane",
        *(place,) * 4,
    )
    for row in rows:
        tx.announce(Lane(row["lane"]))


def retry_now(tx: Transaction, place: str) -> None:
    """Makes deliveries due that wait after a connection failure; a pause that the platform asked for stays."""
    tx.execute(
        "UPDATE parts SET not_before = 0, misses = 0 WHERE state = 'waiting' AND misses > 0"
        f" AND delivery IN (SELECT id FROM deliveries WHERE state = 'waiting' AND {INSIDE})",
        *(place,) * 4,
    )
    rows = tx.all(f"SELECT DISTINCT lane FROM deliveries WHERE state = 'waiting' AND {INSIDE}", *(place,) * 4)
    for row in rows:
        tx.announce(Lane(row["lane"]))


def die(tx: Transaction, next_part: Head, reason: str, now: float, *, silent: bool = False) -> None:
    """Gives a delivery up; unless it was only a view, the chat is told at the next contact."""
    tx.execute(
        "UPDATE parts SET unsure = CASE WHEN state = 'doubtful' OR (state = 'waiting' AND tried IS NOT NULL)"
        " THEN 1 ELSE 0 END, state = 'dead' WHERE delivery = ? AND state <> 'delivered'",
        next_part.owed.id,
    )
    tx.execute(
        "UPDATE deliveries SET state = 'dead', reason = ?, closed = ?, untold = ? WHERE id = ?",
        one_line(reason),
        now,
        int(not silent),
        next_part.owed.id,
    )
    # The next delivery in the lane may be sent.
    tx.announce(Lane(next_part.owed.target.lane))


def tell_losses(tx: Transaction, lanes: tuple[str, ...], notice: Owed, now: float) -> None:
    """Stores a notice if a delivery to this chat was lost, under any of its ids, and marks the loss as told."""
    lost = sum(tx.count("UPDATE deliveries SET untold = 0 WHERE lane = ? AND untold = 1", lane) for lane in lanes)
    if lost > 0:
        put(tx, notice, now)


def open_lanes(tx: Transaction) -> list[str]:
    return [row["lane"] for row in tx.all("SELECT DISTINCT lane FROM deliveries WHERE state = 'waiting'")]


def expired(tx: Transaction, now: float) -> list[Head]:
    rows = tx.all(
        "SELECT * FROM deliveries WHERE state <> 'delivered' AND state IN ('waiting', 'doubtful') AND created < ?"
        " AND NOT EXISTS"
        " (SELECT 1 FROM parts WHERE delivery = id AND state = 'sending')",
        now - EXPIRES_SECONDS,
    )
    return [head_of(tx, row) for row in rows]


def postpone(tx: Transaction, lag: Lag) -> None:
    """Moves deliveries created while steady time was late, so that they keep their age."""
    tx.execute(
        "UPDATE deliveries SET created = created + ? WHERE state <> 'delivered'"
        " AND state IN ('waiting', 'held', 'doubtful') AND created > ?",
        lag.seconds,
        lag.since,
    )


def counts(tx: Transaction) -> dict[str, int]:
    rows = tx.all(
        "SELECT state, sum(n) AS n FROM (SELECT state, count(*) AS n FROM deliveries WHERE state <> 'delivered'"
        " AND kind <> 'opening' AND dismissed = 0 GROUP BY state UNION ALL SELECT state, count(*) FROM deliveries"
        " WHERE kind = 'opening' AND state IN ('waiting', 'held', 'doubtful') GROUP BY state) AS counted"
        " GROUP BY state"
    )
    return {row["state"]: row["n"] for row in rows}


def count_owed(tx: Transaction) -> tuple[int, int]:
    """Counts open deliveries without openings, and those of them that may have arrived."""
    row = tx.one(
        "SELECT count(*) AS owed, sum(CASE WHEN state = 'doubtful' OR EXISTS (SELECT 1 FROM parts p"
        " WHERE p.delivery = d.id AND p.state = 'sending') THEN 1 ELSE 0 END) AS unsure FROM deliveries d"
        " WHERE kind <> 'opening' AND state <> 'delivered' AND state IN ('waiting', 'held', 'doubtful')"
    )
    return (row["owed"], row["unsure"] or 0) if row else (0, 0)


def state_of(tx: Transaction, id: str) -> DeliveryState | None:
    row = tx.one("SELECT state FROM deliveries WHERE id = ?", id)
    return DeliveryState(row["state"]) if row else None


def lookup(tx: Transaction, id: str) -> Delivery:
    row = tx.one("SELECT * FROM deliveries WHERE id = ?", id)
    if row is None:
        raise Unknown(f"there is no delivery {id}")
    parts = tx.all("SELECT receipt FROM parts WHERE delivery = ? AND receipt IS NOT NULL ORDER BY position", id)
    return Delivery(
        id=id,
        target=_owed(row).target,
        state=DeliveryState(row["state"]),
        reason=row["reason"],
        cause=row["cause"],
        receipts=tuple(msgspec.json.decode(part["receipt"], type=Receipt) for part in parts),
    )


def _owed(row: Row) -> Owed:
    return Owed(
        id=row["id"],
        kind=Class(row["kind"]),
        target=msgspec.json.decode(row["target"], type=Target),
        body=msgspec.json.decode(row["body"], type=Body),
        run=row["run"],
        cause=row["cause"],
        source=row["source"],
        signal=Signal(row["signal"]) if row["signal"] else None,
        editable=bool(row["editable"]),
        replaces=row["replaces"],
    )


def _decode_view(data: bytes | None) -> View | None:
    return msgspec.json.decode(data, type=View) if data else None
