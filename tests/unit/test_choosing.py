"""Which models a person may choose, judged by the name alone."""

import inspect
import re

import pytest

from tidings.bots.app.roster import Bot
from tidings.bots.assistant import model_choice
from tidings.bots.assistant.settings import Assistant

ADDRESS = "http://127.0.0.1:1/v1"
HOSTED = Assistant(model="openai:gpt-5-mini")
BARE = Assistant(model="llama3.2", base_url=ADDRESS)
TAGGED = Assistant(model="llama3:8b", base_url=ADDRESS)
PROXY = Assistant(model="openai:gpt-5-mini", base_url=ADDRESS)


@pytest.mark.parametrize(
    ("bot", "wanted", "name"),
    [
        (BARE, "phi4", "phi4"),
        (BARE, "qwen2.5:7b", "qwen2.5:7b"),
        # What is behind the colon may be part of a name, and is no provider then.
        (TAGGED, "qwen2.5:7b", "qwen2.5:7b"),
        (TAGGED, "phi4", "phi4"),
        (PROXY, "gpt-5", "openai:gpt-5"),
        (PROXY, "openai:mistral:7b", "openai:mistral:7b"),
    ],
)
def test_at_an_address_any_name_is_asked_for_there(bot: Assistant, wanted: str, name: str) -> None:
    assert model_choice.permit(bot, wanted) == (name, "")


@pytest.mark.parametrize("wanted", ["openai:gpt-5", "anthropic:claude", "mistral:7b", "gateway/openai:gpt-5"])
@pytest.mark.parametrize("bot", [BARE, TAGGED])
def test_nobody_can_choose_a_provider_whose_key_only_lies_in_the_environment(bot: Assistant, wanted: str) -> None:
    name, trouble = model_choice.permit(bot, wanted)
    assert not name
    assert "another provider would need another key. Write /model NAME for a model at the same address." in trouble


def test_what_was_chosen_counts_only_while_the_settings_permit_it() -> None:
    assert model_choice.chosen(HOSTED, "openai:gpt-5") == "openai:gpt-5"
    assert model_choice.chosen(HOSTED, "openai:gpt-5-mini") == ""
    assert model_choice.chosen(HOSTED, "") == ""
    assert model_choice.chosen(Bot(model="anthropic:claude"), "openai:gpt-5") == ""
    assert model_choice.chosen(Bot(model="openai:gpt-5-mini", models=("gpt-5-nano",)), "openai:gpt-5") == ""


def test_the_providers_are_those_of_the_library() -> None:
    from pydantic_ai.providers import infer_provider_class

    cases = re.findall(r"^ +case ('.+):$", inspect.getsource(infer_provider_class), re.MULTILINE)
    assert {name for case in cases for name in re.findall(r"'([^']+)'", case)} == model_choice.PROVIDERS
