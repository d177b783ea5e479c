"""Each answer of Discord, and each way in which none comes, becomes the right verdict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from pydantic import SecretStr

from tests.simulators.discord.simulator import Channel, DiscordServer
from tidings.adapters.discord.checks import examine
from tidings.adapters.discord.client import SHUT_OUT_SECONDS, Client, Refused
from tidings.adapters.discord.settings import DiscordAccount
from tidings.core.errors import Doubtful, Misconfigured, RateLimited, SendError, Unfit, Unreachable

TEXT = {"content": "hi", "allowed_mentions": {"parse": []}}


@pytest.fixture
async def discord() -> AsyncIterator[DiscordServer]:
    async with DiscordServer() as server:
        yield server


@pytest.fixture
async def client(discord: DiscordServer) -> AsyncIterator[Client]:
    made = Client(discord.token, discord.api_url, "work")
    yield made
    await made.close()


@pytest.fixture
def channel(discord: DiscordServer) -> Channel:
    return discord.channel()


async def post(client: Client, channel: Channel, **more: str) -> SendError | None:
    try:
        await client.call("POST", f"/channels/{channel.id}/messages", {**TEXT, **more}, budget="b")
    except SendError as error:
        return error
    return None


async def test_a_call_answers_with_the_servers_own_object(client: Client, channel: Channel) -> None:
    posted = await client.call("POST", f"/channels/{channel.id}/messages", TEXT)
    read = await client.call("GET", f"/channels/{channel.id}/messages", params={"limit": 1})
    assert [posted["id"]] == [message["id"] for message in read]
    assert await client.call("POST", f"/channels/{channel.id}/typing") is None


async def test_a_file_goes_along_under_its_own_name(client: Client, channel: Channel, discord: DiscordServer) -> None:
    said = {**TEXT, "attachments": [{"id": 0, "filename": "grüße.txt"}]}
    await client.call("POST", f"/channels/{channel.id}/messages", said, files=(("grüße.txt", b"all is well"),))
    (sent,) = discord.sent
    assert [(file.name, file.data) for file in sent.files] == [("grüße.txt", b"all is well")]


async def test_a_limit_of_one_route_names_its_pause_and_its_budget(
    client: Client, channel: Channel, discord: DiscordServer
) -> None:
    discord.fail_next(429, retry_after=2.5)
    error = await post(client, channel)
    assert isinstance(error, RateLimited)
    assert (error.retry_after, error.budget) == (2.5, "b")


async def test_a_limit_over_all_calls_is_the_accounts(client: Client, channel: Channel, discord: DiscordServer) -> None:
    discord.fail_next(429, retry_after=1.5, is_global=True)
    error = await post(client, channel)
    assert isinstance(error, RateLimited)
    assert (error.retry_after, error.budget) == (1.5, "discord/work")


@pytest.mark.parametrize(("headers", "seconds"), [({}, SHUT_OUT_SECONDS), ({"Retry-After": "900"}, 900.0)])
async def test_the_edges_own_page_pauses_the_whole_account(
    client: Client, channel: Channel, discord: DiscordServer, headers: dict[str, str], seconds: float
) -> None:
    discord.fail_next(429, via=False, headers=headers)
    error = await post(client, channel)
    assert isinstance(error, RateLimited)
    assert (error.retry_after, error.budget) == (seconds, "discord/work")
    assert discord.posts == []


@pytest.mark.parametrize("status", [500, 502, 503, 504, 524])
@pytest.mark.parametrize("after", [False, True])
async def test_whoever_was_told_of_a_fault_is_in_doubt(
    client: Client, channel: Channel, discord: DiscordServer, status: int, after: bool
) -> None:
    discord.fail_next(status, after_effect=after)
    assert isinstance(await post(client, channel), Doubtful)
    assert discord.posts == ["hi"] * after


@pytest.mark.parametrize("after", [False, True])
async def test_a_connection_that_breaks_after_the_first_byte_leaves_a_doubt(
    client: Client, channel: Channel, discord: DiscordServer, after: bool
) -> None:
    discord.drop_next(after_effect=after)
    assert isinstance(await post(client, channel), Doubtful)
    assert discord.posts == ["hi"] * after


async def test_half_an_answer_leaves_a_doubt(client: Client, channel: Channel, discord: DiscordServer) -> None:
    discord.garble_next()
    discord.truncate_next()
    assert [type(await post(client, channel)) for _ in range(2)] == [Doubtful, Doubtful]
    assert discord.posts == ["hi", "hi"]


async def test_a_server_that_does_not_answer_in_time_leaves_a_doubt(
    client: Client, channel: Channel, discord: DiscordServer
) -> None:
    discord.hang_next(after_effect=True)
    with pytest.raises(Doubtful):
        await client.call("POST", f"/channels/{channel.id}/messages", TEXT, seconds=0.1)


async def test_what_was_only_read_can_be_asked_again(client: Client, channel: Channel, discord: DiscordServer) -> None:
    for status in (500, 503):
        discord.fail_next(status)
        with pytest.raises(Unreachable):
            await client.call("GET", f"/channels/{channel.id}/messages")
    discord.garble_next()
    with pytest.raises(Unreachable):
        await client.call("GET", f"/channels/{channel.id}/messages")


async def test_without_a_connection_nothing_has_left_us(
    client: Client, channel: Channel, discord: DiscordServer
) -> None:
    await discord.outage(True)
    assert isinstance(await post(client, channel), Unreachable)
    await discord.outage(False)
    assert await post(client, channel) is None


async def test_a_closed_client_opens_no_connection(client: Client, channel: Channel) -> None:
    await client.close()
    assert isinstance(await post(client, channel), Unreachable)


async def test_a_worthless_token_is_the_owners_to_mend(
    client: Client, channel: Channel, discord: DiscordServer
) -> None:
    discord.revoke()
    error = await post(client, channel)
    assert isinstance(error, Misconfigured)
    assert "token" in str(error)
    assert discord.token not in str(error)


async def test_the_end_of_a_commands_token_is_not_taken_for_the_bots(client: Client, discord: DiscordServer) -> None:
    discord.fail_next(401, code=50027, message="Invalid Webhook Token")
    with pytest.raises(Refused) as refused:
        await client.call("PATCH", f"/webhooks/{discord.bot.id}/t/messages/@original", TEXT)
    assert refused.value.code == 50027


async def test_a_no_is_told_in_plain_words(client: Client, channel: Channel, discord: DiscordServer) -> None:
    gone = discord.channel("gone")
    discord.remove_channel(gone)
    closed = discord.channel("closed")
    discord.forbid(closed, "send_messages")
    hidden = discord.channel("hidden")
    discord.forbid(hidden, "view_channel")
    blocked = discord.person("bob")
    blocked.blocks()
    told = [str(await post(client, place)) for place in (gone, closed, hidden, blocked.private())]
    assert told == [
        "the channel or thread is gone, or the bot was never in it",
        "the bot lacks a permission in this channel",
        "the bot may not see this channel, or was removed from the server",
        "this person takes no messages from the bot",
    ]


async def test_what_discord_dislikes_is_said_with_the_field(client: Client, channel: Channel) -> None:
    error = await post(client, channel, nonce="x" * 26)
    assert isinstance(error, Refused)
    assert "nonce" in str(error)
    assert isinstance(await post(client, channel, content="x" * 2001), Unfit)


async def test_a_page_of_something_in_between_is_no_verdict_on_the_message() -> None:
    async def page(request: web.Request) -> web.Response:
        return web.Response(status=403, text="<html>Sorry, you have been blocked</html>")

    runner = web.AppRunner(app := web.Application())
    app.router.add_route("*", "/{path:.*}", page)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    client = Client("t", f"http://127.0.0.1:{runner.addresses[0][1]}/api/v10")
    with pytest.raises(Unreachable, match="403"):
        await client.call("POST", "/channels/1/messages", TEXT)
    await client.close()
    await runner.cleanup()


async def test_one_slow_channel_does_not_delay_another(
    client: Client, channel: Channel, discord: DiscordServer
) -> None:
    other = discord.channel("other")
    gates = [discord.hold_next(channel=channel) for _ in range(50)]
    slow = [asyncio.create_task(post(client, channel)) for _ in gates]
    await discord.until(lambda _: len(discord.calls("send")) == len(gates))
    assert await post(client, other) is None
    assert discord.posts_in(channel) == []
    for gate in gates:
        gate.set()
    assert await asyncio.gather(*slow) == [None] * len(gates)


async def test_a_file_is_read_where_discord_keeps_them_and_nowhere_else(
    client: Client, channel: Channel, discord: DiscordServer, tmp_path: Path
) -> None:
    said = discord.person().says(channel, files=[("a.txt", b"abc")])
    message = await client.call("GET", f"/channels/{channel.id}/messages/{said}")
    assert await client.download(message["attachments"][0]["url"]) == b"abc"
    calls = len(discord.calls())
    for address in (
        "http://127.0.0.1:1/a.txt",
        "http://cdn.discordapp.com/a.txt",
        "https://cdn.discordapp.com.example.org/a.txt",
        "https://cdn.discordapp.com@example.org/a.txt",
        "file:///etc/passwd",
        f"{discord.api_url.replace('http', 'https')}/a.txt",
    ):
        with pytest.raises(Refused, match="does not lie with Discord"):
            await client.download(address)
    assert len(discord.calls()) == calls


async def test_doctor_tells_of_the_token_the_intent_and_the_servers(discord: DiscordServer) -> None:
    settings = DiscordAccount(token=SecretStr(discord.token), api_url=discord.api_url)
    lonely = await examine("main", settings)
    assert [finding.is_fault for finding in lonely] == [False, False, False]
    assert "no server yet" in lonely[2].words
    discord.channel()
    discord.switch_intent("message_content", False)
    found = await examine("main", settings)
    assert found[0].words == "the token is right: it is tidings's"
    assert found[1].is_fault
    assert "message_content = false" in found[1].words
    assert found[2].words == "it is in 1 server"
    content_free = DiscordAccount(token=SecretStr(discord.token), api_url=discord.api_url, message_content=False)
    assert not any(finding.is_fault for finding in await examine("main", content_free))
    blind = content_free.model_copy(update={"chats": {"5": "all"}})
    assert ["hides what" in finding.words for finding in await examine("main", blind) if finding.is_fault] == [True]
    discord.revoke()
    (fault,) = await examine("main", settings)
    assert fault.is_fault
    assert "token" in fault.words
