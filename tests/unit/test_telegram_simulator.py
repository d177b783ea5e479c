"""The simulated Telegram is an honest judge: it refuses what the platform refuses, and keeps its own truth."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import telegramify_markdown
from aiohttp import ClientSession, web
from telegram import (
    Bot,
    BotCommandScopeAllGroupChats,
    BotCommandScopeDefault,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    Message,
    MessageEntity,
    ReplyParameters,
    Update,
)
from telegram.constants import ParseMode, ReactionEmoji
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)

from tests.simulators.telegram.arguments import REACTIONS
from tests.simulators.telegram.pair import bot_for, platform
from tests.simulators.telegram.simulator import NASTY, TelegramServer
from tests.simulators.telegram.texts import find_entities, inside
from tests.worlds.fakes import FakeClock

# The library says at each 429 that its numbers will be of another type one day.
pytestmark = pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x10\x00\x00\x00\x10\x08\x06\x00\x00\x00"
WIDE = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x27\x10\x00\x00\x00\x10\x08\x06\x00\x00\x00"
GROUP, FORUM = -40, -1001000000001

Act = Callable[[TelegramServer, Bot], Awaitable[Any]]


def keyboard(data: str = "yes", label: str = "Yes") -> InlineKeyboardMarkup:
    return InlineKeyboardMarkup([[InlineKeyboardButton(label, callback_data=data)]])


async def ask(telegram: TelegramServer, path: str, **body: Any) -> tuple[int, Any]:
    """A call without the library, which would not let everything through."""
    async with ClientSession() as session, session.post(f"http://{telegram.address}{path}", json=body) as answer:
        return answer.status, json.loads(await answer.read())


async def raw(telegram: TelegramServer, method: str, **body: Any) -> tuple[int, Any]:
    return await ask(telegram, f"/bot{telegram.token}/{method}", **body)


# What is refused, and in which words.


async def edit_people(telegram: TelegramServer, bot: Bot) -> None:
    await bot.edit_message_text("x", 7, int(telegram.says("hi").partition(":")[2]))


async def edit_same(telegram: TelegramServer, bot: Bot) -> None:
    message = await bot.send_message(7, "same", reply_markup=keyboard())
    await bot.edit_message_text("same ", 7, message.message_id, reply_markup=keyboard())


async def edit_same_keyboard(telegram: TelegramServer, bot: Bot) -> None:
    message = await bot.send_message(7, "same", reply_markup=keyboard())
    await bot.edit_message_reply_markup(7, message.message_id, reply_markup=keyboard())


async def edit_long(telegram: TelegramServer, bot: Bot) -> None:
    message = await bot.send_message(7, "short")
    await bot.edit_message_text("x" * 4097, 7, message.message_id)


async def edit_file(telegram: TelegramServer, bot: Bot) -> None:
    message = await bot.send_document(7, b"data", filename="a.txt")
    await bot.edit_message_text("x", 7, message.message_id)


async def edit_erased(telegram: TelegramServer, bot: Bot) -> None:
    message = await bot.send_message(7, "soon gone")
    telegram.erase(message.message_id, 7)
    await bot.edit_message_text("x", 7, message.message_id)


async def react(telegram: TelegramServer, bot: Bot, emoji: str = "👀", allowed: bool = True) -> None:
    telegram.forbid_reactions(7, not allowed)
    await bot.set_message_reaction(7, int(telegram.says("hi").partition(":")[2]), emoji)


async def delete_others(telegram: TelegramServer, bot: Bot) -> None:
    telegram.open_chat(GROUP)
    await bot.delete_message(GROUP, int(telegram.says("hi", chat=GROUP).partition(":")[2]))


async def in_forum(telegram: TelegramServer, bot: Bot, lever: str = "", thread: int = 0) -> None:
    topic = telegram.open_topic(FORUM, "News")
    if lever:
        getattr(telegram, lever)(FORUM, topic)
    await bot.send_message(FORUM, "x", message_thread_id=thread or int(topic))


async def after(telegram: TelegramServer, bot: Bot, lever: str, chat: int) -> None:
    telegram.open_chat(chat)
    getattr(telegram, lever)(chat)
    await bot.send_message(chat, "x")


async def answer_twice(telegram: TelegramServer, bot: Bot) -> None:
    message = await bot.send_message(7, "sure?", reply_markup=keyboard())
    query = telegram.presses(message.message_id, "yes")
    await bot.answer_callback_query(query)
    await bot.answer_callback_query(query)


def entity(offset: int, length: int, type: str = "bold", **more: Any) -> list[MessageEntity]:
    return [MessageEntity(type, offset, length, **more)]


def send(text: str, chat: int | str = 7, **more: Any) -> Act:
    return lambda telegram, bot: bot.send_message(chat, text, **more)


NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same as a current "
    "content and reply markup of the message"
)
TOO_LATE = "query is too old and response timeout expired or query ID is invalid"

REFUSALS: list[tuple[str, Act, str]] = [
    ("empty text", send(""), "message text is empty"),
    ("only white space", send(" \n\t "), "text must be non-empty"),
    ("too long", send("x" * 4097), "message is too long"),
    ("too many bytes", send(" " * 32769), "text is too long"),
    ("unknown chat", send("x", chat=8), "chat not found"),
    ("no chat", lambda t, b: b.send_message("", "x"), "chat_id is empty"),
    (
        "markup before chat",
        send("a.b", parse_mode="MarkdownV2", chat=8),
        "can't parse entities: Character '.' is reserved and must be escaped with the preceding '\\'",
    ),
    (
        "unknown tag",
        send("Vec<T>", parse_mode="HTML"),
        'can\'t parse entities: Unsupported start tag "t" at byte offset 3',
    ),
    ("unknown mode", send("x", parse_mode="BBCode"), "unsupported parse_mode"),
    (
        "entity in half an emoji",
        send("a😀b", entities=entity(2, 2)),
        "entity begins in a middle of a UTF-16 symbol at byte offset 5",
    ),
    (
        "entity to half an emoji",
        send("a😀b", entities=entity(0, 2)),
        "entity beginning at UTF-16 offset 0 ends in a middle of a UTF-16 symbol at byte offset 5",
    ),
    (
        "entity beyond the text",
        send("abc", entities=entity(1, 3)),
        "entity beginning at UTF-16 offset 1 ends after the end of the text at UTF-16 offset 4",
    ),
    ("entity before the text", send("abc", entities=entity(-1, 3)), "receive an entity with incorrect offset -1"),
    (
        "entity of no type",
        send("abc", entities=entity(0, 3, "loud")),
        "can't parse MessageEntity: Unsupported type specified",
    ),
    (
        "a link to nowhere",
        send("abc", entities=entity(0, 3, "text_link", url="#top")),
        "entity URL '#top' is invalid: URL host is empty",
    ),
    ("an answer to nothing", send("x", reply_parameters=ReplyParameters(99)), "message to be replied not found"),
    ("a thread in a private chat", send("x", message_thread_id=5), "message thread not found"),
    ("a deleted topic", lambda t, b: in_forum(t, b, "delete_topic"), "message thread not found"),
    ("a closed topic", lambda t, b: in_forum(t, b, "close_topic"), "TOPIC_CLOSED"),
    ("General by its number", lambda t, b: in_forum(t, b, thread=1), "message thread not found"),
    ("editing nothing", lambda t, b: b.edit_message_text("x", 7, 99), "message to edit not found"),
    ("editing what was erased", edit_erased, "message to edit not found"),
    ("editing a person's message", edit_people, "message can't be edited"),
    ("editing nothing new", edit_same, NOT_MODIFIED),
    ("the same keyboard", edit_same_keyboard, NOT_MODIFIED),
    ("editing to too much", edit_long, "MESSAGE_TOO_LONG"),
    ("editing a file's text", edit_file, "there is no text in the message to edit"),
    ("deleting nothing", lambda t, b: b.delete_message(7, 99), "message to delete not found"),
    ("deleting for others", delete_others, "message can't be deleted"),
    ("a draft in a group", lambda t, b: after_open(t, b.send_message_draft, GROUP, 1, "x"), "TEXTDRAFT_PEER_INVALID"),
    ("a draft without id", lambda t, b: b.send_message_draft(7, 0, "x"), "draft_id must be non-zero"),
    ("a blank draft", lambda t, b: b.send_message_draft(7, 1, " "), "text must be non-empty"),
    ("a check mark", lambda t, b: react(t, b, "✅"), "REACTION_INVALID"),
    ("reactions are off", lambda t, b: react(t, b, allowed=False), "REACTION_INVALID"),
    ("reacting to nothing", lambda t, b: b.set_message_reaction(7, 99, "👀"), "message to react not found"),
    ("no image", lambda t, b: b.send_photo(7, b"no image"), "IMAGE_PROCESS_FAILED"),
    ("too wide", lambda t, b: b.send_photo(7, WIDE), "PHOTO_INVALID_DIMENSIONS"),
    (
        "too big a photo",
        lambda t, b: b.send_photo(7, PNG + bytes(10 * 2**20)),
        f"file of size {len(PNG) + 10 * 2**20} bytes is too big for a photo; the maximum size is 10485760 bytes",
    ),
    ("an empty file", lambda t, b: b.send_document(7, b"", filename="a.txt"), "file must be non-empty"),
    ("an unknown file", lambda t, b: b.send_document(7, "who"), "wrong file identifier/HTTP URL specified"),
    ("too long a caption", lambda t, b: b.send_document(7, b"x", caption="x" * 1025), "message caption is too long"),
    ("fetching nothing", lambda t, b: b.get_file("who"), "wrong file_id or the file is temporarily unavailable"),
    ("long button data", send("x", reply_markup=keyboard("ä" * 33)), "BUTTON_DATA_INVALID"),
    ("a wrong action", lambda t, b: b.send_chat_action(7, "dancing"), "wrong parameter action in request"),
    ("a capital command", lambda t, b: b.set_my_commands([("New", "x")]), "BOT_COMMAND_INVALID"),
    ("a dashed command", lambda t, b: b.set_my_commands([("new-one", "x")]), "BOT_COMMAND_INVALID"),
    ("no description", lambda t, b: b.set_my_commands([("new", " ")]), "BOT_COMMAND_DESCRIPTION_INVALID"),
    (
        "too many commands",
        lambda t, b: b.set_my_commands([(f"c{n}", "x") for n in range(101)]),
        "BOT_COMMANDS_TOO_MUCH",
    ),
    ("an unknown press", lambda t, b: b.answer_callback_query("1"), TOO_LATE),
    ("a press answered twice", answer_twice, TOO_LATE),
    (
        "a webhook in the clear",
        lambda t, b: b.set_webhook("http://example.org/x"),
        "bad webhook: An HTTPS URL must be provided for webhook",
    ),
    (
        "a strange secret",
        lambda t, b: b.set_webhook("https://example.org/x", secret_token="a b"),
        "secret token contains unallowed characters",
    ),
]


async def after_open(telegram: TelegramServer, act: Callable[..., Awaitable[Any]], chat: int, *more: Any) -> None:
    telegram.open_chat(chat)
    await act(chat, *more)


@pytest.mark.parametrize(("_name", "act", "words"), REFUSALS, ids=[row[0] for row in REFUSALS])
async def test_what_the_platform_refuses_is_refused_in_its_own_words(_name: str, act: Act, words: str) -> None:
    async with platform() as (telegram, bot):
        with pytest.raises(BadRequest):
            await act(telegram, bot)
        last = telegram.calls()[-1]
        assert (last.verdict, last.result) == ("400", f"Bad Request: {words}")
        # What came before it may stand there; nothing came of the refusal itself.
        assert not [effect for effect in telegram.effects if effect.at > last.at]


def button(**shape: Any) -> dict[str, Any]:
    return {"inline_keyboard": [[shape]]}


NOT_AN_ENTITY = "can't parse MessageEntity: "
NOT_A_BUTTON = "can't parse inline keyboard button: "

# What the library would not send.
NONSENSE: list[tuple[str, dict[str, Any], str]] = [
    ("sendMessage", {"text": "\ud800"}, "strings must be encoded in UTF-8"),
    ("sendMessage", {"entities": [5]}, f"{NOT_AN_ENTITY}expected an Object"),
    ("sendMessage", {"entities": [{"type": "bold", "offset": 0}]}, f'{NOT_AN_ENTITY}can\'t find field "length"'),
    (
        "sendMessage",
        {"entities": [{"type": "text_link", "offset": 0, "length": 1}]},
        f'{NOT_AN_ENTITY}can\'t find field "url"',
    ),
    (
        "sendMessage",
        {"entities": [{"type": "text_mention", "offset": 0, "length": 1}]},
        f'{NOT_AN_ENTITY}can\'t find field "user"',
    ),
    (
        "sendMessage",
        {"entities": [{"type": "bold", "offset": 0, "length": -1}]},
        "receive an entity with incorrect length -1",
    ),
    (
        "sendMessage",
        {"entities": [{"type": "bold", "offset": 9, "length": 1}]},
        "entity begins after the end of the text at UTF-16 offset 9",
    ),
    ("sendMessage", {"reply_parameters": "{"}, "can't parse reply parameters JSON object"),
    ("sendMessage", {"reply_parameters": [1]}, "object expected as reply parameters"),
    ("sendMessage", {"reply_markup": "{"}, "can't parse reply keyboard markup JSON object"),
    ("sendMessage", {"reply_markup": [1]}, "object expected as reply markup"),
    (
        "sendMessage",
        {"reply_markup": {"inline_keyboard": [1]}},
        'field "inline_keyboard" of the InlineKeyboardMarkup should be an Array of Arrays',
    ),
    (
        "sendMessage",
        {"reply_markup": {"inline_keyboard": [["x"]]}},
        f"{NOT_A_BUTTON}InlineKeyboardButton must be an Object",
    ),
    (
        "sendMessage",
        {"reply_markup": button(text=" ", callback_data="x")},
        f'{NOT_A_BUTTON}field "text" must be non-empty',
    ),
    (
        "sendMessage",
        {"reply_markup": button(text="x")},
        f"{NOT_A_BUTTON}Text buttons are unallowed in the inline keyboard",
    ),
    ("sendMessage", {"reply_markup": button(text="x", url="/etc/x")}, "BUTTON_URL_INVALID"),
    (
        "sendMessage",
        {"reply_markup": {"inline_keyboard": [[{"text": "x", "callback_data": "x"}]] * 101}},
        "reply markup is too long",
    ),
    ("setMessageReaction", {"reaction": {}}, "expected an Array of ReactionType"),
    ("setMessageReaction", {"reaction": [{"type": "paid"}]}, "REACTION_INVALID"),
    ("setMessageReaction", {"reaction": [{"type": "emoji", "emoji": "👍"}] * 2}, "REACTIONS_TOO_MANY"),
    ("setMyCommands", {"commands": {}}, "expected an Array of BotCommand"),
    ("setMyCommands", {"commands": [{"command": "x"}]}, "can't parse BotCommand: expected an Object"),
    ("setMyCommands", {"scope": {"type": "moon"}}, "can't parse BotCommandScope: Unsupported type specified"),
    ("sendRichMessage", {"rich_message": "{"}, "can't parse rich message JSON object"),
    ("sendRichMessage", {"rich_message": {"markdown": " "}}, "message text is empty"),
    ("sendDocument", {}, "there is no document in the request"),
    ("getFile", {}, "file_id not specified"),
    ("setWebhook", {"url": "https://"}, "invalid webhook URL specified"),
    ("setWebhook", {"url": "https://x.y/z", "secret_token": "x" * 257}, "secret token is too long"),
]


async def test_nonsense_is_refused_in_the_platforms_own_words() -> None:
    async with TelegramServer(webhook_pause=0) as telegram:
        telegram.says("hello")
        for method, what, words in NONSENSE:
            body = {"chat_id": 7, "message_id": 1, "text": "text"} | what
            _, answer = await raw(telegram, method, **body)
            assert (method, what, answer.get("description")) == (method, what, f"Bad Request: {words}")
        # What the server cannot read as entities at all, it takes for none.
        assert (await raw(telegram, "sendMessage", chat_id=7, text="text", entities="{"))[0] == 200
        assert (await raw(telegram, "sendMessage", chat_id=7, text="text", parse_mode="Markdown"))[0] == 501


FORBIDDEN: list[tuple[str, Act, int, str]] = [
    ("blocked", lambda t, b: after(t, b, "block", 7), 403, "Forbidden: bot was blocked by the user"),
    ("kicked", lambda t, b: after(t, b, "kick", FORUM), 403, "Forbidden: bot was kicked from the supergroup chat"),
    ("gone", lambda t, b: after(t, b, "leave", FORUM), 403, "Forbidden: bot is not a member of the supergroup chat"),
    ("kicked early", lambda t, b: after(t, b, "kick", GROUP), 403, "Forbidden: bot was kicked from the group chat"),
]


@pytest.mark.parametrize(("_name", "act", "code", "words"), FORBIDDEN, ids=[row[0] for row in FORBIDDEN])
async def test_who_is_shut_out_is_told_so(_name: str, act: Act, code: int, words: str) -> None:
    async with platform() as (telegram, bot):
        with pytest.raises(Forbidden):
            await act(telegram, bot)
        assert telegram.calls()[-1].result == words
        assert telegram.posts == []
        # A bot is told when it is thrown out, too.
        [update] = await bot.get_updates()
        assert update.my_chat_member is not None
        assert update.my_chat_member.new_chat_member.status in ("kicked", "left")


async def test_unknown_methods_and_tokens_are_told_apart() -> None:
    async with platform() as (telegram, bot):
        with pytest.raises(EndPointNotFound):
            await bot.do_api_request("sendTelepathy")
        assert await ask(telegram, "/botnonsense/getMe") == (
            404,
            {"ok": False, "error_code": 404, "description": "Not Found"},
        )
        assert await ask(telegram, "/bot1:unknown/getMe") == (
            401,
            {"ok": False, "error_code": 401, "description": "Unauthorized"},
        )
        # What is only missing here must not pass for the platform's word.
        assert (await raw(telegram, "sendMediaGroup"))[0] == 501


async def test_parameters_come_as_form_json_or_query_and_names_in_any_case() -> None:
    async with platform() as (telegram, bot):
        await bot.send_message(7, "form", reply_markup=keyboard())
        status, answer = await raw(
            telegram, "SENDMESSAGE", chat_id=7, text="json", reply_markup={"inline_keyboard": []}
        )
        assert (status, answer["result"]["text"]) == (200, "json")
        assert (await ask(telegram, f"/bot{telegram.token}/sendmessage?chat_id=7&text=query&colour=red"))[0] == 200
        assert telegram.posts == ["form", "json", "query"]
        assert [call.method for call in telegram.calls("sendMessage")] == ["sendMessage"] * 3
        assert telegram.sent[0].choices[0].id == "yes"


# Texts.


async def test_length_is_counted_in_characters_after_parsing() -> None:
    async with platform() as (telegram, bot):
        await bot.send_message(7, "😀" * 4096)
        await bot.send_message(7, f"<b>{'&lt;' * 4096}</b>", parse_mode=ParseMode.HTML)
        await bot.send_message(7, f"  {'y' * 4096}\n\n")
        assert telegram.posts == ["😀" * 4096, "<" * 4096, "y" * 4096]
        with pytest.raises(BadRequest, match="too long"):
            await bot.send_message(7, "😀" * 4097)
        await bot.send_document(7, b"x", caption="😀" * 1024)


async def test_texts_are_trimmed_and_cleaned_and_entities_follow() -> None:
    async with platform() as (telegram, bot):
        message = await bot.send_message(7, "\n  a\tb\r\n😀 c  ", entities=entity(3, 3) + entity(10, 4, "italic"))
        assert telegram.posts == ["a b\n😀 c"]
        [sent] = telegram.sent
        assert [(each.type, inside(sent.text, each)) for each in sent.entities] == [("bold", "a b"), ("italic", "c")]
        assert [message.parse_entity(each) for each in message.entities] == ["a b", "c"]


async def test_the_first_hundred_entities_are_shown() -> None:
    async with platform() as (telegram, bot):
        many = [MessageEntity("bold", 2 * n, 1) for n in range(150)]
        message = await bot.send_message(7, "x " * 150, entities=many)
        assert len(message.entities) == 100
        assert telegram.sent[0].entities[-1].offset == 198


RAW_MARKDOWN = (
    "# Title\n\nSome *words*.",
    "- one\n- two",
    "1. one",
    "a_b_c_d is not **bold**!",
    "| a | b |",
    "> quote\n\nand (more)",
    "x = 1",
    "`open",
    "[link](http://x.y",
    "snake_case",
)


@pytest.mark.parametrize("text", RAW_MARKDOWN)
async def test_raw_markdown_is_refused(text: str) -> None:
    async with platform() as (telegram, bot):
        with pytest.raises(BadRequest, match="Can't parse entities"):
            await bot.send_message(7, text, parse_mode=ParseMode.MARKDOWN_V2)
        converted = telegramify_markdown.markdownify(text)
        await bot.send_message(7, converted, parse_mode=ParseMode.MARKDOWN_V2)
        assert len(telegram.sent) == 1


MARKED = [
    ("*b* _i_ __u__ ~s~ ||p||", "b i u s p", ["bold b", "italic i", "underline u", "strikethrough s", "spoiler p"]),
    ("```py\nx.y\n```", "x.y", ["pre x.y"]),
    ("`a.b` 1\\.5 😀 *c*", "a.b 1.5 😀 c", ["code a.b", "bold c"]),
    ("[l](https://x.y/\\(z\\))", "l", ["text_link l"]),
    ("[l](nowhere)", "l", []),
    (">a\n>b\nc", "a\nb\nc", ["blockquote a\nb"]),
    ("*a _b_*", "a b", ["bold a b", "italic b"]),
    ("<b>a<i>b</i></b>", "ab", ["bold ab", "italic b"]),
    ("<a href='https://x.y?a=1&amp;b=2'>l</a> &lt;&#33;", "l <!", ["text_link l"]),
    ('<pre><code class="language-py">x</code></pre>', "x", ["pre x"]),
    ("<blockquote expandable>q</blockquote>", "q", ["expandable_blockquote q"]),
]


@pytest.mark.parametrize(("source", "text", "marks"), MARKED)
async def test_good_markup_becomes_entities(source: str, text: str, marks: list[str]) -> None:
    async with platform() as (telegram, bot):
        mode = ParseMode.HTML if "<" in source else ParseMode.MARKDOWN_V2
        await bot.send_message(7, source, parse_mode=mode)
        [sent] = telegram.sent
        assert (sent.text, [f"{each.type} {inside(text, each)}" for each in sent.entities]) == (text, marks)


BAD_MARKUP = [
    ("<b>a", "Can't find end tag corresponding to start tag b"),
    ("a</b>", "Unexpected end tag at byte offset 1"),
    ("<b>a</i>", 'Unmatched end tag at byte offset 4, expected "</b>", found "</i>"'),
    ("<b>a</b", "Unclosed end tag at byte offset 4"),
    ("ä < b", 'Unsupported start tag "" at byte offset 3'),
    ("<br>", 'Unsupported start tag "br" at byte offset 0'),
    ("<x", "Unclosed start tag at byte offset 0"),
    ("<b class=", "Unclosed start tag at byte offset 0"),
    ("<i x>a</i>", 'Expected equal sign in declaration of an attribute of the tag "i" at byte offset 0'),
    ("<span>a</span>", 'Tag "span" must have class "tg-spoiler" at byte offset 0'),
    ("<tg-emoji>a</tg-emoji>", "Invalid custom emoji identifier specified"),
    (
        "&#xd800;<b>a</b>",
        "Text contains invalid Unicode characters after decoding HTML entities, check for unmatched surrogate code "
        "units",
    ),
    ("ä *b", "Can't find end of Bold entity at byte offset 3"),
    ("```py\nx", "Can't find end of PreCode entity at byte offset 0"),
    (">a *b\nc", "Can't find end of Bold entity at byte offset 3"),
    ("[a](b", "Can't find end of a URL at byte offset 4"),
    ("![a]", "Custom emoji entity must contain a tg://emoji URL"),
    ("![a](b)", "Invalid custom emoji identifier specified"),
    ("a > b", "Character '>' is reserved and must be escaped with the preceding '\\'"),
]


@pytest.mark.parametrize(("source", "words"), BAD_MARKUP)
async def test_bad_markup_is_refused_and_its_place_is_named(source: str, words: str) -> None:
    async with platform() as (telegram, bot):
        mode = ParseMode.HTML if re.search(r"</?\w|ä <", source) else ParseMode.MARKDOWN_V2
        with pytest.raises(BadRequest):
            await bot.send_message(7, source, parse_mode=mode)
        assert telegram.calls()[-1].result == f"Bad Request: can't parse entities: {words}"


# Updates.


async def test_an_update_comes_again_until_a_higher_offset_forgets_it() -> None:
    async with platform() as (telegram, bot):
        first, second = telegram.says("one"), telegram.says("two")
        one, two = await bot.get_updates(offset=0)
        assert [update.effective_message.text for update in (one, two) if update.effective_message] == ["one", "two"]
        assert two.update_id == one.update_id + 1
        assert await bot.get_updates(offset=one.update_id) == (one, two)
        assert (telegram.confirmed, telegram.unconfirmed) == ([], [first, second])
        assert await bot.get_updates(offset=two.update_id) == (two,)
        assert (telegram.confirmed, telegram.unconfirmed) == ([first], [second])
        await bot.get_updates(offset=two.update_id + 1)
        assert (telegram.confirmed, telegram.unconfirmed) == ([first, second], [])
        assert [effect.key for effect in telegram.effects if effect.act == "confirm"] == [first, second]


async def test_a_hasty_repeat_gets_one_update_and_an_idle_one_is_made_to_wait() -> None:
    async with platform(repeat_seconds=0.6) as (telegram, bot):
        for text in "abc":
            telegram.says(text)
        assert len(await bot.get_updates(offset=0)) == 3
        assert len(await bot.get_updates(offset=0)) == 1
        assert len(await bot.get_updates(offset=-1)) == 1
        assert telegram.confirmed == ["7:1", "7:2"]
        offset = telegram.chats.bot("main").queue.next_id
        began = time.monotonic()
        await bot.get_updates(offset=offset)
        assert time.monotonic() - began < 0.6
        await bot.get_updates(offset=offset)
        assert time.monotonic() - began >= 0.6


async def test_limits_of_a_batch_are_kept() -> None:
    async with platform() as (telegram, bot):
        for number in range(120):
            telegram.says(str(number))
        assert len(await bot.get_updates(offset=0, limit=7)) == 7
        assert len(await bot.get_updates(offset=1, limit=1000)) == 100


async def test_a_long_poll_ends_when_something_happens() -> None:
    async with platform() as (telegram, bot):
        poll = asyncio.create_task(bot.get_updates(timeout=50))
        await telegram.until(lambda telegram: telegram.attached())
        telegram.says("hello")
        [update] = await poll
        assert update.message is not None
        assert update.message.text == "hello"
        assert not telegram.attached()


async def test_a_second_poller_ends_the_first_and_who_goes_on_is_slowed_down() -> None:
    async with platform(repeat_seconds=0.3) as (telegram, bot), bot_for(telegram) as other:
        first = asyncio.create_task(bot.get_updates(timeout=50))
        await telegram.until(lambda telegram: telegram.attached())
        second = asyncio.create_task(other.get_updates(timeout=50))
        with pytest.raises(Conflict, match="terminated by other getUpdates request; make sure that only one"):
            await first
        began = time.monotonic()
        await telegram.until(lambda telegram: telegram.attached())
        third = asyncio.create_task(bot.get_updates(timeout=50))
        with pytest.raises(Conflict):
            await second
        assert time.monotonic() - began >= 0.3
        telegram.says("hello")
        assert len(await third) == 1
        assert telegram.conflicts == 2


async def test_kinds_of_updates_are_filtered_as_last_asked() -> None:
    async with platform() as (telegram, bot):
        await bot.get_updates(allowed_updates=["message"], offset=1)
        name = telegram.says("hello")
        telegram.edits(name, "hallo")
        telegram.block(7)
        assert [update.message is not None for update in await bot.get_updates(offset=2)] == [True]
        # Not named again, so remembered; an empty list means the usual ones.
        telegram.edits(name, "hullo")
        assert telegram.unconfirmed == [name]
        await bot.get_updates(allowed_updates=[], offset=3)
        telegram.block(7, on=False)
        assert len(telegram.unconfirmed) == 2


async def test_ids_may_begin_anew_and_an_old_offset_then_forgets_nothing() -> None:
    async with platform() as (telegram, bot):
        telegram.says("before")
        [update] = await bot.get_updates()
        old = update.update_id + 1
        await bot.get_updates(offset=old)
        telegram.jump_ids(1234)
        name = telegram.says("after")
        [update] = await bot.get_updates(offset=old)
        assert (update.update_id, telegram.unconfirmed) == (1234, [name])
        await bot.get_updates(offset=1235)
        assert telegram.unconfirmed == []


async def test_the_same_message_may_come_in_another_update_and_in_odd_ones() -> None:
    async with platform() as (telegram, bot):
        name = telegram.says("hello")
        telegram.redeliver(name)
        telegram.redeliver(name)
        odd = telegram.odd({"message": {"message_id": "not a number"}})
        status, answer = await raw(telegram, "getUpdates")
        first, second, third, fourth = answer["result"]
        assert first["message"] == second["message"] == third["message"]
        assert first["update_id"] + 1 == second["update_id"]
        assert fourth == {"update_id": third["update_id"] + 1, "message": {"message_id": "not a number"}}
        await raw(telegram, "getUpdates", offset=fourth["update_id"] + 1)
        assert telegram.confirmed == [name, name, name, odd]


async def test_what_nobody_fetches_for_a_day_is_gone() -> None:
    clock = FakeClock()
    async with platform(clock=clock) as (telegram, bot):
        name = telegram.says("hello")
        await clock.advance(24 * 3600 + 1)
        telegram.says("later")
        assert len(await bot.get_updates()) == 1
        assert (telegram.expired, telegram.confirmed) == ([name], [])


# Webhooks.


@asynccontextmanager
async def endpoint(statuses: Callable[[Update], int]) -> AsyncIterator[tuple[str, list[tuple[int, str, int]]]]:
    """A bot's webhook: where it is, and (chat, text, status) of each call."""
    heard: list[tuple[int, str, int]] = []

    async def hear(request: web.Request) -> web.Response:
        assert request.headers["X-Telegram-Bot-Api-Secret-Token"] == "secret"
        update = Update.de_json(await request.json())
        assert update.message is not None
        status = statuses(update)
        heard.append((update.message.chat_id, update.message.text or "", status))
        return web.Response(status=status)

    app = web.Application()
    app.router.add_post("/hook", hear)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook", heard
    finally:
        await runner.cleanup()


