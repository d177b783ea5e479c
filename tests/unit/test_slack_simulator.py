"""The simulated Slack is an honest judge: it refuses what the platform refuses, and keeps its own truth."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import ClientSession, web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.async_app import AsyncApp, AsyncAssistant
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient

from tests.simulators.slack.pair import app_for, client_for, connected
from tests.simulators.slack.simulator import NASTY, Channel, Message, Odds, Person, SlackServer, choices_of, text_of
from tests.worlds.fakes import FakeClock, settle

# Real time that a socket needs between two steps of a clock that stands still.
PATIENCE = 0.02
PROOF = {"event_type": "gw.delivery", "event_payload": {"k": "part-1", "i": 1, "n": 1}}
BUTTON = {"type": "button", "action_id": "choice", "value": "yes", "text": {"type": "plain_text", "text": "Yes"}}
ACTIONS = {"type": "actions", "elements": [BUTTON]}


@asynccontextmanager
async def platform(**options: Any) -> AsyncIterator[tuple[SlackServer, AsyncWebClient, Person, Channel]]:
    """The server, a client without retries, a person, and a channel where both are."""
    async with SlackServer(**options) as slack:
        ann, general = slack.person("ann"), slack.channel("general")
        yield slack, client_for(slack, retry_handlers=[]), ann, general


async def refused(call: Any) -> str:
    """The error with which Slack turns the call away."""
    with pytest.raises(SlackApiError) as caught:
        await call
    assert caught.value.response.status_code == 200
    return str(caught.value.response["error"])


class Socket:
    """A bare Socket Mode client, which acknowledges only when it is told to."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(5):
            return dict(json.loads((await self.ws.receive()).data))

    async def ack(self, envelope: dict[str, Any], payload: dict[str, Any] | None = None) -> None:
        answer = {"envelope_id": envelope["envelope_id"]}
        await self.ws.send_str(json.dumps(answer if payload is None else answer | {"payload": payload}))


@asynccontextmanager
async def socket(slack: SlackServer, *, hello: bool = True) -> AsyncIterator[Socket]:
    async with ClientSession() as http:
        opened = await client_for(slack).apps_connections_open(app_token=slack.app_token)
        async with http.ws_connect(opened["url"]) as ws:
            client = Socket(ws)
            if hello:
                assert (await client.next())["type"] == "hello"
            yield client


