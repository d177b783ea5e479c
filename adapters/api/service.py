"""What the handlers of the API share: asking an agent, following a run, and whose run it is."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import msgspec
from aiohttp import web

from tidings.adapters.api import identities
from tidings.adapters.api.errors import CONFLICT, FINAL, Problem, not_found, stopping
from tidings.adapters.api.guard import Call, headers_of
from tidings.adapters.api.identities import ADAPTER
from tidings.adapters.api.messages import Said
from tidings.adapters.api.models import Repeatable
from tidings.adapters.api.settings import HttpSettings
from tidings.adapters.api.slots import Slots
from tidings.core.adapter import Receive
from tidings.core.agent import ApprovalRequested, JournalEvent, Outcome, Restarted
from tidings.core.background import Background
from tidings.core.busy import Busy
from tidings.core.desk.desk import Desk
from tidings.core.desk.people import Key, Scope
from tidings.core.desk.runs import Numbered, Run
from tidings.core.errors import Lagged, Unknown
from tidings.core.roles import Permission, Role
from tidings.core.types import (
    ONCE,
    Admission,
    Asker,
    Conversation,
    Duplicate,
    Ignored,
    Inbound,
    Refusal,
    Refused,
    Stored,
    Target,
    parse_target,
)

log = logging.getLogger(__name__)


class Asked(NamedTuple):
    run: str
    # The key was known: this is the run that it began.
    replayed: bool
    # It ends with its connection.
    attended: bool


class ApiService:
    def __init__(self, account: str, settings: HttpSettings, desk: Desk) -> None:
        self.account = account
        self.settings = settings
        self.desk = desk
        self._slots = Slots(settings.requests)
        self._receive: Receive | None = None
        self._background = Background(log, "a run could not be followed to its end")
        self._handlers: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    @contextmanager
    def receiving(self, receive: Receive) -> Iterator[None]:
        """Requests are taken inside; outside, the gateway is about to stop."""
        self._receive = receive
        try:
            yield
        finally:
            self._receive = None

    def close(self) -> None:
        """A client that is still being answered sees the answer broken off, and asks the next process."""
        self._is_closed = True
        self._background.cancel()
        for task in self._handlers:
            task.cancel()

    @contextmanager
    def handling(self) -> Iterator[None]:
        """The running task handles a request inside; closing the service cancels it."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._handlers.add(task)
        try:
            yield
        finally:
            self._handlers.discard(task)

    def conversation(self, key: Key, name: str | None, user: str) -> Conversation:
        """Under the key's own id, so that no client can name another's; without a name it is used once."""
        thread = name or f"{ONCE}{secrets.token_hex(16)}"
        return Conversation(adapter=ADAPTER, account=self.account, chat=key.id, thread=thread, member=user)

    def bots(self, key: Key) -> tuple[str, ...]:
        """The bots that a key may talk to; for a key that is bound to some, the others do not exist."""
        return tuple(bot for bot in self.desk.bots() if not key.bots or bot in key.bots)

    def bot(self, key: Key, model: str) -> str:
        """The bot that was asked for by name; empty leaves it to the rules of the house."""
        bots = self.bots(key)
        if model in bots:
            return model
        # Rules might choose a bot that the key is not bound to, and so might the default for an unknown name.
        if (model and self.settings.unknown_model == "refuse") or (key.bots and (model or not bots)):
            raise Problem(404, f"there is no model {model!r}; there are: {', '.join(bots)}", "model_not_found")
        return bots[0] if key.bots else ""

    def called(self, bot: str) -> str:
        return bot or self.desk.bots()[0]

    def asker(self, call: Call) -> Asker:
        """The person for whom the work of this request is done."""
        return identities.asker(self.account, call.key, call.user)

    def role_under_key(self, identity: str) -> Role:
        """The role that this identity has because clients of a key may name it; a stranger's for any other."""
        adapter, _, place = identity.partition(":")
        key, _, user = place.partition("/")
        if adapter != ADAPTER or not user:
            return Role.STRANGER
        unnamed = Key(id=key, name="", digest="", scopes=(), created=0.0)
        return self.desk.people.find(identities.asker(self.account, unnamed, user)).role

    def may(self, call: Call, permission: Permission) -> bool:
        return self.desk.people.may(call.person, permission)

    def sees_all(self, call: Call) -> bool:
        """Tells whether a request may see what belongs to others; one that names a person sees that person's own."""
        return not call.user and call.key.may(Scope.ADMIN) and self.may(call, Permission.OPERATE)

    async def places(self, key: Key) -> tuple[Target, ...]:
        """The chats that a key is bound to; empty means all. A platform without a chat includes its home."""
        bound = tuple(map(parse_target, key.targets))
        homes = await self.desk.homes() if bound else {}
        return (*bound, *(homes[place.at] for place in bound if not place.chat and place.at in homes))

    async def check_target(self, call: Call, target: Target) -> None:
        """Raises Problem 403 for a target that is not permitted, or that the key is not bound to."""
        if not is_within(await self.places(call.key), target):
            words = f"this key may only write to: {', '.join(call.key.targets)}"
            raise Problem(403, words, "target_not_permitted", param="target")
        if not await self.desk.permitted(target):
            words = f"{target} is neither admitted nor a known conversation"
            hint = f"admit it with: tidings people admit {target.adapter}:{target.chat}"
            raise Problem(403, f"{words}; {hint}", "target_not_permitted", param="target")

    async def ask(
        self,
        call: Call,
        said: Said,
        conversation: Conversation,
        bot: str,
        body: bytes,
        *,
        alone: bool,
        attended: bool,
        impatient: bool = False,
        follows: str = "",
        forget: bool = False,
    ) -> Asked:
        """Stores the message. `alone`: what the client gave is all the agent sees, no stored history is read.

        `impatient`: the client waits for the whole answer, so a question to people must be answered soon.
        """
        if self._receive is None:
            raise Problem(503, "the gateway is about to stop", "stopping", headers={"Retry-After": "5"})
        key = idempotency_key(call, conversation.member)
        # A client with an Idempotency-Key means to come back for the answer.
        attended = attended and "Idempotency-Key" not in call.request.headers
        history = said.given.history if alone or said.given.history else None
        inbound = Inbound(
            key=key,
            conversation=conversation,
            target=Target(adapter=ADAPTER, account=self.account, chat=conversation.chat, thread=conversation.thread),
            sender=identities.sender(call.key, conversation.member),
            text=said.text,
            bot=bot,
            given=msgspec.structs.replace(said.given, history=history),
            follows=follows,
            alone=True,
            digest=hashlib.sha256(body).hexdigest(),
            attended=attended,
            impatient=impatient,
            forget=forget,
        )
        self._slots.take(call.key.id)
        admission: Admission | None = None
        storing = asyncio.ensure_future(self._receive(inbound))
        try:
            admission = await asyncio.shield(storing)
        except asyncio.CancelledError:
            # A message on its way to the disk is stored all the same, and would run without a reader.
            if attended:
                storing.add_done_callback(self._abandon)
            raise
        finally:
            if not isinstance(admission, Stored):
                self._slots.give_back(call.key.id)
        match admission:
            case Stored(run=run):
                self._slots.keep(run, call.key.id)
                return Asked(run, False, attended)
            case Duplicate(run=run):
                await self._check_kept(run)
                return Asked(run, True, False)
            case _:
                raise _refused(admission, said.text)

    async def steer(self, call: Call, run: Run, words: str, body: bytes) -> str:
        """Stores a message for a run at work, and returns the id of the message, which is a run of its own or none."""
        if self._receive is None:
            raise stopping()
        place = run.message.conversation
        inbound = Inbound(
            key=f"{idempotency_key(call, place.member)}/steer",
            conversation=place,
            target=run.message.target,
            sender=identities.sender(call.key, place.member),
            text=words,
            bot=run.message.bot,
            alone=True,
            busy=Busy.STEER,
            about=run.id,
            forget=run.message.forget,
            digest=hashlib.sha256(body + run.id.encode()).hexdigest(),
        )
        match admission := await self._receive(inbound):
            case Stored(run=said) | Duplicate(run=said):
                return said
            case Refused(reason=Refusal.ENDED):
                raise Problem(409, "this run has not begun, or has ended", "run_not_accepting_steer", headers=FINAL)
            case _:
                raise _refused(admission, words)

    async def _check_kept(self, run: str) -> None:
        try:
            await self.desk.run(run)
        except Unknown:
            words = "the answer to this request was deleted or not stored; ask again with another Idempotency-Key"
            raise Problem(404, words, "response_not_found") from None

    async def follow(self, run: str, after: int = 0) -> AsyncIterator[Numbered]:
        """All of it, however slowly it is read."""
        while True:
            try:
                async for numbered in self.desk.follow(run, after):
                    after = numbered.seq
                    if isinstance(numbered.event, Outcome):
                        self._slots.free(run)
                    yield numbered
                return
            except Lagged:
                continue

    async def told(self, run: str, after: int = 0) -> AsyncIterator[JournalEvent]:
        """The events for a client that cannot take back what it was told: raises where a restart makes them void."""
        async for numbered in self.follow(run, after):
            if isinstance(numbered.event, Restarted):
                raise ConnectionResetError("the run has begun again")
            yield numbered.event

    async def outcome(self, run: str) -> Outcome:
        async for numbered in self.follow(run):
            if isinstance(numbered.event, Outcome):
                return numbered.event
        raise stopping()

    def leave(self, begun: Asked) -> None:
        """The client has gone, and so has the task that served it; who only joined another's run leaves it alone."""
        if not begun.replayed:
            self.watch(begun.run, stop=begun.attended)

    def _abandon(self, storing: asyncio.Future[Admission]) -> None:
        admission = None if storing.cancelled() or storing.exception() else storing.result()
        if isinstance(admission, Stored):
            self.watch(admission.run, stop=True)

    def watch(self, run: str, *, stop: bool = False) -> None:
        """Keeps the slot of a run that has no reader until the run has ended, or waits for an answer of people."""
        if self._is_closed:
            return

        async def end() -> None:
            try:
                if stop:
                    await self.desk.stop(run, "the client, who has gone")
                async for numbered in self.follow(run):
                    if isinstance(numbered.event, ApprovalRequested) and not stop:
                        # Thousands of questions may wait, and none of them keeps a task or a place.
                        break
            finally:
                self._slots.free(run)

        self._background.begin(end())

    async def own_run(self, call: Call, id: str, what: str = "run", user: str = "") -> Run:
        """Raises the same Problem for a run of another client as for one that never was.

        `user` is the person whom the request's body names.
        """
        try:
            run = await self.desk.run(id)
        except Unknown:
            raise not_found(what) from None
        place, person = run.message.conversation, call.user or user
        if person and place.member != person:
            raise not_found(what)
        if place.adapter != ADAPTER or not (place.chat == call.key.id or self.sees_all(call)):
            raise not_found(what)
        return run


