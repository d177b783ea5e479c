"""Going on elsewhere: a person continues a talk of their own in another chat, and comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.scenario.spine.test_linking import link_code
from tests.scenario.spine.test_talks import BOTH, Remembering, ask, titles
from tests.worlds.builders import body, target
from tests.worlds.world import Gate, Scripted, World, handed
from tidings.core.agent import Checkpoint, ChoicesOffered, Turn
from tidings.core.desk.people import Key, Scope
from tidings.core.inbound.talk_commands import BACK, BUSY, NO_TALKS, NOT_FOUND, NOTHING_BACK
from tidings.core.memory.handovers import Handover
from tidings.core.operations import offline
from tidings.core.roles import OWNER
from tidings.core.settings import Access, Rule
from tidings.core.types import Conversation, Sender, asker


async def there(world: World, text: str, chat: str = "70", sender: str = "70") -> str:
    """What the other platform answers."""
    return await ask(world, text, on="other", chat=chat, sender=sender)


async def linked(world: World) -> None:
    """paper:7 and other:70 are one person, by a code."""
    code = await link_code(world)
    assert "Done" in await there(world, f"/link {code}")
    await world.paper.until(lambda paper: "is now linked with you" in paper.posts_in("1")[-1])
    await world.settled()


def two(tmp_path: Path, agent: object, **more: object) -> World:
    return World(tmp_path, agent, **{"platforms": BOTH, "allow": ["paper:7"], **more})  # type: ignore[arg-type]


async def test_a_linked_person_goes_on_elsewhere_and_each_answer_goes_where_it_was_asked(tmp_path: Path) -> None:
    """F5, F17: the title and the last line are confirmed, the memory is the same, and there is a way back."""
    agent = Remembering()
    async with two(tmp_path, agent) as world:
        await ask(world, "my garden")
        await ask(world, "has tulips")
        await linked(world)
        assert titles(await there(world, "/continue")) == ["my garden"]
        told = await there(world, "/continue 1")
        assert told == "We go on with “my garden” here; /continue back returns.\nLast line: [my garden] has tulips"
        before = list(world.paper.posts)
        assert await there(world, "and roses") == "[my garden, has tulips] and roses"
        assert world.paper.posts == before
        assert await ask(world, "more") == "[my garden, has tulips, and roses] more"
        assert {turn.message.conversation.id for turn in agent.turns} == {"paper:main:1"}
        assert await there(world, "/continue back") == BACK
        assert await there(world, "who are you") == "[] who are you"
        assert await there(world, "/continue back") == NOTHING_BACK
        assert await ask(world, "still") == "[my garden, has tulips, and roses, more] still"


async def test_without_a_link_nothing_from_elsewhere_is_listed(tmp_path: Path) -> None:
    """F5: two accounts of one human are two people until a code links them."""
    async with two(tmp_path, Remembering(), allow=["paper:7", "other:70"]) as world:
        await ask(world, "my garden")
        assert await there(world, "/continue") == NO_TALKS
        assert await there(world, "/continue my garden") == NOT_FOUND


async def test_a_hand_over_survives_a_kill(tmp_path: Path) -> None:
    async with two(tmp_path, Remembering()) as world:
        await ask(world, "my garden")
        await linked(world)
        await there(world, "/continue garden")
        await world.settled()
        await world.crash()
        await world.start()
        assert await there(world, "and roses") == "[my garden] and roses"
        await world.settled()
        await there(world, "/continue back")
        await world.settled()
        await world.crash()
        await world.start()
        assert await there(world, "hi") == "[] hi"


async def test_messages_right_behind_the_command_belong_to_the_continued_talk(tmp_path: Path) -> None:
    async with two(tmp_path, Remembering()) as world:
        await ask(world, "my garden")
        await linked(world)
        other = {"adapter": "other", "chat": "70", "sender": "70"}
        said = ("/continue garden", "roses")
        await asyncio.gather(*(world.receive(handed(text, **other)) for text in said))
        await world.settled()
        assert world.papers["other"].posts_in("70")[-1] == "[my garden] roses"


async def test_what_was_asked_before_is_answered_where_it_was_asked(tmp_path: Path) -> None:
    """F5."""
    gate = Gate()
    async with two(tmp_path, Remembering(gates={"slow": gate})) as world:
        await ask(world, "my garden")
        await linked(world)
        world.paper.says("slow")
        await gate.reached()
        await there(world, "/continue garden")
        world.papers["other"].says("next", chat="70", sender="70")
        await world.eventually(lambda: len(world.runs()) == 3)
        assert [row["state"] for row in world.runs()] == ["done", "running", "waiting"], "one run at a time"
        gate.open()
        await world.papers["other"].until(lambda paper: paper.posts_in("70")[-1] == "[my garden, slow] next")
        assert world.paper.posts_in("1")[-1] == "[my garden] slow"


async def test_two_chats_that_write_into_one_conversation_take_turns(tmp_path: Path) -> None:
    async with two(tmp_path, Remembering()) as world:
        await ask(world, "my garden")
        await linked(world)
        await there(world, "/continue garden")
        for number in range(5):
            world.paper.says(f"a{number}")
            world.papers["other"].says(f"b{number}", chat="70", sender="70")
        await world.eventually(lambda: len(world.runs()) == 11)
        await world.settled()
        said = [turn.message.text for turn in world.agents["bot"].turns]  # type: ignore[attr-defined]
        kept = world.rows("SELECT text FROM history WHERE author = 'person' ORDER BY seq")
        assert [row["text"] for row in kept] == said
        assert [text for text in said if text[0] == "a"] == [f"a{number}" for number in range(5)]
        assert [text for text in said if text[0] == "b"] == [f"b{number}" for number in range(5)]
        assert [post[-2:] for post in world.papers["other"].posts_in("70")[-5:]] == [f"b{n}" for n in range(5)]


@pytest.mark.parametrize("clocked", ["paper", "other"])
async def test_two_chats_take_turns_also_where_only_one_platform_tells_the_time(tmp_path: Path, clocked: str) -> None:
    gate = Gate()
    agent = Remembering(gates={"slow": gate})
    async with two(tmp_path, agent) as world:
        await ask(world, "my garden")
        await linked(world)
        await there(world, "/continue garden")
        world.paper.says("slow")
        await gate.reached()
        other = {"adapter": "other", "chat": "70", "sender": "70"}
        for number, place in enumerate([{}, other, other, {}]):
            said = handed(f"{number}", **place)
            # The later of two overtook the earlier one on its way.
            at = 1_763_000_000.0 - number if said.target.adapter == clocked else 0.0
            await world.receive(replace(said, said=at))
        gate.open()
        await world.settled()
        expected = ["3", "0", "1", "2"] if clocked == "paper" else ["0", "2", "1", "3"]
        assert [turn.message.text for turn in agent.turns][-4:] == expected


async def test_undo_retry_status_and_stop_act_on_the_continued_talk(tmp_path: Path) -> None:
    gate = Gate()
    async with two(tmp_path, Remembering(gates={"slow": gate})) as world:
        await ask(world, "my garden")
        await ask(world, "has tulips")
        await linked(world)
        await there(world, "/continue garden")
        assert await there(world, "/retry") == "[my garden] has tulips"
        assert "Undone: “has tulips”" in await there(world, "/undo")
        assert await ask(world, "here") == "[my garden] here"
        world.paper.says("slow")
        await gate.reached()
        assert "Working on your message" in await there(world, "/status")
        assert await there(world, "/continue back") == BUSY
        assert await there(world, "/continue garden") == "That is the talk you are in."
        world.papers["other"].says("/stop", chat="70", sender="70")
        await world.paper.until(lambda paper: paper.posts_in("1")[-1] == "Stopped by 70.")


async def test_a_new_talk_ends_the_hand_over(tmp_path: Path) -> None:
    async with two(tmp_path, Remembering()) as world:
        await ask(world, "my garden")
        await linked(world)
        await there(world, "of my own")
        await there(world, "/continue garden")
        assert "This is a new conversation" in await there(world, "/new")
        assert await there(world, "hi") == "[] hi"
        assert await ask(world, "still") == "[my garden] still"
        assert titles(await there(world, "/sessions")) == ["my garden", "hi", "of my own"]


async def test_an_earlier_talk_of_the_same_chat_goes_on_and_back(tmp_path: Path) -> None:
    """F17."""
    async with World(tmp_path, Remembering()) as world:
        for text in ("tulips", "/new", "piano", "/new", "taxes"):
            await ask(world, text)
        assert titles(await ask(world, "/continue")) == ["piano", "tulips"]
        assert "“tulips”" in await ask(world, "/continue TULIPS")
        assert await ask(world, "red ones") == "[tulips] red ones"
        assert "“piano”" in await ask(world, "/continue piano")
        assert await ask(world, "scales") == "[piano] scales"
        await world.settled()
        await world.crash()
        await world.start()
        assert await ask(world, "again") == "[piano, scales] again"
        assert await ask(world, "/continue back") == BACK
        assert await ask(world, "due") == "[taxes] due"
        await ask(world, "/continue tulips")
        await ask(world, "/new")
        assert await ask(world, "fresh") == "[] fresh"
        assert await ask(world, "/continue back") == NOTHING_BACK
        found = world.rows("SELECT generation FROM talks WHERE generation > 0 ORDER BY generation")
        assert [row["generation"] for row in found] == [1, 2, 3, 4], "a new talk never continues an earlier one"


async def test_an_earlier_talk_goes_on_with_the_checkpoint_it_ended_with(tmp_path: Path) -> None:
    def remembered(turn: Turn) -> Checkpoint:
        return Checkpoint((turn.checkpoint or b"") + turn.message.text.encode() + b";")

    agent = Scripted(lambda turn: (turn.checkpoint or b"nothing").decode(), remembered)
    async with World(tmp_path, agent) as world:
        for text in ("tulips", "red", "/new", "piano"):
            await ask(world, text)
        await ask(world, "/continue tulips")
        assert await ask(world, "more") == "tulips;red;"
        await ask(world, "/continue back")
        assert await ask(world, "more") == "piano;"


async def test_an_answer_in_the_making_comes_first(tmp_path: Path) -> None:
    gate = Gate()
    async with World(tmp_path, Remembering(gates={"slow": gate})) as world:
        await ask(world, "tulips")
        await ask(world, "/new")
        world.paper.says("slow")
        await gate.reached()
        assert await ask(world, "/continue tulips") == BUSY
        gate.open()
        await world.paper.until(lambda paper: paper.posts[-1] == "[] slow")
        assert "“tulips”" in await ask(world, "/continue tulips")


async def test_a_talk_that_was_ended_elsewhere_is_continued_there(tmp_path: Path) -> None:
    async with two(tmp_path, Remembering()) as world:
        for text in ("tulips", "/new", "piano"):
            await ask(world, text)
        await linked(world)
        assert titles(await there(world, "/continue")) == ["piano"]
        tulips = next(row["id"] for row in world.rows("SELECT id, title FROM talks") if row["title"] == "tulips")
        told = await there(world, f"/continue {tulips}")
        assert told.startswith("That talk was ended by /new in its own chat. Send /continue ")
        assert await there(world, "hi") == "[] hi"


async def test_words_that_fit_several_talks_continue_none(tmp_path: Path) -> None:
    async with World(tmp_path, Remembering()) as world:
        for text in ("red tulips", "/new", "white tulips", "/new", "taxes"):
            await ask(world, text)
        answer = await ask(world, "/continue tulips")
        assert titles(answer) == ["white tulips", "red tulips"]
        assert "Several fit" in answer
        assert await ask(world, "due") == "[taxes] due"


async def test_a_group_continues_only_what_was_said_in_that_group(tmp_path: Path) -> None:
    """C6: in a group nobody lists or continues what is private, and in private nobody what a group said."""
    async with World(tmp_path, Remembering(), allow=["paper:7", "paper:8"]) as world:
        await ask(world, "a secret")
        await ask(world, "other group", chat="-6", private=False)
        for text in ("the party", "/new", "the bill"):
            await ask(world, text, chat="-5", private=False)
        ids = {row["title"]: row["id"] for row in world.rows("SELECT id, title FROM talks")}
        assert titles(await ask(world, "/continue", chat="-5", private=False)) == ["the party"]
        for foreign in ("a secret", "other group"):
            for wanted in (foreign, ids[foreign]):
                assert await ask(world, f"/continue {wanted}", chat="-5", private=False) == NOT_FOUND
        assert await ask(world, f"/continue {ids['the party']}") == NOT_FOUND
        await ask(world, "/continue party", chat="-5", private=False)
        assert await ask(world, "cake", chat="-5", sender="8", private=False) == "[the party] cake"


async def test_a_thread_of_a_group_goes_on_in_another_thread_of_it(tmp_path: Path) -> None:
    async with World(tmp_path, Remembering()) as world:
        world.paper.says("the party", chat="-5", thread="1", private=False)
        await world.paper.until(lambda paper: paper.posts_in("-5", "1") == ["[] the party"])
        for text in ("/continue party", "cake"):
            before = len(world.paper.posts_in("-5", "2"))
            world.paper.says(text, chat="-5", thread="2", private=False)
            await world.paper.until(lambda paper, n=before: len(paper.posts_in("-5", "2")) > n)
        assert world.paper.posts_in("-5", "2")[-1] == "[the party] cake"


@pytest.mark.parametrize("how", ["unlinked", "removed", "blocked"])
async def test_a_hand_over_ends_when_the_conversation_is_no_longer_theirs(tmp_path: Path, how: str) -> None:
    async with two(tmp_path, Remembering()) as world:
        await ask(world, "my garden")
        await linked(world)
        await there(world, "/continue garden")
        people = world.gateway.desk.people
        match how:
            case "unlinked":
                await people.unlink(OWNER, "other:70")
                await people.admit(OWNER, "other:70")
            case "removed":
                await people.remove(OWNER, "other:70")
                await people.admit(OWNER, "other:70")
            case _:
                await people.block(OWNER, "other:70")
                await people.remove(OWNER, "other:70")
                await people.admit(OWNER, "other:70")
        assert await there(world, "hi") == "[] hi"
        assert await there(world, "/continue") == NO_TALKS
        await world.eventually(lambda: world.rows("SELECT * FROM handovers") == [])


async def test_a_hand_over_ends_at_once_so_that_no_notice_reaches_the_wrong_memory(tmp_path: Path) -> None:
    async with two(tmp_path, Remembering()) as world:
        await ask(world, "my garden")
        await linked(world)
        await there(world, "/continue garden")
        await world.gateway.desk.people.unlink(OWNER, "other:70")
        await world.eventually(lambda: world.rows("SELECT * FROM handovers") == [])
        await world.gateway.desk.owe(target("70", adapter="other"), body("for 70"), "test")
        await world.papers["other"].until(lambda paper: paper.posts_in("70")[-1] == "for 70")
        await world.settled()
        found = world.rows("SELECT conversation FROM history WHERE author = 'notice'")
        assert [row["conversation"] for row in found] == ["other:main:70"]


async def test_a_hand_over_that_a_person_lost_while_the_gateway_was_down_is_not_followed(tmp_path: Path) -> None:
    async with two(tmp_path, Remembering(), allow=["paper:7", "other:70"]) as world:
        await ask(world, "my garden")
        code = await link_code(world)
        await there(world, f"/link {code}")
        await there(world, f"/link {code}")
        await there(world, "/continue garden")
        await world.stop()
        with offline.open_people(world.home, Access(allow=tuple(world.allow))) as people:
            await people.unlink(OWNER, "other:70")
        await world.start()
        assert world.rows("SELECT * FROM handovers") == []
        assert await there(world, "hi") == "[] hi"


async def test_a_notice_is_remembered_in_the_talk_that_goes_on_where_it_lands(tmp_path: Path) -> None:
    async with two(tmp_path, Remembering()) as world:
        await ask(world, "my garden")
        await linked(world)
        await there(world, "/continue garden")
        await world.gateway.desk.owe(target("70", adapter="other"), body("rain is coming"), "test")
        await world.papers["other"].until(lambda paper: paper.posts_in("70")[-1] == "rain is coming")
        await world.settled()
        assert await there(world, "so?") == "[my garden, rain is coming] so?"


async def test_the_bot_of_the_continued_talk_answers(tmp_path: Path) -> None:
    rules = [Rule(platform="paper", bot="gardener")]
    agents = {"bot": Remembering("bot"), "gardener": Remembering("gardener")}
    async with two(tmp_path, agents, rules=rules) as world:
        await ask(world, "my garden")
        await linked(world)
        assert await there(world, "hi") == "bot[] hi"
        await there(world, "/continue garden")
        assert await there(world, "roses") == "gardener[my garden] roses"
        assert await there(world, "/retry") == "gardener[my garden] roses"
        await there(world, "/continue back")
        assert await there(world, "back") == "bot[hi] back"


async def test_the_rules_for_the_continued_talk_are_asked_at_each_message(tmp_path: Path) -> None:
    """A person who is moved to a limited bot does not keep the powerful one where they go on elsewhere."""
    agents = {"limited": Remembering("limited"), "powerful": Remembering("powerful")}
    async with two(tmp_path, agents, rules=[Rule(platform="paper", bot="powerful")]) as world:
        await ask(world, "my garden")
        await linked(world)
        await there(world, "/continue garden")
        assert (await there(world, "one")).startswith("powerful")
        await world.stop()
        world.rules = (Rule(platform="paper", bot="limited"), Rule(platform="other", bot="powerful"))
        await world.start()
        assert (await there(world, "two")).startswith("limited")
        await there(world, "/bg dig")
        await world.papers["other"].until(lambda paper: "limited[] dig" in paper.posts_in("70")[-1])
        await there(world, "/continue back")
        await there(world, "/continue garden")
        assert (await there(world, "three")).startswith("limited")


async def test_a_press_in_the_continued_talk_answers_its_question(tmp_path: Path) -> None:
    def offered(turn: Turn) -> ChoicesOffered | None:
        return ChoicesOffered(("yes", "no")) if turn.message.text == "ask" else None

    agent = Scripted(lambda turn: turn.message.text, offered)
    async with two(tmp_path, agent) as world:
        await ask(world, "my garden")
        await linked(world)
        await there(world, "/continue garden")
        assert await there(world, "ask") == "ask"
        other = world.papers["other"]
        question = other.visible("70")[-1]
        other.presses(question.id, question.choices[0].id, sender="70")
        await other.until(lambda paper: paper.posts_in("70")[-1] == "yes")
        conversations = {row["conversation"] for row in world.runs()}
        assert conversations == {"paper:main:1"}


async def test_a_button_of_a_talk_that_is_no_longer_theirs_is_dead(tmp_path: Path) -> None:
    agent = Scripted(lambda turn: turn.message.text, ChoicesOffered(("yes", "no")))
    async with two(tmp_path, agent) as world:
        await ask(world, "my garden")
        await linked(world)
        await there(world, "/continue garden")
        await there(world, "ask")
        await world.gateway.desk.people.unlink(OWNER, "other:70")
        await world.gateway.desk.people.admit(OWNER, "other:70")
        other = world.papers["other"]
        question = other.visible("70")[-1]
        other.presses(question.id, question.choices[0].id, sender="70")
        await other.until(lambda paper: paper.posts_in("70")[-1] == "This question is no longer open.")
        assert [turn.message.text for turn in agent.turns] == ["my garden", "ask"]


async def test_a_talk_over_the_api_goes_on_in_a_chat_of_the_keys_holder(tmp_path: Path) -> None:
    key = Key("key_1", "laptop", "digest", (Scope.CHAT,), 0.0, "paper:7")
    async with World(tmp_path, Remembering(), allow=["paper:7", "paper:8"]) as world:
        await world.gateway.desk.people.add_key(OWNER, key)
        place = Conversation(adapter="paper", account="main", chat="key_1", thread="plans")
        said = replace(handed("by key", conversation=place), sender=Sender(id="key_1", key="key_1"))
        await world.receive(said)
        await world.settled()
        assert await ask(world, "/continue key", chat="8", sender="8") == NOT_FOUND
        assert "“by key”" in await ask(world, "/continue by key")
        assert await ask(world, "more") == "[by key] more"


async def test_what_is_continued_elsewhere_stays_its_owners(tmp_path: Path) -> None:
    """C6: also a talk that began with a message from the other chat."""
    async with two(tmp_path, Remembering(), allow=["paper:7"]) as world:
        await ask(world, "my garden")
        await linked(world)
        await there(world, "/continue garden")
        await ask(world, "/new")
        assert await there(world, "my taxes") == "[] my taxes"
        await world.gateway.desk.people.unlink(OWNER, "other:70")
        await world.gateway.desk.people.admit(OWNER, "other:70")
        assert await there(world, "/sessions") == NO_TALKS
        assert titles(await ask(world, "/sessions")) == ["my taxes", "my garden"]


async def test_a_group_never_follows_a_hand_over_to_what_is_private(tmp_path: Path) -> None:
    """Whatever a row says."""
    async with World(tmp_path, Remembering()) as world:
        await ask(world, "a secret")
        await ask(world, "hello", chat="-5", private=False)
        there, here = (Conversation(adapter="paper", account="main", chat=chat) for chat in ("1", "-5"))
        said = handed("hi", chat="-5", private=False)
        forged = Handover(here.id, there, "", "", asker(here, said.target, said.sender))
        await world.gateway._store.write(lambda tx: world.gateway._parts.entrance.continuing.begin(tx, forged, 0.0))
        assert await ask(world, "and?", chat="-5", private=False) == "[hello] and?"


async def test_a_talk_is_found_by_an_identity_that_names_an_account(tmp_path: Path) -> None:
    async with two(tmp_path, Remembering(), allow=["paper:7", "other@main:70"]) as world:
        await there(world, "from there")
        await world.gateway.desk.people.link(OWNER, "paper:7", "other@main:70")
        assert titles(await ask(world, "/continue")) == ["from there"]
        await ask(world, "/continue 1")
        assert await ask(world, "more") == "[from there] more"
