"""The methods with which an app writes: post, update, delete, whisper, react, and the answers to a response_url."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.simulators.slack.board import Board
from tests.simulators.slack.places import Channel, Team
from tests.simulators.slack.shapes import message_of
from tests.simulators.slack.texts import (
    MARKDOWN_LIMIT,
    TEXT_LIMIT,
    UPDATE_LIMIT,
    Refusal,
    flag,
    is_ts,
    need,
    parsed,
    read_blocks,
    read_metadata,
    shown,
    word,
)
from tests.simulators.slack.truth import Message, Truth

# A response_url serves so often and so long.
RESPONSES = 5
RESPONSE_SECONDS = 30 * 60.0

Method = Callable[[Team, dict[str, Any]], dict[str, Any]]


class Messages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._truth: Truth = board.truth
        # By path: the workspace, where it was given out, to whom, about which message, until when, how often yet.
        self._responses: dict[str, tuple[Team, Channel, str, str, float, list[None]]] = {}
        self.methods: dict[str, Method] = {
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "chat.postEphemeral": self._whisper,
            "chat.getPermalink": self._permalink,
            "reactions.add": self._react,
            "reactions.remove": self._unreact,
        }

    def _post(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        channel = team.address(need(params, "channel"))
        text, blocks = _content(params)
        # Accepted, and of no consequence: client_msg_id does not keep a message from being posted twice.
        message = self._board.post(
            team,
            channel,
            team.bot.id,
            text[:TEXT_LIMIT],
            thread=team.thread(channel, word(params, "thread_ts")),
            blocks=blocks or (),
            metadata=read_metadata(params),
            subtype="thread_broadcast" if flag(params, "reply_broadcast") else "",
            link_names=bool(flag(params, "link_names")) or word(params, "parse") == "full",
            unfurl_links=flag(params, "unfurl_links"),
            unfurl_media=flag(params, "unfurl_media"),
        )
        return self._told(team, message)

    def _told(self, team: Team, message: Message) -> dict[str, Any]:
        shape = message_of(self._truth, team, message, metadata=True)
        return {"channel": message.channel, "ts": message.ts, "message": shape}

    def _update(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        channel = team.open_to_posts(team.enter(need(params, "channel")))
        message = team.own(channel, need(params, "ts"), "cant_update_message")
        if message.streaming:
            raise Refusal("streaming_state_conflict")
        text, blocks = _content(params)
        if len(text) > UPDATE_LIMIT:
            raise Refusal("msg_too_long")
        metadata = read_metadata(params)
        message = self._board.edit(
            team,
            message,
            text=text or shown(blocks or ()),
            # What is not named stays; an empty list takes it away.
            blocks=message.blocks if blocks is None else blocks,
            metadata=message.metadata if metadata is None else metadata or None,
        )
        return self._told(team, message) | {"text": message.text}

    def _delete(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        channel = team.enter(need(params, "channel"))
        message = team.own(channel, need(params, "ts"), "cant_delete_message")
        if message.streaming:
            raise Refusal("cant_delete_message")
        self._board.remove(team, message)
        return {"channel": channel.id, "ts": message.ts}

    def _whisper(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        channel = team.open_to_posts(team.enter(need(params, "channel")))
        user = need(params, "user")
        if user not in channel.members:
            raise Refusal("user_not_in_channel")
        text, blocks = _content(params)
        thread = team.thread(channel, word(params, "thread_ts"))
        message = self._board.post(
            team, channel, team.bot.id, text, thread=thread, blocks=blocks or (), whispered_to=user
        )
        return {"message_ts": message.ts}

    def _permalink(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        channel = team.enter(need(params, "channel"))
        ts = need(params, "message_ts")
        if team.message(channel, ts) is None:
            raise Refusal("message_not_found")
        link = f"https://{team.domain}.slack.com/archives/{channel.id}/p{ts.replace('.', '')}"
        return {"channel": channel.id, "permalink": link}

    # Reactions.

    def _reacted(self, team: Team, params: dict[str, Any]) -> tuple[str, Message]:
        team.need("reactions:write")
        name = need(params, "name").strip(":")
        if not re.fullmatch(r"[a-z0-9_+'-]{1,100}(::skin-tone-[2-6])?", name):
            raise Refusal("invalid_name")
        channel = team.enter(need(params, "channel"))
        ts = word(params, "timestamp")
        if not ts:
            raise Refusal("no_item_specified")
        if not is_ts(ts):
            raise Refusal("bad_timestamp")
        message = team.message(team.open_to_posts(channel), ts)
        if message is None or message.subtype == "tombstone":
            raise Refusal("message_not_found")
        return name, message

    def _react(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        name, message = self._reacted(team, params)
        found = self._truth.reactions.setdefault((message.channel, message.ts), {})
        if team.bot.id in found.get(name, []):
            raise Refusal("already_reacted")
        found.setdefault(name, []).append(team.bot.id)
        self._log("react", message, name)
        return {}

    def _unreact(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        name, message = self._reacted(team, params)
        found = self._truth.reactions.get((message.channel, message.ts), {})
        if team.bot.id not in found.get(name, []):
            raise Refusal("no_reaction")
        found[name].remove(team.bot.id)
        if not found[name]:
            del found[name]
        self._log("unreact", message, name)
        return {}

    def _log(self, act: str, message: Message, name: str) -> None:
        self._truth.log(
            act, message.account, channel=message.channel, thread=message.thread, message=message.id, text=name
        )

    # What a command or a press may be answered with, without a token.

    def open_response(self, team: Team, channel: Channel, user: str, ts: str = "") -> str:
        path = f"/response/{team.id}/{len(self._responses) + 1:06d}"
        until = self._truth.clock.now() + RESPONSE_SECONDS
        self._responses[path] = (team, channel, user, ts, until, [])
        return path

    def respond(self, path: str, body: Any) -> Team:
        """Raises what Slack says, or does it."""
        if path not in self._responses:
            raise Refusal("no_service", status=404)
        team, channel, user, ts, until, uses = self._responses[path]
        if self._truth.clock.now() >= until:
            raise Refusal("expired_url", status=404)
        if len(uses) >= RESPONSES:
            raise Refusal("used_url", status=404)
        if not isinstance(body, dict):
            raise Refusal("invalid_payload", status=400)
        original = team.message(channel, ts) if ts else None
        if original is not None and flag(body, "delete_original"):
            uses.append(None)
            self._board.remove(team, original)
            return team
        text, blocks = _content(body)
        uses.append(None)
        if original is not None and flag(body, "replace_original"):
            self._board.edit(team, original, text=text, blocks=blocks or ())
            return team
        self.say(team, channel, user, body)
        return team

    def say(self, team: Team, channel: Channel, user: str, body: dict[str, Any]) -> None:
        """To the person alone, unless it is meant for all."""
        text, blocks = _content(body)
        whispered_to = "" if body.get("response_type") == "in_channel" else user
        thread = team.thread(channel, word(body, "thread_ts"))
        self._board.post(
            team, channel, team.bot.id, text, blocks=blocks or (), thread=thread, whispered_to=whispered_to
        )


def _content(params: dict[str, Any]) -> tuple[str, tuple[dict[str, Any], ...] | None]:
    text, markdown, blocks = word(params, "text"), word(params, "markdown_text"), read_blocks(params)
    attachments = parsed(params, "attachments", "invalid_attachments")
    if markdown:
        if text or blocks:
            raise Refusal("markdown_text_conflict")
        if len(markdown) > MARKDOWN_LIMIT:
            raise Refusal("msg_too_long")
        return markdown, None
    if not text and not blocks and not attachments:
        raise Refusal("no_text")
    return text, blocks
