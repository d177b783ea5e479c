"""The Bolt app alone: every payload reaches the right listener, and only a listener that returned is acknowledged."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from slack_bolt.async_app import AsyncApp, AsyncAssistant, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.socket_mode.request import SocketModeRequest

from tidings.adapters.slack.bolt import FORM, BoltApp
from tidings.adapters.slack.workspaces import Listeners, Workspaces
from tidings.core.errors import Unstored

ROOT = Path(__file__).resolve().parents[2]
APP = "https://slack.com/api/ xapp-1"
JSON = "application/json"


class Account:
    """Notes which listener got which payload, raises what the test wants, and says what it wants."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.heard: list[tuple[str, Mapping[str, Any]]] = []
        self.error: Exception | None = None
        self.words = ""

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.heard]

    def listeners(self) -> Listeners:
        names = ("assistant_thread_started", "app_home_opened", "agent_session_stopped", "event", "command", "action")
        return {name: self._listener(name) for name in names}

    def _listener(self, name: str) -> Any:
        async def listen(payload: Mapping[str, Any]) -> str:
            self.heard.append((name, payload))
            if self.error is not None:
                raise self.error
            return self.words

        return listen


class Stage:
    """A Bolt app for the workspace T1, of the organisation E1 where the test says so."""

    def __init__(self, *ids: str) -> None:
        self.account = Account()
        self._workspaces = Workspaces()
        self._listening = ExitStack()
        self._listening.enter_context(self._workspaces.listening(APP, ids or ("T1",), self.account.listeners()))
        self.bolt = BoltApp(self._find)

    def _find(self, ids: Sequence[str]) -> Listeners:
        return self._workspaces.find(APP, ids)

    async def envelope(self, payload: dict[str, Any], kind: str = "events_api") -> tuple[int, str]:
        response = await self.bolt.answer_envelope(SocketModeRequest(kind, "e1", payload))
        return response.status, response.body

    async def request(self, body: str, content_type: str = JSON) -> tuple[int, str]:
        response = await self.bolt.answer_request(body, content_type)
        return response.status, response.body


def event(type: str = "message", **fields: Any) -> dict[str, Any]:
    return {"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": {"type": type, **fields}}


def command(**fields: str) -> dict[str, str]:
    return {"command": "/tidings", "team_id": "T1", "channel_id": "C1", "user_id": "U1", **fields}


def press(**fields: Any) -> dict[str, Any]:
    return {"type": "block_actions", "team": {"id": "T1"}, "actions": [{"action_id": "a", "block_id": "b"}], **fields}


# Which listener.


@pytest.mark.parametrize(
    ("payload", "listener"),
    [
        (event(text="hi"), "event"),
        (event("app_mention", text="hi"), "event"),
        (event(subtype="message_changed", channel_type="im"), "event"),
        (event("something_new"), "event"),
        (event("assistant_thread_started", assistant_thread={"channel_id": "D1"}), "assistant_thread_started"),
        (event("app_home_opened", tab="messages"), "app_home_opened"),
        (event("agent_session_stopped"), "agent_session_stopped"),
        (command(text="status"), "command"),
        (press(), "action"),
    ],
)
async def test_each_kind_reaches_its_own_listener_once_and_is_acknowledged(
    payload: dict[str, Any], listener: str
) -> None:
    stage = Stage()

    assert await stage.envelope(payload) == (200, "")
    assert stage.account.heard == [(listener, payload)]


@pytest.mark.parametrize("kind", ["view_submission", "shortcut", "message_action", "block_suggestion", "new_kind"])
async def test_a_kind_that_no_listener_is_for_is_acknowledged_and_not_sent_again(kind: str) -> None:
    stage = Stage()

    assert await stage.envelope({"type": kind, "team": {"id": "T1"}, "callback_id": "x", "view": {}}) == (200, "")
    assert stage.account.heard == []


async def test_the_news_that_a_token_was_revoked_are_acknowledged_although_bolt_does_not_authorize_them() -> None:
    stage = Stage()

    assert await stage.envelope(event("tokens_revoked")) == (200, "")
    assert await stage.envelope(event("app_uninstalled")) == (200, "")


