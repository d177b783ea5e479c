"""What the Slack reader makes of payloads: the key, the place, who is addressed, and the words as they were seen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidings.adapters.slack.address import Handle, Shown, handle_of
from tidings.adapters.slack.parse import Me, Reader, time_of
from tidings.adapters.slack.settings import SlackAccount
from tidings.core.adapter import MenuItem
from tidings.core.types import Attachment, Audience, Inbound, Kind, Quoted

ME = Me("UBOT", "T1", "tidings")
MENU = (MenuItem("status", ""), MenuItem("stop", ""), MenuItem("help", ""), MenuItem("retry", "", runs=True))
NAMES = {"UANN": "Ann", "UBOB": "Bob"}


def reader(**settings: Any) -> Reader:
    return Reader("main", SlackAccount(**settings), ME, MENU, lambda user: NAMES.get(user, ""))


def payload(**event: Any) -> dict[str, Any]:
    said = {"type": "message", "channel": "C1", "user": "UANN", "text": "hi", "ts": "100.000001", "team": "T1"}
    return {"event_id": "Ev1", "team_id": "T1", "event": said | event}


def read(**event: Any) -> Inbound:
    found = reader().event(payload(**event))
    assert found is not None
    return found


# Who and where.


def test_a_mention_and_the_message_itself_have_one_key() -> None:
    message = read(text="<@UBOT> hi")
    mention = read(type="app_mention", text="<@UBOT> hi")

    assert message == mention
    assert message.key == "C1:100.000001"
    assert message.addressed


@pytest.mark.parametrize(
    ("event", "thread"),
    [
        ({}, "100.000001"),
        ({"thread_ts": "50.1"}, "50.1"),
        ({"channel": "D1"}, ""),
        ({"channel": "D1", "thread_ts": "50.1"}, "50.1"),
        # What begins a thread in private stays where it was said.
        ({"channel": "D1", "thread_ts": "100.000001"}, ""),
    ],
)
def test_each_thread_is_a_conversation_and_the_answer_goes_there(event: dict[str, Any], thread: str) -> None:
    found = read(**event)

    assert (found.conversation.thread, found.target.thread) == (thread, thread)
    assert found.target.reply_to == "100.000001"
    private = event.get("channel") == "D1"
    assert found.target.audience is (Audience.PRIVATE if private else Audience.GROUP)


@pytest.mark.parametrize(
    ("event", "addressed"),
    [
        ({}, False),
        ({"text": "hello <@UBOB>"}, False),
        ({"text": "hello <@UBOT>"}, True),
        ({"text": "hello <@UBOT|tidings>"}, True),
        ({"text": "hello <@UBOTTOM>"}, False),
        ({"channel": "D1"}, True),
        ({"thread_ts": "50.1"}, False),
        ({"thread_ts": "50.1", "parent_user_id": "UBOT"}, True),
        ({"thread_ts": "50.1", "parent_user_id": "UBOB"}, False),
    ],
)
def test_who_names_us_speaks_in_private_or_below_our_words_addresses_us(event: dict[str, Any], addressed: bool) -> None:
    assert read(**event).addressed is addressed


@pytest.mark.parametrize(
    ("event", "addressed"),
    [
        ({"text": "hello <@UBOT>"}, True),
        ({"channel": "D1"}, True),
        ({"thread_ts": "50.1", "parent_user_id": "UBOT"}, False),
        ({"thread_ts": "50.1", "parent_user_id": "UBOT", "text": "<@UBOT> hi"}, True),
        ({"thread_ts": "50.1", "parent_user_id": "UBOT", "text": "!stop"}, True),
        ({"text": "!stop"}, False),
    ],
)
def test_where_only_mentions_count_a_thread_of_ours_is_not_enough(event: dict[str, Any], addressed: bool) -> None:
    found = reader(channels="mentioned").event(payload(**event))
    assert found is not None
    assert found.addressed is addressed


def test_another_bot_is_heard_as_one() -> None:
    assert read(bot_id="B1").sender.is_bot
    assert not read().sender.is_bot


def test_the_rules_of_a_channel_decide() -> None:
    rules = reader(channels="all", chats={"C2": "never", "C3": "addressed"})

    everybody = rules.event(payload())
    assert everybody is not None
    assert everybody.addressed
    assert rules.event(payload(channel="C2", text="<@UBOT> hi")) is None
    named = rules.event(payload(channel="C3"))
    assert named is not None
    assert not named.addressed


@pytest.mark.parametrize(
    "event",
    [
        {"bot_id": "B1", "user": None},
        {"bot_id": "B2", "user": "UBOT"},
        {"user": "UBOT"},
        {"user": "USLACKBOT"},
        {"user": None},
        {"subtype": "channel_join"},
        {"subtype": "bot_message"},
        {"subtype": "assistant_app_thread"},
        {"text": ""},
        {"text": "   "},
        {"type": "reaction_added"},
    ],
)
def test_webhooks_we_ourselves_and_notes_of_slacks_are_no_messages(event: dict[str, Any]) -> None:
    assert reader().event(payload(**event)) is None


def test_a_stream_needs_to_know_whom_it_is_for_outside_of_direct_messages() -> None:
    assert handle_of(read().target) == Handle(team="T1", user="UANN")
    assert handle_of(read(user_team="T2").target) == Handle(team="T2", user="UANN")
    assert handle_of(read(channel="D1").target) == Handle()


@pytest.mark.parametrize("began", ["UBOT", "UANN"])
def test_a_thread_in_private_shows_that_we_work_whoever_began_it(began: str) -> None:
    """The assistant's pane begins its threads itself; an agent's session begins with the person's own words."""
    thread = {"channel": "D1", "thread_ts": "50.1", "parent_user_id": began}

    assert handle_of(read(**thread).target) == Handle(assistant=True)


