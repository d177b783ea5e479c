"""Memory in groups: one conversation per chat, or one for each member; where messages go does not change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.worlds.slack import SlackWorld
from tests.worlds.stages import PLATFORMS, stage
from tests.worlds.telegram import TelegramWorld
from tests.worlds.world import Gate, OwnedClock, Scripted, Takes, World, handed
from tidings.core.agent import ChoicesOffered, Event, Finished, TextDelta, Turn
from tidings.core.gateway.options import Team
from tidings.core.settings import Access, Core, Groups
from tidings.core.types import Author, Body, Conversation, Kind, Sender, Target

FORUM = -1_000_000_000_009
GROUP = -5
MEMBER = {"memory": "member"}
PEOPLE = ["telegram:7", "telegram:8"]

each = pytest.mark.parametrize("platform", PLATFORMS)


class Rememberer:
    """Says what was said in this conversation before."""

    def __init__(self, gates: dict[str, Gate] | None = None) -> None:
        self._gates = gates or {}
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        if turn.message.text in self._gates:
            await self._gates[turn.message.text].wait()
        before = [entry.text for entry in turn.history if entry.author is Author.PERSON]
        yield TextDelta(f"{turn.message.text} after {', '.join(before) or 'nothing'}")
        yield Finished()


@pytest.mark.parametrize("memory", ["chat", "member"])
async def test_a_topic_is_answered_in_itself_and_isolation_changes_history_only(tmp_path: Path, memory: str) -> None:
    """C5: the key is bot, chat, thread and, if the settings say so, the member."""
    groups = {"memory": memory}
    world = TelegramWorld(tmp_path, Rememberer(), clock=OwnedClock(), allow=PEOPLE, groups=groups, bots=["second"])
    async with world:
        telegram = world.telegram
        telegram.open_chat(FORUM, forum=True)
        telegram.open_chat(FORUM, account="second")
        topics = [telegram.open_topic(FORUM, name) for name in ("Tea", "Coffee")]
        for text, user, topic in (("a", 7, 0), ("b", 8, 0), ("c", 7, 1), ("d", 7, 0)):
            telegram.says(f"@tidings_bot {text}", chat=FORUM, user=user, thread=topics[topic])
            await world.until(lambda text=text: any(post.startswith(text) for post in telegram.posts))  # type: ignore[misc]
        telegram.says("@second_bot e", chat=FORUM, user=7, thread=topics[0])
        await world.until(lambda: len(telegram.posts) == 5)
        tea, coffee = (telegram.posts_in(FORUM, topic) for topic in topics)
        shared = memory == "chat"
        assert tea == [
            "a after nothing",
            "b after a" if shared else "b after nothing",
            "d after a, b" if shared else "d after a",
            "e after nothing",
        ]
        assert coffee == ["c after nothing"]
        # Each answer stands below its question.
        assert [telegram.message(each.reply_to).text[-1] for each in telegram.sent] == ["a", "b", "c", "d", "e"]
        ids = {row["conversation"].removeprefix("telegram:") for row in world.rows("SELECT conversation FROM inbox")}
        ends = {""} if shared else {":7", ":8"}
        first = {f"main:{FORUM}:{topics[0]}{end}" for end in ends}
        end = "" if shared else ":7"
        assert ids == first | {f"main:{FORUM}:{topics[1]}{end}", f"second:{FORUM}:{topics[0]}{end}"}


@each
async def test_members_have_conversations_of_their_own_and_answers_stay_in_the_room(
    tmp_path: Path, platform: str
) -> None:
    agent = Rememberer()
    async with stage(tmp_path, platform, agent, members=["carol"], groups=MEMBER) as there:
        for who, text in (("ada", "one"), ("carol", "two")):
            there.says(who, text, room=True)
            await there.until(lambda text=text: there.heard[-1:] == [f"{text} after nothing"])  # type: ignore[misc]
        there.says("ada", "private")
        await there.until(lambda: there.told("ada") == ["private after nothing"])
        members = [turn.message.conversation.member for turn in agent.turns]
        ids = [there.identity(who).partition(":")[2] for who in ("ada", "carol")]
        assert members == [*ids, ""]
        assert len({turn.message.target.chat for turn in agent.turns[:2]}) == 1


async def test_a_thread_on_slack_goes_on_without_a_mention_for_every_member(tmp_path: Path) -> None:
    """Whether a thread is the bot's does not depend on whose conversation has begun in it."""
    async with SlackWorld(tmp_path, Rememberer(), clock=OwnedClock(), groups=MEMBER) as world:
        bob = world.slack.person("bob")
        await world.admit(f"slack:{bob.id}")
        first = world.ada.says(world.room, "one", mention=True)
        await world.until(lambda: world.slack.posts_in(world.room, first.ts) == ["one after nothing"])
        world.ada.says(world.room, "two", thread=first)
        await world.until(lambda: world.slack.posts_in(world.room, first.ts)[1:] == ["two after one"])
        bob.says(world.room, "and me?", thread=first)
        await world.until(lambda: world.slack.posts_in(world.room, first.ts)[2:] == ["and me? after nothing"])


