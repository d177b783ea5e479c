"""Files of the workspace: what is written is read again, long things are cut with a word, and bounds hold."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worlds.tool_bench import in_session, use
from tidings.bots.assistant.tools import files
from tidings.bots.assistant.tools.tool import ToolError
from tidings.core.agent import Effect
from tidings.core.types import File


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    """It does not exist yet, as for a new conversation."""
    with in_session(tmp_path / "workspaces" / "paper:main:1") as session:
        yield session.workspace


async def read(path: str, **arguments: int) -> str:
    return (await use(files.TOOLS, "read_file", path=path, **arguments)).text


async def write(path: str, content: str) -> str:
    return (await use(files.TOOLS, "write_file", path=path, content=content)).text


async def search(text: str, **arguments: object) -> str:
    return (await use(files.TOOLS, "search_files", text=text, **arguments)).text


def test_what_returns_words_of_others_is_labelled_and_effects_are_declared() -> None:
    assert {tool.name: (tool.effect, tool.untrusted) for tool in files.TOOLS} == {
        "list_files": (Effect.PURE, True),
        "read_file": (Effect.PURE, True),
        "write_file": (Effect.IDEMPOTENT, False),
        "search_files": (Effect.PURE, True),
        "attach_file": (Effect.PURE, False),
    }


async def test_what_was_written_is_read_listed_and_found(workspace: Path) -> None:
    assert await write("notes/plan.md", "buy milk\nwrite home\n") == "Wrote 20 bytes to notes/plan.md."
    assert await read("notes/plan.md") == "notes/plan.md, lines 1 to 2 of 2:\n\nbuy milk\nwrite home"
    assert (await use(files.TOOLS, "list_files")).text == "notes/"
    listed = await use(files.TOOLS, "list_files", recursive=True)
    assert listed.text == "notes/\nnotes/plan.md (20 bytes)"
    assert await search("home") == "notes/plan.md:2: write home\n(1 lines found in 1 files)"


async def test_a_workspace_that_is_not_there_yet_is_empty(workspace: Path) -> None:
    assert (await use(files.TOOLS, "list_files")).text == "The workspace is empty."
    assert await search("x") == "The workspace is empty."
    with pytest.raises(ToolError, match=r"There is no a\.txt in the workspace"):
        await read("a.txt")
    assert not workspace.exists()


async def test_folders_and_files_are_for_the_owner_alone(workspace: Path) -> None:
    await write("a/b.txt", "x")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (workspace, workspace / "a")}
    assert set(modes.values()) == {0o700}
    assert stat.S_IMODE((workspace / "a/b.txt").stat().st_mode) == 0o600


async def test_writing_twice_is_writing_once_and_keeps_the_mode(workspace: Path) -> None:
    await write("run.sh", "old and much longer")
    (workspace / "run.sh").chmod(0o755)
    await write("run.sh", "new")
    await write("run.sh", "new")
    assert (workspace / "run.sh").read_text() == "new"
    assert stat.S_IMODE((workspace / "run.sh").stat().st_mode) == 0o755
    assert os.listdir(workspace) == ["run.sh"]


async def test_a_file_that_is_too_big_is_not_written(workspace: Path) -> None:
    with pytest.raises(ToolError, match="a file may have 1,048,576"):
        await write("big.txt", "é" * (files.WRITTEN_BYTES // 2 + 1))
    assert not workspace.exists()


async def test_a_part_of_a_file_says_where_it_goes_on(workspace: Path) -> None:
    await write("long.txt", "".join(f"line {number}\n" for number in range(1, 11)))
    assert await read("long.txt", offset=3, limit=2) == (
        "long.txt, lines 3 to 4 of 10; read on with offset=5:\n\nline 3\nline 4"
    )
    with pytest.raises(ToolError, match="has only 10 lines"):
        await read("long.txt", offset=11)


async def test_long_output_is_cut_and_read_on_without_a_gap(workspace: Path) -> None:
    lines = [f"{number} {'x' * 90}" for number in range(1000)]
    await write("long.txt", "\n".join(lines))
    seen: list[str] = []
    while len(seen) < len(lines):
        heading, _, text = (await read("long.txt", offset=len(seen) + 1)).partition("\n\n")
        assert len(text) <= files.SHOWN_CHARACTERS
        seen += text.split("\n")
        assert (f"read on with offset={len(seen) + 1}" in heading) == (len(seen) < len(lines))
    assert seen == lines


async def test_one_endless_line_is_cut_with_a_word(workspace: Path) -> None:
    await write("line.json", "x" * 100_000 + "\nthe rest\n")
    shown = await read("line.json")
    assert "line 1 is cut after 30,000 of 100,000 characters; read on with offset=2" in shown
    assert len(shown) < files.SHOWN_CHARACTERS + 200


async def test_a_huge_file_is_read_to_a_bound(workspace: Path) -> None:
    workspace.mkdir(parents=True)
    with (workspace / "huge.txt").open("wb") as file:
        file.write(b"first\n")
        file.write(b"y" * files.READ_BYTES)
    assert "behind the first 20,971,520 bytes is out of reach" in await read("huge.txt", limit=1)


async def test_what_is_no_text_is_said_to_be_none(workspace: Path) -> None:
    workspace.mkdir(parents=True)
    (workspace / "image.png").write_bytes(b"\x89PNG\0\0")
    with pytest.raises(ToolError, match=r"image\.png is no text \(6 bytes\); attach_file can send it"):
        await read("image.png")
    (workspace / "latin.txt").write_bytes(b"caf\xe9")
    assert (await read("latin.txt")).endswith("caf\N{REPLACEMENT CHARACTER}")
    (workspace / "empty.txt").touch()
    assert await read("empty.txt") == "empty.txt is empty."


async def test_a_long_listing_is_cut_with_a_word(workspace: Path) -> None:
    workspace.mkdir(parents=True)
    for number in range(files.SHOWN_ENTRIES + 7):
        (workspace / f"{number:04}").touch()
    lines = (await use(files.TOOLS, "list_files")).text.split("\n")
    assert len(lines) == files.SHOWN_ENTRIES + 1
    assert lines[-1].startswith("(and 7 or more that are left out")


async def test_a_name_cannot_pretend_to_be_two_files(workspace: Path) -> None:
    await write("a\nb (5 bytes)", "x")
    listed = (await use(files.TOOLS, "list_files")).text
    assert listed == "a\N{REPLACEMENT CHARACTER}b (5 bytes) (1 bytes)"
    assert "\n" not in (await search("x")).partition(":")[0]


async def test_a_pattern_is_searched_for_only_when_asked(workspace: Path) -> None:
    await write("a.txt", "a.c\nabc\nABC\n")
    assert "(1 lines" in await search("a.c")
    assert "(2 lines" in await search("a.c", regex=True)
    assert "(3 lines" in await search("a.c", regex=True, ignore_case=True)
    with pytest.raises(ToolError, match="That is no regular expression: missing"):
        await search("(", regex=True)


async def test_a_search_goes_into_one_folder_and_leaves_binaries_out(workspace: Path) -> None:
    await write("in/a.txt", "needle")
    await write("out/b.txt", "needle")
    (workspace / "in/c.bin").write_bytes(b"needle\0")
    assert await search("needle", path="in") == "a.txt:1: needle\n(1 lines found in 1 files)"


async def test_hits_are_bounded_and_a_file_that_is_too_big_is_named_as_left_out(workspace: Path) -> None:
    await write("many.txt", f"{'needle ' * 1000}\n" * 120)
    (workspace / "big.txt").write_bytes(b"needle\n" * (1024 * 1024))
    found = await search("needle")
    assert "1 files were too big to look into; only the first 100 lines are shown" in found
    assert len(found) < 40_000


async def test_a_file_goes_out_with_the_answer(workspace: Path) -> None:
    await write("charts/q1.csv", "a,b\n")
    attached = await use(files.TOOLS, "attach_file", path="charts/q1.csv")
    assert attached.text == "charts/q1.csv (4 bytes) goes out with your answer."
    assert attached.files == (File(path=str((workspace / "charts/q1.csv").resolve()), name="q1.csv"),)


async def test_what_cannot_be_sent_is_not_attached(workspace: Path) -> None:
    await write("empty.txt", "")
    with pytest.raises(ToolError, match="is empty"):
        await use(files.TOOLS, "attach_file", path="empty.txt")
    with (workspace / "big.bin").open("wb") as file:
        file.truncate(files.ATTACHED_BYTES + 1)
    with pytest.raises(ToolError, match="no more than 20,971,520 can be sent"):
        await use(files.TOOLS, "attach_file", path="big.bin")


async def test_a_platform_without_files_is_told_of_before_anything_is_promised(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with in_session(tmp_path, files=False), pytest.raises(ToolError, match="has no files"):
        await use(files.TOOLS, "attach_file", path="a.txt")


async def test_a_full_disk_or_a_long_name_is_a_sentence(workspace: Path) -> None:
    with pytest.raises(ToolError, match="File name too long"):
        await write("x" * 300, "x")
    await write("file", "x")
    with pytest.raises(ToolError, match="Not a directory"):
        await write("file/below", "x")
    with pytest.raises(ToolError, match="is a folder"):
        await read("")


async def test_a_pattern_that_never_ends_is_ended(workspace: Path) -> None:
    await write("trap.txt", "a" * 60)
    with pytest.raises(ToolError, match="took too long and was ended"):
        await files.find(files.Searching(text="(a+)+b", regex=True), seconds=0.5)