async def test_a_webhook_is_called_again_until_it_accepts_while_other_chats_go_on() -> None:
    failures = {"bad": 3}

    def statuses(update: Update) -> int:
        text = update.message.text or "" if update.message else ""
        failures[text] = failures.get(text, 0) - 1
        return 500 if failures[text] >= 0 else 200

    async with endpoint(statuses) as (url, heard), platform(retry_seconds=0.02) as (telegram, bot):
        waiting = telegram.says("waiting", chat=9)
        await bot.set_webhook(url, secret_token="secret", allowed_updates=["message"])
        assert telegram.attached()
        bad, good, other = telegram.says("bad"), telegram.says("good"), telegram.says("other", chat=8)
        await telegram.until(lambda telegram: not telegram.unconfirmed)
        assert [call[1:] for call in heard if call[0] == 7] == [("bad", 500)] * 3 + [("bad", 200), ("good", 200)]
        assert sorted(telegram.confirmed) == sorted([bad, good, other, waiting])
        assert telegram.confirmed.index(other) < telegram.confirmed.index(bad) < telegram.confirmed.index(good)
        info = await bot.get_webhook_info()
        assert (info.url, info.pending_update_count, info.allowed_updates) == (url, 0, ("message",))
        assert info.last_error_message == "Wrong response from the webhook: 500"


