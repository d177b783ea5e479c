"""Linking: one person brings along another identity by a code, and by nothing else."""

from __future__ import annotations

from pathlib import Path

from tests.scenario.spine.test_access import speak
from tests.scenario.spine.test_pairing import CODE
from tests.worlds.fakes import FakeClock
from tests.worlds.world import KEYED, Echo, World
from tidings.core.roles import OWNER, Role

BOTH = {"paper": KEYED, "other": KEYED}


async def link_code(world: World, sender: str = "7", chat: str = "1") -> str:
    before = len(world.paper.posts_in(chat))
    world.paper.says("/link", sender=sender, chat=chat)
    await world.paper.until(lambda paper: len(paper.posts_in(chat)) > before)
    found = CODE.search(world.paper.posts_in(chat)[-1])
    assert found is not None, world.paper.posts_in(chat)[-1]
    return found[0]


async def answer(world: World, text: str, sender: str = "70", chat: str = "70", *, refused: bool = False) -> str:
    """What the other platform answers to a command; of a message that is refused no row is stored."""
    other = world.papers["other"]
    before = len(other.posts_in(chat))
    key = other.says(text, sender=sender, chat=chat)
    if refused:
        world.ignored.add(key)
    await other.until(lambda paper: len(paper.posts_in(chat)) > before)
    return other.posts_in(chat)[-1]


async def roles(world: World) -> dict[tuple[str, ...], Role]:
    return {tuple(sorted(line.identities)): line.role for line in await world.gateway.desk.people.all()}


async def test_a_stranger_with_a_code_is_the_same_person_there_and_here(tmp_path: Path) -> None:
    """F5: by a code, never by what somebody says about themselves."""
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7"]) as world:
        code = await link_code(world)
        assert "Done: this is now also you" in await answer(world, f"/link {code}")
        await world.paper.until(lambda paper: "other:70 is now linked with you" in paper.posts_in("1")[-1])
        assert await answer(world, "hi") == "you said: hi"
        assert "You are also paper:7" in await answer(world, "/whoami")
        assert await roles(world) == {("other:70", "paper:7"): Role.MEMBER}
        await world.restart()
        assert await answer(world, "still?") == "you said: still?"


async def test_a_link_gives_nothing_once_the_settings_drop_the_person(tmp_path: Path) -> None:
    """D4: settings and stored people do not merge; without its role in the settings the whole person is out."""
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7"], access={"strangers": "ignore"}) as world:
        code = await link_code(world)
        await answer(world, f"/link {code}")
        await world.stop()
        world.allow.clear()
        await world.start()
        for paper, sender in ((world.paper, "7"), (world.papers["other"], "70")):
            key = paper.says("hi", sender=sender, chat="1" if sender == "7" else "70")
            world.ignored.add(key)
            await paper.until(lambda paper, key=key: key in paper.confirmed)
        await world.settled()
        assert "you said: hi" not in (*world.paper.posts, *world.papers["other"].posts)


async def test_what_somebody_says_about_themselves_links_nothing(tmp_path: Path) -> None:
    """F5: link by text."""
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7", "other:70"]) as world:
        await link_code(world)
        for text in ("/link paper:7", "/link me", "/link psn_1"):
            assert await answer(world, text) == "This code is wrong, expired or already used."
        assert await roles(world) == {("paper:7",): Role.MEMBER, ("other:70",): Role.MEMBER}


async def test_a_code_links_once_and_for_five_minutes(tmp_path: Path) -> None:
    clock = FakeClock()
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7"], clock=clock) as world:
        late = await link_code(world)
        await clock.advance(301)
        assert await answer(world, f"/link {late}", "71", "71") == "This code is wrong, expired or already used."
        code = await link_code(world)
        assert (await answer(world, f"/link {code}")).startswith("Done")
        assert await answer(world, f"/link {code}", "72", "72") == "This code is wrong, expired or already used."
        assert await roles(world) == {("other:70", "paper:7"): Role.MEMBER}


