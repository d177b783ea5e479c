"""The ways to the board: a model's tools, the command line and the HTTP API, each with the same words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.simulators.paper.simulator import Kind
from tests.worlds.api import ApiWorld
from tests.worlds.board import HAND, NOBODY, Verdict, added, card, until
from tests.worlds.tool_bench import in_session
from tests.worlds.world import KEYED, World
from tidings.adapters.local.socket import LocalServer
from tidings.adapters.local.verbs import routes_for
from tidings.bots import main
from tidings.bots.assistant.settings import Assistant as Settings
from tidings.bots.assistant.tools import board as tools
from tidings.bots.assistant.tools.policy import Refusal
from tidings.bots.assistant.tools.tool import Occasion, ToolError
from tidings.bots.assistant.tools.toolbox import Toolbox
from tidings.bots.cli import app
from tidings.core.agent import Effect, Event, Finished, TextDelta, Turn
from tidings.core.desk.board import Block, CardState, NewCard
from tidings.core.errors import TidingsError

DONE, BLOCKED, READY = CardState.DONE, CardState.BLOCKED, CardState.READY
WORKERS = tools.tools(everything=False)
ALL = tools.tools(everything=True)


async def use(turn: Turn, name: str, *, everything: bool = False, **arguments: object) -> str:
    """As a model does it, with what went wrong in the words that it would read."""
    tool = next(tool for tool in (ALL if everything else WORKERS) if tool.name == name)
    written = json.dumps(arguments)
    try:
        return (await tool.act(written, Occasion(turn.desk, f"{turn.run}/{name}/{written}"))).text
    except ToolError as error:
        return f"refused: {error}"


# Tools.


def test_a_worker_has_only_what_concerns_its_card_and_nothing_of_it_counts_as_an_effect() -> None:
    own = {tool.name for tool in WORKERS}
    assert own == {
        "board_show",
        "board_comment",
        "board_attach",
        "board_heartbeat",
        "board_complete",
        "board_block",
        "board_request_review",
    }
    more = {tool.name for tool in ALL} - own
    assert more == {"board_list", "board_create", "board_link", "board_unblock", "board_archive"}
    assert not [tool.name for tool in ALL if tool.effect is Effect.EFFECT]


def test_the_tools_are_lent_to_a_worker_and_named_for_everybody_else() -> None:
    closed = Toolbox(Settings(tools=("time",)))
    with in_session():
        assert isinstance(closed.find("board_complete"), Refusal)
        lent = closed.lend(WORKERS)
        assert not isinstance(lent.find("board_complete"), Refusal)
        assert isinstance(lent.find("board_create"), Refusal)
        assert isinstance(closed.find("board_complete"), Refusal), "lent to one run, not given"
        assert not isinstance(Toolbox(Settings(tools=("board",))).find("board_create"), Refusal)


async def test_a_worker_writes_on_its_own_card_alone(tmp_path: Path) -> None:
    said: list[str] = []

    async def worker(turn: Turn) -> AsyncIterator[Event]:
        (tmp_path / "workspaces" / "card-2").mkdir(parents=True, exist_ok=True)
        (tmp_path / "workspaces" / "card-2" / "plan.md").write_text("green")
        said.append(await use(turn, "board_show"))
        said.append(await use(turn, "board_show", card="1"))
        said.append(await use(turn, "board_comment", card="1", text="mine"))
        said.append(await use(turn, "board_block", kind="protocol", reason="x"))
        said.append(await use(turn, "board_attach", place="../../tidings.db"))
        said.append(await use(turn, "board_attach", place="https://example.org/plan"))
        said.append(await use(turn, "board_comment", text="halfway"))
        said.append(await use(turn, "board_comment", text="halfway"))
        said.append(await use(turn, "board_heartbeat", note="painting"))
        said.append(await use(turn, "board_complete", summary="painted", artifacts=["plan.md"]))
        said.append(await use(turn, "board_complete", summary="painted"))
        said.append(await use(turn, "board_block", kind="budget", reason="changed my mind"))
        yield Finished()

    async with World(tmp_path, Verdict(worker), kind=Kind(keyed_for=3600.0, files=True)) as world:
        await added(world.gateway.desk.board, NewCard("another", triage=True), NOBODY)
        await added(world.gateway.desk.board, NewCard("paint"), HAND)
        found = await until(world, "2", DONE)
        await world.settled()
    assert said[0].startswith("#2 paint\nrunning")
    assert said[1] == "refused: You may look at your own card, and at those before and behind it."
    assert said[2] == "refused: You may write on your own card alone, and #1 is another."
    assert said[3].startswith("refused: 'protocol' is no kind of block; there are: needs_input,")
    assert said[4].startswith("refused: ")
    assert said[5:10] == [
        "Attached to #2.",
        "Written on #2.",
        "Written on #2.",
        "Noted; go on.",
        "#2 is done now.",
    ]
    assert said[10] == "#2 is done now.", "said twice is said once"
    assert said[11].startswith("refused: Nothing was changed: #2 is no longer yours")
    assert [remark.text for remark in found.remarks] == ["halfway"]
    assert {file.name for file in found.files} == {"plan", "plan.md"}


async def test_a_bot_that_runs_the_board_makes_cards_and_its_chat_hears_of_them(tmp_path: Path) -> None:
    said: list[str] = []

    async def boss(turn: Turn) -> AsyncIterator[Event]:
        async def do(name: str, **arguments: object) -> None:
            said.append(await use(turn, name, everything=True, **arguments))

        await do("board_create", title="paint", assignee="hand")
        await do("board_create", title="paint", assignee="hand")
        await do("board_create", title="spy", assignee="eve")
        await do("board_list")
        await do("board_link", parent="1", child="1")
        await do("board_heartbeat")
        yield TextDelta("It is on the board.")
        yield Finished()

    agents = {"boss": Verdict(boss), "hand": Verdict(Block.NEEDS_INPUT, "painted")}
    async with World(tmp_path, agents, board={"assignees": ["hand"]}) as world:
        world.paper.says("have it painted")
        await until(world, "1", BLOCKED)
        await world.settled()
        assert [words[:20] for words in said[:2]] == ["Card #1 for hand is "] * 2, "asked for twice, made once"
        assert said[2].startswith("refused: Nothing was changed: a card from here cannot go to 'eve'; it can go to: ")
        assert "#1 [" in said[3]
        assert said[4].startswith("refused: Nothing was changed: #1 ")
        assert "only the worker of a card" in said[5]
        assert sorted(post.split(" ")[0] for post in world.posts) == ["It", "⛔"]

        async def unblock(turn: Turn) -> AsyncIterator[Event]:
            said.append(await use(turn, "board_unblock", everything=True, card="1", comment="blue"))
            yield TextDelta("It goes on.")
            yield Finished()

        async def archive(turn: Turn) -> AsyncIterator[Event]:
            said.extend([await use(turn, "board_archive", everything=True, card="1") for _ in range(2)])
            yield TextDelta("It is away.")
            yield Finished()

        agents["boss"].verdicts = (unblock,)
        world.paper.says("blue")
        await until(world, "1", DONE)
        await world.eventually(lambda: len(said) == 7)
        assert said[6] == "#1 is ready now."
        assert "boss: blue" in agents["hand"].texts[1]
        agents["boss"].verdicts = (archive,)
        world.paper.says("away with it")
        await until(world, "1", CardState.ARCHIVED)
        await world.settled()
        assert said[7:] == ["#1 is archived now."] * 2, "said twice is said once"


# The command line.


@asynccontextmanager
async def at_the_socket(world: World) -> AsyncIterator[None]:
    async with LocalServer() as server:
        with server.routes(routes_for(world.gateway.desk)):
            async with server.serving(world.home):
                yield


async def tidings(home: Path, *arguments: str) -> str:
    """What the command line prints, or why it does not."""
    asked = ["--home", str(home), "board", *arguments]
    result = await asyncio.to_thread(CliRunner().invoke, app.app, asked, obj=main.place)
    if isinstance(result.exception, TidingsError):
        return f"declined: {result.exception}"
    return result.stdout + result.stderr


async def test_the_command_line_has_the_same_words(tmp_path: Path) -> None:
    agent = Verdict(Block.NEEDS_INPUT, "painted")
    async with World(tmp_path, agent) as world, at_the_socket(world):
        assert "The board is empty" in await tidings(tmp_path, "list")
        made = await tidings(tmp_path, "add", "Paint it", "--body", "Green.", "--priority", "2", "--watch", "paper:1")
        assert made == "Card #1 “Paint it” for bot is ready.\n"
        await until(world, "1", BLOCKED)
        waits = await tidings(tmp_path, "add", "Admire it", "--after", "1")
        assert waits.startswith("Card #2 “Admire it” for bot is blocked: it waits for #1")
        shown = await tidings(tmp_path, "list", "blocked")
        assert shown.startswith("⛔ BLOCKED (2)\n  #1 Paint it · bot · priority 2 · since ")
        assert "Blocked: needs an answer: which colour?" in await tidings(tmp_path, "show", "1")
        assert json.loads(await tidings(tmp_path, "show", "1", "--json"))["body"] == "Green."
        assert await tidings(tmp_path, "comment", "#1", "Dark green.") == "Written on #1 “Paint it”.\n"
        (tmp_path / "plan.md").write_text("dark green")
        assert await tidings(tmp_path, "attach", "1", str(tmp_path / "plan.md")) == (
            "Attached to #1 “Paint it”: plan.md.\n"
        )
        assert "plan.pdf" in await tidings(tmp_path, "attach", "1", "https://example.org/plan.pdf")
        assert "cannot be read" in await tidings(tmp_path, "attach", "1", str(tmp_path / "nowhere.md"))
        copy, address = sorted((file.place for file in (await card(world, "1")).files), key=len, reverse=True)
        assert (Path(copy).read_text(), address) == ("dark green", "https://example.org/plan.pdf")
        assert Path(copy) != tmp_path / "plan.md", "whatever becomes of the file"
        assert "would wait for each other" in await tidings(tmp_path, "link", "2", "1")
        assert "declined: there is no card #9" in await tidings(tmp_path, "show", "9")
        assert "declined: there is no bot or worker named 'eve'" in await tidings(tmp_path, "add", "x", "--to", "eve")
        assert "is ready now" in await tidings(tmp_path, "unblock", "1", "As dark as you can.")
        await until(world, "1", DONE)
        assert "the owner: Dark green.\n- the owner: As dark as you can." in agent.texts[1]
        await until(world, "2", DONE)
        assert "is archived now" in await tidings(tmp_path, "archive", "1")
        assert "declined: #1 is already archived" in await tidings(tmp_path, "done", "1")
        assert "paper:1 is told when" in await tidings(tmp_path, "watch", "2", "paper:1")
        assert "declined: no platform nowhere@main is configured" in await tidings(tmp_path, "watch", "2", "nowhere:1")
        assert "no longer watches" in await tidings(tmp_path, "watch", "2", "paper:1", "--off")
        await world.settled()
        assert [post.split("”")[0] for post in world.posts] == [
            "⛔ #1 “Paint it",
            "⛔ #2 “Admire it",
            "✓ #1 “Paint it",
            "✓ #2 “Admire it",
        ], "its child's news too, which it inherits"


# The API.


async def test_the_api_has_the_same_words(tmp_path: Path) -> None:
    agent = Verdict(Block.NEEDS_INPUT, "painted", "admired")
    async with ApiWorld(tmp_path, agent, platforms={"paper": KEYED}) as api:
        cards, key = "/api/board/cards", {"Idempotency-Key": "k"}

        async def post(path: str, expected: int = 200, **body: object) -> dict[str, object]:
            answer = await api.http.post(f"{cards}{path}", json=body)
            assert answer.status_code == expected, answer.text
            told: dict[str, object] = answer.json().get("card", answer.json().get("error"))
            return told

        made = await api.http.post(cards, json={"title": "Paint it", "body": "Green."}, headers=key)
        again = await api.http.post(cards, json={"title": "Paint it", "body": "Green."}, headers=key)
        other = await api.http.post(cards, json={"title": "Burn it"}, headers=key)
        assert (made.status_code, again.json()["card"]["id"], other.status_code) == (201, "1", 409)
        await until(api, "1", BLOCKED)
        child = await post("", 201, title="Admire it", parents=["1"])
        assert (child["state"], child["block"], child["watchers"]) == ("blocked", "dependency", [])
        assert (await post("", 400, title="x", assignee="eve"))["code"] == "invalid_card"
        assert (await post("", 400, title="x", parents=["77"]))["code"] == "invalid_card"
        assert (await post("/1/parents", 409, parent="2"))["code"] == "card_refused"
        assert (await post("/1/watchers", 400, target="api"))["code"] == "target_refused"
        assert (await post("/1/watchers", 403, target="paper:nowhere"))["code"] == "target_not_permitted"
        assert (await post("/1/watchers", target="paper:7"))["watchers"] == ["paper:7"]
        await post("/1/comments", text="Dark green.")
        assert (await post("/1/files", 400, url="file:///etc/passwd"))["param"] == "url"
        assert (await post("/1/files", 400))["code"] == "invalid_attachment"
        assert (await post("/9/files", 404, text="x"))["code"] == "card_not_found"
        await post("/1/files", url="https://example.org/plan.pdf")
        await post("/1/files", text="dark green", name="plan.md")
        files = {file.name: file.place for file in (await card(api, "1")).files}
        assert files["plan.pdf"] == "https://example.org/plan.pdf"
        assert Path(files["plan.md"]).read_text() == "dark green"
        assert (await post("/2/unblock", 409))["code"] == "card_refused"
        await post("/1/unblock", text="Go on.")
        await until(api, "2", DONE)
        listed = (await api.http.get(cards, params={"state": "done"})).json()
        assert (listed["counts"], [each["id"] for each in listed["data"]]) == ({"done": 2}, ["2", "1"])
        shown = (await api.http.get(f"{cards}/1")).json()["card"]
        assert (shown["summary"], shown["attempts"][0]["kind"]) == ("painted", "needs_input")
        assert (await post("/2/archive"))["state"] == "archived"
        assert (await api.http.get(f"{cards}/99")).status_code == 404
        assert (await api.http.get(f"{cards}/../1")).status_code in (404, 405)
        stranger = await api.new_key("guest", "chat", "runs", "notify")
        async with api.client(stranger) as guest:
            assert (await guest.get(cards)).status_code == 403, "the board is the owner's"
        assert (await card(api, "1")).remarks[0].by == "api key owner"


@pytest.mark.parametrize("words", ["<b>bold</b>", "‮evil", "a" * 180])
async def test_whatever_a_title_is_the_board_stays_one_line_for_each_card(tmp_path: Path, words: str) -> None:
    async with World(tmp_path, Verdict("done")) as world:
        made = await added(world.gateway.desk.board, NewCard(f"{words}\nsecond line", triage=True), NOBODY)
        assert "\n" not in made.title
        world.paper.says("/board")
        await world.until(lambda: world.posts)
        assert len(world.posts[0].splitlines()) == 2
