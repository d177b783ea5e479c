"""Who may call: named keys with scopes, kept as digests, compared without telling by time how near a guess was."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from tidings.adapters.api.settings import weakness
from tidings.core.adapter import Notebook
from tidings.core.errors import ConfigError, Conflict, TidingsError, Unknown

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
PREFIX = "tdg_"
FILE = "api.key"


class Revoked(TidingsError):
    """The key under which this was asked is no longer one of ours."""


class Scope(StrEnum):
    CHAT = "chat"
    RUNS = "runs"
    NOTIFY = "notify"
    ADMIN = "admin"


class Key(msgspec.Struct, frozen=True):
    """`id` is what conversations belong to: a new key with an old name finds nothing of the old one."""

    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created: float

    @property
    def described(self) -> dict[str, Any]:
        return {"name": self.name, "scopes": list(self.scopes), "created": self.created}

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes


class Keys:
    """The owner's key comes from the settings; the others are in the notebook."""

    def __init__(self, notebook: Notebook, owner: str = "") -> None:
        self._notebook = notebook
        self._owner = Key("owner", "owner", digest(owner), tuple(Scope), 0.0) if owner else None
        self._named: tuple[Key, ...] = ()
        # One change after the other, or a key that is being revoked might come back with one that is being made.
        self._changing = asyncio.Lock()
        # Requests that are being served, by the id of their key.
        self._served: dict[str, set[asyncio.Timeout]] = {}

    async def load(self) -> None:
        async with self._changing:
            await self._read()

    async def _read(self) -> None:
        stored = await self._notebook.read("keys")
        self._named = msgspec.json.decode(stored, type=tuple[Key, ...]) if stored else ()

    def all(self) -> tuple[Key, ...]:
        return (self._owner, *self._named) if self._owner else self._named

    def find(self, secret: str) -> Key | None:
        """Always the same work: every digest is compared, and an unknown key costs what a known one does."""
        given = digest(secret).encode()
        found = None
        for key in self.all():
            if hmac.compare_digest(given, key.digest.encode()):
                found = key
        return found

    @asynccontextmanager
    async def serving(self, key: Key) -> AsyncIterator[None]:
        """Whatever goes on inside ends at once when the key is revoked, then with Revoked."""
        served = self._served.setdefault(key.id, set())
        try:
            async with asyncio.timeout(None) as hold:
                served.add(hold)
                try:
                    yield
                finally:
                    served.discard(hold)
                    if not served:
                        self._served.pop(key.id, None)
        except TimeoutError:
            if hold.expired():
                raise Revoked("this key was revoked") from None
            raise

    async def add(self, name: str, scopes: tuple[Scope, ...], now: float) -> str:
        """Returns the secret, which cannot be shown a second time."""
        if not NAME.fullmatch(name):
            raise Unknown(f"{name!r} cannot name a key: use up to 64 letters, digits, _, . and -")
        secret = new_secret()
        granted = tuple(dict.fromkeys(scopes)) or (Scope.CHAT, Scope.RUNS)
        key = Key(secrets.token_hex(16), name, digest(secret), granted, now)
        async with self._changing:
            await self._read()
            if any(known.name == name for known in self.all()) or name == "owner":
                raise Conflict(f"there is a key named {name} already; revoke it first, or choose another name")
            await self._write((*self._named, key))
        return secret

    async def revoke(self, name: str) -> None:
        if name == "owner":
            raise Unknown(f"the owner's key is in the settings or in {FILE} in the home: change it there and restart")
        async with self._changing:
            await self._read()
            gone = [key for key in self._named if key.name == name]
            if not gone:
                raise Unknown(f"there is no key named {name}; list them with: tidings key list")
            await self._write(tuple(key for key in self._named if key.name != name))
        for key in gone:
            for hold in self._served.get(key.id, ()):
                hold.reschedule(asyncio.get_running_loop().time())

    async def _write(self, keys: tuple[Key, ...]) -> None:
        await self._notebook.write("keys", msgspec.json.encode(keys).decode())
        self._named = keys


async def change(keys: Keys, asked: dict[str, Any], now: float) -> dict[str, Any]:
    """Answers the command line: add, revoke or list keys."""
    match asked.get("do"):
        case "add":
            return {"secret": await keys.add(str(asked.get("name")), _scopes(asked.get("scopes", ())), now)}
        case "revoke":
            await keys.revoke(str(asked.get("name")))
            return {"revoked": asked.get("name")}
        case _:
            await keys.load()
            return {"keys": [key.described for key in keys.all()]}


def _scopes(words: Iterable[str]) -> tuple[Scope, ...]:
    for word in words:
        if word not in tuple(Scope):
            raise Unknown(f"there is no scope {word!r}; there are: {', '.join(Scope)}")
    return tuple(Scope(word) for word in words)


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
