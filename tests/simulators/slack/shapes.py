"""Slack's JSON: messages, channels, people, files, events and what surrounds them."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_URL, uuid5

from tests.simulators.slack.places import Channel, Team, User
from tests.simulators.slack.truth import File, Message, Truth

CHANNEL_TYPES = {"channel": "channel", "group": "group", "im": "im"}


def message_of(truth: Truth, team: Team, message: Message, *, metadata: bool = False) -> dict[str, Any]:
    """A message as history and answers show it; its metadata only where it was asked for."""
    shape: dict[str, Any] = {"type": "message", "user": message.author, "ts": message.ts, "text": message.text}
    if message.subtype:
        shape["subtype"] = message.subtype
    if message.subtype == "tombstone":
        shape |= {"hidden": True, "user": "USLACKBOT"}
    shape["team"] = team.id
    if not message.sender:
        shape |= {"bot_id": team.bot_id, "app_id": team.app.id, "bot_profile": _profile(team)}
    elif message.subtype == "bot_message" or team.users[message.author].is_bot:
        shape |= {"bot_id": f"B{message.author[1:]}"}
    else:
        shape["client_msg_id"] = str(uuid5(NAMESPACE_URL, message.id))
    if message.blocks:
        shape["blocks"] = list(message.blocks)
    elif message.text and message.subtype != "tombstone":
        # Slack makes blocks of a text that came without.
        shape["blocks"] = [rich_text(message.text)]
    if message.files:
        shape |= {"files": [file_of(truth, team, file) for file in message.files], "upload": False}
    if message.thread:
        root = truth.messages.get((message.channel, message.thread))
        shape["thread_ts"] = message.thread
        if root is not None:
            shape["parent_user_id"] = root.author
    shape |= _replies(truth, message)
    if message.edits and not message.stream:
        shape["edited"] = {"user": message.author, "ts": f"{int(message.edits[-1].at)}.000000"}
    if message.stream:
        shape["streaming_state"] = "in_progress" if message.streaming else "completed"
    if found := truth.reactions.get((message.channel, message.ts)):
        shape["reactions"] = [{"name": name, "users": who, "count": len(who)} for name, who in found.items()]
    if metadata and message.metadata:
        shape["metadata"] = message.metadata
    return shape


def rich_text(text: str, mentioned: str = "") -> dict[str, Any]:
    """What is typed or posted as text is rich text to Slack, with the one mention that matters here."""
    before, mention, after = text.partition(f"<@{mentioned}>") if mentioned else (text, "", "")
    elements: list[dict[str, Any]] = [{"type": "text", "text": before}] if before else []
    elements += [{"type": "user", "user_id": mentioned}] if mention else []
    elements += [{"type": "text", "text": after}] if after else []
    section = {"type": "rich_text_section", "elements": elements}
    return {"type": "rich_text", "block_id": "typed", "elements": [section]}


def _profile(team: Team) -> dict[str, Any]:
    return {"id": team.bot_id, "app_id": team.app.id, "name": team.bot.name, "deleted": False, "team_id": team.id}


def _replies(truth: Truth, message: Message) -> dict[str, Any]:
    if message.thread:
        return {}
    replies = [truth.messages[message.channel, ts] for ts in truth.replies.get((message.channel, message.ts), ())]
    if not replies:
        return {}
    return {
        "thread_ts": message.ts,
        "reply_count": len(replies),
        "reply_users": list(dict.fromkeys(each.author for each in replies)),
        "latest_reply": replies[-1].ts,
    }


def file_of(truth: Truth, team: Team, file: File) -> dict[str, Any]:
    address = team.app.url_of_files
    return {
        "id": file.id,
        "name": file.name,
        "title": file.title,
        "mimetype": file.type,
        "filetype": file.name.rpartition(".")[2] if "." in file.name else "binary",
        "size": len(file.data),
        "mode": "hosted",
        "is_external": False,
        "url_private": f"{address}/files-pri/{team.id}-{file.id}/{file.name}",
        "url_private_download": f"{address}/files-pri/{team.id}-{file.id}/download/{file.name}",
        "permalink": f"{address}/files/{file.id}",
    }


def channel_of(team: Team, channel: Channel) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "id": channel.id,
        "is_channel": channel.kind == "channel",
        "is_group": channel.kind == "group",
        "is_im": channel.kind == "im",
        "is_mpim": False,
        "is_private": channel.kind == "group",
        "is_archived": channel.is_archived,
        "context_team_id": team.id,
    }
    if channel.kind == "im":
        return shape | {"user": channel.person, "is_open": True}
    return shape | {"name": channel.name, "is_member": team.bot.id in channel.members}


def user_of(team: Team, user: User) -> dict[str, Any]:
    return {
        "id": user.id,
        "team_id": team.id,
        "name": user.name,
        "deleted": False,
        "real_name": user.name.capitalize(),
        "tz": "Europe/Amsterdam",
        "tz_offset": 3600,
        "profile": {"real_name": user.name.capitalize(), "display_name": user.name},
        "is_bot": user.is_bot,
        "is_app_user": False,
    }


def event_of(team: Team, id: str, event: dict[str, Any], at: float) -> dict[str, Any]:
    """What surrounds an event."""
    return {
        "token": "verification-token",
        "team_id": team.id,
        "context_team_id": team.id,
        "context_enterprise_id": None,
        "api_app_id": team.app.id,
        "event": event,
        "type": "event_callback",
        "event_id": id,
        "event_time": int(at),
        "authorizations": [
            {
                "enterprise_id": None,
                "team_id": team.id,
                "user_id": team.bot.id,
                "is_bot": True,
                "is_enterprise_install": False,
            }
        ],
        "is_ext_shared_channel": False,
        "event_context": f"4-{id}",
    }


def message_event(truth: Truth, team: Team, channel: Channel, message: Message) -> dict[str, Any]:
    return {
        **message_of(truth, team, message),
        "channel": channel.id,
        "channel_type": CHANNEL_TYPES[channel.kind],
        "event_ts": message.ts,
    }


def mention_event(truth: Truth, team: Team, channel: Channel, message: Message) -> dict[str, Any]:
    shape = message_of(truth, team, message)
    shape.pop("subtype", None)
    return {**shape, "type": "app_mention", "channel": channel.id, "event_ts": message.ts}


def changed_event(
    truth: Truth, team: Team, channel: Channel, message: Message, before: dict[str, Any], ts: str
) -> dict[str, Any]:
    return {
        "type": "message",
        "subtype": "message_changed",
        "hidden": True,
        "message": message_of(truth, team, message),
        "previous_message": before,
        "channel": channel.id,
        "channel_type": CHANNEL_TYPES[channel.kind],
        "ts": ts,
        "event_ts": ts,
    }


def deleted_event(channel: Channel, before: dict[str, Any], ts: str) -> dict[str, Any]:
    return {
        "type": "message",
        "subtype": "message_deleted",
        "hidden": True,
        "deleted_ts": before["ts"],
        "previous_message": before,
        "channel": channel.id,
        "channel_type": CHANNEL_TYPES[channel.kind],
        "ts": ts,
        "event_ts": ts,
    }
