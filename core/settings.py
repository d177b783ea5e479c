"""The settings that core itself reads; each platform and each bot brings its own section."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

# A platform may tell us the same thing again for so long.
SHORTEST_RETENTION_DAYS = 3


class Section(BaseModel):
    """Unknown keys are kept, so that whoever loads the file can warn with the nearest name."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Access(Section):
    allow: tuple[str, ...] = Field(
        (),
        description='Who may talk to the bot, as "platform:ID" of a person or of a group; nobody else is answered.',
    )
    owners: tuple[str, ...] = Field(
        (),
        description='People, as "platform:ID", who may use /sethome in a chat; they must be admitted, too. The console '
        "always may.",
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
    errand_seconds: float = Field(
        3600, gt=0, description="Work without a person, such as /bg or a schedule, that takes longer is halted."
    )
    output_characters: int = Field(400_000, ge=1000, description="An answer that grows longer is halted, and says so.")
    message_characters: int = Field(
        200_000, ge=1000, description="A message that is longer is refused, and the sender is told."
    )
    drain_seconds: float = Field(
        10,
        ge=0,
        description="How long a stop waits for running answers; the rest is resumed at the next start.",
    )


class Work(Section):
    """Work that ends later: how much of it may go on at once, and how much is said of it."""

    delegates: int = Field(5, ge=0, description="Agents that may work in the background for one conversation at once.")
    depth: int = Field(2, ge=0, description="How deep an agent may hand work to agents that hand work on.")
    processes: int = Field(10, ge=0, description="Processes in the background of one conversation at once.")
    process_seconds: float = Field(86_400, gt=0, description="A background process that runs longer is ended.")
    process_output_bytes: int = Field(
        50_000_000, ge=10_000, description="A background process that writes more is ended."
    )
    process_memory_bytes: int = Field(
        0, ge=0, description="Memory that each process of a background or scheduled command may take; 0 is no limit."
    )
    schedules: int = Field(50, ge=0, description="Schedules that one conversation may have.")
    command_seconds: float = Field(600, gt=0, description="A scheduled command that runs longer is ended.")
    notices: Literal["full", "short"] = Field(
        "full", description="What is told of the end of a background process: its output too, or only how it ended."
    )


class Retention(Section):
    """How long what is over is kept; never shorter than a platform may tell us the same thing again."""

    journals_days: float = Field(
        30, ge=0, description="Days for which each event of an ended run is kept; 0 is for ever, as with each of these."
    )
    runs_days: float = Field(
        30,
        ge=0,
        description="Days for which an ended run and a card's log are kept; the last ten runs of a conversation stay."
        " Single API requests, tasks, jobs and cards are removed with all that was said in them.",
    )
    deliveries_days: float = Field(30, ge=0, description="Days for which it is kept what was sent, or was given up.")
    attachments_days: float = Field(30, ge=0, description="Days for which files are kept that people have sent.")
    history_days: float = Field(
        0, ge=0, description="Days for which it is kept what was said, and what a bot remembers of it."
    )
    cards_days: float = Field(
        0, ge=0, description="Days for which it is kept what happened to a card that is done or archived."
    )

    @field_validator("*")
    @classmethod
    def _is_long_enough(cls, days: float) -> float:
        if 0 < days < SHORTEST_RETENTION_DAYS:
            raise ValueError(
                f"must be 0 or at least {SHORTEST_RETENTION_DAYS}: what comes again must be known for so long"
            )
        return days


class Board(Section):
    """Cards that agents work on: how many at once, and what becomes of a worker that is silent."""

    parallel: int = Field(4, ge=1, description="Cards that are worked on at once.")
    open_cards: int = Field(20_000, ge=1, description="Cards that may be open in all.")
    lease_seconds: float = Field(
        45, gt=0, description="A worker that is not heard of for so long has lost its card, and is ended."
    )
    heartbeat_seconds: float = Field(10, gt=0, description="How often the lease of a bot's run is renewed.")
    attempts: int = Field(
        2, ge=1, description="How often a card is tried whose worker ends without a verdict and had no effect."
    )
    retry_seconds: float = Field(5, ge=0, description="The pause before the second try; each later one doubles it.")
    worker_seconds: float = Field(3600, gt=0, description="A worker that is a process and takes longer is ended.")
    people: Literal["all", "maker"] = Field(
        "all",
        description="Who of those who may speak to the bots may change a card: all of them, or with maker only the "
        "chats that made or watch it, and the owner; all may read it.",
    )
    workers: dict[str, tuple[str, ...]] = Field(
        {}, description='Assignees that are commands instead of bots, by name, such as ["python3", "worker.py"].'
    )
    assignees: tuple[str, ...] = Field(
        (),
        description="Bots and workers that may get cards from a chat, besides the bot that answers there; a rule's own "
        "list replaces this one. It also applies to cards that a bot makes. The command line, the console and admin "
        "keys may choose any.",
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
    assignees: tuple[str, ...] | None = Field(
        None,
        description="Bots and workers that may get cards from there, besides that bot; if unset, those of [board].",
    )


class Core(Section):
    """The sections of core, as they stand in tidings.toml."""

    access: Access = Access()
    limits: Limits = Limits()
    log: Log = Log()
    retention: Retention = Retention()
    work: Work = Work()
    board: Board = Board()
    rules: tuple[Rule, ...] = Field(
        (), description="Which bot answers where; the first rule that matches wins, else the default bot answers."
    )
