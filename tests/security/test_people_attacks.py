"""Attacks on who may do what: names like ids, races in one commit, other spellings of an id, hostile strangers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.scenario.spine.test_linking import BOTH, answer, link_code
from tests.scenario.spine.test_pairing import CODE, button, meet
from tests.worlds.fakes import FakeClock
from tests.worlds.world import Echo, World, handed
from tidings.core.errors import TidingsError, Unkeepable, Unknown
from tidings.core.roles import OWNER, Role, described
from tidings.core.types import Kind, Refused, Sender, Stored


async def roles(world: World) -> dict[tuple[str, ...], Role]:
    return {line.identities: line.role for line in await world.gateway.desk.people.all()}


async def tell(world: World, text: str, sender: str) -> str:
    before = len(world.paper.posts_in(sender))
    world.paper.says(text, sender=sender, chat=sender)
    await world.paper.until(lambda paper: len(paper.posts_in(sender)) > before)
    return world.paper.posts_in(sender)[-1]


async def pair_as(world: World, sender: str, name: str) -> None:
    """A stranger with a name of their own choice is admitted."""
    world.paper.open_chat(sender)
    await world.receive(replace(handed("hi", sender=sender, chat=sender), sender=Sender(id=sender, name=name)))
    (row,) = world.rows("SELECT id FROM codes WHERE identity = ?", f"paper:{sender}")
    await world.admit(row["id"])
    await world.settled()


# Names.


async def test_a_name_that_looks_like_an_id_never_stands_for_that_id(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=[], owners=["paper:7"]) as world:
        await world.admit("paper:20", Role.ADMIN)
        await pair_as(world, "666", "slack:U5")
        assert await tell(world, "/people role slack:U5 admin", "7") == "Nobody is known as slack:U5."
        await tell(world, "/people link paper:20 slack:U5", "7")
        await tell(world, "/people block slack:U6", "7")
        found = await roles(world)
        assert found["paper:20", "slack:U5"] is Role.ADMIN
        assert found[("paper:666",)] is Role.MEMBER


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Ann (paper:1)", "Ann paper:1 (paper:8)"),
        ("Ann\nBob\x1b[2J", "Ann Bob[2J (paper:8)"),
        ("\u202eAnn\u200b", "Ann (paper:8)"),
        ("x" * 10_000, f"{'x' * 60} (paper:8)"),
        (" \u200b ", "paper:8"),
    ],
)
def test_a_chosen_name_hides_nothing(name: str, shown: str) -> None:
    assert described(name, "paper:8") == shown


# Other spellings of one id, and names that only the gateway uses.


async def test_an_admin_cannot_reach_an_owner_by_another_spelling(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=[], owners=["paper@main:5"]) as world:
        await world.admit("paper:8", Role.ADMIN)
        await world.admit("paper:666")
        for order in ("block paper:5", "admit paper:5 guest", "link paper:666 paper:5", "block paper@main:5"):
            assert (await tell(world, f"/people {order}", "8")).startswith("Only an owner may"), order
        assert "an owner here" in await tell(world, "/whoami", "5")


@pytest.mark.parametrize("name", ["key:owner", "key:abc"])
async def test_a_key_is_no_identity(tmp_path: Path, name: str) -> None:
    async with World(tmp_path, Echo(), allow=[]) as world:
        await world.admit("paper:666")
        with pytest.raises(Unknown):
            await world.admit(name)
        with pytest.raises(Unknown):
            await world.gateway.desk.people.link(OWNER, "paper:666", name)


async def test_an_admin_links_only_people_who_are_known(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=[]) as world:
        await world.admit("paper:8", Role.ADMIN)
        await world.admit("paper:666")
        assert "never admitted" in await tell(world, "/people link paper:666 paper:me", "8")


async def test_a_group_that_speaks_by_itself_is_a_guest(tmp_path: Path) -> None:
    """An anonymous admin of a group has the group's own id as sender."""
    async with World(tmp_path, Echo(), allow=["paper:-100"]) as world:
        world.paper.says("/whoami", sender="-100", chat="-100", private=False)
        await world.paper.until(lambda paper: paper.posts_in("-100"))
        assert "a guest here" in world.paper.posts_in("-100")[0]


# Two changes in one commit.


