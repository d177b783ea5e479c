"""`tidings people`: who is known and why, letting people in and out, with and without a running gateway."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.scenario.spine.test_access import speak
from tests.scenario.work.test_schedule_commands import at_the_socket
from tests.worlds.command_line import command, lines
from tests.worlds.process import surroundings
from tests.worlds.terminal import Terminal
from tests.worlds.world import Echo, World
from tidings.core.operations import offline
from tidings.core.roles import OWNER, Role
from tidings.core.settings import Access
from tidings.core.store.sqlite import DATABASE

ADA, BOB, GROUP = "telegram:7", "slack:U012AB3CD", "telegram:-1001234567890"
TODAY = time.strftime("%Y-%m-%d")
REMOVED = "may no longer talk to the bot; their planned work will not run"


async def people(home: Path, *arguments: str) -> tuple[int, str]:
    return await command(home, "people", *arguments)


def write(home: Path, key: str = "allow", *ids: str, more: str = "") -> str:
    """The settings with this list, and how they are named."""
    file = home / "tidings.toml"
    file.write_text(f"[access]\n{key} = {list(ids)}\n{more}")
    return f"{file}: [access] {key}"


async def roles(home: Path) -> dict[str, str]:
    """The roles by identity, as the command line tells them."""
    _, said = await people(home, "list", "--json")
    return {id: line["role"] for line in json.loads(said)["people"] for id in line["identities"]}


async def test_the_list_is_a_table_that_says_where_each_role_comes_from(tmp_path: Path) -> None:
    place = write(tmp_path, "admins", BOB)
    await people(tmp_path, "admit", ADA, "--name", "Ada")
    code, said = await lines(tmp_path, "people")
    assert code == 0
    heading, *rows = [re.split(r"\s{2,}", line) for line in said.splitlines()]
    assert heading == ["NAME", "ROLE", "IDENTITIES", "FROM"]
    assert rows == [
        ["–", "admin", BOB, place],
        ["Ada", "member", ADA, f"admitted by the owner on {TODAY}"],
    ]
    # Both streams are told apart by programs, which get the same as data.
    code, said = await people(tmp_path, "--json")
    assert [line["identities"] for line in json.loads(said)["people"]] == [[BOB], [ADA]]


async def test_where_nobody_is_admitted_yet_one_is_told_how_and_nothing_is_made(tmp_path: Path) -> None:
    home = tmp_path / "home"
    code, said = await people(home)
    assert (code, said.startswith("tidings: nobody is admitted yet; admit someone with: tidings people admit")) == (
        0,
        True,
    )
    code, said = await people(home, "show", "Ada")
    assert (code, said) == (1, "nobody is known as Ada; see who is: tidings people")
    assert not home.exists(), "a question makes no store"


async def test_one_person_is_shown_with_identities_and_keys(tmp_path: Path) -> None:
    await people(tmp_path, "admit", ADA, "--name", "Ada", "--role", "admin")
    await people(tmp_path, "link", "Ada", BOB)
    code, said = await people(tmp_path, "show", "ada")
    assert code == 0
    for words in ("name Ada", "role admin", f"identities {ADA}, {BOB}", f"from admitted by the owner on {TODAY}"):
        assert words in said
    code, said = await people(tmp_path, "show", BOB, "--json")
    assert json.loads(said)["person"]["identities"] == [ADA, BOB]


async def test_admitting_says_what_was_done_and_what_was_so_already(tmp_path: Path) -> None:
    place = write(tmp_path, "allow", BOB)
    assert await people(tmp_path, "admit", ADA) == (0, f"{ADA} may talk to the bot now, as a member")
    assert await people(tmp_path, "admit", ADA) == (0, f"{ADA} was already a member")
    assert await people(tmp_path, "admit", ADA, "--role", "admin") == (0, f"{ADA} may talk to the bot now, as an admin")
    assert await people(tmp_path, "admit", BOB) == (0, f"{BOB} is already a member by the settings: {place}")
    with offline.open_people(tmp_path, Access()) as register:
        assert [line.identities for line in await register.all()] == [(ADA,)], "settings are not stored too"


async def test_without_a_terminal_nobody_is_asked_and_becomes_a_member(tmp_path: Path) -> None:
    assert (await people(tmp_path, "admit", ADA))[0] == 0
    assert await roles(tmp_path) == {ADA: "member"}


@pytest.mark.parametrize(("answer", "role"), [("y", "owner"), ("n", "member")])
async def test_while_there_is_no_owner_a_terminal_asks_whether_this_is_you(
    tmp_path: Path, answer: str, role: str
) -> None:
    async with Terminal(surroundings(tmp_path), "people", "admit", ADA) as terminal:
        await terminal.answer(f"Is {ADA} you?", answer)
        await terminal.until("may talk to the bot now")
        assert await terminal.end() == 0
    assert await roles(tmp_path) == {ADA: role}


@pytest.mark.parametrize("arguments", [(BOB,), (GROUP,), (BOB, "--role", "guest")])
async def test_where_an_owner_is_known_or_it_is_no_question_nobody_is_asked(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    if arguments == (BOB,):
        await people(tmp_path, "admit", ADA, "--role", "owner")
    async with Terminal(surroundings(tmp_path), "people", "admit", *arguments) as terminal:
        assert await terminal.end() == 0
    assert "Is " not in terminal.shown
    assert (await roles(tmp_path))[arguments[0]] == ("member" if arguments == (BOB,) else "guest")


async def test_a_group_is_admitted_as_guests_and_can_be_nothing_else(tmp_path: Path) -> None:
    assert await people(tmp_path, "admit", GROUP) == (0, f"everyone in {GROUP} may talk to the bot now, as a guest")
    guests = f"{GROUP} is a group, and everyone in it is a guest; give roles to people instead"
    assert await people(tmp_path, "admit", GROUP, "--role", "owner") == (1, guests)
    assert await people(tmp_path, "role", GROUP, "admin") == (1, guests)
    assert await roles(tmp_path) == {GROUP: "guest"}


async def test_somebody_is_removed_and_unknown_names_get_the_nearest(tmp_path: Path) -> None:
    await people(tmp_path, "admit", ADA, "--name", "Ada")
    assert await people(tmp_path, "remove", "Adda") == (1, "nobody is known as Adda; did you mean Ada?")
    assert await people(tmp_path, "remove", "telegram:77") == (
        1,
        f"nobody is known as telegram:77; did you mean {ADA}?",
    )
    assert await people(tmp_path, "remove", "Ada") == (0, f"Ada ({ADA}) {REMOVED}")
    assert await roles(tmp_path) == {}
    assert (await people(tmp_path, "remove", "Ada"))[0] == 1


async def test_whom_the_settings_name_can_only_be_taken_out_there(tmp_path: Path) -> None:
    await people(tmp_path, "admit", ADA)
    place = write(tmp_path, "allow", BOB, ADA)
    for id in (BOB, ADA):
        code, said = await people(tmp_path, "remove", id)
        still = f"is named in the settings and may still talk to the bot; remove {id} from {place}, then run:"
        assert (code, said) == (1, f"{id} {still} tidings reload")
    with offline.open_people(tmp_path, Access()) as register:
        assert await register.all() == [], "what a command gave is taken back"
    code, said = await people(tmp_path, "forget", BOB, "--yes")
    assert (code, f"remove {BOB} from {place}" in said) == (1, True)


async def test_another_entry_for_the_same_person_is_named(tmp_path: Path) -> None:
    await people(tmp_path, "admit", ADA)
    await people(tmp_path, "admit", "telegram@work:7")
    code, said = await people(tmp_path, "remove", ADA)
    assert code == 0
    also = "the same id is also admitted as telegram@work:7; to remove that too: tidings people remove telegram@work:7"
    assert said.endswith(also)


async def test_a_block_holds_for_anybody_and_is_undone_by_removing(tmp_path: Path) -> None:
    write(tmp_path, "allow", BOB)
    code, said = await people(tmp_path, "block", BOB)
    assert (code, said.startswith(f"{BOB} is blocked and gets no answer; to undo: tidings people remove {BOB}")) == (
        0,
        True,
    )
    assert (await people(tmp_path, "block", ADA))[0] == 0
    assert await roles(tmp_path) == {BOB: "blocked", ADA: "blocked"}
    assert await people(tmp_path, "remove", ADA) == (0, f"{ADA} is no longer blocked")
    assert await roles(tmp_path) == {BOB: "blocked"}


async def test_a_role_is_changed_and_a_wrong_one_is_a_wrong_command_line(tmp_path: Path) -> None:
    await people(tmp_path, "admit", ADA, "--name", "Ada")
    assert await people(tmp_path, "role", "Ada", "admin") == (0, f"Ada ({ADA}) is an admin now")
    for arguments in (("role", "Ada", "king"), ("admit", BOB, "--role", "blocked")):
        code, said = await people(tmp_path, *arguments)
        assert (code, "there are: guest, member, admin, owner" in said) == (2, True), said


async def test_identities_are_linked_and_taken_apart(tmp_path: Path) -> None:
    await people(tmp_path, "admit", ADA, "--name", "Ada")
    linked = f"Ada ({ADA}) has these identities now: {ADA}, {BOB}"
    assert await people(tmp_path, "link", "Ada", BOB) == (0, linked)
    code, said = await people(tmp_path, "unlink", BOB)
    assert (code, said.startswith(f"{BOB} is no longer Ada ({ADA})")) == (0, True)
    assert await roles(tmp_path) == {ADA: "member"}
    assert await people(tmp_path, "unlink", ADA) == (1, f"{ADA} is not linked with another identity")


async def test_forgetting_somebody_is_confirmed_and_says_how_much_is_erased(tmp_path: Path) -> None:
    await people(tmp_path, "admit", ADA, "--name", "Ada")
    code, said = await people(tmp_path, "forget", "Ada")
    assert (code, "confirm it with --yes" in said) == (2, True)
    async with Terminal(surroundings(tmp_path), "people", "forget", "Ada") as terminal:
        await terminal.answer("erase their notes and private conversations for good?", "")
        assert await terminal.end() == 1
    assert await roles(tmp_path) == {ADA: "member"}
    code, said = await people(tmp_path, "forget", "Ada", "--yes")
    assert (code, said.startswith(f"Ada ({ADA}) is forgotten: their notes are gone, and 0 runs are erased")) == (
        0,
        True,
    )
    assert await roles(tmp_path) == {}


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("telegarm:7", "there is no platform 'telegarm'; there are: telegram, discord, slack"),
        ("7", "'7' is not an id; write platform:ID, such as telegram:123456789, or the code of eight characters"),
        ("telegram:@ada", "'telegram:@ada' is not an id of telegram: it must be a number, such as telegram:123456789"),
        ("telegram@:7", "is not an id of telegram"),
        ("discord:ada#1", "is not an id of discord: it must be a number of 15 digits or more"),
        ("discord:7", "is not an id of discord"),
        ("slack:ada", "is not an id of slack: it must be capital letters and digits after U or W (a person)"),
        ("slack:D012AB3CD", "is not an id of slack"),
        ("console:me", "console needs no admission: its users are identified in another way"),
        ("api:key", "api needs no admission"),
    ],
)
async def test_what_can_name_nobody_is_one_clear_line(tmp_path: Path, id: str, words: str) -> None:
    code, said = await people(tmp_path, "admit", id)
    assert (code, words in said, len(said.splitlines())) == (1, True, 1), said
    assert not (tmp_path / DATABASE).exists()


@pytest.mark.parametrize("id", ["telegram@work:7", "discord:123456789012345678", BOB])
async def test_people_of_each_platform_are_admitted(tmp_path: Path, id: str) -> None:
    assert await people(tmp_path, "admit", id) == (0, f"{id} may talk to the bot now, as a member")


# With a running gateway.


def code_in(world: World, chat: str) -> str:
    [found] = re.findall(r"[0-9A-Z]{4}-[0-9A-Z]{4}", " ".join(world.paper.posts_in(chat)))
    return str(found)


async def test_a_stranger_is_listed_as_waiting_and_admitted_by_the_code_they_were_told(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo, allow=[]) as world, at_the_socket(world):
        await speak(world, "hi", sender="8", chat="8")
        await world.paper.until(lambda paper: len(paper.posts_in("8")) == 1)
        code, said = await people(tmp_path)
        assert "waiting: " in said
        assert "to admit them: tidings people admit paper:8" in said
        code, said = await people(tmp_path, "admit", code_in(world, "8"))
        assert code == 0
        assert said.endswith("(paper:8) may talk to the bot now, as a member") or said.startswith("paper:8 may talk")
        await world.paper.until(lambda paper: "you said: hi" in paper.posts_in("8"))
        code, said = await people(tmp_path, "admit", "0000-0000")
        assert (code, said) == (1, "this code is wrong, expired or already used")


async def test_a_running_gateway_removes_somebody_at_once(tmp_path: Path) -> None:
    """D4."""
    echo = Echo()
    async with World(tmp_path, echo, allow=["paper:8"]) as world, at_the_socket(world):
        await world.admit("paper:7")
        assert (await roles(tmp_path)) == {"paper:7": "member", "paper:8": "member"}
        assert (await people(tmp_path, "remove", "paper:7"))[0] == 0
        await speak(world, "hi", sender="7")
        await world.settled()
        assert echo.heard == []


async def test_forgetting_erases_what_was_said_in_private(tmp_path: Path) -> None:
    async with World(tmp_path, Echo(), allow=[]) as world, at_the_socket(world):
        await world.admit("paper:7")
        world.paper.says("my secret", sender="7")
        await world.paper.until(lambda paper: paper.posts == ["you said: my secret"])
        await world.settled()
        code, said = await people(tmp_path, "forget", "paper:7", "--yes")
        assert code == 0, said
        assert await roles(tmp_path) == {}


# D4: the same result in every run mode.


async def in_a_running_gateway(home: Path, access: Access) -> dict[str, Role]:
    async with World(home, Echo(), allow=[]) as world, at_the_socket(world):
        world.gateway._parts.people.renew(access)
        return {id: Role(role) for id, role in (await roles(home)).items()}


async def at_rest(home: Path, access: Access) -> dict[str, Role]:
    with offline.open_people(home, access) as register:
        return {id: line.role for line in await register.all() for id in line.identities}


@asynccontextmanager
async def three_stored(home: Path) -> AsyncIterator[None]:
    with offline.open_people(home, Access()) as register:
        await register.admit(OWNER, "paper:7", Role.OWNER)
        await register.admit(OWNER, "paper:8")
        await register.block(OWNER, "paper:9")
    yield


@pytest.mark.parametrize("look", [in_a_running_gateway, at_rest])
@pytest.mark.parametrize("settings_only", [False, True])
async def test_stored_people_count_alike_in_every_run_mode_and_not_at_all_where_only_the_settings_count(
    tmp_path: Path, look: Callable[[Path, Access], object], settings_only: bool
) -> None:
    """D4."""
    async with three_stored(tmp_path):
        found = await look(tmp_path, Access(allow=("paper:8",), settings_only=settings_only))  # type: ignore[misc]
    stranger = Role.STRANGER if settings_only else Role.OWNER
    assert found == {"paper:7": stranger, "paper:8": Role.MEMBER, "paper:9": Role.BLOCKED}


async def test_where_only_the_settings_count_nobody_is_admitted_by_a_command(tmp_path: Path) -> None:
    """D4."""
    await people(tmp_path, "admit", ADA)
    place = write(tmp_path, "allow", BOB, more="settings_only = true\n")
    code, said = await people(tmp_path, "admit", "telegram:8")
    assert (code, "[access] settings_only is on: add telegram:8 to the settings" in said) == (1, True)
    _, said = await people(tmp_path)
    assert f"stranger {ADA} admitted by the owner on {TODAY}; not now, because [access] settings_only is on" in said
    assert f"member {BOB} {place}" in said


async def test_a_check_of_the_settings_names_a_group_that_cannot_own(tmp_path: Path) -> None:
    place = write(tmp_path, "owners", GROUP)
    code, said = await command(tmp_path, "config", "check")
    assert (code, f"warning: access: {place} #1: {GROUP} is a group: owners must be people" in said) == (0, True), said