# Words.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<@UBOT> hi", "hi"),
        ("<@UBOT>, hi", "hi"),
        ("<@UBOT>: <@UBOT> hi", "hi"),
        ("hi <@UBOT>", "hi"),
        ("what does <@UBOT> say?", "what does say?"),
        ("<@UBOT>", "@tidings"),
        ("ask <@UBOB>", "ask @Bob"),
        ("ask <@UEVE>", "ask @UEVE"),
        ("ask <@UEVE|eve>", "ask @eve"),
        ("in <#C9|general> or <#C8>", "in #general or #C8"),
        ("<!here> <!subteam^S1|@cooks> <!date^1^{date}|today>", "@here @cooks today"),
        ("<https://a.org/b?c=1&amp;d=2>", "https://a.org/b?c=1&d=2"),
        ("<https://a.org|the page>", "the page (https://a.org)"),
        ("<https://a.org|a.org>", "https://a.org"),
        ("<mailto:a@b.org|a@b.org>", "a@b.org"),
        ("1 &lt; 2 &amp;&amp; 3 &gt; 2", "1 < 2 && 3 > 2"),
        ("&amp;lt;", "&lt;"),
        ("a \x00 b", "a  b"),
        ("a < b", "a < b"),
    ],
)
def test_marks_and_escapes_are_read_as_they_were_seen(text: str, words: str) -> None:
    assert read(text=text).text == words


@pytest.mark.parametrize(
    "text",
    [
        *("<" * 50_000, "<@" * 50_000, "<@UBOT> " * 20_000, "<a|" * 30_000, "\x00" * 50_000),
        *("<@UBOT>" + " " * 300_000 + "x", "<@UBOT>x" + " " * 300_000 + "x", "!" + "a" * 300_000 + "?"),
    ],
)
def test_no_text_takes_long_to_read(text: str) -> None:
    """Where a pattern looks at everything again from each place, this takes hours."""
    marked = reader().event(payload(text=f"x{text}"))
    plain = reader().event(payload(text=text))
    assert marked is not None
    assert marked.text.startswith("x")
    assert plain is None or len(plain.text) <= len(text)


