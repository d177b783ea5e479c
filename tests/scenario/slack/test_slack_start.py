"""How Slack is set up and begins to listen: settings, tokens, scopes, doubles, and what the owner is told."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest

from tests.simulators.slack.simulator import SlackServer
from tests.simulators.telegram.simulator import TelegramServer
from tests.worlds.process import ROOT, ask, chat, echo_on, gateway, part_of, until_misconfigured
from tests.worlds.process import accounts as process_accounts
from tests.worlds.slack import SlackWorld
from tests.worlds.world import Echo, OwnedClock
from tidings.adapters.slack.checks import SCOPES
from tidings.adapters.slack.settings import SlackAccount
from tidings.core.errors import ConfigError

BOT = "xoxb-1-part-of-a-token"
APP = "xapp-1-part-of-another"
PAIR = f'bot_token = "{BOT}"\napp_token = "{APP}"\n'
SECRET = "0f1e2d3c4b5a"
# Another process takes over within so many seconds.
TAKE_OVER_SECONDS = 30.0


# The settings.


def accounts(home: Path, toml: str = "", **environment: str) -> dict[str, SlackAccount]:
    return process_accounts(home, "slack", toml, **environment)


def test_without_a_token_it_is_off_and_with_two_it_is_on(tmp_path: Path) -> None:
    assert accounts(tmp_path) == {}
    assert accounts(tmp_path, "[slack]\nunfurl = true") == {}
    (account,) = accounts(tmp_path, f"[slack]\n{PAIR}").items()
    assert (account[0], account[1].bot_token.get_secret_value()) == ("main", BOT)
    assert account[1].api_url == "https://slack.com/api/"
    assert (account[1].unfurl, account[1].mentions) == (False, False)


def test_the_environment_sets_what_the_file_can(tmp_path: Path) -> None:
    found = accounts(
        tmp_path,
        '[slack]\nbot_token = "xoxb-older"\nchannels = "all"\nchats = { "C5" = "never" }',
        TIDINGS_SLACK__BOT_TOKEN=BOT,
        TIDINGS_SLACK__APP_TOKEN=APP,
        TIDINGS_SLACK__SIGNING_SECRET=SECRET,
        TIDINGS_SLACK__API_URL="http://127.0.0.1:8081/api/",
        TIDINGS_SLACK__NATIVE_STREAMS="false",
        TIDINGS_SLACK__ACCOUNTS__WORK__BOT_TOKEN="xoxb-other",
        TIDINGS_SLACK__ACCOUNTS__WORK__APP_TOKEN="xapp-other",
    )
    main, work = found["main"], found["work"]
    assert [main.bot_token.get_secret_value(), main.app_token.get_secret_value()] == [BOT, APP]
    assert main.signing_secret.get_secret_value() == SECRET
    assert (main.native_streams, main.rule("C5"), main.rule("C6")) == (False, "never", "all")
    assert (work.bot_token.get_secret_value(), work.api_url) == ("xoxb-other", "http://127.0.0.1:8081/api/")
    assert (work.app_token.get_secret_value(), work.channels) == ("xapp-other", "all")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (f'bot_token = "{APP}"\napp_token = "{APP}"', "bot_token must begin with xoxb-"),
        (f'bot_token = "{BOT}"\napp_token = "{BOT}"', "app_token must begin with xapp-"),
        (f'bot_token = "{BOT}"', "bot_token needs app_token (Socket Mode) or signing_secret"),
        (f'{PAIR}api_url = "https://slack.com/api"', "end with a slash"),
        (f'{PAIR}channels = "sometimes"', "channels = 'sometimes'"),
        (f'{PAIR}chats = {{ "C5" = "often" }}', "C5 = 'often'"),
        (
            f'{PAIR}[slack.accounts.main]\nbot_token = "xoxb-other"\napp_token = "{APP}"',
            "is the account main already",
        ),
        (
            f"{PAIR}[slack.accounts.work]\n{PAIR}",
            "two accounts have the same bot_token",
        ),
    ],
)
def test_a_wrong_setting_says_what_is_wrong(tmp_path: Path, lines: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        accounts(tmp_path, f"[slack]\n{lines}")
    said = str(caught.value)
    assert words in said
    assert "slack" in said
    assert [secret for secret in (BOT, APP) if secret in said] == []


# The process.


def environment(slack: SlackServer, **more: str) -> dict[str, str]:
    """An echo answers Ada."""
    variables = {"BOT_TOKEN": slack.token, "APP_TOKEN": slack.app_token, "API_URL": slack.api_url}
    return echo_on("slack", slack.person("ada").id, variables, **more)


def process(home: Path, slack: SlackServer, **more: str) -> AbstractAsyncContextManager[subprocess.Popen[bytes]]:
    return gateway(home, **environment(slack, **more))  # type: ignore[arg-type]


async def test_wrong_tokens_and_a_missing_scope_are_told_and_stop_nothing_else(tmp_path: Path) -> None:
    """Two workspaces that only the owner can mend, beside one that works, a Telegram bot and the console."""
    wrong = ("xoxb-not-the-token", "xapp-not-the-token")
    async with SlackServer() as slack, TelegramServer() as telegram:
        shy, fine = slack.workspace("shy"), slack.workspace("fine")
        slack.drop_scope(fine, "reactions:write")
        ada = fine.person("ada")
        told = environment(
            slack,
            TIDINGS_ACCESS__ALLOW=f"telegram:7,slack@fine:{ada.id}",
            TIDINGS_SLACK__BOT_TOKEN=wrong[0],
            TIDINGS_SLACK__ACCOUNTS__SHY__BOT_TOKEN=shy.token,
            TIDINGS_SLACK__ACCOUNTS__SHY__APP_TOKEN=wrong[1],
            TIDINGS_SLACK__ACCOUNTS__FINE__BOT_TOKEN=fine.token,
            TIDINGS_SLACK__ACCOUNTS__FINE__APP_TOKEN=slack.app_token,
            TIDINGS_TELEGRAM__TOKEN=telegram.token,
            TIDINGS_TELEGRAM__API_URL=f"http://{telegram.address}",
        )
        async with process(tmp_path, slack, **told):
            assert "bot_token" in await until_misconfigured(tmp_path, "slack@main")
            assert "app_token" in await until_misconfigured(tmp_path, "slack@shy")
            telegram.says("hi")
            await telegram.until(lambda telegram: telegram.posts == ["you said: hi"])
            await slack.until(lambda slack: slack.attached("fine"))
            ada.says(ada.direct, "hi")
            await slack.until(lambda slack: slack.posts == ["you said: hi"])
            assert await chat(tmp_path, "still there?") == "you said: still there?\n"
            shown = (await ask(tmp_path, told, "status")).stdout
            assert ("slack@main" in shown, "slack@shy" in shown, "misconfigured" in shown) == (True, True, True)
        examined = await ask(tmp_path, told, "doctor")
    lines = examined.stdout.splitlines()
    assert examined.returncode == 1
    assert any(line.startswith("fail  slack@main: Slack does not accept the token") for line in lines)
    assert any(line.startswith("fail  slack@shy: Socket Mode does not work") for line in lines)
    assert any(line.startswith("ok    slack@fine: the token is right") for line in lines)
    assert any("slack@fine: the app lacks the scope reactions:write" in line for line in lines)
    log = (tmp_path / "stderr.log").read_text()
    assert "Slack does not accept the token" in log
    said = log + examined.stdout + examined.stderr + shown
    assert [secret for secret in (*wrong, slack.app_token, fine.token) if secret in said] == []


async def test_a_process_hears_by_signed_requests_on_the_listener_of_all(tmp_path: Path) -> None:
    async with SlackServer() as slack:
        ada = slack.person("ada")
        told = {"TIDINGS_SLACK__APP_TOKEN": "", "TIDINGS_SLACK__SIGNING_SECRET": slack.secret}
        async with process(tmp_path, slack, **told):
            await slack.send_events_to(f"{await address_of(tmp_path)}/slack/events")
            ada.says(ada.direct, "hi")
            await slack.until(lambda slack: slack.posts == ["you said: hi"])
            assert {each.attempt for each in slack.acks} == {0}


async def address_of(home: Path) -> str:
    """Where the listener is, as it says itself once the route is there."""
    async with asyncio.timeout(10):
        while "/slack/events" not in (log := (home / "stderr.log").read_text()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    found = re.search(r"listener is at (http://[\d.:]+)", log)
    assert found is not None
    return found[1]


async def test_a_second_process_stands_by_and_takes_over(tmp_path: Path) -> None:
    """E5. From another home, with the same token."""
    homes = [tmp_path / "first", tmp_path / "second"]
    for home in homes:
        home.mkdir()
    async with SlackServer() as slack, AsyncExitStack() as stack:
        ada = slack.person("ada")
        first = await stack.enter_async_context(process(homes[0], slack))
        await slack.until(lambda slack: slack.attached())
        seen = len(slack.calls())
        await stack.enter_async_context(process(homes[1], slack))
        listener = await part_of(homes[1], "slack@main")
        assert listener["state"] == "standing by"
        assert listener["last_error"] == f"process {first.pid} listens with this token already"
        ada.says(ada.direct, "one")
        await slack.until(lambda slack: slack.posts == ["you said: one"])
        # The second has not said a word to the platform.
        assert {call.method for call in slack.calls()[seen:]} <= {"chat.postMessage", "users.info", "reactions.add"}
        (old,) = slack.sockets.open
        first.send_signal(signal.SIGKILL)
        await asyncio.to_thread(first.wait)
        await slack.until(lambda slack: slack.sockets.open and old not in slack.sockets.open, TAKE_OVER_SECONDS)
        ada.says(ada.direct, "two")
        await slack.until(lambda slack: slack.posts[1:] == ["you said: two"], TAKE_OVER_SECONDS)


async def test_the_tokens_are_nowhere(tmp_path: Path) -> None:
    """D8. In no log, no error, no status and no file of the home, after a run in which everything failed once."""
    async with SlackServer() as slack:
        ada, room = slack.person("ada"), slack.channel("room")
        loud = {
            "TIDINGS_BOT__AGENT": "demo",
            "TIDINGS_LOG__LEVEL": "debug",
            "TIDINGS_LOG__FORMAT": "text",
            "TIDINGS_SLACK__SIGNING_SECRET": slack.secret,
        }
        async with process(tmp_path, slack, **loud) as running:
            await slack.until(lambda slack: slack.attached())
            slack.drop_next(False, "download")
            ada.says(ada.direct, files=[("a.txt", b"1")])
            await slack.until(lambda slack: len(slack.posts) == 1)
            slack.fail_next(500, "chat.postMessage")
            slack.drop_next(True, "chat.postMessage")
            slack.fail_next("invalid_name", "reactions.add")
            ada.says(room, "fail", mention=True)
            await slack.until(lambda slack: len(slack.posts) >= 2, TAKE_OVER_SECONDS)
            asked = ada.commands("/tidings", "whoami", room)
            await slack.until(lambda slack: slack.whispers)
            slack.abort_sockets()
            await slack.until(lambda slack: len(slack.calls("apps.connections.open")) == 2)
            await slack.until(lambda slack: slack.attached())
            slack.revoke_app(slack.app)
            slack.revoke(slack.main)
            await until_misconfigured(tmp_path, "slack@main")
            told = environment(slack, **loud)
            shown = [await ask(tmp_path, told, *words) for words in (["status"], ["status", "--json"], ["doctor"])]
            files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
            running.kill()
    log = files[tmp_path / "stderr.log"].decode()
    assert "revoked" in log
    assert " debug " in log
    # What a command is answered with must be kept until it is answered, but is for nobody to read in a log.
    response = str(asked.payload["response_url"])
    assert response not in log
    for secret in (slack.token, slack.app_token, slack.secret):
        assert [path.name for path, data in files.items() if secret.encode() in data] == []
        assert [each.args for each in shown if secret in each.stdout + each.stderr] == []
        assert [text for text in slack.posts if secret in text] == []


# The app.


def test_the_manifest_asks_for_every_scope_that_the_doctor_looks_for_and_for_every_event() -> None:
    manifest = (ROOT / "deploy" / "slack-manifest.yaml").read_text(encoding="utf-8")
    asked = set(re.findall(r"^ +- ([\w.:]+)$", manifest, re.MULTILINE))
    assert set(SCOPES) - asked == set()
    heard = {"app_mention", "message.im", "message.channels", "message.groups", "message.mpim"}
    assert heard | {"app_home_opened", "agent_session_stopped", "agent_session_title_changed"} <= asked
    # New apps cannot show themselves otherwise.
    assert "agent_view:" in manifest
    assert "assistant_view:" not in manifest
    assert "command: /tidings" in manifest


async def test_a_socket_that_slack_refuses_for_a_reason_of_its_own_is_asked_for_again(tmp_path: Path) -> None:
    world = SlackWorld(tmp_path, Echo(), clock=OwnedClock())
    world.slack.fail_next("forbidden_team", "apps.connections.open", count=2)
    async with world:
        world.ada.says(world.ada.direct, "hi")
        await world.until(lambda: world.posts == ["you said: hi"])
        assert "forbidden_team" in (await world.listener()).last_error
