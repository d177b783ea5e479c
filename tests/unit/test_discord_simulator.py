"""The simulated Discord is an honest judge: it refuses what the platform refuses, and keeps its own truth."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import zlib
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any

import aiohttp
import discord
import pytest
from aiohttp import ClientSession

from tests.simulators.discord.faults import FILE
from tests.simulators.discord.pair import Listener, aim, connected, platform
from tests.simulators.discord.simulator import NASTY, Channel, DiscordServer
from tests.worlds.fakes import FakeClock

GUILDS, GUILD_MESSAGES, PRIVATE_MESSAGES, CONTENT = 1, 1 << 9, 1 << 12, 1 << 15
BARE = GUILDS | GUILD_MESSAGES | PRIVATE_MESSAGES
HEARD = BARE | CONTENT
EPHEMERAL = 64

Act = Callable[[DiscordServer, Channel], Awaitable[Any]]
Lever = Callable[[DiscordServer, Channel], Any]


def button(id: str = "yes", label: str = "Yes", **more: Any) -> dict[str, Any]:
    return {"type": 2, "style": 1, "custom_id": id, "label": label, **more}


def row(*buttons: dict[str, Any]) -> dict[str, Any]:
    return {"type": 1, "components": list(buttons)}


def where(server: DiscordServer) -> Channel:
    return next(each for each in server.places.channels.values() if each.kind == 0)


async def call(
    server: DiscordServer, verb: str, path: str, body: Any = None, *, token: str | None = None
) -> tuple[int, Any, dict[str, str]]:
    """Without the library, which would not let everything through."""
    headers = {"Authorization": f"Bot {server.token if token is None else token}"}
    async with (
        ClientSession() as session,
        session.request(verb, server.api_url + path, json=body, headers=headers) as answer,
    ):
        data = await answer.read()
        is_json = answer.headers.get("Content-Type") == "application/json"
        return answer.status, json.loads(data) if is_json else data, dict(answer.headers)


async def send(server: DiscordServer, channel: Channel, text: str = "", **body: Any) -> tuple[int, Any]:
    status, answer, _ = await call(server, "POST", f"/channels/{channel.id}/messages", {"content": text, **body})
    return status, answer


async def register(server: DiscordServer, *names: str) -> None:
    commands = [{"name": name, "description": "Does something"} for name in names]
    assert (await call(server, "PUT", f"/applications/{server.bot.id}/commands", commands))[0] == 200


async def answer_to(server: DiscordServer, asked: dict[str, Any], body: dict[str, Any]) -> tuple[int, Any]:
    path = f"/interactions/{asked['id']}/{asked['token']}/callback?with_response=1"
    status, answer, _ = await call(server, "POST", path, body, token="")
    return status, answer.get("code")


async def follow(
    server: DiscordServer, asked: dict[str, Any], verb: str, body: Any = None, message: str = ""
) -> tuple[int, Any]:
    path = f"/webhooks/{server.bot.id}/{asked['token']}" + (f"/messages/{message}" if message else "")
    status, answer, _ = await call(server, verb, path, body, token="")
    return status, answer


class Socket:
    """A gateway client that shows every frame."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, unpacks: bool) -> None:
        self._socket = socket
        self._unpacker = zlib.decompressobj() if unpacks else None
        self.number = 0

    async def say(self, op: int, data: Any = None) -> None:
        await self._socket.send_json({"op": op, "d": data})

    async def identify(self, token: str, intents: int = HEARD, **more: Any) -> None:
        await self.say(2, {"token": token, "intents": intents, "properties": {}, **more})

    async def hear(self, name: str = "") -> Any:
        """The next frame, or the data of the next event of this name."""
        while True:
            message = await asyncio.wait_for(self._socket.receive(), 5)
            if message.type is aiohttp.WSMsgType.TEXT:
                frame = json.loads(message.data)
            elif message.type is aiohttp.WSMsgType.BINARY and self._unpacker is not None:
                frame = json.loads(self._unpacker.decompress(message.data))
            else:
                return {"closed": self._socket.close_code}
            self.number = frame.get("s") or self.number
            if not name:
                return frame
            if frame.get("t") == name:
                return frame["d"]

    async def close(self, code: int = 1000) -> None:
        await self._socket.close(code=code)


class Sockets:
    def __init__(self, server: DiscordServer) -> None:
        self._server = server
        self._session = ClientSession()

    async def __aenter__(self) -> Sockets:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def open(self, query: str = "?v=10&encoding=json") -> Socket:
        socket = Socket(await self._session.ws_connect(self._server.gateway_url + query), "zlib-stream" in query)
        assert (await socket.hear())["op"] == 10
        return socket

    async def ready(self, intents: int = HEARD, **more: Any) -> tuple[Socket, dict[str, Any]]:
        socket = await self.open()
        await socket.identify(self._server.token, intents, **more)
        return socket, await socket.hear("READY")


# The real client.


async def test_the_real_client_logs_in_and_sees_the_guild() -> None:
    async with platform() as (server, client):
        assert client.user is not None
        assert client.user.name == "tidings"
        assert [channel.name for channel in client.guilds[0].text_channels] == ["general"]
        assert (server.identifies(), server.attached()) == (1, 1)


async def test_a_message_comes_in_and_is_answered_edited_and_removed() -> None:
    async with platform() as (server, client):
        ada, general = server.person("ada"), where(server)
        said = ada.says(general, "hello", mention=True)
        message = await client.next("message")
        assert client.user in message.mentions
        assert (message.content, str(message.id)) == (f"<@{server.bot.id}> hello", said)
        answer = await message.reply("hi", mention_author=False)
        await answer.edit(content="hi there")
        posted = server.sent[0]
        assert (posted.text, posted.reply_to, posted.pings) == ("hi there", said, ())
        assert [edit.text for edit in posted.edits] == ["hi there"]
        await answer.delete()
        assert server.posts == []
        assert server.message(answer.id).deleted_at > 0


async def test_edits_and_deletions_by_people_are_told() -> None:
    async with platform() as (server, client):
        ada, general = server.person("ada"), where(server)
        said = [ada.says(general, text) for text in ("one", "two", "three")]
        ada.edits(said[0], "uno")
        ada.deletes(said[1])
        server.purge(general, said[2:])
        assert (await client.next("raw_message_edit")).data["content"] == "uno"
        assert str((await client.next("raw_message_delete")).message_id) == said[1]
        assert {str(id) for id in (await client.next("raw_bulk_message_delete")).message_ids} == {said[2]}


