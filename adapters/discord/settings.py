"""The [discord] section of the settings: one bot account, or several by name."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, SecretStr, model_validator

from tidings.adapters.shared.accounts import Account, Accounts, Rule


class DiscordAccount(Account):
    token: SecretStr = Field(SecretStr(""), description="The bot's token from the developer portal; empty is off.")
    api_url: str = Field("https://discord.com/api/v10", description="Discord's REST API, up to and including /api/v10.")
    gateway_url: str = Field("wss://gateway.discord.gg/", description="Discord's gateway.")
    message_content: bool = Field(
        True,
        description="Whether it reads messages that do not mention it; the portal must allow the intent, too.",
    )
    channels: Rule = Field(
        "addressed",
        description='When to answer in channels: "addressed" (mentioned, replied to, commanded, in its own thread),'
        ' "mentioned" (only mentioned or commanded), "all" or "never".',
    )
    chats: dict[str, Rule] = Field(
        {}, description='The same for single channels by their id, such as { "123456789012345678" = "all" }.'
    )
    threads: bool = Field(
        False, description="Whether a mention in a channel opens a thread, and the conversation lives there."
    )
    previews: bool = Field(False, description="Whether links in answers show a preview.")
    missed_hours: float = Field(
        24.0, ge=0, description="Messages sent while the bot was away are answered if they are not older than that."
    )
    missed_messages: int = Field(200, ge=0, description="How many of them are looked at in each channel.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if re.search(r"[^!-~]", self.secret):
            raise ValueError('token must be as the developer portal shows it, without spaces and without "Bot"')
        if not re.match(r"https?://[^/]", self.api_url):
            raise ValueError("api_url must be an address that begins with https:// or http://")
        if not re.match(r"wss?://[^/]", self.gateway_url):
            raise ValueError("gateway_url must be an address that begins with wss:// or ws://")
        return self

    def rule(self, channel: str) -> Rule:
        return self.chats.get(channel, self.channels)


class DiscordSettings(DiscordAccount, Accounts[DiscordAccount]):
    """One account or several."""