async def test_a_block_wins_over_a_link_in_the_same_commit(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms=BOTH, allow=[]) as world:
        await world.admit("paper:7")
        await world.admit("other:70")
        code = await link_code(world)
        await answer(world, f"/link {code}")
        blocking = asyncio.ensure_future(world.gateway.desk.people.block(OWNER, "other:70"))
        await asyncio.sleep(0)
        await world.receive(handed(f"/link {code}", sender="70", chat="70", adapter="other"))
        await blocking
        await world.settled()
        assert (await roles(world))[("other:70",)] is Role.BLOCKED


async def test_a_removed_admin_admits_nobody_in_the_same_commit(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=[]) as world:
        await world.admit("paper:8", Role.ADMIN)
        world.paper.open_chat("8")
        removing = asyncio.ensure_future(world.remove("paper:8"))
        await asyncio.sleep(0)
        assert isinstance(await world.receive(handed("/people admit paper:666", sender="8", chat="8")), Stored)
        await removing
        await world.settled()
        assert await roles(world) == {}


async def test_a_role_does_not_bring_back_who_was_removed_in_the_same_commit(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=[]) as world:
        line = await world.admit("paper:8")
        people = world.gateway.desk.people
        done = await asyncio.gather(
            people.remove(OWNER, line.id), people.set_role(OWNER, line.id, Role.ADMIN), return_exceptions=True
        )
        assert isinstance(done[1], Unknown)
        assert await roles(world) == {}


async def test_a_link_sees_a_promotion_in_the_same_commit(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=[]) as world:
        for sender, role in (("8", Role.ADMIN), ("20", Role.MEMBER), ("666", Role.MEMBER)):
            await world.admit(f"paper:{sender}", role)
        people = world.gateway.desk.people
        admin = people.find(handed("x", sender="8", chat="8"))
        await asyncio.gather(
            people.set_role(OWNER, "paper:20", Role.OWNER),
            people.link(admin, "paper:666", "paper:20"),
            return_exceptions=True,
        )
        assert (await roles(world))[("paper:666",)] is Role.MEMBER


# What settings say.


async def test_links_give_nothing_where_only_the_settings_count(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7"]) as world:
        code = await link_code(world)
        await answer(world, f"/link {code}")
        await world.stop()
        world.access["settings_only"] = True
        await world.start()
        assert (
            world.gateway.desk.people.find(handed("x", sender="70", chat="70", adapter="other")).role is Role.STRANGER
        )
        with pytest.raises(Unkeepable, match="settings_only is on"):
            await world.gateway.desk.people.link(OWNER, "paper:7", "other:71")


async def test_a_role_of_the_settings_is_never_copied_into_the_store(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms=BOTH, allow=[], owners=["paper:7"]) as world:
        await world.gateway.desk.people.link(OWNER, "paper:7", "other:70")
        await world.admit("other:70")
        await world.stop()
        world.owners.clear()
        await world.start()
        assert set((await roles(world)).values()) == {Role.STRANGER}


# Strangers.


async def test_a_stranger_learns_nothing_by_unlinking_and_stores_little(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=[], access={"strangers": "ignore"}) as world:
        for sender in ("20", "21"):
            await world.gateway.desk.people.admit(OWNER, f"paper:{sender}", None, "Bob")
        for number in range(30):
            said = handed(f"/link remove {'Bob' if number % 2 else 'paper:20'}", sender="9", chat="9")
            await world.receive(said)
        await world.settled()
        assert world.paper.posts_in("9") == []
        assert len(world.rows("SELECT * FROM inbox")) <= 5


async def test_the_hour_of_refused_codes_begins_with_the_last_guess(tmp_path: Path) -> None:
    clock = FakeClock()
    async with World(tmp_path, Echo(), allow=[], clock=clock) as world:
        for number, pause in enumerate((3590, 0, 0, 0, 20)):
            with pytest.raises(Unknown):
                await world.admit(f"AAAA-AA{number:02}")
            await clock.advance(pause)
        with pytest.raises(Unkeepable, match="closed for an hour"):
            await world.admit("AAAA-AAAA")


async def test_what_a_stranger_says_after_opening_the_chat_is_answered(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), owners=["paper:7"]) as world:
        code = await meet(world, "/start")
        world.paper.says("what can you do?", sender="8", chat="8")
        await world.settled()
        await world.admit(code)
        await world.paper.until(lambda paper: paper.posts_in("8")[-1:] == ["you said: what can you do?"])