async def test_a_webhook_and_a_poll_exclude_each_other() -> None:
    async with platform(repeat_seconds=0.05) as (telegram, bot):
        poll = asyncio.create_task(bot.get_updates(timeout=50))
        await telegram.until(lambda telegram: telegram.attached())
        await bot.set_webhook("http://127.0.0.1:1/hook")
        with pytest.raises(Conflict, match="terminated by setWebhook"):
            await poll
        with pytest.raises(Conflict, match="can't use getUpdates method while webhook is active; use deleteWebhook"):
            await bot.get_updates()
        telegram.says("dropped")
        await bot.delete_webhook(drop_pending_updates=True)
        assert (telegram.unconfirmed, telegram.confirmed, telegram.attached()) == ([], [], False)
        kept = telegram.says("kept")
        assert len(await bot.get_updates()) == 1
        assert telegram.unconfirmed == [kept]


async def test_a_webhook_is_not_set_twice_in_a_second() -> None:
    clock = FakeClock()
    async with platform(clock=clock) as (_, bot):
        await bot.set_webhook("https://example.org/hook")
        with pytest.raises(RetryAfter):
            await bot.set_webhook("https://example.org/other")
        await clock.advance(1)
        await bot.set_webhook("https://example.org/other")
    async with platform(webhook_pause=0) as (_, bot):
        for _ in range(2):
            await bot.set_webhook("https://example.org/hook")


