"""How events come in: stored in each channel's own order, with a cursor that moves only with what was stored."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

import msgspec

from tidings.adapters.discord.address import ADAPTER, STRANGE, snowflake_at, time_of
from tidings.adapters.discord.catchup import History
from tidings.adapters.discord.client import Client
from tidings.adapters.discord.cursors import Cursors, Kept
from tidings.adapters.discord.deferrals import Deferrals
from tidings.adapters.discord.directory import PRIVATE, TEXT, WRITTEN, Atlas, Me, Place, Sight, place_of
from tidings.adapters.discord.interactions import Interactions, is_known
from tidings.adapters.discord.parse import Reader
from tidings.adapters.discord.settings import DiscordAccount
from tidings.adapters.discord.socket import USUAL, Gateway, Limits
from tidings.core.adapter import Host, Receive
from tidings.core.background import Background
from tidings.core.errors import RateLimited, SendError, Unreachable, Unstored
from tidings.core.types import Ignored, Inbound, Note

log = logging.getLogger(__name__)

UNSTORED_SECONDS = (0.5, 1.0, 2.0, 5.0)
# So long we ask what an unknown channel is: a thread that is taken for a channel is another conversation.
PLACE_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
# So many messages we remember, to know which deletions are worth a row.
TAKEN = 5000
SKEW_SECONDS = 60.0


class Step(NamedTuple):
    do: Callable[[], Awaitable[None]]
    # Does it take memory for as long as it waits?
    counts: bool = True


class Intake:
    def __init__(
        self,
        account: str,
        settings: DiscordAccount,
        client: Client,
        host: Host,
        deferrals: Deferrals,
        limits: Limits = USUAL,
    ) -> None:
        self._account = account
        self._settings = settings
        self._client = client
        self._host = host
        self._history = History(client, settings, host.clock)
        self._interactions = Interactions(client, host, deferrals)
        self._gateway = Gateway(settings, host, self.hear, self._room, limits)
        self._places = Kept(host)
        self._cursors = Cursors(host)
        self._atlas = Atlas()
        self._reader = Reader(account, settings, self._atlas, (item.name for item in host.menu))
        self._lanes: dict[str, deque[Step]] = {}
        self._background = Background(log, "listening failed", self._failed)
        self._waiting = 0
        self._most_waiting = limits.events_waiting
        self._eased = asyncio.Event()
        self._taken: dict[str, None] = {}
        # Channels that have been looked at since the session began.
        self._caught_up: set[str] = set()
        # The newest message that was known when the session began; 0 when there was none ever.
        self._known_until = 0
        self._handlers: dict[str, Callable[[dict[str, Any]], object]] = {
            "READY": self._ready,
            "RESUMED": self._resumed,
            "GUILD_CREATE": self._guild_opened,
            "GUILD_DELETE": self._guild_closed,
            "GUILD_MEMBER_UPDATE": self._member_changed,
            "CHANNEL_CREATE": self._place_opened,
            "CHANNEL_UPDATE": self._place_changed,
            "CHANNEL_DELETE": self._place_closed,
            "THREAD_CREATE": self._place_opened,
            "THREAD_UPDATE": self._place_changed,
            "THREAD_DELETE": self._place_closed,
            "THREAD_LIST_SYNC": self._threads_listed,
            "MESSAGE_CREATE": lambda data: self._in_turn(data, self._said),
            "MESSAGE_UPDATE": lambda data: self._in_turn(data, self._edited),
            "MESSAGE_DELETE": lambda data: self._in_turn(data, self._deleted),
            "MESSAGE_DELETE_BULK": lambda data: self._in_turn(data, self._deleted),
            "INTERACTION_CREATE": self._asked,
        }

    async def run(self, receive: Receive) -> NoReturn:
        """One lifetime; raises what ends the gateway."""
        self._receive = receive
        # Discord's clock may be behind ours.
        self._began = int(snowflake_at(self._host.clock.wall() + SKEW_SECONDS))
        await self._places.load()
        await self._cursors.load()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        listening = asyncio.create_task(self._gateway.run())
        noting = asyncio.create_task(self._cursors.keep_noting())
        try:
            lives: set[asyncio.Future[Any]] = {listening, noting, self._broken}
            done, _ = await asyncio.wait(lives, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
            raise AssertionError("listening has no end of its own")
        finally:
            for task in (listening, noting):
                task.cancel()
            await asyncio.gather(listening, noting, return_exceptions=True)
            await self._background.close()
            self._broken.cancel()

    def hear(self, event: str, data: Any) -> None:
        """Every event, in order. One of a strange shape is passed over, lest it keep us from all the others."""
        handler = self._handlers.get(event)
        if handler is None:
            return
        try:
            handler(data)
        except STRANGE as error:
            log.warning("passed over %s, which has a strange shape: %r", event, error)

    async def _room(self) -> None:
        while self._waiting >= self._most_waiting:
            self._eased.clear()
            await self._eased.wait()

    # What is told of places.

    def _ready(self, data: dict[str, Any]) -> None:
        user = data["user"]
        # An application and its bot have one id, except for the very old.
        application = (data.get("application") or user)["id"]
        me = Me(str(user["id"]), str(user.get("global_name") or user["username"]), str(application))
        self._atlas.me = me
        self._caught_up.clear()
        self._known_until = self._cursors.seen
        for place in self._places.all():
            self._atlas.add(place)
            if place.is_private:
                self._catch_up(Sight(place, "", 0.0))
        log.info("%s@%s listens as %s", ADAPTER, self._account, me.name)
        self._background.begin(self._interactions.publish(me))
        self._background.begin(self._host.reports.reachable())

    def _resumed(self, data: dict[str, Any]) -> None:
        self._background.begin(self._host.reports.reachable())

    def _guild_opened(self, data: dict[str, Any]) -> None:
        sights = {sight.place.channel: sight for sight in self._atlas.open_guild(data)}
        for place in self._places.all():
            # A thread that was put away meanwhile is not told of, but something may have been said in it before.
            if place.guild == str(data["id"]) and place.channel not in sights:
                sights[place.channel] = Sight(place, "", 0.0)
        for sight in sights.values():
            self._catch_up(sight)

    def _guild_closed(self, data: dict[str, Any]) -> None:
        if not data.get("unavailable"):
            log.info("%s@%s was removed from the server %s", ADAPTER, self._account, data["id"])
            self._atlas.close_guild(str(data["id"]))

    def _member_changed(self, data: dict[str, Any]) -> None:
        if str(data["user"]["id"]) == self._atlas.me.id:
            self._atlas.set_roles(str(data["guild_id"]), data)

    def _place_opened(self, data: dict[str, Any]) -> None:
        place = self._place_changed(data)
        is_new = "newly_created" in data or not place.is_thread
        if place.kind in WRITTEN and is_new and place.channel not in self._caught_up:
            # Whatever will be said there comes after this.
            self._caught_up.add(place.channel)
            self._append(place.channel, Step(partial(self._begin_cursor, place), counts=False))

    def _place_changed(self, data: dict[str, Any]) -> Place:
        place = place_of(data, self._atlas.guild_of(data))
        # Without a server it would count as private.
        if place.kind in WRITTEN and place.guild:
            self._atlas.add(place)
        return place

    def _place_closed(self, data: dict[str, Any]) -> None:
        log.info("the channel %s is gone", data["id"])
        self._atlas.remove(str(data["id"]))
        self._caught_up.discard(str(data["id"]))
        self._cursors.forget(str(data["id"]))

    def _threads_listed(self, data: dict[str, Any]) -> None:
        for thread in data.get("threads") or ():
            place = self._place_changed(thread | {"guild_id": data["guild_id"]})
            self._catch_up(Sight(place, str(thread.get("last_message_id") or ""), 0.0))

    # Each channel's own order.

    def _in_turn(self, data: dict[str, Any], take: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        channel = str(data["channel_id"])
        if channel not in self._caught_up:
            self._caught_up.add(channel)
            self._append(channel, Step(partial(self._read_gap_at, data), counts=False))
        self._append(channel, Step(partial(take, data)))

    def _catch_up(self, sight: Sight) -> None:
        """Reads the gap in the channel's own order, so before every new message there."""
        self._caught_up.add(sight.place.channel)
        self._append(sight.place.channel, Step(partial(self._read_gap, sight), counts=False))

    def _append(self, channel: str, step: Step) -> None:
        lane = self._lanes.get(channel)
        if lane is None:
            lane = self._lanes[channel] = deque()
            self._background.begin(self._work(channel, lane))
        lane.append(step)
        self._waiting += step.counts

    async def _work(self, channel: str, lane: deque[Step]) -> None:
        """One step after the other; a message that cannot be stored is tried again, so that nothing overtakes it."""
        failures = 0
        while lane:
            try:
                await lane[0].do()
            except STRANGE as error:
                log.warning("passed over something of a strange shape in channel %s: %r", channel, error)
            except Unstored:
                await self._host.clock.sleep(UNSTORED_SECONDS[min(failures, len(UNSTORED_SECONDS) - 1)])
                failures += 1
                continue
            failures = 0
            self._waiting -= lane.popleft().counts
            self._eased.set()
        del self._lanes[channel]

    async def _said(self, data: dict[str, Any]) -> None:
        await self._take(data, await self._place(data))

    async def _take(self, message: dict[str, Any], place: Place) -> None:
        id = int(message["id"])
        self._cursors.see(id)
        try:
            inbound = self._reader.said(message, place)
        except STRANGE as error:
            log.warning("passed over message %s, which has a strange shape: %r", id, error)
            inbound = None
        if inbound is None or not self._is_for_us(inbound):
            self._cursors.move(place.channel, id)
            return
        if place.is_private or place.is_thread:
            await self._places.keep(place)
        cursor = max(id, self._cursors.memory.get(place.channel, 0))
        note = Note(name=f"cursor/{place.channel}", value=str(cursor))
        admission = await self._receive(inbound, note)
        self._cursors.moved(place.channel, cursor)
        if isinstance(admission, Ignored):
            return
        self._taken[inbound.key] = None
        if len(self._taken) > TAKEN:
            del self._taken[next(iter(self._taken))]

    async def _edited(self, data: dict[str, Any]) -> None:
        inbound = self._reader.edited(data, await self._place(data))
        if inbound is None:
            return
        # What was for us stays so, whatever becomes of the mention.
        is_ours = inbound.about in self._taken
        if is_ours or self._is_for_us(inbound):
            overheard = inbound.overheard and not is_ours
            await self._receive(msgspec.structs.replace(inbound, addressed=True, overheard=overheard))

    def _is_for_us(self, inbound: Inbound) -> bool:
        """Most messages of others, and all of bots that are not let in, need no row and no commit."""
        return (inbound.addressed and not inbound.sender.is_bot) or self._host.wants(inbound)

    async def _deleted(self, data: dict[str, Any]) -> None:
        place = await self._place(data)
        for id in [data["id"]] if "id" in data else data["ids"]:
            inbound = self._reader.deleted(str(id), place)
            # A deleted message that came while we listened and was not for us needs no row.
            if inbound.about in self._taken or int(id) < self._began:
                await self._receive(inbound)

    async def _place(self, data: dict[str, Any]) -> Place:
        """Where an event belongs; a thread that was archived long ago is asked for, since Discord does not tell."""
        channel = str(data["channel_id"])
        if (known := self._atlas.place(channel)) is not None:
            return known
        if not data.get("guild_id"):
            return Place(channel, kind=PRIVATE)
        guild = str(data["guild_id"])
        for pause in PLACE_PAUSES:
            try:
                place = place_of(await self._client.call("GET", f"/channels/{channel}"), guild)
            except (RateLimited, Unreachable) as error:
                log.info("of channel %s nothing can be learnt yet: %s", channel, error)
                await self._host.clock.sleep(getattr(error, "retry_after", None) or pause)
            except SendError as error:
                log.info("of channel %s nothing can be learnt: %s", channel, error)
                break
            else:
                self._atlas.add(place)
                return place
        return Place(channel, guild)

    # Messages that were missed.

    async def _begin_cursor(self, place: Place) -> None:
        if self._atlas.is_ours(place):
            await self._places.keep(place)
        if await self._cursors.of(place.channel) is None:
            await self._cursors.write(place.channel, int(place.channel))

    async def _read_gap_at(self, data: dict[str, Any]) -> None:
        place = await self._place(data)
        # A private channel that was made while we were away is told of only when a person speaks there again.
        is_of_the_gap = place.is_private and int(place.channel) < self._began
        await self._read_gap(Sight(place, "", time_of(place.channel) if is_of_the_gap else 0.0))

    async def _read_gap(self, sight: Sight) -> None:
        place, last = sight.place, sight.last
        if sight.made:
            # What was there when we came first is no news, whatever our own clock says.
            self._cursors.see(int(last or place.channel))
        cursor = await self._cursors.of(place.channel)
        if cursor is None:
            if not self._is_since(sight):
                if not place.is_private and sight.made:
                    await self._cursors.write(place.channel, int(last or place.channel))
                return
            cursor = int(place.channel)
        if last and int(last) <= cursor:
            return
        gap = await self._history.since(place, cursor)
        if last and gap.is_blank:
            self._history.found_nothing(place, last)
        for message in gap.messages:
            await self._take(message, place)
        if gap.words:
            await self._host.reports.missed(gap.words, tell=False)
        if last:
            self._cursors.move(place.channel, int(last))

    def _is_since(self, sight: Sight) -> bool:
        """Was it made after we last listened, so that all of it is news? All that is said in our threads is for us."""
        if not self._known_until:
            return False
        return self._atlas.is_ours(sight.place) or sight.made > time_of(str(self._known_until))

    # What does not wait for its turn.

    def _asked(self, data: dict[str, Any]) -> None:
        if not is_known(data):
            return
        self._background.begin(self._answer(data, self._place_asked(data)))

    def _place_asked(self, data: dict[str, Any]) -> Place:
        """Its own word counts: a command may come from where the bot is not. Discord need not say it, though."""
        guild = str(data.get("guild_id") or "")
        try:
            return place_of(data["channel"], guild)
        except STRANGE:
            channel = str(data["channel_id"])
            return self._atlas.place(channel) or Place(channel, guild, TEXT if guild else PRIVATE)

    async def _answer(self, asked: dict[str, Any], place: Place) -> None:
        try:
            await self._interactions.take(asked, place, self._reader, self._receive)
        except STRANGE as error:
            log.warning("passed over an interaction, which has a strange shape: %r", error)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, Unstored):
            log.warning("something could not be stored: %s", error)
        elif not self._broken.done():
            self._broken.set_exception(error)
