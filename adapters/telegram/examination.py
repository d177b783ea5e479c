"""Asks Telegram whether an account is set up right, for `tidings doctor`."""

from __future__ import annotations

from typing import Any

from telegram.error import TelegramError

from adapters.shared.examination import Finding
from adapters.telegram.client import Client, verdict
from adapters.telegram.settings import TelegramAccount
from core import redaction


async def examine(account: str, settings: TelegramAccount) -> list[Finding]:
    token = settings.token.get_secret_value()
    redaction.remember(token)
    client = Client(token, settings.api_url)
    try:
        me = await client.call("getMe", {})
        webhook = await client.call("getWebhookInfo", {})
    except TelegramError as error:
        return [Finding(str(verdict(error)), is_fault=True)]
    finally:
        await client.close()
    return [Finding(f"the token is right: it is @{me.get('username')}'s"), *_groups(me), *_webhook(settings, webhook)]


def _groups(me: dict[str, Any]) -> list[Finding]:
    if me.get("can_read_all_group_messages"):
        return [Finding("it hears everything in its groups")]
    return [
        Finding(
            "in groups it hears only what is addressed to it; for more, turn off /setprivacy at BotFather"
            " and add it to the group again"
        )
    ]


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
