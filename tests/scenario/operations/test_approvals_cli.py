"""`tidings approvals` and `tidings chat`: questions whether a tool may run, answered at the machine itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.scenario.spine.test_approvals import asked, until_said
from tests.scenario.spine.test_console import piped
from tests.scenario.work.test_schedule_commands import at_the_socket
from tests.worlds.api import ApiWorld
from tests.worlds.careful import Careful
from tests.worlds.command_line import command, lines
from tests.worlds.process import surroundings
from tests.worlds.terminal import Terminal
from tests.worlds.world import Echo, World
from tidings.adapters.console import terminal
from tidings.bots.demo.agent import DemoAgent
from tidings.core.errors import TidingsError

NEXT = "to answer: tidings approvals approve ID [once|talk|always], or tidings approvals deny ID [REASON]"


async def approvals(home: Path, *arguments: str) -> tuple[int, str]:
    return await command(home, "approvals", *arguments)


async def first_id(home: Path) -> str:
    _, said = await lines(home, "approvals", "list")
    return said.splitlines()[1].split()[0]


async def test_what_waits_is_a_table_and_says_what_to_type_next(tmp_path: Path) -> None:
    agent = Careful("rm  build", read=["the file plan.md"])
    async with World(tmp_path, agent, owners=["paper:7"]) as world, at_the_socket(world):
        assert await approvals(tmp_path) == (0, "tidings: no question waits for an answer")
        world.paper.says("clean up")
        await asked(world)
        code, said = await lines(tmp_path, "approvals")
        heading, row, remark, hint = [re.split(r"\s{2,}", line) for line in said.splitlines()]
        assert heading == ["ID", "BOT", "WANTS TO RUN", "FOR", "TIME LEFT"]
        assert row[1:4] == ["bot", "terminal: rm build", "paper:7"]
        assert remark == [f"{row[0]} comes from a run that read the file plan.md"]
        assert (code, hint) == (0, [f"tidings: {NEXT}"])
        _, said = await lines(tmp_path, "approvals", "--json")
        (question,) = json.loads(said)
        assert question["id"].startswith(f"ask_{row[0]}")
        code, said = await approvals(tmp_path, "approve", row[0])
        assert code == 0
        assert said.startswith("Approved once by the owner at ")
        assert said.endswith("bot runs terminal: rm build")
        await until_said(world, "Done: rm  build.")
        assert len(agent.acted) == 1
        # Whoever is second is told how it ended.
        code, said = await approvals(tmp_path, "deny", row[0])
        assert (code, said.startswith("Approved once by the owner")) == (1, True)


async def test_a_denial_carries_its_reason_to_the_bot(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, owners=["paper:7"]) as world, at_the_socket(world):
        world.paper.says("clean up")
        await asked(world)
        code, said = await approvals(tmp_path, "deny", await first_id(tmp_path), "not", "on", "a", "Friday")
        assert (code, said.endswith("bot does not run terminal: rm build")) == (0, True)
        await until_said(world, "Not done: rm build, the owner denied it: not on a Friday.")
        assert agent.acted == []


async def test_approvals_for_longer_are_listed_and_revoked(tmp_path: Path) -> None:
    async with World(tmp_path, Careful(), owners=["paper:7"]) as world, at_the_socket(world):
        assert await approvals(tmp_path, "standing") == (0, "tidings: nothing is approved for longer than once")
        world.paper.says("clean up")
        await asked(world)
        assert (await approvals(tmp_path, "approve", await first_id(tmp_path), "always"))[0] == 0
        await until_said(world, "Done: rm build.")
        _, said = await lines(tmp_path, "approvals", "standing")
        heading, row, hint = said.splitlines()
        assert heading.split() == ["ID", "BOT", "MAY", "RUN", "WHERE", "BY", "TIME", "LEFT"]
        assert re.split(r"\s{2,}", row)[1:] == ["bot", "terminal: rm build", "everywhere", "the owner", "29 d"]
        assert hint == "tidings: to end one: tidings approvals revoke ID"
        assert (await approvals(tmp_path, "revoke", row.split()[0]))[0] == 0
        assert await approvals(tmp_path, "revoke", row.split()[0]) == (1, "there is no such standing approval")
        world.paper.says("clean up")
        await world.eventually(lambda: len(world.rows("SELECT 1 FROM approvals WHERE state = 'open'")) == 1)


async def test_wrong_words_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world, at_the_socket(world):
        assert await approvals(tmp_path, "approve", "abcdef") == (1, "there is no such question")
        assert (await approvals(tmp_path, "approve"))[0] == 2
        for word in ("deny", "forever"):
            assert (await approvals(tmp_path, "approve", "abcdef", word))[0] == 2


async def test_without_a_gateway_questions_are_listed_and_nothing_is_answered(tmp_path: Path) -> None:
    home = tmp_path / "nothing"
    assert await approvals(home) == (0, "tidings: no question waits for an answer")
    assert not home.exists(), "a question makes no store"
    async with World(tmp_path, Careful(), owners=["paper:7"]) as world:
        world.paper.says("clean up")
        await asked(world)
        await world.end()
        code, said = await approvals(tmp_path)
        assert code == 0
        assert "terminal: rm build" in said
        assert said.endswith("questions wait in the store until their time is up")
        code, said = await approvals(tmp_path, "approve", await first_id(tmp_path))
        assert code == 1
        assert said.endswith("a question can be answered only while the gateway runs")
        await world.start()


async def test_the_status_says_how_many_questions_wait(tmp_path: Path) -> None:
    async with World(tmp_path, Careful(), owners=["paper:7"]) as world, at_the_socket(world):
        assert "tidings approvals" not in (await command(tmp_path, "status"))[1]
        world.paper.says("clean up")
        await asked(world)
        assert (
            "1 question waits for an answer; to see and answer: tidings approvals"
            in (await command(tmp_path, "status"))[1]
        )


async def no_pause(_: float) -> None:
    return


@pytest.mark.parametrize(
    ("answer", "ending"),
    [("/approve", "Thank you. old-notes.txt is gone."), ("/deny keep it", "Then I leave old-notes.txt alone:")],
)
async def test_the_demo_asks_at_the_terminal_and_is_answered_there(tmp_path: Path, answer: str, ending: str) -> None:
    async with (
        ApiWorld(tmp_path, DemoAgent(no_pause), console=True),
        Terminal(surroundings(tmp_path), "chat") as screen,
    ):
        await screen.answer("> ", "delete")
        await screen.until("May I run")
        await screen.answer("Answer with /approve", answer)
        await screen.until(ending)


async def test_a_line_from_a_pipe_answers_the_question_of_the_line_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ApiWorld(tmp_path, DemoAgent(no_pause), console=True) as api:
        assert await terminal.pipe(tmp_path, "", 10, piped("delete\n/approve\nhello there\n"))
        said = capsys.readouterr().out
        assert said.startswith("May I run **delete_file**?")
        assert said.count("May I run") == 1
        assert "Thank you. old-notes.txt is gone." in said
        with pytest.raises(TidingsError, match="question was not answered within 0.2 s; it waits"):
            await terminal.pipe(tmp_path, "", 0.2, piped("delete\n"))
        assert len(api.rows("SELECT 1 FROM approvals WHERE state = 'open'")) == 1