# Chats.


async def received(bot: Bot) -> list[Message]:
    """Everything new, which is forgotten with that."""
    updates = await bot.get_updates()
    if updates:
        await bot.get_updates(offset=updates[-1].update_id + 1)
    return [update.effective_message for update in updates if isinstance(update.effective_message, Message)]


async def test_privacy_mode_hides_what_is_not_said_to_the_bot() -> None:
    async with platform(repeat_seconds=0) as (telegram, bot):
        assert not (await bot.get_me()).can_read_all_group_messages
        telegram.open_chat(GROUP)
        mine = await bot.send_message(GROUP, "here I am")
        for text in ("chatter", "/do@other_bot", "mail me@tidings_bot.org", "@tidings_bots"):
            telegram.says("so say I", chat=GROUP, reply_to=telegram.says(text, chat=GROUP))
        heard = [
            telegram.says("hello @Tidings_Bot!", chat=GROUP),
            telegram.says("/do@tidings_bot now", chat=GROUP),
            telegram.says("/do now", chat=GROUP),
            telegram.says("yes", chat=GROUP, reply_to=mine.message_id),
        ]
        messages = await received(bot)
        assert [f"{each.chat_id}:{each.message_id}" for each in messages] == heard
        assert messages[3].reply_to_message is not None
        assert messages[3].reply_to_message.text == "here I am"
        telegram.promote(GROUP)
        telegram.says("chatter", chat=GROUP)
        assert [each.text for each in await received(bot)] == ["chatter"]
    async with platform(reads_all=True) as (telegram, bot):
        telegram.says("chatter", chat=GROUP)
        assert len(await received(bot)) == 1


