"""The board and the rules: a place gives cards to whom the settings let it, and shares folders with itself alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.scenario.work.test_board_people import answered
from tests.scenario.work.test_board_ways import use
from tests.worlds.board import NOBODY, Verdict, added, card, obeyed, process, until
from tests.worlds.world import Gate, Scripted, World, handed
from tidings.core.agent import Event, Finished, TextDelta, Turn
from tidings.core.desk.board import CardState, Hand, NewCard, Order
from tidings.core.errors import ConfigError
from tidings.core.gateway.options import Team
from tidings.core.settings import Board, Core, Rule
from tidings.core.types import Sender

# In the group answers one who can do no harm; everywhere else the one with the terminal.
GROUP = "5"
HARMLESS = Rule(chat=GROUP, bot="clerk")
WORKERS = {"shell": process("say(do='complete', summary='done')")}


def agents() -> dict[str, Verdict]:
    return {"root": Verdict("done"), "clerk": Verdict("done"), "cook": Verdict("done")}


def rule(*assignees: str) -> Rule:
    return Rule(chat=GROUP, bot="clerk", assignees=assignees)


@pytest.mark.parametrize("assignee", ["root", "cook", "shell", "nobody"])
async def test_a_card_from_a_chat_goes_to_no_bot_and_no_worker_that_the_rules_do_not_give_there(
    tmp_path: Path, assignee: str
) -> None:
    async with World(tmp_path, agents(), rules=[HARMLESS], board={"workers": WORKERS}) as world:
        told = await answered(world, f"/board add dig to={assignee}", GROUP)
        assert told == f"A card from here cannot go to '{assignee}'; it can go to: clerk."
        assert world.rows("SELECT * FROM cards") == []


async def test_a_card_from_a_chat_that_names_nobody_goes_to_the_bot_that_answers_there(tmp_path: Path) -> None:
    async with World(tmp_path, agents(), rules=[HARMLESS]) as world:
        assert "for clerk" in await answered(world, "/board add dig triage=yes", GROUP)
        assert "for root" in await answered(world, "/board add dig triage=yes", "1")
        assert (await added(world.gateway.desk.board, NewCard("dig"), NOBODY)).assignee == "root"


async def test_the_settings_may_let_a_place_give_cards_to_others(tmp_path: Path) -> None:
    board = {"workers": WORKERS, "assignees": ["cook"]}
    async with World(tmp_path, agents(), rules=[rule("shell")], board=board) as world:
        assert "for shell" in await answered(world, "/board add dig to=shell triage=yes", GROUP)
        assert "it can go to: clerk, shell." in await answered(world, "/board add dig to=cook", GROUP)
        assert "for cook" in await answered(world, "/board add dig to=cook triage=yes", "1")
        assert "it can go to: cook, root." in await answered(world, "/board add dig to=clerk", "1")


@pytest.mark.parametrize("settings", [Core(board=Board(assignees=("ghost",))), Core(rules=(rule("ghost"),))])
async def test_an_assignee_that_nobody_knows_is_a_wrong_setting(tmp_path: Path, settings: Core) -> None:
    async with World(tmp_path, agents()) as world:
        with pytest.raises(ConfigError, match="assignees: there is no bot or worker named 'ghost'"):
            world.gateway.renew(settings, Team(agents(), "root"))


async def test_a_bot_gives_cards_to_itself_and_to_whom_the_settings_let_its_place(tmp_path: Path) -> None:
    said: list[str] = []

    async def boss(turn: Turn) -> AsyncIterator[Event]:
        for assignee in ("root", "cook", ""):
            said.append(await use(turn, "board_create", everything=True, title=f"for {assignee}", assignee=assignee))
        yield TextDelta("It is on the board.")
        yield Finished()

    bots = {**agents(), "clerk": Verdict(boss, "done")}
    async with World(tmp_path, bots, rules=[rule("cook")]) as world:
        world.paper.says("have it done", chat=GROUP)
        await world.until(lambda: len(said) == 3)
        assert said[0] == (
            "refused: Nothing was changed: a card from here cannot go to 'root'; it can go to: clerk, cook."
        )
        assert said[1].startswith("Card #1 for cook is ")
        assert said[2].startswith("Card #2 for clerk is ")
        await until(world, "2", CardState.DONE)


async def test_what_works_on_a_card_is_bound_by_the_place_where_the_card_was_asked_for(tmp_path: Path) -> None:
    said: list[str] = []

    async def worker(turn: Turn) -> AsyncIterator[Event]:
        for assignee in ("root", "cook"):
            said.append(await use(turn, "board_create", everything=True, title=f"for {assignee}", assignee=assignee))
        await turn.desk.board.complete("handed on", ())
        yield Finished()

    bots = {**agents(), "clerk": Verdict(worker)}
    async with World(tmp_path, bots, rules=[rule("cook")], board={"assignees": ["root"]}) as world:
        await answered(world, "/board add dig", GROUP)
        await until(world, "1", CardState.DONE)
        assert "cannot go to 'root'" in said[0]
        assert said[1].startswith("Card #2 for cook is ")


async def test_a_chat_changes_no_card_of_a_bot_that_it_could_not_give_one_to(tmp_path: Path) -> None:
    async with World(tmp_path, agents(), rules=[HARMLESS]) as world:
        desk = world.gateway.desk.board
        await added(desk, NewCard("dig", assignee="root", triage=True), NOBODY)
        orders = ("comment 1 rm -rf", "attach 1 https://example.org", "unblock 1 rm -rf", "watch 1", "archive 1")
        for order in orders:
            told = await answered(world, f"/board {order}", GROUP)
            assert told == "#1 belongs to 'root', which gets no cards from here, so it cannot be changed here."
        assert "#1 dig" in await answered(world, "/board show 1", GROUP), "all may read"
        assert (await card(world, "1")).remarks == ()
        # Where it was made known, it can be answered.
        await obeyed(desk, Order("watch", id="1", target=str(handed("x", chat=GROUP).target)), NOBODY)
        assert "Written on #1" in await answered(world, "/board comment 1 green", GROUP)


async def test_the_owner_gives_cards_to_anybody_at_the_command_line_and_at_the_console(tmp_path: Path) -> None:
    async with World(tmp_path, agents(), rules=[HARMLESS]) as world:
        assert (await added(world.gateway.desk.board, NewCard("dig", assignee="cook"), NOBODY)).assignee == "cook"
        said = handed("x", chat=GROUP)
        owner = Hand("owner", said.target, said.conversation, Sender(id="me", trusted=True), bot="clerk")
        assert (await added(world.gateway.desk.board, NewCard("dig", assignee="root"), owner)).assignee == "root"


# Folders.


async def test_the_folder_of_a_card_is_named_only_where_the_card_was_made(tmp_path: Path) -> None:
    async with World(tmp_path, agents(), allow=["paper:7"]) as world:
        await answered(world, "/board add dig triage=yes", "1")
        await added(world.gateway.desk.board, NewCard("the owner's", triage=True), NOBODY)
        for name in ("card-1", "CARD-1", "card-01", "card-2", "card-99"):
            told = await answered(world, f"/board add pry workspace={name} triage=yes", "2")
            assert told == f"The folder {name} belongs to another conversation; choose another name."
        assert "Card #3" in await answered(world, "/board add go on workspace=card-1 triage=yes", "1")
        made = await added(world.gateway.desk.board, NewCard("look", workspace="card-1", triage=True), NOBODY)
        assert made.workspace == "card-1", "the owner may"


async def test_a_folder_that_cards_share_belongs_to_the_conversation_that_named_it_first(tmp_path: Path) -> None:
    async with World(tmp_path, agents(), allow=["paper:7"]) as world:
        await answered(world, "/board add dig workspace=Garden triage=yes", "1")
        assert "belongs to another" in await answered(world, "/board add pry workspace=garden triage=yes", "2")
        assert "Card #2" in await answered(world, "/board add sow workspace=garden triage=yes", "1")


async def test_a_bot_that_hands_a_card_on_shares_its_folder_and_no_other(tmp_path: Path) -> None:
    said: list[str] = []

    async def worker(turn: Turn) -> AsyncIterator[Event]:
        for number in (1, 2):
            title = f"more of {number}"
            said.append(await use(turn, "board_create", everything=True, title=title, workspace=f"card-{number}"))
        await turn.desk.board.complete("handed on", ())
        yield Finished()

    async with World(tmp_path, {"clerk": Verdict("done", worker, "done")}) as world:
        await answered(world, "/board add secret", "1")
        await until(world, "1", CardState.DONE)
        await answered(world, "/board add pry", "2")
        await until(world, "2", CardState.DONE)
        assert "the folder card-1 belongs to another" in said[0]
        assert said[1].startswith("Card #3 for clerk is ")


@pytest.mark.parametrize("way", ["after", "link"])
async def test_nobody_is_made_to_hear_of_a_card_from_a_place_that_could_not_change_theirs(
    tmp_path: Path, way: str
) -> None:
    """Whoever may speak in one place may not make us speak in another."""
    async with World(tmp_path, agents(), rules=[HARMLESS], allow=["paper:7", "paper:8"]) as world:

        async def says(words: str, chat: str, sender: str) -> str:
            before = len(world.posts)
            world.paper.says(words, chat=chat, sender=sender)
            await world.until(lambda: len(world.posts) > before)
            return world.posts[before]

        await says("/board add private plans triage=yes", "1", "7")
        if way == "after":
            await says("/board add An alert after=1 triage=yes", GROUP, "8")
        else:
            await says("/board add An alert triage=yes", GROUP, "8")
            assert "#2" in await says("/board link 1 2", GROUP, "8")
        await says("/board done 2 Log in at https://example.org", GROUP, "8")
        await world.settled()
        told = [row["lane"] for row in world.rows("SELECT lane FROM deliveries WHERE cause = 'card/2'")]
        assert told == ["paper:main:5"]


async def test_a_card_whose_bot_was_renamed_meanwhile_goes_to_none_but_the_one_that_the_rules_give_there(
    tmp_path: Path,
) -> None:
    gate, ran = Gate(), list[str]()

    def told(name: str) -> Callable[[Turn], str]:
        def tell(turn: Turn) -> str:
            ran.append(name)
            return "ok"

        return tell

    bots = {"root": Scripted(told("root")), "clerk": Scripted(told("clerk"), gate)}
    async with World(tmp_path, bots, rules=[HARMLESS]) as world:
        world.paper.says("/board add dig", chat=GROUP)
        await gate.reached()
        await world.crash()
        world.agents = {"root": Scripted(told("root")), "clerk2": Scripted(told("clerk2"))}
        world.rules = (Rule(chat=GROUP, bot="clerk2"),)
        await world.start()
        await world.until(lambda: len(ran) == 2)
        assert ran == ["clerk", "clerk2"]
