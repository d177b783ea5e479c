"""Seeded bugs in the HTTP API, as advisories of this product class tell them.

The API is imported by who becomes one of these, and by nobody else: its library takes a third of a second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.chaos.mutation_seams import swap
from tidings.core.agent import Outcome
from tidings.core.errors import Unknown


def any_key_is_right() -> None:
    """That there is a key is checked, and not which one."""
    from tidings.adapters.api.keys import Keys
    from tidings.core.desk.people import Key

    def find(self: Keys, secret: str) -> Key | None:
        return self.all()[0]

    swap(Keys, "find", find)


def wrong_keys_lock_out_the_right_one() -> None:
    """Whoever shares an address with a guesser waits for it, whatever key they have."""
    from tidings.adapters.api.guard import Call, Gate
    from tidings.core.desk.people import Scope
    from tidings.core.roles import Permission

    real = Gate.admit

    async def admit(self: Gate, request: Any, names: Mapping[str, str], scope: Scope, needs: Permission) -> Call:
        await self._guesses._clock.sleep(self._guesses.delay(request.remote or ""))
        return await real(self, request, names, scope, needs)

    swap(Gate, "admit", admit)


def wrong_keys_at_full_speed() -> None:
    """Guesses are counted, and each is answered at once."""
    from tidings.adapters.api.guesses import Guesses

    def delay(self: Guesses, address: str) -> float:
        return 0.0

    swap(Guesses, "delay", delay)


def idle_connections_keep_their_places() -> None:
    """Connections that have shown nothing are held until the listener is full for everybody."""
    from tidings.adapters.shared.http_limits import Connection, Listener

    def has_room_for(self: Listener, connection: Connection) -> bool:
        return len(self.held) < self._limits.connections

    swap(Listener, "_has_room_for", has_room_for)


def stream_outlives_its_key() -> None:
    """A revoked key is only noticed by who asks anew."""
    from tidings.adapters.api.keys import Keys

    @asynccontextmanager
    async def serving(self: Keys, check: Callable[[], object]) -> AsyncIterator[None]:
        yield

    swap(Keys, "serving", serving)


def stream_outlives_its_person() -> None:
    """Open requests end with their key, and nobody thinks of the person who has it."""
    from tidings.adapters.api.keys import Keys

    def check_served(self: Keys) -> None:
        return

    swap(Keys, "_check_served", check_served)


def routes_without_a_role() -> None:
    """A key's scopes are looked at, and not the role of the person whose key it is."""
    from tidings.adapters.api.guard import Gate
    from tidings.core.desk.people import Key, Scope
    from tidings.core.roles import Permission, Person

    real = Gate.check

    def check(self: Gate, key: Key, user: str, scope: Scope, needs: Permission) -> Person:
        return real(self, key, user, scope, Permission.TALK)

    swap(Gate, "check", check)


def named_person_is_the_holder() -> None:
    """Whom a client names has the role of the person whose key it is."""
    from tidings.adapters.api import identities
    from tidings.core.desk.people import Key
    from tidings.core.types import Sender

    def sender(key: Key, user: str) -> Sender:
        return Sender(id=key.id, name=user or key.name, key=key.id)

    swap(identities, "sender", sender)


def bound_in_words_only() -> None:
    """The bots and targets of a key are listed, and nobody looks at them."""
    from tidings.adapters.api import service
    from tidings.core.types import Target

    def covers(bound: Target, target: Target) -> bool:
        return bound.at == target.at

    swap(service, "_covers", covers)


def everybodys_jobs() -> None:
    """A member's key sees and changes what others have planned."""
    from tidings.adapters.api.guard import Call
    from tidings.adapters.api.handlers import schedules
    from tidings.adapters.api.service import ApiService
    from tidings.core.desk.work import Schedule

    def may_see(api: ApiService, call: Call, schedule: Schedule) -> bool:
        return True

    swap(schedules, "_may_see", may_see)


def scopes_by_the_client() -> None:
    """A client says itself what it may."""
    from tidings.adapters.api.guard import Call, Gate
    from tidings.core.desk.people import Scope
    from tidings.core.roles import Permission

    real = Gate.admit

    async def admit(self: Gate, request: Any, names: Mapping[str, str], scope: Scope, needs: Permission) -> Call:
        claimed = scope if "X-Scopes" not in request.headers else Scope.CHAT
        return await real(self, request, names, claimed, needs)

    swap(Gate, "admit", admit)


def anybodys_run() -> None:
    """Whoever knows an id may have what it names."""
    from tidings.adapters.api.errors import not_found
    from tidings.adapters.api.guard import Call
    from tidings.adapters.api.service import ApiService
    from tidings.core.desk.runs import Run

    async def own_run(self: ApiService, call: Call, id: str, what: str = "run", user: str = "") -> Run:
        try:
            return await self.desk.run(id)
        except Unknown:
            raise not_found(what) from None

    swap(ApiService, "own_run", own_run)


def any_page_may_post() -> None:
    """A form needs no permission, so any open tab drives the agent."""
    from tidings.adapters.api import serve

    def check_kind(request: Any) -> None:
        return

    swap(serve, "check_kind", check_kind)


