"""The rows of spending: one for each scope, name and window, summed over processes when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import NamedTuple

from tidings.core.agent import Usage
from tidings.core.desk.deliveries import Pruned
from tidings.core.desk.usage import MINUTE, Counts, Figure, Key, Scope, SpentRow
from tidings.core.store.pruning import FOR_EVER, REMOVED, Slice, Terms
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Conversation

# Always '' while one process uses a store.
NODE = ""
# How many rows one question asks for; a person with more names needs a second one.
ASKED = 16
# A day comes before every other word, and after the empty one.
FIRST_DAY, LAST_DAY = "0000", "9999-12-31"
SUMS = (
    "sum(runs) AS runs, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,"
    " sum(requests) AS requests, sum(cost) AS cost, sum(reserved_tokens) AS reserved_tokens,"
    " sum(reserved_cost) AS reserved_cost, max(peak_tokens) AS peak_tokens, max(peak_cost) AS peak_cost,"
    " max(told) AS told"
)
FIND = (
    f"SELECT scope, name, span, {SUMS} FROM spending WHERE (scope = ? AND name = ? AND span = ?)"
    + " OR (scope = ? AND name = ? AND span = ?)" * (ASKED - 1)
    + " GROUP BY scope, name, span"
)
ONE_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
ADD = (
    " ON CONFLICT (scope, name, span, node) DO UPDATE SET runs = spending.runs + excluded.runs,"
    " input_tokens = spending.input_tokens + excluded.input_tokens,"
    " output_tokens = spending.output_tokens + excluded.output_tokens,"
    " requests = spending.requests + excluded.requests, cost = spending.cost + excluded.cost,"
    " reserved_tokens = spending.reserved_tokens + excluded.reserved_tokens,"
    " reserved_cost = spending.reserved_cost + excluded.reserved_cost,"
    " peak_tokens = CASE WHEN excluded.peak_tokens > spending.peak_tokens THEN excluded.peak_tokens"
    " ELSE spending.peak_tokens END,"
    " peak_cost = CASE WHEN excluded.peak_cost > spending.peak_cost THEN excluded.peak_cost"
    " ELSE spending.peak_cost END"
    " RETURNING scope, name, span, runs, input_tokens, output_tokens, requests, cost, reserved_tokens,"
    " reserved_cost, peak_tokens, peak_cost, told"
)
INTO = (
    "INSERT INTO spending (scope, name, span, node, runs, input_tokens, output_tokens, requests, cost,"
    " reserved_tokens, reserved_cost, peak_tokens, peak_cost) VALUES "
)
# A run reserves for a person, a chat, a bot and the gateway, and is settled with three rows more.
RESERVE = INTO + ", ".join([ONE_ROW] * 4) + ADD
SETTLE = INTO + ", ".join([ONE_ROW] * 7) + ADD
# A conversation that is never continued has no figures of its own.
SETTLE_PASSING = INTO + ", ".join([ONE_ROW] * 5) + ADD
# Of a person who was forgotten meanwhile, only the group, the bot and the gateway are charged.
SETTLE_IN_GROUP = RESERVE
SETTLE_IN_PRIVATE = INTO + ", ".join([ONE_ROW] * 3) + ADD
HEAR = (
    "INSERT INTO spending (scope, name, span, node, minute, messages) VALUES"
    " (?, ?, ?, ?, ?, 1), (?, ?, ?, ?, ?, 1), (?, ?, ?, ?, ?, 1), (?, ?, ?, ?, ?, 1)"
    " ON CONFLICT (scope, name, span, node) DO UPDATE SET minute = excluded.minute,"
    " messages = CASE WHEN spending.minute = excluded.minute THEN spending.messages + 1 ELSE 1 END"
    " RETURNING scope, messages"
)


class Change(NamedTuple):
    """What is added to one row."""

    key: Key
    runs: int = 0
    used: Usage = Usage()
    reserved_tokens: int = 0
    reserved_cost: float = 0.0
    peak_tokens: int = 0
    peak_cost: float = 0.0

    @property
    def values(self) -> tuple[object, ...]:
        used = self.used
        return (
            *(self.key.scope, self.key.name, self.key.span, NODE, self.runs),
            *(used.input_tokens, used.output_tokens, used.requests, used.cost),
            *(self.reserved_tokens, self.reserved_cost, self.peak_tokens, self.peak_cost),
        )


def read(tx: Transaction, keys: Sequence[Key]) -> dict[Key, Counts]:
    """The rows with these keys that exist, by one statement for up to sixteen keys."""
    found: dict[Key, Counts] = {}
    for start in range(0, len(keys), ASKED):
        asked = [*keys[start : start + ASKED]]
        # The last one is asked for again to fill the question.
        asked += [asked[-1]] * (ASKED - len(asked))
        rows = tx.all(FIND, *(part for key in asked for part in key))
        found.update({_key(row): _counts(row) for row in rows})
    return found


def reserve(tx: Transaction, changes: Sequence[Change]) -> list[SpentRow]:
    """Adds the reservations of a run; returns the rows as they are then."""
    return _spent(tx.all(RESERVE, *(part for change in changes for part in change.values)))


def settle(tx: Transaction, changes: Sequence[Change]) -> list[SpentRow]:
    """Adds what a run has used, and gives back what it reserved; returns the rows as they are then."""
    values = [part for change in changes for part in change.values]
    match len(changes):
        case 3:
            return _spent(tx.all(SETTLE_IN_PRIVATE, *values))
        case 4:
            return _spent(tx.all(SETTLE_IN_GROUP, *values))
        case 5:
            return _spent(tx.all(SETTLE_PASSING, *values))
        case _:
            return _spent(tx.all(SETTLE, *values))


def hear(tx: Transaction, names: Iterable[tuple[Scope, str]], minute: int) -> dict[Scope, int]:
    """Counts one message for each of four; returns how many there were in this minute."""
    rows = tx.all(HEAR, *(part for scope, name in names for part in (scope, name, MINUTE, NODE, minute)))
    return {Scope(row["scope"]): int(row["messages"]) for row in rows}


def since(tx: Transaction, scope: Scope, day: str) -> list[SpentRow]:
    """Every row of a scope from a day on."""
    rows = tx.all(
        f"SELECT scope, name, span, {SUMS} FROM spending WHERE scope = ? AND span BETWEEN ? AND ?"
        " GROUP BY scope, name, span",
        *(scope, day, LAST_DAY),
    )
    return _spent(rows)


def days_of(tx: Transaction, scope: Scope, name: str, day: str) -> list[SpentRow]:
    """The rows of one name from a day on, the newest first."""
    rows = tx.all(
        f"SELECT scope, name, span, {SUMS} FROM spending WHERE scope = ? AND name = ? AND span BETWEEN ? AND ?"
        " GROUP BY scope, name, span ORDER BY span DESC",
        *(scope, name, day, LAST_DAY),
    )
    return _spent(rows)


def mark_told(tx: Transaction, key: Key, percent: int) -> None:
    tx.execute("UPDATE spending SET told = ? WHERE scope = ? AND name = ? AND span = ?", percent, *key)


def figures(found: Iterable[SpentRow]) -> list[Figure]:
    """The sums by name, the largest first."""
    sums: dict[str, Counts] = {}
    for row in found:
        sums[row.key.name] = sums.get(row.key.name, Counts()) + row.counts
    named = [figure_of(name, counts) for name, counts in sums.items()]
    return sorted(named, key=lambda each: (-each.cost, -(each.input_tokens + each.output_tokens), each.name))


def figure_of(name: str, counts: Counts, label: str = "") -> Figure:
    return Figure(
        name=name,
        label=label,
        runs=counts.runs,
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        requests=counts.requests,
        cost=round(counts.cost, 6),
    )


def forget(tx: Transaction, names: Sequence[str], conversations: Sequence[str]) -> None:
    """Removes what a person, their conversations and private chats have used; other sums stay."""
    for name in names:
        tx.execute("DELETE FROM spending WHERE scope = 'person' AND name = ?", name)
    for conversation in conversations:
        tx.execute("DELETE FROM spending WHERE scope = 'conversation' AND name = ?", conversation)
        if (place := Conversation.of(conversation)).member == "":
            # It is a private chat, and mostly has the person's id.
            name = f"{place.adapter}@{place.account}:{place.chat}"
            tx.execute("DELETE FROM spending WHERE scope = 'chat' AND name = ?", name)


def old_spending(tx: Transaction, after: int | str, terms: Terms) -> Slice:
    """Removes days that are too long ago; the sums of all time stay."""
    if terms.usage == FOR_EVER:
        return Slice(None, Pruned())
    scopes = [*Scope]
    at = scopes.index(Scope(after)) if isinstance(after, str) and after else 0
    rows = tx.all(
        "SELECT name, span FROM spending WHERE scope = ? AND span BETWEEN ? AND ? ORDER BY span LIMIT ?",
        *(scopes[at], FIRST_DAY, date.fromtimestamp(terms.usage).isoformat(), REMOVED * 10),
    )
    for row in rows if not terms.rehearsal else ():
        tx.execute("DELETE FROM spending WHERE scope = ? AND name = ? AND span = ?", scopes[at], *_place(row))
    # A rehearsal removes nothing, so it looks at one slice of each scope.
    if len(rows) == REMOVED * 10 and not terms.rehearsal:
        return Slice(scopes[at], Pruned(usage=len(rows)))
    following = scopes[at + 1] if at + 1 < len(scopes) else None
    return Slice(following, Pruned(usage=len(rows)))


def _place(row: Row) -> tuple[str, str]:
    return row["name"], row["span"]


def _key(row: Row) -> Key:
    return Key(Scope(row["scope"]), row["name"], row["span"])


def _counts(row: Row) -> Counts:
    return Counts(
        runs=int(row["runs"]),
        input_tokens=int(row["input_tokens"]),
        output_tokens=int(row["output_tokens"]),
        requests=int(row["requests"]),
        cost=round(float(row["cost"]), 9),
        # Less than nothing is held of a row that was removed meanwhile; fractions may be off in the last digits.
        reserved_tokens=max(int(row["reserved_tokens"]), 0),
        reserved_cost=max(round(float(row["reserved_cost"]), 9), 0.0),
        peak_tokens=int(row["peak_tokens"]),
        peak_cost=float(row["peak_cost"]),
        told=int(row["told"]),
    )


def _spent(rows: Iterable[Row]) -> list[SpentRow]:
    return [SpentRow(_key(row), _counts(row)) for row in rows]