async def test_typing_and_reactions_are_seen_and_told() -> None:
    async with platform() as (server, client):
        ada, general = server.person("ada"), where(server)
        ada.says(general, "hello")
        message = await client.next("message")
        await message.channel.typing()
        assert server.is_typing(general)
        await message.add_reaction("👀")
        assert server.reactions == {str(message.id): ["👀"]}
        await message.remove_reaction("👀", client.user)
        assert server.reactions == {}
        ada.reacts(message.id, "👍")
        ada.types(general)
        await client.until(lambda: [str(each.emoji) for each in client.all("raw_reaction_add")][-1:] == ["👍"])
        await client.until(lambda: [str(each.user_id) for each in client.all("raw_typing")][-1:] == [ada.id])


async def test_a_thread_has_its_messages_id_and_is_made_once() -> None:
    async with platform() as (server, client):
        ada, general = server.person("ada"), where(server)
        said = ada.says(general, "let us talk")
        message = await client.next("message")
        thread = await message.create_thread(name="talk")
        assert str(thread.id) == said
        await thread.send("here")
        assert (server.posts_in(said), server.posts_in(general)) == (["here"], [])
        ada.says(said, "inside")
        await client.until(lambda: "inside" in client.texts)
        heard = client.all("message")[-1]
        assert (heard.channel.id, heard.channel.parent_id) == (thread.id, int(general.id))
        with pytest.raises(discord.HTTPException) as refusal:
            await message.create_thread(name="again")
        assert (refusal.value.status, refusal.value.code) == (400, 160004)
        private = ada.says(ada.private(), "no threads here")
        status, answer, _ = await call(
            server, "POST", f"/channels/{ada.private().id}/messages/{private}/threads", {"name": "x"}
        )
        assert (status, answer["code"]) == (400, 50024)


async def test_a_private_message_needs_no_guild_and_may_be_the_first() -> None:
    async with platform() as (server, client):
        ada, bob = server.person("ada"), server.person("bob")
        ada.says(ada.private(), "psst")
        message = await client.next("message")
        assert message.guild is None
        await message.channel.send("yes?")
        user = await client.fetch_user(int(bob.id))
        await user.send("good morning")
        assert (server.posts_in(ada.private()), server.posts_in(bob.private())) == (["yes?"], ["good morning"])
        bob.blocks()
        with pytest.raises(discord.Forbidden) as refusal:
            await user.send("still there?")
        assert refusal.value.code == 50007


async def test_what_was_said_while_nobody_listened_is_in_the_history_alone() -> None:
    async with DiscordServer() as server:
        ada, general = server.person("ada"), server.channel("general")
        first = ada.says(general, "before")
        for number in range(130):
            ada.says(general, f"line {number}")
        async with connected(server) as client:
            channel = client.get_channel(int(general.id))
            assert isinstance(channel, discord.TextChannel)
            assert str(channel.last_message_id) == general.last_message
            after = discord.Object(int(first))
            found = [message.content async for message in channel.history(after=after, limit=None, oldest_first=True)]
            assert found == [f"line {number}" for number in range(130)]
            assert client.texts == []
        assert len(server.calls("history")) == 2
        _, page, _ = await call(server, "GET", f"/channels/{general.id}/messages?after={first}&limit=3")
        assert [each["content"] for each in page] == ["line 2", "line 1", "line 0"]


async def test_a_command_is_deferred_and_answered_by_editing_the_original() -> None:
    async with platform() as (server, client):
        ada, general = server.person("ada"), where(server)

        @client.tree.command(name="new", description="Begins anew")
        async def new(interaction: discord.Interaction) -> None:
            await interaction.response.defer(thinking=True, ephemeral=True)

        await client.tree.sync()
        assert server.commands() == ["new"]
        with pytest.raises(LookupError, match="offers no command"):
            ada.commands("/old", general)
        id = ada.commands("/new", general)
        await server.until(lambda _: server.interaction(id).answer == "thinking")
        assert server.posts == []
        interaction = client.all("interaction")[0]
        await interaction.edit_original_response(content="A new beginning.")
        await interaction.followup.send("And more.")
        first, second = server.sent
        assert (first.text, first.only_for, first.edits) == ("A new beginning.", ada.id, ())
        assert (second.text, second.only_for) == ("And more.", "")
        assert server.interaction(id).is_ephemeral
        # Nobody else finds what was for one person.
        status, page, _ = await call(server, "GET", f"/channels/{general.id}/messages")
        assert [each["content"] for each in page] == ["And more."]
        assert (await call(server, "GET", f"/channels/{general.id}/messages/{first.id}"))[0] == 404


async def test_the_first_follow_up_fills_the_message_that_was_thinking() -> None:
    async with DiscordServer() as server, Sockets(server) as sockets:
        general, ada = server.channel(), server.person("ada")
        await register(server, "ask")
        socket, _ = await sockets.ready()
        ada.commands("ask", general)
        asked = await socket.hear("INTERACTION_CREATE")
        assert await answer_to(server, asked, {"type": 5, "data": {"flags": EPHEMERAL}}) == (200, None)
        status, message = await follow(server, asked, "POST", {"content": "secret"})
        assert (status, message["flags"] & EPHEMERAL) == (200, EPHEMERAL)
        assert [each.only_for for each in server.sent] == [ada.id]


async def test_a_button_is_pressed_and_its_message_changes() -> None:
    async with platform() as (server, client):
        ada, general = server.person("ada"), where(server)

        class Choice(discord.ui.View):
            @discord.ui.button(label="Yes", custom_id="yes")
            async def yes(self, interaction: discord.Interaction, _: Any) -> None:
                await interaction.response.edit_message(content="You said yes.", view=None)

        client.add_view(Choice(timeout=None))
        channel = client.get_channel(int(general.id))
        assert isinstance(channel, discord.TextChannel)
        message = await channel.send("Well?", view=Choice(timeout=None))
        assert [each.id for each in server.sent[0].choices] == ["yes"]
        id = ada.presses(message.id, "yes")
        await server.until(lambda _: server.posts == ["You said yes."])
        assert server.interaction(id).answer == "update"
        with pytest.raises(LookupError, match="no button"):
            ada.presses(message.id, "yes")


async def test_files_come_and_go() -> None:
    async with platform() as (server, client):
        ada, general = server.person("ada"), where(server)
        ada.says(general, "look", files=[("notes.txt", b"words")])
        ada.says(general, voice=b"OggS...")
        written, spoken = await client.next("message"), await client.next("message", 2)
        assert await written.attachments[0].read() == b"words"
        assert spoken.flags.voice
        assert spoken.attachments[0].is_voice_message()
        await written.reply(
            "both", files=[discord.File(io.BytesIO(b"a"), "a.txt"), discord.File(io.BytesIO(b"b"), "b c")]
        )
        assert [(file.name, file.data) for file in server.sent[0].files] == [("a.txt", b"a"), ("b_c", b"b")]
        server.fail_next(503, method=FILE)
        with pytest.raises(discord.HTTPException):
            await written.attachments[0].read()


