"""Secrets of keys: made once, kept as digests, compared in constant time; and the requests served under them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tidings.adapters.api.settings import weakness
from tidings.core.desk.people import Key, PeopleDesk, Scope
from tidings.core.errors import ConfigError, Conflict, TidingsError, Unknown
from tidings.core.roles import OWNER, Role
from tidings.core.types import parse_target

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
PREFIX = "tdg_"
FILE = "api.key"


class Revoked(TidingsError):
    """The key under which this was asked no longer opens it."""


class Grant(NamedTuple):
    """What a new key is for; no person means the owner, no bots or targets mean all."""

    scopes: tuple[Scope, ...] = ()
    person: str = ""
    bots: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


class Keys:
    """The owner's key comes from the settings or from its file; the others belong to people."""

    def __init__(self, people: PeopleDesk, owner: str = "") -> None:
        self._people = people
        self._owner = Key(OWNER.id, "owner", digest(owner), tuple(Scope), 0.0, OWNER.id) if owner else None
        # The requests that are being served, each with the check that it passed.
        self._served: dict[asyncio.Timeout, Callable[[], object]] = {}
        people.subscribe(self._check_served)

    def all(self) -> tuple[Key, ...]:
        named = self._people.keys()
        return (self._owner, *named) if self._owner else named

    def knows(self, key: Key) -> bool:
        return any(key.id == known.id for known in self.all())

    def find(self, secret: str) -> Key | None:
        """Always the same work: every digest is compared, and an unknown key costs what a known one does."""
        given = digest(secret).encode()
        found = None
        for key in self.all():
            if hmac.compare_digest(given, key.digest.encode()):
                found = key
        return found

    @asynccontextmanager
    async def serving(self, check: Callable[[], object]) -> AsyncIterator[None]:
        """Everything inside ends at once, with the error of `check`, when a change of people or keys makes it fail."""
        try:
            async with asyncio.timeout(None) as hold:
                self._served[hold] = check
                try:
                    yield
                finally:
                    del self._served[hold]
        except TimeoutError:
            if not hold.expired():
                raise
            check()
            raise Revoked("this key was revoked") from None

    def _check_served(self) -> None:
        for hold, check in self._served.items():
            try:
                check()
            except TidingsError:
                if not hold.expired():
                    hold.reschedule(asyncio.get_running_loop().time())

    async def add(self, name: str, grant: Grant, now: float) -> str:
        """Returns the secret, which cannot be shown a second time; raises Unknown or Conflict."""
        if not NAME.fullmatch(name):
            raise Unknown(f"{name!r} cannot name a key: use up to 64 letters, digits, _, . and -")
        if name == OWNER.id:
            raise Conflict(f"there is a key named {name} already; revoke it first, or choose another name")
        secret = new_secret()
        key = Key(
            id=secrets.token_hex(16),
            name=name,
            digest=digest(secret),
            scopes=tuple(dict.fromkeys(grant.scopes)) or (Scope.CHAT, Scope.RUNS),
            created=now,
            person=await self._holder(grant.person),
            bots=tuple(dict.fromkeys(grant.bots)),
            targets=tuple(dict.fromkeys(str(parse_target(each)) for each in grant.targets)),
        )
        await self._people.add_key(OWNER, key)
        return secret

    async def _holder(self, who: str) -> str:
        """The id of the person who gets a key; raises Unknown for somebody who is not admitted."""
        if who in ("", OWNER.id):
            return OWNER.id
        line = await self._people.get(who)
        if not line.role.includes(Role.GUEST):
            raise Unknown(f"{who} is not admitted; admit them first: tidings people admit {who}")
        return line.id

    async def revoke(self, name: str) -> None:
        if name == OWNER.id:
            raise Unknown(f"the owner's key is in the settings or in {FILE} in the home: change it there and restart")
        await self._people.revoke_key(OWNER, name)

    def described(self, key: Key) -> dict[str, Any]:
        holder = self._people.holder(key)
        gone = "" if holder.role.includes(Role.GUEST) else " (no longer admitted)"
        return {
            # People whom a client names are known under this id.
            "id": key.id,
            "name": key.name,
            "person": holder.id,
            "holder": f"{holder.label}{gone}",
            "scopes": list(key.scopes),
            "bots": list(key.bots),
            "targets": list(key.targets),
            "created": key.created,
        }


async def change(keys: Keys, bots: Iterable[str], asked: dict[str, Any], now: float) -> dict[str, Any]:
    """Answers the command line: add, revoke or list keys. Only the owner can ask this way."""
    match asked.get("do"):
        case "add":
            grant = Grant(
                _scopes(asked.get("scopes", ())),
                str(asked.get("person") or ""),
                _bots(asked.get("bots", ()), tuple(bots)),
                tuple(asked.get("targets", ())),
            )
            return {"secret": await keys.add(str(asked.get("name")), grant, now)}
        case "revoke":
            await keys.revoke(str(asked.get("name")))
            return {"revoked": asked.get("name")}
        case _:
            return {"keys": [keys.described(key) for key in keys.all()]}


def _scopes(words: Iterable[str]) -> tuple[Scope, ...]:
    for word in words:
        if word not in tuple(Scope):
            raise Unknown(f"there is no scope {word!r}; there are: {', '.join(Scope)}")
    return tuple(Scope(word) for word in words)


def _bots(names: Iterable[str], known: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in known:
            raise Unknown(f"there is no bot named {name!r}; there are: {', '.join(known)}")
    return tuple(names)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def read_own(home: Path) -> str | None:
    """The owner's key from its file in the home; None before the first start."""
    path = home / FILE
    try:
        secret = path.read_text(encoding="utf-8").strip()
        is_open = path.stat().st_mode & 0o077
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', 'it is no text')}") from error
    if fault := weakness(secret):
        raise ConfigError(f"{path}: the key {fault}; remove the file, and the next start makes a new one")
    if is_open:
        raise ConfigError(f"{path}: others may read it; close it with: chmod 600 {path}")
    return secret


def make_own(home: Path) -> str:
    """Creates the owner's key file, readable by the owner alone from its first byte."""
    path, secret = home / FILE, new_secret()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(secret + "\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
    return secret
