"""Ten cards in a row, worked on by a model: the ninth runs out of budget, and the tenth delivers all the same."""

from __future__ import annotations

import re
from pathlib import Path

from tests.simulators.provider.simulator import Call, Exchange, ProviderServer, Say
from tests.worlds.assistant import assistant, unmarked
from tests.worlds.board import HAND, NOBODY, added, card, state_of, until
from tests.worlds.world import World
from tidings.core.desk.board import Block, CardState, Ending, NewCard

OPEN = "Chapter 1 is written; chapter 2 is open."
RESULTS = {9: "both chapters are written", 10: "the book is out"}


def mind(exchange: Exchange) -> Call | Say:
    """Does its stage at once, but in the ninth it writes and reads until its budget ends."""
    told = "\n".join(line.text for line in exchange.lines)
    found = re.search(r"card #(\d+) of the board, attempt (\d+)", told)
    assert found is not None
    number, attempt, last = int(found[1]), int(found[2]), exchange.lines[-1].text
    if "is done now" in last:
        return Say("That was it.")
    if (number, attempt) != (9, 1):
        return Call("board_complete", {"summary": f"Stage {number}: {RESULTS.get(number, f'part {number} is ready')}"})
    if "Use no tools any more" in last:
        return Say(OPEN)
    if "chapter-1.md" in told:
        return Call("read_file", {"path": "chapter-1.md"})
    return Call("write_file", {"path": "chapter-1.md", "content": "It was a dark night."})


async def test_the_ninth_of_ten_stages_runs_out_of_budget_and_the_tenth_delivers_all_the_same(tmp_path: Path) -> None:
    async with ProviderServer() as provider:
        provider.script(then=mind)
        async with World(tmp_path, assistant(provider)) as world:
            board = world.gateway.desk.board
            parents: tuple[str, ...] = ()
            for number in range(1, 11):
                budget = 2 if number == 9 else 0
                hand = HAND if number in (9, 10) else NOBODY
                made = await added(board, NewCard(f"stage {number}", parents=parents, budget=budget), hand)
                parents = (made.id,)
            ninth = await until(world, "9", CardState.BLOCKED)
            assert ninth.block is Block.BUDGET
            assert "my limit of 2 requests to the model" in ninth.reason
            assert OPEN in ninth.attempts[0].notes
            told = [
                line
                for each in provider.requests
                for line in unmarked(each.lines[-1].text).splitlines()
                if "(Note:" in line
            ]
            assert any("only 1 is left" in line for line in told), "told in time, while tools still work"
            tenth = await card(world, "10")
            assert (tenth.state, tenth.block) == (CardState.BLOCKED, Block.DEPENDENCY)
            assert tenth.reason == "waits for #9, which is blocked (its budget is used up)"
            await world.settled()
            assert len(world.posts) == 1, "one notice, which names who waits"
            assert OPEN in world.posts[0]
            assert "Waiting for it: #10." in world.posts[0]

            before = len(provider.requests)
            world.paper.says("/board unblock 9 Chapter 2 is about the sea.")
            await until(world, "10", CardState.DONE)
            later = [each.lines[-1].text for each in provider.requests[before:]]
            heard = next(text for text in later if "card #9 of the board, attempt 2" in text)
            assert OPEN in heard, "it resumes knowing what was done"
            assert "Chapter 2 is about the sea." in heard
            assert "Stage 8: part 8 is ready" in heard
            ninth = await card(world, "9")
            assert [each.ending for each in ninth.attempts] == [Ending.BLOCKED, Ending.COMPLETE]
            await world.settled()
            assert world.posts[-1] == "✓ #10 “stage 10” is done.\n\nStage 10: the book is out"
            assert [post.split("“")[1].split("”")[0] for post in world.posts[1:] if post.startswith("✓")] == [
                "stage 9",
                "stage 10",
            ]
            assert {state_of(world, str(number)) for number in range(1, 11)} == {"done"}