async def test_the_address_of_a_file_ends_after_a_day() -> None:
    clock = FakeClock()
    async with DiscordServer(clock=clock) as server, ClientSession() as session:
        general = server.channel()
        server.person("ada").says(general, "look", files=[("notes.txt", b"words")])
        _, page, _ = await call(server, "GET", f"/channels/{general.id}/messages")
        url = page[0]["attachments"][0]["url"]
        async with session.get(url) as answer:
            assert await answer.read() == b"words"
        async with session.get(url.replace("hm=", "hm=0")) as answer:
            assert answer.status == 404
        await clock.advance(24 * 3600)
        async with session.get(url) as answer:
            assert answer.status == 404


# Coming back.


@pytest.mark.parametrize(
    "break_off",
    [
        lambda server: server.ask_to_reconnect(),
        lambda server: server.invalidate(resumable=True),
        lambda server: server.close_gateway(4000),
        lambda server: server.close_gateway(1011),
        lambda server: server.abort_gateway(),
        lambda server: server.mute_gateway(),
    ],
    ids=["reconnect", "resumable", "4000", "1011", "abort", "silence"],
)
async def test_who_comes_back_is_told_what_was_missed(
    break_off: Callable[[DiscordServer], None], request: pytest.FixtureRequest
) -> None:
    # Silence is noticed by its length alone.
    hearts = (0.3, 1.0) if request.node.callspec.id == "silence" else (41.25, 60.0)
    async with DiscordServer(heartbeat_interval=hearts[0]) as server:
        ada, general = server.person("ada"), server.channel()
        async with connected(server, heartbeat_timeout=hearts[1]) as client:
            ada.says(general, "before")
            await client.next("message")
            break_off(server)
            await asyncio.sleep(0)
            for text in ("one", "two", "three"):
                ada.says(general, text)
            await client.next("resumed")
            assert client.texts == ["before", "one", "two", "three"]
            assert server.resumes() >= 1
            assert server.identifies() == 1


async def test_an_invalid_session_loses_the_gap_and_the_history_has_it() -> None:
    async with platform() as (server, client):
        ada, general = server.person("ada"), where(server)
        server.invalidate()
        await server.until(lambda _: not server.attached())
        ada.says(general, "into the gap")
        await client.next("ready", 2)
        ada.says(general, "afterwards")
        await client.until(lambda: client.texts)
        assert client.texts == ["afterwards"]
        channel = client.get_channel(int(general.id))
        assert isinstance(channel, discord.TextChannel)
        assert [message.content async for message in channel.history()] == ["afterwards", "into the gap"]
        assert server.identifies() == 2


async def test_a_session_ends_by_goodbye_by_oblivion_and_by_age() -> None:
    clock = FakeClock()
    async with DiscordServer(clock=clock, resume_seconds=180) as server, Sockets(server) as sockets:
        server.channel()

        async def left_with(code: int, seconds: float = 0.0, forgotten: bool = False) -> Any:
            socket, ready = await sockets.ready()
            assert ready["resume_gateway_url"].startswith(f"ws://{server.address}/")
            await socket.close(code)
            await server.until(lambda _: not server.attached())
            await clock.advance(seconds)
            if forgotten:
                server.forget_sessions()
            back = await sockets.open()
            resume = {"token": server.token, "session_id": ready["session_id"], "seq": 1}
            await back.say(6, resume)
            return await back.hear()

        assert (await left_with(4000))["t"] == "GUILD_CREATE"
        assert (await left_with(4000, seconds=179))["t"] == "GUILD_CREATE"
        for frame in (await left_with(1000), await left_with(4000, seconds=181), await left_with(4000, forgotten=True)):
            assert (frame["op"], frame["d"]) == (9, False)


async def test_two_clients_of_one_token_both_hear_everything() -> None:
    async with DiscordServer() as server:
        ada, general = server.person("ada"), server.channel()
        async with connected(server) as one, connected(server) as other:
            ada.says(general, "hello")
            await one.next("message")
            await other.next("message")
            server.redeliver(general.last_message)
            await one.next("message", 2)
            assert one.texts == ["hello", "hello"]


async def test_shards_share_the_guilds_and_the_first_hears_private_things() -> None:
    async with DiscordServer() as server, Sockets(server) as sockets:
        ada = server.person("ada")
        guilds = [server.guild(f"guild {number}") for number in range(2)]
        for number, guild in enumerate(guilds):
            guild.id = str((int(guild.id) >> 22 << 1 | number) << 22)
            server.places.guilds = {each.id: each for each in server.places.guilds.values()}
        channels = [server.channel(guild=guild) for guild in guilds]
        for number in range(2):
            socket, ready = await sockets.ready(shard=[number, 2])
            assert [each["id"] for each in ready["guilds"]] == [guilds[number].id]
            ada.says(channels[0], "in 0")
            ada.says(ada.private(), "in private")
            ada.says(channels[1], "in 1")
            expected = ["in 0", "in private"] if number == 0 else ["in 1"]
            assert [(await socket.hear("MESSAGE_CREATE"))["content"] for _ in expected] == expected


# Sockets.


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"op": 2, "d": {"token": "wrong", "intents": 1, "properties": {}}}, 4004),
        ({"op": 2, "d": {"token": "T", "intents": 1 << 30, "properties": {}}}, 4013),
        ({"op": 2, "d": {"token": "T", "intents": CONTENT, "properties": {}}}, 4014),
        ({"op": 2, "d": {"token": "T", "properties": {}}}, 4002),
        ({"op": 2, "d": {"token": "T", "intents": 1, "properties": {}, "shard": [2, 2]}}, 4010),
        ({"op": 6, "d": {"token": "wrong", "session_id": "x", "seq": 1}}, 4004),
        ({"op": 3, "d": {}}, 4003),
        ({"op": 1, "d": "x" * 5000}, 4002),
        ({"d": 1}, 4002),
    ],
)
async def test_a_wrong_frame_closes_the_socket(frame: dict[str, Any], code: int) -> None:
    async with DiscordServer(token="T", intents=("members",)) as server, Sockets(server) as sockets:
        socket = await sockets.open()
        await socket._socket.send_json(frame)
        assert await socket.hear() == {"closed": code}


