"""Tokens and cost by conversation and day: added up as runs end, and shown by /usage."""

from __future__ import annotations

from datetime import date, timedelta

from tidings.core.agent import Usage
from tidings.core.store.store import Row, Transaction

# The days before today that are listed one by one.
DAYS = 7
SUMS = (
    "sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(requests) AS requests,"
    " sum(cost) AS cost, sum(runs) AS runs"
)


def add(tx: Transaction, conversation: str, used: Usage, wall: float) -> None:
    tx.execute(
        "INSERT INTO usage (conversation, day, input_tokens, output_tokens, requests, cost, runs)"
        " VALUES (?, ?, ?, ?, ?, ?, 1) ON CONFLICT (conversation, day) DO UPDATE SET"
        " input_tokens = usage.input_tokens + excluded.input_tokens,"
        " output_tokens = usage.output_tokens + excluded.output_tokens,"
        " requests = usage.requests + excluded.requests, cost = usage.cost + excluded.cost, runs = usage.runs + 1",
        conversation,
        date.fromtimestamp(wall).isoformat(),
        used.input_tokens,
        used.output_tokens,
        used.requests,
        used.cost,
    )


def told(tx: Transaction, conversation: str, wall: float) -> str:
    """The usage of today, of each recent day with any, and in total, in words."""
    total = tx.one(f"SELECT {SUMS} FROM usage WHERE conversation = ?", conversation)
    if total is None or not total["runs"]:
        return "No usage yet: no model has been asked in this conversation."
    today = date.fromtimestamp(wall)
    rows = tx.all(
        "SELECT * FROM usage WHERE conversation = ? AND day >= ? ORDER BY day DESC",
        conversation,
        (today - timedelta(days=DAYS)).isoformat(),
    )
    days = {row["day"]: _amount(row) for row in rows}
    lines = [f"Today: {days.pop(today.isoformat(), 'nothing yet')}"]
    lines += [f"{day}: {amount}" for day, amount in days.items()]
    return "\n".join(["Used in this conversation:", *lines, f"Total: {_amount(total)}"])


def _amount(row: Row) -> str:
    money = f"${row['cost']:.4f}" if row["cost"] > 0 else "price unknown"
    answers = f"{row['runs']:,} answer" + ("s" if row["runs"] != 1 else "")
    return f"{row['input_tokens']:,} tokens in, {row['output_tokens']:,} out, for {answers}; {money}"
