"""No path leads out of the workspace, whichever tool is given it (S22)."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.tool_bench import in_session, use
from tidings.bots.assistant.tools import files, workspace
from tidings.bots.assistant.tools.tool import ToolError

SECRET = "canary-4711"

# Each tool that takes a path, with what else it needs.
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("list_files", {}),
    ("read_file", {}),
    ("write_file", {"content": "overwritten"}),
    ("search_files", {"text": "canary"}),
    ("attach_file", {}),
)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A workspace with a secret beside it, and one in a neighbour whose name begins the same."""
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "room2").mkdir()
    (tmp_path / "room2" / "secret.txt").write_text(SECRET)
    inside = tmp_path / "room"
    inside.mkdir()
    with in_session(inside):
        yield inside


async def refused(path: str) -> None:
    for name, more in CALLS:
        with pytest.raises(ToolError) as refusal:
            await use(files.TOOLS, name, path=path, **more)
        assert SECRET not in str(refusal.value), name


def untouched(room: Path) -> bool:
    return {path.read_text() for path in room.parent.rglob("secret.txt")} == {SECRET}


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "a/../../secret.txt",
        "./../room2/secret.txt",
        "..",
        "/etc/passwd",
        "/",
        "//etc/passwd",
        "a\0b",
        "\ud800",
        "/dev/zero",
        "/proc/self/environ",
    ],
)
async def test_a_path_that_leads_out_is_refused_by_every_tool(room: Path, path: str) -> None:
    await refused(path)
    assert untouched(room)
    assert os.listdir(room) == []


async def test_a_neighbour_whose_name_begins_the_same_is_outside(room: Path) -> None:
    await refused(str(room.parent / "room2" / "secret.txt"))
    assert untouched(room)


async def test_an_absolute_path_inside_is_taken(room: Path) -> None:
    await use(files.TOOLS, "write_file", path=str(room / "a.txt"), content="x")
    assert (room / "a.txt").read_text() == "x"


async def test_a_link_that_leads_out_is_refused_by_every_tool(room: Path) -> None:
    (room / "file").symlink_to(room.parent / "secret.txt")
    (room / "folder").symlink_to(room.parent)
    (room / "chain").symlink_to("folder")
    for path in ("file", "folder/secret.txt", "chain/secret.txt", "folder", "chain/new.txt"):
        await refused(path)
    assert untouched(room)
    assert not (room.parent / "new.txt").exists()


async def test_links_are_neither_searched_nor_walked(room: Path) -> None:
    (room / "file").symlink_to(room.parent / "secret.txt")
    (room / "folder").symlink_to(room.parent)
    assert (await use(files.TOOLS, "search_files", text="canary")).text == "(0 lines found in 0 files)"
    listed = (await use(files.TOOLS, "list_files", recursive=True)).text
    assert listed == "file (a link)\nfolder (a link)"


async def test_a_link_that_stays_inside_is_followed(room: Path) -> None:
    (room / "real.txt").write_text("here")
    (room / "alias.txt").symlink_to("real.txt")
    assert (await use(files.TOOLS, "read_file", path="alias.txt")).text.endswith("here")
    await use(files.TOOLS, "write_file", path="alias.txt", content="there")
    assert (room / "real.txt").read_text() == "there"
    assert (room / "alias.txt").is_symlink()


async def test_a_link_that_comes_in_after_the_look_is_not_followed(room: Path) -> None:
    """Whoever has a shell can swap a folder for a link between the check and the opening."""
    (room / "folder").mkdir()
    (room / "folder" / "secret.txt").write_text("harmless")
    found = workspace.locate("folder/secret.txt")
    (room / "folder").rename(room / "aside")
    (room / "folder").symlink_to(room.parent)
    with pytest.raises(OSError, match="Not a directory"), workspace.opened(found):
        pytest.fail("it was opened")


async def test_a_last_link_that_comes_in_after_the_look_is_not_followed(room: Path) -> None:
    (room / "secret.txt").write_text("harmless")
    found = workspace.locate("secret.txt")
    (room / "secret.txt").unlink()
    (room / "secret.txt").symlink_to(room.parent / "secret.txt")
    with pytest.raises(OSError, match="Too many levels"), workspace.opened(found):
        pytest.fail("it was opened")


async def test_a_hard_link_is_never_written_through(room: Path) -> None:
    os.link(room.parent / "secret.txt", room / "hard.txt")
    await use(files.TOOLS, "write_file", path="hard.txt", content="overwritten")
    assert untouched(room)


async def test_pipes_and_circles_do_not_hang_anybody(room: Path) -> None:
    os.mkfifo(room / "pipe")
    (room / "circle").symlink_to("circle")
    await refused("circle")
    for name, more in CALLS[1:]:
        if name != "search_files":
            with pytest.raises(ToolError, match="no regular file"):
                await use(files.TOOLS, name, path="pipe", **more)
    assert (await use(files.TOOLS, "search_files", text="x")).text == "(0 lines found in 0 files)"


async def test_refusals_do_not_tell_where_the_workspace_lies(room: Path) -> None:
    for path in ("gone.txt", "x" * 300):
        with pytest.raises(ToolError) as refusal:
            await use(files.TOOLS, "read_file", path=path)
        assert str(room) not in str(refusal.value)
