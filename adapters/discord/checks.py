"""Asks Discord whether an account is set up right, for `tidings doctor`."""

from __future__ import annotations

from typing import Any

from tidings.adapters.discord.client import Client
from tidings.adapters.discord.settings import DiscordAccount
from tidings.adapters.shared.checks import Finding, Guide, Need, examine_clock, examine_way
from tidings.core import redaction
from tidings.core.errors import SendError

# Whether the developer portal lets the bot read all messages: in many servers, or in few.
CONTENT_FLAGS = 1 << 18 | 1 << 19
PAGE = 200
# A restart costs one; without any the bot is locked out until the day is over.
FEW_STARTS = 100
GUIDE = Guide(
    "Discord",
    (
        "At discord.com/developers/applications make an application, and in it open Bot.",
        "Switch on the Message Content Intent there, press Reset Token and copy the token.",
        "Under OAuth2, invite the bot to your server by an address with the scope bot.",
    ),
    (Need("token", "The token of the bot"),),
    "in Discord, send your bot any word in a direct message",
)


async def examine(account: str, settings: DiscordAccount) -> list[Finding]:
    token = settings.secret
    redaction.remember(token)
    client = Client(token, settings.api_url, account, settings.proxy)
    try:
        me = await client.call("GET", "/users/@me")
        application = await client.call("GET", "/applications/@me")
        guilds = await client.call("GET", "/users/@me/guilds", params={"limit": PAGE})
        gateway = await client.call("GET", "/gateway/bot")
    except SendError as error:
        return [*examine_way(settings.api_url, settings.proxy), Finding(str(error), is_fault=True)]
    finally:
        await client.close()
    return [
        *examine_way(settings.api_url, settings.proxy),
        Finding(f"the token is right: it is {me.get('username')}'s"),
        _content(settings, application),
        _places(guilds),
        *_starts(gateway.get("session_start_limit") or {}),
        *await examine_clock(settings.api_url, settings.proxy),
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


def _starts(limit: dict[str, Any]) -> list[Finding]:
    left = limit.get("remaining")
    if not isinstance(left, int) or left >= FEW_STARTS:
        return []
    hours = int(limit.get("reset_after") or 0) / 3_600_000
    words = f"only {left} connections are left to it for the next {hours:.0f} hours: do not restart it needlessly"
    return [Finding(words, is_fault=left == 0, is_odd=True)]


def _places(guilds: list[Any]) -> Finding:
    if not guilds:
        return Finding("it is in no server yet: invite it by the portal's OAuth2 page, with the scope bot")
    more = " or more" if len(guilds) >= PAGE else ""
    return Finding(f"it is in {len(guilds)}{more} {'server' if len(guilds) == 1 else 'servers'}")
