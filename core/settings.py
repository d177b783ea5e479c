"""The settings that core itself reads; each platform and each bot brings its own section."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """Unknown keys are kept, so that whoever loads the file can warn with the nearest name."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Access(Section):
    allow: tuple[str, ...] = Field(
        (),
        description='Who may talk to the bot, as "platform:ID" of a person or of a group; nobody else is answered.',
    )
    tell_strangers: bool = Field(
        True, description="Whether a stranger who writes to the bot alone is told, once an hour, how to be admitted."
    )


class Limits(Section):
    runs: int = Field(1000, ge=1, description="Runs at once; more messages wait their turn.")
    queued_per_conversation: int = Field(
        200,
        ge=1,
        description="Messages that may wait in one conversation before the sender is told to slow down.",
    )
    queued: int = Field(20_000, ge=1, description="Messages that may wait in all.")
    run_seconds: float = Field(600, gt=0, description="A run that takes longer is halted, and says so.")
    output_characters: int = Field(400_000, ge=1000, description="An answer that grows longer is halted, and says so.")
    message_characters: int = Field(
        200_000, ge=1000, description="A message that is longer is refused, and the sender is told."
    )
    drain_seconds: float = Field(
        10,
        ge=0,
        description="How long a stop waits for running answers; the rest is resumed at the next start.",
    )


class Log(Section):
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="How much is logged: debug, info, warning or error."
    )
    format: Literal["auto", "text", "json"] = Field(
        "auto", description="auto is text in a terminal and JSON otherwise."
    )


class Rule(Section):
    """Which bot answers where; an empty field matches anything, and a chat's rule holds in its threads."""

    # An id may be written as the number it looks like.
    model_config = ConfigDict(coerce_numbers_to_str=True)

    platform: str = Field("", description="The platform; empty means any, as with each of these.")
    account: str = Field("", description="The account on it.")
    chat: str = Field("", description="The id of the chat.")
    thread: str = Field("", description="The id of the thread in it; empty means the whole chat.")
    bot: str = Field(min_length=1, description="The name of the bot that answers there.")


class Core(Section):
    """The sections of core, as they stand in tidings.toml."""

    access: Access = Access()
    limits: Limits = Limits()
    log: Log = Log()
    rules: tuple[Rule, ...] = Field(
        (), description="Which bot answers where; the first rule that matches wins, else the default bot answers."
    )