async def test_a_socket_asks_for_order() -> None:
    async with DiscordServer() as server, Sockets(server) as sockets:
        socket, ready = await sockets.ready()
        await socket.say(99)
        assert await socket.hear() == {"closed": 4001}
        twice, _ = await sockets.ready()
        await twice.identify(server.token)
        assert await twice.hear() == {"closed": 4005}
        ahead = await sockets.open()
        await ahead.say(6, {"token": server.token, "session_id": ready["session_id"], "seq": 99})
        assert await ahead.hear() == {"closed": 4007}


async def test_frames_are_packed_for_who_asks() -> None:
    async with DiscordServer() as server, Sockets(server) as sockets:
        general = server.channel()
        socket = await sockets.open("?v=10&encoding=json&compress=zlib-stream")
        await socket.identify(server.token)
        assert (await socket.hear("GUILD_CREATE"))["channels"][0]["id"] == general.id


async def test_hearts_beat_until_nobody_acknowledges() -> None:
    async with DiscordServer(heartbeat_interval=0.4) as server, Sockets(server) as sockets:
        socket, _ = await sockets.ready()
        await socket.say(1, 1)
        assert (await socket.hear())["op"] == 11
        assert server.sessions()[0].known == 1
        server.ask_heartbeat()
        assert (await socket.hear())["op"] == 1
        server.stop_acking()
        await socket.say(1, 1)
        # Who says nothing for long is thought to be gone, with its session.
        assert await socket.hear() == {"closed": 4009}
        assert server.sessions() == []


async def test_too_many_identifies_cost_the_token() -> None:
    async with DiscordServer(identify_limit=2) as server, Sockets(server) as sockets:
        old = server.token
        for _ in range(2):
            await sockets.ready()
        _, about, _ = await call(server, "GET", "/gateway/bot")
        assert about["session_start_limit"]["remaining"] == 0
        assert about["url"] == server.gateway_url
        socket = await sockets.open()
        await socket.identify(old)
        assert await socket.hear() == {"closed": 4004}
        assert (await call(server, "GET", "/users/@me", token=old))[0] == 401
        assert server.sessions() == []


async def test_sessions_may_have_to_be_apart() -> None:
    async with DiscordServer(identify_pause=5.0, clock=FakeClock()) as server, Sockets(server) as sockets:
        await sockets.ready()
        socket = await sockets.open()
        await socket.identify(server.token)
        assert (await socket.hear())["op"] == 9


@pytest.mark.parametrize("intents", [(), ("message_content",)])
async def test_without_the_intent_only_what_concerns_the_bot_can_be_read(intents: tuple[str, ...]) -> None:
    async with DiscordServer(intents=intents) as server, Sockets(server) as sockets:
        ada, general = server.person("ada"), server.channel()
        socket, _ = await sockets.ready(HEARD if intents else BARE)
        ada.says(general, "aside", files=[("a.txt", b"a")])
        ada.says(general, "to you", mention=True)
        ada.says(ada.private(), "in private")
        await send(server, general, "my own")
        heard = [await socket.hear("MESSAGE_CREATE") for _ in range(4)]
        assert [bool(each["content"]) for each in heard] == [bool(intents), True, True, True]
        assert len(heard[0]["attachments"]) == len(intents)
        assert ("guild_id" in heard[1], "guild_id" in heard[2]) == (True, False)
        _, page, _ = await call(server, "GET", f"/channels/{general.id}/messages")
        assert [bool(each["content"]) for each in page] == [True, True, bool(intents)]


async def test_only_what_was_asked_for_is_told() -> None:
    async with DiscordServer() as server, Sockets(server) as sockets:
        ada, general = server.person("ada"), server.channel()
        socket, _ = await sockets.ready(PRIVATE_MESSAGES | CONTENT)
        ada.says(general, "in the guild")
        ada.types(general)
        ada.says(ada.private(), "in private")
        assert (await socket.hear())["d"]["content"] == "in private"


async def test_the_permanent_refusals_reach_the_real_client() -> None:
    async with DiscordServer(intents=()) as server:
        with pytest.raises(discord.PrivilegedIntentsRequired):
            async with connected(server):
                raise AssertionError("let in")
        server.revoke()
        aim(server)
        client = Listener()
        with pytest.raises(discord.LoginFailure):
            await client.login("simulated.discord.token")
        await client.close()


async def test_a_malformed_event_ends_the_real_client_that_still_seems_ready() -> None:
    async with DiscordServer() as server:
        server.channel()
        aim(server)
        client = Listener()
        task = asyncio.create_task(client.start(server.token))
        await client.next("ready")
        server.odd("TYPING_START", {"channel_id": "1"})
        with pytest.raises(KeyError):
            await asyncio.wait_for(task, 5)
        assert client.is_ready()
        await client.close()


# What is refused, and with which code.


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"content": "x" * 2000}, 200, None),
        ({"content": "x" * 2001}, 400, 50035),
        ({"content": ""}, 400, 50006),
        ({"content": " \n "}, 400, 50006),
        ({"content": 7}, 400, 50035),
        ({"content": "x", "nonce": "n" * 26}, 400, 50035),
        ({"embeds": [{"description": "x" * 4096}]}, 200, None),
        ({"embeds": [{"description": "x" * 4097}]}, 400, 50035),
        ({"embeds": [{"description": "x" * 3001}] * 2}, 400, 50035),
        ({"embeds": [{"title": "x"}] * 11}, 400, 50035),
        ({"embeds": [{"fields": [{"name": "x"}]}]}, 400, 50035),
        ({"content": "x", "components": [row(button("a"), button("b"))]}, 200, None),
        ({"content": "x", "components": [row(button("a"), button("a"))]}, 400, 50035),
        ({"content": "x", "components": [row(button("i" * 101))]}, 400, 50035),
        ({"content": "x", "components": [row(button(label="l" * 81))]}, 400, 50035),
        ({"content": "x", "components": [row(button(style=5))]}, 400, 50035),
        ({"content": "x", "components": [row(*(button(str(n)) for n in range(6)))]}, 400, 50035),
        ({"content": "x", "components": [button()]}, 400, 50035),
        ({"components": [{"type": 10, "content": "x" * 4000}], "flags": 1 << 15}, 200, None),
        ({"components": [{"type": 10, "content": "x" * 4001}], "flags": 1 << 15}, 400, 50035),
        ({"components": [{"type": 14}] * 41, "flags": 1 << 15}, 400, 50035),
        ({"content": "x", "components": [{"type": 10, "content": "x"}], "flags": 1 << 15}, 400, 50035),
        ({"components": [{"type": 10, "content": "x"}]}, 400, 50035),
        ({"content": "x", "message_reference": {"message_id": "1"}}, 400, 50035),
        ({"content": "x", "message_reference": {"message_id": "1", "fail_if_not_exists": False}}, 200, None),
        ({"content": "x", "allowed_mentions": {"parse": ["users"], "users": ["1"]}}, 400, 50035),
        ({"content": "x", "attachments": [{"id": 0}]}, 400, 50035),
        ({"flags": 1 << 13}, 400, 50160),
        ([], 400, 50035),
    ],
)
async def test_a_message_must_fit(body: Any, status: int, code: int | None) -> None:
    async with DiscordServer() as server:
        general = server.channel()
        told, answer, headers = await call(server, "POST", f"/channels/{general.id}/messages", body)
        assert (told, answer.get("code")) == (status, code)
        assert headers["Content-Type"] == "application/json"
        assert len(server.sent) == (status == 200)


