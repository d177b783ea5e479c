"""An answer on Telegram is readable, whole and in its place: Markdown, files, long texts, and many chats at once."""

from __future__ import annotations

import heapq
import re
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from tests.simulators.telegram.markup import units
from tests.simulators.telegram.simulator import Message, TelegramServer
from tests.worlds.telegram import TelegramWorld
from tests.worlds.telegram_stories import (
    FORUM,
    GROUP,
    PERSON,
    Dictated,
    alarms,
    asks,
    begins,
    calls_to,
    finished,
    marks,
    texts,
)
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted
from tidings.core.agent import ChoicesOffered, Event, FileMade, Finished, TextDelta, Turn
from tidings.core.outbound.outbox import MARK
from tidings.core.types import Audience, Body, Target

LIMIT = 4096


@pytest.fixture
def open_world(tmp_path: Path, clock: OwnedClock) -> Callable[..., TelegramWorld]:
    def build(agent: Any, **options: Any) -> TelegramWorld:
        world = TelegramWorld(tmp_path, agent, clock=clock, **options)
        world.telegram.open_chat(GROUP)
        world.telegram.open_chat(FORUM, forum=True)
        return world

    return build


async def answered(world: TelegramWorld, chat: str = PERSON, thread: str = "") -> tuple[Message, ...]:
    """Somebody asks; everything of the bot that is there when the answer has arrived."""
    asks(world, chat=chat, thread=thread)
    await world.until(finished(world))
    visible = world.telegram.visible(chat, thread)
    assert not any(message.streaming for message in visible)
    return visible


# Files.


def png(width: int = 10, height: int = 10, size: int = 100) -> bytes:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    return head + bytes(size)


JPEG = b"\xff\xd8\xff\xe0" + bytes(100)
VOICE = b"OggS" + bytes(100)
MEGABYTE = 1024 * 1024


class Made(NamedTuple):
    name: str
    data: bytes
    kind: str


FILES = {
    "a document": Made("report.pdf", b"%PDF-1.7 all of it", "document"),
    "a photo": Made("chart.png", png(), "photo"),
    "another photo": Made("chart.jpg", JPEG, "photo"),
    "a voice note": Made("answer.ogg", VOICE, "voice"),
    "a picture by its name only": Made("chart.png", b"no picture at all", "document"),
    "a picture that the server cannot draw": Made("strip.png", png(20_000, 10), "document"),
    "a picture that is too big for a photo": Made("huge.png", png(size=10 * MEGABYTE), "document"),
    "a voice note by its name only": Made("answer.ogg", b"no voice at all", "document"),
    "a strange name": Made("Übersicht „neu“ 📈 (1).txt", b"text", "document"),
}


