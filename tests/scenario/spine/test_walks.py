"""The walks of ARCHITECTURE.md are those that a message, a notice, a run, a card and a question really take."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

from tests.sources import PACKAGES, ROOT
from tests.worlds.api import ApiWorld
from tests.worlds.board import Verdict, until
from tests.worlds.careful import Careful
from tests.worlds.telegram import TelegramWorld
from tests.worlds.world import Gate, Scripted, Takes
from tidings.bots.echo.agent import EchoAgent
from tidings.core.desk.board import CardState
from tidings.core.types import Body, Target

STEP = re.compile(r"^\d+\. `([\w/]+\.py)`", re.MULTILINE)


def walks() -> dict[str, list[str]]:
    """The files of each walk in ARCHITECTURE.md, in order, by the walk's heading."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return {
        heading: STEP.findall(body) for heading, body in re.findall(r"^### ([^\n]+)\n(.+?)(?=^##)", text, re.M | re.S)
    }


class Tracer:
    """Notes every file of the product that is entered, in any thread, each time that another one is."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._is_on = False

    @contextmanager
    def following(self) -> Iterator[None]:
        self._is_on = True
        yield
        self._is_on = False

    def note(self, frame: FrameType, event: str, _: object) -> None:
        if not self._is_on or event != "call":
            return
        file = product_file(frame.f_code.co_filename)
        if file and self.files[-1:] != [file]:
            self.files.append(file)


@cache
def product_file(name: str) -> str:
    """The path of a file of the three packages from the root on; empty for any other."""
    path = Path(name).resolve()
    inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path("elsewhere")
    return inside.as_posix() if inside.parts[0] in PACKAGES else ""


def missing(walk: Sequence[str], entered: Sequence[str]) -> list[str]:
    """What is left of a walk after everything that was entered in its order."""
    left = list(walk)
    for file in entered:
        if left and file == left[0]:
            del left[0]
    return left


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    tracer = Tracer()
    threading.setprofile(tracer.note)
    sys.setprofile(tracer.note)
    yield tracer
    sys.setprofile(None)
    threading.setprofile(None)


async def message(home: Path, tracer: Tracer) -> None:
    async with TelegramWorld(home, EchoAgent()) as world:
        with tracer.following():
            world.telegram.says("hi")
            await world.telegram.until(lambda telegram: telegram.posts == ["you said: hi"])
            await world.settled()


async def notice(home: Path, tracer: Tracer) -> None:
    async with TelegramWorld(home, EchoAgent()) as world:
        with tracer.following():
            await world.gateway.desk.owe(Target(adapter="telegram", chat="7"), Body(text="a word"), "test")
            await world.telegram.until(lambda telegram: telegram.posts == ["a word"])
            await world.settled()


async def api_run(home: Path, tracer: Tracer) -> None:
    async with ApiWorld(home, EchoAgent()) as api:
        with tracer.following():
            answer = await api.http.post("/v1/runs", json={"input": "hi"})
            frames = await api.watch(answer.json()["run_id"])
        assert frames[-1].json["output"] == "you said: hi"


async def restart(home: Path, tracer: Tracer) -> None:
    gate = Gate()
    async with TelegramWorld(home, Takes(Scripted(gate), EchoAgent())) as world:
        world.telegram.says("hi")
        await gate.reached()
        await world.crash()
        with tracer.following():
            await world.start()
            await world.telegram.until(lambda telegram: telegram.posts == ["you said: hi"])
            await world.settled()


async def card(home: Path, tracer: Tracer) -> None:
    async with TelegramWorld(home, Verdict("The fence is green.")) as world:
        with tracer.following():
            world.telegram.says("/board add Paint the fence")
            await until(world, "1", CardState.DONE)
            await world.settled()


async def question(home: Path, tracer: Tracer) -> None:
    async with TelegramWorld(home, Careful(), owners=["telegram:7"]) as world:
        with tracer.following():
            world.telegram.says("clean up")
            await world.telegram.until(lambda telegram: telegram.posts)
            asked = next(each for each in world.telegram.sent if each.choices)
            world.telegram.presses(asked.id, asked.choices[0].id)
            await world.telegram.until(lambda telegram: telegram.posts[-1] == "Done: rm build.")
            await world.settled()


STORIES: dict[str, Callable[[Path, Tracer], Awaitable[None]]] = {
    "A message": message,
    "A notice": notice,
    "An API run": api_run,
    "A restart": restart,
    "A card": card,
    "A question": question,
}


def test_every_walk_has_a_story() -> None:
    assert list(walks()) == list(STORIES)


def test_no_walk_turns_back() -> None:
    assert [walk for walk, files in walks().items() if len(set(files)) < len(files)] == []


@pytest.mark.parametrize("walk", STORIES)
async def test_a_walk_names_files_that_are_entered_in_this_order(walk: str, tmp_path: Path, tracer: Tracer) -> None:
    await STORIES[walk](tmp_path, tracer)
    assert missing(walks()[walk], tracer.files) == []


def test_another_order_is_noticed() -> None:
    assert missing(["door", "inbox", "courier"], ["door", "inbox", "door", "courier"]) == []
    assert missing(["door", "courier", "inbox"], ["door", "inbox", "door", "courier"]) == ["inbox"]
