"""Nobody stops the gateway by a text: what reads others' words takes as long as they are, never the square of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest
from yarl import URL

from tests.security import hostile
from tidings.adapters.discord import parse as discord_parse
from tidings.adapters.discord.directory import Atlas, Place
from tidings.adapters.discord.directory import Me as DiscordMe
from tidings.adapters.discord.settings import DiscordAccount
from tidings.adapters.slack import compose as slack_wording
from tidings.adapters.slack import parse as slack_parse
from tidings.adapters.slack import render as slack_render
from tidings.adapters.slack.settings import SlackAccount
from tidings.adapters.telegram import render as telegram_render
from tidings.bots.assistant import prompt
from tidings.bots.assistant.tools import page
from tidings.bots.assistant.tools.tool import ToolError
from tidings.bots.cli import toml_edit
from tidings.core import redaction
from tidings.core.errors import Unkeepable
from tidings.core.outbound import splitter
from tidings.core.work.board import commands as board_commands
from tidings.core.work.schedules import when

# Made while the gateway runs, and why each can do no harm.
MADE_LATER = {
    "adapters/catalog.py:check_id": "the owner's own words at the command line, by patterns that repeat one class",
    "core/redaction.py:__init__": "made when it is imported, and found there; what is made of secrets repeats nothing",
    "core/work/processes/process_main.py:__init__": "a person's own, in its own process, half a second for a line",
    "core/work/processes/patterns.py:main": "a person's own, in a process of its own that is ended in time",
    "bots/assistant/tools/search.py:matcher": "a model's own, in a process of its own that is ended in time",
    "adapters/slack/parse.py:_words": "run here with the reader that it is part of",
    "bots/cli/toml_edit.py:_set": "run here",
}
# Read nothing themselves: what they call is run.
NO_READERS = {"tidings.adapters.telegram.render.plain", "tidings.adapters.discord.render.render"}
# What a reader takes for its text, by the names that we give to others' words.
WORDS = {"text", "markdown", "markup", "latex", "source", "shown", "reason", "argument"}
# So small that both sizes must be cut.
LIMIT = 2_000
PIECE = 50
BASE = URL("https://example.org/")


def _streamed(text: str) -> None:
    """As a model says it: in small pieces."""
    stream = redaction.Stream()
    for start in range(0, len(text), PIECE):
        stream.feed(text[start : start + PIECE])
    stream.flush()


def _on_discord(text: str) -> object:
    atlas = Atlas(DiscordMe("1", "tidings", "99"))
    reader = discord_parse.Reader("main", DiscordAccount(), atlas, ("stop",))
    author = {"id": "7", "username": "ada", "global_name": "Ada"}
    return reader.said(
        {"id": "5", "type": 0, "content": text, "author": author, "attachments": []}, Place("300", kind=1)
    )


def _on_slack(text: str) -> object:
    reader = slack_parse.Reader("main", SlackAccount(), slack_parse.Me("U1", "T1", "tidings"), (), lambda user: "")
    said = {"type": "message", "channel": "D1", "user": "UANN", "text": text, "ts": "100.000001", "team": "T1"}
    return reader.event({"event_id": "Ev1", "team_id": "T1", "event": said})


# What needs more than a text, or a limit below which both sizes lie.
READERS: dict[str, Callable[[str], object]] = {
    "redaction.Stream": _streamed,
    "prompt.fence": lambda text: prompt.fence(text, text),
    "splitter.split": lambda text: splitter.split(text, LIMIT),
    "splitter.split by UTF-16": lambda text: splitter.split(text, LIMIT, measure=splitter.utf16_length),
    "telegram.tail": lambda text: telegram_render.tail(telegram_render.Rendered(text, ()), LIMIT),
    "tidings.adapters.slack.render.compose": lambda text: slack_render.compose(text, LIMIT),
    "tidings.adapters.slack.render.tail": lambda text: slack_render.tail(text, LIMIT),
    "slack, as it grows": lambda text: slack_wording.growing(text, mentions=False),
    "slack, read": _on_slack,
    "discord, read": _on_discord,
    "page.readable": lambda text: page.readable(text.encode("utf-8", "replace"), "text/html", None, BASE),
    "board": lambda text: board_commands.parse(f"add {text}", ("add",)),
    "time": lambda text: when.split(text, "UTC", 0.0, every=False),
    "scribe": lambda text: toml_edit._set(f"[bot]\nname = {text}", "bot", "name", "name = 1"),
}


@pytest.fixture(scope="module")
def gathered() -> tuple[list[hostile.Pattern], list[str]]:
    return hostile.patterns()


def _readers(patterns: list[hostile.Pattern]) -> dict[str, Callable[[str], object]]:
    """Those above, and every public function of one text in a module that has a pattern."""
    found: dict[str, Callable[[str], object]] = {}
    places = {pattern.place for pattern in patterns}
    for module in hostile.modules():
        if not any(place.startswith(f"{module.__name__}.") for place in places):
            continue
        for name, function in vars(module).items():
            if inspect.isfunction(function) and function.__module__ == module.__name__ and name[0] != "_":
                needed = [
                    each for each in inspect.signature(function).parameters.values() if each.default is each.empty
                ]
                if len(needed) == 1 and needed[0].name in WORDS and not inspect.iscoroutinefunction(function):
                    found[f"{module.__name__}.{name}"] = function
    return {name: read for name, read in (found | READERS).items() if name not in NO_READERS}


def _read(read: Callable[[str], object], text: str) -> None:
    """What is refused was read, too."""
    with suppress(Unkeepable, ToolError, ValueError):
        read(text)


def _encoded(text: Callable[[int], str], size: int) -> bytes:
    return text(size).encode("utf-8", "surrogatepass")


def _steep_ways(pattern: hostile.Pattern) -> Iterator[str]:
    for method, act in hostile.acts(pattern.pattern, pattern.methods):
        for before, pump in hostile.pumps_of(pattern.pattern):
            for after in ("", hostile.ODD_END):
                text = partial(hostile.pumped, before, pump, after)
                as_bytes = isinstance(pattern.pattern.pattern, bytes)
                steepness = hostile.steepness(act, partial(_encoded, text) if as_bytes else text)
                if steepness >= hostile.STEEPEST:
                    yield f"{pattern.place} by {method}: {before[:40]!r}, {pump!r}, … {after!r}: {steepness:.1f}"
                    return


def test_every_pattern_is_known_to_be_measured_or_why_it_need_not_be(
    gathered: tuple[list[hostile.Pattern], list[str]],
) -> None:
    assert sorted(set(gathered[1])) == sorted(MADE_LATER)


def test_no_pattern_takes_the_square_of_a_text(gathered: tuple[list[hostile.Pattern], list[str]]) -> None:
    assert [words for pattern in gathered[0] for words in _steep_ways(pattern)] == []


def test_no_reader_takes_the_square_of_a_text(gathered: tuple[list[hostile.Pattern], list[str]]) -> None:
    steep = []
    for name, read in _readers(gathered[0]).items():
        for before, pump in (*(("", pump) for pump in hostile.PUMPS), *hostile.BEGUN):
            text = partial(hostile.pumped, before, pump, "")
            if (steepness := hostile.steepness(partial(_read, read), text)) >= hostile.STEEPEST:
                steep.append(f"{name}: {before!r}, {pump!r} and so on: {steepness:.1f}")
                break
    assert steep == []


@pytest.mark.parametrize(
    "careless",
    [
        r"[<\ufe64\uff1c](?=[^\w>]*u[^\w>]*n)",
        r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1",
    ],
)
def test_a_pattern_that_takes_the_square_is_seen(careless: str) -> None:
    assert list(_steep_ways(hostile.Pattern("seeded", re.compile(careless), frozenset({"sub"}))))


def test_a_pattern_in_a_module_is_found_with_what_is_asked_of_it(
    gathered: tuple[list[hostile.Pattern], list[str]],
) -> None:
    known = {pattern.place: pattern for pattern in gathered[0]}

    assert known["tidings.bots.assistant.prompt._FENCE"].methods == {"sub"}
    assert "tidings.core.redaction._SHAPES._whole" in known
    assert any(place.startswith("adapters/discord/parse.py") for place in known)
