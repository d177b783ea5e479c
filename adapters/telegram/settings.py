"""The [telegram] section of the settings: one bot account, or several by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, model_validator

from tidings.adapters.shared import accounts, proxy
from tidings.core.settings import Section

Rule = Literal["addressed", "all", "never"]

SECRET_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,256}")


class TelegramAccount(Section):
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
    proxy: str = Field("", description=proxy.ABOUT)
    groups: Rule = Field(
        "addressed",
        description='When to answer in groups: "addressed" (mentioned, replied to, commanded), "all" or "never".',
    )
    chats: dict[str, Rule] = Field(
        {}, description='The same for single groups by their id, such as { "-1001234567890" = "all" }.'
    )
    reactions: bool = Field(True, description="Whether reactions show that a message was seen, done or failed.")
    previews: bool = Field(False, description="Whether links in answers show a preview.")
    tell_gaps: bool = Field(
        False,
        description="After more than 23 hours offline, whether to tell recent chats that messages may be lost.",
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        proxy.check(self.proxy)
        if self.token.get_secret_value() and not re.fullmatch(r"\d+:[\w-]+", self.token.get_secret_value()):
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


class TelegramSettings(TelegramAccount):
    accounts: dict[str, TelegramAccount] = Field(
        {}, description="More bots by name, each a table with the same keys; what one leaves out is as above."
    )

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, values: Any) -> Any:
        return accounts.inherit(values, "token")

    @model_validator(mode="after")
    def _names_are_plain(self) -> Self:
        tokens = {name: account.token.get_secret_value() for name, account in self.accounts.items()}
        accounts.check(self.token.get_secret_value(), tokens)
        return self

    def by_account(self) -> Mapping[str, TelegramAccount]:
        """What is configured, by account; nothing means that the platform is off."""
        main = {"main": self} if self.token.get_secret_value() else {}
        return {**main, **self.accounts}
