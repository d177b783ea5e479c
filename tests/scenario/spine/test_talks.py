"""Talks: each has an owner and a title, and a person finds their own again and nobody else's."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.scenario.operations.test_retention import MONTH, aged
from tests.simulators.provider.simulator import MODEL, SMALL, ProviderServer
from tests.simulators.provider.turns import Say
from tests.worlds.assistant import assistant
from tests.worlds.fakes import FakeClock
from tests.worlds.world import KEYED, Echo, Gate, OwnedClock, World, handed
from tidings.core import ids
from tidings.core.agent import Event, Finished, TextDelta, Turn
from tidings.core.memory import talks
from tidings.core.operations import retention
from tidings.core.settings import Retention
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Audience, Author, Conversation, Inbound, Origin, Sender, Target

BOTH = {"paper": KEYED, "other": KEYED}


class Remembering:
    """Says what people said to it before, and what they say now."""

    def __init__(self, name: str = "", gates: dict[str, Gate] | None = None) -> None:
        self.name = name
        self.gates = gates or {}
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        said = [entry.text for entry in turn.history if entry.author is not Author.BOT]
        if gate := self.gates.get(turn.message.text):
            await gate.wait()
        yield TextDelta(f"{self.name}[{', '.join(said)}] {turn.message.text}")
        yield Finished()


async def ask(
    world: World, text: str, *, on: str = "paper", chat: str = "1", sender: str = "7", private: bool = True
) -> str:
    """What is answered there."""
    paper = world.papers[on]
    before = len(paper.posts_in(chat))
    paper.says(text, chat=chat, sender=sender, private=private)
    await paper.until(lambda paper: len(paper.posts_in(chat)) > before)
    return paper.posts_in(chat)[-1]


def rows(world: World) -> list[tuple[str, int, str, str, str]]:
    found = world.rows("SELECT * FROM talks WHERE generation > 0 ORDER BY conversation, generation")
    return [(row["conversation"], row["generation"], row["owner"], row["place"], row["title"]) for row in found]


def titles(answer: str) -> list[str]:
    return re.findall(r"^(?:•|\d+\.) (.+) \([0-9a-f]{8};", answer, re.MULTILINE)


async def test_the_first_words_of_a_talk_are_its_title(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await ask(world, "Where do\n\n  tulips grow?")
        await ask(world, "And roses?")
        assert rows(world) == [("paper:main:1", 1, "paper:7", "", "Where do tulips grow?")]
        await ask(world, "/new")
        await ask(world, "word " * 50)
        await ask(world, "/new")
        await ask(world, "my token is ghp_0123456789abcdefghij0123456789abcdef")
        longest, secret = rows(world)[1][-1], rows(world)[2][-1]
        assert len(longest) <= 60
        assert longest.endswith("word…")
        assert secret == "my token is [redacted]"


async def test_a_group_owns_its_talk_and_a_member_with_a_memory_of_their_own_owns_theirs(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await ask(world, "we all", chat="-5", private=False)
        await world.receive(handed("me alone", chat="-5", private=False, conversation=_member("7")))
        await world.settled()
        assert rows(world) == [
            ("paper:main:-5", 1, "", "paper:main:-5", "we all"),
            ("paper:main:-5::7", 1, "paper:7", "paper:main:-5", "me alone"),
        ]


def _member(sender: str) -> Conversation:
    return Conversation(adapter="paper", account="main", chat="-5", member=sender)


async def test_work_without_a_person_and_single_requests_are_no_talks(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await world.receive(handed("once", thread="once-1"))
        await world.receive(handed("done", origin=Origin.TASK))
        await world.settled()
        assert rows(world) == []


async def test_a_person_lists_their_own_talks_and_finds_them_by_words_of_the_title(tmp_path: Path) -> None:
    """F17."""
    clock = FakeClock()
    async with World(tmp_path, Echo(), clock=clock) as world:
        for text in ("Übungen for the piano", "Tulips in April", "Something else"):
            await ask(world, text)
            await ask(world, "/new")
            await clock.advance(3600)
        answer = await ask(world, "/sessions")
        assert titles(answer) == ["Something else", "Tulips in April", "Übungen for the piano"]
        assert "; this chat; 3 hours ago)\n   you said: Übungen for the piano" in answer
        assert titles(await ask(world, "/sessions TULIPS")) == ["Tulips in April"]
        assert titles(await ask(world, "/sessions piano übungen")) == ["Übungen for the piano"]
        assert await ask(world, "/sessions roses") == "No talk of yours has “roses” in its title."


async def test_nobody_lists_or_continues_what_is_not_theirs(tmp_path: Path) -> None:
    """C6: not by title, not by id, not by number; another's id answers like one that does not exist."""
    async with World(tmp_path, Remembering(), allow=["paper:7", "paper:8"]) as world:
        await ask(world, "my diagnosis")
        id = world.rows("SELECT id FROM talks WHERE generation > 0")[0]["id"]
        assert await ask(world, "/sessions", chat="8", sender="8") == "There is no earlier talk of yours here."
        assert await ask(world, "/continue", chat="8", sender="8") == "There is no earlier talk of yours here."
        assert "No talk of yours" in await ask(world, "/sessions diagnosis", chat="8", sender="8")
        nothing = await ask(world, f"/continue {ids.new('talk')}", chat="8", sender="8")
        for wanted in (id, id.removeprefix("talk_")[:8], "1", "diagnosis", "my diagnosis", "back to paper:7"):
            assert await ask(world, f"/continue {wanted}", chat="8", sender="8") == nothing
        assert await ask(world, "hi", chat="8", sender="8") == "[] hi"


