"""Discord's raw events as inbounds: who is heard, when we are addressed, and what of the words is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidings.adapters.discord.address import Handle, handle_of
from tidings.adapters.discord.directory import Atlas, Me, Place, place_of
from tidings.adapters.discord.parse import Reader
from tidings.adapters.discord.settings import DiscordAccount
from tidings.core.types import Attachment, Audience, Inbound, Kind, Quoted, Sender

ME, ADA, BOB, ROLE, OTHER_ROLE = "1", "7", "8", "50", "51"
GUILD, ROOM, PRIVATE, THREAD = "100", "200", "300", "400"
PLACES = {
    ROOM: Place(ROOM, GUILD),
    PRIVATE: Place(PRIVATE, kind=1),
    "theirs": Place("theirs", GUILD, 11, parent=ROOM, owner=ADA),
    "ours": Place("ours", GUILD, 11, parent=ROOM, owner=ME),
    "voice": Place("voice", GUILD, 2),
}
BOT = {"id": ME, "username": "tidings", "bot": True}


def reader(**settings: Any) -> Reader:
    atlas = Atlas(Me(ME, "tidings", "99"))
    atlas.set_roles(GUILD, {"roles": [ROLE]})
    return Reader("main", DiscordAccount(**settings), atlas, ("stop", "model"))


def user(id: str = ADA, name: str = "ada", **more: Any) -> dict[str, Any]:
    return {"id": id, "username": name, "global_name": name.title(), **more}


def message(content: str = "hi", *, id: str = "5000", author: dict[str, Any] | None = None, **more: Any) -> Any:
    return {"id": id, "type": 0, "content": content, "author": author or user(), "attachments": [], **more}


def mentioned(content: str, *people: dict[str, Any], **more: Any) -> Any:
    return message(content, mentions=[BOT, *people], **more)


def replied(content: str, to: dict[str, Any], said: str = "before", **more: Any) -> Any:
    referenced = {"id": "4000", "type": 0, "content": said, "author": to, "attachments": []}
    return message(content, type=19, referenced_message=referenced, message_reference={"message_id": "4000"}, **more)


def said(data: Any, where: str = ROOM, **settings: Any) -> Inbound | None:
    return reader(**settings).said(data, PLACES[where])


def heard(data: Any, where: str = ROOM, **settings: Any) -> Inbound:
    inbound = said(data, where, **settings)
    assert inbound is not None
    return inbound


def test_a_private_message_is_a_conversation_of_its_channel() -> None:
    inbound = heard(message("hi"), PRIVATE)

    assert (inbound.key, inbound.text, inbound.kind) == ("300:5000", "hi", Kind.MESSAGE)
    assert inbound.conversation.id == "discord:main:300"
    assert inbound.sender == Sender(id=ADA, name="Ada")
    assert (inbound.target.chat, inbound.target.reply_to) == ("300", "5000")
    assert inbound.target.audience is Audience.PRIVATE
    assert inbound.addressed


def test_a_message_in_a_thread_belongs_to_the_thread_and_is_sent_back_there() -> None:
    inbound = heard(mentioned("<@1> hi"), "theirs")

    assert inbound.key == "theirs:5000"
    assert (inbound.conversation.chat, inbound.conversation.thread) == (ROOM, "theirs")
    assert (inbound.target.chat, inbound.target.thread) == (ROOM, "theirs")
    assert inbound.target.audience is Audience.GROUP


@pytest.mark.parametrize(
    ("data", "where", "settings", "addressed"),
    [
        (message("hi"), ROOM, {}, False),
        (mentioned("<@1> hi"), ROOM, {}, True),
        (mentioned("<@!1> hi"), ROOM, {}, True),
        (message("<@&50> hi", mention_roles=[ROLE]), ROOM, {}, True),
        (message("<@&51> hi", mention_roles=[OTHER_ROLE]), ROOM, {}, False),
        (message("@everyone hi", mention_everyone=True), ROOM, {}, False),
        (replied("hi", BOT), ROOM, {}, True),
        (replied("hi", BOT, mentions=[BOT]), ROOM, {}, True),
        (replied("hi", user(BOB)), ROOM, {}, False),
        (message("hi", type=19, referenced_message=None), ROOM, {}, False),
        (message("hi"), ROOM, {"channels": "all"}, True),
        (message("hi"), ROOM, {"chats": {ROOM: "all"}}, True),
        (message("hi"), "theirs", {"chats": {ROOM: "all"}}, True),
        (message("hi"), "theirs", {"channels": "all", "chats": {"theirs": "addressed"}}, False),
        (message("hi"), "theirs", {}, False),
        (message("hi"), "ours", {}, True),
        (mentioned("<@1> hi"), ROOM, {"channels": "mentioned"}, True),
        (message("<@&50> hi", mention_roles=[ROLE]), ROOM, {"channels": "mentioned"}, True),
        (replied("hi", BOT), ROOM, {"channels": "mentioned"}, False),
        # A reply that rings is listed among the mentions, although its words name nobody.
        (replied("hi", BOT, mentions=[BOT]), ROOM, {"channels": "mentioned"}, False),
        (replied("<@1> hi", BOT, mentions=[BOT]), ROOM, {"channels": "mentioned"}, True),
        (message("hi"), "ours", {"channels": "mentioned"}, False),
        (message("!stop"), "ours", {"channels": "mentioned"}, True),
        (replied("!stop", BOT), ROOM, {"channels": "mentioned"}, True),
        (message("!stop"), ROOM, {"channels": "mentioned"}, False),
        (message("hi"), PRIVATE, {"channels": "mentioned"}, True),
    ],
)
def test_when_we_are_addressed(data: Any, where: str, settings: dict[str, Any], addressed: bool) -> None:
    assert heard(data, where, **settings).addressed is addressed


@pytest.mark.parametrize(
    "data",
    [
        message("hi", author=BOT),
        message("hi", webhook_id="60"),
        message("", type=7),
        message("a new name", type=4),
        message("thread", type=18),
        message("", type=21, referenced_message=message("<@1> hi")),
        message(""),
        message("  \n"),
    ],
)
def test_what_is_nobody_s_message_is_not_heard(data: Any) -> None:
    assert said(data, PRIVATE) is None


@pytest.mark.parametrize("settings", [{"channels": "never"}, {"chats": {ROOM: "never"}}])
@pytest.mark.parametrize("where", [ROOM, "theirs", "ours"])
def test_a_channel_set_to_never_is_not_heard(settings: dict[str, Any], where: str) -> None:
    assert said(mentioned("<@1> hi"), where, **settings) is None


def test_never_says_nothing_about_private_messages() -> None:
    assert heard(message("hi"), PRIVATE, channels="never").addressed


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (mentioned("<@1> hi"), "hi"),
        (mentioned("<@!1>, hi"), "hi"),
        (mentioned("<@1>: hi\nthere"), "hi\nthere"),
        (mentioned("hi <@1>"), "hi"),
        (mentioned("hey <@1> you"), "hey you"),
        (mentioned("<@1> <@1> hi"), "hi"),
        (message("<@&50> hi", mention_roles=[ROLE]), "hi"),
        (message("<@1> <@&51> hi", mentions=[BOT], mention_roles=[OTHER_ROLE]), "<@&51> hi"),
        (mentioned("<@1> ask <@8>", user(BOB, "bob")), "ask @Bob"),
        (mentioned("<@1> ask <@8>", user(BOB, "bob", member={"nick": "Bobby"})), "ask @Bobby"),
        (mentioned("<@1> ask <@9>"), "ask <@9>"),
        (mentioned("<@1>"), "@tidings"),
        (mentioned("<@1>   indented\n    code"), "indented\n    code"),
        (message("", sticker_items=[{"id": "1", "name": "Wave"}]), "(a sticker: Wave)"),
        (message("", poll={"question": {"text": "Tea?"}}), "(a poll: Tea?)"),
    ],
)
def test_what_is_kept_of_the_words(data: Any, text: str) -> None:
    assert heard(data).text == text


@pytest.mark.parametrize(
    ("content", "kind", "command", "text"),
    [
        ("/stop", Kind.COMMANDED, "stop", "/stop"),
        ("!STOP now", Kind.COMMANDED, "stop", "/stop now"),
        ("/model big\none", Kind.COMMANDED, "model", "/model big\none"),
        ("/unknown thing", Kind.MESSAGE, "", "/unknown thing"),
        ("please /stop", Kind.MESSAGE, "", "please /stop"),
        ("/etc/stop", Kind.MESSAGE, "", "/etc/stop"),
    ],
)
def test_a_known_command_may_be_written_out(content: str, kind: Kind, command: str, text: str) -> None:
    for inbound in (heard(message(content), PRIVATE), heard(mentioned(f"<@1> {content}"))):
        assert (inbound.kind, inbound.command, inbound.text) == (kind, command, text)


def test_another_bot_is_heard_as_one() -> None:
    assert heard(message("hi", author=user(BOB, bot=True)), PRIVATE).sender == Sender(id=BOB, name="Ada", is_bot=True)


def test_a_written_command_is_for_us_only_where_something_else_says_so() -> None:
    inbound = heard(message("/stop"))

    assert (inbound.kind, inbound.command, inbound.addressed) == (Kind.COMMANDED, "stop", False)


def test_a_reply_brings_along_what_it_answers() -> None:
    quoted = heard(replied("why?", user(BOB, "bob"), "see <@7>"), PRIVATE).quoted

    assert quoted == Quoted(text="see <@7>", sender="Bob")


def test_a_long_quotation_is_cut_and_a_file_is_quoted_by_its_name() -> None:
    long = heard(replied("why?", BOT, "x" * 5000), PRIVATE).quoted
    file = replied("what is it?", BOT, "")
    file["referenced_message"]["attachments"] = [{"filename": "plan.pdf"}]

    assert long == Quoted(text="x" * 1000, sender="tidings")
    assert heard(file, PRIVATE).quoted == Quoted(text="plan.pdf", sender="tidings")


def test_what_was_passed_on_is_read_and_commands_nobody() -> None:
    data = message("", message_reference={"type": 1}, message_snapshots=[{"message": {"content": "/stop"}}])
    inbound = heard(data, PRIVATE)

    assert (inbound.text, inbound.forwarded, inbound.kind) == ("/stop", "somebody", Kind.MESSAGE)


def test_files_and_voice_come_along_with_what_it_takes_to_fetch_them() -> None:
    file = {
        "id": "70",
        "filename": "voice-message.ogg",
        "content_type": "audio/ogg; codecs=opus",
        "size": 12,
        "url": "https://cdn.discordapp.com/a/70/voice-message.ogg?ex=1",
        "duration_secs": 1.5,
    }
    inbound = heard(message("", attachments=[file], flags=1 << 13), PRIVATE)

    handle = {"url": file["url"], "channel": PRIVATE, "message": "5000", "id": "70"}
    assert json.loads(inbound.attachments[0].handle) == handle
    assert inbound.attachments == (
        Attachment(handle=inbound.attachments[0].handle, name="voice-message.ogg", media_type="audio/ogg", size=12),
    )


def test_a_person_is_known_by_id_and_named_by_nickname() -> None:
    assert heard(message("hi", member={"nick": "The Countess"}), PRIVATE).sender.name == "The Countess"
    assert heard(message("hi", author={"id": ADA, "username": "ada"}), PRIVATE).sender.name == "ada"


def test_with_threads_on_a_mention_opens_one() -> None:
    inbound = heard(mentioned("<@1> hi"), threads=True)

    assert (inbound.conversation.chat, inbound.conversation.thread) == (ROOM, "5000")
    assert (inbound.target.chat, inbound.target.thread) == (ROOM, "5000")
    assert handle_of(inbound.target) == Handle(opens=True)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (message("hi"), PRIVATE),
        (mentioned("<@1> hi"), "theirs"),
        (mentioned("<@1> hi"), "voice"),
        (mentioned("<@1> /stop"), ROOM),
        (message("hi"), ROOM),
    ],
)
def test_what_opens_no_thread(data: Any, where: str) -> None:
    inbound = heard(data, where, threads=True, channels="all")

    assert inbound.conversation.thread == PLACES[where].thread
    assert inbound.target.handle == ""


def test_only_a_person_s_own_edit_counts() -> None:
    read = reader()
    edited = read.edited(message("better", edited_timestamp="2026-01-02T03:04:05+00:00"), PLACES[PRIVATE])

    assert edited is not None
    assert (edited.kind, edited.about, edited.text) == (Kind.EDITED, "300:5000", "better")
    assert edited.key == "300:5000:edited:2026-01-02T03:04:05+00:00"
    assert read.edited(message("with a preview", edited_timestamp=None), PLACES[PRIVATE]) is None
    assert read.edited({"id": "5000", "embeds": []}, PLACES[PRIVATE]) is None
    assert read.edited(message("ours", author=BOT, edited_timestamp="2026"), PLACES[PRIVATE]) is None


def test_a_deletion_is_discord_s_own_word() -> None:
    inbound = reader().deleted("5000", PLACES["theirs"])

    assert (inbound.kind, inbound.key, inbound.about) == (Kind.DELETED, "theirs:5000:deleted", "theirs:5000")
    assert inbound.sender == Sender(id="", trusted=True)
    assert inbound.conversation.thread == "theirs"


def asked(**more: Any) -> Any:
    return {"id": "900", "application_id": "99", "token": "t", "channel_id": ROOM, "member": {"user": user()}, **more}


def test_a_slash_command_has_its_words_behind_it() -> None:
    data = asked(type=2, data={"name": "model", "options": [{"name": "text", "type": 3, "value": "big one"}]})
    handle = Handle(application="99", token="t", at=5.0, ephemeral=True)
    inbound = reader().commanded(data, PLACES[ROOM], handle)

    assert (inbound.key, inbound.kind, inbound.command) == ("interaction:900", Kind.COMMANDED, "model")
    assert (inbound.text, inbound.argument) == ("/model big one", "big one")
    assert inbound.target.audience is Audience.ONE
    assert handle_of(inbound.target) == handle
    assert inbound.sender == Sender(id=ADA, name="Ada")


def test_a_slash_command_in_private_is_private() -> None:
    data = {**asked(type=2, data={"name": "stop"}), "user": user(), "member": None}
    inbound = reader().commanded(data, PLACES[PRIVATE], Handle(application="99", token="t"))

    assert (inbound.text, inbound.target.audience) == ("/stop", Audience.PRIVATE)


def test_whatever_comes_from_a_server_names_it_and_in_private_there_is_none() -> None:
    read, press = reader(), {"custom_id": "run_1/0", "component_type": 2}
    for where, server in ((ROOM, GUILD), ("theirs", GUILD), (PRIVATE, "")):
        place = PLACES[where]
        edited = read.edited(mentioned("<@1> better", edited_timestamp="2026-01-02T03:04:05+00:00"), place)
        assert edited is not None
        inbounds = (
            heard(mentioned("<@1> hi"), where),
            edited,
            read.deleted("5000", place),
            read.commanded(asked(type=2, data={"name": "stop"}), place, Handle(token="t", ephemeral=True)),
            read.pressed(asked(type=3, data=press, message={"id": "4000"}), place, Handle()),
        )
        assert [each.target.server for each in inbounds] == [server] * 5


@pytest.mark.parametrize(
    ("data", "where", "overheard"),
    [
        (message("hi"), ROOM, True),
        (mentioned("<@1> hi"), ROOM, False),
        (replied("hi", BOT), ROOM, False),
        (message("!stop"), ROOM, False),
        (message("hi"), "ours", False),
        (message("hi"), PRIVATE, False),
    ],
)
def test_what_only_the_rule_lets_us_hear_is_overheard(data: Any, where: str, overheard: bool) -> None:
    inbound = heard(data, where, channels="all")
    assert (inbound.addressed, inbound.overheard) == (True, overheard)
    assert not heard(data, where).overheard


def test_a_press_names_its_choice_and_its_message() -> None:
    data = asked(type=3, data={"custom_id": "run_1:0", "component_type": 2}, message={"id": "4000", "flags": 0})
    inbound = reader().pressed(data, PLACES["ours"], Handle())

    assert (inbound.key, inbound.kind, inbound.choice) == ("interaction:900", Kind.PRESSED, "run_1:0")
    assert (inbound.about, inbound.conversation.thread, inbound.target.handle) == ("4000", "ours", "")


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"id": "1", "author": None},
        {"id": "1", "author": "ada", "content": "hi"},
        {"id": "1", "author": {"id": ADA}, "content": "hi", "attachments": [{}]},
        {"id": "1", "author": {"id": ADA}, "content": "hi", "attachments": 7},
        {"id": "1", "author": {"id": ADA}, "content": "<@8>", "mentions": [None]},
    ],
)
def test_a_strange_shape_is_said_by_an_ordinary_error(data: Any) -> None:
    with pytest.raises((AttributeError, LookupError, TypeError, ValueError)):
        reader().said(data, PLACES[PRIVATE])


def test_a_guild_tells_of_its_places_and_of_our_roles() -> None:
    atlas = Atlas(Me(ME, "tidings", "99"))
    guild = {
        "id": GUILD,
        "members": [{"user": user(BOB), "roles": ["77"]}, {"user": BOT, "roles": [ROLE]}],
        "channels": [
            {"id": ROOM, "type": 0, "last_message_id": "4999"},
            {"id": "201", "type": 4},
            {"id": "202", "type": 15, "last_message_id": "4"},
            {"id": "203", "type": 2, "last_message_id": None},
        ],
        "threads": [{"id": THREAD, "type": 11, "parent_id": ROOM, "owner_id": ME, "last_message_id": "5"}],
    }
    sights = list(atlas.open_guild(guild))

    assert [(sight.place.channel, sight.last) for sight in sights] == [(ROOM, "4999"), ("203", ""), (THREAD, "5")]
    assert atlas.roles(GUILD) == {ROLE}
    assert atlas.place(THREAD) == Place(THREAD, GUILD, 11, ROOM, ME)
    atlas.close_guild(GUILD)
    assert (atlas.place(ROOM), atlas.roles(GUILD)) == (None, frozenset())


def test_a_thread_of_an_old_message_is_as_new_as_it_says() -> None:
    thread = {"id": "4194304", "type": 11, "parent_id": ROOM, "owner_id": ADA}
    made = {"create_timestamp": "2026-01-02T03:04:05+00:00"}
    guild = {"id": GUILD, "threads": [thread | {"thread_metadata": made}]}

    assert place_of(thread, GUILD).thread == "4194304"
    assert [round(sight.made) for sight in Atlas().open_guild(guild)] == [1767323045]
