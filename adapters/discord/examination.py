"""Asks Discord whether an account is set up right, for `tidings doctor`."""

from __future__ import annotations

from typing import Any

from adapters.discord.client import Client
from adapters.discord.settings import DiscordAccount
from adapters.shared.examination import Finding
from core import redaction
from core.errors import SendError

# Whether the developer portal lets the bot read all messages: in many servers, or in few.
CONTENT_FLAGS = 1 << 18 | 1 << 19
PAGE = 200


async def examine(account: str, settings: DiscordAccount) -> list[Finding]:
    token = settings.token.get_secret_value()
    redaction.remember(token)
    client = Client(token, settings.api_url, account)
    try:
        me = await client.call("GET", "/users/@me")
        application = await client.call("GET", "/applications/@me")
        guilds = await client.call("GET", "/users/@me/guilds", params={"limit": PAGE})
    except SendError as error:
        return [Finding(str(error), is_fault=True)]
    finally:
        await client.close()
    return [
        Finding(f"the token is right: it is {me.get('username')}'s"),
        _content(settings, application),
        _places(guilds),
    ]


def _content(settings: DiscordAccount, application: dict[str, Any]) -> Finding:
    allowed = bool(int(application.get("flags") or 0) & CONTENT_FLAGS)
    if settings.message_content and not allowed:
        return Finding(
            "the message content intent is off, and Discord would turn the bot away: switch it on in the developer"
            " portal (Bot, Privileged Gateway Intents), or set [discord] message_content = false",
            is_fault=True,
        )
    if settings.message_content:
        return Finding("it reads every message in its channels")
    if "all" in (settings.channels, *settings.chats.values()):
        return Finding(
            'a channel is set to "all", but with message_content = false Discord hides what does not mention the bot',
            is_fault=True,
        )
    return Finding("it reads private messages, and in channels only those that mention it")


def _places(guilds: list[Any]) -> Finding:
    if not guilds:
        return Finding("it is in no server yet: invite it by the portal's OAuth2 page, with the scope bot")
    more = " or more" if len(guilds) >= PAGE else ""
    return Finding(f"it is in {len(guilds)}{more} {'server' if len(guilds) == 1 else 'servers'}")
