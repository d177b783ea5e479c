"""The methods of an assistant on Slack: native streams, and the status, title and prompts of a thread."""

from __future__ import annotations

from typing import Any

from tests.simulators.slack.board import Board
from tests.simulators.slack.messages import Method
from tests.simulators.slack.places import Channel, Team
from tests.simulators.slack.shapes import message_of
from tests.simulators.slack.texts import (
    MARKDOWN_LIMIT,
    Refusal,
    missing,
    need,
    parsed,
    read_blocks,
    read_chunks,
    read_metadata,
    word,
)
from tests.simulators.slack.truth import Message, Truth

# A status that nobody renews is gone after this.
STATUS_SECONDS = 120.0
PROMPTS = 4
TITLE_LIMIT = 200
SESSION_STATUSES = ("active", "processing", "suspended", "closed")
UNSUBSCRIBED = "missing_agent_session_stopped_event_subscription"


class Streams:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._truth: Truth = board.truth
        self.methods: dict[str, Method] = {
            "chat.startStream": self._start,
            "chat.appendStream": self._append,
            "chat.stopStream": self._stop,
            "assistant.threads.setStatus": self._set_status,
            "assistant.threads.setTitle": self._set_title,
            "assistant.threads.setSuggestedPrompts": self._set_prompts,
            "agents.sessions.setStatus": self._set_session,
            "agents.sessions.rename": self._rename_session,
        }

    def _start(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        channel = team.open_to_posts(team.enter(need(params, "channel")))
        thread = team.thread(channel, need(params, "thread_ts"))
        if channel.kind != "im":
            self._check_recipient(team, params)
        text, chunks = read_chunks(params)
        _check_length(text)
        message = self._board.post(team, channel, team.bot.id, text, thread=thread, stream="open", chunks=chunks)
        self._board.begin(team, message)
        self._board.set_session(team, channel.id, thread, "processing")
        return {"channel": channel.id, "ts": message.ts}

    @staticmethod
    def _check_recipient(team: Team, params: dict[str, Any]) -> None:
        for name in ("recipient_team_id", "recipient_user_id"):
            if not word(params, name):
                raise Refusal(f"missing_{name}")
        if word(params, "recipient_team_id") != team.id:
            raise Refusal("team_not_found")
        if word(params, "recipient_user_id") not in team.users:
            raise Refusal("user_not_found")

    def _streaming(self, team: Team, params: dict[str, Any]) -> Message:
        channel = team.open_to_posts(team.enter(need(params, "channel")))
        message = team.own(channel, need(params, "ts"), "message_not_owned_by_app")
        if message.stream == "stopped_by_user":
            raise Refusal("stopped_by_user")
        if not message.streaming:
            raise Refusal("message_not_in_streaming_state")
        return message

    def _append(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        message = self._streaming(team, params)
        text, chunks = read_chunks(params)
        if not text and not chunks:
            raise Refusal("no_text")
        _check_length(message.text + text)
        self._board.edit(
            team,
            message,
            "append",
            silent=True,
            text=message.text + text,
            chunks=(*message.chunks, *chunks),
            appends=message.appends + 1,
        )
        self._board.touch(message)
        return {"channel": message.channel, "ts": message.ts}

    def _stop(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        message = self._streaming(team, params)
        text, chunks = read_chunks(params)
        _check_length(message.text + text)
        status = word(params, "session_status")
        if status and status not in SESSION_STATUSES:
            raise Refusal("invalid_arguments", why="must be a valid enum value [json-pointer:/session_status]")
        message = self._board.edit(
            team,
            message,
            "stop",
            text=message.text + text,
            blocks=read_blocks(params) or (),
            metadata=read_metadata(params) or None,
            chunks=(*message.chunks, *chunks),
            stream="stopped",
        )
        self._board.set_session(team, message.channel, message.thread, status or "active")
        shape = message_of(self._truth, team, message, metadata=True)
        return {"channel": message.channel, "ts": message.ts, "message": shape}

    # What stands around a thread.

    def _place(self, team: Team, params: dict[str, Any]) -> tuple[Channel, str]:
        channel = team.enter(need(params, "channel_id"))
        return channel, team.thread(channel, need(params, "thread_ts"))

    def _set_status(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        channel, thread = self._place(team, params)
        if "status" not in params:
            raise missing("status")
        status = word(params, "status")
        if status:
            until = self._truth.clock.now() + STATUS_SECONDS
            self._truth.statuses[channel.id, thread] = (status, until)
        else:
            self._truth.statuses.pop((channel.id, thread), None)
        # The old way is carried over to the new one.
        self._board.set_session(team, channel.id, thread, "processing" if status else "active")
        self._truth.log("status", team.name, channel=channel.id, thread=thread, text=status)
        return {}

    def _set_title(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        team.need("assistant:write")
        channel, thread = self._place(team, params)
        self._truth.titles[channel.id, thread] = title = need(params, "title")
        self._truth.log("title", team.name, channel=channel.id, thread=thread, text=title)
        return {}

    def _set_prompts(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        team.need("assistant:write")
        if team.app.view == "agent" and not word(params, "thread_ts"):
            # They stand above all threads.
            channel, thread = team.enter(need(params, "channel_id")), ""
        else:
            channel, thread = self._place(team, params)
        prompts = parsed(params, "prompts", "invalid_arguments")
        if not isinstance(prompts, list) or not 1 <= len(prompts) <= PROMPTS:
            raise Refusal("invalid_arguments", why=f"must have 1 to {PROMPTS} items [json-pointer:/prompts]")
        if not all(isinstance(each, dict) and each.get("title") and each.get("message") for each in prompts):
            raise Refusal("invalid_arguments", why="missing required field: title or message [json-pointer:/prompts]")
        self._truth.prompts[channel.id, thread] = tuple((each["title"], each["message"]) for each in prompts)
        self._truth.log("prompts", team.name, channel=channel.id, thread=thread)
        return {}

    def _rename_session(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        _need_agent(team, "agents.sessions.rename")
        channel, thread = self._place(team, params)
        title = need(params, "title")
        if len(title) > TITLE_LIMIT:
            raise Refusal("invalid_arguments", why=f"must be less than {TITLE_LIMIT + 1} characters")
        if (channel.id, thread) not in self._truth.sessions:
            raise Refusal("not_authorized")
        self._truth.titles[channel.id, thread] = title
        self._truth.log("title", team.name, channel=channel.id, thread=thread, text=title)
        return {"title": title}

    def _set_session(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        _need_agent(team, "agents.sessions.setStatus")
        channel, thread = self._place(team, params)
        status = need(params, "status")
        if status not in SESSION_STATUSES:
            raise Refusal("invalid_arguments", why="must be a valid enum value [json-pointer:/status]")
        title = word(params, "title")
        if len(title) > TITLE_LIMIT:
            raise Refusal("invalid_arguments", why=f"must be less than {TITLE_LIMIT + 1} characters")
        if title and (channel.id, thread) not in self._truth.sessions:
            self._truth.titles[channel.id, thread] = title.replace(":", "_")
        self._truth.sessions[channel.id, thread] = status
        self._truth.log("session", team.name, channel=channel.id, thread=thread, text=status)
        answer = {"status": status, "agent_status": status, "title": self._truth.titles.get((channel.id, thread), "")}
        return answer if team.hears("agent_session_stopped") else answer | {"warning": UNSUBSCRIBED}


def _need_agent(team: Team, method: str) -> None:
    if team.app.view == "neither":
        raise Refusal("unknown_method", req_method=method)
    if team.app.view != "agent":
        raise Refusal("not_allowed")


def _check_length(text: str) -> None:
    if len(text) > MARKDOWN_LIMIT:
        raise Refusal("msg_too_long")
