"""The [slack] section of the settings: one workspace, or several by name."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, SecretStr, model_validator

from tidings.adapters.shared.accounts import Account, Accounts, Rule


class SlackAccount(Account):
    own = ("bot_token", "app_token")

    bot_token: SecretStr = Field(SecretStr(""), description="The bot's token, which begins with xoxb-; empty is off.")
    app_token: SecretStr = Field(
        SecretStr(""), description="The app's token, which begins with xapp-: events come by Socket Mode."
    )
    signing_secret: SecretStr = Field(
        SecretStr(""), description="Instead of app_token: events come by HTTP to /slack/events, signed with this."
    )
    api_url: str = Field("https://slack.com/api/", description="Slack's Web API, with the slash at its end.")
    channels: Rule = Field(
        "addressed",
        description='When to answer in channels: "addressed" (mentioned, or in a thread of its own), "mentioned" (a'
        ' thread of its own does not count), "all" or "never".',
    )
    chats: dict[str, Rule] = Field(
        {}, description='The same for single channels by their id, as { "C0123456" = "all" }.'
    )
    native_streams: bool = Field(True, description="Whether growing answers in threads use Slack's own streams.")
    unfurl: bool = Field(False, description="Whether links in answers show a preview.")
    mentions: bool = Field(False, description="Whether answers may mention people; never whole channels.")
    prompts: tuple[str, ...] = Field((), description="Up to four suggestions in a new assistant pane.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
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


class SlackSettings(SlackAccount, Accounts[SlackAccount]):
    """One account or several."""
