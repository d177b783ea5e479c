"""`tidings audit`: who changed what, by name, with and without a running gateway."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.scenario.work.test_schedule_commands import at_the_socket
from tests.worlds.command_line import command, lines
from tests.worlds.world import Echo, World
from tidings.bots.cli import audit
from tidings.core.roles import OWNER, Person, Role

ADA = "telegram:7"


async def rows(home: Path, *arguments: str) -> list[list[str]]:
    code, said = await lines(home, "audit", *arguments)
    assert code == 0, said
    heading, *found = [re.split(r"\s{2,}", line) for line in said.splitlines()]
    assert heading == ["TIME", "WHO", "WHAT", "OBJECT", "DETAIL"]
    return [row[1:] for row in found]


async def test_each_change_is_a_line_with_names_also_of_people_who_have_gone(tmp_path: Path) -> None:
    assert await command(tmp_path, "audit") == (0, "tidings: nothing is recorded yet")
    await command(tmp_path, "people", "admit", ADA, "--name", "Ada")
    await command(tmp_path, "people", "role", "Ada", "admin")
    assert await rows(tmp_path) == [
        ["the owner", "admitted", f"Ada ({ADA})", f"{ADA} member"],
        ["the owner", "role", f"Ada ({ADA})", "member admin"],
    ]
    await command(tmp_path, "people", "remove", "Ada")
    assert [row[2] for row in await rows(tmp_path)] == [ADA] * 3, "a removed person is named by identity"
    [last] = await rows(tmp_path, "--limit", "1")
    assert last[:2] == ["the owner", "removed"]


async def test_programs_get_the_ids(tmp_path: Path) -> None:
    await command(tmp_path, "people", "admit", ADA)
    _, said = await lines(tmp_path, "audit", "--json")
    [line] = json.loads(said)
    assert (line["actor"], line["action"], line["detail"]) == ("owner", "admitted", f"{ADA} member")
    assert line["object"].startswith("psn_")


async def test_a_running_gateway_tells_the_same_and_names_the_person_who_acted(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world, at_the_socket(world):
        line = await world.gateway.desk.people.admit(OWNER, "paper:8", Role.ADMIN, "Bea")
        bea = Person(id=line.id, role=Role.ADMIN, name="Bea", identities=line.identities)
        await world.gateway.desk.people.admit(bea, "paper:9")
        found = await rows(tmp_path)
    assert [row[:2] for row in found] == [["the owner", "admitted"], ["Bea (paper:8)", "admitted"]]
    assert await rows(tmp_path) == found, "and so does the store afterwards"


async def test_a_long_trail_is_read_page_by_page(tmp_path: Path) -> None:
    async with World(tmp_path, Echo()) as world, at_the_socket(world):
        for number in range(audit.PAGE + 5):
            await world.gateway.desk.people.note_settings(OWNER, (f"[limits] number{number}",))
        assert len(await rows(tmp_path)) == 50
        found = await rows(tmp_path, "--limit", "1000")
    assert [row[3] for row in found] == [f"[limits] number{number}" for number in range(audit.PAGE + 5)]


async def test_only_what_happened_since_then(tmp_path: Path) -> None:
    await command(tmp_path, "people", "admit", ADA)
    assert len(await rows(tmp_path, "--since", "2h")) == 1
    assert len(await rows(tmp_path, "--since", time.strftime("%Y-%m-%d"))) == 1
    assert await command(tmp_path, "audit", "--since", "2999-01-01") == (0, "tidings: nothing is recorded since then")


@pytest.mark.parametrize("since", ["yesterday", "7", "-1d", "2026-13-01"])
async def test_what_is_no_time_is_a_wrong_command_line(tmp_path: Path, since: str) -> None:
    code, said = await command(tmp_path, "audit", f"--since={since}")
    assert (code, "is no age and no date; write 12h, 7d, 4w or 2026-03-01" in said) == (2, True), said