async def test_an_admin_lists_only_their_own_talks_too(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=["paper:7"], owners=["paper:1"]) as world:
        await ask(world, "my diagnosis")
        assert await ask(world, "/sessions", chat="91", sender="1") == "There is no earlier talk of yours here."


async def test_two_people_in_private_never_share_what_they_said(tmp_path: Path) -> None:
    """C3."""
    async with World(tmp_path, Remembering(), allow=["paper:7", "paper:8"]) as world:
        await ask(world, "mine")
        assert await ask(world, "yours", chat="8", sender="8") == "[] yours"
        assert await ask(world, "more") == "[mine] more"
        assert titles(await ask(world, "/sessions", chat="8", sender="8")) == ["yours"]


async def test_a_group_lists_what_was_said_there_and_a_private_chat_never_does(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await ask(world, "a secret")
        await ask(world, "for us all", chat="-5", private=False)
        await ask(world, "for others", chat="-6", private=False)
        assert titles(await ask(world, "/sessions", chat="-5", private=False)) == ["for us all"]
        assert titles(await ask(world, "/sessions")) == ["a secret"]


async def test_a_member_never_lists_what_another_member_said_alone_in_the_same_group(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=["paper:7", "paper:8"]) as world:
        await world.receive(handed("only me", chat="-5", private=False, conversation=_member("7")))
        await world.settled()
        await ask(world, "hello", chat="-5", private=False)
        other = handed("/sessions", chat="-5", private=False, sender="8", conversation=_member("8"))
        await world.receive(other)
        await world.settled()
        assert titles(world.paper.posts_in("-5")[-1]) == ["hello"]


async def test_an_undone_or_erased_message_leaves_no_title_behind(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await ask(world, "aubergine")
        await ask(world, "/undo")
        assert rows(world)[0][-1] == ""
        await ask(world, "tulips")
        await ask(world, "roses")
        assert rows(world)[0][-1] == "tulips"
        await world.settled()
        for words, title in (("tulips", "roses"), ("roses", None)):
            run = next(row["run"] for row in world.runs() if f'"text":"{words}"' in row["message"].decode())
            await world.gateway.desk.forget(run)
            assert [each[-1] for each in rows(world)] == ([title] if title else [""]), words
        undone = next(row["run"] for row in world.runs())
        await world.gateway.desk.forget(undone)
        assert rows(world) == []


async def test_talks_go_with_their_history(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with World(tmp_path, Echo(), clock=clock) as world:
        world.skip |= {"I1", "I4", "I10"}
        world.paper.says("long ago")
        await world.until(lambda: len(world.posts) == 1)
        await world.end()
        aged(world, MONTH)
        await world.start()
        for number, text in enumerate(("/new", "today"), start=2):
            world.paper.says(text)
            await world.until(lambda number=number: len(world.posts) == number)
        await world.settled()
        assert [each[-1] for each in rows(world)] == ["long ago", "today"]
        walk = retention.Retention(world.gateway._store, clock, Retention(history_days=10), world.home)
        await walk.prune(None, rehearsal=True)
        assert len(rows(world)) == 2
        await walk.prune(None, rehearsal=False)
        assert [each[-1] for each in rows(world)] == ["today"]


async def test_fifty_thousand_talks_are_listed_by_a_page_of_an_index(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world:
        await ask(world, "first")
        await world.settled()
        with closing(sqlite3.connect(world.home / DATABASE)) as store:
            many = range(50_000)
            store.executemany("INSERT INTO conversations (id) VALUES (?)", ((f"paper:main:1:{n}",) for n in many))
            store.executemany(
                "INSERT INTO talks (id, conversation, generation, owner, place, title, run, at)"
                " VALUES (?, ?, 1, 'paper:7', '', ?, '', ?)",
                ((f"talk_{n:032x}", f"paper:main:1:{n}", f"talk number {n}", float(n)) for n in many),
            )
            store.commit()
            plan = store.execute(
                "EXPLAIN QUERY PLAN SELECT t.id FROM talks t JOIN conversations c ON c.id = t.conversation"
                " WHERE t.owner = ? AND t.place = ? ORDER BY t.at DESC LIMIT ?",
                ("paper:7", "", 10),
            ).fetchall()
        assert plan[0][3] == "SEARCH t USING INDEX talks_of_owner (owner=? AND place=?)"
        assert not any("TEMP B-TREE" in row[3] for row in plan)
        answer = await ask(world, "/sessions")
        assert titles(answer)[:2] == ["first", "talk number 49999"]
        assert len(titles(answer)) == 10
        assert titles(await ask(world, "/sessions number 49001")) == ["talk number 49001"]
        assert "No talk of yours" in await ask(world, "/sessions number 3000"), "only the newest are searched"


def test_a_key_owns_what_is_asked_under_it_and_a_named_user_owns_their_own() -> None:
    target = Target(adapter="api", chat="key_1")

    def owner(sender: str) -> str:
        conversation = Conversation(adapter="api", account="main", chat="key_1")
        said = Inbound(key="1", conversation=conversation, target=target, sender=Sender(id=sender, key="key_1"))
        return talks._owner(said)

    assert target.audience is Audience.PRIVATE
    assert owner("key_1") == "key:key_1"
    assert owner("key_1/ann") == "api:key_1/ann"


TITLED = {"title_model": f"openai-chat:{SMALL}"}


async def test_a_model_gives_a_talk_its_title_once_and_the_answer_does_not_wait(tmp_path: Path) -> None:
    gate = Gate()

    async def slow(_: object) -> Say:
        await gate.wait()
        return Say('"Tulips, where they grow and when and why"')

    async with ProviderServer() as provider:
        provider.script(Say("In a garden."), Say("Too."), model=MODEL)
        provider.script(slow, model=SMALL)
        async with World(tmp_path, assistant(provider, **TITLED)) as world:
            assert await ask(world, "Where do tulips grow?") == "In a garden."
            await gate.reached()
            assert rows(world)[0][-1] == "Where do tulips grow?"
            gate.open()
            await world.eventually(lambda: rows(world)[0][-1] == "Tulips, where they grow and when")
            assert await ask(world, "And roses?") == "Too."
            await world.settled()
            assert len(provider.requests_to(model=SMALL)) == 1


@pytest.mark.parametrize("trouble", ["refused", "erased"])
async def test_a_talk_keeps_its_first_words_if_no_title_comes(tmp_path: Path, trouble: str) -> None:
    gate = Gate()

    async def slow(_: object) -> Say:
        await gate.wait()
        return Say("About aubergines")

    async with ProviderServer() as provider:
        provider.script(Say("one"), Say("two"), model=MODEL)
        if trouble == "erased":
            provider.script(slow, model=SMALL)
        titled = TITLED if trouble == "erased" else {"title_model": "openai-chat:unheard-of"}
        async with World(tmp_path, assistant(provider, **titled)) as world:
            await ask(world, "first")
            await ask(world, "second")
            await world.settled()
            if trouble == "erased":
                await gate.reached()
                await world.eventually(lambda: len(world.runs()) == 2)
                await world.gateway.desk.forget(world.runs()[0]["run"])
                gate.open()
            agent = world.agents["bot"]
            async with asyncio.timeout(30):
                await agent._naming.drain()  # type: ignore[attr-defined]
            assert rows(world)[0][-1] == ("second" if trouble == "erased" else "first")


async def test_no_model_is_asked_for_a_title_unless_the_settings_name_one(tmp_path: Path) -> None:
    async with ProviderServer() as provider:
        provider.script(Say("one"))
        async with World(tmp_path, assistant(provider)) as world:
            await ask(world, "first")
            await world.settled()
            assert len(provider.requests) == 1
            assert rows(world)[0][-1] == "first"
