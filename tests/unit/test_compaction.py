"""What goes and what stays when a talk outgrows the model's window."""

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from tidings.bots.assistant import compaction
from tidings.bots.assistant.ask import Kind, Unanswered
from tidings.bots.assistant.memory import Memory, tokens_in


def asked(text: str) -> ModelMessage:
    return ModelRequest(parts=[UserPromptPart(text)])


def answered(text: str) -> ModelMessage:
    return ModelResponse(parts=[TextPart(text)])


def used(call: str, output: str = "out") -> list[ModelMessage]:
    return [
        ModelResponse(parts=[ToolCallPart("look", {"at": call}, call)]),
        ModelRequest(parts=[ToolReturnPart("look", output, call)]),
    ]


def talk(turns: int, characters: int = 350) -> list[ModelMessage]:
    """Each turn has a question, a call, its result and an answer."""
    return [
        message
        for number in range(turns)
        for message in (asked(f"q{number}"), *used(f"c{number}"), answered(f"a{number} " + "x" * characters))
    ]


def remembered(before: list[ModelMessage], *own: ModelMessage) -> Memory:
    return Memory("run", [*before, *own], len(before))


class Summer:
    def __init__(self, *summaries: str | Unanswered) -> None:
        self.summaries = list(summaries)
        self.asked: list[str] = []

    async def __call__(self, text: str) -> str:
        self.asked.append(text)
        summary = self.summaries.pop(0)
        if isinstance(summary, Unanswered):
            raise summary
        return summary


def first(memory: Memory) -> str:
    part = memory.messages[0].parts[0]
    assert isinstance(part, UserPromptPart)
    assert isinstance(part.content, str)
    return part.content


@pytest.mark.parametrize("window", range(200, 4000, 100))
async def test_what_stays_begins_with_a_person_and_is_the_newest_word_for_word(window: int) -> None:
    before = talk(8)
    now = asked("now")
    memory = remembered(before, now)
    gone = await compaction.compact(memory, window, Summer(*["in short"] * 50))
    if not gone:
        assert tokens_in(memory.messages) <= window * compaction.KEPT
        return
    assert first(memory) == f"{compaction.SUMMARY}\nin short"
    assert memory.messages[1:] == [*before[gone:], now]
    assert isinstance(memory.messages[1].parts[0], UserPromptPart)
    assert memory.messages[memory.begin :] == memory.messages[-1:]


async def test_a_run_keeps_all_of_its_own_however_long_it_is() -> None:
    own = [asked("now"), *used("c9", "y" * 9000)]
    memory = remembered(talk(2), *own)
    assert await compaction.compact(memory, 1000, Summer(*["in short"] * 9)) == 8
    assert memory.messages[1:] == own
    assert memory.begin == 1


async def test_a_long_talk_is_summed_up_piece_by_piece_with_what_came_before() -> None:
    memory = remembered(talk(6), asked("now"))
    summer = Summer("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
    await compaction.compact(memory, 700, summer)
    assert len(summer.asked) > 1
    assert all(len(text) < 700 * 3.5 for text in summer.asked)
    assert "first" in summer.asked[1]
    assert first(memory).endswith(
        ["first", "second", "third", "fourth", "fifth", "sixth", "seventh"][len(summer.asked) - 1]
    )
    everything = "".join(summer.asked)
    assert all(f"a{number}" in everything for number in range(5))
    assert "You used look" in everything
    assert "Result of look: out" in everything


async def test_other_scripts_make_smaller_pieces() -> None:
    memory = remembered([asked("語" * 3000), answered("ok")], asked("now"))
    summer = Summer(*["in short"] * 50)
    await compaction.compact(memory, 2000, summer)
    assert max(len(text.encode()) for text in summer.asked) < 2000 * 3.5


async def test_a_summary_of_nothing_but_a_summary_is_none() -> None:
    memory = remembered(talk(2), asked("now"))
    assert await compaction.compact(memory, 4000, Summer("in short"), all_of_it=True) == 8
    assert await compaction.compact(memory, 400, Summer(), all_of_it=True) == 0
    assert compaction.older(memory, 10) == 0
    assert compaction.leave_out(memory, 10) == 0
    assert await compaction.compact(remembered([], asked("now")), 10, Summer(), all_of_it=True) == 0


async def test_a_summary_that_fails_changes_nothing_and_leaving_out_keeps_the_last_one() -> None:
    memory = remembered(talk(4), asked("now"))
    await compaction.compact(memory, 900, Summer(*["in short"] * 9))
    memory.replace([*memory.messages[:-1], *talk(4), asked("later")], len(memory.messages) - 1 + 16)
    before = list(memory.messages)
    with pytest.raises(Unanswered):
        await compaction.compact(memory, 900, Summer(Unanswered(Kind.FINAL, "no")))
    assert memory.messages == before
    gone = compaction.leave_out(memory, 900)
    assert gone > 0
    assert first(memory) == f"{compaction.SUMMARY}\nin short\n{compaction.LEFT_OUT}"
    assert memory.messages[1:] == before[gone:]
    assert memory.messages[memory.begin] == before[-1]


def test_only_outputs_that_are_long_past_are_dropped_and_none_twice() -> None:
    messages = [
        asked("a"),
        *used("c1", "y" * 500),
        *used("c2", "short"),
        *used("c3", "y" * 500),
        *used("c4", "y" * 500),
    ]
    memory = remembered(messages)
    assert compaction.shed(memory)
    outputs = [
        part.content for message in memory.messages for part in message.parts if isinstance(part, ToolReturnPart)
    ]
    assert outputs == [compaction.SHED, "short", "y" * 500, "y" * 500]
    assert not compaction.shed(memory)


def test_a_talk_is_full_with_what_goes_along_with_it() -> None:
    memory = remembered([asked("x" * 3500)])
    assert not compaction.is_full(memory, 2000, 0)
    assert compaction.is_full(memory, 2000, 600)
    assert compaction.is_full(memory, 1300, 0)
