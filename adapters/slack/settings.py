"""The [slack] section of the settings: one workspace, or several by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, model_validator

from tidings.adapters.shared import accounts, proxy
from tidings.core.settings import Section

Rule = Literal["addressed", "all", "never"]


class SlackAccount(Section):
    bot_token: SecretStr = Field(SecretStr(""), description="The bot's token, which begins with xoxb-; empty is off.")
    app_token: SecretStr = Field(
        SecretStr(""), description="The app's token, which begins with xapp-: events come by Socket Mode."
    )
    signing_secret: SecretStr = Field(
        SecretStr(""), description="Instead of app_token: events come by HTTP to /slack/events, signed with this."
    )
    api_url: str = Field("https://slack.com/api/", description="Slack's Web API, with the slash at its end.")
    proxy: str = Field("", description=proxy.ABOUT)
    channels: Rule = Field(
        "addressed",
        description='When to answer in channels: "addressed" (mentioned, or in a thread of its own), "all" or "never".',
    )
    chats: dict[str, Rule] = Field(
        {}, description='The same for single channels by their id, as { "C0123456" = "all" }.'
    )
    reactions: bool = Field(True, description="Whether reactions show that a message was seen, done or failed.")
    native_streams: bool = Field(True, description="Whether growing answers in threads use Slack's own streams.")
    unfurl: bool = Field(False, description="Whether links in answers show a preview.")
    mentions: bool = Field(False, description="Whether answers may mention people; never whole channels.")
    prompts: tuple[str, ...] = Field((), description="Up to four suggestions in a new assistant pane.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        proxy.check(self.proxy)
        if not re.match(r"https?://[^/].*/$", self.api_url):
            raise ValueError("api_url must begin with https:// or http:// and end with a slash")
        bot, app = self.bot_token.get_secret_value(), self.app_token.get_secret_value()
        if bot and not bot.startswith("xoxb-"):
            raise ValueError("bot_token must begin with xoxb-: it is under OAuth & Permissions")
        if app and not app.startswith("xapp-"):
            raise ValueError("app_token must begin with xapp-: it is under Basic Information, App-Level Tokens")
        if bot and not app and not self.signing_secret.get_secret_value():
            raise ValueError("bot_token needs app_token (Socket Mode) or signing_secret (HTTP events) beside it")
        return self

    def rule(self, channel: str) -> Rule:
        return self.chats.get(channel, self.channels)


class SlackSettings(SlackAccount):
    accounts: dict[str, SlackAccount] = Field(
        {}, description="More workspaces by name, each a table with the same keys; what one leaves out is as above."
    )

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, values: Any) -> Any:
        return accounts.inherit(values, "bot_token", "app_token")

    @model_validator(mode="after")
    def _names_are_plain(self) -> Self:
        tokens = {name: account.bot_token.get_secret_value() for name, account in self.accounts.items()}
        accounts.check(self.bot_token.get_secret_value(), tokens, "bot_token")
        return self

    def by_account(self) -> Mapping[str, SlackAccount]:
        """What is configured, by account; nothing means that the platform is off."""
        main = {"main": self} if self.bot_token.get_secret_value() else {}
        return {**main, **self.accounts}