def answer(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body),
        status=status,
        content_type="application/json",
        headers=headers,
    )


def _refused(admission: Admission, text: str) -> Problem:
    match admission:
        case Refused(reason=Refusal.CONFLICT):
            return Problem(409, CONFLICT, "idempotency_key_conflict", headers=FINAL)
        case Refused(reason=Refusal.TOO_LONG):
            return Problem(413, _too_long(text), "too_long")
        case Refused(reason=Refusal.ALLOWANCE, words=words, seconds=seconds):
            headers = {"Retry-After": str(math.ceil(seconds))}
            return Problem(429, words, "insufficient_quota", headers=headers)
        case Ignored() | Refused(reason=Refusal.NOT_ADMITTED | Refusal.NOT_PERMITTED):
            return Problem(403, "the person whom this request names may not talk to the bots", "not_admitted")
        case _:
            return Problem(429, "too much is waiting", "rate_limit_exceeded", headers={"Retry-After": "2"})


def _too_long(text: str) -> str:
    taken = "more than the limit ([limits] message_characters); shorten it, or send it in several messages"
    return f"the message has {len(text):,} characters, {taken}"


def is_within(places: tuple[Target, ...], target: Target) -> bool:
    """Tells whether a key that is bound to these chats may have to do with this one."""
    return not places or any(_covers(place, target) for place in places)


def _covers(bound: Target, target: Target) -> bool:
    """Tells whether a bound chat is this target, or the chat of this thread."""
    if (bound.at, bound.chat) != (target.at, target.chat):
        return False
    return bound.thread in ("", target.thread)


def idempotency_key(call: Call, user: str = "") -> str:
    """Namespaced under the client's own key and the person whom it names; without one every request is another."""
    given, user = headers_of(Repeatable, call).key, user or call.user
    if not given:
        return f"{call.key.id}/{secrets.token_hex(16)}"
    whose = f"{call.key.id}/user/{quote(user, safe='')}" if user else call.key.id
    return f"{whose}/key/{given}"
