"""The console as a platform: what `tidings chat` says comes in, what we owe is shown where one is open."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tidings.adapters.console.settings import ConsoleSettings
from tidings.core.adapter import Line, NearbyHost, Receive, Taken
from tidings.core.agent import Ended
from tidings.core.background import Background
from tidings.core.errors import Doubtful, Lagged, TidingsError, Unknown, Unreachable, Unstored
from tidings.core.failpoints import fail_here
from tidings.core.outbound import splitter
from tidings.core.types import (
    Absent,
    Attachment,
    Body,
    Capabilities,
    Conversation,
    Duplicate,
    Ignored,
    Inbound,
    Kind,
    Pace,
    Part,
    PartKind,
    Receipt,
    Refused,
    Sender,
    SendProof,
    Signal,
    Stored,
    Target,
    Unreadable,
    View,
)

log = logging.getLogger(__name__)

DEFAULT_CHAT = "local"
# A client that has not shown a part by then is taken for dead and loses the connection.
SHOWN_SECONDS = 5.0
# A view is droppable: it never waits long for a reader.
SHOW_SECONDS = 1.0
# A line of the socket holds a megabyte; a character takes six bytes of JSON at worst.
PART_CHARACTERS = 100_000
# Messages of one client that may be on their way into the store at once.
SAYING = 100

Place = tuple[str, str]


class Client:
    """One attached `tidings chat`."""

    def __init__(self, line: Line, task: asyncio.Task[Any]) -> None:
        self.line = line
        self._task = task

    def end(self) -> None:
        self._task.cancel()


class Asked(NamedTuple):
    """A part on its way to the screen: one client that shows it is enough."""

    clients: set[Client]
    # False when the last of them has left without a word.
    shown: asyncio.Future[bool]

    def left(self, client: Client) -> None:
        self.clients.discard(client)
        if not self.clients:
            self.settle(False)

    def settle(self, was_shown: bool) -> None:
        if not self.shown.done():
            self.shown.set_result(was_shown)


class ConsoleAdapter:
    name = "console"

    def __init__(self, account: str, settings: ConsoleSettings, host: NearbyHost) -> None:
        self.account = account
        self._settings = settings
        self._host = host
        # None while `listen` does not run; attached clients still see what we owe them.
        self._receive: Receive | None = None
        self._clients: dict[Place, list[Client]] = {}
        self._asked: dict[str, Asked] = {}

    def can(self, target: Target) -> Capabilities:
        chat, _ = _place(target)
        pace = (Pace(key=f"console/{self.account}/{chat}", seconds=0.05, burst=5),)
        return Capabilities(
            async_delivery=True,
            streaming_edits=True,
            # A client remembers which keys it has shown; the next one starts with an empty screen.
            send_proof=SendProof(keyed_for=86_400, readback=False),
            threads=True,
            reactions=False,
            buttons=False,
            files=True,
            typing=True,
            hears_all=True,
            pace=pace,
            show_pace=(),
            signal_pace=pace,
        )

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        texts = splitter.split(body.text, PART_CHARACTERS) or ("",)
        return (*(Body(text=text) for text in texts[:-1]), Body(text=texts[-1], files=body.files))

    async def listen(self, receive: Receive) -> None:
        self._receive = receive
        try:
            with self._host.local.route("chat", self._chat):
                # Cancelling is the only way out.
                await asyncio.get_running_loop().create_future()
        finally:
            self._receive = None

    async def send(self, part: Part) -> Receipt:
        place = _place(part.target)
        clients = set(self._clients.get(place, ()))
        if not clients:
            raise Unreachable("no console is open; open one with: tidings chat")
        asked = Asked(clients, asyncio.get_running_loop().create_future())
        self._asked[part.key] = asked
        try:
            async with asyncio.timeout(SHOWN_SECONDS):
                await self._tell(place, _message(part))
                was_shown = await asked.shown
        except TimeoutError:
            was_shown = False
            for client in clients:
                client.end()
        finally:
            del self._asked[part.key]
        if not was_shown:
            raise Doubtful("the open console did not confirm that it was shown")
        view = View(handle=_handle(part), anchored=True) if part.kind is not PartKind.PLAIN else None
        chat, _ = place
        return Receipt(ids=(part.key,), view=view, chat=chat)

    async def show(self, view: View, text: str) -> View:
        # Past one part the end is what is being written.
        message = {"show": view.handle, "text": text[-PART_CHARACTERS:]}
        await self._tell(_place_of(view), message)
        return view

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        return Unreadable(reason="a terminal cannot be read back")

    async def signal(self, target: Target, signal: Signal) -> None:
        await self._tell(_place(target), {"signal": signal.value})

    async def fetch(self, attachment: Attachment) -> Path:
        raise Unknown("the console takes no attachments")

    async def close(self) -> None:
        """Connections belong to the local socket, which closes them."""

    async def _tell(self, place: Place, message: dict[str, Any]) -> None:
        """Best effort; a client that does not read loses its connection and comes back."""
        for client in list(self._clients.get(place, ())):
            try:
                async with asyncio.timeout(SHOW_SECONDS):
                    await client.line.write(message)
            except (ConnectionError, TimeoutError):
                client.end()

    async def _chat(self, line: Line) -> None:
        hello = await line.read() or {}
        place = (_word(hello, "chat") or DEFAULT_CHAT, _word(hello, "thread"))
        task = asyncio.current_task()
        assert task is not None
        client = Client(line, task)
        await line.write({"attached": list(place), "name": self._settings.name or "bot"})
        with self._attached(place, client):
            await self._host.reports.reachable()
            await self._hear(client, place)

    @contextlib.contextmanager
    def _attached(self, place: Place, client: Client) -> Iterator[None]:
        self._clients.setdefault(place, []).append(client)
        try:
            yield
        finally:
            self._clients[place].remove(client)
            if not self._clients[place]:
                del self._clients[place]
            for asked in self._asked.values():
                asked.left(client)

    async def _hear(self, client: Client, place: Place) -> None:
        """Stores messages in the order they were said; acknowledgements never wait behind them."""
        slots = asyncio.Semaphore(SAYING)
        saying = Background(log, "what was said could not be taken")
        try:
            while (message := await client.line.read()) is not None:
                if "shown" in message:
                    self._was_shown(str(message["shown"]))
                    continue
                text, key = _word(message, "say"), _word(message, "key")
                if not text or not key:
                    await client.line.write({"error": 'say needs a text and a "key"', "verdict": "malformed"})
                    continue
                await slots.acquire()
                inbound = self._inbound(place, text, key)
                saying.begin(self._say(client.line, inbound, slots))
        finally:
            saying.cancel()

    def _was_shown(self, key: str) -> None:
        asked = self._asked.get(key)
        if asked is not None:
            asked.settle(True)

    async def _say(self, line: Line, inbound: Inbound, slots: asyncio.Semaphore) -> None:
        try:
            try:
                if self._receive is None:
                    raise Unstored("the gateway is about to stop")
                admission = await self._receive(inbound)
            finally:
                slots.release()
            match admission:
                case Stored(run=run) | Duplicate(run=run):
                    fail_here("in.pre_ack")
                    await line.write({"stored": inbound.key, "run": run})
                    fail_here("in.post_ack")
                    if inbound.kind is Kind.MESSAGE:
                        await line.write({"ended": inbound.key, "outcome": await self._outcome(run)})
                case Refused(reason=reason):
                    await line.write({"refused": inbound.key, "reason": reason})
                case Ignored():
                    await line.write({"refused": inbound.key, "reason": "no bot here answers to that"})
        except Unstored:
            await _quietly(line, {"unstored": inbound.key})
        except TidingsError as error:
            await _quietly(line, {"refused": inbound.key, "reason": str(error)})
        except ConnectionError:
            # The reader notices too, and ends the connection.
            return

    async def _outcome(self, run: str) -> str:
        seen = 0
        while True:
            try:
                async for numbered in self._host.desk.follow(run, after=seen):
                    seen = numbered.seq
                    if isinstance(numbered.event, Ended):
                        return numbered.event.kind.value
            except Lagged:
                continue
            except Unknown:
                return "unknown"
            return "unknown"

    def _inbound(self, place: Place, text: str, key: str) -> Inbound:
        chat, thread = place
        name = text[1:].split(maxsplit=1)[0] if text[:1] == "/" and text[1:2].isalpha() else ""
        return Inbound(
            key=key,
            conversation=Conversation(adapter=self.name, account=self.account, chat=chat, thread=thread),
            # The answer carries the message's key back to the client that said it.
            target=Target(adapter=self.name, account=self.account, chat=chat, thread=thread, reply_to=key),
            sender=_owner(),
            kind=Kind.COMMANDED if name else Kind.MESSAGE,
            text=text,
            command=name.lower(),
            # Who presses Enter is done, and waits for the answer.
            whole=True,
        )


def _owner() -> Sender:
    """Only the owner of the home can open the socket."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return Sender(id=user, name=user, trusted=True)


def _place(target: Target) -> Place:
    """`console` alone means the conversation that `tidings chat` opens."""
    return target.chat or DEFAULT_CHAT, target.thread


def _handle(part: Part) -> str:
    """Carries its place, so that a view can be found again after a restart."""
    return json.dumps([*_place(part.target), part.key])


def _place_of(view: View) -> Place:
    chat, thread, _ = json.loads(view.handle)
    return chat, thread


def _message(part: Part) -> dict[str, Any]:
    return {
        "part": part.key,
        "kind": part.kind.value,
        "text": part.body.text,
        "files": [{"name": file.name, "path": file.path} for file in part.body.files],
        "position": part.position,
        "count": part.count,
        "view": part.view.handle if part.view else "" if part.kind is PartKind.PLAIN else _handle(part),
        "answers": part.target.reply_to,
    }


async def _quietly(line: Line, message: dict[str, Any]) -> None:
    with contextlib.suppress(ConnectionError):
        await line.write(message)


def _word(message: dict[str, Any], name: str) -> str:
    value = message.get(name)
    return value if isinstance(value, str) else ""
