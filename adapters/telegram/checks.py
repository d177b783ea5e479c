"""Asks Telegram whether an account is set up right, for `tidings doctor`."""

from __future__ import annotations

from typing import Any

from telegram.error import TelegramError

from tidings.adapters.shared.checks import Finding, Guide, Need, examine_clock, examine_way
from tidings.adapters.telegram.client import Client, verdict
from tidings.adapters.telegram.settings import TelegramAccount
from tidings.core import redaction

GUIDE = Guide(
    "Telegram",
    (
        "In Telegram, open a chat with @BotFather and send it /newbot (or /token for a bot that you have).",
        "It asks for a name, and answers with a token such as 123456789:AAF…",
    ),
    (Need("token", "The token from BotFather"),),
    "in Telegram, open your bot and press Start, or send it any word",
)


async def examine(account: str, settings: TelegramAccount) -> list[Finding]:
    token = settings.secret
    redaction.remember(token)
    client = Client(token, settings.api_url, settings.proxy)
    try:
        me = await client.call("getMe", {})
        webhook = await client.call("getWebhookInfo", {})
    except TelegramError as error:
        return [*examine_way(settings.api_url, settings.proxy), Finding(str(verdict(error)), is_fault=True)]
    finally:
        await client.close()
    return [
        *examine_way(settings.api_url, settings.proxy),
        Finding(f"the token is right: it is @{me.get('username')}'s"),
        *_groups(settings, me),
        *_webhook(settings, webhook),
        *await examine_clock(settings.api_url, settings.proxy),
    ]


def _groups(settings: TelegramAccount, me: dict[str, Any]) -> list[Finding]:
    privacy = "turn off /setprivacy at BotFather and add it to the group again"
    if me.get("can_read_all_group_messages"):
        return [Finding("it hears everything in its groups")]
    if "all" in (settings.groups, *settings.chats.values()):
        return [Finding(f'a group is set to "all", but Telegram hides what is not addressed to it: {privacy}', True)]
    return [Finding(f"in groups it hears only what is addressed to it; for more, and for /listen, {privacy}")]


def _webhook(settings: TelegramAccount, webhook: dict[str, Any]) -> list[Finding]:
    address, trouble = webhook.get("url", ""), webhook.get("last_error_message", "")
    findings = []
    if settings.mode == "polling" and address:
        findings.append(Finding(f"a webhook is set to {address}; it is removed when the gateway starts to poll"))
    if settings.mode == "webhook" and not address.startswith(settings.webhook_url.rstrip("/")):
        findings.append(Finding("no webhook of ours is set; it is set when the gateway starts"))
    if settings.mode == "webhook" and trouble:
        findings.append(Finding(f"Telegram could not reach the webhook: {trouble}", is_fault=True))
    if waiting := webhook.get("pending_update_count"):
        findings.append(Finding(f"{waiting} updates wait to be fetched"))
    return findings
