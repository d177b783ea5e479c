"""Discord's gateway: sockets, sessions with their numbered events, and what a client that comes back is told again."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.simulators.discord.places import PRIVILEGED, Bot, Guild, Places
from tests.simulators.discord.shapes import Shapes
from tests.simulators.discord.truth import Truth
from tests.simulators.shared.wire import reset
from tidings.core.clock import Clock

DISPATCH, HEARTBEAT, IDENTIFY, PRESENCE, VOICE, RESUME, RECONNECT, MEMBERS, INVALID, HELLO, ACK = (
    *(0, 1, 2, 3, 4),
    *(6, 7, 8, 9, 10, 11),
)
GUILDS = 1 << 0
KNOWN_INTENTS = sum(1 << bit for bit in (*range(17), 20, 21, 24, 25))
FRAME_BYTES = 4096
# So many frames from a client in a minute.
FRAMES, FRAME_SECONDS = 120, 60.0
DAY_SECONDS = 24 * 3600.0

Frame = dict[str, Any]


@dataclass(slots=True, eq=False)
class Link:
    """One socket; what is said on it goes out in order."""

    socket: web.WebSocketResponse
    transport: asyncio.Transport | None
    path: str
    packer: Any
    frames: asyncio.Queue[str | int] = field(default_factory=asyncio.Queue)
    session: Session | None = None
    # Nothing passes any more, and nobody was told.
    is_dead: bool = False
    # We close it ourselves.
    is_closing: bool = False
    heard: deque[float] = field(default_factory=deque)

    def say(self, frame: Frame) -> None:
        self.frames.put_nowait(json.dumps(frame, separators=(",", ":"), ensure_ascii=False))

    def close(self, code: int) -> None:
        self.is_closing = True
        self.frames.put_nowait(code)


@dataclass(slots=True, eq=False)
class Session:
    id: str
    account: str
    intents: int
    shard: tuple[int, int]
    link: Link | None = None
    # (number, name, JSON of the frame), oldest first.
    log: list[tuple[int, str, str]] = field(default_factory=list)
    # The last number that the client told us it knows.
    known: int = 0
    # By the steady clock; 0 while somebody listens.
    lost_at: float = 0.0
    resumed: int = 0

    @property
    def number(self) -> int:
        return self.log[-1][0] if self.log else 0

    def hears(self, guild: str, intents: int) -> bool:
        """Private things are told to the first shard."""
        place = (int(guild) >> 22) % self.shard[1] if guild else 0
        return place == self.shard[0] and (not intents or bool(self.intents & intents))


class Gateway:
    """`url` is told to clients, and they come back to `resume_url`."""

    def __init__(self, places: Places, shapes: Shapes, truth: Truth, clock: Clock, address: str) -> None:
        self._places = places
        self._shapes = shapes
        self._truth = truth
        self._clock = clock
        self.url = f"ws://{address}/gateway"
        self.resume_url = f"ws://{address}/resume"
        self.sessions: dict[str, Session] = {}
        self.links: set[Link] = set()
        # Seconds.
        self.heartbeat_interval = 41.25
        self.resume_seconds = 180.0
        self.identify_pause = 0.0
        self.identify_limit = 1000
        self.acks = True
        self.refuses = False
        # Set by whoever opens the socket: the faults that come by lot.
        self.befalls: Callable[[str, str], bool] = lambda name, lane: False
        # How an event is worded when it is told: Discord leaves things out now and then.
        self.told_as: Callable[[str, Any], Any] = lambda name, data: data

    def alive(self, account: str) -> list[Session]:
        now = self._clock.now()
        for session in list(self.sessions.values()):
            if session.lost_at and now - session.lost_at > self.resume_seconds:
                del self.sessions[session.id]
        return [session for session in self.sessions.values() if session.account == account]

    def dispatch(self, session: Session, name: str, data: Any) -> None:
        number = session.number + 1
        told = self.told_as(name, data)
        frame = json.dumps({"op": DISPATCH, "s": number, "t": name, "d": told}, separators=(",", ":"))
        session.log.append((number, name, frame))
        if session.link is not None:
            session.link.frames.put_nowait(frame)
        self._truth.wake()

    def told_to(self, account: str, guild: str, intents: int) -> list[Session]:
        return [session for session in self.alive(account) if session.hears(guild, intents)]

    # Sockets.

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if self.refuses:
            return web.Response(status=503)
        socket = web.WebSocketResponse(max_msg_size=2**20, compress=False)
        await socket.prepare(request)
        packs = request.query.get("compress") == "zlib-stream"
        link = Link(socket, request.transport, request.path, zlib.compressobj() if packs else None)
        self.links.add(link)
        writer = asyncio.create_task(self._write(link))
        try:
            if request.query.get("v", "10") != "10":
                link.close(4012)
            else:
                link.say({"op": HELLO, "s": None, "t": None, "d": self._hello()})
                await self._read(link)
            if link.is_closing:
                await writer
        finally:
            writer.cancel()
            self.links.discard(link)
            self._lose(link)
        return socket

    def _hello(self) -> dict[str, Any]:
        return {"heartbeat_interval": int(self.heartbeat_interval * 1000), "_trace": ["simulated"]}

    async def _write(self, link: Link) -> None:
        while True:
            frame = await link.frames.get()
            if link.is_dead:
                if link.is_closing:
                    return
                continue
            try:
                if isinstance(frame, int):
                    await link.socket.close(code=frame)
                    return
                if link.packer is None:
                    await link.socket.send_str(frame)
                else:
                    packed = link.packer.compress(frame.encode()) + link.packer.flush(zlib.Z_SYNC_FLUSH)
                    await link.socket.send_bytes(packed)
            except ConnectionError:
                # The reader sees the end too; what was not heard stays in the session's log.
                return

    async def _read(self, link: Link) -> None:
        loop = asyncio.get_running_loop()
        patience = self.heartbeat_interval * 1.5 + 1.0
        try:
            async with asyncio.timeout(patience) as deadline:
                async for message in link.socket:
                    if message.type is not WSMsgType.TEXT:
                        link.close(4002)
                        continue
                    if self._hear(link, message.data) == HEARTBEAT:
                        deadline.reschedule(loop.time() + patience)
        except TimeoutError:
            if link.is_dead:
                # Whoever cannot be heard may come back another way.
                return reset(link.transport)
            self._forget(link.session)
            link.close(4009)

    def _lose(self, link: Link) -> None:
        session, link.session = link.session, None
        if session is not None and session.link is link:
            session.link, session.lost_at = None, self._clock.now()
            # Whoever says goodbye does not come back.
            if not link.is_closing and link.socket.close_code in (1000, 1001):
                self._forget(session)
        self._truth.wake()

    def _forget(self, session: Session | None) -> None:
        if session is not None:
            self.sessions.pop(session.id, None)

    # What clients say.

    def _hear(self, link: Link, text: str) -> int:
        now = self._clock.now()
        while link.heard and link.heard[0] <= now - FRAME_SECONDS:
            link.heard.popleft()
        link.heard.append(now)
        try:
            frame = json.loads(text) if len(text.encode()) <= FRAME_BYTES else None
        except ValueError:
            frame = None
        op = frame.get("op") if isinstance(frame, dict) else None
        data = frame.get("d") if isinstance(frame, dict) else None
        if link.is_closing or link.is_dead:
            return -1
        if len(link.heard) > FRAMES:
            link.close(4008)
        elif not isinstance(op, int):
            link.close(4002)
        elif op == HEARTBEAT:
            self._beat(link, data)
        elif op == IDENTIFY:
            self._identify(link, data if isinstance(data, dict) else {})
        elif op == RESUME:
            self._resume(link, data if isinstance(data, dict) else {})
        elif link.session is None:
            link.close(4003)
        elif op == MEMBERS:
            self._members(link.session, data)
        elif op not in (PRESENCE, VOICE):
            link.close(4001)
        return op if isinstance(op, int) else -1

    def _beat(self, link: Link, number: Any) -> None:
        if link.session is not None and isinstance(number, int):
            link.session.known = max(link.session.known, number)
        if self.acks:
            link.say({"op": ACK, "s": None, "t": None, "d": None})
        self._truth.wake()

    def _identify(self, link: Link, data: dict[str, Any]) -> None:
        bot = self._places.bot_by_token(str(data.get("token")).removeprefix("Bot "))
        intents = data.get("intents")
        shard = data.get("shard") or [0, 1]
        if link.session is not None:
            return link.close(4005)
        if bot is None:
            return link.close(4004)
        if not isinstance(intents, int) or not isinstance(data.get("properties"), dict):
            return link.close(4002)
        if intents & ~KNOWN_INTENTS:
            return link.close(4013)
        if intents & sum(PRIVILEGED.values()) & ~bot.portal:
            return link.close(4014)
        if not 0 <= shard[0] < shard[1]:
            return link.close(4010)
        now = self._clock.now()
        if bot.identifies and now - bot.identifies[-1] < self.identify_pause:
            return link.say({"op": INVALID, "s": None, "t": None, "d": False})
        bot.identifies.append(now)
        if self.identified(bot) > self.identify_limit:
            # The platform's own punishment for a crash loop.
            self.reset_token(bot, f"{bot.token}-reset")
            return link.close(4004)
        session = Session(f"session{self._places.new_id()}", bot.account, intents, (shard[0], shard[1]))
        self.sessions[session.id] = link_to(link, session)
        self._greet(session, bot)
        return None

    def identified(self, bot: Bot) -> int:
        """So many times in the last day."""
        return sum(self._clock.now() - each < DAY_SECONDS for each in bot.identifies)

    def reset_token(self, bot: Bot, token: str) -> None:
        """Sessions that were opened with the old one end at once."""
        if token == bot.token:
            return
        bot.token = token
        for session in self.alive(bot.account):
            self._forget(session)
        for link in self.links:
            if link.session is not None and link.session.account == bot.account:
                link.close(4004)
        self._truth.wake()

    def _greet(self, session: Session, bot: Bot) -> None:
        guilds = [guild for guild in self._places.guilds.values() if bot.account in guild.bots]
        guilds = [guild for guild in guilds if session.hears(guild.id, 0)]
        ready = {
            "v": 10,
            "user": self._shapes.me(bot),
            "guilds": [{"id": guild.id, "unavailable": True} for guild in guilds],
            "session_id": session.id,
            "session_type": "normal",
            "resume_gateway_url": self.resume_url,
            "shard": list(session.shard),
            "application": {"id": bot.id, "flags": self._shapes.flags(bot)},
            "private_channels": [],
            "relationships": [],
            "user_settings": {},
        }
        self.dispatch(session, "READY", ready)
        if session.intents & GUILDS:
            for guild in guilds:
                self.dispatch(session, "GUILD_CREATE", self._shapes.guild(guild, bot))

    def _resume(self, link: Link, data: dict[str, Any]) -> None:
        bot = self._places.bot_by_token(str(data.get("token")).removeprefix("Bot "))
        number = data.get("seq")
        if link.session is not None:
            return link.close(4005)
        if bot is None:
            return link.close(4004)
        self.alive(bot.account)
        session = self.sessions.get(str(data.get("session_id")))
        if session is None or session.account != bot.account:
            return link.say({"op": INVALID, "s": None, "t": None, "d": False})
        if not isinstance(number, int) or number > session.number:
            self._forget(session)
            return link.close(4007)
        if session.link is not None:
            session.link.session = None
            session.link.close(4000)
        link_to(link, session)
        session.known = max(session.known, number)
        session.resumed += 1
        for each, _, frame in session.log:
            if each > number:
                link.frames.put_nowait(frame)
        return self.dispatch(session, "RESUMED", {"_trace": ["simulated"]})

    def _members(self, session: Session, data: Any) -> None:
        guild: Guild | None = self._places.guilds.get(str((data or {}).get("guild_id")))
        if guild is None:
            return
        people = [*guild.members, *(self._places.bot(account).id for account in guild.bots)]
        chunk = {
            "guild_id": guild.id,
            "members": [self._shapes.whole_member(guild, user) for user in people],
            "chunk_index": 0,
            "chunk_count": 1,
            "not_found": [],
        }
        self.dispatch(session, "GUILD_MEMBERS_CHUNK", chunk | ({"nonce": data["nonce"]} if "nonce" in data else {}))

    # Levers.

    def of(self, account: str) -> list[Link]:
        return [link for link in self.links if link.session is not None and link.session.account == account]

    def say(self, account: str, op: int, data: Any = None) -> None:
        for link in self.of(account):
            link.say({"op": op, "s": None, "t": None, "d": data})

    def abort(self, account: str) -> None:
        for link in self.of(account):
            reset(link.transport)

    def forget(self, account: str) -> None:
        """Those that are connected go on; whoever comes back is unknown."""
        for session in self.alive(account):
            self._forget(session)


def link_to(link: Link, session: Session) -> Session:
    link.session, session.link, session.lost_at = session, link, 0.0
    return session