def make(folder: Path, name: str, data: bytes) -> FileMade:
    path = folder / f"{len(list(folder.iterdir()))}.bin"
    path.write_bytes(data)
    return FileMade(str(path), name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("made", [pytest.param(made, id=name) for name, made in FILES.items()])
async def test_a_file_arrives_as_what_it_is(open_world: Callable[..., TelegramWorld], folder: Path, made: Made) -> None:
    async with open_world(Scripted("Look:", make(folder, made.name, made.data))) as world:
        text, file = await answered(world)
        assert text.text == "Look:"
        assert (file.kind, [each.data for each in file.files]) == (made.kind, [made.data])
        if made.kind == "document":
            assert [each.name for each in file.files] == [made.name]
        assert await alarms(world) == {}


async def test_a_voice_note_for_somebody_who_wants_none_is_a_file(
    open_world: Callable[..., TelegramWorld], folder: Path
) -> None:
    async with open_world(Scripted(make(folder, "answer.ogg", VOICE))) as world:
        world.telegram.fail_next(400, method="sendVoice", description="Bad Request: VOICE_MESSAGES_FORBIDDEN")
        *_, file = await answered(world)
        assert (file.kind, file.files[0].name) == ("document", "answer.ogg")


def is_missing(folder: Path) -> FileMade:
    return FileMade(str(folder / "nowhere.bin"), "gone.txt")


def is_a_folder(folder: Path) -> FileMade:
    return FileMade(str(folder), "gone.txt")


def is_empty(folder: Path) -> FileMade:
    return make(folder, "gone.txt", b"")


def is_too_big(folder: Path) -> FileMade:
    path = folder / "big.bin"
    with path.open("wb") as file:
        file.truncate(51 * MEGABYTE)
    return FileMade(str(path), "gone.txt")


def is_plain(folder: Path) -> FileMade:
    return make(folder, "gone.txt", b"text")


def too_big_for_the_server(telegram: TelegramServer) -> None:
    telegram.fail_next(413, method="sendDocument")


def not_taken(telegram: TelegramServer) -> None:
    telegram.fail_next(400, method="sendDocument", description="Bad Request: file type is not allowed here")


def nothing(telegram: TelegramServer) -> None:
    """The server has no part in it."""


UNSENDABLE: dict[str, tuple[Callable[[Path], FileMade], Callable[[TelegramServer], None], str]] = {
    "missing": (is_missing, nothing, "No such file or directory"),
    "a folder": (is_a_folder, nothing, "Is a directory"),
    "empty": (is_empty, nothing, "it is empty"),
    "over 50 MB": (is_too_big, nothing, "51 MB, and Telegram takes 50 MB"),
    "too big for the server": (is_plain, too_big_for_the_server, "too big for the server"),
    "refused by the server": (is_plain, not_taken, "file type is not allowed here"),
}


@pytest.mark.parametrize("why", UNSENDABLE)
async def test_a_file_that_cannot_be_sent_is_named_with_the_reason_and_the_others_arrive(
    open_world: Callable[..., TelegramWorld], folder: Path, why: str
) -> None:
    """A35."""
    unsendable, arm, reason = UNSENDABLE[why]
    bad, good = unsendable(folder), make(folder, "good.png", png())
    async with open_world(Scripted("Two files:", bad, good)) as world:
        arm(world.telegram)
        text, line, file = await answered(world)
        assert text.text == "Two files:"
        assert line.text.startswith("I could not send gone.txt: ")
        assert reason.lower() in line.text.lower()
        assert [each.data for each in file.files] == [png()]
        assert world.run(f"{PERSON}:1")["outcome"] == "completed"


async def test_a_file_waits_for_what_passes(
    open_world: Callable[..., TelegramWorld], folder: Path, clock: OwnedClock
) -> None:
    """A35: a flood is no reason to give up a file."""
    gate = Gate()
    async with open_world(Scripted(gate, make(folder, "a.txt", b"text"))) as world:
        world.telegram.fail_next(429, retry_after=30, method="sendDocument")
        asks(world)
        await gate.reached()
        gate.open()
        await world.until(finished(world))
        *_, file = world.telegram.visible()
        assert [each.name for each in file.files] == ["a.txt"]
        limited, sent = world.telegram.calls("sendDocument")
        assert sent.now - limited.now >= 30.0


async def test_an_answer_of_a_file_alone_is_announced_by_its_name(
    open_world: Callable[..., TelegramWorld], folder: Path
) -> None:
    async with open_world(Scripted(make(folder, "a.txt", b"text"))) as world:
        name, file = await answered(world)
        assert (name.text, file.files[0].data) == ("a.txt", b"text")


# Markdown as models write it.


class Sample(NamedTuple):
    source: str
    # What a person must be able to read, in this order, however it is sent.
    words: tuple[str, ...]
    # How a server that takes everything shows it at best.
    best: Literal["plain", "entities", "rich"] = "entities"


SAMPLES = {
    "headings and emphasis": Sample(
        "# Title\n\n## Sub\n\nSome **bold**, *italic*, ~~gone~~ and `code`.",
        ("Title", "Sub", "Some", "bold", "italic", "gone", "and", "code"),
    ),
    "nested lists": Sample(
        "1. first\n   - inner\n     - innermost\n2. second\n\n   more of it\n- [x] done\n- [ ] open",
        ("first", "inner", "innermost", "second", "more of it", "done", "open"),
        best="plain",
    ),
    "a fence with a language": Sample(
        "Before\n```rust\nfn main() { let v: Vec<T> = vec![1]; }\n```\nafter",
        ("Before", "fn main() { let v: Vec<T> = vec![1]; }", "after"),
    ),
    "a fence that nobody closed": Sample("Look:\n```py\nx = a * b * c", ("Look:", "x = a * b * c")),
    "links": Sample(
        "See [the page (2)](https://example.org/a_(b)?c=1&d=2) or https://example.org/x_y_z",
        ("See", "the page (2)", "or", "https://example.org/x_y_z"),
    ),
    "generics and tags": Sample(
        "A Vec<T>, a Map<K, V> and an <unknown> tag, a < b && c > d, <think>hm</think>",
        ("Vec<T>", "Map<K, V>", "<unknown>", "a < b && c > d", "hm"),
        best="plain",
    ),
    "names that look like markup": Sample(
        "__init__.py, snake_case_name, 2 * 3 * 4, *args, **kwargs, a~b~c, C:\\new",
        ("__init__.py", "snake_case_name", "2 * 3 * 4", "args", "kwargs", "a~b~c", "C:\\new"),
        best="plain",
    ),
    "quotations": Sample("> first\n> second\n\nafter", ("first", "second", "after")),
    "what a bot must escape": Sample(
        "Done! (1.5-2.0) #tag = {a|b} + [c].", ("Done! (1.5-2.0) #tag", "a|b", "c"), best="plain"
    ),
    "a table": Sample(
        "| Name | Price |\n|:-----|------:|\n| Tea | 1.50 |\n| Cake 🍰 | 12.00 |\n\nThat is all.",
        ("Name", "Price", "Tea", "1.50", "Cake 🍰", "12.00", "That is all."),
        best="rich",
    ),
    "maths": Sample(
        "So $a^2 + b^2 = c^2$, and it costs $5 to $10:\n\n$$\\frac{x_1}{2}$$\n\nand \\(y\\).",
        ("So", "a", "b", "c", "it costs $5 to $10", "2", "and", "y"),
        best="rich",
    ),
    "something folded": Sample(
        "Look\n<details><summary>The proof</summary>\n\nIt is **obvious**.\n\n</details>\nSee?",
        ("Look", "The proof", "It is", "obvious", "See?"),
        best="rich",
    ),
}
TABLE = SAMPLES["a table"].source

# What is refused there as often as it is tried.
SERVERS: dict[str, tuple[str, ...]] = {
    "takes all": (),
    "knows no rich messages": (),
    "cannot read our rich messages": ("rich",),
    "cannot read our entities": ("rich", "entities"),
}
PARSE_ERRORS = {
    "rich": "Bad Request: can't parse rich message: unsupported block",
    "entities": "Bad Request: can't parse entities: unsupported entity",
}
METHODS = {"rich": "sendRichMessage", "entities": "sendMessage"}


class Recites:
    """Answers with the sample that it is asked for."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        yield TextDelta(SAMPLES[turn.message.text].source)
        yield Finished()


def lost(text: str, words: tuple[str, ...]) -> list[str]:
    """Those of the words that do not stand there in this order."""
    missing, position = [], 0
    for word in words:
        if (found := text.find(word, position)) < 0:
            missing.append(word)
        else:
            position = found + len(word)
    return missing


@pytest.mark.parametrize("server", SERVERS)
async def test_markdown_arrives_readable_on_every_server(open_world: Callable[..., TelegramWorld], server: str) -> None:
    """Rich where the server takes it, else with entities, else plain; never an error, never lost text."""
    rich = server != "knows no rich messages"
    async with open_world(Recites(), server={"rich": rich}) as world:
        for name, sample in SAMPLES.items():
            ways = {"plain": (), "entities": ("entities",), "rich": ("rich", "entities")}[sample.best]
            for way in ways:
                if way in SERVERS[server]:
                    world.telegram.fail_next(400, method=METHODS[way], description=PARSE_ERRORS[way])
            asks(world, name)
            await world.until(finished(world))
            message = world.telegram.visible()[-1]
            assert lost(message.text, sample.words) == [], f"{name}: {message.text}"
            taken = [way for way in ways if way not in SERVERS[server] and (rich or way != "rich")]
            shown = "rich" if message.rich else "entities" if message.entities else "plain"
            assert shown == (taken or ["plain"])[0], name
        assert world.telegram.faults.armed == ()
        assert len(world.telegram.sent) == len(SAMPLES), "one message each"
        assert await alarms(world) == {}


async def test_a_rich_message_is_the_source_itself(open_world: Callable[..., TelegramWorld]) -> None:
    async with open_world(Scripted(TABLE)) as world:
        (message,) = await answered(world)
        assert (message.rich, message.text) == ("markdown", TABLE)


async def test_entities_say_what_markdown_meant(open_world: Callable[..., TelegramWorld]) -> None:
    source = (
        "# Title\n\n**bold** and *italic* 👩‍👩‍👧 with `code` and [a link](https://example.org/a_b).\n\n"
        "```python\nx = 1\n```\n\n> quoted"
    )
    async with open_world(Scripted(source)) as world:
        (message,) = await answered(world)
        found = {entity.type: words for entity, words in marks(message, *["bold", "italic", "code", "blockquote"])}
        assert found == {"bold": "bold", "italic": "italic", "code": "code", "blockquote": "quoted"}
        ((box, code),) = marks(message, "pre")
        assert (box.language, code) == ("python", "x = 1")
        ((link, words),) = marks(message, "text_link")
        assert (link.url, words) == ("https://example.org/a_b", "a link")


async def test_a_table_without_rich_messages_is_drawn_with_columns(open_world: Callable[..., TelegramWorld]) -> None:
    async with open_world(Scripted(TABLE), server={"rich": False}) as world:
        (message,) = await answered(world)
        ((_, box),) = marks(message, "pre")
        head, rule, tea, _ = box.split("\n")
        assert head.index("|") == rule.index("+") == tea.index("|")
        assert tea.endswith(" 1.50"), "numbers are flush right"


async def test_a_server_that_knows_no_rich_messages_is_asked_once(open_world: Callable[..., TelegramWorld]) -> None:
    async with open_world(Scripted(TABLE), server={"rich": False}) as world:
        for _ in range(3):
            await answered(world)
        assert len(world.telegram.calls("sendRichMessage")) == 1
        assert len(world.telegram.sent) == 3


@pytest.mark.parametrize("rich", [True, False], ids=["rich", "entities"])
async def test_a_flood_keeps_the_formatting(open_world: Callable[..., TelegramWorld], rich: bool) -> None:
    """B5: plain text is for what cannot be parsed, and for nothing else."""
    source = TABLE + "\n\n**bold**"
    async with open_world(Scripted(source), server={"rich": rich}) as world:
        method = "sendRichMessage" if rich else "sendMessage"
        world.telegram.fail_next(429, retry_after=30, method=method, count=2)
        (message,) = await answered(world)
        assert message.kind == ("rich" if rich else "text")
        assert rich or marks(message, "bold", "pre")
        said = [call for call in calls_to(world.telegram, PERSON) if call.method.startswith("send")]
        assert {call.method for call in said} == {method} | ({"sendRichMessage"} if not rich else set())
        assert len([call for call in said if call.verdict == "429"]) == 2
        assert all(call.params.get("entities") for call in said if call.method == "sendMessage")


@pytest.mark.parametrize(
    "description", ["Bad Request: chat not found", "Bad Request: not enough rights to send text messages to the chat"]
)
async def test_a_closed_door_is_not_knocked_at_in_other_words(
    open_world: Callable[..., TelegramWorld], description: str
) -> None:
    async with open_world(Scripted(TABLE)) as world:
        world.telegram.fail_next(400, description=description)
        asks(world)
        await world.until(lambda: world.rows("SELECT 1 FROM deliveries WHERE state = 'dead'"))
        assert [call.method for call in calls_to(world.telegram, PERSON)] == ["sendRichMessage"]


# Longer than one message.

# 13,000 characters in which every line is known by its number.
LINES = [f"{number:04d} the quick brown fox jumps over the lazy dog" for number in range(265)]
LONG = "\n".join(LINES)


def numbers(messages: tuple[Message, ...]) -> list[int]:
    return [int(number) for each in messages for number in re.findall(r"^(\d{4}) ", each.text, re.MULTILINE)]


@pytest.mark.parametrize("chat", [PERSON, GROUP], ids=["private", "group"])
@pytest.mark.parametrize("grown", [False, True], ids=["at once", "streamed"])
async def test_a_flood_on_the_second_part_loses_and_repeats_nothing(
    open_world: Callable[..., TelegramWorld], clock: OwnedClock, chat: str, grown: bool
) -> None:
    """B3."""
    agent = Dictated()
    async with open_world(agent) as world:
        if grown:
            await begins(world, agent, LINES[0] + "\n", chat=chat)
        else:
            asks(world, chat=chat)
            await world.until(lambda: agent.turns, limit=0.0)
            agent.say(LINES[0] + "\n")
        method = "editMessageText" if grown and chat == GROUP else "sendMessage"
        gate = world.telegram.hold_next(method, after_effect=True)
        agent.say("\n".join(LINES[1:]))
        agent.end()
        await world.until(lambda: world.runs()[0]["state"] == "done", limit=0.0)
        await world.until(lambda: not world.telegram.faults.armed, limit=10.0)
        world.telegram.fail_next(429, retry_after=35, method="sendMessage")
        gate.set()
        await world.until(finished(world))
        parts = world.telegram.visible(chat)
        assert numbers(parts) == list(range(len(LINES)))
        assert "\n".join(part.text for part in parts) == LONG
        assert len(parts) == 4
        (limited,) = [call for call in world.telegram.calls() if call.verdict == "429"]
        assert [call for call in calls_to(world.telegram, chat) if limited.now < call.now < limited.now + 35] == []


@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "not arrived"])
async def test_a_doubt_on_the_second_part_repeats_that_part_alone_and_marked(
    open_world: Callable[..., TelegramWorld], arrived: bool
) -> None:
    async with open_world(Scripted(LONG)) as world:
        gate = world.telegram.hold_next("sendMessage", after_effect=True)
        asks(world)
        await world.until(lambda: world.telegram.posts, limit=0.0)
        world.telegram.drop_next(arrived, "sendMessage")
        gate.set()
        await world.until(finished(world))
        parts = world.telegram.visible()
        copies = [part for part in parts if part.text.startswith(MARK)]
        originals = [part for part in parts if part not in copies]
        assert len(copies) in (1, 2), "the mark may push the end of the copy into a message of its own"
        once = originals if arrived else sorted(parts, key=lambda part: numbers((part,)))
        assert numbers(tuple(once)) == list(range(len(LINES)))
        assert all(units(part.text) <= LIMIT for part in parts)


async def test_emoji_are_counted_as_the_platform_counts_at_worst_and_never_cut(
    open_world: Callable[..., TelegramWorld],
) -> None:
    """B4."""
    agent = Dictated()
    async with open_world(agent) as world:
        for unit in ("👍", "👩‍👩‍👧 ", "🇩🇪", "e\u0301", "漢字。", "a👍 "):
            before = len(world.telegram.visible())
            whole = (unit * (9000 // units(unit))).strip()
            turns = len(agent.turns)
            asks(world)
            await world.until(lambda turns=turns: len(agent.turns) > turns, limit=0.0)  # type: ignore[misc]
            agent.say(whole)
            agent.end()
            await world.until(finished(world))
            parts = [part.text for part in world.telegram.visible()[before:]]
            assert len(parts) == 3
            assert max(map(units, parts)) <= LIMIT
            assert "".join("".join(parts).split()) == "".join(whole.split())
            assert all(part.startswith(unit.strip()) for part in parts), "no cluster was cut"


async def test_code_goes_on_in_a_box_of_its_own_in_each_part(open_world: Callable[..., TelegramWorld]) -> None:
    code = [f"    row_{number} = compute({number}) * 2" for number in range(300)]
    source = "Here:\n\n```python\n" + "\n".join(code) + "\n```\n\nThat was it."
    async with open_world(Scripted(source)) as world:
        parts = await answered(world)
        assert len(parts) >= 3
        boxes = [box for part in parts for box in marks(part, "pre")]
        assert len(boxes) == len(parts)
        assert {entity.language for entity, _ in boxes} == {"python"}
        sent = [line for call in world.telegram.calls("sendMessage") for line in call.text.split("\n")]
        assert [line for line in sent if "row_" in line] == code, "indented as it was"
        assert parts[0].text.startswith("Here:")
        assert parts[-1].text.endswith("That was it.")
        assert not any("```" in part.text for part in parts)


async def test_what_counts_is_what_a_person_sees(open_world: Callable[..., TelegramWorld]) -> None:
    """B4: markup that is not shown takes no room, and markup that grows does."""
    links = " ".join(f"[w{number}](https://example.org/a/very/long/address/{number})" for number in range(90))
    async with open_world(Scripted(links)) as world:
        assert len(links) > LIMIT
        (message,) = await answered(world)
        assert len(marks(message, "text_link")) == 90


async def test_a_long_table_is_cut_between_rows_and_each_part_has_its_head(
    open_world: Callable[..., TelegramWorld],
) -> None:
    rows = [f"| {number:04d} | {'x' * (number % 40)} |" for number in range(200)]
    source = "| Number | Bar |\n|---|---|\n" + "\n".join(rows)
    async with open_world(Scripted(source), server={"rich": False}) as world:
        parts = await answered(world)
        assert len(parts) > 1
        assert all(units(part.text) <= LIMIT for part in parts)
        assert all(part.text.startswith("Number") for part in parts)
        found = [int(number) for part in parts for number in re.findall(r"^(\d{4})", part.text, re.MULTILINE)]
        assert found == list(range(200))


async def test_a_rich_message_holds_what_several_plain_ones_would(open_world: Callable[..., TelegramWorld]) -> None:
    rows = [f"| {number:04d} | some words |" for number in range(1600)]
    source = "| Number | Words |\n|---|---|\n" + "\n".join(rows)
    async with open_world(Scripted(source)) as world:
        parts = await answered(world)
        assert [part.kind for part in parts] == ["rich"] * 3
        assert "400" not in {call.verdict for call in world.telegram.calls()}
        found = [int(number) for part in parts for number in re.findall(r"^\| (\d{4})", part.text, re.MULTILINE)]
        assert found == list(range(1600))


@pytest.mark.parametrize("rich", [True, False], ids=["rich", "entities"])
async def test_what_the_server_finds_too_long_is_cut_smaller(
    open_world: Callable[..., TelegramWorld], rich: bool
) -> None:
    """Whatever its reason: nothing is lost."""
    lines = LINES[:70] + (["", "$x^2$"] if rich else [])
    async with open_world(Scripted("\n".join(lines))) as world:
        for method in ("sendRichMessage", "sendMessage"):
            world.telegram.fail_next(400, method=method, description="Bad Request: message is too long")
        parts = await answered(world)
        assert len(parts) >= 2
        assert numbers(parts) == list(range(70))


async def test_a_final_edit_that_the_server_finds_too_long_is_cut_smaller(
    open_world: Callable[..., TelegramWorld],
) -> None:
    agent = Dictated()
    async with open_world(agent) as world:
        await begins(world, agent, LINES[0] + "\n", chat=GROUP)
        agent.say("\n".join(LINES[1:70]))
        world.telegram.fail_next(400, method="editMessageText", description="Bad Request: MESSAGE_TOO_LONG")
        agent.end()
        await world.until(finished(world))
        parts = world.telegram.visible(GROUP)
        assert len(parts) >= 2
        assert numbers(parts) == list(range(70)), "the first of them where it grew"


# In its place.


async def test_in_a_group_the_answer_replies_to_the_question(open_world: Callable[..., TelegramWorld]) -> None:
    async with open_world(Scripted(LONG)) as world:
        name = asks(world, chat=GROUP)
        await world.until(finished(world))
        assert [message.reply_to for message in world.telegram.visible(GROUP)] == [name, "", "", ""]


async def test_in_a_private_chat_nothing_is_quoted(open_world: Callable[..., TelegramWorld]) -> None:
    async with open_world(Scripted("hello")) as world:
        (message,) = await answered(world)
        assert message.reply_to == ""


@pytest.mark.parametrize("source", ["hello", TABLE], ids=["plain", "rich"])
async def test_a_deleted_question_does_not_cost_the_answer(
    open_world: Callable[..., TelegramWorld], source: str
) -> None:
    gate = Gate()
    async with open_world(Scripted(gate, source)) as world:
        name = asks(world, chat=GROUP)
        await gate.reached()
        world.telegram.erase(name)
        gate.open()
        await world.until(finished(world))
        (message,) = world.telegram.visible(GROUP)
        assert message.reply_to == ""


@pytest.mark.parametrize("chat", [PERSON, FORUM], ids=["private", "forum"])
async def test_everything_that_is_sent_keeps_its_topic(
    open_world: Callable[..., TelegramWorld], clock: OwnedClock, folder: Path, chat: str
) -> None:
    """C5: parts, files, views, typing and what takes the place of a file."""
    agent = Dictated()
    async with open_world(agent) as world:
        await begins(world, agent, LINES[0] + "\n", chat=chat, thread="12")
        agent.say("\n".join(LINES[1:]))
        await clock.advance(10.0)
        agent.do(make(folder, "a.txt", b"text"), make(folder, "b.png", png()), is_missing(folder))
        agent.end()
        await world.until(finished(world))
        await world.rest()
        there = world.telegram.visible(chat, "12")
        assert numbers(there) == list(range(len(LINES)))
        assert [each.name for message in there for each in message.files][:1] == ["a.txt"]
        assert there[-1].text.startswith("I could not send gone.txt")
        assert world.telegram.visible(chat) == (), "nothing in General"
        # An edit and a reaction name a message, and so no topic.
        named = [call for call in calls_to(world.telegram, chat) if "message_id" not in call.params]
        assert {call.thread for call in named} == {"12"}


async def test_topics_of_one_forum_are_answered_each_in_itself(open_world: Callable[..., TelegramWorld]) -> None:
    async with open_world(Echo()) as world:
        places = ["", "12", "34"]
        for thread in places:
            asks(world, f"in {thread or 'General'}", chat=FORUM, thread=thread)
        await world.until(finished(world))
        assert len(world.telegram.sent) == 3
        for thread in places:
            assert world.telegram.posts_in(FORUM, thread) == [f"you said: in {thread or 'General'}"]


async def test_two_bots_in_one_process_answer_each_for_itself(open_world: Callable[..., TelegramWorld]) -> None:
    """C5: the same person, with a chat of the same id at each."""
    async with open_world(Echo(), bots=("other",)) as world:
        world.telegram.says("to the one")
        world.telegram.says("to the other", account="other")
        await world.until(finished(world))
        sent = {message.account: message.text for message in world.telegram.sent}
        assert sent == {"main": "you said: to the one", "other": "you said: to the other"}


async def test_an_answer_may_end_with_buttons(open_world: Callable[..., TelegramWorld]) -> None:
    choices = ("Yes", "No", "Ask me again when the moon is full")
    async with open_world(Scripted(LONG + "\n\nShall I?", ChoicesOffered(choices))) as world:
        *others, last = await answered(world)
        assert [button.label for button in last.choices] == list(choices)
        assert len(last.rows) == 3, "one below the other, since one of them is long"
        assert not any(message.choices for message in others)


# Many at once.


class Coarse(OwnedClock):
    """Moves a tenth of a second at a time: from timer to timer two hundred chats would take it long."""

    async def _step(self) -> None:
        end = self._timers[0][0] + 0.1
        self._now = max(self._now, end)
        while self._timers and self._timers[0][0] <= end:
            _, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.callback()
        await self.rest()


async def test_two_hundred_chats_at_once_are_answered_each_once_and_in_its_chat(tmp_path: Path) -> None:
    """Against an agent that takes 2 s, and a server that counts."""
    clock = Coarse()
    people = [str(number) for number in range(1001, 1201)]

    async def ponders(turn: Turn) -> str:
        await clock.sleep(2.0)
        return f"to {turn.message.text}"

    async with TelegramWorld(
        tmp_path, Scripted(ponders), clock=clock, allow=[f"telegram:{person}" for person in people]
    ) as world:
        world.telegram.limit_rates()
        began = clock.now()
        for person in people:
            world.telegram.says(f"person {person}.", chat=person)
        await world.until(finished(world), real_limit=60.0)
        for person in people:
            assert texts(world.telegram, person) == [f"to person {person}."]
        assert "429" not in {call.verdict for call in world.telegram.calls()}
        assert clock.now() - began < 15.0, "no faster than 30 a second, and not much slower"


async def test_many_messages_to_one_group_keep_to_its_limit(open_world: Callable[..., TelegramWorld]) -> None:
    """20 a minute; nothing is dropped, nothing overtakes."""
    async with open_world(Echo()) as world:
        world.telegram.limit_rates()
        group = Target(adapter="telegram", chat=GROUP, audience=Audience.GROUP)
        for number in range(30):
            await world.gateway.desk.owe(group, Body(text=f"number {number}."), "test")
        await world.until(lambda: len(world.telegram.posts_in(GROUP)) == 30)
        assert world.telegram.posts_in(GROUP) == [f"number {number}." for number in range(30)]
        assert "429" not in {call.verdict for call in world.telegram.calls()}


@pytest.mark.parametrize(("settings", "unfolds"), [({}, False), ({"previews": True}, True)])
async def test_an_address_in_an_answer_unfolds_only_where_the_settings_say_so(
    open_world: Callable[..., TelegramWorld], settings: dict[str, bool], unfolds: bool
) -> None:
    """Else a stranger's text could have a secret fetched from an address that the model was made to write."""
    async with open_world(Scripted("see ", "https://example.org/?secret"), settings=settings) as world:
        for chat in (PERSON, GROUP):
            assert [message.previews for message in await answered(world, chat)] == [unfolds]
