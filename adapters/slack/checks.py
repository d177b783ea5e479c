"""Asks Slack whether an account is set up right, for `tidings doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from tidings.adapters.shared.checks import Finding, Guide, Need, examine_clock, examine_way
from tidings.adapters.slack.client import CONNECT, Client
from tidings.adapters.slack.settings import SlackAccount
from tidings.core import redaction
from tidings.core.errors import SendError

# What each scope is for; without the first nothing works.
WRITE = "chat:write"
SCOPES = {
    WRITE: "say anything",
    "im:history": "hear direct messages",
    "app_mentions:read": "hear who mentions it",
    "channels:history": "hear threads in channels, and find out what became of an answer",
    "groups:history": "hear threads in private channels, and find out what became of an answer",
    "im:write": "write to a person first",
    "users:read": "know people by their names",
    "files:read": "read files",
    "files:write": "send files",
    "reactions:write": "show by reactions how it stands",
    "assistant:write": "use the assistant pane",
    "commands": "take /tidings",
}

GUIDE = Guide(
    "Slack",
    (
        "At api.slack.com/apps press Create New App, From a manifest, and paste deploy/slack-manifest.yaml.",
        "Under Basic Information, App-Level Tokens, make one with the scope connections:write: it begins with xapp-.",
        "Under Install App, install it in your workspace; the Bot User OAuth Token there begins with xoxb-.",
    ),
    (Need("bot_token", "The bot token (xoxb-…)"), Need("app_token", "The app-level token (xapp-…)")),
    "in Slack, open your app under Apps and send it any word",
)


async def examine(account: str, settings: SlackAccount) -> list[Finding]:
    for secret in (settings.bot_token, settings.app_token, settings.signing_secret):
        if value := secret.get_secret_value():
            redaction.remember(value)
    client = Client(settings.bot_token.get_secret_value(), settings.api_url, settings.proxy)
    try:
        me = await client.call("auth.test")
        findings = [Finding(f"the token is right: it is {me.get('user')}'s in {me.get('team')}")]
        findings += _scopes(client.scopes, settings)
        findings.append(await _way_in(client, settings))
        findings += examine_way(settings.api_url, settings.proxy)
        findings += await examine_clock(settings.api_url, settings.proxy)
    except SendError as error:
        return [*examine_way(settings.api_url, settings.proxy), Finding(str(error), is_fault=True)]
    finally:
        await client.close()
    return findings


def _scopes(given: tuple[str, ...] | None, settings: SlackAccount) -> Iterator[Finding]:
    if given is None:
        return
    lacking = [scope for scope in SCOPES if scope not in given and (settings.reactions or scope != "reactions:write")]
    for scope in lacking:
        yield Finding(
            f"the app lacks the scope {scope} and cannot {SCOPES[scope]}: add it under OAuth & Permissions, then"
            " install the app again",
            is_fault=scope == WRITE,
            is_odd=True,
        )
    if not lacking:
        yield Finding("it has every scope that it needs")


async def _way_in(client: Client, settings: SlackAccount) -> Finding:
    token = settings.app_token.get_secret_value()
    if not token:
        return Finding("events come by HTTP: Slack must be told the address that ends in /slack/events")
    try:
        await client.call(CONNECT, token=token)
    except SendError as error:
        return Finding(f"Socket Mode does not work: {error}", is_fault=True)
    return Finding("events come by Socket Mode")
