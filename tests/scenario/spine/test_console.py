"""The console end to end over its real socket: the adapter on one side, `tidings chat` on the other."""

import asyncio
import os
import pty
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.builders import untaken
from tests.worlds.fakes import host
from tidings.adapters.console import terminal as console_terminal
from tidings.adapters.console.adapter import ConsoleAdapter
from tidings.adapters.console.settings import ConsoleSettings
from tidings.adapters.local import socket
from tidings.adapters.local.socket import LocalServer, SocketLine
from tidings.core.agent import Ended, OutcomeKind, TextDelta
from tidings.core.clock import SystemClock
from tidings.core.desk.runs import Numbered
from tidings.core.errors import Doubtful, NotRunning, TidingsError, Unknown, Unreachable, Unstored
from tidings.core.types import (
    Admission,
    Body,
    Duplicate,
    File,
    Inbound,
    Kind,
    Note,
    Part,
    PartKind,
    Refused,
    Signal,
    Stored,
    Target,
    Unreadable,
)

ROOT = Path(__file__).resolve().parents[3]


class House:
    """A gateway reduced to one console: what came in, which runs have ended, who became reachable."""

    def __init__(self) -> None:
        self.server = LocalServer()
        here = replace(host(SystemClock()), reports=self, notebook=self, desk=self, local=self.server)
        self.adapter = ConsoleAdapter("main", ConsoleSettings(name="demo"), here)
        self.inbounds: dict[str, Inbound] = {}
        self.ends: dict[str, asyncio.Event] = {}
        self.attached = asyncio.Event()
        self.heard = asyncio.Event()
        self.trouble: list[Admission | Unstored] = []
        self.listening: asyncio.Task[None] | None = None
        self.answering: Callable[[Inbound], Awaitable[None]] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def receive(self, inbound: Inbound, note: Note | None = None) -> Admission:
        if self.trouble:
            trouble = self.trouble.pop(0)
            if isinstance(trouble, Unstored):
                raise trouble
            return trouble
        run = f"run-{inbound.key}"
        if inbound.key in self.inbounds:
            return Duplicate(run=run)
        self.inbounds[inbound.key] = inbound
        self.heard.set()
        self.ends[run] = asyncio.Event()
        if self.answering is not None:
            task = asyncio.create_task(self.answering(inbound))
            self._tasks.add(task)
        return Stored(run=run)

    async def follow(self, run: str, after: int = 0) -> AsyncIterator[Numbered]:
        if run not in self.ends:
            raise Unknown(run)
        yield Numbered(1, TextDelta("you"), 0.0)
        await self.ends[run].wait()
        yield Numbered(2, Ended(OutcomeKind.COMPLETED, "", "you said"), 0.0)

    async def reachable(self) -> None:
        self.attached.set()

    async def deafen(self) -> None:
        assert self.listening is not None
        self.listening.cancel()
        await asyncio.wait([self.listening])

    async def send(self, text: str, answers: str = "", **changes: Any) -> None:
        await self.adapter.send(part(text, answers, **changes))

    async def echo(self, inbound: Inbound) -> None:
        if inbound.kind is Kind.MESSAGE:
            self.ends[f"run-{inbound.key}"].set()
        await self.send(f"you said {inbound.text}", inbound.key)


def part(text: str, answers: str = "", **changes: Any) -> Part:
    fields: dict[str, Any] = {
        "key": f"key of {text}",
        "kind": PartKind.PLAIN,
        "target": Target(adapter="console", chat="local", reply_to=answers),
        "body": Body(text=text),
        "position": 1,
        "count": 1,
    }
    return Part(**{**fields, **changes})


@asynccontextmanager
async def open_house(home: Path) -> AsyncIterator[House]:
    house = House()
    async with house.server:
        house.listening = asyncio.create_task(house.adapter.listen(house.receive))
        try:
            async with house.server.serving(home):
                yield house
        finally:
            await house.deafen()


@asynccontextmanager
async def attached(home: Path, thread: str = "") -> AsyncIterator[SocketLine]:
    async with socket.connect(home) as line:
        await line.write({"verb": "chat", "chat": "", "thread": thread})
        assert await line.read() == {"attached": ["local", thread], "name": "demo"}
        yield line


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as house:
        yield house


