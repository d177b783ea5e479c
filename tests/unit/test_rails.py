"""The guard rails by themselves: what is counted, when the model is warned or a run halted, and in which words."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from tidings.bots.assistant.loop_guard import Guard, Halted, Used, Warned
from tidings.bots.assistant.settings import Rail, Rails
from tidings.core.agent import Effect

Seen = Warned | Halted | None


def failed(name: str = "read_file", arguments: str = "{}", error: str = "There is no such file.") -> Used:
    return Used(name, arguments, Effect.PURE, "", error)


def brought(output: str = "nothing", name: str = "list_files", effect: Effect = Effect.IDEMPOTENT) -> Used:
    return Used(name, "{}", effect, output, "")


def verdicts(guard: Guard, *used: Used) -> str:
    """One letter for each call: `.` for nothing, `w` for a warning, `h` for a halt."""
    letters = {Warned: "w", Halted: "h", type(None): "."}
    return "".join(letters[type(guard.look(each))] for each in used)


def check(expected: str, *used: Used, rails: Rails | None = None) -> None:
    assert verdicts(Guard(rails or Rails()), *used) == expected


def halt(*used: Used) -> Halted:
    guard = Guard(Rails())
    last: Seen = None
    for each in used:
        last = guard.look(each)
    assert isinstance(last, Halted)
    return last


def test_the_same_call_that_fails_the_same_way_is_warned_of_twice_and_halted_at_four() -> None:
    check(".wwh", *[failed()] * 4)


def test_another_input_or_another_error_is_another_try() -> None:
    check("...", failed(arguments="1"), failed(error="It is a folder."), failed("search_files"))


def test_a_tool_that_fails_in_ever_new_ways_is_warned_of_at_three_and_halted_at_six() -> None:
    check("..wwwh", *[failed(arguments=str(number)) for number in range(6)])


def test_a_tool_that_works_in_between_has_not_failed_in_a_row() -> None:
    tries = [failed(arguments=str(number)) for number in range(5)]
    check("..www...w", *tries, brought("found", "read_file"), *[failed(arguments=f"x{n}") for n in range(3)])


def test_nothing_new_is_warned_of_at_four_and_halted_at_eight() -> None:
    check("...wwwwh", *[brought()] * 8)


def test_going_in_a_wider_circle_is_going_in_a_circle() -> None:
    check("......wwwwh", *[brought("a"), brought("b"), brought("c"), brought("d")] * 2, *[brought("a")] * 3)


def test_something_new_is_progress() -> None:
    check("...w...w", *[brought("a")] * 4, *[brought("b")] * 4)


def test_what_changes_something_outside_is_progress() -> None:
    check("...w.", *[brought()] * 4, brought(name="terminal", effect=Effect.EFFECT))
    check("........", *[brought(name="terminal", effect=Effect.EFFECT)] * 8)


def test_a_halt_is_worth_more_than_a_warning_of_another_rail() -> None:
    rails = Rails(same_call=Rail(warn=2, halt=9), one_tool=Rail(warn=1, halt=2))
    check("wh", failed(), failed(), rails=rails)


def test_the_settings_say_when() -> None:
    rails = Rails.model_validate({"same_call": [1, 2], "one_tool": "5,7", "no_progress": {"warn": 2, "halt": 3}})
    check("wh", failed(), failed(), rails=rails)
    check("....wwh", *[failed(arguments=str(number)) for number in range(7)], rails=Rails(one_tool=rails.one_tool))
    check(".wh", *[brought()] * 3, rails=rails)


def test_rails_that_are_off_say_nothing() -> None:
    check("." * 20, *[failed()] * 10, *[brought()] * 10, rails=Rails(enabled=False))


def test_a_rail_halts_later_than_it_warns() -> None:
    with pytest.raises(ValidationError, match="must halt later than it warns"):
        Rails.model_validate({"same_call": [4, 4]})


@pytest.mark.parametrize(
    ("used", "sentence", "reason"),
    [
        (
            [failed()] * 4,
            "(I stopped here: I called read_file 4 times with the same input, and it always failed the same way: "
            "There is no such file.)",
            "the same call of read_file failed 4 times",
        ),
        (
            [failed(arguments=str(number)) for number in range(6)],
            "(I stopped here: I tried read_file 6 times, and it failed each time, at last like this: "
            "There is no such file.)",
            "read_file failed 6 times",
        ),
        (
            [brought()] * 8,
            "(I stopped here: I looked things up 8 times in a row, lastly with list_files, and learned nothing new.)",
            "8 calls brought nothing new",
        ),
    ],
)
def test_the_person_reads_what_was_tried_how_often_and_why_it_stopped(
    used: list[Used], sentence: str, reason: str
) -> None:
    assert halt(*used) == Halted(sentence, reason)


def test_the_sentence_is_one_short_line_whatever_the_tool_and_its_error_are_called() -> None:
    told = halt(*[failed("na\nme" * 99, error="first\nsecond\t" + "x" * 5000)] * 4).sentence
    assert "\n" not in told
    assert len(told) < 400
    assert "first second x" in told
    assert "a tool without a name" in halt(*[failed("")] * 4).sentence


def test_a_result_of_broken_text_is_counted_like_any_other() -> None:
    check("...wwwwh", *[brought("half a smile: \ud83d")] * 8)


def test_advice_for_the_model_is_not_told_to_the_person() -> None:
    told = halt(*[failed(error="It is not permitted. Tell the person so.")] * 4).sentence
    assert told.endswith("it always failed the same way: It is not permitted.)")


def test_no_sentence_has_an_internal_code_in_it() -> None:
    for sentence in (halt(*[failed()] * 4).sentence, halt(*[brought()] * 8).sentence):
        # Only the names of tools are written like names in a program.
        assert re.findall(r"\w+_\w+", sentence.replace("read_file", "").replace("list_files", "")) == []
