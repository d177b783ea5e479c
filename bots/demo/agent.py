"""The demo agent: each behaviour of the gateway on request, without any key or account."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime

from tidings.core import context
from tidings.core.agent import (
    ApprovalAsked,
    Checkpoint,
    ChoicesOffered,
    Effect,
    Event,
    FileMade,
    Finished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
)
from tidings.core.errors import TidingsError, Unsupported
from tidings.core.roles import Permission
from tidings.core.work.tasks.tasks import TaskKind

WORD_SECONDS = 0.03
SLOW_SECONDS = 0.5

HELP = (
    "I am the demo bot: I need no key, and I show what this gateway does.\n\n"
    "Try one of these:\n"
    "- **time** – I call a tool, and you see it at work.\n"
    "- **remind me in 5 s to stretch** – I report back later, even if you kill the process meanwhile.\n"
    "- **slow** – a long, slow answer; write /stop to end it.\n"
    "- **long** – an answer of many paragraphs, cut at safe places.\n"
    "- **tea** – I ask you something, with buttons where there are any.\n"
    "- **delete** – I ask for your approval before I delete a file, and wait for it as long as it takes.\n"
    "- **file** – I send you a file. Send me one, and I tell you what came.\n"
    "- **fail** – I break; you are told so.\n"
    "- **silence** – I end without a word; you are told that too.\n\n"
    "Anything else I say back to you, word by word. /help lists the commands."
)

_REMINDER = re.compile(
    r"remind me in (\d{1,6})\s*(s|sec\w*|m|min\w*|h|hours?)?\b\s*(?:to\s+|that\s+|of\s+)?(.*)", re.I | re.S
)
_SECONDS = {"s": 1, "m": 60, "h": 3600}


class DemoAgent:
    def __init__(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._pause = pause

    def run(self, turn: Turn) -> AsyncIterator[Event]:
        """Picks a behaviour by the first word, so that a newcomer can guess what to type."""
        text = turn.message.text.strip()
        if turn.message.attachments:
            return self._look(turn)
        match text.lower().split()[:1]:
            case ["time"]:
                return self._time()
            case ["remind"]:
                return self._remind(turn, text)
            case ["slow"]:
                return self._speak(" ".join(f"{number}" for number in range(1, 121)), SLOW_SECONDS)
            case ["long"]:
                return self._speak(long_text(), 0.0)
            case ["tea"]:
                return self._ask()
            case ["delete"]:
                return self._delete(turn)
            case ["file"]:
                return self._make_file()
            case ["fail"]:
                return self._fail()
            case ["silence"]:
                return self._silence()
            case ["hi" | "hello" | "hey" | "help" | "hi!" | "hello!"] | []:
                return self._speak(HELP, WORD_SECONDS)
            case _:
                return self._speak(f"You said: {text}", WORD_SECONDS)

    async def _speak(self, text: str, seconds: float) -> AsyncIterator[Event]:
        for word in re.findall(r"\S+\s*", text):
            yield TextDelta(word)
            if seconds:
                await self._pause(seconds)
        yield Finished()

    async def _time(self) -> AsyncIterator[Event]:
        yield TextDelta("Let me look at the clock. ")
        yield ToolStarted("clock-1", "clock", "{}", Effect.PURE)
        await self._pause(1.0)
        now = datetime.now().astimezone().strftime("%H:%M:%S on %A, %d %B %Y")
        yield ToolFinished("clock-1", now)
        yield TextDelta(f"It is {now}.")
        yield Finished()

    async def _remind(self, turn: Turn, text: str) -> AsyncIterator[Event]:
        """Promises only what can be kept: an interface without async delivery refuses."""
        found = _REMINDER.match(text)
        if found is None:
            yield TextDelta("Say it like this: remind me in 5 s to stretch.")
            yield Finished()
            return
        if Permission.WORK not in context.current().permissions:
            yield TextDelta("I may not plan anything for you here. An owner or admin can change that.")
            yield Finished()
            return
        number, unit, what = found.groups()
        seconds = int(number) * _SECONDS[(unit or "s")[0].lower()]
        yield ToolStarted("reminder-1", "remind", text, Effect.EFFECT)
        try:
            await turn.desk.begin("reminder", what.strip() or "the time is up", seconds)
            yield ToolFinished("reminder-1", "stored")
            yield TextDelta(f"I will remind you here in {seconds} s, whatever happens to me meanwhile.")
        except Unsupported as error:
            yield ToolFinished("reminder-1", error=str(error))
            yield TextDelta(f"I cannot promise that here: {error}.")
        yield Finished()

    async def _ask(self) -> AsyncIterator[Event]:
        yield TextDelta("How do you take your tea?")
        yield ChoicesOffered(("With milk", "With lemon", "I prefer coffee"))
        yield Finished()

    async def _delete(self, turn: Turn) -> AsyncIterator[Event]:
        """Asks first; after the answer it is run again from here, with the verdict."""
        path = context.current().workspace / "old-notes.txt"
        verdict = next((each for each in turn.verdicts if each.call == "delete-1"), None)
        if not turn.goes_on:
            yield TextDelta("I would like to delete some old notes. ")
        if verdict is None:
            await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
            await asyncio.to_thread(path.write_text, "Buy milk.\n", "utf-8")
            yield Checkpoint(b"asked")
            yield ApprovalAsked("delete-1", "delete_file", path.name, digest=str(path), covers=path.name)
            return
        if verdict.granted:
            yield ToolStarted("delete-1", "delete_file", path.name, Effect.EFFECT)
            await asyncio.to_thread(path.unlink, missing_ok=True)
            yield ToolFinished("delete-1", "deleted")
            yield TextDelta(f"Thank you. {path.name} is gone.")
        else:
            yield TextDelta(f"Then I leave {path.name} alone: {verdict.reason}.")
        yield Finished()

    async def _make_file(self) -> AsyncIterator[Event]:
        folder = context.current().workspace
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        path = folder / "greeting.txt"
        await asyncio.to_thread(path.write_text, "Good tidings!\n", "utf-8")
        yield TextDelta("Here is a small file for you.")
        yield FileMade(str(path), path.name)
        yield Finished()

    async def _look(self, turn: Turn) -> AsyncIterator[Event]:
        """Fetches what was sent, to show that it really came."""
        for attachment in turn.message.attachments:
            try:
                path = await turn.desk.fetch(attachment)
                size = (await asyncio.to_thread(path.stat)).st_size
                yield TextDelta(f"You sent me {attachment.name}: {size} bytes.\n")
            except TidingsError as error:
                yield TextDelta(f"You sent me {attachment.name}, but I could not fetch it: {error}.\n")
        yield Finished()

    async def _fail(self) -> AsyncIterator[Event]:
        yield TextDelta("I begin well, but then ")
        await self._pause(WORD_SECONDS)
        raise RuntimeError("you asked me to fail, and I did")

    async def _silence(self) -> AsyncIterator[Event]:
        await self._pause(WORD_SECONDS)
        yield Finished()


def long_text(paragraphs: int = 40) -> str:
    """About 13,000 characters with a code block in the middle, to show where long text is cut."""
    words = "Nothing is lost on the way, however long the answer grows and however often it must be cut. "
    pieces = [f"Paragraph {number}. {words * 3}" for number in range(1, paragraphs + 1)]
    code = "```python\n" + "\n".join(f"print({number})" for number in range(60)) + "\n```"
    return "\n\n".join([*pieces[: paragraphs // 2], code, *pieces[paragraphs // 2 :]])


async def _remind(what: str) -> str:
    return f"⏰ You asked me to remind you: {what}"


KINDS = (TaskKind("reminder", _remind, resumable=True),)
