"""Each answer of Slack, and each way in which none comes, becomes the right verdict; nothing is ever sent twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr

from tests.simulators.slack.simulator import Channel, SlackServer
from tests.worlds.fakes import FakeClock
from tidings.adapters.slack.checks import examine
from tidings.adapters.slack.client import Client, Refused, Scopeless
from tidings.adapters.slack.settings import SlackAccount
from tidings.core.errors import Doubtful, Misconfigured, RateLimited, SendError, Unfit, Unreachable

SAID: dict[str, Any] = {"text": "hi", "blocks": [{"type": "markdown", "text": "hi"}]}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def slack(clock: FakeClock) -> AsyncIterator[SlackServer]:
    async with SlackServer(clock=clock) as server:
        yield server


@pytest.fixture
async def client(slack: SlackServer) -> AsyncIterator[Client]:
    made = Client(slack.token, slack.api_url)
    yield made
    await made.close()


@pytest.fixture
def channel(slack: SlackServer) -> Channel:
    return slack.channel()


async def post(client: Client, channel: Channel, method: str = "chat.postMessage", **more: Any) -> SendError | None:
    try:
        await client.call(method, channel=channel.id, **{**SAID, **more}, budget="b")
    except SendError as error:
        return error
    return None


# Verdicts.


async def test_a_call_answers_with_slacks_own_object(client: Client, channel: Channel, slack: SlackServer) -> None:
    posted = await client.call("chat.postMessage", channel=channel.id, **SAID)
    assert posted["ts"] == slack.sent[0].ts
    assert (await client.call("auth.test"))["user_id"] == slack.main.bot.id
    assert "chat:write" in (client.scopes or ())


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_whoever_was_told_of_a_fault_is_in_doubt(
    client: Client, channel: Channel, slack: SlackServer, status: int, plain: bool, after: bool
) -> None:
    slack.fail_next(status, after_effect=after, plain=plain)
    assert isinstance(await post(client, channel), Doubtful)
    assert slack.posts == ["hi"] * after


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", ["internal_error", "fatal_error", "request_timeout"])
async def test_slacks_own_unsure_words_leave_a_doubt(
    client: Client, channel: Channel, slack: SlackServer, error: str, after: bool
) -> None:
    slack.fail_next(error, after_effect=after)
    assert isinstance(await post(client, channel), Doubtful)


@pytest.mark.parametrize("after", [False, True])
async def test_a_connection_that_breaks_leaves_a_doubt_and_no_second_copy(
    client: Client, channel: Channel, slack: SlackServer, after: bool
) -> None:
    slack.drop_next(after)
    assert isinstance(await post(client, channel), Doubtful)
    assert len(slack.calls("chat.postMessage")) == 1
    assert slack.posts == ["hi"] * after


async def test_half_an_answer_leaves_a_doubt(client: Client, channel: Channel, slack: SlackServer) -> None:
    slack.garble_next()
    slack.truncate_next()
    assert [type(await post(client, channel)) for _ in range(2)] == [Doubtful, Doubtful]
    assert slack.posts == ["hi", "hi"]


async def test_a_server_that_does_not_answer_in_time_leaves_a_doubt(
    client: Client, channel: Channel, slack: SlackServer
) -> None:
    slack.hang_next(True)
    assert isinstance(await post(client, channel, seconds=0.1), Doubtful)
    assert len(slack.calls("chat.postMessage")) == 1


async def test_what_never_left_us_was_not_sent(client: Client, channel: Channel, slack: SlackServer) -> None:
    await slack.outage(True)
    assert isinstance(await post(client, channel), Unreachable)
    await slack.outage(False)
    await client.close()
    assert isinstance(await post(client, channel), Unreachable)
    assert slack.posts == []


async def test_whoever_only_asks_can_ask_again(client: Client, channel: Channel, slack: SlackServer) -> None:
    slack.fail_next(503)
    slack.drop_next(False)
    for _ in range(2):
        with pytest.raises(Unreachable):
            await client.call("conversations.history", channel=channel.id)


@pytest.mark.parametrize("seconds", [7, None])
async def test_a_limit_names_its_pause_and_its_budget(
    client: Client, channel: Channel, slack: SlackServer, seconds: int | None
) -> None:
    slack.fail_next(429, retry_after=seconds)
    error = await post(client, channel)
    assert isinstance(error, RateLimited)
    assert (error.retry_after, error.budget) == (seconds, "b")
    slack.fail_next("ratelimited")
    assert isinstance(await post(client, channel), RateLimited)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("invalid_auth", "bot_token"),
        ("token_revoked", "revoked"),
        ("account_inactive", "removed"),
        ("not_authed", "bot_token"),
        ("token_expired", "expired"),
    ],
)
async def test_a_token_that_is_worth_nothing_is_the_owners_to_mend(
    client: Client, channel: Channel, slack: SlackServer, error: str, word: str
) -> None:
    slack.revoke(slack.main, error=error)
    verdict = await post(client, channel)
    assert isinstance(verdict, Misconfigured)
    assert word in str(verdict)
    assert slack.token not in str(verdict)


async def test_a_missing_scope_is_named(client: Client, channel: Channel, slack: SlackServer) -> None:
    slack.drop_scope(slack.main, "chat:write")
    error = await post(client, channel)
    assert isinstance(error, Scopeless)
    assert "chat:write" in str(error)


async def test_what_slack_does_not_want_is_rejected_with_a_reason(
    client: Client, channel: Channel, slack: SlackServer
) -> None:
    slack.archive(channel)
    error = await post(client, channel)
    assert isinstance(error, Refused)
    assert (error.code, str(error)) == ("is_archived", "the channel is archived")
    slack.fail_next("some_new_error")
    assert str(await post(client, channel)) == "Slack says some_new_error"


async def test_what_is_too_long_is_to_be_cut(client: Client, channel: Channel, slack: SlackServer) -> None:
    blocks = [{"type": "markdown", "text": "x" * 12_001}]
    assert isinstance(await post(client, channel, blocks=blocks), Unfit)
    ts = (await client.call("chat.postMessage", channel=channel.id, **SAID))["ts"]
    assert isinstance(await post(client, channel, "chat.update", ts=ts, text="x" * 4_001), Unfit)


async def test_a_page_from_something_in_between_is_no_verdict(
    client: Client, channel: Channel, slack: SlackServer
) -> None:
    slack.fail_next(403)
    assert isinstance(await post(client, channel), Unreachable)
    slack.fail_next(200)
    assert isinstance(await post(client, channel), Doubtful)


# Files.


async def test_a_file_is_fetched_with_the_token_and_a_login_page_is_none(
    client: Client, channel: Channel, slack: SlackServer
) -> None:
    said = slack.person().says(channel, "look", files=[("a.txt", b"all is well"), ("b.html", b"<p>hi</p>")])
    plain, page = (f"{slack.origin}/files-pri/{slack.main.id}-{file.id}/{file.name}" for file in said.files)
    assert await client.download(plain) == b"all is well"
    assert await client.download(page, is_page=True) == b"<p>hi</p>"
    slack.drop_scope(slack.main, "files:read")
    for url, is_page in ((plain, False), (page, True)):
        with pytest.raises(Refused, match="files:read"):
            await client.download(url, is_page=is_page)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/files-pri/x",
        "https://files.slack.com.evil.example/x",
        "https://files.slack.com@evil.example/x",
        "http://files.slack.com/x",
        "file:///etc/passwd",
        "",
    ],
)
async def test_the_token_goes_to_slack_alone(client: Client, slack: SlackServer, url: str) -> None:
    with pytest.raises(Refused, match="Slack"):
        await client.download(url)
    with pytest.raises(Refused, match="Slack"):
        await client.respond(url, SAID)
    assert slack.calls() == ()


# The doctor.


async def examined(slack: SlackServer, **settings: Any) -> list[tuple[str, bool]]:
    # Its clock is the test's, not this machine's.
    slack.hide_date()
    account = SlackAccount(
        **{
            "bot_token": SecretStr(slack.token),
            "app_token": SecretStr(slack.app_token),
            "api_url": slack.api_url,
            **settings,
        }
    )
    return [(finding.words, finding.is_fault) for finding in await examine("main", account)]


async def test_the_doctor_finds_all_in_order(slack: SlackServer) -> None:
    assert await examined(slack) == [
        ("the token is right: it is tidings's in main", False),
        ("it has every scope that it needs", False),
        ("events come by Socket Mode", False),
    ]


async def test_the_doctor_names_what_is_wrong(slack: SlackServer) -> None:
    slack.drop_scope(slack.main, "files:write")
    slack.revoke_app(slack.app)
    _, scope, way = await examined(slack)
    assert "files:write" in scope[0]
    assert "app_token" in way[0]
    assert way[1]
    slack.revoke(slack.main)
    ((words, fault),) = await examined(slack, app_token=SecretStr(""), signing_secret=SecretStr("s"))
    assert "revoked" in words
    assert fault
