"""The rows of persons, identities and keys, and what has changed in them since a version."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidings.core.desk.people import Key, Scope
from tidings.core.people import names
from tidings.core.store.store import Row, Transaction

# Before anything was read.
UNREAD = -1


class Stored(NamedTuple):
    """A stored person; an empty role means that only the settings give this person one."""

    id: str
    name: str
    role: str
    made_by: str
    at: float
    identities: tuple[str, ...]


class Changes(NamedTuple):
    """What has changed since a version: persons by id, with None for those who have gone, and all keys."""

    persons: dict[str, Stored | None]
    # Keys are few: every request to the HTTP API is compared with all of them.
    keys: dict[str, Key]
    # Another version means that something may have changed.
    version: int
    # These are all persons; others have gone.
    is_whole: bool = False


def read(tx: Transaction, since: int) -> Changes:
    """What has changed since a version, by the audit trail; everything if retention has removed that version."""
    now = version(tx)
    keys = {row["id"]: _key(row) for row in tx.all("SELECT * FROM keys ORDER BY created, name")}
    if since == UNREAD or since > now:
        return Changes(_read_all(tx), keys, now, is_whole=True)
    entries = tx.all("SELECT object FROM audit WHERE action <> 'tool' AND seq > ? AND seq <= ?", since, now)
    return Changes({id: _read_person(tx, id) for id in {row["object"] for row in entries}}, keys, now)


def _read_all(tx: Transaction) -> dict[str, Stored | None]:
    identities: dict[str, list[str]] = {}
    for row in tx.all("SELECT id, person FROM identities ORDER BY position, id"):
        identities.setdefault(row["person"], []).append(row["id"])
    return {row["id"]: _person(row, identities.get(row["id"], [])) for row in tx.all("SELECT * FROM persons")}


def version(tx: Transaction) -> int:
    """The number of the newest audit entry that is not about a tool.

    Every change of people and keys writes an entry about each person whom it changes.
    """
    row = tx.one("SELECT max(seq) AS seq FROM audit WHERE action <> 'tool'")
    return int(row["seq"] or 0) if row else 0


def _person(row: Row, identities: list[str]) -> Stored:
    return Stored(row["id"], row["name"], row["role"], row["made_by"], row["at"], tuple(identities))


def _key(row: Row) -> Key:
    return Key(
        id=row["id"],
        name=row["name"],
        digest=row["digest"],
        scopes=tuple(Scope(word) for word in msgspec.json.decode(row["scopes"])),
        created=row["created"],
        person=row["person"],
        bots=tuple(msgspec.json.decode(row["bots"])),
        targets=tuple(msgspec.json.decode(row["targets"])),
    )


def read_one(tx: Transaction, who: str) -> Stored | None:
    """The person with this id or identity, as the transaction sees it."""
    row = tx.one("SELECT person FROM identities WHERE id = ?", who)
    return _read_person(tx, row["person"] if row else who)


def read_namesakes(tx: Transaction, identity: str) -> list[Stored]:
    """Everybody who has this id on this platform, whatever the account."""
    plain = names.without_account(identity)
    platform = plain.partition(":")[0]
    # Identities with an account are few; they are those from `platform@` on.
    found = tx.all(
        "SELECT id, person FROM identities WHERE id = ? OR (id > ? AND id < ?)", plain, f"{platform}@", f"{platform}A"
    )
    holders = {row["person"] for row in found if names.is_same(row["id"], identity)}
    return [person for id in holders if (person := _read_person(tx, id)) is not None]


def _read_person(tx: Transaction, id: str) -> Stored | None:
    row = tx.one("SELECT * FROM persons WHERE id = ?", id)
    if row is None:
        return None
    identities = tx.all("SELECT id FROM identities WHERE person = ? ORDER BY position, id", id)
    return _person(row, [each["id"] for each in identities])


def put_person(tx: Transaction, person: Stored) -> None:
    tx.execute(
        "INSERT INTO persons (id, name, role, made_by, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id)"
        " DO UPDATE SET name = excluded.name, role = excluded.role",
        *(person.id, person.name, person.role, person.made_by, person.at),
    )
    for identity in person.identities:
        put_identity(tx, identity, person.id, person.at)


def put_identity(tx: Transaction, identity: str, person: str, at: float) -> None:
    """Gives an identity to a person as their last one; an identity belongs to one person only."""
    tx.execute(
        "INSERT INTO identities (id, person, position, at)"
        " VALUES (?, ?, (SELECT coalesce(max(position), 0) + 1 FROM identities WHERE person = ?), ?)"
        " ON CONFLICT (id) DO UPDATE SET person = excluded.person, position = excluded.position, at = excluded.at"
        " WHERE identities.person <> excluded.person",
        *(identity, person, person, at),
    )


def drop_person(tx: Transaction, id: str) -> None:
    """Removes a person with their identities and keys, also keys that were given to an identity."""
    for row in tx.all("SELECT id FROM identities WHERE person = ?", id):
        drop_keys(tx, row["id"])
    tx.execute("DELETE FROM identities WHERE person = ?", id)
    drop_keys(tx, id)
    tx.execute("DELETE FROM persons WHERE id = ?", id)


def drop_keys(tx: Transaction, holder: str) -> None:
    tx.execute("DELETE FROM keys WHERE person = ?", holder)


def drop_identity(tx: Transaction, identity: str) -> None:
    tx.execute("DELETE FROM identities WHERE id = ?", identity)


def merge(tx: Transaction, into: str, other: str) -> None:
    """Gives all identities and keys of one person to another, and removes the first."""
    tx.execute("UPDATE identities SET person = ? WHERE person = ?", into, other)
    tx.execute("UPDATE keys SET person = ? WHERE person = ?", into, other)
    tx.execute("DELETE FROM persons WHERE id = ?", other)


def put_key(tx: Transaction, key: Key) -> bool:
    """False if there is a key of that name."""
    return bool(
        tx.count(
            "INSERT INTO keys (id, name, digest, person, scopes, bots, targets, created)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
            *(key.id, key.name, key.digest, key.person, *map(_json, (key.scopes, key.bots, key.targets)), key.created),
        )
    )


def holder_of(tx: Transaction, key: str) -> str:
    """The id of the person whose key this is; empty after it was revoked."""
    row = tx.one("SELECT person FROM keys WHERE id = ?", key)
    return row["person"] if row else ""


def drop_key(tx: Transaction, name: str) -> bool:
    return bool(tx.count("DELETE FROM keys WHERE name = ?", name))


def _json(words: tuple[str, ...]) -> str:
    return msgspec.json.encode(words).decode()
