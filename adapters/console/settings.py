"""The [console] section of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import Field

from tidings.core.settings import Section


class ConsoleSettings(Section):
    enabled: bool = Field(True, description="Whether `tidings chat` may talk to the bot.")
    name: str = Field("", description="The name before the bot's lines; empty is the bot's own name.")

    def by_account(self) -> Mapping[str, Self]:
        """The configured accounts by name; none means that the platform is off."""
        return {"main": self} if self.enabled else {}
