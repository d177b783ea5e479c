"""Codes that admit a stranger or link two chats: short, kept as digests, used once, and guarded against guessing."""

from __future__ import annotations

import hashlib
import secrets
from typing import NamedTuple

import msgspec

from tidings.core import ids
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Inbound, encode

PAIRING, LINK = "pairing", "link"
# 32 characters, so 40 bits in eight: I, L and O are left out and read as 1, 1 and 0.
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
MISREAD = str.maketrans("ILO", "110")
CHARACTERS = 8
LASTING = {PAIRING: 3600.0, LINK: 300.0}
# How many strangers may wait for one account, and how often one of them gets a code.
OPEN_PER_ACCOUNT = 3
AGAIN_SECONDS = 600.0
# Wrong codes by one person, and by all strangers of one account, before codes are refused for a while.
WRONG_CODES, WRONG_BY_STRANGERS = 5, 20
CLOSED_SECONDS = 3600.0


class Code(NamedTuple):
    """A stored code: what it is for, and whom it admits or who made it."""

    id: str
    kind: str
    account: str
    identity: str
    name: str
    message: Inbound
    repeat_by: str
    expires: float
    at: float


def make(tx: Transaction, kind: str, identity: str, message: Inbound, now: float, wall: float) -> tuple[str, str]:
    """Stores a new code and returns its id and the code itself, which is nowhere else."""
    id, code = ids.new("code"), "".join(secrets.choice(ALPHABET) for _ in range(CHARACTERS))
    # An earlier code of the same person is void.
    tx.execute("DELETE FROM codes WHERE identity = ? AND kind = ?", identity, kind)
    tx.execute(
        "INSERT INTO codes (id, kind, digest, account, identity, name, message, state, made, expires, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'open', ?, ?, ?)",
        *(id, kind, digest(code), message.target.at, identity, message.sender.name),
        *(encode(message), now, now + LASTING[kind], wall),
    )
    return id, spoken(code)


def purge(tx: Transaction, now: float) -> None:
    """Removes codes that have expired, with the words of strangers who were not admitted."""
    tx.execute("DELETE FROM codes WHERE expires <= ?", now)
    tx.execute("DELETE FROM code_guesses WHERE since <= ?", now - CLOSED_SECONDS)


def spoken(code: str) -> str:
    return f"{code[:4]}-{code[4:]}"


def normal(text: str) -> str:
    return "".join(text.split()).replace("-", "").upper().translate(MISREAD)


def looks_like(text: str) -> bool:
    """Tells whether a text has the shape of a code, so that it is counted as a guess."""
    code = normal(text)
    return len(code) == CHARACTERS and all(each in ALPHABET for each in code)


def digest(code: str) -> str:
    return hashlib.sha256(normal(code).encode()).hexdigest()


def find(tx: Transaction, kind: str, text: str, now: float) -> Code | None:
    """The open code with this text; None for a code that is wrong, used, ignored or expired."""
    row = tx.one(
        "SELECT * FROM codes WHERE digest = ? AND kind = ? AND state = 'open' AND expires > ?", digest(text), kind, now
    )
    return _code(row) if row else None


def get(tx: Transaction, id: str, now: float) -> Code | None:
    """The open code with this id, for a button."""
    row = tx.one("SELECT * FROM codes WHERE id = ? AND state = 'open' AND expires > ?", id, now)
    return _code(row) if row else None


def of(tx: Transaction, kind: str, identity: str, now: float) -> Code | None:
    """The open code of this identity."""
    row = tx.one(
        "SELECT * FROM codes WHERE identity = ? AND kind = ? AND state = 'open' AND expires > ?"
        " ORDER BY made DESC LIMIT 1",
        *(identity, kind, now),
    )
    return _code(row) if row else None


def waiting(tx: Transaction, now: float) -> list[Code]:
    """The strangers who wait to be admitted, oldest first."""
    rows = tx.all("SELECT * FROM codes WHERE kind = 'pairing' AND state = 'open' AND expires > ? ORDER BY made", now)
    return [_code(row) for row in rows]


def close(tx: Transaction, id: str, state: str = "used") -> bool:
    """Ends a code; false if it was not open any more, so a code works once."""
    return bool(tx.count("UPDATE codes SET state = ? WHERE id = ? AND state = 'open'", state, id))


def forget(tx: Transaction, identity: str) -> None:
    """Removes the codes of an identity, with the messages that brought them."""
    tx.execute("DELETE FROM codes WHERE identity = ?", identity)


def ask_again(tx: Transaction, id: str, identity: str) -> None:
    """Notes that this identity must give the code a second time."""
    tx.execute("UPDATE codes SET repeat_by = ? WHERE id = ? AND state = 'open'", identity, id)


def may_ask(tx: Transaction, identity: str, now: float) -> bool:
    """Tells whether a stranger may get a code: not again within ten minutes, nor within an hour after being ignored."""
    row = tx.one(
        "SELECT made, state, expires FROM codes WHERE identity = ? AND kind = ? ORDER BY made DESC LIMIT 1",
        identity,
        PAIRING,
    )
    if row is None or row["state"] == "used":
        return True
    return bool(now >= (row["expires"] if row["state"] == "ignored" else row["made"] + AGAIN_SECONDS))


def is_full(tx: Transaction, account: str, now: float) -> bool:
    row = tx.one(
        "SELECT count(*) AS n FROM codes WHERE kind = ? AND account = ? AND state = 'open' AND expires > ?",
        *(PAIRING, account, now),
    )
    return row is not None and row["n"] >= OPEN_PER_ACCOUNT


def is_closed(tx: Transaction, guesser: str, now: float, limit: int = WRONG_CODES) -> bool:
    """Tells whether codes from here are refused, because too many were wrong."""
    row = tx.one("SELECT wrong, since FROM code_guesses WHERE guesser = ?", guesser)
    return row is not None and row["wrong"] >= limit and now < row["since"] + CLOSED_SECONDS


def count_wrong(tx: Transaction, guesser: str, now: float, limit: int = WRONG_CODES) -> None:
    """Counts a wrong code; the hour for which codes are refused begins with the last one that is looked at."""
    tx.execute("DELETE FROM code_guesses WHERE guesser = ? AND since <= ?", guesser, now - CLOSED_SECONDS)
    tx.execute(
        "INSERT INTO code_guesses (guesser, wrong, since) VALUES (?, 1, ?)"
        " ON CONFLICT (guesser) DO UPDATE SET wrong = code_guesses.wrong + 1,"
        " since = CASE WHEN code_guesses.wrong + 1 >= ? THEN excluded.since ELSE code_guesses.since END",
        *(guesser, now, limit),
    )


def keep_instead(tx: Transaction, id: str, message: Inbound) -> None:
    """Keeps another message as the one that brought the stranger."""
    tx.execute("UPDATE codes SET message = ? WHERE id = ? AND state = 'open'", encode(message), id)


def _code(row: Row) -> Code:
    message = msgspec.json.decode(row["message"], type=Inbound)
    return Code(
        *(row["id"], row["kind"], row["account"], row["identity"], row["name"], message),
        *(row["repeat_by"], row["expires"], row["at"]),
    )
