"""Whatever an agent does, its run ends in one outcome that somebody sees; the journal tells it to any reader."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.simulators.paper.simulator import Kind as PaperKind
from tests.worlds.fakes import FakeClock
from tests.worlds.world import Echo, Gate, Scripted, Takes, World, handed
from tidings.core.agent import (
    ApprovalAsked,
    Checkpoint,
    Effect,
    Ended,
    Event,
    FileMade,
    Finished,
    JournalEvent,
    OutcomeKind,
    Progress,
    ReasoningDelta,
    Restarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
    Usage,
)
from tidings.core.desk.runs import Numbered
from tidings.core.errors import Lagged, Unknown
from tidings.core.types import Author, Entry, Given, Origin, Stored

PLAIN = PaperKind(keyed_for=3600.0, streaming="none", typing=False, reactions=False)
NO_PUSH = PaperKind(async_delivery=False, streaming="none")


async def ending(world: World, text: str = "go") -> Ended:
    """Says something and waits for the outcome, and for the chat to show it."""
    key = world.paper.says(text)
    await world.paper.until(lambda paper: key in paper.confirmed)
    ended = await world.outcome(key)
    await world.settled()
    return ended


class Flood:
    """Never waits for anything."""

    def __init__(self, event: Event, times: Iterable[int]) -> None:
        self.event = event
        self.times = times
        self.begun = asyncio.Event()
        self.ended = False

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.begun.set()
        for _ in self.times:
            yield self.event
        self.ended = True
        yield Finished()


async def test_an_agent_that_raises_fails_in_one_plain_line(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted(RuntimeError("the cable\nis out"))) as world:
        ended = await ending(world)
        assert (ended.kind, ended.reason, ended.text) == (OutcomeKind.FAILED, "the cable is out", "")
        assert world.posts == ["⚠ I could not finish this: the cable is out."]


async def test_text_before_a_failure_stays_and_one_line_follows(tmp_path: Path) -> None:
    """As when a provider breaks off in the middle of a stream."""
    async with World(tmp_path, Scripted("The answer ", "is", ConnectionError("503 from the provider"))) as world:
        ended = await ending(world)
        assert ended.text == "The answer is"
        assert world.posts == ["The answer is\n\n⚠ I could not finish this: 503 from the provider."]


@pytest.mark.parametrize(
    "agent",
    [
        Scripted(finish=False),
        Scripted(Finished()),
        Scripted(" \n", Finished()),
        Scripted(ReasoningDelta("hm"), Progress("thinking")),
        Scripted("some text", finish=False),
    ],
    ids=["no event", "no text", "only space", "only thoughts", "no end"],
)
async def test_an_agent_that_ends_without_an_answer_fails_and_says_so(tmp_path: Path, agent: Scripted) -> None:
    async with World(tmp_path, agent) as world:
        ended = await ending(world)
        assert (ended.kind, ended.reason) == (OutcomeKind.FAILED, "the agent ended without an answer")
        assert world.posts[0].endswith("⚠ I could not finish this: the agent ended without an answer.")


async def test_a_file_is_an_answer(tmp_path: Path) -> None:
    file = tmp_path / "chart.png"
    file.write_bytes(b"png")
    async with World(tmp_path / "home", Scripted(FileMade(str(file), "chart.png"))) as world:
        ended = await ending(world)
        assert ended.kind is OutcomeKind.COMPLETED
        assert [(message.text, len(message.files)) for message in world.paper.sent] == [("chart.png", 0), ("", 1)]


async def test_only_a_run_without_a_person_may_finish_silent(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted(Finished())) as world:
        message = handed("report", origin=Origin.SCHEDULE)
        await world.receive(message)
        assert (await world.outcome(message.key)).kind is OutcomeKind.COMPLETED
        assert world.rows("SELECT * FROM deliveries") == []


async def test_an_agent_that_never_ends_is_halted_at_its_deadline_and_says_so(tmp_path: Path) -> None:
    clock, gate = FakeClock(), Gate()
    async with World(tmp_path, Scripted("so far", gate), kind=PLAIN, clock=clock, limits={"run_seconds": 60}) as world:
        key = world.paper.says("go")
        await gate.reached()
        await clock.advance(59)
        assert world.run(key)["state"] == "running"
        await clock.advance(1)
        ended = await world.outcome(key)
        assert ended.kind is OutcomeKind.HALTED
        await world.settled()
        assert world.posts == [ended.text]
        assert world.posts[0].startswith("so far\n\n")
        assert "longer than 60 s" in world.posts[0]


async def test_an_answer_that_grows_without_end_is_halted_and_says_so(tmp_path: Path) -> None:
    """A5: one plain sentence, no internal code, and a terminal event."""
    async with World(tmp_path, Flood(TextDelta("la "), count()), limits={"output_characters": 1000}) as world:
        ended = await ending(world)
        assert ended.kind is OutcomeKind.HALTED
        assert ended.text.startswith("la la ")
        assert "past 1000 characters" in ended.text[1000:]
        assert world.posts == [ended.text]


@pytest.mark.parametrize(
    "event",
    [TextDelta(""), ReasoningDelta("hm"), Progress("still at it"), ToolFinished("1", "x")],
    ids=["nothing", "thoughts", "progress", "tool"],
)
async def test_a_flood_of_any_kind_is_halted(tmp_path: Path, event: Event) -> None:
    async with World(tmp_path, Flood(event, count()), limits={"output_characters": 1000}) as world:
        assert (await ending(world)).kind is OutcomeKind.HALTED
        assert "I stopped here" in world.posts[0]


async def test_a_flood_leaves_room_for_other_conversations(tmp_path: Path) -> None:
    flood = Flood(ReasoningDelta(""), range(300_000))
    async with World(tmp_path, {"flood": flood, "echo": Echo()}) as world:
        world.paper.open_chat("2")
        await world.receive(handed("go"))
        await flood.begun.wait()
        await world.receive(handed("hi", chat="2", bot="echo"))
        assert not flood.ended


async def test_an_answer_cut_inside_a_character_is_put_together(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted("so \ud83d", "\ude00 it is", "\ud83d")) as world:
        assert (await ending(world)).text == "so 😀 it is\ufffd"


@pytest.mark.parametrize("thing", ["a dict", {"text": "hi"}, None, Restarted(2), Ended(OutcomeKind.COMPLETED, "", "")])
async def test_what_is_no_event_fails_the_run(tmp_path: Path, thing: Any) -> None:
    class Foreign:
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            yield thing
            yield TextDelta("never")

    async with World(tmp_path, Foreign()) as world:
        ended = await ending(world)
        assert (ended.kind, ended.text) == (OutcomeKind.FAILED, "")
        assert type(thing).__name__ in ended.reason


async def test_an_agent_that_is_no_generator_at_all_fails(tmp_path: Path) -> None:
    class Plain:
        def run(self, turn: Turn) -> AsyncIterator[Event]:
            raise NotImplementedError("not written yet")

    async with World(tmp_path, Plain()) as world:
        assert (await ending(world)).reason == "not written yet"


async def test_an_agent_that_cancels_itself_fails(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted("hm", asyncio.CancelledError())) as world:
        ended = await ending(world)
        assert (ended.kind, ended.text) == (OutcomeKind.FAILED, "hm")


async def test_nothing_counts_after_the_end(tmp_path: Path) -> None:
    closed = asyncio.Event()
    held: list[AsyncIterator[Event]] = []

    async def chatter() -> AsyncIterator[Event]:
        try:
            yield TextDelta("done")
            yield Finished(usage=Usage(input_tokens=3, output_tokens=1))
            yield TextDelta(" and another thing")
        finally:
            closed.set()

    class Chatterbox:
        def run(self, turn: Turn) -> AsyncIterator[Event]:
            # Held on to, so that only the runner closes it.
            held.append(chatter())
            return held[0]

    async with World(tmp_path, Chatterbox()) as world:
        ended = await ending(world)
        assert ended == Ended(OutcomeKind.COMPLETED, "", "done", Usage(input_tokens=3, output_tokens=1))
        assert world.posts == ["done"]
        assert closed.is_set()


async def test_a_finished_agent_may_say_itself_that_it_failed(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted("half", Finished(OutcomeKind.FAILED, "401 from the provider"))) as world:
        assert (await ending(world)).kind is OutcomeKind.FAILED
        assert world.posts == ["half\n\n⚠ I could not finish this: 401 from the provider."]


async def test_an_approval_is_denied_at_once_and_the_agent_is_run_again_with_the_verdict(tmp_path: Path) -> None:
    asking = Scripted("May I? ", ApprovalAsked("c1", "delete", "everything", "digest"), finish=False)
    agent = Takes(asking, Scripted(lambda turn: f"granted: {turn.verdicts[0].granted}"))
    async with World(tmp_path, agent) as world:
        ended = await ending(world)
        assert (ended.kind, ended.text) == (OutcomeKind.COMPLETED, "May I? granted: False")
        assert [verdict.call for verdict in agent.turns[1].verdicts] == ["c1"]
        assert len(world.posts) == 1


async def test_an_agent_that_only_ever_asks_is_not_let_round_for_ever(tmp_path: Path) -> None:
    async with World(tmp_path, Scripted(ApprovalAsked("c1", "well", "", "digest"), finish=False)) as world:
        assert (await ending(world)).kind is OutcomeKind.FAILED


@pytest.mark.parametrize(
    "step",
    [
        "hi \ud83d!",
        ReasoningDelta("\ud83d"),
        Progress("\ud83d"),
        ToolStarted("1\ud83d", "ls\ud83d", "\ud83d"),
        ToolFinished("1", "file\udcff", "\udcff"),
        RuntimeError("no \udcff"),
        Finished(OutcomeKind.FAILED, "\udcff"),
        ApprovalAsked("1\ud83d", "\ud83d", "\ud83d", "", "\ud83d", ("\ud83d",)),
        FileMade("/nowhere/\udcff", "\udcff"),
    ],
)
async def test_text_that_no_platform_could_take_is_mended(tmp_path: Path, step: Any) -> None:
    """A model's stream may break inside a pair, and file names may be no text at all."""
    async with World(tmp_path, Scripted("well, ", step)) as world:
        assert (await ending(world)).text.startswith("well, ")
        assert len(world.posts) >= 1