async def test_an_assistant_thread_without_its_thread_object_reaches_the_listener() -> None:
    """With Bolt's own helpers for conversations it would be answered with 500, again and again."""
    stage = Stage()

    assert await stage.envelope(event("assistant_thread_started")) == (200, "")
    assert stage.account.kinds == ["assistant_thread_started"]


async def test_an_edit_in_an_assistant_thread_reaches_the_listener_as_with_bolts_assistant_it_would_not() -> None:
    edit = event(channel_type="im", subtype="message_changed", channel="D1", message={"thread_ts": "1.1"})
    stage = Stage()
    await stage.envelope(edit)
    assert stage.account.kinds == ["event"]

    async def authorize() -> AuthorizeResult:
        return AuthorizeResult(team_id="T1", enterprise_id=None)

    stock = AsyncApp(authorize=authorize, signing_secret="", process_before_response=True)
    assistant, heard = AsyncAssistant(), []

    async def listen(body: dict[str, Any]) -> None:
        heard.append(body)

    assistant.user_message(listen)
    stock.use(assistant)
    stock.event("message")(listen)
    response = await stock.async_dispatch(AsyncBoltRequest(body=edit, mode="socket_mode"))
    assert (response.status, heard) == (200, [])


async def test_two_hundred_events_at_once_reach_the_listener_in_the_order_in_which_they_came() -> None:
    stage = Stage()
    await asyncio.gather(*(stage.envelope(event(number=number)) for number in range(200)))

    assert [payload["event"]["number"] for _, payload in stage.account.heard] == list(range(200))


# Acknowledged, or not.


@pytest.mark.parametrize("payload", [event(), command(), press()])
@pytest.mark.parametrize(
    ("error", "status"),
    [(Unstored("the disk is full"), 503), (RuntimeError("a bug"), 500), (OSError("a bug"), 500)],
    ids=["unstored", "bug", "another bug"],
)
async def test_a_listener_that_raises_is_not_acknowledged(
    payload: dict[str, Any], error: Exception, status: int
) -> None:
    stage = Stage()
    stage.account.error = error

    assert (await stage.envelope(payload))[0] == status
    assert (await stage.request(json.dumps(payload)))[0] == status


async def test_a_failed_listener_is_logged_with_its_cause_and_without_what_people_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    stage = Stage()
    await stage.envelope(event(text="my secret"))
    stage.account.error = RuntimeError("a bug")
    await stage.envelope(event(text="my secret"))
    await stage.envelope({"type": "shortcut", "team": {"id": "T1"}, "text": "my secret"})
    await stage.envelope({**event(text="my secret"), "team_id": "T2"})

    assert [record for record in caplog.records if record.exc_info and "a bug" in str(record.exc_info[1])]
    assert "my secret" not in caplog.text
    assert {record.name.partition(".")[0] for record in caplog.records} <= {"tidings", "asyncio"}
    assert logging.getLogger("tidings").isEnabledFor(logging.ERROR)


async def test_the_words_for_a_command_go_to_the_person_alone() -> None:
    stage = Stage()
    stage.account.words = "Please wait."
    status, body = await stage.envelope(command(text="status"), "slash_commands")

    assert (status, json.loads(body)) == (200, {"text": "Please wait.", "response_type": "ephemeral"})


@pytest.mark.parametrize(
    "payload",
    [
        {"team": 3},
        {"authorizations": ["x"], "team_id": "T1"},
        {**event(), "event": 3},
        {**event(), "event": {"type": 3}},
        press(actions=[]),
        press(actions=[3]),
        press(response_urls=[{}], enterprise=3),
    ],
)
async def test_a_payload_that_bolt_itself_cannot_read_is_passed_over_and_does_not_come_again(
    payload: dict[str, Any],
) -> None:
    stage = Stage()

    assert (await stage.envelope(payload))[0] == 200
    # A request is refused for good, or acknowledged.
    assert (await stage.request(json.dumps(payload)))[0] in (200, 400)
    assert stage.account.heard == []


# Which account.


async def test_an_unknown_workspace_is_not_acknowledged_and_nobody_is_told_anything() -> None:
    """An `authorize` that returns None would have Bolt acknowledge the event, and lose it."""
    stage = Stage()
    for payload in ({**event(), "team_id": "T2"}, command(team_id="T2"), press(team={"id": "T2"}), {"type": "new"}):
        assert await stage.envelope(payload) == (503, "")
        assert await stage.request(json.dumps(payload)) == (503, "")

    assert stage.account.heard == []


