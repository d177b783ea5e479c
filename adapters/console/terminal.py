"""The chat client: says what is typed or piped, and shows what the gateway sends, each part once."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tidings.adapters.console import editor
from tidings.adapters.console.escape import visible
from tidings.adapters.local import socket
from tidings.core import ids
from tidings.core.adapter import Line
from tidings.core.background import Background
from tidings.core.errors import NotRunning, TidingsError, Unrouted

log = logging.getLogger(__name__)

QUIT = "/quit"
# The console may still be starting when the socket is already there.
ROUTE_SECONDS = 5.0
RETRY_SECONDS = 0.5
UNSTORED_SECONDS = 1.0
# A part before the run's end may be a report that overtook the answer; the answer follows at once, then.
LINGER_SECONDS = 0.25
REMEMBERED_PARTS = 10_000
# What stands in a view before it has a text.
PLACEHOLDERS = ("", "…", "...")


class Display(Protocol):
    def named(self, name: str) -> None: ...
    def grow(self, view: str, text: str) -> None: ...
    def whole(self, view: str, text: str) -> None: ...
    def typing(self, is_typing: bool) -> None: ...
    def aside(self, text: str) -> None: ...


class Plain:
    """Output for a pipe: whole texts only, everything else to the error output."""

    def named(self, name: str) -> None:
        del name

    def grow(self, view: str, text: str) -> None:
        del view, text

    def whole(self, view: str, text: str) -> None:
        del view
        print(text, flush=True)

    def typing(self, is_typing: bool) -> None:
        del is_typing

    def aside(self, text: str) -> None:
        print(f"tidings: {text}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class Said:
    """One line of ours, until it is answered."""

    key: str
    text: str
    stored: bool = False
    ended: bool = False
    # A whole answer to it was shown.
    shown: bool = False
    # Its run waits for an answer to a question that was shown.
    asks: bool = False
    # It has asked before.
    asked: bool = False
    answered: bool = False
    refused: bool = False

    @property
    def is_open(self) -> bool:
        return not self.answered and not self.asks

    @property
    def is_command(self) -> bool:
        return self.text.startswith("/")

    def is_answered_by(self, key: str) -> bool:
        # A stop has no answer of its own: what it stopped says that it was stopped.
        return key == self.key or self.text.split(maxsplit=1)[0] == "/stop"


class Talk:
    """Our side of a conversation. It outlives a connection: what was not answered is said again, once."""

    def __init__(self, display: Display) -> None:
        self.news = asyncio.Event()
        self._display = display
        self._line: Line | None = None
        self._open: dict[str, Said] = {}
        self._shown: dict[str, None] = {}
        self._later = Background(log, "a line could not be sent again")

    async def say(self, text: str) -> Said:
        said = Said(ids.new("say"), text)
        self._open[said.key] = said
        if self._line is not None:
            await self._send(said)
        return said

    async def hear(self, line: Line) -> None:
        """Until the other side has gone."""
        self._line = line
        try:
            for said in list(self._open.values()):
                await self._send(said)
            while (message := await line.read()) is not None:
                await self._take(line, message)
                self.news.set()
        finally:
            self._line = None
            self._later.cancel()

    def greeted(self, name: str) -> None:
        self._display.named(visible(name))

    async def _send(self, said: Said) -> None:
        if self._line is not None:
            # The task that reads the line notices the loss, and says it again on the next line.
            with contextlib.suppress(ConnectionError):
                await self._line.write({"say": said.text, "key": said.key})

    async def _take(self, line: Line, message: dict[str, Any]) -> None:
        match message:
            case {"part": str(key)}:
                self._show(key, message)
                # Without the connection it is shown all the same; a repetition is dropped by its key.
                with contextlib.suppress(ConnectionError):
                    await line.write({"shown": key})
                self._count(message)
            case {"show": str(view), "text": str(text)}:
                self._display.grow(view, visible(text))
            case {"signal": signal}:
                self._display.typing(signal == "typing")
            case {"stored": str(key)} if key in self._open:
                self._open[key].stored = True
            case {"ended": str(key)}:
                self._display.typing(False)
                self._end(key)
            case {"refused": str(key), "reason": reason}:
                self._refuse(key, visible(str(reason)))
            case {"unstored": str(key)} if key in self._open:
                self._say_later(self._open[key])
            case {"error": reason}:
                self._display.aside(visible(str(reason)))
            case _:
                return

    def _show(self, key: str, message: dict[str, Any]) -> None:
        if key in self._shown:
            return
        view, text = str(message.get("view", "")), visible(str(message.get("text", "")))
        if message.get("kind") == "plain" or _is_question(message):
            files = [f"[file] {visible(str(f['name']))}: {visible(str(f['path']))}" for f in message["files"]]
            self._display.whole(view, "\n".join(filter(None, [text, *files])))
        else:
            self._display.grow(view, "" if text.strip() in PLACEHOLDERS else text)
        self._shown[key] = None
        if len(self._shown) > REMEMBERED_PARTS:
            del self._shown[next(iter(self._shown))]

    def _count(self, message: dict[str, Any]) -> None:
        """A line is answered when its run has ended and the last part that answers it was shown."""
        if _is_question(message):
            for said in self._open.values():
                if said.key == message.get("answers"):
                    said.asks = said.asked = True
            return
        if message.get("kind") != "plain" or message["position"] < message["count"]:
            return
        for said in list(self._open.values()):
            if said.is_answered_by(str(message.get("answers", ""))):
                said.shown = True
                if said.ended or said.is_command:
                    self._close(said)

    def _end(self, key: str) -> None:
        said = self._open.get(key)
        if said is not None:
            said.ended = True
            if said.shown:
                asyncio.get_running_loop().call_later(LINGER_SECONDS, self._close, said)

    def _refuse(self, key: str, reason: str) -> None:
        self._display.aside(f"refused: {reason}")
        said = self._open.get(key)
        if said is not None:
            said.refused = True
            self._close(said)

    def _close(self, said: Said) -> None:
        said.answered = True
        self._open.pop(said.key, None)
        self.news.set()

    def _say_later(self, said: Said) -> None:
        self._display.aside("the gateway cannot store it right now; trying again")

        async def again() -> None:
            await asyncio.sleep(UNSTORED_SECONDS)
            await self._send(said)

        self._later.begin(again())


def _is_question(message: dict[str, Any]) -> bool:
    """A message that is changed later and is whole already, unlike the beginning of an answer."""
    return message.get("kind") == "anchor" and message["position"] > 0


async def pipe(home: Path, thread: str, patience: float, descriptor: int = 0) -> bool:
    """Says each line, waits until it is answered; false when one was refused.

    A line whose run asks a question is waited for at the end: a later line may be the answer to the question.
    """
    talk, refused = Talk(Plain()), False
    asked: list[Said] = []
    async with _attached(home, thread, talk) as line:
        hearing = asyncio.create_task(talk.hear(line))
        try:
            async for text in _lines(descriptor):
                said = await talk.say(text)
                await _answered(said, talk, hearing, patience)
                refused = refused or said.refused
                asked += [said] if not said.answered else []
            for said in asked:
                while not said.answered:
                    said.asks = False
                    await _answered(said, talk, hearing, patience)
        finally:
            hearing.cancel()
            await asyncio.wait([hearing])
    return not refused


async def terminal(home: Path, thread: str, news: AsyncIterator[str] | None = None) -> None:
    """Until Ctrl-D or /quit. A gateway that goes away is waited for, and nothing typed is lost meanwhile.

    `news` are lines that stand beside the talk.
    """
    descriptor, screen = sys.stdin.fileno(), editor.of_process()
    loop = asyncio.get_running_loop()
    with editor.keys_at_once(descriptor) as enter:

        def back_from_stop() -> None:
            enter()
            screen.resume()

        loop.add_signal_handler(signal.SIGCONT, back_from_stop)
        talk = Talk(screen)
        staying = asyncio.create_task(stay(home, thread, talk, screen))
        typing = asyncio.create_task(_type(descriptor, talk, screen))
        telling = asyncio.create_task(_tell(news, screen))
        try:
            await asyncio.wait([staying, typing], return_when=asyncio.FIRST_COMPLETED)
            if staying.done():
                staying.result()
        finally:
            loop.remove_signal_handler(signal.SIGCONT)
            for task in (staying, typing, telling):
                task.cancel()
            await asyncio.wait([staying, typing, telling])
            screen.leave()


async def _tell(news: AsyncIterator[str] | None, screen: editor.Terminal) -> None:
    if news is not None:
        async for words in news:
            screen.aside(words)


async def _type(descriptor: int, talk: Talk, screen: editor.Terminal) -> None:
    async for keys in _chunks(descriptor):
        for text in screen.type(keys):
            if text.strip() == QUIT:
                return
            if text.strip():
                await talk.say(text)
        if screen.editor.ended:
            return


async def stay(home: Path, thread: str, talk: Talk, display: Display) -> None:
    """Raises only what the first attempt met: afterwards a gateway that is gone is one that comes back."""
    was_attached = told = False
    while True:
        try:
            async with _attached(home, thread, talk) as line:
                was_attached, told = True, False
                await talk.hear(line)
        except (NotRunning, Unrouted, ConnectionError):
            if not was_attached:
                raise
        if not told:
            display.aside("the gateway has gone; waiting for it to come back")
            told = True
        await asyncio.sleep(RETRY_SECONDS)


@contextlib.asynccontextmanager
async def _attached(home: Path, thread: str, talk: Talk) -> AsyncIterator[Line]:
    deadline = asyncio.get_running_loop().time() + ROUTE_SECONDS
    while True:
        async with socket.connect(home) as line:
            try:
                await line.write({"verb": "chat", "chat": "local", "thread": thread})
                answer = socket.checked(await line.read() or {"error": "", "verdict": "unrouted"})
            except (Unrouted, ConnectionError):
                if asyncio.get_running_loop().time() > deadline:
                    raise Unrouted(
                        "the gateway runs, but its console does not answer; look with: tidings status"
                    ) from None
            else:
                talk.greeted(str(answer.get("name", "")))
                yield line
                return
        await asyncio.sleep(RETRY_SECONDS / 5)


async def _answered(said: Said, talk: Talk, hearing: asyncio.Task[None], patience: float) -> None:
    """Returns also when the run of this line asks a question."""
    while said.is_open:
        talk.news.clear()
        news = asyncio.create_task(talk.news.wait())
        done, _ = await asyncio.wait([news, hearing], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        news.cancel()
        if not said.is_open:
            return
        kept = "it is stored and will be answered: open tidings chat later" if said.stored else "say it again"
        if not done and said.asked:
            raise TidingsError(f"the question was not answered within {patience:g} s; it waits: tidings approvals")
        if not done:
            raise TidingsError(f"no news from the gateway for {patience:g} s; {kept}, or wait longer with --timeout")
        if hearing.done():
            hearing.result()
            raise NotRunning(f"the gateway has gone before it answered; {kept}")


async def _lines(descriptor: int) -> AsyncIterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = ""
    async for data in _chunks(descriptor):
        *lines, text = (text + decoder.decode(data)).split("\n")
        for line in lines:
            if line.strip():
                yield line.rstrip("\r")
    if text.strip():
        yield text


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Leaves no thread behind that waits for a key."""
    loop = asyncio.get_running_loop()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(descriptor, ready.set_result, None)
        except PermissionError:
            # A plain file cannot be watched; it is always ready, too.
            ready.set_result(None)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
        try:
            data = os.read(descriptor, 65536)
        except OSError:
            # The terminal was closed.
            return
        if not data:
            return
        yield data