async def test_commands_and_mentions_are_marked_as_apps_do() -> None:
    async with platform() as (telegram, bot):
        telegram.says("😀 /stop@tidings_bot, @ada and a/b https://x.y/z @x")
        [message] = await received(bot)
        assert [(each.type, message.parse_entity(each)) for each in message.entities] == [
            ("bot_command", "/stop@tidings_bot"),
            ("mention", "@ada"),
            ("url", "https://x.y/z"),
        ]
    assert find_entities("/" + "a" * 65) == ()


async def test_two_bots_share_groups_but_not_private_chats() -> None:
    async with TelegramServer() as telegram:
        telegram.add_bot("other", "1000002:other-token", "other_bot")
        async with bot_for(telegram) as bot, bot_for(telegram, account="other") as other:
            for account in ("main", "other"):
                telegram.open_chat(GROUP, account=account)
            telegram.says("/do@other_bot", chat=GROUP)
            telegram.says("psst", account="other")
            assert [each.text for each in await received(other)] == ["/do@other_bot", "psst"]
            assert await bot.get_updates(offset=1) == ()
            mine = await bot.send_message(GROUP, "mine")
            telegram.says("/do", chat=GROUP)
            assert len(await received(bot)) == 1
            # The other one did not write last.
            assert await other.get_updates(offset=-1, timeout=0) == ()
            with pytest.raises(BadRequest, match="can't be edited"):
                await other.edit_message_text("stolen", GROUP, mine.message_id)
            assert telegram.confirmed_by("other") == [f"{GROUP}:1", "7:1"]


async def test_verbs_that_make_no_sense_are_the_tests_own_fault() -> None:
    async with TelegramServer() as telegram:
        telegram.open_chat(GROUP)
        name = telegram.says("pending")
        for wrong in (
            lambda: telegram.block(99),
            lambda: telegram.says("x", reply_to=99),
            lambda: telegram.says("x", chat=GROUP, thread=5),
            lambda: telegram.migrate(7, FORUM),
            lambda: telegram.presses(name, "x"),
            lambda: telegram.jump_ids(5),
        ):
            with pytest.raises((LookupError, ValueError, RuntimeError)):
                wrong()
        assert telegram.unconfirmed == [name]


async def test_topics_of_a_forum() -> None:
    async with platform(reads_all=True, repeat_seconds=0) as (telegram, bot):
        news = int(telegram.open_topic(FORUM, "News"))
        [opened] = await received(bot)
        assert opened.forum_topic_created is not None
        assert (opened.message_id, opened.message_thread_id) == (news, news)
        telegram.says("hello", chat=FORUM, thread=news)
        general = telegram.says("hello", chat=FORUM)
        telegram.says("answer", chat=FORUM, reply_to=general)
        in_topic, in_general, reply = await received(bot)
        assert (in_topic.message_thread_id, in_topic.is_topic_message) == (news, True)
        # What answers nothing answers the message that opened the topic.
        assert in_topic.reply_to_message is not None
        assert in_topic.reply_to_message.message_id == news
        assert (in_general.message_thread_id, in_general.is_topic_message) == (None, None)
        # A chain of replies has a thread that is no topic.
        assert (reply.message_thread_id, reply.is_topic_message) == (in_general.message_id, None)
        await bot.send_message(FORUM, "in the topic", message_thread_id=news)
        await bot.send_message(FORUM, "in General")
        await bot.send_message(FORUM, "follows", reply_parameters=ReplyParameters(in_topic.message_id))
        await bot.send_chat_action(FORUM, "typing", message_thread_id=1)
        assert telegram.posts_in(FORUM, news) == ["in the topic", "follows"]
        assert telegram.posts_in(FORUM, "") == ["in General"]
        telegram.delete_topic(FORUM, news)
        assert telegram.posts == ["in General"]