@pytest.mark.parametrize(
    "payload",
    [
        {**event(), "team_id": "T9", "authorizations": [{"team_id": "T1", "enterprise_id": None}]},
        {**event(), "team_id": "T9", "authorizations": [{"team_id": "T7", "enterprise_id": "E1"}]},
        {**event(), "team_id": "T9", "authorizations": [{"team_id": None, "enterprise_id": "E1"}]},
        {**event(), "team_id": "T9", "authorizations": [{"team_id": "T8"}, {"team_id": "T1"}]},
        {**event(), "team_id": "T1", "authorizations": [{"team_id": None, "enterprise_id": "E9"}]},
        {**event(), "team_id": "T1", "authorizations": [{"team_id": "T9", "enterprise_id": None}]},
        press(team={"id": "T9"}, user={"id": "U1", "team_id": "T1"}),
        command(team_id="T9", enterprise_id="E1"),
        press(team=None, enterprise={"id": "E1"}),
        press(team=None, user={"id": "U1", "team_id": "T1"}),
        press(team={"id": "T1"}, enterprise={"id": "E9"}),
    ],
)
async def test_an_account_hears_its_workspace_and_its_organisation_also_in_shared_channels(
    payload: dict[str, Any],
) -> None:
    stage = Stage("T1", "E1")

    assert (await stage.envelope(payload))[0] == 200
    assert (await stage.request(json.dumps(payload)))[0] == 200
    assert len(stage.account.heard) == 2


async def test_an_account_that_comes_back_keeps_its_workspace_when_its_old_life_ends() -> None:
    workspaces, old, new = Workspaces(), Account().listeners(), Account().listeners()
    with ExitStack() as later:
        with workspaces.listening(APP, ("T1", ""), old):
            assert workspaces.find(APP, ["T1"]) is old
            later.enter_context(workspaces.listening(APP, ("T1", ""), new))
        assert workspaces.find(APP, ["T1"]) is new
        with pytest.raises(Unstored):
            workspaces.find("another app", ["T1"])
    with pytest.raises(Unstored):
        workspaces.find(APP, ["T1"])


async def test_the_environment_of_a_stock_bolt_app_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BOT_TOKEN", "SIGNING_SECRET", "CLIENT_ID", "CLIENT_SECRET", "VERIFICATION_TOKEN"):
        monkeypatch.setenv(f"SLACK_{name}", "xoxb-of-another-app")
    stage = Stage()

    assert await stage.envelope(event()) == (200, "")
    assert await stage.envelope({**event(), "team_id": "T2"}) == (503, "")


# Requests.


@pytest.mark.parametrize("text", ["explain the payload", "payload", "payload=1", "{", "", "a&b=c"])
async def test_a_command_is_read_whole_whatever_its_words_are(text: str) -> None:
    stage = Stage()
    asked = command(text=text, trigger_id="7")

    assert await stage.request(urlencode(asked), FORM) == (200, "")
    assert stage.account.heard == [("command", asked)]


def test_bolt_itself_reads_a_command_with_the_word_payload_as_empty() -> None:
    """When this fails, commands need no detour by JSON any more."""
    form = urlencode(command(text="explain the payload"))

    assert AsyncBoltRequest(body=form, headers={"content-type": FORM}).body == {}


async def test_a_press_and_an_event_by_request_reach_their_listeners() -> None:
    stage = Stage()

    assert await stage.request(urlencode({"payload": json.dumps(press())}), FORM) == (200, "")
    assert await stage.request(json.dumps(event(text="ü"))) == (200, "")
    assert stage.account.heard == [("action", press()), ("event", event(text="ü"))]


async def test_the_check_of_the_certificate_is_answered_and_reaches_no_listener() -> None:
    stage = Stage()

    assert await stage.request("ssl_check=1&token=x", FORM) == (200, "")
    assert stage.account.heard == []


def test_bolt_is_imported_with_the_adapter_and_not_before() -> None:
    code = (
        "import sys; from tidings.adapters.catalog import PLATFORMS; slack = PLATFORMS['slack'];"
        "slack.load_settings(), slack.load_examine(); print('slack_bolt' in sys.modules);"
        "slack.load_adapter(); print('slack_bolt' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "True"]