async def test_a_new_code_makes_the_last_one_void(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7"]) as world:
        first, second = await link_code(world), await link_code(world)
        assert await answer(world, f"/link {first}") == "This code is wrong, expired or already used."
        assert (await answer(world, f"/link {second}")).startswith("Done")


async def test_a_known_person_is_asked_to_repeat_the_code_before_two_become_one(tmp_path: Path) -> None:
    """Somebody who is talked into entering another's code is told what it means first."""
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7", "other:70"]) as world:
        code = await link_code(world)
        assert "This makes you and paper:7 one person" in await answer(world, f"/link {code}")
        assert len(await roles(world)) == 2
        assert (await answer(world, f"/link {code}")).startswith("Done")
        assert await roles(world) == {("other:70", "paper:7"): Role.MEMBER}


async def test_a_code_never_raises_the_one_who_made_it(tmp_path: Path) -> None:
    """D2: a member who gets an owner to enter their code stays a member."""
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7"], owners=["other:70"]) as world:
        code = await link_code(world)
        for _ in range(2):
            assert "may do more than the one that made the code" in await answer(world, f"/link {code}")
        assert await roles(world) == {("paper:7",): Role.MEMBER, ("other:70",): Role.OWNER}


async def test_codes_are_not_made_in_groups_and_not_for_guests(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7", "paper:5"]) as world:
        for sender in ("7", "9"):
            world.paper.says("/link", sender=sender, chat="5", private=False)
        await world.paper.until(lambda paper: len(paper.posts_in("5")) == 2)
        assert world.paper.posts_in("5")[0].startswith("Please send me /link in a private chat")
        assert world.paper.posts_in("5")[1].startswith("You can't use /link: you are a guest here")
        assert world.rows("SELECT * FROM codes") == []


async def test_five_wrong_codes_close_linking_for_that_person_and_leave_no_more_rows(tmp_path: Path) -> None:
    clock = FakeClock()
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7"], clock=clock) as world:
        code = await link_code(world)
        for guess in "ABCDE":
            assert (await answer(world, f"/link {guess * 8}")).startswith("This code is wrong")
        assert "I don't know you yet" in await answer(world, f"/link {code}", refused=True)
        rows = len(world.rows("SELECT * FROM inbox"))
        key = world.papers["other"].says(f"/link {code}", sender="70", chat="70")
        world.ignored.add(key)
        await world.papers["other"].until(lambda paper: key in paper.confirmed)
        assert len(world.rows("SELECT * FROM inbox")) == rows
        assert (await answer(world, f"/link {code}", "71", "71")).startswith("Done")


async def test_strangers_together_have_twenty_guesses_an_hour_and_known_people_are_not_held_up(tmp_path: Path) -> None:
    """S6: short codes keep a hard limit, however many accounts guess."""
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7", "other:7"]) as world:
        for number in range(20):
            stranger = str(100 + number // 4)
            assert (await answer(world, f"/link AAAA-{number:04}", stranger, stranger)).startswith("This code is wrong")
        code = await link_code(world)
        assert "I don't know you yet" in await answer(world, f"/link {code}", "200", "200", refused=True)
        assert "one person" in await answer(world, f"/link {code}", "7", "7")


async def test_a_link_can_be_taken_back_by_the_person_and_only_by_them(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7", "paper:9", "paper:99"]) as world:
        await world.gateway.desk.people.link(OWNER, "paper:9", "other:9")
        code = await link_code(world)
        await answer(world, f"/link {code}")
        world.paper.says("/link remove other:9")
        await world.paper.until(lambda paper: paper.posts_in("1")[-1] == "other:9 is not linked with you.")
        world.paper.says("/link remove other:12345")
        await world.paper.until(lambda paper: paper.posts_in("1")[-1] == "other:12345 is not linked with you.")
        world.paper.says("/link remove other:70")
        await world.paper.until(lambda paper: paper.posts_in("1")[-1] == "other:70 is no longer linked with you.")
        key = world.papers["other"].says("hi", sender="70", chat="70")
        world.ignored.add(key)
        await world.papers["other"].until(lambda paper: "I don't know you yet" in paper.posts_in("70")[-1])


async def test_removing_a_person_takes_every_identity_out(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms=BOTH, allow=[]) as world:
        await world.admit("paper:7")
        code = await link_code(world)
        await answer(world, f"/link {code}")
        await world.remove("other:70")
        await speak(world, "hi")
        key = world.papers["other"].says("hi", sender="70", chat="70")
        world.ignored.add(key)
        await world.papers["other"].until(lambda paper: "I don't know you yet" in paper.posts_in("70")[-1])
        assert "I don't know you yet" in world.paper.posts_in("1")[-1]