async def test_a_private_chat_may_have_topics() -> None:
    async with platform() as (telegram, bot):
        assert not (await bot.get_me()).has_topics_enabled
        telegram.says("hello", thread=50)
        [message] = await received(bot)
        assert (message.message_thread_id, message.is_topic_message) == (50, True)
        await bot.send_message_draft(7, 1, "half", message_thread_id=50)
        assert [each.text for each in telegram.visible(7, 50)] == ["half"]
        await bot.send_message(7, "elsewhere")
        assert [each.text for each in telegram.visible(7, 50)] == ["half"]
        await bot.send_message(7, "whole", message_thread_id=50)
        assert [each.text for each in telegram.visible(7, 50)] == ["whole"]
        assert (await bot.get_me()).has_topics_enabled


async def test_a_group_that_becomes_a_supergroup_has_another_id() -> None:
    async with platform() as (telegram, bot):
        telegram.says("/hello", chat=GROUP)
        mine = await bot.send_message(GROUP, "before")
        telegram.migrate(GROUP, FORUM)
        with pytest.raises(ChatMigrated) as caught:
            await bot.send_message(GROUP, "after")
        assert caught.value.new_chat_id == FORUM
        _, leaving, arriving = await received(bot)
        assert (leaving.chat_id, leaving.migrate_to_chat_id) == (GROUP, FORUM)
        assert (arriving.chat_id, arriving.migrate_from_chat_id) == (FORUM, GROUP)
        await bot.send_message(FORUM, "after")
        with pytest.raises(BadRequest, match="to edit not found"):
            await bot.edit_message_text("x", FORUM, mine.message_id + 50)
        assert (telegram.posts_in(GROUP), telegram.posts_in(FORUM)) == (["before"], ["after"])
        with pytest.raises(LookupError):
            telegram.says("anybody here?", chat=GROUP)


async def test_answers_and_quotes() -> None:
    async with platform() as (telegram, bot):
        name = telegram.says("To be or not to be")
        [message] = await received(bot)
        answer = await bot.send_message(
            7, "be", reply_parameters=ReplyParameters(message.message_id, quote="not to be")
        )
        assert answer.reply_to_message is not None
        assert (telegram.sent[0].reply_to, telegram.sent[0].quote) == (name, "not to be")
        with pytest.raises(BadRequest, match="Quote_text_invalid"):
            await bot.send_message(7, "x", reply_parameters=ReplyParameters(message.message_id, quote="not there"))
        telegram.erase(name)
        await bot.send_message(
            7, "anyway", reply_parameters=ReplyParameters(message.message_id, allow_sending_without_reply=True)
        )
        assert telegram.sent[1].reply_to == ""
        telegram.says("why?", reply_to=answer.message_id, quote="be")
        [question] = await received(bot)
        assert question.quote is not None
        assert question.quote.text == "be"


async def test_the_platforms_dates_may_be_wrong() -> None:
    clock = FakeClock()
    async with platform(clock=clock) as (telegram, bot):
        telegram.skew = 90
        telegram.says("early")
        [message] = await received(bot)
        assert message.date.timestamp() == clock.wall() + 90


async def test_message_ids_are_counted_by_supergroup_and_by_bot() -> None:
    async with platform() as (telegram, bot):
        telegram.open_chat(8)
        telegram.open_chat(FORUM)
        sent = [await bot.send_message(chat, "x") for chat in (7, 8, FORUM)]
        assert [message.message_id for message in sent] == [1, 2, 2]
        assert [message.id for message in telegram.sent] == ["7:1", "8:2", f"{FORUM}:2"]


async def test_people_correct_what_they_said() -> None:
    async with platform() as (telegram, bot):
        name = telegram.says("helo")
        assert telegram.edits(name, "/hello") == name
        _, update = await bot.get_updates()
        assert update.edited_message is not None
        assert (update.edited_message.text, update.edited_message.edit_date is not None) == ("/hello", True)
        assert update.edited_message.entities[0].type == "bot_command"


# Drafts, rich messages, signs of life.


async def test_a_draft_can_be_stopped_where_that_was_allowed_and_who_asked_for_it_is_told() -> None:
    async with platform() as (telegram, bot):
        await bot.send_message_draft(7, 1, "half")
        with pytest.raises(LookupError):
            telegram.stops(7)
        for stays in (False, True):
            number, kept = 2 + stays, {"can_stop": True, "keep_on_stop": stays}
            await bot.send_message_draft(7, number, "half", api_kwargs=kept)
            # Nobody is told who did not ask for it.
            await bot.get_updates(timeout=0, allowed_updates=["message"])
            telegram.stops(7)
            assert [each.text for each in telegram.visible()] == (["half"] if stays else [])
            await bot.send_message_draft(7, number, "more", api_kwargs=kept)
            assert "more" not in [each.text for each in telegram.visible()]
            assert not telegram.chats.bot("main").queue.pending
            await bot.get_updates(timeout=0, allowed_updates=["stopped_message_generation"])
            telegram.stops(7, draft=number)
            (update,) = telegram.chats.bot("main").queue.pending
            told = update.body["stopped_message_generation"]
            assert (told["chat"]["id"], told["draft_id"], set(told)) == (7, number, {"chat", "draft_id"})
            telegram.chats.bot("main").queue.pending.clear()


async def test_an_older_server_passes_over_a_stop_of_drafts_or_refuses_it() -> None:
    stoppable = {"can_stop": True}
    async with platform(stops="ignored") as (telegram, bot):
        await bot.send_message_draft(7, 1, "half", api_kwargs=stoppable)
        with pytest.raises(LookupError):
            telegram.stops(7)
    async with platform(stops="refused") as (telegram, bot):
        with pytest.raises(BadRequest, match="can_stop"):
            await bot.send_message_draft(7, 1, "half", api_kwargs=stoppable)
        assert telegram.visible() == ()


async def test_a_draft_lasts_half_a_minute_or_until_the_message() -> None:
    clock = FakeClock()
    async with platform(clock=clock) as (telegram, bot):
        await bot.send_message_draft(7, 1, "")
        assert [(each.id, each.text, each.streaming) for each in telegram.visible()] == [("", "", True)]
        await bot.send_message_draft(7, 1, "half a")
        await clock.advance(29)
        assert [each.text for each in telegram.visible()] == ["half a"]
        await clock.advance(2)
        assert telegram.visible() == ()
        await bot.send_message_draft(7, 1, "half a sentence")
        await bot.send_message(7, "half a sentence is enough")
        assert [each.text for each in telegram.visible()] == ["half a sentence is enough"]
        assert telegram.sent == telegram.visible()
        telegram.forbid_drafts(7)
        with pytest.raises(BadRequest, match="Textdraft_peer_invalid"):
            await bot.send_message_draft(7, 1, "x")


async def rich(bot: Bot, method: str = "sendRichMessage", **what: Any) -> Any:
    what = {"chat_id": 7, "rich_message": {"markdown": "# Title"}} | what
    return await bot.do_api_request(method, api_kwargs=what, return_type=Message)


async def test_rich_messages_are_measured_and_kept() -> None:
    async with platform() as (telegram, bot):
        sent = await rich(bot, rich_message={"markdown": "# Title\n" + "x" * 32760})
        assert telegram.sent[0].rich == "markdown"
        assert telegram.sent[0].text.startswith("# Title")
        plain = await bot.send_message(7, "plain")
        status, _ = await raw(
            telegram, "editMessageText", chat_id=7, message_id=plain.message_id, rich_message={"html": "<h1>x</h1>"}
        )
        assert (status, telegram.sent[1].rich, telegram.sent[1].text) == (200, "html", "<h1>x</h1>")
        for wrong in ({"markdown": "x" * 32769}, {"markdown": "x", "html": "x"}, {}, {"html": "<tg-thinking>"}):
            with pytest.raises(BadRequest):
                await rich(bot, rich_message=wrong)
        again = {"chat_id": 7, "message_id": sent.message_id, "rich_message": {"markdown": telegram.sent[0].text}}
        status, answer = await raw(telegram, "editMessageText", **again)
        assert (status, "message is not modified" in answer["description"]) == (400, True)


