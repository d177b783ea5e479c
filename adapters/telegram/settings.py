"""The [telegram] section of the settings: one bot account, or several by name."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from tidings.adapters.shared.accounts import Account, Accounts, Rule

SECRET_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,256}")


class TelegramAccount(Account):
    token: SecretStr = Field(SecretStr(""), description="The bot's token, as BotFather gave it; empty is off.")
    mode: Literal["polling", "webhook"] = Field(
        "polling", description="How messages come in: polling works everywhere, webhook needs a public address."
    )
    webhook_url: str = Field("", description="For webhooks: the public https address that leads to our listener.")
    webhook_secret: SecretStr = Field(
        SecretStr(""), description="For webhooks: 16 or more letters, digits, _ or -; what lacks it is turned away."
    )
    api_url: str = Field(
        "https://api.telegram.org", description="The Bot API server: the public one, or one of your own."
    )
    groups: Rule = Field(
        "addressed",
        description='When to answer in groups: "addressed" (mentioned, replied to, commanded), "mentioned" (a reply'
        ' does not count), "all" or "never".',
    )
    chats: dict[str, Rule] = Field(
        {}, description='The same for single groups by their id, such as { "-1001234567890" = "all" }.'
    )
    previews: bool = Field(False, description="Whether links in answers show a preview.")
    tell_gaps: bool = Field(
        False,
        description="After more than 23 hours offline, whether to tell recent chats that messages may be lost.",
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.secret and not re.fullmatch(r"\d+:[\w-]+", self.secret):
            raise ValueError("token must look like 123456789:AAF…, as BotFather gave it")
        if not re.match(r"https?://[^/]", self.api_url):
            raise ValueError("api_url must be an address that begins with https:// or http://")
        if self.mode == "webhook":
            if not re.match(r"https?://[^/]", self.webhook_url):
                raise ValueError('mode = "webhook" needs webhook_url, the public https address of this listener')
            if not SECRET_TOKEN.fullmatch(self.webhook_secret.get_secret_value()):
                raise ValueError(
                    'mode = "webhook" needs webhook_secret: 16 to 256 letters, digits, _ or -; '
                    "make one with: openssl rand -hex 32"
                )
        return self

    def rule(self, chat: str) -> Rule:
        return self.chats.get(chat, self.groups)


class TelegramSettings(TelegramAccount, Accounts[TelegramAccount]):
    """One account or several."""