async def test_a_bad_form_names_its_field() -> None:
    async with DiscordServer() as server:
        _, answer = await send(server, server.channel(), "x" * 2001)
        assert answer["errors"]["content"]["_errors"][0]["code"] == "BASE_TYPE_MAX_LENGTH"
        _, answer = await send(server, server.channel(), "x", embeds=[{"title": "x" * 257}])
        assert "_errors" in answer["errors"]["embeds"]["0"]["title"]


def post(text: str = "x", **body: Any) -> Act:
    async def act(server: DiscordServer, channel: Channel) -> tuple[int, Any]:
        return await send(server, channel, text, **body)

    return act


def ask(verb: str, path: str, body: Any = None) -> Act:
    """`{c}` is the channel, `{m}` a person's message in it and `{o}` one of our own."""

    async def act(server: DiscordServer, channel: Channel) -> tuple[int, Any]:
        theirs = [each.id for each in server.truth.messages.values() if not each.account]
        own = [each.id for each in server.sent]
        where = path.format(c=channel.id, m=[*theirs, "1"][0], o=[*own, "1"][0], g=channel.guild)
        status, answer, _ = await call(server, verb, where, body)
        return status, answer

    return act


def nothing(server: DiscordServer, channel: Channel) -> None:
    """All is well."""


def takes(*names: str) -> Lever:
    return lambda server, channel: server.forbid(channel, *names)


@pytest.mark.parametrize(
    ("lever", "act", "status", "code"),
    [
        (takes("send_messages"), post(), 403, 50013),
        (takes("view_channel"), post(), 403, 50001),
        (takes("view_channel"), ask("GET", "/channels/{c}"), 403, 50001),
        (takes("add_reactions"), ask("PUT", "/channels/{c}/messages/{m}/reactions/%F0%9F%91%80/@me"), 403, 50013),
        (takes("create_public_threads"), ask("POST", "/channels/{c}/messages/{m}/threads", {"name": "x"}), 403, 50013),
        (takes("embed_links"), post(embeds=[{"title": "x"}]), 403, 50013),
        (takes("read_message_history"), ask("GET", "/channels/{c}/messages/{m}"), 403, 50013),
        (lambda server, channel: server.remove_bot(server.places.guilds[channel.guild]), post(), 403, 50001),
        (lambda server, channel: server.remove_channel(channel), post(), 404, 10003),
        (lambda server, channel: server.remove_channel(channel), ask("POST", "/channels/{c}/typing"), 404, 10003),
        (nothing, ask("GET", "/channels/1"), 404, 10003),
        (nothing, ask("GET", "/channels/general"), 400, 50035),
        (nothing, ask("GET", "/channels/{c}/messages/1"), 404, 10008),
        (nothing, ask("PATCH", "/channels/{c}/messages/1", {"content": "x"}), 404, 10008),
        (nothing, ask("PATCH", "/channels/{c}/messages/{m}", {"content": "x"}), 403, 50005),
        (nothing, ask("PATCH", "/channels/{c}/messages/{o}", {"content": "x" * 2001}), 400, 50035),
        (nothing, ask("PATCH", "/channels/{c}/messages/{o}", {"content": ""}), 400, 50006),
        (nothing, ask("DELETE", "/channels/{c}/messages/{m}"), 403, 50013),
        (nothing, ask("PUT", "/channels/{c}/messages/{m}/reactions/hello/@me"), 400, 10014),
        (nothing, ask("GET", "/channels/{c}/messages?limit=101"), 400, 50035),
        (nothing, ask("POST", "/users/@me/channels", {"recipient_id": "1"}), 400, 50033),
        (nothing, ask("GET", "/users/1"), 404, 10013),
        (nothing, ask("GET", "/guilds/1"), 404, 10004),
        (nothing, ask("POST", "/channels/{c}/threads", {"name": "x" * 101, "type": 11}), 400, 50035),
        (nothing, ask("POST", "/channels/{c}/threads", {"name": "x", "auto_archive_duration": 5}), 400, 50035),
        (nothing, ask("POST", "/channels/{c}/pins"), 501, 0),
    ],
)
async def test_what_may_not_be_done_is_refused(lever: Lever, act: Act, status: int, code: int) -> None:
    async with DiscordServer() as server:
        general = server.channel()
        server.person("ada").says(general, "hello")
        await send(server, general, "mine")
        lever(server, general)
        told, answer = await act(server, general)
        assert (told, answer["code"]) == (status, code)
        assert (server.calls()[-1].status, server.calls()[-1].code) == (status, code)


async def test_who_may_not_read_the_past_sees_none_and_cannot_reply() -> None:
    async with DiscordServer() as server:
        general = server.channel()
        said = server.person("ada").says(general, "hello")
        server.forbid(general, "read_message_history")
        assert (await call(server, "GET", f"/channels/{general.id}/messages"))[:2] == (200, [])
        status, answer = await send(server, general, "x", message_reference={"message_id": said})
        assert (status, answer["code"]) == (400, 160002)
        server.permit(general, "read_message_history")
        assert (await send(server, general, "x", message_reference={"message_id": said}))[0] == 200