def test_the_name_of_who_speaks_is_told_where_it_is_known() -> None:
    assert read().sender.name == "Ann"
    assert read(user="UEVE").sender.name == ""


@pytest.mark.parametrize(
    ("text", "command", "words"),
    [
        ("!status", "status", "/status"),
        ("!STATUS  now ", "status", "/status now"),
        ("<@UBOT> !stop", "stop", "/stop"),
        ("<@UBOT> /stop", "stop", "/stop"),
        ("!important", "", "!important"),
        ("say !status", "", "say !status"),
    ],
)
def test_an_exclamation_mark_and_a_known_name_are_a_command(text: str, command: str, words: str) -> None:
    found = read(channel="D1", text=text)

    assert (found.command, found.text) == (command, words)
    assert found.kind is (Kind.COMMANDED if command else Kind.MESSAGE)


def test_only_a_command_that_becomes_a_run_may_be_streamed() -> None:
    assert handle_of(read(text="<@UBOT> !stop").target) == Handle()
    assert handle_of(read(text="<@UBOT> !retry").target) == Handle(team="T1", user="UANN")


# What hangs on a message.


def test_files_are_attachments() -> None:
    file = {"id": "F1", "name": "a.png", "mimetype": "image/png", "size": 7, "url_private": "https://files.slack.com/a"}
    found = read(subtype="file_share", text="", files=[file, {"id": "F2", "mode": "tombstone"}])

    handle = json.dumps({"url": "https://files.slack.com/a", "id": "F1"})
    assert found.attachments == (Attachment(handle=handle, name="a.png", media_type="image/png", size=7),)


def test_what_was_passed_on_is_anothers_and_commands_nobody() -> None:
    shared = {"is_share": True, "text": "!stop", "author_name": "Bob", "files": [{"id": "F1", "name": "b"}]}
    found = read(channel="D1", text="", attachments=[shared])

    assert (found.text, found.forwarded, found.command) == ("!stop", "Bob", "")
    assert [file.name for file in found.attachments] == ["b"]


def test_what_is_shown_beside_own_words_is_quoted() -> None:
    found = read(text="see", attachments=[{"from_url": "https://x", "text": "y" * 2000, "author_name": "Bob"}])

    assert found.quoted == Quoted(text="y" * 1000, sender="Bob")
    assert (found.text, found.forwarded) == ("see", "")


# Changes.


def changed(message: dict[str, Any], before: dict[str, Any], **more: Any) -> Inbound | None:
    own = {"type": "message", "user": "UANN", "ts": "100.1"}
    event = {"subtype": "message_changed", "message": own | message, "previous_message": own | before}
    return reader().event(payload(**event, **more))


def test_an_edit_names_the_message_and_has_a_key_of_its_own() -> None:
    found = changed({"text": "<@UBOT> new", "edited": {"ts": "101"}}, {"text": "<@UBOT> old"})

    assert found is not None
    assert (found.kind, found.key, found.about, found.text) == (Kind.EDITED, "event:Ev1", "C1:100.1", "new")
    assert found.conversation.thread == "100.1"


def test_who_takes_our_name_out_of_a_message_still_changes_it() -> None:
    found = changed({"text": "new", "edited": {"ts": "101"}}, {"text": "<@UBOT> old"})

    assert found is not None
    assert found.addressed


@pytest.mark.parametrize(
    ("message", "before"),
    [
        ({"text": "same", "attachments": [{}]}, {"text": "same"}),
        ({"text": "same", "edited": {"ts": "1"}, "reply_count": 2}, {"text": "same", "edited": {"ts": "1"}}),
        ({"text": "new"}, {"text": "old"}),
        ({"text": "new", "edited": {"ts": "1"}, "bot_id": "B1", "user": None}, {"text": "old"}),
        ({"text": "new", "edited": {"ts": "1"}, "user": "UBOT"}, {"text": "old"}),
    ],
)
def test_previews_replies_and_webhooks_edit_nothing(message: dict[str, Any], before: dict[str, Any]) -> None:
    assert changed(message, before) is None


