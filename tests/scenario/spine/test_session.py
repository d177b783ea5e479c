"""The session belongs to one run: tools, threads, tasks and children see their own, and nobody else sees any."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.simulators.paper.simulator import Kind as PaperKind
from tests.worlds.world import KEYED, Doorway, Echo, Gate, Scripted, Takes, World, handed
from tidings.bots.demo.agent import KINDS, DemoAgent
from tidings.core.agent import Turn
from tidings.core.context import Session, child_environment, current, current_or_none
from tidings.core.errors import NoSession, Unsupported
from tidings.core.types import Body, Kind, Part, Receipt, Signal, Target, View
from tidings.core.work.tasks.tasks import TaskKind

NO_PUSH = PaperKind(async_delivery=False, streaming="none")


def identity() -> tuple[str, str, str]:
    session = current()
    return session.conversation.chat, session.sender.id, session.run


async def in_a_child() -> tuple[str, str, str]:
    script = 'echo "$TIDINGS_SESSION_CONVERSATION $TIDINGS_SESSION_SENDER $TIDINGS_SESSION_RUN"'
    child = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", script, env=child_environment(), stdout=asyncio.subprocess.PIPE
    )
    told, _ = await child.communicate()
    conversation, sender, run = told.decode().split()
    return conversation.rpartition(":")[2], sender, run


async def nested() -> tuple[str, str, str]:
    await asyncio.sleep(0)
    return await asyncio.create_task(asyncio.to_thread(identity))


async def test_fifty_conversations_at_once_see_only_their_own_identity(tmp_path: Path) -> None:
    """C1."""
    together = asyncio.Barrier(50)
    children = asyncio.Semaphore(8)
    seen: dict[str, set[tuple[str, str, str]]] = {}

    async def look(turn: Turn) -> str:
        await together.wait()
        found = {identity(), await asyncio.to_thread(identity), await asyncio.create_task(nested())}
        await together.wait()
        async with children:
            found |= {identity(), await in_a_child()}
        seen[turn.message.conversation.chat] = found
        return "looked"

    allow = [f"paper:p{number}" for number in range(50)]
    async with World(tmp_path, Scripted(look), allow=allow) as world:
        for number in range(50):
            world.paper.says("who am I?", chat=f"c{number}", sender=f"p{number}")
        await world.paper.until(lambda paper: len(paper.posts) >= 50, timeout=30)
        runs = {row["conversation"].rpartition(":")[2]: row["run"] for row in world.runs()}
        assert len(seen) == 50
        for number in range(50):
            assert seen[f"c{number}"] == {(f"c{number}", f"p{number}", runs[f"c{number}"])}


async def test_the_process_environment_carries_no_session(tmp_path: Path) -> None:
    found: list[list[str]] = []

    def look(turn: Turn) -> str:
        found.append([name for name in os.environ if "SESSION" in name and name.startswith("TIDINGS")])
        return "looked"

    async with World(tmp_path, Scripted(look)) as world:
        world.paper.says("go")
        await world.paper.until(lambda paper: paper.posts == ["looked"])
        assert found == [[]]


async def test_outside_a_run_there_is_no_session(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), kinds=[TaskKind("nap", asyncio.sleep, resumable=True)]) as world:
        with pytest.raises(NoSession):
            current()
        with pytest.raises(NoSession):
            child_environment()
        with pytest.raises(NoSession):
            await world.gateway.desk.begin("nap", "", 0)
        world.paper.says("hi")
        await world.paper.until(lambda paper: len(paper.posts) == 1)
        assert current_or_none() is None


async def test_a_run_does_not_inherit_the_session_of_whoever_called_the_door(tmp_path: Path) -> None:
    seen: list[tuple[str, str, str]] = []

    async def pass_on(turn: Turn) -> str:
        await world.receive(handed("inner", chat="2", bot="inner"))
        return "passed on"

    def look(turn: Turn) -> str:
        seen.append(identity())
        return "looked"

    async with World(tmp_path, {"outer": Scripted(pass_on), "inner": Scripted(look)}) as world:
        world.paper.open_chat("2")
        await world.receive(handed("outer"))
        await world.paper.until(lambda paper: sorted(paper.posts) == ["looked", "passed on"])
        assert [chat for chat, _, _ in seen] == ["2"]


class Watched(Doorway):
    """Remembers which session, if any, was bound whenever the gateway called it."""

    sessions: list[Session | None]

    def _look(self) -> None:
        type(self).sessions.append(current_or_none())

    async def send(self, part: Part) -> Receipt:
        self._look()
        return await super().send(part)

    async def show(self, view: View, text: str) -> View:
        self._look()
        return await super().show(view, text)

    async def signal(self, target: Target, signal: Signal) -> None:
        self._look()
        await super().signal(target, signal)


async def test_what_goes_out_inherits_no_session(tmp_path: Path) -> None:
    class Fresh(Watched):
        sessions = []

    gate = Gate()
    agent = Takes(Scripted("at once"), Scripted("so far", gate, "and on"))
    async with World(tmp_path, agent, adapter=Fresh) as world:
        world.paper.says("go")
        await world.paper.until(lambda paper: paper.posts == ["at once"])
        world.paper.says("go on")
        await gate.reached()
        # A view is open and the person sees typing, so that every kind of call has been made.
        await world.paper.until(lambda paper: paper.posts[1:] == ["so far"] and paper.typing_times())
        gate.open()
        await world.settled()
        assert len(Fresh.sessions) >= 4
        assert set(Fresh.sessions) == {None}


async def test_a_background_task_is_bound_by_its_row(tmp_path: Path) -> None:
    async def report(argument: str) -> str:
        chat, sender, run = identity()
        return f"{argument} in {chat} for {sender}, begun by {run}"

    async def begin(turn: Turn) -> str:
        await turn.desk.begin("report", "all is well", 0)
        return "begun"

    kinds = [TaskKind("report", report, resumable=True)]
    async with World(tmp_path, Scripted(begin), kinds=kinds) as world:
        keys = [world.paper.says("go", chat=chat) for chat in ("a", "b")]
        await world.paper.until(lambda paper: len(paper.posts) >= 4)
        for chat, key in zip(("a", "b"), keys, strict=True):
            run = world.run(key)["run"]
            report = f"all is well in {chat} for 7, begun by {run}"
            assert sorted(world.paper.posts_in(chat)) == [report, "begun"]


async def test_a_task_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted(lambda turn: turn.desk.begin("no such kind", "", 0))) as world:
        key = world.paper.says("go")
        await world.paper.until(lambda paper: len(paper.posts) == 1)
        assert "no such kind" in world.run(key)["reason"]
        assert world.rows("SELECT * FROM tasks") == []


@pytest.mark.parametrize("ability", ["async_delivery", "threads", "reactions", "buttons", "files", "typing"])
async def test_what_a_platform_does_not_declare_is_refused(tmp_path: Path, ability: str) -> None:
    refused: dict[str, str] = {}

    def ask(turn: Turn) -> str:
        try:
            current().require(ability)
        except Unsupported as error:
            refused[current().target.adapter] = error.ability
        return "asked"

    lacking = PaperKind(streaming="none", **{ability: False})
    async with World(tmp_path, Scripted(ask), platforms={"full": KEYED, "poor": lacking}) as world:
        keys = [paper.says("go") for paper in world.papers.values()]
        for paper, key in zip(world.papers.values(), keys, strict=True):
            await paper.until(lambda paper, key=key: key in paper.confirmed)  # type: ignore[misc]
        await world.settled()
        assert refused == {"poor": ability}


async def test_a_promise_is_refused_where_nothing_can_be_pushed_later(tmp_path: Path) -> None:
    """I13: the outcome is the answer there, and nothing enters the outbox."""
    async with World(tmp_path, DemoAgent(), kind=NO_PUSH, kinds=KINDS) as world:
        texts = ("remind me in 1 s to stretch", "/help", "/stop", "fail", "/nonsense")
        keys = [world.paper.says(text) for text in texts]
        await world.paper.until(lambda paper: set(keys) <= set(paper.confirmed))
        ended = await world.outcome(keys[0])
        assert "cannot promise that here" in ended.text
        await world.settled()
        assert world.rows("SELECT * FROM tasks") == []
        assert world.rows("SELECT * FROM deliveries") == []
        assert world.posts == []
        with pytest.raises(Unsupported):
            await world.gateway.desk.owe(Target(adapter="paper", chat="1"), Body(text="later"), "test")


async def test_a_stranger_a_press_and_a_full_queue_are_not_pushed_to_where_nothing_can_be(tmp_path: Path) -> None:
    gate = Gate()
    limits = {"queued_per_conversation": 1, "message_characters": 1000}
    async with World(tmp_path, Echo({"one": gate}), kind=NO_PUSH, limits=limits) as world:
        keys = [world.paper.says(text) for text in ("one", "two", "three", "x" * 1001)]
        stranger = world.paper.says("hi", sender="8", chat="8")
        world.ignored.add(stranger)
        deletion = world.paper.deletes(keys[1])
        await world.paper.until(lambda paper: {*keys, stranger, deletion} <= set(paper.confirmed))
        await world.receive(handed("", kind=Kind.PRESSED, about=keys[0], choice="y"))
        gate.open()
        await world.settled()
        assert world.rows("SELECT * FROM deliveries") == []


async def test_the_same_bot_may_promise_elsewhere(tmp_path: Path) -> None:
    """The decision follows the interface of the current turn."""
    platforms = {"poor": NO_PUSH, "paper": KEYED}
    async with World(tmp_path, DemoAgent(), platforms=platforms, kinds=KINDS) as world:
        for paper in world.papers.values():
            paper.says("remind me in 0 s to stretch")
        await world.papers["paper"].until(lambda paper: any("stretch" in post for post in paper.posts))
        await world.settled()
        assert len(world.rows("SELECT * FROM tasks")) == 1
        assert world.papers["poor"].posts == []