async def test_an_archived_thread_opens_for_a_message_unless_it_is_locked() -> None:
    async with DiscordServer() as server:
        general, ada = server.channel(), server.person("ada")
        thread = ada.opens_thread(ada.says(general, "hello"), "talk")
        status, message = await send(server, thread, "first")
        server.archive(thread)
        edit = f"/channels/{thread.id}/messages/{message['id']}"
        assert (await call(server, "PATCH", edit, {"content": "x"}))[1]["code"] == 50083
        _, listed, _ = await call(server, "GET", f"/channels/{general.id}/threads/archived/public")
        assert [each["id"] for each in listed["threads"]] == [thread.id]
        assert (await send(server, thread, "second"))[0] == 200
        assert not thread.is_archived
        server.archive(thread, locked=True)
        status, answer = await send(server, thread, "third")
        assert (status, answer["code"]) == (400, 50083)
        server.remove_channel(thread)
        assert (await send(server, thread, "fourth"))[1]["code"] == 10003
        assert server.posts_in(general) == []


async def test_a_wrong_token_is_told_so_everywhere() -> None:
    async with DiscordServer() as server:
        for path in ("/users/@me", "/applications/@me", "/gateway/bot", f"/channels/{server.channel().id}"):
            status, answer, _ = await call(server, "GET", path, token="wrong")
            assert (status, answer) == (401, {"message": "401: Unauthorized", "code": 0})
        assert (await call(server, "GET", "/gateway", token="wrong"))[1] == {"url": server.gateway_url}


# Whom a message rings.


@pytest.mark.parametrize(
    ("allowed", "rings"),
    [
        (None, ["ada", "role", "@everyone", "bob"]),
        ({"parse": []}, []),
        ({"parse": [], "replied_user": True}, ["bob"]),
        ({"parse": ["users"]}, ["ada"]),
        ({"parse": ["roles"]}, ["role"]),
        ({"parse": ["everyone"]}, ["@everyone"]),
        ({"parse": [], "users": ["ada"]}, ["ada"]),
        ({"parse": [], "users": ["carl"], "roles": ["role"]}, ["role"]),
    ],
)
async def test_a_message_rings_whom_it_may(allowed: dict[str, Any] | None, rings: list[str]) -> None:
    async with DiscordServer() as server:
        general = server.channel()
        guild = server.places.guilds[general.guild]
        people = {name: server.person(name) for name in ("ada", "bob", "carl")}
        role = server.role("crew", guild, people["ada"].id)
        ids = {name: person.id for name, person in people.items()} | {"role": role, "@everyone": "@everyone"}
        body: dict[str, Any] = {"message_reference": {"message_id": people["bob"].says(general, "who is there?")}}
        if allowed is not None:
            named = {kind: [ids[name] for name in allowed[kind]] for kind in ("users", "roles") if kind in allowed}
            body["allowed_mentions"] = allowed | named
        text = f"@everyone <@{ids['ada']}> <@!{ids['ada']}> <@&{role}>"
        _, message = await send(server, general, text, **body)
        shown = {ping for ping, _ in server.pings}
        assert shown == {f"&{role}" if name == "role" else ids[name] for name in rings}
        assert {each["id"] for each in message["mentions"]} == {ids[name] for name in rings if name in people}
        # An edit rings nobody.
        before = server.pings
        await call(server, "PATCH", f"/channels/{general.id}/messages/{message['id']}", {"content": text + "!"})
        assert server.pings == before


async def test_others_who_speak_are_told_apart() -> None:
    async with platform() as (server, client):
        general = where(server)
        server.person("robot", bot=True).says(general, "beep")
        server.webhook("ci").says(general, "built")
        other = server.add_bot("other", "other-token", "sibling")
        server.invite(server.places.guilds[general.guild], account="other")
        robot, hook = await client.next("message"), await client.next("message", 2)
        assert (robot.author.bot, robot.webhook_id) == (True, None)
        assert (hook.author.bot, hook.webhook_id is not None) == (True, True)
        path = f"/channels/{general.id}/messages"
        await call(server, "POST", path, {"content": "hello sibling"}, token=other.token)
        sibling = await client.next("message", 3)
        assert (str(sibling.author.id), sibling.author.bot) == (other.id, True)
        assert [message.account for message in server.sent] == ["other"]


# Nonces.


async def test_a_nonce_is_remembered_for_a_while() -> None:
    clock = FakeClock()
    async with DiscordServer(clock=clock, nonce_seconds=180) as server, Sockets(server) as sockets:
        general = server.channel()
        socket, _ = await sockets.ready()
        nonce = {"nonce": "key-1", "enforce_nonce": True}
        _, first = await send(server, general, "once", **nonce)
        await clock.advance(179)
        _, second = await send(server, general, "once", **nonce)
        assert first["id"] == second["id"]
        assert server.posts == ["once"]
        assert (await socket.hear("MESSAGE_CREATE"))["nonce"] == "key-1"
        await send(server, general, "unforced", nonce="key-1")
        await clock.advance(181)
        _, third = await send(server, general, "once", **nonce)
        assert third["id"] != first["id"]
        assert server.posts == ["once", "unforced", "once"]


async def test_a_doubtful_send_is_repeated_safely_with_its_nonce() -> None:
    async with platform() as (server, client):
        channel = client.get_channel(int(where(server).id))
        assert isinstance(channel, discord.TextChannel)
        server.drop_next(after_effect=True, method="send")
        with pytest.raises(aiohttp.ClientError):
            await channel.send("hello", nonce="key-1")
        assert server.posts == ["hello"]
        message = await channel.send("hello", nonce="key-1")
        assert [each.id for each in server.sent] == [str(message.id)]
        assert [each.verdict for each in server.calls("send")] == ["lost after", "ok"]


# How often.


async def test_a_bucket_is_counted_for_each_channel() -> None:
    clock = FakeClock()
    async with DiscordServer(clock=clock) as server:
        general, other = server.channel("general"), server.channel("other")
        server.limit_rate("send", 2, 5.0)
        path = f"/channels/{general.id}/messages"
        answers = [await call(server, "POST", path, {"content": "x"}) for _ in range(3)]
        assert [(status, headers["X-RateLimit-Remaining"]) for status, _, headers in answers] == [
            (200, "1"),
            (200, "0"),
            (429, "0"),
        ]
        status, refusal, headers = answers[2]
        assert refusal == {"message": "You are being rate limited.", "retry_after": 5.0, "global": False}
        assert (headers["X-RateLimit-Reset-After"], headers["Retry-After"]) == ("5.000", "5")
        assert "Via" in headers
        assert (await send(server, other, "x"))[0] == 200
        await clock.advance(5)
        assert (await send(server, general, "x"))[0] == 200


async def test_the_real_client_waits_for_the_bucket() -> None:
    async with platform() as (server, client):
        channel = client.get_channel(int(where(server).id))
        assert isinstance(channel, discord.TextChannel)
        server.limit_rate("send", 2, 0.3)
        await asyncio.gather(*(channel.send(str(number)) for number in range(5)))
        assert sorted(server.posts) == ["0", "1", "2", "3", "4"]
        server.limit_rates(False)
        server.limit_all(2)
        await asyncio.gather(*(channel.send(str(number)) for number in range(3)))
        assert any(call.status == 429 for call in server.calls("send"))
        assert len(server.posts) == 8