def any_name_leads_here() -> None:
    """A name that was rebound to this machine is as good as ours."""
    from tidings.adapters.api.guard import Gate

    def check_place(self: Gate, request: Any) -> None:
        return

    swap(Gate, "check_place", check_place)


def error_beside_the_choice() -> None:
    """A failed stream tells its reason in the frame that ends the choice, where half of the clients never look."""
    from tidings.adapters.api import sse
    from tidings.adapters.api.errors import failed
    from tidings.adapters.api.handlers import chat

    real = chat._ending

    def ending(head: dict[str, Any], outcome: Outcome, counts: bool) -> list[bytes]:
        if outcome.kind in chat.REASONS:
            return real(head, outcome, counts)
        choice = {"index": 0, "delta": {}, "finish_reason": "error"}
        return [sse.frame({**head, "choices": [choice], **failed(outcome).body}), sse.DONE]

    swap(chat, "_ending", ending)


def tools_as_the_clients_own() -> None:
    """What ran here is told as a call of the client's function, and the client runs it, too."""
    from tidings.adapters.api.response_body import Building

    swap(Building, "_call", Building._function)


def every_failure_is_repeated() -> None:
    """The status says that the server is at fault, so a client asks again and the tools work again."""
    from tidings.adapters.api import errors

    def status_of_failure(outcome: Outcome) -> tuple[int, None]:
        return 502, None

    swap(errors, "status_of_failure", status_of_failure)


def anybodys_items() -> None:
    """An item that is only named is looked up without asking whose it is."""
    from tidings.adapters.api import response_items
    from tidings.adapters.api.guard import Call
    from tidings.adapters.api.service import ApiService
    from tidings.core.desk.runs import Run

    async def stored(api: ApiService, call: Call, id: str, user: str = "") -> Run:
        return await api.desk.run(response_items.run_of(id))

    swap(response_items, "stored", stored)


def person_by_the_body() -> None:
    """Who speaks through a chat program says itself who it is."""
    from tidings.adapters.api.callers import person_named
    from tidings.adapters.api.guard import Call
    from tidings.adapters.api.handlers import chat

    def named(call: Call, by_body: str | None = None) -> str:
        return by_body or person_named(call)

    swap(chat, "person_named", named)


def titles_in_the_talk() -> None:
    """What a chat program asks beside the talk is stored in it."""
    from tidings.adapters.api import callers
    from tidings.adapters.api.messages import Said
    from tidings.adapters.api.models import Named

    def is_side_task(given: Named, said: Said) -> bool:
        return False

    swap(callers, "_is_side_task", is_side_task)


def validators_own_words() -> None:
    """A fault is told as the library puts it, with the names of our types."""
    from pydantic import ValidationError

    from tidings.adapters.api import guard
    from tidings.adapters.api.validation import Fault

    def fault_of(error: ValidationError, values: Any) -> Fault:
        first = error.errors(include_url=False)[0]
        return Fault(".".join(map(str, first["loc"])), first["msg"])

    swap(guard, "fault_of", fault_of)


def anybody_answers_over_http() -> None:
    """A key with the scope answers as the owner, whoever's key it is."""
    from tidings.adapters.api.guard import Call
    from tidings.adapters.api.handlers import approvals
    from tidings.adapters.api.service import ApiService
    from tidings.core.desk.approvals import Question
    from tidings.core.roles import OWNER

    real = approvals._answer

    async def answer(api: ApiService, call: Call, question: Question, given: Any) -> dict[str, Any]:
        return await real(api, call._replace(person=OWNER), question, given)

    swap(approvals, "_answer", answer)


def anybodys_questions() -> None:
    """Whoever knows the id of a question sees it, and so learns what others do."""
    from tidings.adapters.api.guard import Call
    from tidings.adapters.api.handlers import approvals
    from tidings.adapters.api.service import ApiService
    from tidings.core.desk.approvals import Question
    from tidings.core.roles import OWNER

    async def known(api: ApiService, call: Call, id: str) -> Question:
        return await api.desk.approvals.get(OWNER, id)

    swap(approvals, "_known", known)


def questions_of_every_bot() -> None:
    """A key that is bound to some bots answers for all of them."""
    from tidings.adapters.api.guard import Call
    from tidings.adapters.api.handlers import approvals
    from tidings.core.desk.approvals import Question

    def is_bound(call: Call, question: Question) -> bool:
        return True

    swap(approvals, "_is_bound", is_bound)


def chat_without_questions() -> None:
    """A stream of chat completions says nothing of a question: the client waits and does not know for what."""
    from tidings.adapters.api.handlers import chat

    def approval(head: dict[str, Any], told: dict[str, Any]) -> bytes:
        return b": a question waits\n\n"

    swap(chat, "_approval", approval)


def whole_answers_wait_for_people() -> None:
    """A request without a stream waits for its question as long as a chat does."""
    from tidings.core.inbound.asking import Asking
    from tidings.core.types import Inbound

    def patience(self: Asking, inbound: Inbound) -> float:
        return self._settings.minutes * 60

    swap(Asking, "_patience", patience)


def waiting_questions_keep_their_places() -> None:
    """A run that waits for people is counted as an answer in work, until no request is taken any more."""
    from tidings.adapters.api import service

    class Never:
        """No event is one of these."""

    swap(service, "ApprovalRequested", Never)
