"""The methods with which an app looks around on Slack: history, replies, channels, members and people."""

from __future__ import annotations

import re
from typing import Any

from tests.simulators.slack.messages import Method
from tests.simulators.slack.places import Channel, Team
from tests.simulators.slack.shapes import channel_of, message_of, user_of
from tests.simulators.slack.texts import Refusal, flag, is_ts, need, whole, word
from tests.simulators.slack.truth import Message, Truth

HISTORY_LIMIT = 999
REPLIES_LIMIT = 1_000
_CURSOR = "bmV4dDo"


class History:
    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        # How many objects an answer holds at most; less for apps that are sold outside the marketplace.
        self.most = HISTORY_LIMIT
        self.methods: dict[str, Method] = {
            "conversations.history": self._history,
            "conversations.replies": self._replies,
            "conversations.open": self._open,
            "conversations.info": self._info,
            "conversations.members": self._members,
            "conversations.list": self._list,
            "conversations.join": self._join,
            "users.info": self._user,
        }

    def _history(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        channel = self._read(team, params)
        found = [
            message
            for message in self._truth.messages.values()
            if message.channel == channel.id
            and (not message.thread or message.subtype == "thread_broadcast")
            and _within(message.ts, params)
        ]
        found.reverse()
        return self._page(team, params, found, 100)

    def _replies(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        channel = self._read(team, params)
        ts = need(params, "ts")
        named = team.message(channel, ts)
        if named is None:
            raise Refusal("thread_not_found")
        root = named.thread or ts
        found = [
            message
            for message in self._truth.messages.values()
            if message.channel == channel.id
            # The first message of a thread stands in each answer.
            and (message.ts == root or (message.thread == root and _within(message.ts, params)))
        ]
        return self._page(team, params, found, REPLIES_LIMIT)

    def _read(self, team: Team, params: dict[str, Any]) -> Channel:
        channel = team.look(need(params, "channel"))
        team.need_history(channel)
        for name in ("oldest", "latest"):
            if (value := word(params, name)) and not is_ts(value) and not re.fullmatch(r"\d+(\.\d*)?|now", value):
                raise Refusal(f"invalid_ts_{name}")
        return team.enter(channel.id)

    def _page(self, team: Team, params: dict[str, Any], found: list[Message], default: int) -> dict[str, Any]:
        limit = min(max(whole(params, "limit", default), 1), self.most)
        begin = _begin(params)
        shapes = [
            message_of(self._truth, team, message, metadata=bool(flag(params, "include_all_metadata")))
            for message in found[begin : begin + limit]
        ]
        return {"messages": shapes, **_more(begin + limit, len(found)), "has_more": begin + limit < len(found)}

    def _open(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        team.need("im:write")
        if named := word(params, "channel"):
            channel = team.look(named)
        else:
            users = [user for user in need(params, "users").split(",") if user]
            if len(users) != 1:
                raise Refusal("the simulator has no group messages", status=501)
            if users[0] not in team.users:
                raise Refusal("user_not_found")
            if team.users[users[0]].is_bot:
                raise Refusal("cannot_dm_bot")
            channel = team.direct(users[0])
        shape = channel_of(team, channel) if flag(params, "return_im") else {"id": channel.id}
        return {"channel": shape}

    def _info(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        channel = team.look(need(params, "channel"))
        team.need_reading(channel)
        shape = channel_of(team, channel)
        count = {"num_members": len(channel.members)} if flag(params, "include_num_members") else {}
        return {"channel": shape | count}

    def _members(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        channel = team.look(need(params, "channel"))
        team.need_reading(channel)
        begin, limit = _begin(params), whole(params, "limit", 100)
        return {"members": channel.members[begin : begin + limit], **_more(begin + limit, len(channel.members))}

    def _list(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        types = (word(params, "types") or "public_channel").split(",")
        kinds = {"public_channel": "channel", "private_channel": "group", "im": "im", "mpim": "mpim"}
        if not set(types) <= kinds.keys():
            raise Refusal("invalid_types")
        wanted = {kinds[type] for type in types}
        found = []
        for channel in team.channels.values():
            is_known = channel.kind == "channel" or team.bot.id in channel.members
            if channel.kind in wanted and is_known and not (channel.is_archived and flag(params, "exclude_archived")):
                team.need_reading(channel)
                found.append(channel_of(team, channel))
        begin, limit = _begin(params), whole(params, "limit", 100)
        return {"channels": found[begin : begin + limit], **_more(begin + limit, len(found))}

    def _join(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        team.need("channels:join")
        channel = team.look(need(params, "channel"))
        if channel.kind != "channel":
            raise Refusal("method_not_supported_for_channel_type")
        if channel.is_archived:
            raise Refusal("is_archived")
        if team.bot.id in channel.members:
            return {"channel": channel_of(team, channel), "warning": "already_in_channel"}
        channel.members.append(team.bot.id)
        self._truth.log("join", team.name, channel=channel.id)
        return {"channel": channel_of(team, channel)}

    @staticmethod
    def _user(team: Team, params: dict[str, Any]) -> dict[str, Any]:
        team.need("users:read")
        user = team.users.get(need(params, "user"))
        if user is None:
            raise Refusal("user_not_found")
        return {"user": user_of(team, user)}


def _within(ts: str, params: dict[str, Any]) -> bool:
    oldest, latest = word(params, "oldest") or "0", word(params, "latest")
    here, inclusive = _number(ts), bool(flag(params, "inclusive"))
    after = here > _number(oldest) or (inclusive and here == _number(oldest))
    if not latest or latest == "now":
        return after
    return after and (here < _number(latest) or (inclusive and here == _number(latest)))


def _number(ts: str) -> int:
    """In microseconds, which a float would not keep apart."""
    seconds, _, rest = ts.partition(".")
    return int(seconds or 0) * 1_000_000 + int((rest + "000000")[:6])


def _begin(params: dict[str, Any]) -> int:
    cursor = word(params, "cursor")
    if not cursor:
        return 0
    found = re.fullmatch(rf"{_CURSOR}(\d+)", cursor)
    if found is None:
        raise Refusal("invalid_cursor")
    return int(found[1])


def _more(next: int, count: int) -> dict[str, Any]:
    return {"response_metadata": {"next_cursor": f"{_CURSOR}{next}" if next < count else ""}}