async def test_a_bot_is_asked_by_name_and_the_default_answers_for_one_nobody_knows(tmp_path: Path) -> None:
    async with World(tmp_path, {"one": Scripted("one"), "two": Scripted("two")}) as world:
        for bot in ("two", "three", ""):
            await world.receive(handed(bot=bot))
        await world.settled()
        assert world.posts == ["two", "one", "one"]


def story(gate: Gate) -> Scripted:
    return Scripted(
        "Let me see. ",
        ToolStarted("1", "clock", "{}", Effect.PURE),
        gate,
        ToolFinished("1", "noon"),
        Progress("writing"),
        "It is noon.",
        Checkpoint(b"x"),
    )


def timeless(event: JournalEvent) -> JournalEvent:
    """Without how long a tool took."""
    return replace(event, seconds=0.0) if isinstance(event, ToolFinished) else event


TOLD: list[JournalEvent] = [
    TextDelta("Let me see. "),
    ToolStarted("1", "clock", "{}", Effect.PURE),
    # The agent gives no name: the runner has filled it in.
    ToolFinished("1", "noon", name="clock"),
    Progress("writing"),
    TextDelta("It is noon."),
    Ended(OutcomeKind.COMPLETED, "", "Let me see. It is noon."),
]


async def read(world: World, run: str, after: int) -> list[Numbered]:
    async with asyncio.timeout(10):
        return [entry async for entry in world.gateway.desk.follow(run, after)]


