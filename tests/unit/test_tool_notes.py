"""Notes about one person, kept and found again."""

from pathlib import Path

import pytest

from tests.worlds.fakes import FakeDesk
from tests.worlds.tool_bench import in_session, use
from tidings.bots.assistant.tools import notes
from tidings.bots.assistant.tools.tool import ToolError
from tidings.core.agent import Effect
from tidings.core.errors import Unstored


class FullDesk(FakeDesk):
    async def remember(self, text: str) -> bool:
        raise Unstored("the disk is full")


def test_effects_are_declared() -> None:
    assert {tool.name: tool.effect for tool in notes.TOOLS} == {"remember": Effect.IDEMPOTENT, "recall": Effect.PURE}


async def test_a_note_is_kept_once_and_found_by_any_of_its_words(tmp_path: Path) -> None:
    desk = FakeDesk()
    with in_session(tmp_path):
        assert (await use(notes.TOOLS, "recall", desk)).text == "There are no notes about this person."
        assert (await use(notes.TOOLS, "remember", desk, text=" likes tea ")).text == "Noted."
        assert (await use(notes.TOOLS, "remember", desk, text="likes tea")).text == "That was noted before."
        await use(notes.TOOLS, "remember", desk, text="lives in Oslo")
        assert (await use(notes.TOOLS, "recall", desk, words="tea coffee")).text == (
            "Notes about this person, the newest first:\n- 1970-01-01: likes tea"
        )
        both = (await use(notes.TOOLS, "recall", desk)).text
        assert both.index("Oslo") < both.index("tea")
        assert (await use(notes.TOOLS, "recall", desk, words="coffee")).text == "There are no such notes."


@pytest.mark.parametrize("text", ["", "  \n", "x" * (notes.NOTE_CHARACTERS + 1)])
async def test_what_is_no_note_is_not_kept(tmp_path: Path, text: str) -> None:
    desk = FakeDesk()
    with in_session(tmp_path), pytest.raises(ToolError):
        await use(notes.TOOLS, "remember", desk, text=text)
    assert desk.notes == []


async def test_a_note_that_could_not_be_stored_is_not_said_to_be(tmp_path: Path) -> None:
    with in_session(tmp_path), pytest.raises(ToolError, match="The note was not stored: the disk is full"):
        await use(notes.TOOLS, "remember", FullDesk(), text="likes tea")
