"""The gateway as a real process, as a person runs it: killed, stopped in each state, short of descriptors."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.worlds.process import (
    PATIENCE_SECONDS,
    chat,
    end,
    gateway,
    say,
    until_it_answers,
)
from tidings.adapters.local import socket

# The interpreter, its loop, the store and the socket need about a dozen.
FEW_DESCRIPTORS = 48


async def test_a_pipe_is_answered_line_by_line(tmp_path: Path) -> None:
    async with gateway(tmp_path, TIDINGS_BOT__AGENT="echo") as process:
        assert await chat(tmp_path, "one", "two") == "you said: one\nyou said: two\n"
        assert await end(process, signal.SIGTERM) == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux knows this")
async def test_no_other_program_of_the_same_user_can_read_our_memory(tmp_path: Path) -> None:
    async with gateway(tmp_path, TIDINGS_BOT__AGENT="tests.scenario.operations.dumpable:Agent"):
        assert await chat(tmp_path, "may they?") == "dumpable: 0, a child: 1\n"


@pytest.mark.parametrize("text", ["hi there", "remind me in 1 s to go on", "time"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_what_was_stored_is_answered_after_any_end(tmp_path: Path, text: str, number: signal.Signals) -> None:
    """The asker has gone and the process ends at once, in whatever state it is; the answer waits for the next one."""
    async with gateway(tmp_path, TIDINGS_LIMITS__DRAIN_SECONDS="0") as process:
        await say(tmp_path, text, "k1")
        code = await end(process, number)
        assert code == (0 if number is signal.SIGTERM else -signal.SIGKILL)
    # A promise that was cut off in the making is not made again by itself, but it is said.
    wanted = {
        "hi there": ("I am the demo bot",),
        "time": ("It is ",),
        "remind me in 1 s to go on": ("⏰ You asked me to remind you: go on", "while remind was at work"),
    }[text]
    async with gateway(tmp_path), socket.connect(tmp_path) as line:
        await line.write({"verb": "chat"})
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                heard = await line.read()
                assert heard is not None
                if "part" in heard:
                    await line.write({"shown": heard["part"]})
                if heard.get("kind") == "plain" and any(words in heard["text"] for words in wanted):
                    break


async def test_a_stop_lets_a_running_answer_end_first(tmp_path: Path) -> None:
    async with gateway(tmp_path, TIDINGS_LIMITS__DRAIN_SECONDS="20") as process, socket.connect(tmp_path) as line:
        await line.write({"verb": "chat"})
        await line.write({"say": "word by word by word by word by word by word", "key": "k1"})
        final, signalled = "", False
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not final:
                heard = await line.read()
                assert heard is not None, "it left before it had answered"
                if "part" in heard:
                    await line.write({"shown": heard["part"]})
                if "stored" in heard and not signalled:
                    process.send_signal(signal.SIGTERM)
                    signalled = True
                if heard.get("kind") == "plain":
                    final = heard["text"]
        assert final == "You said: word by word by word by word by word by word"
        assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == 0


async def test_what_nobody_was_there_to_see_is_shown_at_the_next_attach(tmp_path: Path) -> None:
    async with gateway(tmp_path, TIDINGS_BOT__AGENT="echo") as process:
        await socket.call(tmp_path, {"verb": "notify", "target": "console", "text": "the backup is done"})
        assert await end(process, signal.SIGKILL) == -signal.SIGKILL
    async with gateway(tmp_path, TIDINGS_BOT__AGENT="echo"):
        # Had the kill hit the attempt itself, it would be a doubt that is settled beside the answer.
        seen = ""
        async with asyncio.timeout(30):
            while "the backup is done" not in seen:
                seen += await chat(tmp_path, "anything new?")


async def test_few_descriptors_turn_clients_away_but_lose_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path, descriptors=FEW_DESCRIPTORS, TIDINGS_BOT__AGENT="echo") as process:
        async with AsyncExitStack() as crowd:
            for _ in range(2 * FEW_DESCRIPTORS):
                line = await crowd.enter_async_context(socket.connect(tmp_path))
                await line.write({"verb": "chat"})
            assert process.poll() is None
        await until_it_answers(tmp_path, process)
        assert await chat(tmp_path, "still there?") == "you said: still there?\n"
        assert await end(process, signal.SIGTERM) == 0