def test_a_deletion_names_the_message_also_where_a_stone_is_left() -> None:
    before = {"type": "message", "user": "UANN", "ts": "100.1", "thread_ts": "50.1", "text": "<@UBOT> hi"}
    plain = reader().event(payload(subtype="message_deleted", deleted_ts="100.1", previous_message=before))
    stone = changed({"subtype": "tombstone", "user": "USLACKBOT", "text": "deleted"}, before)

    for found in (plain, stone):
        assert found is not None
        assert (found.kind, found.about, found.key) == (Kind.DELETED, "C1:100.1", "event:Ev1")
        assert (found.conversation.thread, found.addressed, found.sender.trusted) == ("50.1", True, True)


def test_what_the_app_itself_deletes_is_nothing() -> None:
    before = {"user": "UBOT", "bot_id": "B1", "ts": "100.1", "text": "x"}

    assert reader().event(payload(subtype="message_deleted", deleted_ts="100.1", previous_message=before)) is None


def test_the_stop_button_is_the_command() -> None:
    found = read(type="agent_session_stopped", thread_ts="50.1", streaming_message_ts=["60.1"])

    assert (found.kind, found.command, found.key) == (Kind.COMMANDED, "stop", "event:Ev1")
    assert (found.conversation.thread, found.target.handle) == ("50.1", "")
    assert found.about == Shown("C1", "60.1", "50.1", stream=True).write()


@pytest.mark.parametrize("streams", [[], ["60.1", "61.1"], None, "60.1", [60.1]])
def test_a_stop_that_names_no_one_answer_is_for_the_whole_thread(streams: Any) -> None:
    assert read(type="agent_session_stopped", thread_ts="50.1", streaming_message_ts=streams).about == ""


# Commands and presses.


def asked(**fields: Any) -> dict[str, Any]:
    return {
        "command": "/tidings",
        "text": "status now",
        "channel_id": "C1",
        "user_id": "UANN",
        "user_name": "ann",
        "response_url": "https://hooks.slack.com/x",
        "trigger_id": "1.2.3",
    } | fields


@pytest.mark.parametrize(
    ("text", "command", "words"),
    [
        ("status now", "status", "/status now"),
        ("/status", "status", "/status"),
        ("", "help", "/help"),
        ("  ", "help", "/help"),
        ("how are you?", "", "how are you?"),
        ("ask <@UBOB>", "", "ask @Bob"),
    ],
)
def test_a_slash_command_names_one_of_ours_or_is_a_question(text: str, command: str, words: str) -> None:
    found = reader().commanded(asked(text=text), 7.0)

    assert (found.command, found.text) == (command, words)
    assert found.kind is (Kind.COMMANDED if command else Kind.MESSAGE)


def test_a_slash_command_is_answered_to_one_person_alone() -> None:
    found = reader().commanded(asked(), 7.0)

    assert found.key == "command:1.2.3"
    assert found.target.audience is Audience.ONE
    assert handle_of(found.target) == Handle(response_url="https://hooks.slack.com/x", at=7.0)
    assert reader().commanded(asked(trigger_id=""), 7.0).key == reader().commanded(asked(trigger_id=""), 8.0).key
    assert found.key != reader().commanded(asked(trigger_id="", text="x"), 7.0).key


def pressed(**fields: Any) -> dict[str, Any]:
    return {
        "type": "block_actions",
        "user": {"id": "UANN", "name": "ann"},
        "container": {"type": "message", "message_ts": "60.1", "channel_id": "C1", "thread_ts": "50.1"},
        "channel": {"id": "C1"},
        "trigger_id": "1.2.3",
        "response_url": "https://hooks.slack.com/x",
        "actions": [{"action_id": "run:0", "action_ts": "61.1"}],
    } | fields


def test_a_press_says_what_was_chosen_and_where() -> None:
    found = reader().pressed(pressed(), 7.0)

    assert found is not None
    assert (found.kind, found.choice, found.key, found.about) == (Kind.PRESSED, "run:0", "action:1.2.3", "C1:60.1")
    assert (found.conversation.thread, found.target.audience, found.target.handle) == ("50.1", Audience.GROUP, "")


