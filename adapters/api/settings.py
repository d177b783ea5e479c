"""The [http] section of the settings: the one listener, and the API on it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from tidings.core.settings import Section

# A stranger who reaches the port has all the time in the world to guess: 128 bits, as hexadecimal digits.
STRONG_CHARACTERS = 32
# So many neighbours differ in anything random of that length, and in nothing that repeats itself.
STRONG_PAIRS = 20
# What stands in the examples of this world, and is copied from there.
PLACEHOLDER = re.compile(
    "change.?(me|this)|your.?(api.?|secret.?)?key|password|placeholder|example|replace", re.IGNORECASE
)
ORIGIN = re.compile(r"https?://[^/\s*]+")


ToolItems = Literal["mcp_call", "function_call"]


class HttpSettings(Section):
    enabled: bool = Field(True, description="Whether the OpenAI-compatible API is served.")
    host: str = Field("127.0.0.1", description="The address to listen on; anything but loopback needs a strong key.")
    port: int = Field(8420, ge=0, le=65535, description="The port to listen on; 0 takes any free one.")
    key: SecretStr = Field(
        SecretStr(""), description="The owner's key; empty makes one at the first start, in api.key in the home."
    )
    hosts: tuple[str, ...] = Field(
        (), description="Names besides localhost by which clients may call us, such as the one of a proxy."
    )
    origins: tuple[str, ...] = Field(
        (), description='Web pages that may call us from a browser, such as "https://chat.example.org".'
    )
    connections: int = Field(512, ge=1, description="Connections at once; more are told to come back.")
    requests: int = Field(
        256, ge=1, description="Answers in work at once, the last eighth never one key's; more are told to come back."
    )
    stop_when_gone: bool = Field(
        True, description="Whether a chat or response whose client has gone is stopped; /v1/runs always goes on."
    )
    tool_items: ToolItems = Field(
        "mcp_call",
        description='How /v1/responses reports tools that ran here: "mcp_call", or "function_call" as before.',
    )
    unknown_model: Literal["default", "refuse"] = Field(
        "default", description='Who answers for an unknown model: "default", our default bot, or "refuse".'
    )

    @field_validator("origins")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        """Checks that origins are written as browsers write them."""
        plain = tuple(origin.rstrip("/").lower() for origin in origins)
        if wrong := [origin for origin in plain if not ORIGIN.fullmatch(origin)]:
            raise ValueError(f'{wrong[0]!r} is no origin: name each page\'s, such as "https://chat.example.org"')
        return plain

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        key = self.key.get_secret_value()
        if key and (fault := weakness(key)):
            raise ValueError(f"key {fault}; make one with: openssl rand -hex 32, or leave it out and one is made")
        if self.enabled and not key and not is_loopback(self.host):
            raise ValueError(
                f"host = {self.host!r} can be reached from outside, so a strong key must be set:"
                " TIDINGS_HTTP__KEY=$(openssl rand -hex 32)"
            )
        return self

    def by_account(self) -> Mapping[str, Self]:
        """The configured accounts by name; none means that the platform is off."""
        return {"main": self} if self.enabled else {}


def weakness(key: str) -> str:
    """Why a key could be guessed; empty for a strong key."""
    if len(key) < STRONG_CHARACTERS or (key.isdecimal() and len(key) * 10 < STRONG_CHARACTERS * 12):
        return f"is too short: {STRONG_CHARACTERS} random characters or more"
    if PLACEHOLDER.search(key) or len(set(pairwise(key))) < STRONG_PAIRS:
        return "can be guessed: take random characters"
    return ""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
