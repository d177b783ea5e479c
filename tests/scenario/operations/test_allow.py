"""`tidings allow`: lets people in, says which of the two lists names each, and takes it back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.scenario.spine.test_access import speak
from tests.scenario.work.test_schedule_commands import at_the_socket
from tests.worlds.world import Echo, World
from tidings.bots import main
from tidings.bots.cli import app
from tidings.core.errors import TidingsError
from tidings.core.operations import offline

ADA, BOB = "telegram:7", "slack:U012AB3CD"
REMOVED = "may no longer talk to the bot; their planned work will not run"
STILL = "is listed in the settings and may still talk to the bot; remove it from"


async def allow(home: Path, *arguments: str) -> tuple[int, str]:
    """The exit code, and all that was said."""
    asked = ["--home", str(home), "allow", *arguments]
    result = await asyncio.to_thread(CliRunner().invoke, app.app, asked, obj=main.place)
    said = f"{result.exception}" if isinstance(result.exception, TidingsError) else result.stderr
    return result.exit_code, " ".join((result.stdout + said).split())


def write(home: Path, *ids: str) -> str:
    """The settings with this list, and how they are named."""
    file = home / "tidings.toml"
    file.write_text(f"[access]\nallow = {list(ids)}\n")
    return f"{file}: [access] allow"


async def test_the_list_says_of_each_where_it_stands(tmp_path: Path) -> None:
    assert await allow(tmp_path, "--list") == (
        0,
        "tidings: no one is admitted yet; admit someone with: tidings allow platform:ID",
    )
    place = write(tmp_path, BOB)
    assert await allow(tmp_path, ADA) == (0, f"{ADA} may talk to the bot now")
    assert await allow(tmp_path, ADA) == (0, f"{ADA} was already admitted with tidings allow")
    assert await allow(tmp_path, "--list") == (0, f"{ADA} admitted with tidings allow {BOB} {place}")


async def test_whom_the_settings_name_is_not_stored_too(tmp_path: Path) -> None:
    place = write(tmp_path, BOB)
    assert await allow(tmp_path, BOB) == (0, f"{BOB} is already admitted by the settings: {place}")
    assert offline.admitted(tmp_path) == frozenset()


async def test_without_a_gateway_somebody_is_removed_too(tmp_path: Path) -> None:
    await allow(tmp_path, ADA)
    code, said = await allow(tmp_path, "--remove", ADA)
    assert (code, said) == (0, f"{ADA} {REMOVED}")
    assert offline.admitted(tmp_path) == frozenset()
    code, said = await allow(tmp_path, "--remove", ADA)
    assert (code, said) == (1, f"{ADA} is not admitted; see who is: tidings allow --list")


async def test_whom_the_settings_name_can_only_be_taken_out_there(tmp_path: Path) -> None:
    await allow(tmp_path, ADA)
    place = write(tmp_path, BOB, ADA)
    for id in (BOB, ADA):
        assert await allow(tmp_path, "--remove", id) == (
            1,
            f"{id} {STILL} {place}, then run: tidings reload",
        )
    assert offline.admitted(tmp_path) == frozenset(), "what a command gave is taken back"


async def test_another_entry_for_the_same_person_is_named(tmp_path: Path) -> None:
    await allow(tmp_path, ADA)
    await allow(tmp_path, "telegram@work:7")
    code, said = await allow(tmp_path, "--remove", ADA)
    assert code == 0
    assert said.endswith(
        "the same id is also admitted as telegram@work:7; to withdraw that too: tidings allow --remove telegram@work:7"
    )


async def test_a_running_gateway_removes_somebody_at_once(tmp_path: Path) -> None:
    echo = Echo()
    async with World(tmp_path, echo, allow=["paper:8"]) as world, at_the_socket(world):
        await world.gateway.desk.allow("paper:7")
        code, said = await allow(tmp_path, "--list")
        assert (code, said.startswith("paper:7 admitted with tidings allow paper:8 ")) == (0, True)
        assert (await allow(tmp_path, "--remove", "paper:7"))[0] == 0
        await speak(world, "hi")
        await world.settled()
        assert echo.heard == []


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("telegarm:7", "there is no platform 'telegarm'; there are: telegram, discord, slack"),
        ("7", "'7' is not an id; write platform:ID, such as telegram:123456789"),
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
    code, said = await allow(tmp_path, id)
    assert (code, words in said, len(said.splitlines())) == (1, True, 1), said
    assert offline.admitted(tmp_path) == frozenset()


@pytest.mark.parametrize("id", ["telegram:-1001234567890", "telegram@work:7", "discord:123456789012345678", BOB])
async def test_people_and_groups_of_each_platform_are_admitted(tmp_path: Path, id: str) -> None:
    assert await allow(tmp_path, id) == (0, f"{id} may talk to the bot now")


async def test_whoever_names_nobody_is_told_what_to_say(tmp_path: Path) -> None:
    code, said = await allow(tmp_path)
    assert (code, "name a person or group as platform:ID, or use --list" in said) == (2, True)
