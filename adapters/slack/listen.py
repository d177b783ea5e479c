"""How events come in, by Socket Mode or by HTTP: stored in the order of each conversation, then acknowledged."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn

import msgspec

from tidings.adapters.shared.replies import SILENT, UNSTORED, reply_to
from tidings.adapters.slack.address import ADAPTER, handle_of
from tidings.adapters.slack.bolt import BoltApp
from tidings.adapters.slack.client import Client
from tidings.adapters.slack.http_events import BODY_BYTES, Events
from tidings.adapters.slack.parse import Me, Reader, time_of
from tidings.adapters.slack.people import People
from tidings.adapters.slack.sessions import Sessions
from tidings.adapters.slack.settings import SlackAccount
from tidings.adapters.slack.socket import USUAL, Limits, Sockets
from tidings.adapters.slack.workspaces import WORKSPACES, Listeners
from tidings.core.adapter import Host, Receive
from tidings.core.background import Background
from tidings.core.clock import ended_within
from tidings.core.errors import Doubtful, SendError, Unreachable, Unstored
from tidings.core.types import Admission, Ignored, Inbound, Kind, Stored

log = logging.getLogger(__name__)

ASIDE_SECONDS = 10.0
# Slack sends an event that was not acknowledged for the last time after six minutes.
KEPT_SECONDS = 6 * 60.0
NOTED_EVERY_SECONDS = 60.0
MOST_PROMPTS = 4
TITLE_CHARACTERS = 60
LOOKED_AT = 1000

SLOW = "I am slow just now. If no answer comes, please try again."


class Waiting(NamedTuple):
    """An event that is not stored yet. Events sort by the time at which Slack says that they happened."""

    at: float
    number: int
    inbound: Inbound
    admitted: asyncio.Future[Admission]


class Intake:
    def __init__(
        self,
        account: str,
        settings: SlackAccount,
        client: Client,
        sessions: Sessions,
        host: Host,
        limits: Limits = USUAL,
    ) -> None:
        self._account = account
        self._settings = settings
        self._client = client
        self._sessions = sessions
        self._host = host
        self._limits = limits
        self._background = Background(log, "listening failed", self._failed)
        self._people = People(client, self._background.begin)
        # Events that are not stored yet, by conversation.
        self._lanes: dict[str, list[Waiting]] = {}
        self._came = 0
        self._held = 0
        # Assistant threads that were looked up: whether they are new.
        self._looked_at: OrderedDict[str, None] = OrderedDict()

    async def run(self, receive: Receive) -> NoReturn:
        """Listens until an error ends it, and raises the error."""
        self._receive = receive
        me = await self._ask_who()
        self._reader = Reader(self._account, self._settings, me, self._host.menu, self._people.name_of)
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._tell_gap()
        listeners: Listeners = {
            "assistant_thread_started": self._thread_started,
            "app_home_opened": self._home_opened,
            "agent_session_stopped": self._session_stopped,
            "event": self._happened,
            "command": self._commanded,
            "action": self._pressed,
        }
        with WORKSPACES.listening(self._app, (me.team, me.enterprise), listeners):
            listening = asyncio.create_task(self._listen(me))
            try:
                lives: set[asyncio.Future[Any]] = {listening, self._broken}
                done, _ = await asyncio.wait(lives, return_when=asyncio.FIRST_COMPLETED)
                for ended in done:
                    ended.result()
                raise AssertionError("listening has no end of its own")
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
                await self._background.close()
                self._broken.cancel()

    @property
    def _app(self) -> str:
        """Identifies the app: its token or secret is the same in all its workspaces."""
        secret = self._settings.app_token.get_secret_value() or self._settings.signing_secret.get_secret_value()
        return f"{self._settings.api_url} {secret}"

    async def _ask_who(self) -> Me:
        try:
            told = await self._client.call("auth.test", seconds=self._limits.call_seconds)
        except Doubtful as error:
            raise Unreachable(str(error)) from error
        enterprise = str(told.get("enterprise_id") or "") if told.get("is_enterprise_install") else ""
        return Me(str(told["user_id"]), str(told["team_id"]), str(told.get("user") or ""), enterprise)

    async def _listen(self, me: Me) -> NoReturn:
        bolt = BoltApp(partial(WORKSPACES.find, self._app))
        app_token = self._settings.app_token.get_secret_value()
        if app_token:
            noting: asyncio.Task[None] | None = None

            def opened() -> None:
                nonlocal noting
                if noting is None:
                    log.info("%s@%s listens as %s", ADAPTER, self._account, me.name)
                    noting = self._background.begin(self._keep_noting())
                self._background.begin(self._host.reports.reachable())

            troubled = self._host.reports.troubled
            sockets = Sockets(self._client, app_token, self._host.clock, bolt.answer_envelope, troubled, self._limits)
            await sockets.run(opened)
        path = "/slack/events" if self._account == "main" else f"/slack/events/{self._account}"
        events = Events(self._settings.signing_secret.get_secret_value(), self._host.clock, bolt.answer_request)
        async with self._host.server.route("POST", path, events.handle, body_bytes=BODY_BYTES):
            log.info("%s@%s listens as %s, at %s", ADAPTER, self._account, me.name, path)
            self._background.begin(self._host.reports.reachable())
            await self._keep_noting()

    # What Bolt's listeners call.

    async def _thread_started(self, payload: Mapping[str, Any]) -> str:
        thread = payload["event"]["assistant_thread"]
        self._background.begin(self._suggest(str(thread["channel_id"]), str(thread["thread_ts"])))
        return ""

    async def _home_opened(self, payload: Mapping[str, Any]) -> str:
        event = payload["event"]
        if event.get("tab") == "messages":
            self._background.begin(self._suggest(str(event["channel"]), ""))
        return ""

    async def _session_stopped(self, payload: Mapping[str, Any]) -> str:
        event = payload["event"]
        # Slack does not clear the status itself.
        self._background.begin(self._rest(str(event["channel"]), str(event["thread_ts"])))
        return await self._happened(payload)

    async def _happened(self, payload: Mapping[str, Any]) -> str:
        inbound = self._reader.event(payload)
        if inbound is None or (inbound.sender.is_bot and not self._may_be_let_in(inbound)):
            return ""
        try:
            await self._in_turn(inbound, time_of(payload))
        except Unstored as error:
            log.warning("%s could not be stored, so it is not acknowledged: %s", inbound.key, error)
            raise
        return ""

    def _may_be_let_in(self, inbound: Inbound) -> bool:
        """Whether this bot's message would be taken if it were for us."""
        return self._host.wants(msgspec.structs.replace(inbound, addressed=True, overheard=False))

    # Each conversation's own order.

    async def _in_turn(self, inbound: Inbound, at: float) -> Admission:
        """Queues the event before the first await; of those that wait, the one that happened first is stored first."""
        if self._held >= self._limits.events_waiting:
            raise Unstored("too many events wait to be stored")
        self._came += 1
        admitted: asyncio.Future[Admission] = asyncio.get_running_loop().create_future()
        waiting = Waiting(at, self._came, inbound, admitted)
        lane = self._lanes.get(inbound.conversation.id)
        if lane is None:
            lane = self._lanes[inbound.conversation.id] = []
            self._background.begin(self._work(inbound.conversation.id, lane))
        heapq.heappush(lane, waiting)
        self._held += 1
        try:
            # A connection that goes away does not take its event out of the queue.
            return await asyncio.shield(admitted)
        finally:
            self._held -= 1

    async def _work(self, name: str, lane: list[Waiting]) -> None:
        taken: Waiting | None = None
        try:
            while lane:
                taken = heapq.heappop(lane)
                try:
                    taken.admitted.set_result(await self._store(taken.inbound))
                except Unstored as error:
                    # Later events of the conversation must not be stored before this one.
                    _give_back([taken, *lane], str(error))
                    lane.clear()
        finally:
            del self._lanes[name]
            _give_back([taken, *lane] if taken else lane, "the account no longer listens")

    async def _store(self, inbound: Inbound) -> Admission:
        """In a thread that has a conversation already, every message is for the bot."""
        if not inbound.addressed or inbound.overheard:
            may_follow = self._reader.counts_in_our_thread(inbound.target.chat, inbound.command)
            is_ours = may_follow and await self._host.knows(inbound.conversation.id)
            if not (is_ours or inbound.addressed or self._host.wants(inbound)):
                return Ignored()
            if is_ours or inbound.addressed:
                inbound = msgspec.structs.replace(inbound, addressed=True, overheard=not is_ours)
        begins = await self._begins_session(inbound)
        admission = await self._receive(inbound)
        if begins and isinstance(admission, Stored):
            self._name_session(inbound)
        return admission

    # Commands and presses, which Slack sends only once.

    async def _commanded(self, asked: Mapping[str, Any]) -> str:
        inbound = self._reader.commanded(asked, self._host.clock.wall())
        return SILENT if self._reader.is_silent(str(asked["channel_id"])) else await self._ask_door(inbound)

    async def _pressed(self, asked: Mapping[str, Any]) -> str:
        inbound = self._reader.pressed(asked, self._host.clock.wall())
        if inbound is None:
            return ""
        silent = self._reader.is_silent(inbound.target.chat)
        if words := SILENT if silent else await self._ask_door(inbound):
            self._background.begin(self._whisper(inbound, words))
        return ""

    async def _ask_door(self, inbound: Inbound) -> str:
        """Words for the person when no answer may follow; empty when one follows."""
        storing = asyncio.ensure_future(self._receive(inbound))
        if not await ended_within(self._host.clock, storing, self._limits.answer_seconds):
            self._background.begin(self._finish(storing))
            return SLOW
        try:
            return reply_to(storing.result(), inbound)
        except Unstored as error:
            log.warning("%s could not be stored: %s", inbound.key, error)
            return UNSTORED

    async def _finish(self, storing: asyncio.Task[Admission]) -> None:
        try:
            await storing
        except Unstored as error:
            log.warning("a command or press could not be stored: %s", error)

    # What happens in the background.

    async def _whisper(self, inbound: Inbound, words: str) -> None:
        target = inbound.target
        said: dict[str, Any] = {"channel": target.chat, "user": inbound.sender.id, "text": words}
        if target.thread:
            said["thread_ts"] = target.thread
        try:
            await self._client.call("chat.postEphemeral", seconds=ASIDE_SECONDS, **said)
        except SendError as error:
            log.info("the person could not be told %r: %s", words, error)

    async def _suggest(self, channel: str, ts: str) -> None:
        """Suggested prompts for a person who opens the pane or the direct messages."""
        prompts = [{"title": each, "message": each} for each in self._settings.prompts[:MOST_PROMPTS]]
        if prompts:
            await self._try("prompts", self._sessions.suggest(channel, ts, prompts, seconds=ASIDE_SECONDS))

    async def _begins_session(self, inbound: Inbound) -> bool:
        """Is this the first message to us in this thread?"""
        conversation = inbound.conversation.id
        if inbound.kind is not Kind.MESSAGE or not handle_of(inbound.target).assistant:
            return False
        if conversation in self._looked_at:
            return False
        self._looked_at[conversation] = None
        if len(self._looked_at) > LOOKED_AT:
            self._looked_at.popitem(last=False)
        return not await self._host.knows(conversation)

    def _name_session(self, inbound: Inbound) -> None:
        """Names a new assistant thread after its first message."""
        words, place = " ".join(inbound.text.split()), inbound.target
        if words:
            title = words if len(words) <= TITLE_CHARACTERS else f"{words[: TITLE_CHARACTERS - 1]}\u2026"
            self._background.begin(
                self._try("name", self._sessions.name(place.chat, place.thread, title, seconds=ASIDE_SECONDS))
            )

    async def _rest(self, channel: str, thread: str) -> None:
        await self._try("status", self._sessions.work(channel, thread, on=False, seconds=ASIDE_SECONDS))

    async def _try(self, what: str, calling: Awaitable[None]) -> None:
        try:
            await calling
        except SendError as error:
            log.info("the thread's %s could not be set: %s", what, error)

    async def _tell_gap(self) -> None:
        """Reports a time offline that was longer than Slack keeps events for."""
        last = await self._host.notebook.read("listened")
        now = self._host.clock.wall()
        if last is None or now - float(last) < KEPT_SECONDS + NOTED_EVERY_SECONDS:
            return
        minutes = round((now - float(last)) / 60)
        words = f"I was offline for {minutes} minutes; what was written to me before the last six of them may be lost."
        await self._host.reports.missed(words, tell=False)

    async def _keep_noting(self) -> NoReturn:
        """Notes when the account last listened; a store that cannot write does not end the listening."""
        while True:
            try:
                await self._host.notebook.write("listened", f"{self._host.clock.wall():.0f}")
            except Unstored as error:
                log.debug("the time could not be noted: %s", error)
            await self._host.clock.sleep(NOTED_EVERY_SECONDS)

    def _failed(self, error: BaseException) -> None:
        if not self._broken.done():
            self._broken.set_exception(error)


def _give_back(lane: list[Waiting], why: str) -> None:
    for each in lane:
        if not each.admitted.done():
            each.admitted.set_exception(Unstored(why))
