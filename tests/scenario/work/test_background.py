"""Work handed to an agent in the background: told where it was begun, once, whatever happens in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.simulators.paper.simulator import Kind
from tests.worlds.world import Gate, World
from tidings.core import context
from tidings.core.agent import Event, FileMade, Finished, OutcomeKind, TextDelta, Turn
from tidings.core.desk.work import Goal, Manner
from tidings.core.errors import Overdrawn, Unsupported
from tidings.core.types import Author, Origin, workspace_name
from tidings.core.work.tasks.rows import TURNS_ALONE


class Errands:
    """Answers people at once, hands on what they say after "delegate", and does errands when it is let."""

    def __init__(self, manner: Manner | None = Manner.TELL) -> None:
        self.manner = manner
        self.gate = Gate()
        self.turns: list[Turn] = []
        self.silent = False
        # What becomes of a turn that news have begun.
        self.broken = False
        self.goes_on = False

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        text = turn.message.text
        if turn.message.errand is not None:
            await self.gate.wait()
            if text == "break":
                yield Finished(OutcomeKind.FAILED, "it broke")
                return
            if text == "a map":
                path = context.current().workspace / "map.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("north")
                yield FileMade(str(path), "map.txt")
            yield TextDelta(f"found {text}")
        elif text.startswith("delegate "):
            yield TextDelta(await self._hand_on(turn, text.removeprefix("delegate ")))
        elif turn.message.origin is Origin.TASK:
            if self.broken:
                yield Finished(OutcomeKind.FAILED, "no network")
                return
            if self.goes_on:
                yield TextDelta(await self._hand_on(turn, "more"))
            elif not self.silent:
                yield TextDelta("woken by the news")
        else:
            yield TextDelta(f"you said {text}")
        yield Finished()

    async def _hand_on(self, turn: Turn, goal: str) -> str:
        try:
            begun = await turn.desk.tasks.delegate(Goal(goal, goal, self.manner))
        except (Overdrawn, Unsupported) as error:
            return f"no: {error}"
        if self.manner is None:
            return (await turn.desk.tasks.finish(begun)).text
        return "begun"


async def test_background_work_is_told_in_the_thread_where_it_was_begun(tmp_path: Path) -> None:
    agent = Errands()
    async with World(tmp_path, agent) as world:
        world.paper.says("delegate the answer", thread="a")
        await world.paper.until(lambda paper: paper.posts_in("1", "a") == ["begun"])
        await agent.gate.reached()
        world.paper.says("meanwhile", thread="b")
        await world.paper.until(lambda paper: paper.posts_in("1", "b") == ["you said meanwhile"])
        agent.gate.open()
        await world.settled()
        assert world.paper.posts_in("1", "a") == ["begun", "✓ “the answer” is done.\n\nfound the answer"]
        assert world.paper.posts_in("1", "b") == ["you said meanwhile"]


async def test_the_agent_of_an_errand_has_a_memory_of_its_own_and_the_folder_of_who_sent_it(tmp_path: Path) -> None:
    agent = Errands()
    async with World(tmp_path, agent) as world:
        agent.gate.open()
        world.paper.says("hello")
        world.paper.says("delegate it")
        await world.paper.until(lambda paper: len(paper.posts) == 3)
        errand = next(turn for turn in agent.turns if turn.message.errand)
        assert errand.history == ()
        assert errand.message.errand is not None
        assert errand.message.errand.workspace == str(workspace_name(agent.turns[0].message.conversation))


async def test_a_notice_is_remembered_as_one_and_starts_no_turn(tmp_path: Path) -> None:
    agent = Errands()
    async with World(tmp_path, agent) as world:
        agent.gate.open()
        world.paper.says("delegate it")
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        await world.settled()
        assert len(agent.turns) == 2
        world.paper.says("and now?")
        await world.paper.until(lambda paper: len(paper.posts) == 3)
        authors = [(entry.author, entry.text) for entry in agent.turns[-1].history]
        assert (Author.NOTICE, "✓ “it” is done.\n\nfound it") in authors
        assert sum(author is Author.PERSON for author, _ in authors) == 1


@pytest.mark.parametrize("silent", [False, True])
async def test_a_wake_goes_on_with_the_conversation_and_is_never_silent(tmp_path: Path, silent: bool) -> None:
    agent = Errands(Manner.WAKE)
    agent.silent = silent
    async with World(tmp_path, agent) as world:
        agent.gate.open()
        world.paper.says("delegate it")
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        news = "✓ “it” is done.\n\nfound it"
        assert world.posts == ["begun", news if silent else "woken by the news"]
        woken = agent.turns[-1].message
        assert (woken.origin, woken.errand, woken.text) == (Origin.TASK, None, news)


async def test_news_are_told_though_the_turn_that_they_began_fails(tmp_path: Path) -> None:
    agent = Errands(Manner.WAKE)
    agent.broken = True
    async with World(tmp_path, agent) as world:
        agent.gate.open()
        world.paper.says("delegate it")
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        assert world.posts[1] == "✓ “it” is done.\n\nfound it\n\n⚠ I could not finish this: no network."


async def test_a_talk_does_not_go_on_by_itself_for_ever(tmp_path: Path) -> None:
    agent = Errands(Manner.WAKE)
    agent.goes_on = True
    async with World(tmp_path, agent) as world:
        agent.gate.open()
        world.paper.says("delegate it")
        await world.paper.until(lambda paper: any(post.startswith("no: ") for post in paper.posts))
        await world.settled()
        refusal = f"no: tasks have continued this conversation {TURNS_ALONE} times; wait for the person"
        assert world.posts == [*["begun"] * TURNS_ALONE, refusal]
        world.paper.says("delegate it")
        await world.paper.until(lambda paper: paper.posts[-1] == "begun")


async def test_who_is_woken_learns_of_the_files_that_were_made(tmp_path: Path) -> None:
    agent = Errands(Manner.WAKE)
    async with World(tmp_path, agent) as world:
        agent.gate.open()
        world.paper.says("delegate a map")
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        assert agent.turns[-1].message.text == "✓ “a map” is done.\n\nfound a map\n\n(Files: map.txt)"


async def test_a_failure_is_told_too(tmp_path: Path) -> None:
    agent = Errands()
    async with World(tmp_path, agent) as world:
        agent.gate.open()
        world.paper.says("delegate break")
        await world.paper.until(lambda paper: len(paper.posts) == 2)
        assert world.posts == ["begun", "⚠ “break” failed: it broke."]


async def test_the_end_is_told_once_when_the_process_dies_in_between(tmp_path: Path) -> None:
    agent = Errands()
    async with World(tmp_path, agent) as world:
        world.paper.says("delegate it")
        await agent.gate.reached()
        await world.paper.until(lambda paper: paper.posts == ["begun"])
        await world.crash()
        agent.gate.open()
        await world.start()
        await world.settled()
        await world.crash()
        await world.start()
        await world.settled()
        assert world.posts == ["begun", "✓ “it” is done.\n\nfound it"]


async def test_who_waits_for_an_errand_gets_its_answer_in_the_same_turn(tmp_path: Path) -> None:
    agent = Errands(manner=None)
    # The errand needs a slot, and whoever waits for it lends its own.
    async with World(tmp_path, agent, limits={"runs": 1}) as world:
        agent.gate.open()
        world.paper.says("delegate it")
        await world.paper.until(lambda paper: paper.posts == ["found it"])
        await world.settled()
        assert world.posts == ["found it"]


async def test_an_errand_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    agent = Errands(manner=None)
    async with World(tmp_path, agent) as world:
        world.paper.says("delegate it")
        await agent.gate.reached()
        world.paper.commands("stop")
        await world.paper.until(lambda paper: len(paper.posts) == 1)
        await world.settled()
        assert [row["state"] for row in world.rows("SELECT state FROM tasks")] == ["cancelled"]
        assert [post.split()[0] for post in world.posts] == ["Stopped"]


async def test_a_promise_that_nobody_could_hear_of_is_refused_before_anything_begins(tmp_path: Path) -> None:
    agent = Errands()
    async with World(tmp_path, agent, kind=Kind(async_delivery=False)) as world:
        key = world.paper.says("delegate it")
        await world.eventually(lambda: world.rows("SELECT 1 FROM inbox WHERE state = 'done'"))
        assert (await world.outcome(key)).text == "no: paper:1 has no async delivery"
        assert world.rows("SELECT * FROM tasks") == []


async def test_an_errand_promises_nothing_and_hands_on_only_so_deep(tmp_path: Path) -> None:
    refused: list[str] = []

    class Deep(Errands):
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            if turn.message.errand is not None:
                self.manner = Manner.TELL
                refused.append(await self._hand_on(turn, "promise"))
                self.manner = None
                refused.append(await self._hand_on(turn, "deeper"))
                yield TextDelta("tried")
                yield Finished()
                return
            async for event in super().run(turn):
                yield event

    agent = Deep(manner=None)
    async with World(tmp_path, agent, work={"depth": 1}) as world:
        world.paper.says("delegate it")
        await world.paper.until(lambda paper: paper.posts == ["tried"])
    assert [words.split(":")[0] for words in refused] == ["no", "no"]
    assert "async delivery" in refused[0]
    assert "delegated 1 deep" in refused[1]


async def test_only_so_many_agents_work_for_one_conversation_at_once(tmp_path: Path) -> None:
    agent = Errands()
    async with World(tmp_path, agent, work={"delegates": 2}) as world:
        for number in range(3):
            world.paper.says(f"delegate {number}")
        world.paper.says("delegate elsewhere", thread="t")
        await world.paper.until(lambda paper: len(paper.posts) == 4)
        assert world.paper.posts_in("1", "")[2].startswith("no: the limit of 2 background agents")
        assert world.paper.posts_in("1", "t") == ["begun"]
        agent.gate.open()
        await world.settled()


class TestCommands:
    async def test_bg_does_by_hand_what_an_agent_may(self, tmp_path: Path) -> None:
        agent = Errands()
        async with World(tmp_path, agent) as world:
            world.paper.commands("bg", "look into it")
            await agent.gate.reached()
            await world.paper.until(lambda paper: len(paper.posts) == 1)
            assert world.posts[0].startswith("I am working on it in the background")
            agent.gate.open()
            await world.settled()
            assert world.posts[1:] == ["✓ “look into it” is done.\n\nfound look into it"]

    async def test_bg_is_refused_where_nobody_could_be_told(self, tmp_path: Path) -> None:
        async with World(tmp_path, Errands(), kind=Kind(async_delivery=False)) as world:
            world.paper.commands("bg", "look into it")
            await world.eventually(lambda: world.rows("SELECT 1 FROM inbox"))
            assert world.rows("SELECT * FROM tasks") == []

    async def test_tasks_lists_shows_and_cancels(self, tmp_path: Path) -> None:
        agent = Errands()
        async with World(tmp_path, agent) as world:
            world.paper.commands("tasks")
            world.paper.commands("bg", "dig")
            await agent.gate.reached()
            [row] = world.rows("SELECT id FROM tasks")
            short = str(row["id"])[5:11]
            world.paper.commands("tasks")
            world.paper.commands("tasks", short)
            world.paper.commands("tasks", f"cancel {short}", thread="elsewhere")
            world.paper.commands("tasks", f"cancel {short}")
            await world.settled()
            nothing, begun, listed, shown, ending, cancelled = world.paper.posts_in("1", "")
            assert nothing.startswith("There are no background tasks")
            assert f"cancel {short}" in begun
            assert listed.startswith("Running:")
            assert f"• {short} “dig” (delegate): for 0 s" in listed
            assert shown.startswith("“dig”")
            assert ending == "Ending “dig”; I report when it has ended."
            assert cancelled.startswith("“dig” was cancelled: stopped by")
            assert world.paper.posts_in("1", "elsewhere") == [f"There is no task {short} here. /tasks lists them."]

    async def test_a_task_that_was_asked_to_end_ends_after_a_crash_too(self, tmp_path: Path) -> None:
        agent = Errands()
        async with World(tmp_path, agent) as world:
            world.paper.commands("bg", "dig")
            await agent.gate.reached()
            await world.paper.until(lambda paper: len(paper.posts) == 1)
            world.paper.commands("tasks", f"cancel {world.rows('SELECT id FROM tasks')[0]['id']}")
            await world.eventually(lambda: world.rows("SELECT 1 FROM tasks WHERE stop_asked IS NOT NULL"))
            await world.crash()
            await world.start()
            await world.settled()
            assert world.posts[-1].startswith("“dig” was cancelled")
            assert sum("was cancelled" in post for post in world.posts) == 1