async def test_what_is_said_is_confirmed_after_it_is_stored_and_again_when_its_run_ends(
    house: House, tmp_path: Path
) -> None:
    async with attached(tmp_path) as line:
        await line.write({"say": "hi", "key": "k1"})
        assert await line.read() == {"stored": "k1", "run": "run-k1"}
        inbound = house.inbounds["k1"]
        assert (inbound.text, inbound.kind, inbound.sender.trusted) == ("hi", Kind.MESSAGE, True)
        assert inbound.conversation.id == "console:main:local"
        assert inbound.target.reply_to == "k1"
        house.ends["run-k1"].set()
        assert await line.read() == {"ended": "k1", "outcome": "completed"}


@pytest.mark.parametrize(
    ("text", "command"), [("/help", "help"), ("/New topic", "new"), ("/ no", ""), ("/7", ""), ("//", "")]
)
async def test_a_command_is_marked_as_one(house: House, tmp_path: Path, text: str, command: str) -> None:
    async with attached(tmp_path) as line:
        await line.write({"say": text, "key": "k1"})
        await line.read()
    inbound = house.inbounds["k1"]
    assert inbound.command == command
    assert inbound.kind is (Kind.COMMANDED if command else Kind.MESSAGE)


async def test_what_cannot_be_stored_is_not_confirmed_and_what_is_refused_is_told(house: House, tmp_path: Path) -> None:
    house.trouble = [Unstored("disk full"), Refused(reason="busy")]
    async with attached(tmp_path) as line:
        await line.write({"say": "hi", "key": "k1"})
        assert await line.read() == {"unstored": "k1"}
        await line.write({"say": "hi", "key": "k1"})
        assert await line.read() == {"refused": "k1", "reason": "busy"}
        for nonsense in ({"say": 7, "key": "k"}, {"say": "hi"}, {"dance": True}):
            await line.write(nonsense)
            assert "error" in (await line.read() or {})


async def test_after_listening_has_ended_nothing_is_taken_but_what_is_owed_is_shown(
    house: House, tmp_path: Path
) -> None:
    async with attached(tmp_path) as line:
        await house.deafen()
        await line.write({"say": "late", "key": "k1"})
        assert await line.read() == {"unstored": "k1"}
        assert house.inbounds == {}
        sending = asyncio.create_task(house.send("the last answer"))
        assert (await line.read() or {})["text"] == "the last answer"
        await line.write({"shown": "key of the last answer"})
        await sending


async def test_a_part_is_delivered_when_one_client_has_shown_it(house: House, tmp_path: Path) -> None:
    async with attached(tmp_path) as deaf, attached(tmp_path) as line:
        files = (File(path="/tmp/a.pdf", name="a.pdf"),)
        sending = asyncio.create_task(house.adapter.send(part("hi", "k9", body=Body(text="hi", files=files))))
        message = await line.read()
        assert message == await deaf.read()
        assert message == {
            "part": "key of hi",
            "kind": "plain",
            "text": "hi",
            "files": [{"name": "a.pdf", "path": "/tmp/a.pdf"}],
            "position": 1,
            "count": 1,
            "view": "",
            "answers": "k9",
        }
        await line.write({"shown": "key of hi"})
        receipt = await sending
        assert receipt.ids == ("key of hi",)
        assert receipt.view is None


async def test_what_is_sent_to_the_console_alone_lands_in_the_talk_that_a_person_has_there(
    house: House, tmp_path: Path
) -> None:
    """By its receipt a notice is remembered, and what is asked about it comes from this chat."""
    async with attached(tmp_path) as line:
        alone = Target(adapter="console")
        sending = asyncio.create_task(house.adapter.send(part("tea is ready", target=alone)))
        await line.read()
        await line.write({"shown": "key of tea is ready"})
        receipt = await sending
        await line.write({"say": "what was that?", "key": "k1"})
        await line.read()
    assert receipt.chat == house.inbounds["k1"].conversation.chat


async def test_with_nobody_attached_nothing_is_sent_and_attaching_says_so(house: House, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="tidings chat"):
        await house.send("hi")
    assert not house.attached.is_set()
    async with attached(tmp_path):
        await asyncio.wait_for(house.attached.wait(), 5)