@pytest.mark.parametrize("channel", ["C1", "D1"])
def test_whatever_comes_names_the_workspace_of_the_account(channel: str) -> None:
    """Also in a channel that another workspace shares; an organisation has many, and the payload says which."""
    foreign = {"team_id": "T9", "authorizations": [{"team_id": "T5", "enterprise_id": "E1"}]}
    container = {"message_ts": "60.1", "channel_id": channel}
    edit = {"message": {"ts": "100.1", "user": "UANN", "text": "<@UBOT> b", "edited": {}}, "subtype": "message_changed"}
    own = reader()
    organisation = Reader("main", SlackAccount(), ME._replace(team="T0", enterprise="E1"), MENU)
    for read, server in ((own, "T1"), (organisation, "T5")):
        found = (
            read.event(payload(channel=channel) | foreign),
            read.event(payload(channel=channel, **edit) | foreign),
            read.event(payload(channel=channel, subtype="message_deleted", deleted_ts="100.1") | foreign),
            read.event(payload(channel=channel, type="agent_session_stopped", thread_ts="50.1") | foreign),
            read.commanded(asked(channel_id=channel, team_id="T5"), 7.0),
            read.pressed(pressed(channel={"id": channel}, container=container, team={"id": "T5"}), 7.0),
        )
        assert [each.target.server for each in found if each] == [server] * 6


@pytest.mark.parametrize(
    ("event", "overheard"),
    [
        ({}, True),
        ({"text": "<@UBOT> hi"}, False),
        ({"text": "!stop"}, False),
        ({"thread_ts": "50.1", "parent_user_id": "UBOT"}, False),
        ({"channel": "D1"}, False),
    ],
)
def test_what_only_the_rule_lets_us_hear_is_overheard(event: dict[str, Any], overheard: bool) -> None:
    found = reader(channels="all").event(payload(**event))
    assert found is not None
    assert (found.addressed, found.overheard) == (True, overheard)
    assert not read(**event).overheard


@pytest.mark.parametrize(
    ("container", "thread"),
    [
        ({"message_ts": "60.1", "channel_id": "C1"}, "60.1"),
        ({"message_ts": "60.1", "channel_id": "C1", "is_ephemeral": True}, ""),
        ({"message_ts": "60.1", "channel_id": "D1"}, ""),
        ({"message_ts": "60.1", "channel_id": "D1", "thread_ts": "50.1"}, "50.1"),
    ],
)
def test_a_press_belongs_to_the_conversation_of_its_message(container: dict[str, Any], thread: str) -> None:
    found = reader().pressed(pressed(container=container, channel={"id": container["channel_id"]}), 7.0)

    assert found is not None
    assert found.conversation.thread == thread
    whispered = bool(container.get("is_ephemeral"))
    assert (found.target.audience is Audience.ONE) is whispered
    assert bool(handle_of(found.target).response_url) is whispered


@pytest.mark.parametrize(
    "fields", [{"type": "view_submission"}, {"actions": []}, {"container": {"type": "view"}}, {"container": None}]
)
def test_what_is_no_button_of_a_message_is_no_press(fields: dict[str, Any]) -> None:
    assert reader().pressed(pressed(**fields), 7.0) is None


def test_time_is_the_events_own() -> None:
    assert time_of(payload(event_ts="101.5")) == 101.5
    assert time_of(payload()) == 100.000001
    assert time_of(payload(ts="soon")) == 0.0


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"ts": None}, ValueError),
        ({"channel": None, "ts": "1.1", "text": 7, "files": 3}, TypeError),
        ({"attachments": ["x"]}, AttributeError),
        ({"files": [{}]}, LookupError),
        ({"subtype": "message_changed"}, LookupError),
        ({"subtype": "message_deleted"}, LookupError),
        ({"type": "agent_session_stopped"}, LookupError),
    ],
)
def test_strange_shapes_raise_what_the_caller_expects(event: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        reader().event(payload(**event))