async def test_an_older_server_has_neither_drafts_nor_rich_messages() -> None:
    async with platform(rich=False, drafts=False) as (telegram, bot):
        with pytest.raises(EndPointNotFound):
            await rich(bot)
        with pytest.raises(InvalidToken):
            await bot.send_message_draft(7, 1, "x")
        message = await bot.send_message(7, "x")
        status, answer = await raw(
            telegram, "editMessageText", chat_id=7, message_id=message.message_id, rich_message={"markdown": "x"}
        )
        assert (status, answer["description"]) == (400, "Bad Request: message text is empty")
        telegram.rich = telegram.drafts = True
        await rich(bot)
        await bot.send_message_draft(7, 1, "x")


async def test_typing_reactions_and_the_menu() -> None:
    assert frozenset(emoji.value for emoji in ReactionEmoji) == REACTIONS
    clock = FakeClock()
    async with platform(clock=clock) as (telegram, bot):
        name = telegram.says("hi")
        await bot.send_chat_action(7, "typing")
        await bot.set_message_reaction(7, 1, "👀")
        assert (telegram.typing_times(), telegram.reactions) == ([clock.wall()], {name: "👀"})
        assert telegram.is_typing()
        await clock.advance(5)
        assert not telegram.is_typing()
        await bot.send_chat_action(7, "typing")
        await bot.send_message(7, "done")
        assert not telegram.is_typing()
        await bot.set_message_reaction(7, 1, [])
        assert telegram.reactions == {}
        await bot.set_my_commands([("new", "Begin anew"), ("stop", "Stop it")])
        assert telegram.menu == (("new", "Begin anew"), ("stop", "Stop it"))
        assert [each.command for each in await bot.get_my_commands(BotCommandScopeDefault())] == ["new", "stop"]
        await bot.set_my_commands([], BotCommandScopeAllGroupChats(), "de")
        assert telegram.menus()['{"type": "all_group_chats"}', "de"] == ()


async def test_a_press_must_be_answered_soon() -> None:
    clock = FakeClock()
    async with platform(clock=clock) as (telegram, bot):
        message = await bot.send_message(7, "sure?", reply_markup=keyboard())
        query = telegram.presses(message.message_id, "yes", 7)
        [update] = await bot.get_updates()
        assert update.callback_query is not None
        assert (update.callback_query.id, update.callback_query.data) == (query, "yes")
        assert isinstance(update.callback_query.message, Message)
        assert update.callback_query.message.reply_markup == keyboard()
        with pytest.raises(BadRequest, match="Message_too_long"):
            await bot.answer_callback_query(query, "x" * 201)
        assert telegram.answered(query) is None
        await bot.answer_callback_query(query, "Done")
        assert telegram.answered(query) == "Done"
        late = telegram.presses(telegram.sent[0].id, "yes")
        await clock.advance(16)
        with pytest.raises(BadRequest, match="too old"):
            await bot.answer_callback_query(late)
        await bot.edit_message_text("decided", 7, message.message_id)
        with pytest.raises(LookupError):
            telegram.presses(message.message_id, "yes")


async def test_only_what_is_recent_can_be_deleted() -> None:
    clock = FakeClock()
    async with platform(clock=clock) as (telegram, bot):
        old = await bot.send_message(7, "old")
        await clock.advance(47 * 3600)
        new = await bot.send_message(7, "new")
        await clock.advance(2 * 3600)
        await bot.delete_message(7, new.message_id)
        with pytest.raises(BadRequest, match="can't be deleted"):
            await bot.delete_message(7, old.message_id)
        assert telegram.posts == ["old"]
        assert [effect.act for effect in telegram.effects] == ["post", "post", "delete"]


# Files.


async def test_files_go_out_as_what_they_are() -> None:
    async with platform() as (telegram, bot):
        document = await bot.send_document(7, b"words", filename="a.txt", caption="<b>See</b>", parse_mode="HTML")
        assert document.document is not None
        assert (document.document.file_name, document.document.mime_type) == ("a.txt", "text/plain")
        await bot.send_photo(7, PNG)
        await bot.send_voice(7, b"OggS and so on")
        # Not refused, but not a voice message either.
        await bot.send_voice(7, b"RIFF and so on")
        await bot.send_document(7, document.document.file_id)
        assert [message.kind for message in telegram.sent] == ["document", "photo", "voice", "document", "document"]
        assert [message.files[0].data for message in telegram.sent][:2] == [b"words", PNG]
        assert (telegram.sent[0].text, telegram.sent[0].entities[0].type) == ("See", "bold")


async def test_what_people_send_can_be_fetched_up_to_a_size() -> None:
    async with platform() as (telegram, bot):
        telegram.says("two files", files=[("a.txt", b"first"), ("b.txt", b"second")])
        telegram.says(voice=b"OggS")
        telegram.says(photo=PNG, caption="look", album="al")
        telegram.says(files=[("big.bin", bytes(20 * 2**20 + 1))])
        first, second, voice, photo, big = await received(bot)
        assert (first.media_group_id, second.media_group_id) == (first.media_group_id, first.media_group_id)
        assert (first.caption, second.caption, photo.caption, photo.media_group_id) == ("two files", None, "look", "al")
        assert second.document is not None
        file = await bot.get_file(second.document)
        assert bytes(await file.download_as_bytearray()) == b"second"
        assert voice.voice is not None
        assert bytes(await (await bot.get_file(photo.photo[-1])).download_as_bytearray()) == PNG
        assert big.document is not None
        with pytest.raises(BadRequest, match="File is too big"):
            await bot.get_file(big.document)
        assert (await ask(telegram, f"/file/bot{telegram.token}/documents/file_3.bin"))[0] == 404


async def test_too_big_an_upload_is_refused_whole() -> None:
    async with platform(upload_limit=1000) as (telegram, bot):
        with pytest.raises(NetworkError, match="Request Entity Too Large"):
            await bot.send_document(7, bytes(2000), filename="a.bin")
        assert telegram.sent == ()


# What goes wrong.


async def test_a_failure_is_any_answer_before_or_after_the_effect() -> None:
    async with platform() as (telegram, bot):
        telegram.fail_next(500)
        telegram.fail_next(502, html=True)
        telegram.fail_next(418, description="I'm a teapot", after_effect=True)
        for text in "abc":
            with pytest.raises(NetworkError):
                await bot.send_message(7, text)
        telegram.fail_next(429, retry_after=7)
        with pytest.raises(RetryAfter) as caught:
            await bot.send_message(7, "d")
        assert caught.value._retry_after.total_seconds() == 7
        telegram.fail_next(400, parameters={"migrate_to_chat_id": -5})
        with pytest.raises(ChatMigrated):
            await bot.send_message(7, "e")
        assert telegram.posts == ["c"]
        assert [call.verdict for call in telegram.calls("sendMessage")] == ["500", "502", "ok, told 418", "429", "400"]


async def test_a_fault_finds_its_method_and_its_chat_and_leaves_polls_alone() -> None:
    async with platform() as (telegram, bot):
        telegram.open_chat(8)
        telegram.fail_next(500, method="editmessagetext")
        telegram.fail_next(500, chat=8)
        await bot.get_updates()
        message = await bot.send_message(7, "x")
        with pytest.raises(NetworkError):
            await bot.send_message(8, "x")
        with pytest.raises(NetworkError):
            await bot.edit_message_text("y", 7, message.message_id)
        telegram.fail_next(409, method="getUpdates")
        with pytest.raises(Conflict):
            await bot.get_updates(offset=1)
        assert telegram.faults.armed == ()