async def test_the_setting_takes_effect_at_a_reload_and_what_was_asked_before_is_still_found(tmp_path: Path) -> None:
    """A run, its stop and its buttons stay in the conversation where they began."""
    gate = Gate()
    agents = {"bot": Takes(Scripted("tea?", ChoicesOffered(("yes", "no"))), Rememberer({"wait": gate}))}
    async with TelegramWorld(tmp_path, agents, clock=OwnedClock(), allow=PEOPLE) as world:
        telegram = world.telegram
        telegram.says("@tidings_bot ask me", chat=GROUP)
        await world.until(lambda: telegram.posts == ["tea?"])
        question = telegram.sent[0]
        telegram.says("@tidings_bot wait", chat=GROUP)
        await gate.reached()
        settings = Core(access=Access(allow=tuple(PEOPLE)), groups=Groups(memory="member"))
        world.gateway.renew(settings, Team(agents, "bot"))
        telegram.says("/stop", chat=GROUP)
        await world.until(lambda: any("Stopped by" in post for post in telegram.posts))
        telegram.presses(question.id, question.choices[0].id, user=7)
        await world.until(lambda: any(post.startswith("yes after") for post in telegram.posts))
        telegram.says("@tidings_bot mine", chat=GROUP)
        await world.until(lambda: telegram.posts[-1] == "mine after nothing")
        conversations = [row["conversation"] for row in world.runs()]
        assert conversations == [f"telegram:main:{GROUP}"] * 3 + [f"telegram:main:{GROUP}::7"]


async def test_an_album_an_edit_and_a_deletion_find_the_member_s_message(tmp_path: Path) -> None:
    gate = Gate()
    agent = Rememberer({"wait": gate})
    async with World(tmp_path, agent, clock=OwnedClock(), groups=MEMBER, allow=["paper:7", "paper:8"]) as world:
        place = {"chat": "g", "private": False}
        world.paper.open_chat("g")
        await world.receive(handed("wait", key="m1", **place))
        await gate.reached()
        await world.receive(handed("wrong", key="m2", **place))
        await world.receive(handed("gone", key="m3", **place))
        for number in range(3):
            await world.receive(handed(f"part {number}", key=f"a{number}", group="album", **place))
        await world.receive(handed("right", key="e2", kind=Kind.EDITED, about="m2", **place))
        nobody = Sender(id="", trusted=True)
        await world.receive(replace(handed("", key="d3", kind=Kind.DELETED, about="m3", **place), sender=nobody))
        gate.open()
        await world.until(lambda: len(agent.turns) == 3)
        await world.settled()
        assert [turn.message.text for turn in agent.turns] == ["wait", "right", "part 0\npart 1\npart 2"]
        assert {row["conversation"] for row in world.runs()} == {"paper:main:g::7"}


