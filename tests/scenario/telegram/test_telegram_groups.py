"""Groups on Telegram: answered when addressed, each topic a conversation of its own, and at home after a move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worlds.telegram import TelegramWorld
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted
from tidings.core.agent import Event, Finished, TextDelta, Turn
from tidings.core.types import Author, Target

GROUP = -5
SUPERGROUP = -1_000_000_000_005
FORUM = -1_000_000_000_009
# A bot that is told everything, so that what it ignores is its own doing.
ALL_EARS = {"reads_all": True}


class Rememberer:
    """Says what was said here before."""

    def __init__(self, gates: dict[str, Gate] | None = None) -> None:
        self._gates = gates or {}

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        if turn.message.text in self._gates:
            await self._gates[turn.message.text].wait()
        before = [entry.text for entry in turn.history if entry.author is Author.PERSON]
        yield TextDelta(f"{turn.message.text} after {', '.join(before) or 'nothing'}")
        yield Finished()


async def passed_over(world: TelegramWorld, name: str) -> None:
    """The gateway has seen it, and made nothing of it."""
    await world.telegram.until(lambda telegram: name in telegram.confirmed)
    assert world.rows("SELECT * FROM inbox WHERE key = ?", name) == []


async def test_a_group_is_answered_when_it_mentions_replies_or_commands(tmp_path: Path) -> None:
    echo = Echo()
    async with TelegramWorld(tmp_path, echo, server=ALL_EARS, clock=OwnedClock()) as world:
        telegram = world.telegram
        await passed_over(world, telegram.says("between us", chat=GROUP))
        mention = telegram.says("@tidings_bot are you there?", chat=GROUP)
        await world.until(lambda: telegram.posts_in(GROUP) == ["you said: are you there?"])
        answer = telegram.sent[0]
        assert answer.reply_to == mention
        await passed_over(world, telegram.says("it answered me", chat=GROUP, reply_to=mention))
        telegram.says("thank you", chat=GROUP, reply_to=answer.id)
        await world.until(lambda: len(telegram.posts) == 2)
        # Offsets count UTF-16 units, and names have no case.
        telegram.says("👍🏽 well done, @Tidings_Bot!", chat=GROUP)
        await world.until(lambda: len(telegram.posts) == 3)
        telegram.says(photo=b"jpeg", caption="@tidings_bot look", chat=GROUP)
        await world.until(lambda: len(telegram.posts) == 4)
        telegram.says("/ask@tidings_bot anything", chat=GROUP)
        await world.until(lambda: len(telegram.posts) == 5)
        telegram.says("/help@tidings_bot", chat=GROUP)
        await world.until(lambda: len(telegram.posts) == 6)
        assert echo.heard == ["are you there?", "thank you", "👍🏽 well done, @Tidings_Bot!", "look", "/ask anything"]
        assert "/stop" in telegram.posts[-1]
        assert [message.chat for message in telegram.sent] == [str(GROUP)] * 6


async def test_an_album_that_mentions_the_bot_comes_whole(tmp_path: Path) -> None:
    """Only the first of its members bears the words; one that calls nobody is still nobody's."""
    agent = Scripted("nice")
    async with TelegramWorld(tmp_path, agent, server=ALL_EARS, clock=OwnedClock()) as world:
        telegram = world.telegram
        files = [(f"{number}.txt", b"x") for number in range(3)]
        await passed_over(world, telegram.says(files=files, caption="between us", chat=GROUP))
        telegram.says(files=files, caption="@tidings_bot look", chat=GROUP)
        await world.until(lambda: telegram.posts == ["nice"])
        await telegram.until(lambda telegram: not telegram.unconfirmed)
        (turn,) = agent.turns
        assert turn.message.text == "look"
        assert [file.name for file in turn.message.attachments] == ["0.txt", "1.txt", "2.txt"]
        assert len(world.rows("SELECT * FROM inbox")) == 3


async def test_an_album_loses_no_picture_when_somebody_else_writes_in_between(tmp_path: Path) -> None:
    agent, allow = Scripted("nice"), ["telegram:7", "telegram:8"]
    async with TelegramWorld(tmp_path, agent, server=ALL_EARS, clock=OwnedClock(), allow=allow) as world:
        telegram = world.telegram
        telegram.says(files=[("0.txt", b"x")], caption="@tidings_bot look", chat=GROUP, album="a1")
        telegram.says("@tidings_bot and me?", chat=GROUP, user=8)
        telegram.says(files=[("1.txt", b"x")], chat=GROUP, album="a1")
        telegram.says(files=[("2.txt", b"x")], chat=GROUP, album="a1")
        await world.until(lambda: telegram.posts == ["nice", "nice"])
        first, second = agent.turns
        assert [file.name for file in first.message.attachments] == ["0.txt", "1.txt", "2.txt"]
        assert second.message.text == "and me?"


