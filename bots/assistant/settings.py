"""The settings of a bot with a model: which model, which tools, and how much one run may spend."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field, SecretStr, field_validator, model_validator

from tidings.core.settings import Section


class BotLimits(Section):
    """At any of these limits the model sums up without tools, and the answer says so; 0 means no limit."""

    requests: int = Field(40, ge=0, description="Requests to the model in one run.")
    tokens: int = Field(1_000_000, ge=0, description="Tokens in one run, in and out together.")
    money: float = Field(0.0, ge=0, description="US dollars in one run, by known list prices.")
    delegated: int = Field(20, ge=1, description="Requests to the model that delegated work may make.")
    alone_seconds: float = Field(
        3000.0, ge=0, description="Seconds of work without a person; below [limits] errand_seconds."
    )
    seconds: float = Field(540.0, ge=0, description="Seconds of one run; below [limits] run_seconds.")


class Rail(Section):
    """After how many repetitions the model is warned, and the run is halted."""

    warn: int = Field(ge=1)
    halt: int = Field(ge=1)

    @model_validator(mode="before")
    @classmethod
    def _pair(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = value.split(",")
        if isinstance(value, (list, tuple)) and len(value) == 2:
            return {"warn": value[0], "halt": value[1]}
        return value

    @model_validator(mode="after")
    def _ordered(self) -> Rail:
        if self.halt <= self.warn:
            raise ValueError("must halt later than it warns, such as [2, 4]")
        return self


class Rails(Section):
    enabled: bool = Field(True, description="Whether a run that goes in circles is halted, with an explanation.")
    same_call: Rail = Field(Rail(warn=2, halt=4), description="The same call failing the same way: warn, halt.")
    one_tool: Rail = Field(Rail(warn=3, halt=6), description="One tool failing, with any arguments: warn, halt.")
    no_progress: Rail = Field(Rail(warn=4, halt=8), description="Calls in a row that bring nothing new: warn, halt.")


class Mode(StrEnum):
    """Whether a tool may act: at once, after people were asked, or never."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Approvals(Section):
    """Which tools act without asking people first; a tool with an effect asks unless something here allows it."""

    modes: dict[str, Mode] = Field(
        {},
        description="allow, ask or deny, by the name of a tool or group, by server.tool or server.*;"
        ' "*" is every tool with an effect.',
    )
    commands: tuple[str, ...] = Field(
        (), description='Commands of terminal that run without asking, such as "git status" or "ls *".'
    )
    trust_tainted: bool = Field(
        False, description="Whether allowed tools act without asking even after the bot has read texts of others."
    )


class McpServer(Section):
    """A server of tools by the Model Context Protocol: started by a command, or reached at an address."""

    command: tuple[str, ...] = Field((), description='The command that starts it, such as ["uvx", "some-server"].')
    url: str = Field("", description="Its address for streamable HTTP, instead of a command.")
    env: dict[str, SecretStr] = Field({}, description="Environment of the command, besides PATH, HOME and LANG.")
    headers: dict[str, SecretStr] = Field({}, description="Headers of each request, such as Authorization.")
    allow: tuple[str, ...] = Field((), description="Its tools that may act without asking.")
    idempotent: tuple[str, ...] = Field((), description="Its tools that may safely be repeated.")
    pure: tuple[str, ...] = Field((), description="Its tools that only read.")
    call_seconds: float = Field(60.0, gt=0, description="How long one call may take.")

    @model_validator(mode="after")
    def _one_way(self) -> McpServer:
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either a command or a url")
        return self


class ModelChoice(Section):
    """A model, with an address and a key if they differ from the provider's usual ones."""

    model: str = Field(
        "", description='"provider:name", such as "openai:gpt-5-mini"; setting it makes the assistant answer.'
    )
    base_url: str = Field("", description="Address of an OpenAI-compatible server, or another address of the provider.")
    api_key: SecretStr = Field(
        SecretStr(""),
        description='The key itself, "env:NAME" or "file:PATH"; empty takes the variable usual for the provider.',
    )

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"model": value} if isinstance(value, str) else value


class Assistant(ModelChoice):
    """The settings of `[bot]` and `[bots.NAME]` that concern a model; all are optional."""

    fallbacks: tuple[ModelChoice, ...] = Field(
        (), description="Models to ask, in order, when this one does not answer."
    )
    models: tuple[str, ...] = Field(
        (), description="The models that /model may choose; empty means any model of this provider."
    )
    title_model: str = Field(
        "", description="A model that gives each new talk a title; empty takes the first words of the talk."
    )
    persona: str = Field("", description="Who the bot is: a text, or the path of a Markdown file (ends in .md).")
    tools: tuple[str, ...] = Field(
        ("time", "files", "fetch_url", "notes"),
        description="What it may use: time, files, fetch_url, notes, and if named:"
        " terminal, send_message, schedules, delegate, board.",
    )
    send_to: tuple[str, ...] = Field(
        (), description="Targets of send_message, such as telegram:123; empty means everyone who is admitted."
    )
    fetch_hosts: tuple[str, ...] = Field((), description="Private hosts that fetch_url may reach.")
    mcp: dict[str, McpServer] = Field({}, description="MCP servers, by name.")
    approvals: Approvals = Field(Approvals(), description="Which tools ask people before they act.")
    limits: BotLimits = Field(BotLimits(), description="What one run may spend.")
    rails: Rails = Field(Rails(), description="When a run that goes in circles is halted.")
    connect_seconds: float = Field(10.0, gt=0, description="How long to wait for a connection to the provider.")
    read_seconds: float = Field(120.0, gt=0, description="How long to wait for the first byte of an answer.")
    stall_seconds: float = Field(
        60.0, gt=0, description="How long a stream may stay silent before it counts as broken."
    )
    retries: int = Field(3, ge=0, description="How often a model is asked again before the next fallback.")
    retry_seconds: float = Field(
        1.0, ge=0, description="The pause before the first retry; each later pause is twice as long."
    )
    stream: bool = Field(True, description="Whether the provider streams its answers.")
    needs_finish_reason: bool = Field(
        True,
        description="Whether an answer without a finish reason is a failure; false for servers that never send one.",
    )
    window_tokens: int = Field(0, ge=0, description="The model's window; 0 takes the known size, or 128,000.")
    images: bool | None = Field(None, description="Whether the model takes images; unset means as known for the model.")

    @field_validator("model")
    @classmethod
    def _named(cls, value: str) -> str:
        return value.strip()