async def test_the_real_client_obeys_a_told_limit_and_gives_up_at_the_edges() -> None:
    async with DiscordServer() as server:
        general = server.channel()
        async with connected(server, max_ratelimit_timeout=30.0) as client:
            channel = client.get_channel(int(general.id))
            assert isinstance(channel, discord.TextChannel)
            server.fail_next(429, retry_after=0.05)
            await channel.send("after a pause")
            server.fail_next(429, retry_after=31)
            with pytest.raises(discord.RateLimited) as limited:
                await channel.send("never")
            assert limited.value.retry_after == 31
            server.fail_next(429, via=False)
            with pytest.raises(discord.HTTPException) as banned:
                await channel.send("never")
            assert (banned.value.status, banned.value.text) == (429, "error code: 1015")
        assert server.posts == ["after a pause"]


async def test_who_is_refused_too_often_is_shut_out() -> None:
    clock = FakeClock()
    async with DiscordServer(clock=clock, invalid_limit=3) as server:
        for _ in range(3):
            await call(server, "GET", "/users/@me", token="wrong")
        status, page, headers = await call(server, "GET", "/users/@me")
        assert (status, page, "Via" in headers) == (429, b"error code: 1015", False)
        await clock.advance(601)
        assert (await call(server, "GET", "/users/@me"))[0] == 200


# What goes wrong.


async def test_the_real_client_repeats_a_502_with_its_nonce_and_never_a_503() -> None:
    async with platform() as (server, client):
        channel = client.get_channel(int(where(server).id))
        assert isinstance(channel, discord.TextChannel)
        server.fail_next(502, method="send", after_effect=True)
        await channel.send("once")
        assert [each.verdict for each in server.calls("send")] == ["ok, told 502", "ok"]
        assert server.posts == ["once"]
        server.fail_next(503)
        with pytest.raises(discord.DiscordServerError):
            await channel.send("never")
        server.drop_next(after_effect=False)
        with pytest.raises(aiohttp.ClientError):
            await channel.send("lost")
        assert server.posts == ["once"]


@pytest.mark.parametrize("status", [500, 502, 503, 504, 524])
@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_failure_befalls_the_calls_it_is_meant_for(status: int, after_effect: bool) -> None:
    async with DiscordServer() as server:
        general, other = server.channel("general"), server.channel("other")
        pattern = "POST /channels/*/messages"
        server.fail_next(status, method=pattern, channel=general, after_effect=after_effect, count=2)
        assert (await call(server, "POST", f"/channels/{general.id}/typing"))[0] == 204
        assert [(await send(server, place, "x"))[0] for place in (other, general, general, general)] == [
            200,
            status,
            status,
            200,
        ]
        assert len(server.posts_in(general)) == (3 if after_effect else 1)


