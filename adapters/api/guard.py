"""What every request passes before its handler: host, origin, key, scope, role, size, shape; in this order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import msgspec
from aiohttp import web
from pydantic import BaseModel, ValidationError

from tidings.adapters.api import identities
from tidings.adapters.api.errors import Problem
from tidings.adapters.api.guesses import Guesses
from tidings.adapters.api.keys import Keys
from tidings.adapters.api.models import Caller
from tidings.adapters.api.settings import HttpSettings
from tidings.adapters.api.validation import fault_of
from tidings.adapters.shared.http_server import abandon_when_gone, read_body, vouch
from tidings.core.desk.people import Key, PeopleDesk, Scope
from tidings.core.roles import OWNER, Permission, Person, Role

M = TypeVar("M", bound=BaseModel)

BODY_BYTES = 10 * 1024 * 1024
DEEPEST = 64
# Values in one body; each takes far more room in memory than on the wire.
MOST_VALUES = 500_000
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
# What a page may see of an answer besides its body, and for how long a browser need not ask again.
EXPOSED = "X-Tidings-Run, Idempotency-Replayed, Retry-After"
PREFLIGHT_SECONDS = 600

_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:/?#@\[\]]+))(?::\d*)?")
_NAMES_OF_HEADERS = re.compile(r"[\w, -]{0,1000}", re.ASCII)
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - _STEPS.keys())


class Call(NamedTuple):
    """A request that was let in."""

    request: web.BaseRequest
    names: Mapping[str, str]
    key: Key
    # Who asks: the key's holder, or the person whom the client names.
    person: Person = OWNER
    # The name by which the client knows that person; empty for the key's holder.
    user: str = ""


class Gate:
    def __init__(self, account: str, settings: HttpSettings, keys: Keys, guesses: Guesses, people: PeopleDesk) -> None:
        self._account = account
        self._origins = settings.origins
        self._keys = keys
        self._guesses = guesses
        self._people = people
        self._names = LOCAL_NAMES | {settings.host.strip("[]").lower(), *(host.lower() for host in settings.hosts)}

    def check_place(self, request: web.BaseRequest) -> None:
        """A page that was tricked into calling us comes by a foreign name or from a foreign origin."""
        host = _HOST.fullmatch(request.headers.get("Host", ""))
        if host is None or (host["six"] or host["name"]).lower() not in self._names:
            raise Problem(
                421, "this name is not known here; add it to [http] hosts, TIDINGS_HTTP__HOSTS", "unknown_host"
            )
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self._origins:
            raise Problem(
                403, "this origin may not call; add it to [http] origins, TIDINGS_HTTP__ORIGINS", "unknown_origin"
            )

    def shared_with(self, request: web.BaseRequest) -> dict[str, str]:
        """The headers by which a browser lets a page of a configured origin read the answer; none for others."""
        origin = request.headers.get("Origin")
        if origin not in self._origins:
            return {}
        return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": EXPOSED, "Vary": "Origin"}

    def invite(self, request: web.BaseRequest, methods: str) -> web.Response:
        """The answer to a browser that asks what a page may send: any header, since the key alone opens anything."""
        asked = request.headers.get("Access-Control-Request-Headers", "")
        headers = {"Access-Control-Allow-Methods": methods, "Access-Control-Max-Age": str(PREFLIGHT_SECONDS)}
        if _NAMES_OF_HEADERS.fullmatch(asked):
            headers["Access-Control-Allow-Headers"] = asked
        return web.Response(status=204, headers=headers)

    async def admit(self, request: web.BaseRequest, names: Mapping[str, str], scope: Scope, needs: Permission) -> Call:
        """The one place where a key is looked at, by whatever header it came."""
        address = request.remote or ""
        secret = _secret(request)
        if not secret:
            raise unauthorised("a key is needed: Authorization: Bearer KEY; yours is in api.key in the home")
        key = self._keys.find(secret)
        if key is None:
            # A client that disconnects while it waits frees its place.
            abandon_when_gone(request)
            await self._guesses.hold_back(address)
            raise unauthorised("this key is unknown; check that it is complete and was not revoked (tidings key list)")
        self._guesses.welcome(address)
        vouch(request)
        user = _headers(Caller, request).user
        return Call(request, names, key, self.check(key, user, scope, needs), user)

    def check(self, key: Key, user: str, scope: Scope, needs: Permission) -> Person:
        """The person who asks; raises Problem unless the key and this person's role permit it right now."""
        if not self._keys.knows(key):
            raise unauthorised("this key was revoked")
        if not self._people.holder(key).role.includes(Role.GUEST):
            raise unauthorised("the person whose key this is has been removed; ask the person who runs this gateway")
        if not key.may(scope):
            hint = f"a key that has it is made with: tidings key add NAME --scope {scope}"
            raise Problem(403, f"this key has no scope {scope.value!r}; {hint}", "missing_scope")
        person = self._people.find(identities.asker(self._account, key, user))
        if not self._people.may(person, needs):
            who = "the person whom this request names" if user else "the person whose key this is"
            words = f"{who} has the role {person.role.value!r}, which lacks the permission {needs.value!r}"
            raise Problem(403, words, "missing_role")
        return person


def _secret(request: web.BaseRequest) -> str:
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    bearer = secret.strip() if kind.lower() == "bearer" else ""
    return bearer or request.headers.get("X-Api-Key", "")


def unauthorised(words: str) -> Problem:
    return Problem(401, words, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def check_kind(request: web.BaseRequest) -> None:
    """Refuses bodies that a web page can post without asking first, such as a form, on every route."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Problem(415, "a compressed body is not taken", "unsupported_encoding")
    if (request.body_exists or "Content-Type" in request.headers) and request.content_type != "application/json":
        raise Problem(415, "the body must be application/json", "unsupported_media_type")


async def read_json(request: web.BaseRequest) -> bytes:
    """The body as it came, within all limits; it is not parsed yet."""
    data = await read_body(request, BODY_BYTES)
    bones = skeleton(data)
    if bones.count(b",") + bones.count(b"[") + bones.count(b"{") > MOST_VALUES:
        raise Problem(400, f"the body has more than {MOST_VALUES} values", "too_many_values")
    if depth(bones) > DEEPEST:
        raise Problem(400, f"the body is nested deeper than {DEEPEST} levels", "too_deep")
    return data


def skeleton(data: bytes) -> bytes:
    """The bytes outside of JSON strings, in one pass: a pattern could take for ever."""
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(plain.split(b'"')[::2])


def depth(bones: bytes) -> int:
    brackets = bones.translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def validate(model: type[M], data: bytes) -> M:
    """Raises Problem with the place of the first fault."""
    try:
        values: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Problem(400, "the body is not valid JSON", "invalid_json") from None
    return _checked(model, values)


def query_of(model: type[M], call: Call) -> M:
    return _checked(model, dict(call.request.query))


def headers_of(model: type[M], call: Call) -> M:
    return _headers(model, call.request)


def _headers(model: type[M], request: web.BaseRequest) -> M:
    names = [field.alias or name for name, field in model.model_fields.items()]
    return _checked(model, {name: request.headers[name] for name in names if name in request.headers})


def _checked(model: type[M], values: Any) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        place, sentence = fault_of(error, values)
        raise Problem(400, f"{place}: {sentence}" if place else sentence, "invalid_request", param=place) from None