async def test_a_client_that_leaves_before_it_has_shown_a_part_leaves_a_doubt(house: House, tmp_path: Path) -> None:
    async with attached(tmp_path) as line:
        sending = asyncio.create_task(house.send("hi"))
        await line.read()
    with pytest.raises(Doubtful):
        await sending
    with pytest.raises(Unreachable):
        await house.send("hi")


async def test_a_thread_and_the_main_conversation_never_mix(house: House, tmp_path: Path) -> None:
    async with attached(tmp_path, thread="side") as side, attached(tmp_path) as main:
        await side.write({"say": "hi", "key": "k1"})
        await side.read()
        assert house.inbounds["k1"].conversation.thread == "side"
        target = Target(adapter="console", chat="", thread="side")
        sending = asyncio.create_task(house.adapter.send(part("aside", target=target)))
        assert (await side.read() or {})["text"] == "aside"
        await side.write({"shown": "key of aside"})
        await sending
        await house.adapter.signal(Target(adapter="console"), Signal.TYPING)
        assert await main.read() == {"signal": "typing"}


async def test_a_view_grows_also_after_a_restart_of_the_gateway(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house, attached(tmp_path) as line:
        sending = asyncio.create_task(house.adapter.send(part("…", kind=PartKind.OPENING)))
        opening = await line.read() or {}
        await line.write({"shown": opening["part"]})
        view = (await sending).view
        assert view is not None
        assert view.handle == opening["view"]
    async with open_house(tmp_path) as house, attached(tmp_path) as line:
        assert await house.adapter.show(view, "hello") == view
        assert await line.read() == {"show": view.handle, "text": "hello"}
    # With nobody there, showing is nobody's business.
    assert await house.adapter.show(view, "hello again") == view


async def test_what_the_console_declares_is_what_it_does(house: House) -> None:
    can = house.adapter.can(Target(adapter="console"))
    assert can.pace == house.adapter.can(Target(adapter="console", chat="local")).pace
    assert isinstance(await house.adapter.find(part("x"), untaken), Unreadable)
    bodies = house.adapter.compose(Target(adapter="console"), Body(text="word " * 100_000, files=()))
    assert max(len(body.text) for body in bodies) <= 100_000
    assert " ".join(body.text.strip() for body in bodies).split() == ["word"] * 100_000
    assert house.adapter.compose(Target(adapter="console"), Body()) == (Body(),)


def piped(text: str) -> int:
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    return reader


async def test_a_pipe_says_each_line_and_prints_each_answer(
    house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    house.answering = house.echo
    assert await console_terminal.pipe(tmp_path, "", 10, piped("one\n\n/help\nthree"))
    assert capsys.readouterr().out == "you said one\nyou said /help\nyou said three\n"
    assert [inbound.text for inbound in house.inbounds.values()] == ["one", "/help", "three"]


async def test_a_pipe_waits_for_the_answer_and_not_for_what_comes_before_it(
    house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(inbound: Inbound) -> None:
        await house.send("a notice")
        await house.send("a report of the same run", inbound.key)
        await asyncio.sleep(0.1)
        opening = await house.adapter.send(part("…", inbound.key, kind=PartKind.OPENING))
        assert opening.view is not None
        await house.adapter.show(opening.view, "growing")
        house.ends[f"run-{inbound.key}"].set()
        await asyncio.sleep(0.05)
        await house.send("first half", inbound.key, count=2)
        await house.send("second half", inbound.key, position=2, count=2, view=opening.view)

    house.answering = answer
    assert await console_terminal.pipe(tmp_path, "", 10, piped("hi\n"))
    assert capsys.readouterr().out.splitlines() == [
        "a notice",
        "a report of the same run",
        "first half",
        "second half",
    ]


async def test_a_part_that_comes_twice_is_printed_once(
    house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(inbound: Inbound) -> None:
        await house.send("once", inbound.key)
        await house.send("once", inbound.key)
        await house.echo(inbound)

    house.answering = answer
    assert await console_terminal.pipe(tmp_path, "", 10, piped("hi\n"))
    assert capsys.readouterr().out == "once\nyou said hi\n"


async def test_a_stop_is_answered_by_what_it_stopped(house: House, tmp_path: Path) -> None:
    async def answer(inbound: Inbound) -> None:
        await house.send("stopped, as you asked", "the key of another message")

    house.answering = answer
    assert await console_terminal.pipe(tmp_path, "", 10, piped("/stop\n"))


async def test_a_line_that_cannot_be_stored_is_said_again_with_its_key(
    house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    house.trouble = [Unstored("disk full")]
    house.answering = house.echo
    assert await console_terminal.pipe(tmp_path, "", 10, piped("hi\n"))
    assert capsys.readouterr().out == "you said hi\n"
    assert len(house.inbounds) == 1


async def test_a_refused_line_is_told_and_the_pipe_fails(
    house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    house.trouble = [Refused(reason="busy")]
    house.answering = house.echo
    assert not await console_terminal.pipe(tmp_path, "", 10, piped("one\ntwo\n"))
    printed = capsys.readouterr()
    assert (printed.out, "refused: busy" in printed.err) == ("you said two\n", True)


async def test_a_pipe_gives_up_without_news(house: House, tmp_path: Path) -> None:
    with pytest.raises(TidingsError, match=r"no news .* 0\.2 s; it is stored"):
        await console_terminal.pipe(tmp_path, "", 0.2, piped("hi\n"))


async def test_a_pipe_whose_gateway_goes_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="start one with"):
        await console_terminal.pipe(tmp_path, "", 10, piped("hi\n"))
    async with open_house(tmp_path) as house:
        piping = asyncio.create_task(console_terminal.pipe(tmp_path, "", 10, piped("hi\n")))
        await asyncio.wait_for(house.heard.wait(), 5)
        await asyncio.sleep(0.05)
    with pytest.raises(NotRunning, match="has gone before it answered; it is stored"):
        await piping


async def test_a_plain_file_can_be_piped_too(house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    house.answering = house.echo
    (tmp_path / "lines").write_text("from a file\n")
    with (tmp_path / "lines").open() as file:
        assert await console_terminal.pipe(tmp_path, "", 10, file.fileno())
    assert capsys.readouterr().out == "you said from a file\n"


async def test_in_a_terminal_one_talks_and_leaves(house: House, tmp_path: Path) -> None:
    """The whole client in a real terminal: prompt, answer, a hostile text, /quit."""
    house.answering = house.echo
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "TIDINGS_HOME": str(tmp_path), "TIDINGS_HTTP__PORT": "0"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tidings.bots.main",
        "chat",
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=ROOT,
        env=environment,
    )
    os.close(terminal)
    seen = ""

    async def until(text: str) -> None:
        nonlocal seen
        async with asyncio.timeout(20):
            while text not in seen:
                seen += (await asyncio.to_thread(os.read, controller, 4096)).decode()
        seen = seen.partition(text)[2]

    await until("you> ")
    os.write(controller, b"hello\r")
    await until("demo> you said hello")
    await until("you> ")
    await house.send("red \x1b[31m and \u202ebackwards")
    await until("demo> red ")
    await until("backwards")
    await until("you> ")
    os.write(controller, b"/quit\r")
    assert await asyncio.wait_for(process.wait(), 20) == 0
    os.close(controller)


async def test_a_terminal_waits_for_its_gateway_and_says_again_what_was_not_answered(tmp_path: Path) -> None:
    displayed = console_terminal.Plain()
    talk = console_terminal.Talk(displayed)
    staying: asyncio.Task[None]
    async with open_house(tmp_path) as house:
        staying = asyncio.create_task(console_terminal.stay(tmp_path, "", talk, displayed))
        await asyncio.wait_for(house.attached.wait(), 5)
        said = await talk.say("hi")
        await asyncio.wait_for(house.heard.wait(), 5)
    async with open_house(tmp_path) as house:
        house.answering = house.echo
        async with asyncio.timeout(10):
            while not said.answered:
                talk.news.clear()
                await talk.news.wait()
        assert list(house.inbounds) == [said.key]
        staying.cancel()
        await asyncio.wait([staying])