async def test_an_album_takes_one_place_in_a_queue_however_many_pictures_it_has(tmp_path: Path) -> None:
    agent, limits = Scripted("nice"), {"queued_per_conversation": 1}
    async with TelegramWorld(tmp_path, agent, server=ALL_EARS, clock=OwnedClock(), limits=limits) as world:
        files = [(f"{number}.txt", b"x") for number in range(3)]
        world.telegram.says(files=files, caption="@tidings_bot look", chat=GROUP)
        await world.until(lambda: "nice" in world.telegram.posts)
        assert world.telegram.posts == ["nice"]
        (turn,) = agent.turns
        assert [file.name for file in turn.message.attachments] == ["0.txt", "1.txt", "2.txt"]


async def test_an_album_comes_whole_though_its_words_are_below_a_later_picture(tmp_path: Path) -> None:
    agent = Scripted("nice")
    async with TelegramWorld(tmp_path, agent, server=ALL_EARS, clock=OwnedClock()) as world:
        telegram = world.telegram
        first = telegram.says(files=[("0.txt", b"x")], chat=GROUP, album="a1")
        await telegram.until(lambda telegram: first in telegram.confirmed)
        telegram.says(files=[("1.txt", b"x")], caption="@tidings_bot look", chat=GROUP, album="a1")
        telegram.says(files=[("2.txt", b"x")], chat=GROUP, album="a1")
        # Another album is not part of it.
        telegram.says(files=[("3.txt", b"x")], chat=GROUP, album="a2")
        await world.until(lambda: telegram.posts == ["nice"])
        (turn,) = agent.turns
        assert sorted(file.name for file in turn.message.attachments) == ["0.txt", "1.txt", "2.txt"]


async def test_a_command_for_another_bot_is_none_of_ours(tmp_path: Path) -> None:
    gate = Gate()
    echo = Echo({"wait": gate})
    async with TelegramWorld(tmp_path, echo, server=ALL_EARS, settings={"chats": {str(SUPERGROUP): "all"}}) as world:
        telegram = world.telegram
        for chat in (GROUP, SUPERGROUP):
            await passed_over(world, telegram.says("/help@other_bot", chat=chat))
        running = telegram.says("wait", chat=SUPERGROUP)
        await gate.reached()
        await passed_over(world, telegram.says("/stop@other_bot", chat=str(SUPERGROUP)))
        gate.open()
        await telegram.until(lambda telegram: telegram.posts == ["you said: wait"])
        assert world.run(running)["stop_asked"] is None


async def test_a_command_without_a_name_is_ours(tmp_path: Path) -> None:
    gate = Gate()
    async with TelegramWorld(tmp_path, Echo({"wait": gate}), server=ALL_EARS, clock=OwnedClock()) as world:
        telegram = world.telegram
        running = telegram.says("@tidings_bot wait", chat=GROUP)
        await gate.reached()
        telegram.says("/stop", chat=GROUP)
        await world.until(lambda: world.run(running)["state"] == "done")
        assert world.run(running)["outcome"] == "cancelled"


async def test_each_group_may_have_a_rule_of_its_own(tmp_path: Path) -> None:
    echo = Echo()
    rules = {"-6": "all", "-8": "never"}
    async with TelegramWorld(tmp_path, echo, server=ALL_EARS, settings={"chats": rules}) as world:
        telegram = world.telegram
        await passed_over(world, telegram.says("just talking", chat=GROUP))
        await passed_over(world, telegram.says("@tidings_bot you there?", chat=-8))
        await passed_over(world, telegram.says("/help@tidings_bot", chat=-8))
        telegram.says("@tidings_bot talk to me", chat=GROUP)
        telegram.says("just talking here", chat=-6)
        await telegram.until(lambda telegram: len(telegram.posts) == 2)
        assert telegram.posts_in(GROUP) == ["you said: talk to me"]
        assert telegram.posts_in(-6) == ["you said: just talking here"]
        assert sorted(echo.heard) == ["just talking here", "talk to me"]


async def test_whoever_has_a_longer_name_is_somebody_else(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), server=ALL_EARS, settings={"groups": "all"}) as world:
        world.telegram.says("@tidings_bot_too hi", chat=GROUP)
        await world.telegram.until(lambda telegram: telegram.posts == ["you said: @tidings_bot_too hi"])


