"""Pairing: a stranger gets a code, the owner is asked once, and the message that brought the stranger is answered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scenario.spine.test_access import speak
from tests.simulators.paper.simulator import Kind
from tests.simulators.paper.wire import Message
from tests.worlds.fakes import FakeClock
from tests.worlds.world import Echo, World, handed
from tidings.core.errors import Unkeepable, Unknown
from tidings.core.people import codes
from tidings.core.roles import OWNER, Role
from tidings.core.types import Kind as Said
from tidings.core.types import Target

CODE = re.compile(r"[0-9A-Z]{4}-[0-9A-Z]{4}")
HOME = Target(adapter="paper", chat="home")


async def with_home(world: World) -> None:
    world.paper.open_chat("home")
    await world.set_home(HOME)


async def meet(world: World, text: str = "hi", sender: str = "8", chat: str = "8") -> str:
    """A stranger writes in private; returns the code that they are told."""
    world.ignored.add(world.paper.says(text, sender=sender, chat=chat))
    await world.paper.until(lambda paper: paper.posts_in(chat))
    found = CODE.search(world.paper.posts_in(chat)[-1])
    assert found is not None
    return found[0]


async def question(world: World) -> Message:
    """What the owner is asked, at home."""
    await world.paper.until(lambda paper: paper.posts_in("home"))
    return world.paper.visible("home")[-1]


def button(asked: Message, label: str) -> str:
    return next(choice.id for choice in asked.choices if choice.label == label)


async def test_a_stranger_is_admitted_by_a_button_and_what_they_wrote_is_answered(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo, owners=["paper:7"]) as world:
        await with_home(world)
        await meet(world, "can you help me?")
        asked = await question(world)
        assert "paper:8" in asked.text
        assert [choice.label for choice in asked.choices] == ["Admit", "Ignore", "Block"]
        assert echo.heard == []
        world.paper.presses(asked.id, button(asked, "Admit"))
        await world.paper.until(lambda paper: paper.posts_in("8")[-1:] == ["you said: can you help me?"])
        assert world.paper.posts_in("8")[-2].startswith("You're in.")
        assert world.paper.posts_in("home")[-1] == "paper:8 is admitted as a member."
        line = await world.gateway.desk.people.get("paper:8")
        assert (line.role, line.by) == (Role.MEMBER, "paper:7")
        await world.restart()
        world.paper.says("still?", sender="8", chat="8")
        await world.paper.until(lambda paper: paper.posts_in("8")[-1:] == ["you said: still?"])


async def test_an_owner_who_pairs_first_gets_the_alerts_and_the_next_requests(tmp_path: Path) -> None:
    """One person who runs it for themselves chooses no home."""
    async with World(tmp_path, Echo(), allow=[]) as world:
        code = await meet(world)
        await world.gateway.desk.people.admit(OWNER, code, Role.OWNER)
        await world.paper.until(lambda paper: paper.posts_in("8")[-1:] == ["you said: hi"])
        assert "Gateway alerts come here" in world.paper.posts_in("8")[-2]
        await meet(world, sender="9", chat="9")
        await world.paper.until(lambda paper: "paper:9" in paper.posts_in("8")[-1])
        asked = world.paper.visible("8")[-1]
        world.paper.presses(asked.id, button(asked, "Admit"), sender="8")
        await world.paper.until(lambda paper: paper.posts_in("9")[-1:] == ["you said: hi"])
        assert "Gateway alerts" not in world.paper.posts_in("9")[-2]


@pytest.mark.parametrize("way", ["/people admit", "desk"])
async def test_a_stranger_is_admitted_by_their_code_once(tmp_path: Path, way: str) -> None:
    """S15: a code works once."""
    async with World(tmp_path, Echo(), owners=["paper:7"]) as world:
        code = await meet(world)
        if way == "desk":
            await world.admit(code.lower().replace("-", " "))
        else:
            world.paper.says(f"{way} {code}")
        await world.paper.until(lambda paper: paper.posts_in("8")[-1:] == ["you said: hi"])
        await world.remove("paper:8")
        with pytest.raises(Unknown, match="this code is wrong, expired or already used"):
            await world.admit(code)
        assert world.rows("SELECT * FROM identities") == []


async def test_a_code_admits_the_stranger_who_got_it_and_nobody_who_passes_it_on(tmp_path: Path) -> None:
    """A forwarded code: the one who forwards it stays outside, whoever shows it to the owner."""
    async with World(tmp_path, Echo(), owners=["paper:7"]) as world:
        code = await meet(world)
        for text in (code, f"/people admit {code}", f"my code is {code}"):
            await speak(world, text, sender="9", chat="9")
        world.ignored.add(world.paper.says(f"/people admit {code}", sender="8", chat="8"))
        await world.settled()
        assert world.rows("SELECT * FROM identities") == []
        world.paper.says(f"/people admit {code}")
        await world.paper.until(lambda paper: paper.posts_in("8")[-1:] == ["you said: hi"])
        assert [row["id"] for row in world.rows("SELECT id FROM identities")] == ["paper:8"]


async def test_a_code_expires_after_an_hour(tmp_path: Path) -> None:
    clock = FakeClock()
    async with World(tmp_path, Echo(), owners=["paper:7"], clock=clock) as world:
        await with_home(world)
        code = await meet(world)
        asked = await question(world)
        await clock.advance(3601)
        with pytest.raises(Unknown, match="expired"):
            await world.admit(code)
        world.paper.presses(asked.id, button(asked, "Admit"))
        await world.paper.until(lambda paper: "expired" in paper.posts_in("home")[-1])
        assert world.rows("SELECT * FROM identities") == []


async def test_five_wrong_codes_close_admitting_by_code_for_an_hour_also_after_a_restart(tmp_path: Path) -> None:
    """S15: guesses are counted for each approver, and the count is stored."""
    clock = FakeClock()
    async with World(tmp_path, Echo(), owners=["paper:7"], clock=clock) as world:
        code = await meet(world)
        for guess in ("AAAA-AAAA", "BBBB-BBBB", "CCCC-CCCC", "DDDD-DDDD", "EEEE-EEEE"):
            with pytest.raises(Unknown, match="wrong"):
                await world.admit(guess)
        with pytest.raises(Unkeepable, match="closed for an hour"):
            await world.admit(code)
        await world.restart()
        with pytest.raises(Unkeepable, match="closed for an hour"):
            await world.admit(code)
        # Another approver has guessed nothing; and an id is no guess.
        world.paper.says(f"/people admit {code}")
        await world.paper.until(lambda paper: paper.posts_in("8")[-1:] == ["you said: hi"])
        await world.admit("paper:9")
        await clock.advance(3601)
        await speak(world, "hi", sender="10", chat="10")
        await world.paper.until(lambda paper: paper.posts_in("10"))
        found = CODE.search(world.paper.posts_in("10")[0])
        assert found is not None
        await world.admit(found[0])


async def test_a_stranger_gets_one_line_in_ten_minutes_and_it_tells_nothing_of_the_owner(tmp_path: Path) -> None:
    """D7."""
    clock = FakeClock()
    async with World(tmp_path, Echo(), owners=["paper:7"], allow=[], clock=clock) as world:
        await with_home(world)
        await meet(world)
        for text in ("hello?", "/start", "please"):
            await speak(world, text, sender="8", chat="8")
        await clock.advance(590)
        await speak(world, "now?", sender="8", chat="8")
        await world.settled()
        assert len(world.paper.posts_in("8")) == 1
        assert len(world.paper.posts_in("home")) == 1
        told = world.paper.posts_in("8")[0]
        assert not {"7", "home", "paper"} & set(re.split(r"[^a-z0-9]+", CODE.sub("", told.lower())))
        assert len(told.splitlines()) == 1
        await clock.advance(20)
        await speak(world, "again", sender="8", chat="8")
        await world.paper.until(lambda paper: len(paper.posts_in("8")) == 2)


async def test_three_strangers_may_wait_and_the_fourth_is_put_off(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), owners=["paper:7"]) as world:
        await with_home(world)
        for sender in ("11", "12", "13"):
            await meet(world, sender=sender, chat=sender)
        for text in ("hi", "hello?"):
            await speak(world, text, sender="14", chat="14")
        await world.settled()
        assert world.paper.posts_in("14") == [
            "I don't know you yet, and too many people are waiting right now. Please try again in an hour."
        ]
        assert len(world.paper.posts_in("home")) == 3
        assert len(await world.gateway.desk.people.waiting()) == 3


async def test_whoever_is_ignored_may_ask_again_after_an_hour(tmp_path: Path) -> None:
    clock = FakeClock()
    async with World(tmp_path, Echo(), owners=["paper:7"], clock=clock) as world:
        await with_home(world)
        await meet(world)
        asked = await question(world)
        world.paper.presses(asked.id, button(asked, "Ignore"))
        await world.paper.until(lambda paper: paper.posts_in("home")[-1].startswith("paper:8 is ignored"))
        await clock.advance(1000)
        await speak(world, "hello?", sender="8", chat="8")
        await world.settled()
        assert len(world.paper.posts_in("8")) == 1
        await clock.advance(2700)
        await speak(world, "now?", sender="8", chat="8")
        await world.paper.until(lambda paper: len(paper.posts_in("8")) == 2)


async def test_blocked_is_blocked_no_line_and_no_row_that_grows(tmp_path: Path) -> None:
    def size(world: World) -> list[int]:
        tables = ("inbox", "deliveries", "codes", "persons", "identities", "audit", "conversations")
        return [world.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"] for table in tables]

    async with World(tmp_path, Echo(), owners=["paper:7"]) as world:
        await with_home(world)
        await meet(world)
        asked = await question(world)
        world.paper.presses(asked.id, button(asked, "Block"))
        await world.paper.until(lambda paper: paper.posts_in("home")[-1] == "paper:8 is blocked.")
        await world.settled()
        before = size(world)
        for text in ("hi", "/help", "/link AAAA-AAAA"):
            await speak(world, text, sender="8", chat="8")
        await speak(world, "hi", sender="8", chat="1", private=False)
        await world.settled()
        assert size(world) == before
        assert len(world.paper.posts_in("8")) == 1
        await world.restart()
        await speak(world, "hi", sender="8", chat="8")
        await world.settled()
        assert size(world) == before


async def test_only_people_who_may_admit_can_press_and_the_request_stays_open(tmp_path: Path) -> None:
    """D5: a press by a group member who is no admin changes nothing."""
    async with World(tmp_path, Echo(), owners=["paper:7"], allow=["paper:5"], access={"admins": ("paper:6",)}) as world:
        world.paper.says("/sethome", chat="5", private=False)
        await world.paper.until(lambda paper: len(paper.posts_in("5")) == 1)
        await meet(world)
        await world.paper.until(lambda paper: len(paper.posts_in("5")) == 2)
        asked = world.paper.visible("5")[-1]
        for stranger in ("9", "10"):
            world.ignored.add(world.paper.presses(asked.id, button(asked, "Admit"), sender=stranger))
        await world.settled()
        assert world.rows("SELECT * FROM identities") == []
        pressed = [world.paper.presses(asked.id, button(asked, "Admit"), sender="6") for _ in range(2)]
        await world.paper.until(lambda paper: paper.posts_in("8")[-1:] == ["you said: hi"])
        await world.settled()
        assert len(pressed) == 2
        assert [row["person"] for row in world.rows("SELECT person FROM identities")] == [
            (await world.gateway.desk.people.get("paper:8")).id
        ]
        assert world.paper.posts_in("5")[-1] == "This request has already been answered or has expired."
        assert world.paper.posts_in("8").count("you said: hi") == 1


async def test_forged_buttons_do_nothing(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), owners=["paper:7"]) as world:
        await with_home(world)
        await meet(world)
        asked = await question(world)
        id = button(asked, "Admit").partition("/")[0]
        for choice in ("code_0000/admit", f"{id}/owner", f"{id}/", "code_", f"{id}/admit/admit"):
            await world.receive(handed("", kind=Said.PRESSED, choice=choice, about=asked.id))
        await world.settled()
        assert world.rows("SELECT * FROM identities") == []
        assert len(await world.gateway.desk.people.waiting()) == 1


async def test_where_there_are_no_buttons_the_question_says_what_to_write(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), owners=["paper:7"], kind=Kind(keyed_for=3600.0, buttons=False)) as world:
        await with_home(world)
        await meet(world)
        await world.paper.until(lambda paper: paper.posts_in("home"))
        assert "/people admit paper:8" in world.paper.posts_in("home")[0]
        world.paper.says("/people admit paper:8")
        await world.paper.until(lambda paper: paper.posts_in("8")[-1:] == ["you said: hi"])


@pytest.mark.parametrize("access", [{"strangers": "tell"}, {"strangers": "ignore"}])
async def test_pairing_can_be_switched_off(tmp_path: Path, access: dict[str, str]) -> None:
    """D7: off in the mode of lists."""
    async with World(tmp_path, Echo(), owners=["paper:7"], access=access) as world:
        await with_home(world)
        await speak(world, "hi", sender="8", chat="8")
        await world.settled()
        assert world.rows("SELECT * FROM codes") == []
        assert world.paper.posts_in("home") == []
        assert len(world.paper.posts_in("8")) == (access["strangers"] == "tell")


async def test_what_is_stored_does_not_hold_the_code(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), owners=["paper:7"]) as world:
        code = await meet(world)
        (row,) = world.rows("SELECT * FROM codes")
        assert row["digest"] == codes.digest(code)
        assert codes.normal(code) not in repr([tuple(row)])


async def test_only_settings_count_if_they_say_so(tmp_path: Path) -> None:
    """D4: a strict list ignores whom a chat has admitted, in every run."""
    echo = Echo()
    async with World(tmp_path, echo, owners=["paper:7"]) as world:
        code = await meet(world)
        await world.admit(code)
        await world.paper.until(lambda paper: paper.posts_in("8")[-1:] == ["you said: hi"])
        await world.stop()
        world.access["settings_only"] = True
        await world.start()
        await speak(world, "again", sender="8", chat="8")
        await world.settled()
        assert echo.heard == ["hi"]
        world.paper.says("I am in the settings")
        await world.paper.until(lambda paper: paper.posts_in("1") == ["you said: I am in the settings"])


async def test_a_kill_between_the_press_and_its_answer_admits_once(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), owners=["paper:7"]) as world:
        await with_home(world)
        await meet(world)
        asked = await question(world)
        await world.settled()
        world.paper.presses(asked.id, button(asked, "Admit"))
        await world.eventually(lambda: world.rows("SELECT * FROM identities"))
        await world.crash()
        await world.start()
        await world.paper.until(lambda paper: paper.posts_in("8")[-1:] == ["you said: hi"])
        await world.settled()
        assert world.paper.posts_in("8").count("you said: hi") == 1
        assert len(world.rows("SELECT * FROM persons")) == 1


async def test_every_decision_is_in_the_audit_trail_by_ids_only(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), owners=["paper:7"]) as world:
        code = await meet(world, "my secret plan")
        world.paper.says(f"/people admit {code}")
        await world.paper.until(lambda paper: paper.posts_in("8")[-1:] == ["you said: my secret plan"])
        world.paper.says("/people role paper:8 admin")
        await world.paper.until(lambda paper: paper.posts_in("1")[-1:] == ["paper:8 is an admin now."])
        await world.remove("paper:8")
        await world.set_home(Target(adapter="paper", chat="1"))
        lines = await world.gateway.desk.people.audit(10)
        assert [(line.actor, line.action) for line in reversed(lines)] == [
            ("paper:7", "admitted"),
            ("paper:7", "role"),
            (OWNER.id, "removed"),
            (OWNER.id, "home"),
        ]
        assert "secret" not in repr(lines)