async def test_stop_ends_the_own_answer_and_an_admin_s_stop_those_of_others(tmp_path: Path) -> None:
    gates = {"a": Gate(), "b": Gate()}
    people = ["telegram:8", "telegram:9"]
    world = TelegramWorld(
        tmp_path, Rememberer(gates), clock=OwnedClock(), allow=people, owners=["telegram:7"], groups=MEMBER
    )
    async with world:
        telegram = world.telegram
        keys = [telegram.says(f"@tidings_bot {text}", chat=GROUP, user=user) for text, user in (("a", 8), ("b", 9))]
        for text in ("a", "b"):
            await gates[text].reached()
        telegram.says("/stop", chat=GROUP, user=8)
        assert (await world.outcome(keys[0])).kind == "cancelled"
        telegram.says("/stop", chat=GROUP, user=8)
        await world.until(lambda: "Nothing is running." in telegram.posts)
        assert world.run(keys[1])["state"] == "running"
        telegram.says("/stop", chat=GROUP, user=7)
        assert (await world.outcome(keys[1])).kind == "cancelled"
        await world.until(lambda: sum(post.startswith("Stopped by") for post in telegram.posts) == 2)


async def test_another_member_s_press_answers_the_question_where_it_was_asked(tmp_path: Path) -> None:
    """As without isolation, anybody in the group may press; the words go to the conversation of the question."""
    agent = Takes(Scripted("tea?", ChoicesOffered(("yes", "no"))), Rememberer())
    async with TelegramWorld(tmp_path, agent, clock=OwnedClock(), allow=PEOPLE, groups=MEMBER) as world:
        telegram = world.telegram
        telegram.says("@tidings_bot ask me", chat=GROUP)
        await world.until(lambda: telegram.posts == ["tea?"])
        question = telegram.sent[0]
        pressed = telegram.presses(question.id, question.choices[1].id, user=8)
        await world.until(lambda: telegram.posts[1:] == ["no after ask me"])
        await world.until(lambda: telegram.answered(pressed) == "")
        assert {row["conversation"] for row in world.runs()} == {f"telegram:main:{GROUP}::7"}


async def test_a_notice_in_a_group_is_remembered_for_the_chat_and_the_group_stays_known(tmp_path: Path) -> None:
    """A member's own conversation does not contain it; a reply to it quotes it."""
    agent = Rememberer()
    async with TelegramWorld(tmp_path, agent, clock=OwnedClock(), allow=PEOPLE, groups=MEMBER) as world:
        telegram, group = world.telegram, Target(adapter="telegram", chat=str(GROUP))
        telegram.says("@tidings_bot hi", chat=GROUP)
        await world.until(lambda: telegram.posts == ["hi after nothing"])
        assert await world.gateway.desk.permitted(group)
        await world.gateway.desk.owe(group, Body(text="the build failed"), "test")
        await world.until(lambda: telegram.posts[1:] == ["the build failed"])
        telegram.says("why?", chat=GROUP, reply_to=telegram.sent[1].id)
        await world.until(lambda: telegram.posts[2:] == ["why? after hi"])
        (row,) = world.rows("SELECT conversation FROM history WHERE author = 'notice'")
        assert row["conversation"] == f"telegram:main:{GROUP}"
        quoted = agent.turns[-1].message.quoted
        assert quoted is not None
        assert quoted.text == "the build failed"


async def test_what_a_member_left_to_work_on_is_told_in_their_own_conversation(tmp_path: Path) -> None:
    """The report goes to the chat, and who asked can talk about it."""
    agent = Rememberer()
    async with World(tmp_path, agent, clock=OwnedClock(), groups=MEMBER, allow=["paper:7", "paper:8"]) as world:
        place = {"chat": "g", "private": False}
        world.paper.open_chat("g")
        await world.receive(handed("/bg dig", **place))
        await world.until(lambda: len(world.paper.posts_in("g")) == 2)
        await world.settled()
        notices = world.rows("SELECT DISTINCT conversation FROM history WHERE author = 'notice' AND source <> ''")
        assert "paper:main:g::7" in {row["conversation"] for row in notices}


async def test_a_platform_that_names_the_member_itself_is_left_alone(tmp_path: Path) -> None:
    async with World(tmp_path, Rememberer(), clock=OwnedClock(), groups=MEMBER) as world:
        world.paper.open_chat("g")
        conversation = Conversation(adapter="paper", account="main", chat="g", member="theirs")
        await world.receive(handed("hi", key="k", chat="g", private=False, conversation=conversation))
        await world.until(lambda: world.posts == ["hi after nothing"])
        assert world.run("k")["conversation"] == "paper:main:g::theirs"
