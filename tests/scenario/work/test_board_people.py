"""People at the board: who may change a card, by which name they are known, and that each is told once and plainly."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.worlds.board import HAND, NOBODY, Verdict, added, anybody, card, obeyed, until
from tests.worlds.world import World
from tidings.core.agent import Event, Finished, Turn
from tidings.core.desk.board import Block, CardState, Hand, NewCard, Order
from tidings.core.errors import ConfigError, Unkeepable
from tidings.core.gateway.options import Team
from tidings.core.settings import Board, Core
from tidings.core.store import migrate
from tidings.core.store.sqlite import SqliteTransaction
from tidings.core.types import Conversation, Inbound, Sender, Target
from tidings.core.work.board import commands
from tidings.core.work.board import rules as board_rules
from tidings.core.work.board.cards import Moment

AT = Moment(1000.0, 2000.0)
BOT = Hand("a bot", is_person=False)
ELSEWHERE = Hand("Eve", Target(adapter="paper", chat="2"))


async def answered(world: World, words: str, chat: str = "1") -> str:
    """What stands in the chat next."""
    before = len(world.posts)
    world.paper.says(words, chat=chat)
    await world.until(lambda: len(world.posts) > before)
    return world.posts[before]


async def test_only_where_a_card_was_made_or_is_watched_may_it_be_changed_if_the_owner_wants_that(
    tmp_path: Path,
) -> None:
    async with World(tmp_path, Verdict("done"), allow=["paper:7", "paper:8"], board={"people": "maker"}) as world:
        desk = world.gateway.desk.board
        await answered(world, "/board add Paint it triage=yes")
        await answered(world, "/board add Admire it triage=yes")

        async def eve(words: str) -> str:
            before = len(world.posts)
            world.paper.says(f"/board {words}", chat="2", sender="8")
            await world.until(lambda: len(world.posts) > before)
            return world.posts[before]

        orders = ("comment 1 x", "attach 1 https://example.org", "unblock 1", "done 1", "block 1 x", "archive 1")
        for words in (*orders, "watch 1", "unwatch 1", "link 2 1"):
            assert await eve(words) == "#1 was made in another chat; only that chat or the owner may change it."
        assert "#1 Paint it" in await eve("show 1"), "all may read"
        bot = Hand("bot", None, Conversation(adapter="paper", account="main", chat="2"), is_person=False)
        with pytest.raises(Unkeepable, match="was made in another chat"):
            await obeyed(desk, Order("archive", id="1"), bot)
        assert (await card(world, "1")).state is CardState.TRIAGE
        await obeyed(desk, Order("watch", id="1", target=str(Target(adapter="paper", chat="2"))), NOBODY)
        assert "Written on #1" in await eve("comment 1 I watch it now")
        assert "Written on #2" in await answered(world, "/board comment 2 I made it")
        assert (await obeyed(desk, Order("archive", id="2"), NOBODY)).state is CardState.ARCHIVED, "the owner may"


async def test_by_default_members_may_change_a_card_and_stop_only_their_own(tmp_path: Path) -> None:
    people = {"allow": ["paper:7", "paper:8"], "access": {"admins": ("paper:6",)}}
    async with World(tmp_path, Verdict("done"), **people) as world:  # type: ignore[arg-type]

        async def told(words: str, sender: str = "8") -> str:
            before = len(world.posts)
            world.paper.says(f"/board {words}", chat=sender, sender=sender)
            await world.until(lambda: len(world.posts) > before)
            return world.posts[before]

        await told("add paint triage=yes", sender="7")
        await told("add dig triage=yes")
        assert await told("comment 1 Green.") == "Written on #1 “paint”."
        for words in ("archive 1", "block 1 not now"):
            assert await told(words) == "Somebody else made #1; they can stop it, and so can an owner or admin."
        assert await told("archive 2") == "#2 “dig” is archived now."
        assert await told("archive 1", sender="6") == "#1 “paint” is archived now."


def test_nobody_passes_for_another_by_what_they_call_themselves() -> None:
    def known_as(name: str) -> str:
        place = Conversation(adapter="paper", account="main", chat="1")
        who = Sender(id="666", name=name)
        said = Inbound(key="k", conversation=place, target=Target(adapter="paper", chat="1"), sender=who)
        return commands.hand_of(said, "bot").name

    assert known_as("Eve") == "Eve (paper:666)"
    assert known_as("") == "paper:666"
    assert known_as("the owner") == "the owner (paper:666)"
    assert known_as("Ada (paper:7)\n") == "Ada paper:7 (paper:666)"
    assert known_as("x" * 5000).endswith("x (paper:666)"), "the id is never cut off"


async def test_what_is_written_from_a_chat_has_the_id_of_who_wrote_it(tmp_path: Path) -> None:
    async with World(tmp_path, Verdict("done")) as world:
        await answered(world, "/board add Paint it triage=yes")
        await answered(world, "/board comment 1 Green.")
        found = await card(world, "1")
        assert found.by.endswith("paper:7)") or found.by == "paper:7"
        assert found.remarks[0].by == found.by


async def test_a_link_is_attached_in_a_chat_and_no_path_is(tmp_path: Path) -> None:
    async with World(tmp_path, Verdict("done")) as world:
        await added(world.gateway.desk.board, NewCard("paint", triage=True), NOBODY)
        told = await answered(world, "/board attach 1 https://example.org/plan.pdf")
        assert told == "Attached to #1 “paint”: plan.pdf."
        for place in ("/etc/passwd", "green, please", ""):
            assert (await answered(world, f"/board attach 1 {place}")).startswith("Attach a link: /board attach 1 ")
        assert [file.place for file in (await card(world, "1")).files] == ["https://example.org/plan.pdf"]


async def test_a_review_is_no_bots_to_end_by_any_way(tmp_path: Path) -> None:
    async def reviewed(turn: Turn) -> AsyncIterator[Event]:
        await turn.desk.board.request_review("Look at the posts.")
        yield Finished()

    async with World(tmp_path, Verdict(reviewed)) as world:
        desk = world.gateway.desk.board
        await added(desk, NewCard("fence"), HAND)
        await until(world, "1", CardState.REVIEW)
        ways = (
            obeyed(desk, Order("done", id="1", text="looks good to me"), BOT),
            obeyed(desk, Order("unblock", id="1", text="once more"), BOT),
            obeyed(desk, Order("block", id="1", text="so that I can finish it", kind=Block.NEEDS_INPUT), BOT),
        )
        for way in ways:
            with pytest.raises(Unkeepable, match="waits for a person: a review is needed"):
                await way
        assert (await obeyed(desk, Order("done", id="1"), HAND)).state is CardState.DONE


async def test_a_card_that_is_blocked_from_the_start_is_answered_in_its_chat_and_not_told_there_besides(
    tmp_path: Path,
) -> None:
    async with World(tmp_path, Verdict("done")) as world:
        await added(world.gateway.desk.board, NewCard("cut wood", triage=True), NOBODY)
        world.paper.chats.open("9", "")
        await obeyed(
            world.gateway.desk.board, Order("watch", id="1", target=str(Target(adapter="paper", chat="9"))), NOBODY
        )
        world.paper.says("/board add Build it after=1")
        await world.until(lambda: len(world.posts) == 2)
        await world.settled()
        assert sorted(post.partition(" is blocked")[0] for post in world.posts) == [
            "Card #2 “Build it” for bot",
            "⛔ #2 “Build it”",
        ], "the answer here, and the news for whoever watches elsewhere"
        assert [row["lane"] for row in world.rows("SELECT lane FROM deliveries WHERE key LIKE 'card/%'")] == [
            "paper:main:9"
        ]


def _told(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    rows = connection.execute("SELECT lane, body FROM deliveries ORDER BY seq").fetchall()
    return [(row["lane"], row["body"].decode()) for row in rows]


def test_each_watcher_hears_once_of_a_chain_and_again_when_its_head_stops_again() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        migrate.upgrade(connection, Path("memory"))
        tx = SqliteTransaction(connection)
        board_rules.add(tx, NewCard("cut", assignee="bot"), HAND, ("bot",), 9, AT, anybody)
        for parent in ("1", "2", "3"):
            board_rules.add(tx, NewCard("next", assignee="bot", parents=(parent,)), ELSEWHERE, ("bot",), 9, AT, anybody)

        def stops(reason: str) -> list[tuple[str, str]]:
            before = len(_told(connection))
            [claimed] = board_rules.claim(tx, 1, 45.0, AT)
            board_rules.block(tx, claimed.hold, Block.NEEDS_INPUT, reason, "", AT)
            return _told(connection)[before:]

        for reason in ("which saw?", "which wood?"):
            told = dict(stops(reason))
            assert "Waiting for it: #2, #3, #4." in told["paper:main:1"]
            assert "#2 “next” is blocked: it waits for #1, which is blocked (needs an answer)." in told["paper:main:2"]
            board_rules.unblock(tx, "1", "", HAND, AT)
        # Nothing but the cause has changed, and whoever watches all of it is told once.
        before = len(_told(connection))
        board_rules.archive(tx, "1", HAND, AT)
        last = _told(connection)[before:]
        assert sorted(lane for lane, _ in last) == ["paper:main:1", "paper:main:2"]
        assert all("#2 “next” is blocked: it waits for #1, which was archived." in body for _, body in last)


def test_archiving_the_head_of_a_chain_that_waits_is_one_notice_with_all_of_it() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        migrate.upgrade(connection, Path("memory"))
        tx = SqliteTransaction(connection)
        board_rules.add(tx, NewCard("cut", assignee="bot"), HAND, ("bot",), 9, AT, anybody)
        for parent in ("1", "2", "3"):
            board_rules.add(tx, NewCard("next", assignee="bot", parents=(parent,)), NOBODY, ("bot",), 9, AT, anybody)
        board_rules.archive(tx, "1", HAND, AT)
        [(lane, body)] = _told(connection)
        assert lane == "paper:main:1"
        assert "Also blocked by this: #3, #4." in body


def test_every_kind_of_block_has_words_for_people() -> None:
    assert all(kind.phrase and "_" not in kind.phrase for kind in Block)


async def test_a_worker_with_the_name_of_a_bot_is_refused(tmp_path: Path) -> None:
    async with World(tmp_path, Verdict("done")) as world:
        settings = Core(board=Board(workers={"bot": ("true",)}))
        with pytest.raises(ConfigError, match=r"\[board.workers\] bot: there is a bot of that name"):
            world.gateway.renew(settings, Team({"bot": Verdict("done")}, "bot"))