async def test_a_message_that_was_changed_or_deleted_before_admission_is_answered_as_it_is(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo, owners=["paper:7"]) as world:
        keys = {}
        for sender in ("8", "9"):
            world.paper.open_chat(sender)
            said = handed("my password is hunter2", sender=sender, chat=sender)
            assert isinstance(await world.receive(said), Refused)
            keys[sender] = said
        edit = replace(keys["8"], key="e1", kind=Kind.EDITED, about=keys["8"].key, text="hello")
        gone = replace(keys["9"], key="d1", kind=Kind.DELETED, about=keys["9"].key, sender=Sender(id="", trusted=True))
        await world.receive(edit)
        await world.receive(gone)
        for sender in ("8", "9"):
            await world.admit(f"paper:{sender}")
        await world.settled()
        assert echo.heard == ["hello"]


async def test_the_words_of_a_stranger_go_with_the_code(tmp_path: Path) -> None:
    clock = FakeClock()
    async with World(tmp_path, Echo(), owners=["paper:7"], clock=clock) as world:
        await meet(world)
        await clock.advance(3700)
        # The time goes on: the sweep that was due at once may just have begun.
        await world.until(lambda: world.rows("SELECT * FROM codes") == [])


async def test_a_message_of_a_stranger_keeps_to_the_limit(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo, allow=[], limits={"message_characters": 1000}) as world:
        world.paper.open_chat("8")
        await world.receive(handed("x" * 5000, sender="8", chat="8"))
        await world.admit("paper:8")
        await world.settled()
        assert [len(text) for text in echo.heard] == [1000]


async def test_a_link_ends_the_request_that_the_stranger_made_before(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms=BOTH, allow=[], owners=["paper:7"]) as world:
        world.paper.says("/sethome")
        await world.paper.until(lambda paper: paper.posts_in("1"))
        other = world.papers["other"]
        world.ignored.add(other.says("hi", sender="70", chat="70"))
        await world.paper.until(lambda paper: "other:70" in paper.posts_in("1")[-1])
        asked = world.paper.visible("1")[-1]
        code = await link_code(world)
        await answer(world, f"/link {code}")
        world.paper.presses(asked.id, button(asked, "Block"))
        await world.paper.until(lambda paper: paper.posts_in("1")[-1].startswith("This request has already been"))
        assert (await roles(world))["paper:7", "other:70"] is Role.OWNER


# Among known people.


async def test_an_identity_that_came_later_does_not_throw_out_the_first(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), platforms=BOTH, allow=["paper:7"]) as world:
        code = await link_code(world)
        await answer(world, f"/link {code}")
        assert (await answer(world, "/link remove paper:7")).startswith("Send this from paper:7")
        assert await answer(world, "/link remove other:70") == "other:70 is no longer linked with you."


async def test_in_a_group_nobody_undoes_what_another_said(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=["paper:8"], owners=["paper:7"]) as world:
        world.paper.says("remember this", sender="7", chat="5", private=False)
        await world.paper.until(lambda paper: paper.posts_in("5"))
        world.paper.says("/undo", sender="8", chat="5", private=False)
        await world.paper.until(lambda paper: "somebody else's" in paper.posts_in("5")[-1])
        world.paper.says("/people", sender="7", chat="5", private=False)
        await world.paper.until(lambda paper: paper.posts_in("5")[-1].startswith("Please send me /people"))


async def test_forgetting_leaves_no_name_of_a_person_in_the_settings(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=["paper:7"]) as world:
        people = world.gateway.desk.people
        await people.rename(OWNER, "paper:7", "Ann Smith")
        await people.link(OWNER, "paper:7", "paper:77")
        await people.forget(OWNER, "paper:7")
        assert world.rows("SELECT * FROM persons") == []
        assert world.rows("SELECT * FROM identities") == []


async def test_a_request_of_an_odd_sender_is_answered_for_the_one_who_presses(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), owners=["paper:7"]) as world:
        world.paper.says("/sethome")
        await world.paper.until(lambda paper: paper.posts_in("1"))
        world.paper.open_chat("odd")
        await world.receive(handed("hi", sender="a b", chat="odd"))
        await world.paper.until(lambda paper: "paper:a b" in paper.posts_in("1")[-1])
        asked = world.paper.visible("1")[-1]
        world.paper.presses(asked.id, button(asked, "Admit"))
        await world.paper.until(lambda paper: "cannot be changed" in paper.posts_in("1")[-1])
        assert CODE.search(world.paper.posts_in("odd")[0])
        with pytest.raises(TidingsError):
            await world.admit("paper:a b")
