"""The [starter] section of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import Field, SecretStr

from tidings.core.settings import Section


class StarterSettings(Section):
    token: SecretStr = Field(SecretStr(""), description="The bot's token on starter; empty switches starter off.")
    address: str = Field("127.0.0.1:7000", description="Where starter's server listens, as host:port.")

    def by_account(self) -> Mapping[str, Self]:
        """The accounts to run, by name; an empty mapping switches the platform off."""
        return {"main": self} if self.token.get_secret_value() else {}