async def test_answers_come_late_in_bits_in_halves_or_not_at_all() -> None:
    async with DiscordServer() as server:
        general = server.channel()
        gate = server.hold_next("send")
        task = asyncio.create_task(send(server, general, "held"))
        await server.until(lambda _: server.calls("send"))
        assert server.posts == []
        gate.set()
        assert (await task)[0] == 200
        server.delay_next(0.01)
        server.dribble_next(0.01)
        assert [(await send(server, general, "late"))[0] for _ in range(2)] == [200, 200]
        server.garble_next()
        with pytest.raises(ValueError, match="Unterminated|Expecting|Invalid"):
            await send(server, general, "garbled")
        server.truncate_next()
        with pytest.raises(aiohttp.ClientError):
            await send(server, general, "truncated")
        server.hang_next(after_effect=True)
        task = asyncio.create_task(send(server, general, "hung"))
        await server.until(lambda _: [call.verdict for call in server.calls()][-3:] == ["lost after"] * 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert server.posts == ["held", "late", "late", "garbled", "truncated", "hung"]


async def test_an_outage_refuses_everybody_until_it_ends() -> None:
    async with DiscordServer() as server, Sockets(server) as sockets:
        await sockets.ready()
        await server.outage(True)
        with pytest.raises(aiohttp.ClientConnectorError):
            await call(server, "GET", "/gateway")
        assert server.attached() == 0
        await server.outage(False)
        assert (await call(server, "GET", "/gateway"))[0] == 200
        assert len(server.sessions()) == 1
        server.refuse_gateway()
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await sockets.open()


async def test_a_seed_decides_the_same_each_time() -> None:
    async def run() -> list[str]:
        async with DiscordServer() as server:
            general = server.channel()
            server.schedule(7, NASTY.__class__(fail_before=0.3, fail_after=0.2, limit_told=0.1))
            for number in range(20):
                await send(server, general, str(number))
            return [call.verdict for call in server.calls()]

    first = await run()
    assert first == await run()
    assert len(set(first)) > 3


async def test_by_lot_events_come_twice_and_sockets_end() -> None:
    async with DiscordServer() as server, Sockets(server) as sockets:
        general, ada = server.channel(), server.person("ada")
        server.schedule(1, NASTY.__class__(duplicate=1.0))
        socket, _ = await sockets.ready()
        ada.says(general, "hello")
        assert [(await socket.hear("MESSAGE_CREATE"))["content"] for _ in range(2)] == ["hello", "hello"]
        server.schedule(1, NASTY.__class__(cut=1.0))
        ada.says(general, "goodbye")
        await server.until(lambda _: not server.attached())
        assert [name for _, name, _ in server.sessions()[0].log][-3:] == ["MESSAGE_CREATE"] * 3


# Interactions.


async def test_an_interaction_has_its_times_and_is_answered_once() -> None:
    clock = FakeClock()
    async with DiscordServer(clock=clock) as server, Sockets(server) as sockets:
        general, ada = server.channel(), server.person("ada")
        await register(server, "ask")
        socket, _ = await sockets.ready()

        async def asked() -> dict[str, Any]:
            ada.commands("/ask", general)
            told: dict[str, Any] = await socket.hear("INTERACTION_CREATE")
            return told

        late = await asked()
        await clock.advance(3.1)
        assert await answer_to(server, late, {"type": 5}) == (404, 10062)
        early = await asked()
        assert (await follow(server, early, "POST", {"content": "x"}))[1]["code"] == 10015
        assert await answer_to(server, early, {"type": 7, "data": {"content": "x"}}) == (400, 50035)
        assert await answer_to(server, early, {"type": 4, "data": {}}) == (400, 50006)
        assert await answer_to(server, early, {"type": 4, "data": {"content": "hi"}}) == (200, None)
        assert await answer_to(server, early, {"type": 5}) == (400, 40060)
        assert (await follow(server, early, "GET", message="@original"))[1]["content"] == "hi"
        _, second = await follow(server, early, "POST", {"content": "more"})
        assert (await follow(server, early, "PATCH", {"content": "less"}, second["id"]))[0] == 200
        assert (await follow(server, early, "DELETE", message="@original"))[0] == 204
        assert server.posts == ["less"]
        await clock.advance(900)
        assert (await follow(server, early, "PATCH", {"content": "x"}, second["id"]))[1]["code"] == 50027
        assert [each.answer for each in server.truth.interactions.values()] == ["", "message"]


async def test_who_brings_the_bot_along_gets_five_follow_ups() -> None:
    async with DiscordServer() as server, Sockets(server) as sockets:
        general, ada = server.channel(guild=server.guild("Elsewhere", accounts=())), server.person("ada")
        await register(server, "ask")
        socket, _ = await sockets.ready()
        with pytest.raises(LookupError, match="is not in"):
            ada.commands("ask", general)
        ada.commands("ask", general, user_installed=True)
        asked = await socket.hear("INTERACTION_CREATE")
        assert asked["authorizing_integration_owners"] == {"1": ada.id}
        await answer_to(server, asked, {"type": 4, "data": {"content": "hi"}})
        told = [await follow(server, asked, "POST", {"content": str(number)}) for number in range(6)]
        assert [status for status, _ in told] == [200] * 5 + [400]


async def test_a_press_may_be_taken_in_silence() -> None:
    async with DiscordServer() as server, Sockets(server) as sockets:
        general, ada = server.channel(), server.person("ada")
        await send(server, general, "Well?", components=[row(button("yes"), button("no"))])
        unheard = ada.presses(server.sent[0].id, "no")
        assert server.interaction(unheard).told == 0
        socket, _ = await sockets.ready()
        ada.presses(server.sent[0].id, "yes")
        asked = await socket.hear("INTERACTION_CREATE")
        assert (asked["data"]["custom_id"], asked["message"]["id"]) == ("yes", server.sent[0].id)
        assert await answer_to(server, asked, {"type": 6}) == (200, None)
        assert (await follow(server, asked, "PATCH", {"content": "Yes."}, "@original"))[0] == 200
        assert server.posts == ["Yes."]


async def test_commands_keep_their_ids_while_they_keep_their_names() -> None:
    async with DiscordServer() as server:
        guild = server.guild()
        await register(server, "new", "stop")
        path = f"/applications/{server.bot.id}/commands"
        _, before, _ = await call(server, "GET", path)
        await register(server, "stop", "help")
        _, after, _ = await call(server, "GET", path)
        assert [each["name"] for each in after] == ["stop", "help"]
        assert after[0]["id"] == before[1]["id"]
        own = f"/applications/{server.bot.id}/guilds/{guild.id}/commands"
        assert (await call(server, "POST", own, {"name": "here", "description": "x"}))[0] == 201
        assert (server.commands(guild.id), server.commands()) == (["here"], ["stop", "help"])
        for wrong in ({"name": "Loud", "description": "x"}, {"name": "x"}, {"name": "a b", "description": "x"}):
            assert (await call(server, "PUT", path, [wrong]))[1]["code"] == 50035
        assert len(server.calls("commands")) == 5


# The truth.


async def test_who_waits_in_vain_is_told_what_happened_instead() -> None:
    async with DiscordServer() as server:
        await send(server, server.channel(), "hello")
        with pytest.raises(TimeoutError, match="posts \\['hello'\\], last calls .*'send'"):
            await server.until(lambda _: False, timeout=0.01)


async def test_a_fault_of_the_simulator_is_not_hidden() -> None:
    async def break_it() -> None:
        async with DiscordServer() as server:
            await send(server, server.channel(), "x", embeds=["not an object"])

    with pytest.raises(AttributeError):
        await break_it()


async def test_a_guild_goes_and_comes_back() -> None:
    async with platform() as (server, client):
        guild = server.places.guilds[where(server).guild]
        server.guild_outage(guild)
        await client.next("guild_unavailable")
        server.guild_outage(guild, on=False)
        await client.next("guild_available", 2)
        server.remove_bot(guild)
        await client.next("guild_remove")
        server.invite(guild)
        await client.next("guild_join")
        server.remove_channel(where(server))
        await client.next("guild_channel_delete")


async def test_messages_are_known_by_the_time_of_their_ids() -> None:
    clock = FakeClock()
    async with DiscordServer(clock=clock) as server:
        general = server.channel()
        _, first = await send(server, general, "first")
        assert discord.utils.snowflake_time(int(first["id"])).timestamp() == clock.wall()
        server.skew = -60.0
        _, second = await send(server, general, "second")
        assert int(second["id"]) > int(first["id"])


async def test_answers_tell_the_platforms_own_time_until_somebody_hides_it() -> None:
    async with DiscordServer(clock=FakeClock(), skew=-3600.0) as server, aiohttp.ClientSession() as session:
        for told in (formatdate(server.clock.wall() - 3600.0, usegmt=True), ""):
            async with session.get(f"{server.api_url}/gateway") as response:
                assert response.headers["Date"] == told
            server.hide_date()


async def test_reactions_that_are_set_and_taken_back_share_a_bucket() -> None:
    clock = FakeClock()
    async with DiscordServer(clock=clock) as server:
        server.limit_rates()
        general = server.channel("general")
        rates = server.rates
        assert not rates.admit("main", "react", general.id).pause
        assert rates.admit("main", "unreact", general.id).pause > 0
        assert not rates.admit("main", "react", server.channel("other").id).pause
        await clock.advance(0.25)
        assert not rates.admit("main", "unreact", general.id).pause
        assert rates.admit("main", "react", general.id).pause > 0


async def test_it_can_live_in_a_process_of_its_own() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.simulators.discord.process", "--places", "2"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    about = json.loads(await process.stdout.readline())
    async with ClientSession() as session, session.get(f"{about['api_url']}/gateway") as answer:
        assert (await answer.json())["url"] == about["gateway_url"]
    process.stdin.write(b'{"say": "hello", "place": 1}\n{"tell": true}\n')
    told = json.loads(await process.stdout.readline())
    assert "hello" in told["said"][0][2]
    process.stdin.close()
    assert await process.wait() == 0