@pytest.mark.parametrize("kind", [PLAIN, NO_PUSH], ids=["pushed", "not pushed"])
async def test_every_reader_gets_the_same_suffix_live_and_after_a_restart(tmp_path: Path, kind: PaperKind) -> None:
    """A22."""
    gate = Gate()
    async with World(tmp_path, story(gate), kind=kind) as world:
        key = world.paper.says("go")
        await gate.reached()
        run = world.run(key)["run"]
        early = [asyncio.create_task(read(world, run, after)) for after in (0, 0, 1, 2, 5)]
        await asyncio.sleep(0)
        gate.open()
        whole = await early[0]
        assert [timeless(entry.event) for entry in whole] == TOLD
        assert [entry.seq for entry in whole] == [1, 2, 3, 4, 5, 6]
        assert [await reader for reader in early] == [whole, whole, whole[1:], whole[2:], whole[5:]]
        await world.restart()
        for after in range(8):
            assert await read(world, run, after) == whole[after:], "who has seen the end is told so at once"


async def test_a_run_that_never_was_cannot_be_followed(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        with pytest.raises(Unknown):
            await read(world, "run_0", 0)
        obeyed = await world.receive(handed("/help"))
        assert isinstance(obeyed, Stored)
        with pytest.raises(Unknown):
            await read(world, obeyed.run, 0)


async def test_a_slow_reader_is_cut_off_and_gets_every_event_on_coming_back(tmp_path: Path) -> None:
    gate = Gate()
    # Each tool is a commit, and so news for the reader: far too much at once, and then some more.
    commits = [ToolStarted("2", "x"), Progress("more"), ToolStarted("3", "x"), Progress("more"), ToolStarted("4", "x")]
    notes = [*(Progress(f"{number}") for number in range(995)), *commits]
    async with World(tmp_path, Scripted("a", ToolStarted("1", "x"), gate, *notes)) as world:
        key = world.paper.says("go")
        await gate.reached()
        run = world.run(key)["run"]
        slow = world.gateway.desk.follow(run)
        seen = [await anext(slow)]
        gate.open()
        await world.outcome(key)
        with pytest.raises(Lagged):
            seen += [entry async for entry in slow]
        seen += await read(world, run, seen[-1].seq)
        assert [entry.seq for entry in seen] == list(range(1, 1004))
        assert isinstance(seen[-1].event, Ended)


async def test_a_reader_that_raises_or_leaves_changes_nothing(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, story(gate)) as world:
        key = world.paper.says("go")
        await gate.reached()
        run = world.run(key)["run"]

        async def stumble() -> None:
            async for _ in world.gateway.desk.follow(run):
                raise RuntimeError("the reader's own fault")

        with pytest.raises(RuntimeError, match="own fault"):
            await stumble()
        leaving = asyncio.create_task(read(world, run, 0))
        await asyncio.sleep(0)
        leaving.cancel()
        gate.open()
        assert (await world.outcome(key)).text == "Let me see. It is noon."
        await world.settled()
        assert world.posts == ["Let me see. It is noon."]


async def test_a_tool_is_on_record_before_it_acts(tmp_path: Path) -> None:
    on_record: list[str] = []

    def act(turn: Turn) -> None:
        on_record.extend(row["event"].decode() for row in world.rows("SELECT event FROM journal"))

    async with World(tmp_path, Scripted(ToolStarted("1", "mail", "{}"), act, ToolFinished("1"), "sent")) as world:
        await ending(world)
        assert len(on_record) == 1
        assert "mail" in on_record[0]


async def test_history_and_checkpoint_are_handed_on_and_survive_a_restart(tmp_path: Path) -> None:
    agent = Takes(Scripted("one", Checkpoint(b"1"), Checkpoint(b"2")), Scripted("two"), Scripted("three"))
    async with World(tmp_path, agent) as world:
        await ending(world, "a")
        await ending(world, "b")
        await world.restart()
        await ending(world, "c")
        first, second, third = agent.turns
        assert (first.history, first.checkpoint) == ((), None)
        assert [(entry.author, entry.text) for entry in second.history] == [(Author.PERSON, "a"), (Author.BOT, "one")]
        assert second.checkpoint == b"2"
        assert [entry.text for entry in third.history] == ["a", "one", "b", "two"]
        assert third.checkpoint == b"2"


async def test_what_went_wrong_is_remembered_as_a_notice(tmp_path: Path) -> None:
    agent = Takes(Scripted("half", RuntimeError("boom")), Scripted("whole"))
    async with World(tmp_path, agent) as world:
        await ending(world, "a")
        await ending(world, "b")
        told = [(entry.author, entry.text) for entry in agent.turns[1].history]
        assert told == [(Author.PERSON, "a"), (Author.BOT, "half"), (Author.NOTICE, "boom")]


async def test_two_people_in_private_never_share_history(tmp_path: Path) -> None:
    """C3."""
    agent = Scripted("noted", Checkpoint(b"secret"))
    async with World(tmp_path, agent, allow=["paper:7", "paper:8"]) as world:
        world.paper.says("my secret", sender="7", chat="7")
        await world.paper.until(lambda paper: len(paper.posts) >= 1)
        world.paper.says("what did they say?", sender="8", chat="8")
        await world.paper.until(lambda paper: len(paper.posts) >= 2)
        assert (agent.turns[1].history, agent.turns[1].checkpoint) == ((), None)


async def test_history_that_a_client_brings_takes_the_place_of_ours(tmp_path: Path) -> None:
    agent = Scripted("fine", Checkpoint(b"x"))
    brought = Given(history=(Entry(author=Author.PERSON, text="before"),), instructions="be brief")
    async with World(tmp_path, agent) as world:
        await ending(world, "a")
        await world.receive(handed("b", given=brought))
        await world.settled()
        assert agent.turns[1].history == brought.history
        assert agent.turns[1].checkpoint is None
        assert agent.turns[1].message.given == brought