@pytest.mark.parametrize(("rule", "answered"), [("all", [-6, GROUP]), ("never", [-6])])
async def test_the_rule_for_all_groups_yields_to_that_of_one(tmp_path: Path, rule: str, answered: list[int]) -> None:
    settings = {"groups": rule, "chats": {"-6": "addressed"}}
    async with TelegramWorld(tmp_path, Echo(), server=ALL_EARS, settings=settings) as world:
        telegram = world.telegram
        await passed_over(world, telegram.says("just talking", chat=-6))
        last = [telegram.says("@tidings_bot hi", chat=chat) for chat in (GROUP, -6)][-1]
        await telegram.until(lambda telegram: last in telegram.confirmed)
        await world.settled()
        assert sorted(int(message.chat) for message in telegram.sent) == answered
        telegram.says("a private chat has no rule")
        await telegram.until(lambda telegram: telegram.posts_in(7) == ["you said: a private chat has no rule"])


async def test_a_chain_of_replies_in_a_supergroup_is_no_topic(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Rememberer(), clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.says("@tidings_bot one", chat=SUPERGROUP)
        await world.until(lambda: telegram.posts == ["one after nothing"])
        telegram.says("two", chat=SUPERGROUP, reply_to=telegram.sent[0].id)
        await world.until(lambda: len(telegram.posts) == 2)
        assert "two after one" in telegram.posts[1]
        assert {message.thread for message in telegram.sent} == {""}
        assert {call.thread for call in telegram.calls("sendMessage")} == {""}


async def test_each_topic_is_a_conversation_of_its_own_and_answered_there(tmp_path: Path) -> None:
    """C5."""
    async with TelegramWorld(tmp_path, Rememberer(), clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.open_chat(FORUM, forum=True)
        teas, coffees = telegram.open_topic(FORUM, "Teas"), telegram.open_topic(FORUM, "Coffees")
        for thread, text in ((teas, "green"), (coffees, "dark"), ("", "hello all")):
            telegram.says(f"@tidings_bot {text}", chat=FORUM, thread=thread)
        await world.until(lambda: len(telegram.posts) == 3)
        for thread, text in ((teas, "black"), (coffees, "bright"), ("", "still there?")):
            telegram.says(f"@tidings_bot {text}", chat=FORUM, thread=thread)
        await world.until(lambda: len(telegram.posts) == 6)
        assert telegram.posts_in(FORUM, teas) == ["green after nothing", "black after green"]
        assert telegram.posts_in(FORUM, coffees) == ["dark after nothing", "bright after dark"]
        # General is where no topic is named: a bot that named it would be refused.
        assert telegram.posts_in(FORUM, "") == ["hello all after nothing", "still there? after hello all"]
        # Who answers the bot there speaks to it, and stays there.
        telegram.says("white", chat=FORUM, reply_to=telegram.visible(FORUM, teas)[-1].id)
        await world.until(lambda: len(telegram.posts_in(FORUM, teas)) == 3)
        told = {(call.thread, call.verdict) for call in telegram.calls("sendMessage")}
        assert told == {(teas, "ok"), (coffees, "ok"), ("", "ok")}


async def test_speaking_in_a_topic_that_the_bot_has_opened_is_no_reply_to_it(tmp_path: Path) -> None:
    agent = Scripted("here")
    async with TelegramWorld(tmp_path, agent, server=ALL_EARS) as world:
        telegram = world.telegram
        telegram.open_chat(FORUM, forum=True)
        me = telegram.chats.bot("main").id
        topic = telegram.open_topic(FORUM, "Opened by the bot", user=me)
        await passed_over(world, telegram.says("between us", chat=FORUM, thread=topic))
        telegram.says("@tidings_bot and you?", chat=FORUM, thread=topic)
        await telegram.until(lambda telegram: telegram.posts_in(FORUM, topic) == ["here"])
        assert agent.turns[0].message.quoted is None


async def test_two_bots_in_one_group_share_no_memory(tmp_path: Path) -> None:
    """C5."""
    async with TelegramWorld(tmp_path, Rememberer(), bots=("other",), clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.open_chat(GROUP)
        telegram.open_chat(GROUP, account="other")
        telegram.says("@tidings_bot one", chat=GROUP)
        telegram.says("@other_bot eins", chat=GROUP)
        await world.until(lambda: len(telegram.posts) == 2)
        telegram.says("@tidings_bot two", chat=GROUP)
        telegram.says("@other_bot zwei", chat=GROUP)
        await world.until(lambda: len(telegram.posts) == 4)
        said = {account: [m.text for m in telegram.sent if m.account == account] for account in ("main", "other")}
        assert said == {
            "main": ["one after nothing", "two after one"],
            "other": ["eins after nothing", "zwei after eins"],
        }


async def test_strangers_in_a_group_are_not_answered_and_not_told(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo()) as world:
        await passed_over(world, world.telegram.says("@tidings_bot hi", chat=GROUP, user=8))
        await passed_over(world, world.telegram.says("/help@tidings_bot", chat=GROUP, user=8))
        world.telegram.says("@tidings_bot hi", chat=GROUP, user=7)
        await world.telegram.until(lambda telegram: telegram.posts == ["you said: hi"])
        await world.settled()
        assert world.telegram.posts == ["you said: hi"]


async def test_a_group_may_be_admitted_as_a_whole(tmp_path: Path) -> None:
    echo = Echo()
    async with TelegramWorld(tmp_path, echo, allow=[f"telegram:{GROUP}"], clock=OwnedClock()) as world:
        telegram = world.telegram
        for user in (8, 9):
            telegram.says(f"@tidings_bot I am {user}", chat=GROUP, user=user)
        await world.until(lambda: len(telegram.posts_in(GROUP)) == 2)
        # In another group, and alone, its members are strangers.
        await passed_over(world, telegram.says("@tidings_bot me again", chat=-6, user=8))
        await passed_over(world, telegram.says("and me", chat=8))
        await world.until(lambda: telegram.posts_in(8))
        assert echo.heard == ["I am 8", "I am 9"]
        assert telegram.posts_in(8)[0].startswith("I don't know you yet.")
        assert telegram.posts_in(-6) == []


async def test_whoever_speaks_for_the_group_is_known_by_it(tmp_path: Path) -> None:
    """Telegram shows an anonymous administrator as one and the same bot, for all groups."""
    echo = Echo()
    async with TelegramWorld(tmp_path, echo, allow=[f"telegram:{SUPERGROUP}"]) as world:
        telegram = world.telegram
        telegram.open_chat(SUPERGROUP, title="Friends")
        anonymous = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
        chat = {"id": SUPERGROUP, "type": "supergroup", "title": "Friends"}
        message = {
            "message_id": 77,
            "date": 1,
            "chat": chat,
            "from": anonymous,
            "sender_chat": chat,
            "text": "/ask who am I",
            "entities": [{"type": "bot_command", "offset": 0, "length": 4}],
        }
        telegram.odd({"message": message})
        await telegram.until(lambda telegram: telegram.posts == ["you said: /ask who am I"])


async def test_other_bots_are_not_answered(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), settings={"groups": "all"}, allow=["telegram:-5"]) as world:
        telegram = world.telegram
        telegram.open_chat(GROUP)
        robot = {"id": 99, "is_bot": True, "first_name": "Robot", "username": "robot_bot"}
        chat = {"id": GROUP, "type": "group", "title": "Friends"}
        name = telegram.odd({"message": {"message_id": 77, "date": 1, "chat": chat, "from": robot, "text": "beep"}})
        await telegram.until(lambda telegram: name in telegram.confirmed)
        await world.settled()
        assert (world.runs(), telegram.posts) == ([], [])


async def test_a_group_that_becomes_a_supergroup_keeps_its_memory(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Rememberer(), clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.says("@tidings_bot one", chat=GROUP)
        await world.until(lambda: telegram.posts_in(GROUP) == ["one after nothing"])
        telegram.migrate(GROUP, SUPERGROUP)
        telegram.says("@tidings_bot two", chat=SUPERGROUP)
        await world.until(lambda: telegram.posts_in(SUPERGROUP) == ["two after one"])
        await world.restart()
        telegram.says("@tidings_bot three", chat=SUPERGROUP)
        await world.until(lambda: telegram.posts_in(SUPERGROUP)[1:] == ["three after one, two"])
        assert len(world.rows("SELECT * FROM conversations")) == 1


async def test_an_answer_follows_its_group_into_the_supergroup(tmp_path: Path) -> None:
    """Asked before the move, answered after it; nothing goes to where nobody is left to read it."""
    gate = Gate()
    async with TelegramWorld(tmp_path, Rememberer({"one": gate}), clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.says("@tidings_bot one", chat=GROUP)
        await gate.reached()
        telegram.migrate(GROUP, SUPERGROUP)
        await telegram.until(lambda telegram: not telegram.unconfirmed)
        gate.open()
        await world.until(lambda: telegram.posts_in(SUPERGROUP) == ["one after nothing"])
        assert telegram.posts_in(GROUP) == []
        # There the question has another id: a reply would stand below a stranger's message.
        assert [message.reply_to for message in telegram.sent] == [""]
        assert await world.gateway.desk.permitted(Target(adapter="telegram", chat=str(SUPERGROUP)))


async def test_a_group_that_was_admitted_stays_so_when_it_moves(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Rememberer(), allow=[f"telegram:{GROUP}"], clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.says("@tidings_bot one", chat=GROUP, user=8)
        await world.until(lambda: telegram.posts_in(GROUP) == ["one after nothing"])
        telegram.migrate(GROUP, SUPERGROUP)
        telegram.says("@tidings_bot two", chat=SUPERGROUP, user=8)
        await world.until(lambda: telegram.posts_in(SUPERGROUP) == ["two after one"])