@asynccontextmanager
async def endpoint(answer: Any) -> AsyncIterator[str]:
    """Somebody's own server for signed requests; gives its URL."""
    app = web.Application()
    app.router.add_post("/slack/events", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events"
    finally:
        await runner.cleanup()


# What Bolt hears.


async def test_a_mention_in_a_channel_is_two_events_with_one_ts() -> None:
    async with platform() as (slack, _, ann, general):
        app, heard = app_for(slack), []

        @app.event("app_mention")
        async def on_mention(body: dict[str, Any]) -> None:
            heard.append(body)

        @app.event("message")
        async def on_message(body: dict[str, Any]) -> None:
            heard.append(body)

        async with connected(slack, app):
            said = ann.says(general, "hello", mention=True)
            await slack.until(lambda _: len(slack.acks) == 2)
        assert sorted(body["event"]["type"] for body in heard) == ["app_mention", "message"]
        assert {body["event"]["ts"] for body in heard} == {said.ts}
        assert len({body["event_id"] for body in heard}) == 2
        assert slack.confirmed == [said.id]
        assert all(0 <= ack.delay < 3 for ack in slack.acks)


async def test_bolt_answers_a_direct_message_with_say_and_hears_its_own_words_from_the_platform() -> None:
    async with platform() as (slack, _, ann, _general):
        app = app_for(slack)

        @app.event("message")
        async def on_message(event: dict[str, Any], say: Any) -> None:
            assert event["channel_type"] == "im"
            await say(f"you said {event['text']}", thread_ts=event["ts"])

        async with connected(slack, app):
            said = ann.says(ann.direct, "hi")
            await slack.until(lambda _: len(slack.acks) == 2)
        assert slack.posts_in(ann.direct, said.ts) == ["you said hi"]
        own = slack.deliveries(slack.sent[0].id)
        assert [each.verdict for each in own] == ["ok"]


async def test_a_slash_command_is_answered_at_once_to_the_person_alone_and_later_by_its_url() -> None:
    async with platform() as (slack, _, ann, general):
        app = app_for(slack)

        @app.command("/tidings")
        async def on_command(ack: Any, respond: Any, command: dict[str, Any]) -> None:
            await ack(f"looking at {command['text']}")
            await respond("all is well", response_type="in_channel")

        async with connected(slack, app):
            ann.commands("/tidings", "status", general)
            await slack.until(lambda _: slack.posts and slack.whispers)
        assert [(each.text, each.whispered_to) for each in slack.whispers] == [("looking at status", ann.id)]
        assert slack.posts_in(general) == ["all is well"]


async def test_a_press_brings_the_message_and_may_replace_it() -> None:
    async with platform() as (slack, client, ann, general):
        app, pressed = app_for(slack), []

        @app.action("choice")
        async def on_press(ack: Any, respond: Any, body: dict[str, Any]) -> None:
            await ack()
            pressed.append((body["user"]["id"], body["actions"][0]["value"], body["container"]["message_ts"]))
            await respond("chosen", replace_original=True)

        posted = await client.chat_postMessage(channel=general.id, text="choose", blocks=[ACTIONS])
        message = slack.message(f"{general.id}:{posted['ts']}")
        assert [(button.id, button.value) for button in choices_of(message)] == [("choice", "yes")]
        async with connected(slack, app):
            ann.presses(message, "choice")
            await slack.until(lambda _: slack.message(message.id).text == "chosen")
        assert pressed == [(ann.id, "yes", message.ts)]
        with pytest.raises(LookupError, match="no button"):
            ann.presses(message, "choice")


async def test_an_assistant_thread_has_prompts_a_title_and_a_status_that_goes_with_the_answer() -> None:
    async with platform() as (slack, _, ann, general):
        app, assistant, statuses = app_for(slack), AsyncAssistant(), []

        @assistant.thread_started
        async def on_start(set_suggested_prompts: Any) -> None:
            await set_suggested_prompts(prompts=["What is new?"])

        @assistant.user_message
        async def on_message(set_status: Any, set_title: Any, say: Any, payload: dict[str, Any]) -> None:
            await set_status("is thinking")
            statuses.append(slack.status(ann.direct, payload["thread_ts"]))
            await set_title(payload["text"])
            await say("an answer")

        app.use(assistant)
        async with connected(slack, app):
            root = ann.opens_assistant(general)
            await slack.until(lambda _: slack.truth.prompts)
            said = ann.says(ann.direct, "news", thread=root)
            await slack.until(lambda _: slack.posts)
        assert said.thread == root.ts
        assert slack.posts_in(ann.direct, root.ts) == ["an answer"]
        assert statuses == ["is thinking"]
        assert slack.status(ann.direct, root.ts) == ""
        assert list(slack.truth.titles.values()) == ["news"]
        assert list(slack.truth.prompts.values()) == [(("What is new?", "What is new?"),)]
        assert len(slack.typing_times(ann.direct)) == 1


async def test_people_correct_and_delete_and_other_bots_speak() -> None:
    async with platform() as (slack, _, ann, general), socket(slack) as listener:
        robot = slack.main.person("robot", is_bot=True)
        said = ann.says(general, "helo", files=[("notes.txt", b"abc")])
        event = (await listener.next())["payload"]["event"]
        assert (event["subtype"], event["files"][0]["name"]) == ("file_share", "notes.txt")
        ann.edits(said, "hello")
        event = (await listener.next())["payload"]["event"]
        assert (event["subtype"], event["message"]["text"], event["previous_message"]["text"]) == (
            "message_changed",
            "hello",
            "helo",
        )
        ann.deletes(said)
        event = (await listener.next())["payload"]["event"]
        assert (event["subtype"], event["deleted_ts"]) == ("message_deleted", said.ts)
        robot.says(general, "beep", mention=True)
        events = [(await listener.next())["payload"]["event"] for _ in range(2)]
        assert [event["type"] for event in events] == ["message", "app_mention"]
        assert all(event["bot_id"] for event in events)


# Sockets.


async def test_what_is_not_acknowledged_comes_again_at_once_after_a_minute_and_after_five() -> None:
    clock = FakeClock(patience=PATIENCE)
    async with platform(clock=clock, ping_seconds=None) as (slack, _, ann, _general), socket(slack) as listener:
        said = ann.says(ann.direct, "hello")
        seen = [await listener.next()]
        for pause in (3, 3 + 60, 3 + 300):
            await clock.advance(pause)
            seen.append(await listener.next())
        assert [envelope["retry_attempt"] for envelope in seen] == [0, 1, 2, 3]
        assert [envelope["retry_reason"] for envelope in seen] == ["", "timeout", "timeout", "timeout"]
        assert len({envelope["envelope_id"] for envelope in seen}) == 4
        assert len({envelope["payload"]["event_id"] for envelope in seen}) == 1
        await listener.ack(seen[-1])
        await slack.until(lambda _: slack.confirmed == [said.id])
        await listener.ack(seen[0])
        await slack.until(lambda _: slack.deliveries(said.id)[0].verdict == "late")
        await clock.advance(3600)
        assert len(slack.deliveries(said.id)) == 4
        assert slack.unconfirmed == []


async def test_nobody_is_told_a_fifth_time() -> None:
    clock = FakeClock(patience=PATIENCE)
    async with platform(clock=clock, ping_seconds=None) as (slack, _, ann, _general), socket(slack):
        said = ann.says(ann.direct, "hello")
        await clock.advance(3600)
        assert [each.verdict for each in slack.deliveries(said.id)] == ["timeout"] * 4
        assert slack.lost == [said.id]


async def test_what_happens_while_no_socket_is_open_arrives_only_as_a_retry() -> None:
    clock = FakeClock(patience=PATIENCE)
    async with platform(clock=clock, ping_seconds=None) as (slack, _, ann, _general):
        said = ann.says(ann.direct, "anybody there?")
        press = ann.commands("/tidings", "status", ann.direct)
        await settle()
        assert [each.verdict for each in slack.deliveries(said.id)] == ["no socket", "no socket"]
        assert press.state == "lost"
        async with socket(slack) as listener:
            await clock.advance(60)
            envelope = await listener.next()
            assert (envelope["retry_attempt"], envelope["payload"]["event"]["ts"]) == (2, said.ts)
            await listener.ack(envelope)
            await slack.until(lambda _: slack.confirmed == [said.id])


async def test_bolt_that_does_not_answer_is_told_again() -> None:
    async with platform(retry_seconds=(0.0, 0.1), ack_seconds=0.4) as (slack, _, ann, _general):
        app, tries = app_for(slack, process_before_response=True), []

        @app.event("message")
        async def on_message(request: Any) -> None:
            tries.append(request.headers["x-slack-retry-num"][0])
            if len(tries) < 3:
                raise RuntimeError("the disk is full")

        async with connected(slack, app):
            said = ann.says(ann.direct, "hello")
            await slack.until(lambda _: slack.confirmed == [said.id])
        assert tries == ["0", "1", "2"]


async def test_each_event_goes_to_one_of_several_sockets() -> None:
    async with platform() as (slack, _, ann, _general), socket(slack) as first, socket(slack) as second:
        said = [ann.says(ann.direct, f"message {number}") for number in range(4)]
        seen = [(await each.next())["payload"]["event"]["ts"] for each in (first, second) for _ in range(2)]
        assert sorted(seen) == [message.ts for message in said]
        assert {delivery.socket for delivery in slack.deliveries()} == {1, 2}


async def test_an_eleventh_socket_is_sent_away() -> None:
    async with platform() as (slack, _, _ann, _general):
        tickets = [(await client_for(slack).apps_connections_open(app_token=slack.app_token))["url"] for _ in range(11)]
        async with ClientSession() as http:
            sockets = [await http.ws_connect(ticket) for ticket in tickets]
            answer = json.loads((await sockets[-1].receive()).data)
            assert (answer["type"], answer["reason"]) == ("disconnect", "too_many_websockets")
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await http.ws_connect(tickets[0])
            for each in sockets:
                await each.close()


@pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
async def test_bolt_opens_another_socket_when_it_is_told_to_go(reason: str) -> None:
    async with platform() as (slack, _, ann, _general):
        app, heard = app_for(slack), []

        @app.event("message")
        async def on_message(event: dict[str, Any]) -> None:
            heard.append(event["text"])

        async with connected(slack, app):
            slack.disconnect(reason, close=reason == "refresh_requested")
            await slack.until(lambda _: [each.number for each in slack.sockets.open] == [2])
            ann.says(ann.direct, "still there?")
            await slack.until(lambda _: len(slack.acks) == 1)
        assert heard == ["still there?"]


async def test_after_an_aborted_connection_the_waiting_event_arrives() -> None:
    async with platform(retry_seconds=(0.0, 0.5, 0.5, 1.0, 3.0)) as (slack, _, ann, _general):
        app = app_for(slack)

        @app.event("message")
        async def on_message() -> None:
            await asyncio.sleep(0)

        async with connected(slack, app, ping_interval=0.2):
            slack.abort_sockets()
            await slack.until(lambda _: not slack.sockets.open)
            said = ann.says(ann.direct, "are you there?")
            await slack.until(lambda _: said.id in slack.confirmed)
        assert slack.deliveries(said.id)[0].verdict == "no socket"


async def test_a_half_open_socket_swallows_events_and_pings_until_the_client_notices() -> None:
    async with platform(ack_seconds=0.2, retry_seconds=(0.0, 0.3, 0.5, 1.0, 5.0)) as (slack, _, ann, _general):
        async with ClientSession() as http:
            opened = await client_for(slack).apps_connections_open(app_token=slack.app_token)
            ws = await http.ws_connect(opened["url"])
            await ws.ping()
            await slack.until(lambda _: slack.sockets.open and slack.sockets.open[0].pings)
            [deaf] = slack.deafen()
            said = ann.says(ann.direct, "hello?")
            await ws.ping()
            await slack.until(lambda _: slack.deliveries(said.id)[-1].attempt == 2)
            assert deaf.pings == 1
            assert {delivery.verdict for delivery in slack.deliveries(said.id)[:-1]} == {"timeout"}
            slack.abort_sockets()
        async with socket(slack) as listener:
            await listener.ack(await listener.next())
            await slack.until(lambda _: said.id in slack.confirmed)


async def test_slack_pings_and_counts_the_pongs() -> None:
    clock = FakeClock(patience=PATIENCE)
    async with platform(clock=clock) as (slack, _, _ann, _general), socket(slack) as listener:
        hearing = asyncio.create_task(listener.ws.receive())
        await settle(PATIENCE)
        await clock.advance(10)
        await slack.until(lambda _: slack.sockets.open[0].pongs == 1)
        hearing.cancel()


# Signed requests.


async def test_bolt_takes_signed_requests_and_refuses_others() -> None:
    async with platform() as (slack, client, ann, general):
        app, heard = app_for(slack, process_before_response=True), []

        @app.event("message")
        async def on_message(event: dict[str, Any]) -> None:
            heard.append(event["text"])

        @app.command("/tidings")
        async def on_command(ack: Any) -> None:
            await ack("pong")

        @app.action("choice")
        async def on_press(ack: Any, body: dict[str, Any]) -> None:
            await ack()
            heard.append(body["actions"][0]["value"])

        async def answer(request: web.Request) -> web.Response:
            return await to_aiohttp_response(await app.async_dispatch(await to_bolt_request(request)))

        async with endpoint(answer) as url:
            await slack.send_events_to(url)
            ann.says(ann.direct, "hello")
            ann.commands("/tidings", "ping", general)
            posted = await client.chat_postMessage(channel=general.id, text="choose", blocks=[ACTIONS])
            ann.presses(slack.message(f"{general.id}:{posted['ts']}"), "choice")
            await slack.until(lambda _: len(slack.acks) == 4)
            assert sorted(heard) == ["hello", "yes"]
            assert [each.text for each in slack.whispers] == ["pong"]
            body = slack.requests[-1].body
            async with ClientSession() as http:
                for headers in ({}, slack.sign(body + b" "), slack.sign(body, at=slack.clock.wall() - 400)):
                    async with http.post(url, data=body, headers=headers) as told:
                        assert told.status == 401


async def test_requests_are_signed_and_repeated_with_a_number_and_a_reason() -> None:
    asked: list[tuple[dict[str, str], bytes]] = []
    statuses = [500, 0, 200]

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        if b"url_verification" in body:
            return web.Response(text=json.loads(body)["challenge"])
        asked.append((dict(request.headers), body))
        status = statuses[len(asked) - 1]
        if not status:
            await asyncio.sleep(1.0)
        return web.Response(status=status or 200)

    async with platform(ack_seconds=0.5, retry_seconds=(0.0, 0.0, 0.1)) as (slack, _, ann, _general):
        async with endpoint(answer) as url:
            await slack.send_events_to(url)
            said = ann.says(ann.direct, "hello")
            await slack.until(lambda _: slack.confirmed == [said.id])
        retries = [(head.get("X-Slack-Retry-Num"), head.get("X-Slack-Retry-Reason")) for head, _ in asked]
        assert retries == [(None, None), ("1", "http_error"), ("2", "http_timeout")]
        assert len({json.loads(body)["event_id"] for _, body in asked}) == 1
        assert all(SignatureVerifier(slack.secret).is_valid_request(body, head) for head, body in asked)
        with pytest.raises(ValueError, match="challenge"):
            await slack.send_events_to(url)


async def test_commands_are_forms_and_presses_are_json_in_a_form() -> None:
    asked: list[dict[str, list[str]]] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        if request.content_type == "application/json":
            return web.json_response({"challenge": json.loads(body).get("challenge")})
        asked.append(parse_qs(body.decode()))
        return web.json_response({"text": "done", "response_type": "in_channel"})

    async with platform() as (slack, client, ann, general):
        async with endpoint(answer) as url:
            await slack.send_events_to(url)
            ann.commands("/tidings", "status", general)
            await slack.until(lambda _: slack.posts)
            posted = await client.chat_postMessage(channel=general.id, text="choose", blocks=[ACTIONS])
            ann.presses(slack.message(f"{general.id}:{posted['ts']}"), "choice")
            await slack.until(lambda _: len(asked) == 2)
        assert asked[0]["command"] == ["/tidings"]
        assert json.loads(asked[1]["payload"][0])["type"] == "block_actions"
        assert slack.posts == ["done", "choose"]


# Streams.


async def test_a_stream_grows_in_its_thread_and_is_finished_with_blocks_and_metadata() -> None:
    async with platform() as (slack, client, ann, general):
        said = ann.says(general, "tell me", mention=True)
        stream = await client.chat_stream(
            channel=general.id,
            thread_ts=said.ts,
            recipient_team_id=slack.main.id,
            recipient_user_id=ann.id,
            buffer_size=1,
        )
        await stream.append(markdown_text="once ")
        await stream.append(markdown_text="upon a time")
        [growing] = slack.visible(general, said.ts)
        assert (text_of(growing), growing.streaming, growing.appends) == ("once upon a time", True, 1)
        await stream.stop(blocks=[ACTIONS], metadata=PROOF)
        [done] = slack.visible(general, said.ts)
        assert (done.stream, done.metadata, text_of(done)) == ("stopped", PROOF, "once upon a time")
        assert [effect.act for effect in slack.effects if effect.message == done.id] == ["stream", "append", "stop"]


async def test_a_stream_needs_a_thread_and_outside_direct_messages_a_recipient() -> None:
    async with platform() as (slack, client, ann, general):
        there, here = ann.says(general, "hi"), ann.says(ann.direct, "hi")
        whom: dict[str, Any] = {"recipient_team_id": slack.main.id, "recipient_user_id": ann.id}
        start = client.chat_startStream
        assert await refused(start(channel=general.id, thread_ts=there.ts)) == "missing_recipient_team_id"
        named: dict[str, Any] = {"recipient_team_id": slack.main.id}
        assert await refused(start(channel=general.id, thread_ts=there.ts, **named)) == "missing_recipient_user_id"
        assert await refused(start(channel=general.id, thread_ts="", **whom)) == "invalid_arguments"
        assert await refused(start(channel=general.id, thread_ts="1700000000.000000", **whom)) == "thread_not_found"
        both: dict[str, Any] = {"markdown_text": "a", "chunks": [{"type": "markdown_text", "text": "b"}]}
        assert await refused(start(channel=here.channel, thread_ts=here.ts, **both)) == "invalid_arguments"
        assert (await start(channel=here.channel, thread_ts=here.ts, markdown_text="a"))["ok"]
        other: dict[str, Any] = {"recipient_team_id": "T999", "recipient_user_id": ann.id}
        assert await refused(start(channel=general.id, thread_ts=there.ts, **other)) == "team_not_found"


async def open_stream(client: AsyncWebClient, said: Message, text: str = "a") -> dict[str, Any]:
    opened = await client.chat_startStream(channel=said.channel, thread_ts=said.ts, markdown_text=text)
    return {"channel": said.channel, "ts": str(opened["ts"])}


async def test_an_open_stream_can_be_neither_updated_nor_deleted() -> None:
    async with platform() as (slack, client, ann, _general):
        stream = await open_stream(client, ann.says(ann.direct, "hi"))
        assert await refused(client.chat_update(**stream, text="b")) == "streaming_state_conflict"
        assert await refused(client.chat_delete(**stream)) == "cant_delete_message"
        await client.chat_stopStream(**stream)
        assert await refused(client.chat_stopStream(**stream)) == "message_not_in_streaming_state"
        await client.chat_update(**stream, text="b")
        assert slack.posts == ["b"]


async def test_a_stream_ends_after_five_minutes_even_while_it_grows() -> None:
    clock = FakeClock(patience=PATIENCE)
    async with platform(clock=clock) as (slack, client, ann, _general):
        stream = await open_stream(client, ann.says(ann.direct, "hi"))
        for _ in range(4):
            await clock.advance(60)
            await client.chat_appendStream(**stream, markdown_text="b")
        await clock.advance(60)
        assert slack.sent[0].stream == "expired"
        for call in (client.chat_appendStream(**stream, markdown_text="c"), client.chat_stopStream(**stream)):
            assert await refused(call) == "message_not_in_streaming_state"
        await client.chat_update(**stream, text="abbbb and more")
        assert slack.posts == ["abbbb and more"]


async def test_a_silent_stream_may_end_sooner_and_too_much_text_is_refused() -> None:
    clock = FakeClock(patience=PATIENCE)
    async with platform(clock=clock) as (slack, client, ann, _general):
        slack.expire_streams(idle_seconds=30)
        stream = await open_stream(client, ann.says(ann.direct, "hi"), "a" * 12_000)
        assert await refused(client.chat_appendStream(**stream, markdown_text="b")) == "msg_too_long"
        await clock.advance(29)
        assert slack.sent[0].streaming
        await clock.advance(1)
        assert slack.sent[0].stream == "expired"


async def test_a_person_who_presses_stop_ends_the_stream_and_the_app_is_told() -> None:
    async with platform() as (slack, client, ann, _general), socket(slack) as listener:
        said = ann.says(ann.direct, "hi")
        stream = await open_stream(client, said)
        ann.stops(said)
        assert await refused(client.chat_appendStream(**stream, markdown_text="b")) == "stopped_by_user"
        events = [(await listener.next())["payload"]["event"] for _ in range(4)]
        assert events[-1]["type"] == "agent_session_stopped"
        assert events[-1]["streaming_message_ts"] == [stream["ts"]]
        assert (events[-1]["thread_ts"], events[-1]["user"]) == (said.ts, ann.id)


# What goes wrong.


async def test_a_429_names_the_pause_and_the_librarys_handler_waits_for_it() -> None:
    async with platform() as (slack, client, _ann, general):
        slack.fail_next(429, "chat.postMessage", retry_after=1)
        with pytest.raises(SlackApiError) as caught:
            await client.chat_postMessage(channel=general.id, text="a")
        assert (caught.value.response.status_code, caught.value.response.headers["Retry-After"]) == (429, "1")
        assert caught.value.response["error"] == "ratelimited"
        slack.fail_next(429, "chat.postMessage", retry_after=0)
        patient = client_for(slack, retry_handlers=[AsyncRateLimitErrorRetryHandler()])
        await patient.chat_postMessage(channel=general.id, text="b")
        assert slack.posts == ["b"]


@pytest.mark.parametrize(("plain", "data"), [(False, {}), (True, "upstream connect error")])
async def test_a_5xx_has_no_json_and_what_the_library_makes_of_it_depends_on_its_type(plain: bool, data: Any) -> None:
    async with platform() as (slack, client, _ann, general):
        slack.fail_next(503, plain=plain)
        with pytest.raises(SlackApiError) as caught:
            await client.chat_postMessage(channel=general.id, text="a")
        assert (caught.value.response.status_code, caught.value.response.data) == (503, data)
        assert slack.posts == []


async def test_a_connection_cut_after_the_effect_gives_two_copies_with_the_librarys_retry_and_one_without() -> None:
    async with platform() as (slack, client, _ann, general):
        slack.drop_next(after_effect=True)
        with pytest.raises(aiohttp.ClientError):
            await client.chat_postMessage(channel=general.id, text="once", client_msg_id="5f0c")
        slack.drop_next(after_effect=True)
        await client_for(slack).chat_postMessage(channel=general.id, text="twice", client_msg_id="5f0d")
        assert slack.posts == ["once", "twice", "twice"]
        assert [call.verdict for call in slack.calls()] == ["lost after", "lost after", "ok"]


async def test_calls_may_be_lost_before_the_effect_garbled_truncated_held_or_lied_about() -> None:
    async with platform() as (slack, client, _ann, general):
        slack.drop_next(after_effect=False, channel=general.id)
        with pytest.raises(aiohttp.ClientError):
            await client.chat_postMessage(channel=general.id, text="lost")
        slack.garble_next()
        with pytest.raises(SlackApiError):
            await client.chat_postMessage(channel=general.id, text="garbled")
        slack.truncate_next()
        with pytest.raises((aiohttp.ClientError, SlackApiError)):
            await client.chat_postMessage(channel=general.id, text="truncated")
        slack.fail_next(502, after_effect=True)
        with pytest.raises(SlackApiError):
            await client.chat_postMessage(channel=general.id, text="denied")
        gate = slack.hold_next("chat.postMessage")
        held = asyncio.create_task(client.chat_postMessage(channel=general.id, text="held"))
        await slack.until(lambda _: slack.calls()[-1].text == "held")
        assert slack.posts == ["garbled", "truncated", "denied"]
        gate.set()
        await held
        assert slack.posts[-1] == "held"
        assert [call.verdict for call in slack.calls()] == [
            "lost before",
            "lost after",
            "lost after",
            "ok, told 502",
            "ok",
        ]


async def test_an_outage_refuses_everybody_until_it_is_over() -> None:
    async with platform() as (slack, client, _ann, general), socket(slack):
        await slack.outage(True)
        with pytest.raises(aiohttp.ClientError):
            await client.chat_postMessage(channel=general.id, text="a")
        assert (slack.connections, slack.attached()) == (0, False)
        await slack.outage(False)
        await client.chat_postMessage(channel=general.id, text="b")
        assert slack.posts == ["b"]


async def test_a_seed_gives_the_same_faults_again() -> None:
    async def verdicts() -> list[str]:
        async with platform() as (slack, client, _ann, general):
            slack.schedule(7, NASTY)
            for number in range(40):
                call = client.chat_postMessage(channel=general.id, text=str(number))
                try:
                    async with asyncio.timeout(0.2):
                        await call
                except (SlackApiError, aiohttp.ClientError, TimeoutError):
                    continue
            return [call.verdict for call in slack.calls()]

    first = await verdicts()
    assert len(set(first)) > 2
    assert first == await verdicts()


async def test_odds_also_double_events_and_cut_sockets_instead_of_taking_an_answer() -> None:
    async with platform(retry_seconds=(0.0, 0.3, 1.0, 3.0)) as (slack, _, ann, _general):
        async with socket(slack) as listener:
            slack.schedule(1, Odds(duplicate=1.0))
            said = ann.says(ann.direct, "hello")
            seen = [await listener.next() for _ in range(2)]
            assert len({envelope["payload"]["event_id"] for envelope in seen}) == 1
            slack.schedule(1, Odds(cut=1.0))
            await listener.ack(seen[0])
            await slack.until(lambda _: not slack.sockets.open)
            assert slack.confirmed == []
        slack.heal()
        async with socket(slack) as listener:
            await listener.ack(await listener.next())
            await slack.until(lambda _: slack.confirmed == [said.id])


async def test_tiers_and_channels_have_limits_once_they_are_asked_for() -> None:
    clock = FakeClock(patience=PATIENCE)
    async with platform(clock=clock) as (slack, client, _ann, general):
        other = slack.channel("other")
        slack.limit_rates()

        async def limited(call: Any) -> str:
            with pytest.raises(SlackApiError) as caught:
                await call
            assert caught.value.response.status_code == 429
            return str(caught.value.response.headers["Retry-After"])

        for _ in range(4):
            await client.chat_postMessage(channel=general.id, text="a")
        assert await limited(client.chat_postMessage(channel=general.id, text="a")) == "1"
        await client.chat_postMessage(channel=other.id, text="a")
        await clock.advance(1)
        await client.chat_postMessage(channel=general.id, text="a")
        slack.limit_history()
        page = await client.conversations_history(channel=general.id, limit=100)
        assert len(page["messages"]) == 5
        assert await limited(client.conversations_history(channel=general.id)) == "60"


# What is refused.


async def test_tokens_and_scopes_are_asked_for() -> None:
    async with platform() as (slack, client, _ann, general):
        post: dict[str, Any] = {"channel": general.id, "text": "a"}

        def with_token(token: str | None) -> AsyncWebClient:
            return AsyncWebClient(token, base_url=slack.api_url, retry_handlers=[])

        assert await refused(with_token(None).chat_postMessage(**post)) == "not_authed"
        assert await refused(with_token("xoxb-wrong").chat_postMessage(**post)) == "invalid_auth"
        assert await refused(with_token(slack.app_token).chat_postMessage(**post)) == "not_allowed_token_type"
        assert await refused(client.apps_connections_open(app_token=slack.token)) == "not_allowed_token_type"
        slack.drop_scope(slack.main, "chat:write")
        with pytest.raises(SlackApiError) as caught:
            await client.chat_postMessage(**post)
        answer = caught.value.response
        assert (answer["error"], answer["needed"]) == ("missing_scope", "chat:write")
        assert "channels:read" in answer["provided"]
        slack.revoke(slack.main, "xoxb-another")
        assert await refused(client.auth_test()) == "token_revoked"
        assert (await with_token("xoxb-another").auth_test())["user_id"] == slack.main.bot.id
        slack.revoke(slack.main, error="account_inactive")
        assert await refused(with_token("xoxb-another").auth_test()) == "account_inactive"
        assert slack.posts == []


async def test_doors_are_closed_with_the_platforms_own_words() -> None:
    async with platform() as (slack, client, ann, general):
        secret, strange = slack.channel("secret", private=True, member=False), slack.channel("strange", member=False)
        for channel, error in (("C404", "channel_not_found"), (secret.id, "channel_not_found")):
            assert await refused(client.chat_postMessage(channel=channel, text="a")) == error
            assert await refused(client.conversations_history(channel=channel)) == error
        assert await refused(client.chat_postMessage(channel=strange.id, text="a")) == "not_in_channel"
        await client.conversations_join(channel=strange.id)
        await client.chat_postMessage(channel="#strange", text="a")
        said = ann.says(general, "hi")
        gone = client.chat_postMessage(channel=general.id, text="a", thread_ts="1700000000.000000")
        assert await refused(gone) == "thread_not_found"
        reply = await client.chat_postMessage(channel=general.id, text="a", thread_ts=said.ts)
        again = client.chat_postMessage(channel=general.id, text="a", thread_ts=reply["ts"])
        assert await refused(again) == "cannot_reply_to_message"
        assert await refused(client.api_call("chat.postMessage", json={"channel": general.id})) == "no_text"
        assert await refused(client.chat_update(channel=general.id, ts=said.ts, text="a")) == "cant_update_message"
        slack.archive(general)
        assert await refused(client.chat_postMessage(channel=general.id, text="a")) == "is_archived"
        slack.archive(general, False)
        slack.kick(slack.main, general)
        assert await refused(client.chat_postMessage(channel=general.id, text="a")) == "not_in_channel"
        assert await refused(client.api_call("chat.nonsense")) == "unknown_method"
        with pytest.raises(SlackApiError, match="the simulator has no"):
            await client.views_publish(user_id=ann.id, view={})


async def test_texts_blocks_and_metadata_have_their_limits() -> None:
    async with platform() as (slack, client, _ann, general):
        here = general.id

        def blocks(*texts: str, type: str = "markdown") -> list[dict[str, Any]]:
            as_text = [{"type": "mrkdwn", "text": text} if type == "section" else text for text in texts]
            return [{"type": type, "text": text} for text in as_text]

        posted = await client.chat_postMessage(channel=here, text="a" * 40_001)
        assert len(slack.posts[0]) == 40_000
        update = client.chat_update(channel=here, ts=posted["ts"], text="a" * 4_001)
        assert await refused(update) == "msg_too_long"
        for content, error in (
            (blocks("a" * 6_000, "b" * 6_001), "msg_blocks_too_long"),
            (blocks("a" * 3_001, type="section"), "invalid_blocks"),
            ([{"type": "divider"}] * 51, "invalid_blocks"),
            ([{"type": "nonsense"}], "invalid_blocks"),
            ([{**ACTIONS, "elements": [BUTTON, BUTTON]}], "invalid_blocks"),
        ):
            assert await refused(client.chat_postMessage(channel=here, text="a", blocks=content)) == error
        for metadata, error in (
            ({"event_type": "", "event_payload": {}}, "invalid_metadata_schema"),
            ({"event_type": "a", "event_payload": "b"}, "invalid_metadata_schema"),
            ([], "invalid_metadata_format"),
        ):
            call = client.chat_postMessage(channel=here, text="a", metadata=metadata)  # type: ignore[arg-type]
            assert await refused(call) == error
        await client.chat_postMessage(channel=here, text="short", blocks=blocks("a" * 6_000, "b" * 6_000))
        assert len(slack.sent) == 2


async def test_an_update_keeps_the_blocks_and_metadata_that_it_does_not_name() -> None:
    async with platform() as (slack, client, _ann, general):
        posted = await client.chat_postMessage(channel=general.id, text="a", blocks=[ACTIONS], metadata=PROOF)
        await client.chat_update(channel=general.id, ts=posted["ts"], text="b")
        [message] = slack.sent
        assert (message.text, len(choices_of(message)), message.metadata) == ("b", 1, PROOF)
        await client.chat_update(channel=general.id, ts=posted["ts"], text="c", blocks=[], metadata={})
        [message] = slack.sent
        assert (text_of(message), message.blocks, message.metadata) == ("c", (), None)
        assert [edit.text for edit in message.edits] == ["b", "c"]


@pytest.mark.parametrize(
    ("content", "called"),
    [
        ({"text": "<!channel> <!here|here> <!everyone>"}, ("channel", "here", "everyone")),
        ({"text": "<@U000000002> and <!subteam^S1|staff>"}, ("U000000002", "S1")),
        ({"text": "&lt;!channel&gt; @channel <#C1>"}, ()),
        ({"text": "@channel @ann", "link_names": True}, ("channel", "U000000002")),
        ({"text": "x", "blocks": [{"type": "markdown", "text": "<!here>"}]}, ("here",)),
        ({"text": "x", "blocks": [{"type": "header", "text": {"type": "plain_text", "text": "<!here>"}}]}, ()),
    ],
)
async def test_whom_a_message_calls_is_kept(content: dict[str, Any], called: tuple[str, ...]) -> None:
    async with platform() as (slack, client, _ann, general):
        await client.chat_postMessage(channel=general.id, unfurl_links=False, **content)
        assert slack.pings == called
        assert (slack.sent[0].unfurl_links, slack.sent[0].unfurl_media) == (False, None)


async def test_reactions_are_added_once_and_taken_back_once() -> None:
    async with platform() as (slack, client, ann, general):
        said = ann.says(general, "hi")
        eyes: dict[str, Any] = {"channel": general.id, "timestamp": said.ts, "name": "eyes"}
        await client.reactions_add(**eyes)
        assert slack.reactions == {said.id: ("eyes",)}
        assert await refused(client.reactions_add(**eyes)) == "already_reacted"
        await client.reactions_remove(**eyes)
        assert await refused(client.reactions_remove(**eyes)) == "no_reaction"
        assert await refused(client.reactions_add(**{**eyes, "name": "👀"})) == "invalid_name"
        assert slack.reactions == {}


async def test_a_whisper_reaches_one_person_and_is_no_message_of_the_channel() -> None:
    async with platform() as (slack, client, ann, general):
        await client.chat_postEphemeral(channel=general.id, user=ann.id, text="between us")
        assert [(each.text, each.whispered_to) for each in slack.whispers] == [("between us", ann.id)]
        assert slack.posts == []
        stranger = client.chat_postEphemeral(channel=general.id, user="U404", text="a")
        assert await refused(stranger) == "user_not_in_channel"


async def test_a_response_url_serves_five_times_and_half_an_hour() -> None:
    clock = FakeClock(patience=PATIENCE)
    async with platform(clock=clock, ping_seconds=None) as (slack, _, ann, general), socket(slack) as listener:
        urls = []
        for _ in range(2):
            ann.commands("/tidings", "status", general)
            urls.append((await listener.next())["payload"]["response_url"])
        async with ClientSession() as http:

            async def post(url: str) -> tuple[int, str]:
                async with http.post(url, json={"text": "a"}) as answer:
                    return answer.status, str((await answer.json()).get("error", ""))

            assert [await post(urls[0]) for _ in range(6)] == [(200, "")] * 5 + [(404, "used_url")]
            await clock.advance(1800)
            assert await post(urls[1]) == (404, "expired_url")
        assert [each.text for each in slack.whispers] == ["a"] * 5


async def test_a_session_has_a_status_and_the_app_is_warned_if_it_would_not_hear_of_stop() -> None:
    async with platform(view="agent") as (slack, client, ann, _general):
        said = ann.says(ann.direct, "hi")
        where: dict[str, Any] = {"channel_id": said.channel, "thread_ts": said.ts}
        told = await client.agents_sessions_setStatus(**where, status="processing", title="Hello")
        assert (told["status"], told["title"], told.get("warning")) == ("processing", "Hello", None)
        assert await refused(client.agents_sessions_setStatus(**where, status="busy")) == "invalid_arguments"
        slack.app.events.discard("agent_session_stopped")
        told = await client.agents_sessions_setStatus(**where, status="active")
        assert told["warning"] == "missing_agent_session_stopped_event_subscription"
        assert ann.stops(said) is None


async def test_a_session_begins_with_its_status_or_a_stream_and_only_then_can_be_renamed() -> None:
    async with platform(view="agent") as (slack, client, ann, _general):
        said = ann.says(ann.direct, "hi")
        where: dict[str, Any] = {"channel_id": said.channel, "thread_ts": said.ts}
        assert await refused(client.agents_sessions_rename(**where, title="Tea")) == "not_authorized"
        with pytest.raises(LookupError):
            ann.renames(said, "Tea")
        stream = await client.chat_startStream(channel=said.channel, thread_ts=said.ts, markdown_text="a")
        assert slack.session(ann.direct, said.ts) == "processing"
        await client.agents_sessions_rename(**where, title="Tea")
        ann.renames(said, "Coffee")
        told = await client.agents_sessions_setStatus(**where, status="suspended", title="Tea")
        assert told["title"] == "Coffee"
        await client.chat_stopStream(channel=said.channel, ts=stream["ts"])
        assert slack.session(ann.direct, said.ts) == "active"
        await client.assistant_threads_setStatus(**where, status="is thinking")
        assert slack.session(ann.direct, said.ts) == "processing"


@pytest.mark.parametrize(("view", "error"), [("assistant", "not_allowed"), ("neither", "unknown_method")])
async def test_an_app_that_is_no_agent_has_no_sessions(view: Any, error: str) -> None:
    async with platform(view=view) as (slack, client, ann, _general):
        said = ann.says(ann.direct, "hi")
        where: dict[str, Any] = {"channel_id": said.channel, "thread_ts": said.ts}
        assert await refused(client.agents_sessions_setStatus(**where, status="processing")) == error
        assert await refused(client.agents_sessions_rename(**where, title="Tea")) == error
        await client.assistant_threads_setStatus(**where, status="is thinking")
        assert slack.session(ann.direct, said.ts) == ""
        assert slack.status(ann.direct, said.ts) == "is thinking"


async def test_a_status_is_gone_after_two_minutes() -> None:
    clock = FakeClock(patience=PATIENCE)
    async with platform(clock=clock, ping_seconds=None) as (slack, client, ann, _general):
        said = ann.says(ann.direct, "hi")
        await client.assistant_threads_setStatus(channel_id=said.channel, thread_ts=said.ts, status="is thinking")
        await clock.advance(119)
        assert slack.status(ann.direct, said.ts) == "is thinking"
        await clock.advance(1)
        assert slack.status(ann.direct, said.ts) == ""


async def test_a_deleted_message_with_replies_leaves_its_thread_and_one_without_does_not() -> None:
    async with platform() as (slack, client, ann, general):
        first, second = ann.says(general, "one"), ann.says(general, "two")
        await client.chat_postMessage(channel=general.id, text="a", thread_ts=first.ts)
        for said in (first, second):
            ann.deletes(said)
        await client.chat_postMessage(channel=general.id, text="b", thread_ts=first.ts)
        gone = client.chat_postMessage(channel=general.id, text="c", thread_ts=second.ts)
        assert await refused(gone) == "thread_not_found"
        posted = await client.chat_postMessage(channel=general.id, text="d")
        await client.chat_delete(channel=general.id, ts=posted["ts"])
        deleted = client.chat_getPermalink(channel=general.id, message_ts=posted["ts"])
        assert await refused(deleted) == "message_not_found"
        assert slack.posts == ["a", "b"]


# What can be read back.


async def test_history_and_replies_show_own_messages_with_their_metadata_where_it_is_asked_for() -> None:
    async with platform() as (slack, client, ann, general):
        root = ann.says(general, "question")
        for number in range(3):
            proof = {"event_type": "gw.delivery", "event_payload": {"i": number}}
            await client.chat_postMessage(channel=general.id, text=str(number), thread_ts=root.ts, metadata=proof)
        ann.says(general, "something else")
        where: dict[str, Any] = {"channel": general.id, "ts": root.ts, "include_all_metadata": True}
        found = await client.conversations_replies(**where)
        assert [message["text"] for message in found["messages"]] == ["question", "0", "1", "2"]
        assert [message["metadata"]["event_payload"]["i"] for message in found["messages"][1:]] == [0, 1, 2]
        oldest = found["messages"][1]["ts"]
        later = await client.conversations_replies(**where, oldest=oldest)
        assert [message["text"] for message in later["messages"]] == ["question", "1", "2"]
        page = await client.conversations_replies(**where, limit=2)
        assert page["has_more"]
        rest = await client.conversations_replies(**where, limit=2, cursor=page["response_metadata"]["next_cursor"])
        assert [message["text"] for message in rest["messages"]] == ["1", "2"]
        history = await client.conversations_history(channel=general.id)
        assert [message["text"] for message in history["messages"]] == ["something else", "question"]
        assert history["messages"][1]["reply_count"] == 3
        assert "metadata" not in (await client.conversations_replies(channel=general.id, ts=root.ts))["messages"][1]
        nowhere = client.conversations_replies(channel=general.id, ts="1700000000.000000")
        assert await refused(nowhere) == "thread_not_found"
        slack.drop_scope(slack.main, "channels:history")
        assert await refused(client.conversations_history(channel=general.id)) == "missing_scope"


async def test_a_direct_message_has_one_channel_however_it_is_named() -> None:
    async with platform() as (slack, client, ann, _general):
        opened = await client.conversations_open(users=ann.id)
        posted = await client.chat_postMessage(channel=ann.id, text="hi")
        assert opened["channel"]["id"] == posted["channel"] == ann.direct.id
        assert (await client.conversations_info(channel=ann.direct.id))["channel"]["user"] == ann.id
        assert (await client.users_info(user=ann.id))["user"]["name"] == "ann"
        members = await client.conversations_members(channel=ann.direct.id)
        assert members["members"] == [ann.id, slack.main.bot.id]


async def test_workspaces_have_channels_people_and_tokens_of_their_own() -> None:
    async with platform() as (slack, client, _ann, general), socket(slack) as listener:
        other = slack.workspace("other")
        bob, lobby = other.person("bob"), other.channel("lobby")
        bob.says(lobby, "hi", mention=True)
        envelopes = [await listener.next() for _ in range(2)]
        assert {envelope["payload"]["team_id"] for envelope in envelopes} == {other.id}
        theirs = client_for(slack, account="other", retry_handlers=[])
        assert (await theirs.auth_test())["team_id"] == other.id
        assert await refused(theirs.chat_postMessage(channel=general.id, text="a")) == "channel_not_found"
        assert await refused(client.chat_postMessage(channel=lobby.id, text="a")) == "channel_not_found"
        await theirs.chat_postMessage(channel=lobby.id, text="a")
        assert [(message.account, message.channel) for message in slack.sent] == [("other", lobby.id)]


# Files.


async def test_files_are_uploaded_in_three_steps_and_fetched_with_the_token_alone() -> None:
    async with platform() as (slack, client, ann, general):
        said = ann.says(general, "draw", files=[("in.bin", b"\x00\x01")])
        await client.files_upload_v2(
            channel=general.id, thread_ts=said.ts, filename="out.txt", content="abc", initial_comment="here"
        )
        [message] = slack.visible(general, said.ts)
        assert (message.text, [(file.name, file.data) for file in message.files]) == ("here", [("out.txt", b"abc")])
        info = await client.files_info(file=message.files[0].id)
        assert info["file"]["shares"]["public"][general.id][0]["ts"] == message.ts
        url = (await client.files_info(file=said.files[0].id))["file"]["url_private"]
        async with ClientSession() as http:
            async with http.get(url, headers={"Authorization": f"Bearer {slack.token}"}) as told:
                assert (told.status, await told.read()) == (200, b"\x00\x01")
            async with http.get(url) as told:
                assert (told.status, told.content_type) == (200, "text/html")
                assert b"Sign in" in await told.read()
        slack.fail_next("channel_not_found", "files.completeUploadExternal")
        upload = client.files_upload_v2(channel=general.id, filename="b.txt", content="b")
        assert await refused(upload) == "channel_not_found"
        missing = client.files_completeUploadExternal(files=[{"id": "F404", "title": "x"}])
        assert await refused(missing) == "file_not_found"


# The simulator itself.


async def test_forms_and_json_are_taken_and_other_shapes_refused() -> None:
    async with platform() as (slack, _, _ann, general), ClientSession() as http:
        bearer = {"Authorization": f"Bearer {slack.token}"}

        async def call(method: str, **request: Any) -> dict[str, Any]:
            async with http.post(slack.api_url + method, **request) as answer:
                assert answer.status == 200
                return dict(await answer.json())

        form = {"token": slack.token, "channel": general.id, "text": "a", "metadata": json.dumps(PROOF)}
        assert (await call("chat.postMessage", data=form))["ok"]
        assert slack.sent[0].metadata == PROOF
        assert "token" not in slack.calls()[0].params
        body = {"channel": general.id, "text": "b"}
        assert (await call("chat.postMessage", json=body, headers=bearer))["ok"]
        wrong = await call("chat.postMessage", data=b"{", headers=bearer | {"Content-Type": "application/json"})
        assert wrong["error"] == "invalid_json"
        wrong = await call("chat.postMessage", data=b"x", headers=bearer | {"Content-Type": "text/plain"})
        assert wrong["error"] == "invalid_post_type"
        upload = await call("files.getUploadURLExternal", json={"filename": "a", "length": 1}, headers=bearer)
        assert upload["error"] == "invalid_arguments"


async def test_redelivery_tells_the_same_event_again_however_long_ago_it_was_confirmed() -> None:
    clock = FakeClock(patience=PATIENCE)
    async with platform(clock=clock, ping_seconds=None) as (slack, _, ann, general), socket(slack) as listener:
        said = ann.says(general, "hello", mention=True)
        first = [await listener.next() for _ in range(2)]
        for envelope in first:
            await listener.ack(envelope)
        await slack.until(lambda _: len(slack.acks) == 2)
        await clock.advance(600)
        slack.redeliver(said.id)
        again = [await listener.next() for _ in range(2)]
        assert {each["payload"]["event_id"] for each in again} == {each["payload"]["event_id"] for each in first}
        assert [each["retry_attempt"] for each in again] == [3, 3]


async def test_answers_tell_the_platforms_own_time_until_somebody_hides_it() -> None:
    async with SlackServer(clock=FakeClock()) as slack, aiohttp.ClientSession() as session:
        slack.skew = 3600.0
        for told in (formatdate(slack.clock.wall() + 3600.0, usegmt=True), ""):
            async with session.post(f"{slack.api_url}auth.test") as response:
                assert response.headers["Date"] == told
            slack.hide_date()


async def test_who_waits_in_vain_is_told_what_was_there() -> None:
    async with platform() as (slack, client, _ann, general):
        await client.chat_postMessage(channel=general.id, text="only this")
        with pytest.raises(TimeoutError, match=r"posts \['only this'\].*chat\.postMessage"):
            await slack.until(lambda _: len(slack.posts) == 2, timeout=0.05)


async def test_a_fault_of_the_simulator_itself_is_not_kept_quiet() -> None:
    slack = SlackServer()
    async with slack:
        slack.calls_of.methods["auth.test"] = lambda team, params: {"never": 1 // len(params)}
        with pytest.raises(SlackApiError):
            await client_for(slack).auth_test()
        [mishap] = slack.truth.mishaps
        assert isinstance(mishap, ZeroDivisionError)
        with pytest.raises(ZeroDivisionError):
            await slack.__aexit__(None, None, None)
        slack.truth.mishaps.clear()


async def test_bolt_needs_nothing_but_the_url_and_the_tokens() -> None:
    async with platform() as (slack, _, _ann, _general):
        app = AsyncApp(client=client_for(slack), signing_secret=slack.secret)
        async with connected(slack, app):
            assert slack.attached()
        await slack.until(lambda _: not slack.attached())
        assert [call.method for call in slack.calls()] == ["apps.connections.open"]
