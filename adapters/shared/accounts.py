"""The settings that every account on a platform elsewhere has, and several accounts in one section."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, cast

from pydantic import Field, SecretStr, model_validator

from tidings.adapters.shared import proxy
from tidings.core.settings import Section

ACCOUNT_NAME = re.compile(r"[A-Za-z0-9_-]+")

# "mentioned" is narrower than "addressed": a reply to a message of the bot's, or a thread of its own, does not count.
Rule = Literal["addressed", "mentioned", "all", "never"]


class Account(Section):
    # The settings that no account takes from its section; the first is the token that switches the account on.
    own: ClassVar[tuple[str, ...]] = ("token",)

    proxy: str = Field("", description=proxy.ABOUT)
    reactions: bool = Field(
        True, description="Whether reactions show how a message stands: seen, waiting, at work, done or failed."
    )

    @model_validator(mode="after")
    def _proxy_is_known(self) -> Self:
        proxy.check(self.proxy)
        return self

    @property
    def secret(self) -> str:
        """The token; empty where the account is off."""
        found: SecretStr = getattr(self, self.own[0])
        return found.get_secret_value()


A = TypeVar("A", bound=Account)


class Accounts(Account, Generic[A]):
    """A section: its own settings are the account `main`, and more accounts stand below it by name."""

    accounts: dict[str, A] = Field(
        {}, description="More accounts by name, each a table with the same keys; what one leaves out is as above."
    )

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or not isinstance(values.get("accounts"), Mapping):
            return values
        shared = {name: value for name, value in values.items() if name not in ("accounts", *cls.own)}
        accounts = {
            name: {**shared, **account} if isinstance(account, Mapping) else account
            for name, account in values["accounts"].items()
        }
        return {**values, "accounts": accounts}

    @model_validator(mode="after")
    def _tokens_are_theirs(self) -> Self:
        token = self.own[0]
        for name, account in self.accounts.items():
            if not ACCOUNT_NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot name an account: use letters, digits, _ and - only")
            if not account.secret:
                raise ValueError(f"accounts.{name} has no {token}")
        if self.secret and "main" in self.accounts:
            raise ValueError(f"the {token} of this section is the account main already; name the other one otherwise")
        known = [each.secret for each in (self, *self.accounts.values()) if each.secret]
        if len(set(known)) < len(known):
            raise ValueError(f"two accounts have the same {token}")
        return self

    def by_account(self) -> Mapping[str, A]:
        """The configured accounts by name; none means that the platform is off."""
        main = {"main": cast(A, self)} if self.secret else {}
        return {**main, **self.accounts}
