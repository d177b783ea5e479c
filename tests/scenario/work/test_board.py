"""The board: each rule of it, from the chat where a card is made to the notice of how it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.simulators.paper.simulator import Kind
from tests.worlds.board import CHAT, HAND, NOBODY, Verdict, added, card, obeyed, state_of, until
from tests.worlds.world import KEYED, Gate, OwnedClock, Scripted, World
from tidings.core.agent import (
    ApprovalAsked,
    Effect,
    Event,
    Finished,
    OutcomeKind,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
)
from tidings.core.desk.board import Block, CardFile, CardState, Ending, Hand, NewCard, Order
from tidings.core.errors import Fenced, Unkeepable, Unknown, Unsupported
from tidings.core.types import Target

DONE, BLOCKED, TRIAGE, READY, RUNNING = (
    CardState.DONE,
    CardState.BLOCKED,
    CardState.TRIAGE,
    CardState.READY,
    CardState.RUNNING,
)


async def test_a_card_made_in_a_chat_is_worked_on_and_its_end_is_told_there_once(tmp_path: Path) -> None:
    agent = Verdict("The fence is green.")
    async with World(tmp_path, agent) as world:
        world.paper.says("/board add Paint the fence priority=3\nGreen, please.")
        await until(world, "1", DONE)
        await world.settled()
        made, told = world.posts
        assert "#1 “Paint the fence” for bot is ready" in made
        assert told == "✓ #1 “Paint the fence” is done.\n\nThe fence is green."
        assert "Green, please." in agent.texts[0]
        found = await card(world, "1")
        assert (found.priority, found.summary, found.attempts[0].ending) == (3, "The fence is green.", Ending.COMPLETE)
        assert found.watchers == ("paper:1",)


async def test_the_board_reads_well_in_a_chat(tmp_path: Path) -> None:
    async with World(tmp_path, Verdict(Block.NEEDS_INPUT)) as world:
        world.paper.says("/board")
        await world.until(lambda: world.posts)
        world.paper.says("/board add Paint the fence")
        await until(world, "1", BLOCKED)
        world.paper.says("/board add Admire it after=1")
        await until(world, "2", BLOCKED)
        await world.settled()
        before = len(world.posts)
        world.paper.says("/board")
        world.paper.says("/board show 1")
        await world.until(lambda: len(world.posts) == before + 2)
        assert world.posts[0] == "The board is empty. /board add TITLE puts a card on it."
        lines = world.posts[before].splitlines()
        assert lines[0] == "⛔ BLOCKED (2)"
        assert lines[1].startswith("  #1 Paint the fence · bot · since ")
        assert lines[2] == "     needs an answer: which colour?"
        assert lines[4] == "     waits for #1, which is blocked (needs an answer)"
        shown = world.posts[before + 1]
        assert "Blocked: needs an answer: which colour?" in shown
        assert "Waiting for it:\n  #2 Admire it (blocked)" in shown
        assert "Watchers: paper:1" in shown


MISTAKES = {
    "show 99": "There is no card #99.",
    "show you": "There is no card 'you'; cards have numbers, such as 12.",
    "add": "A card needs a title.",
    "add x to=nobody": "A card from here cannot go to 'nobody'; it can go to: bot.",
    "add x after=9": "There is no card #9.",
    "add x priority=high": "Priority must be a number, not 'high'.",
    "add x workspace=../y": "A workspace is a folder name of letters, digits, - and _.",
    "unblock": "Say which card: /board unblock 12.",
    "dance 1": "There is no /board dance; there are: list, add, show, comment,",
    "list nowhere": "'nowhere' is not a state; there are: triage, todo, ready,",
}


async def test_what_the_board_does_not_understand_is_answered_in_a_sentence(tmp_path: Path) -> None:
    async with World(tmp_path, Verdict("done")) as world:
        for number, (words, answer) in enumerate(MISTAKES.items()):
            world.paper.says(f"/board {words}")
            await world.until(lambda number=number: len(world.posts) > number)  # type: ignore[misc]
            assert world.posts[number].startswith(answer)
        assert world.rows("SELECT * FROM cards") == []


async def test_a_parents_end_lets_its_children_go_and_its_result_reaches_them(tmp_path: Path) -> None:
    agent = Verdict("The wood is cut.", "The fence stands.")
    async with World(tmp_path, agent) as world:
        board = world.gateway.desk.board
        gate = await added(board, NewCard("cut wood", triage=True), HAND)
        child = await added(board, NewCard("build", parents=(gate.id,)), NOBODY)
        assert (gate.state, child.state, child.block) == (TRIAGE, BLOCKED, Block.DEPENDENCY)
        assert child.watchers == ("paper:1",), "children inherit"
        await obeyed(board, Order("unblock", id=gate.id, text="go"), HAND)
        await until(world, child.id, DONE)
        assert "Result of #1 “cut wood”\n> The wood is cut." in agent.texts[1]


async def test_cycles_and_foreign_assignees_are_refused(tmp_path: Path) -> None:
    async with World(tmp_path, Verdict("done")) as world:
        board = world.gateway.desk.board
        first = await added(board, NewCard("a", triage=True), NOBODY)
        second = await added(board, NewCard("b", parents=(first.id,)), NOBODY)
        third = await added(board, NewCard("c", parents=(second.id,)), NOBODY)
        for parent, child in ((third.id, first.id), (second.id, first.id), (first.id, first.id)):
            with pytest.raises(Unkeepable, match="wait for each other"):
                await obeyed(board, Order("link", id=parent, other=child), NOBODY)
        with pytest.raises(Unkeepable, match="no bot or worker named 'eve'"):
            await added(board, NewCard("d", assignee="eve"), NOBODY)
        with pytest.raises(Unknown):
            await added(board, NewCard("e", parents=("77",)), NOBODY)


async def test_a_ready_card_whose_bot_has_gone_is_blocked_within_a_minute(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with World(tmp_path, {"bot": Verdict("done"), "eve": Verdict("done")}, clock=clock) as world:
        made = await added(
            world.gateway.desk.board, NewCard("spy", assignee="eve", triage=True), Hand("the owner", CHAT)
        )
        await world.end()
        del world.agents["eve"]
        await world.start()
        await obeyed(world.gateway.desk.board, Order("unblock", id=made.id), HAND)
        begun = clock.now()
        found = await until(world, made.id, BLOCKED)
        assert clock.now() - begun <= 60
        assert (found.block, "no bot or worker named 'eve'" in found.reason) == (Block.NOT_RUNNABLE, True)
        await world.until(lambda: any("(has no available worker)" in post for post in world.posts))


async def _effect(turn: Turn) -> AsyncIterator[Event]:
    yield ToolStarted("1", "launch_rocket", effect=Effect.EFFECT)
    yield ToolFinished("1", "", "no fuel")
    yield TextDelta("It is done, I think.")
    yield Finished()


async def _approval(turn: Turn) -> AsyncIterator[Event]:
    if not turn.verdicts:
        yield ApprovalAsked("1", "launch_rocket", "launch it", "digest")
        return
    with pytest.raises(Unkeepable, match="an approval was denied"):
        await turn.desk.board.complete("launched", ())
    yield TextDelta("They would not let me.")
    yield Finished()


@pytest.mark.parametrize(
    ("worker", "attempts", "kind", "words"),
    [
        (Scripted(finish=False), 2, Block.PROTOCOL, "it said nothing"),
        (Scripted("I am done."), 2, Block.PROTOCOL, "its last words: “I am done.”"),
        (Verdict(_effect), 1, Block.PROTOCOL, "launch_rocket failed: no fuel"),
        (Verdict(RuntimeError("the provider is on fire")), 2, Block.PROVIDER, "the provider is on fire"),
        (Verdict(_approval), 1, Block.APPROVAL, "nobody who may approve it can be reached"),
        (
            Scripted("Half is done.", Finished(OutcomeKind.HALTED, "my limit of 3 requests is used up")),
            1,
            Block.BUDGET,
            "my limit of 3 requests is used up",
        ),
    ],
)
async def test_a_worker_that_ends_without_a_verdict_gets_one_from_its_supervisor(
    tmp_path: Path, worker: Verdict | Scripted, attempts: int, kind: Block, words: str
) -> None:
    async with World(tmp_path, worker, clock=OwnedClock()) as world:
        made = await added(world.gateway.desk.board, NewCard("fly"), HAND)
        found = await until(world, made.id, BLOCKED)
        assert (found.block, len(found.attempts)) == (kind, attempts)
        assert words in found.reason
        assert f"its log is {found.attempts[-1].run}" in found.reason
        await world.until(lambda: len(world.posts) == 1)
        assert f"is blocked ({kind.phrase})" in world.posts[0]


async def test_the_second_attempt_knows_what_the_first_one_left(tmp_path: Path) -> None:
    async def silent(turn: Turn) -> AsyncIterator[Event]:
        yield TextDelta("The posts stand.")
        yield Finished()

    agent = Verdict(silent, "All of it stands.")
    async with World(tmp_path, agent, clock=OwnedClock()) as world:
        made = await added(world.gateway.desk.board, NewCard("fence"), HAND)
        found = await until(world, made.id, DONE)
        assert [each.ending for each in found.attempts] == [Ending.RETRY, Ending.COMPLETE]
        assert "Attempt 1 ended without a verdict (protocol)" in agent.texts[1]
        assert "The posts stand." in agent.texts[1]
        await world.until(lambda: len(world.posts) == 1)
        assert world.posts == ["✓ #1 “fence” is done.\n\nAll of it stands."], "a retry is nobody's news"


async def test_a_person_unblocks_with_a_comment_and_the_same_block_again_asks_a_person(tmp_path: Path) -> None:
    agent = Verdict(Block.NEEDS_INPUT)
    async with World(tmp_path, agent) as world:
        board = world.gateway.desk.board
        made = await added(board, NewCard("paint"), HAND)
        await until(world, made.id, BLOCKED)
        await obeyed(board, Order("unblock", id=made.id, text="As you like it."), HAND)
        found = await until(world, made.id, TRIAGE)
        assert "Ada: As you like it." in agent.texts[1]
        assert "the posts are done" in agent.texts[1]
        assert (found.block, found.reason) == (Block.NEEDS_INPUT, "which colour?")
        await world.until(lambda: len(world.posts) == 2)
        assert "second time in a row, so a person must look" in world.posts[1]
        with pytest.raises(Unkeepable, match="waits for a person"):
            await obeyed(board, Order("unblock", id=made.id, text="again"), HAND.__class__("a bot", is_person=False))
        world.agents["bot"].verdicts = ("painted",)  # type: ignore[attr-defined]
        await obeyed(board, Order("unblock", id=made.id, text="Blue."), HAND)
        await until(world, made.id, DONE)


async def test_a_review_ends_by_a_persons_word(tmp_path: Path) -> None:
    async def reviewed(turn: Turn) -> AsyncIterator[Event]:
        await turn.desk.board.request_review("Look at the posts.")
        yield Finished()

    agent = Verdict(reviewed)
    async with World(tmp_path, agent) as world:
        board = world.gateway.desk.board
        made = await added(board, NewCard("fence"), HAND)
        child = await added(board, NewCard("admire", parents=(made.id,)), NOBODY)
        await until(world, made.id, CardState.REVIEW)
        assert state_of(world, child.id) == "todo", "a review is no completion"
        await obeyed(board, Order("unblock", id=made.id, text="They lean."), HAND)
        await world.until(lambda: len(agent.turns) == 2)
        await until(world, made.id, CardState.REVIEW)
        assert "They lean." in agent.texts[1]
        agent.verdicts = ("admired",)
        await obeyed(board, Order("done", id=made.id), HAND)
        await until(world, child.id, DONE)
        assert (await card(world, made.id)).summary == "Look at the posts."


async def test_archiving_a_running_card_ends_its_worker_and_its_late_verdict_is_refused(tmp_path: Path) -> None:
    gate, refused = Gate(), []

    async def stubborn(turn: Turn) -> AsyncIterator[Event]:
        try:
            await gate.wait()
        finally:
            with pytest.raises(Fenced):
                await turn.desk.board.complete("done after all", ())
            refused.append(turn.run)
        yield Finished()

    async with World(tmp_path, Verdict(stubborn)) as world:
        board = world.gateway.desk.board
        made = await added(board, NewCard("a"), HAND)
        child = await added(board, NewCard("b", parents=(made.id,)), HAND)
        await gate.reached()
        await obeyed(board, Order("archive", id=made.id), HAND)
        await world.eventually(lambda: refused)
        await world.eventually(lambda: world.rows("SELECT 1 FROM inbox WHERE state = 'running'") == [])
        found = await card(world, child.id)
        assert (found.state, found.reason) == (BLOCKED, "waits for #1, which was archived")
        assert (await card(world, made.id)).attempts[0].ending is Ending.ARCHIVED
        # A person may decide that what was archived need not be done.
        world.agents["bot"].verdicts = ("done",)  # type: ignore[attr-defined]
        await obeyed(board, Order("unblock", id=child.id), HAND)
        await until(world, child.id, DONE)


async def test_no_more_cards_run_at_once_than_the_settings_say_and_the_urgent_ones_first(tmp_path: Path) -> None:
    gates = [Gate() for _ in range(3)]

    async def waits(turn: Turn) -> AsyncIterator[Event]:
        number = len(agent.turns) - 1
        await gates[number].wait()
        await turn.desk.board.complete("done", ())
        yield Finished()

    agent = Verdict(waits)
    async with World(tmp_path, agent, board={"parallel": 1}) as world:
        board = world.gateway.desk.board
        for title, priority in (("first", 0), ("later", 0), ("urgent", 9)):
            await added(board, NewCard(title, priority=priority), NOBODY)
        for number in range(3):
            await gates[number].reached()
            assert len(world.rows("SELECT 1 FROM cards WHERE state = 'running'")) == 1
            gates[number].open()
        await until(world, "2", DONE)
        assert [text.split("# ")[1].split("\n")[0] for text in agent.texts] == ["first", "urgent", "later"]


async def test_a_dead_chat_delays_nobody_and_a_second_block_is_told_too(tmp_path: Path) -> None:
    async with World(tmp_path, Verdict(Block.NEEDS_INPUT, Block.CAPABILITY)) as world:
        board = world.gateway.desk.board
        made = await added(board, NewCard("a"), HAND)
        await obeyed(board, Order("watch", id=made.id, target=str(Target(adapter="paper", chat="8"))), NOBODY)
        await until(world, made.id, BLOCKED)
        await obeyed(board, Order("unblock", id=made.id), HAND)
        await world.eventually(lambda: len(world.rows("SELECT 1 FROM card_attempts WHERE ended IS NOT NULL")) == 2)
        await world.settled()
        told = world.rows("SELECT lane, key FROM deliveries")
        assert len(told) == 4
        assert len({row["key"] for row in told}) == 4
        assert {row["lane"] for row in told} == {"paper:main:1", "paper:main:8"}


async def test_where_nothing_can_be_pushed_nobody_watches(tmp_path: Path) -> None:
    kinds = {"paper": KEYED, "mute": Kind(async_delivery=False)}
    async with World(tmp_path, Verdict("done"), platforms=kinds) as world:
        board = world.gateway.desk.board
        made = await added(board, NewCard("a"), HAND.__class__("Ada", Target(adapter="mute", chat="7")))
        assert made.watchers == ()
        with pytest.raises(Unsupported):
            await obeyed(board, Order("watch", id=made.id, target=str(Target(adapter="mute", chat="7"))), NOBODY)
        await until(world, made.id, DONE)


async def test_a_restart_goes_on_with_the_same_attempt_and_keeps_its_lease(tmp_path: Path) -> None:
    gate = Gate()

    async def waits(turn: Turn) -> AsyncIterator[Event]:
        if turn.attempt == 1:
            await gate.wait()
        await turn.desk.board.complete("done at last", ())
        yield Finished()

    async with World(tmp_path, Verdict(waits)) as world:
        made = await added(world.gateway.desk.board, NewCard("a"), HAND)
        await gate.reached()
        await world.crash()
        await world.start()
        found = await until(world, made.id, DONE)
        assert [each.ending for each in found.attempts] == [Ending.COMPLETE]
        await world.settled()
        assert len(world.posts) == 1


async def test_a_run_cut_off_in_an_unknown_effect_blocks_its_card(tmp_path: Path) -> None:
    gate = Gate()

    async def acts(turn: Turn) -> AsyncIterator[Event]:
        yield ToolStarted("1", "launch_rocket", effect=Effect.EFFECT)
        await gate.wait()
        yield Finished()

    async with World(tmp_path, Verdict(acts)) as world:
        made = await added(world.gateway.desk.board, NewCard("a"), HAND)
        await gate.reached()
        await world.crash()
        await world.start()
        found = await until(world, made.id, BLOCKED)
        assert found.block is Block.INTERRUPTED
        assert "launch_rocket" in found.reason
        assert "must not be done twice" in found.reason


async def test_a_verdict_is_given_once_even_if_its_run_is_cut_off_behind_it(tmp_path: Path) -> None:
    gate = Gate()

    async def twice(turn: Turn) -> AsyncIterator[Event]:
        await turn.desk.board.complete("done", ())
        if turn.attempt == 1:
            await gate.wait()
        yield Finished()

    async with World(tmp_path, Verdict(twice)) as world:
        made = await added(world.gateway.desk.board, NewCard("a"), HAND)
        await gate.reached()
        await world.crash()
        await world.start()
        await world.settled()
        assert state_of(world, made.id) == "done"
        assert len(world.posts) == 1


async def test_what_was_made_goes_with_the_news(tmp_path: Path) -> None:
    async def makes(turn: Turn) -> AsyncIterator[Event]:
        path = tmp_path / "workspaces" / "card-1" / "plan.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("green")
        await turn.desk.board.complete("planned", (CardFile("plan.txt", str(path), "bot"),))
        yield Finished()

    async with World(tmp_path, Verdict(makes), kind=Kind(keyed_for=3600.0, files=True)) as world:
        made = await added(world.gateway.desk.board, NewCard("plan"), HAND)
        await until(world, made.id, DONE)
        await world.settled()
        assert [file.name for file in (await card(world, made.id)).files] == ["plan.txt"]
        assert b"plan.txt" in world.rows("SELECT body FROM deliveries")[0]["body"]


async def test_a_notice_that_could_not_be_sent_arrives_later_and_once(tmp_path: Path) -> None:
    async with World(tmp_path, Verdict(Block.NEEDS_INPUT), clock=OwnedClock()) as world:
        world.paper.fail_next(503)
        made = await added(world.gateway.desk.board, NewCard("a"), HAND)
        await until(world, made.id, BLOCKED)
        await world.until(lambda: world.posts)
        assert len(world.posts) == 1