@pytest.mark.parametrize("after_effect", [False, True])
async def test_resets_and_silence_before_and_after_the_effect(after_effect: bool) -> None:
    async with platform(read_timeout=0.4) as (telegram, bot):
        telegram.drop_next(after_effect)
        with pytest.raises(NetworkError):
            await bot.send_message(7, "reset")
        telegram.hang_next(after_effect)
        with pytest.raises(TimedOut):
            await bot.send_message(7, "silence")
        assert telegram.posts == (["reset", "silence"] if after_effect else [])
        lost = "lost after" if after_effect else "lost before"
        assert [call.verdict for call in telegram.calls("sendMessage")] == [lost, lost]


async def test_broken_answers_come_after_the_effect() -> None:
    async with platform() as (telegram, bot):
        telegram.garble_next()
        with pytest.raises(TelegramError, match="Invalid server response"):
            await bot.send_message(7, "half the JSON")
        telegram.truncate_next()
        with pytest.raises(NetworkError):
            await bot.send_message(7, "half the body")
        telegram.dribble_next(0.2)
        began = time.monotonic()
        await bot.send_message(7, "bit by bit")
        assert time.monotonic() - began > 0.15
        telegram.delay_next(0.1)
        await bot.send_message(7, "late")
        gate = telegram.hold_next("sendMessage")
        held = asyncio.create_task(bot.send_message(7, "held"))
        await telegram.until(lambda telegram: len(telegram.calls("sendMessage")) == 5)
        assert telegram.posts == ["half the JSON", "half the body", "bit by bit", "late"]
        gate.set()
        await held
        assert telegram.posts[-1] == "held"


async def test_an_outage_refuses_everybody_and_the_port_stays() -> None:
    async with platform() as (telegram, bot):
        poll = asyncio.create_task(bot.get_updates(timeout=50))
        await telegram.until(lambda telegram: telegram.attached())
        address = telegram.address
        await telegram.outage(True)
        with pytest.raises(NetworkError):
            await poll
        assert (telegram.attached(), telegram.connections) == (False, 0)
        with pytest.raises(NetworkError):
            await bot.send_message(7, "x")
        name = telegram.says("meanwhile")
        await telegram.outage(False)
        await bot.send_message(7, "back")
        assert (telegram.address, telegram.posts, telegram.unconfirmed) == (address, ["back"], [name])
        assert len(await bot.get_updates(offset=1)) == 1
        telegram.cut()


async def test_a_revoked_token_is_worthless_at_once() -> None:
    async with platform() as (telegram, bot):
        poll = asyncio.create_task(bot.get_updates(timeout=50))
        await telegram.until(lambda telegram: telegram.attached())
        telegram.revoke("1000001:another")
        with pytest.raises(InvalidToken):
            await poll
        with pytest.raises(InvalidToken):
            await bot.send_message(7, "x")
        async with bot_for(telegram) as renewed:
            await renewed.send_message(7, "y")
        assert telegram.posts == ["y"]


async def test_a_seed_decides_the_same_again() -> None:
    async def verdicts(seed: int) -> list[str]:
        async with platform(read_timeout=0.4) as (telegram, bot):
            telegram.schedule(seed, NASTY)
            for number in range(100):
                try:
                    await bot.send_message(7, str(number))
                except TelegramError:
                    continue
            telegram.heal()
            await bot.send_message(7, "healed")
            return [call.verdict for call in telegram.calls("sendMessage")]

    first = await verdicts(1)
    assert first == await verdicts(1)
    assert len(set(first)) > 3
    assert first[-1] == "ok"
    assert first != await verdicts(2)


async def test_a_seed_repeats_updates_and_turns_batches() -> None:
    async with platform(repeat_seconds=0) as (telegram, bot):
        telegram.schedule(3, NASTY)
        names = [telegram.says(str(number)) for number in range(100)]
        telegram.heal()
        assert len(telegram.unconfirmed) > len(names)
        assert list(dict.fromkeys(telegram.unconfirmed)) == names
        telegram.reorder_next()
        ids = [update.update_id for update in await bot.get_updates(limit=5)]
        assert ids == sorted(ids, reverse=True)


async def test_limits_hold_and_who_does_not_wait_waits_longer() -> None:
    clock = FakeClock()
    async with platform(clock=clock) as (telegram, bot):
        telegram.limit_rates()
        message = await bot.send_message(7, "one")
        await bot.edit_message_text("two", 7, message.message_id)
        await bot.send_message_draft(7, 1, "three")

        async def refused() -> int:
            with pytest.raises(RetryAfter):
                await bot.send_message(7, "too much")
            answer = telegram.calls()[-1].result
            return int(answer.removeprefix("Too Many Requests: retry after "))

        pauses = [await refused(), await refused(), await refused()]
        assert pauses[0] == 1
        assert pauses == sorted(set(pauses))
        # A chat that was not told to wait need not.
        telegram.open_chat(8)
        await bot.send_message(8, "other")
        await clock.advance(pauses[-1])
        await bot.send_message(7, "patient")
        telegram.open_chat(GROUP)
        for number in range(20):
            await bot.send_message(GROUP, str(number))
        with pytest.raises(RetryAfter):
            await bot.send_message(GROUP, "21")
        telegram.limit_rates(on=False)
        await bot.send_message(GROUP, "21")


# The judge itself.


async def test_the_truth_tells_calls_and_effects_apart() -> None:
    async with platform() as (telegram, bot):
        message = await bot.send_message(7, "one")
        await bot.edit_message_text("two", 7, message.message_id)
        with pytest.raises(BadRequest):
            await bot.send_message(7, " ")
        telegram.erase(message.message_id, 7)
        assert [(effect.act, effect.text) for effect in telegram.effects] == [
            ("post", "one"),
            ("edit", "two"),
            ("erase", "two"),
        ]
        assert telegram.sent == ()
        assert [(call.method, call.verdict) for call in telegram.calls()] == [
            ("getMe", "ok"),
            ("sendMessage", "ok"),
            ("editMessageText", "ok"),
            ("sendMessage", "400"),
        ]
        assert json.loads(telegram.calls("sendMessage")[0].result)["message_id"] == message.message_id
        assert telegram.calls("editMessageText")[0].params["text"] == "two"
        with pytest.raises(TimeoutError, match="not so after"):
            await telegram.until(lambda telegram: telegram.posts, timeout=0.01)


async def test_a_caller_that_dies_leaves_nothing_attached() -> None:
    async with TelegramServer() as telegram:
        reader, writer = await asyncio.open_connection(*telegram.address.split(":"))
        writer.write(f"GET /bot{telegram.token}/getUpdates?timeout=50 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await telegram.until(lambda telegram: telegram.attached())
        writer.close()
        await writer.wait_closed()
        await telegram.until(lambda telegram: not telegram.attached())
        assert [call.verdict for call in telegram.calls()] == ["gone"]


async def test_the_server_closes_at_once_whatever_is_open() -> None:
    async with platform() as (telegram, bot):
        other = telegram.add_bot("other", "1000002:other-token", "other_bot")
        await ask(telegram, f"/bot{other.token}/setWebhook", url="http://127.0.0.1:1/hook")
        telegram.hang_next(after_effect=True)
        calls = [asyncio.create_task(bot.get_updates(timeout=50)), asyncio.create_task(bot.send_message(7, "x"))]
        await telegram.until(lambda telegram: telegram.attached() and telegram.posts)
        telegram.says("undeliverable", account="other")
        began = time.monotonic()
        await telegram.__aexit__(None, None, None)
        assert time.monotonic() - began < 2
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(outcome, NetworkError) for outcome in outcomes)
