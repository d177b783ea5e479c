"""The settings that core itself reads; each platform and each bot adds a section of its own."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from tidings.core.busy import Busy
from tidings.core.roles import GIVEN, Permission, Role

# A platform may repeat an event for this long.
SHORTEST_RETENTION_DAYS = 3


class Section(BaseModel):
    """A section of the settings file; unknown keys are kept, so that the loader can suggest the nearest name."""

    model_config = ConfigDict(extra="allow", frozen=True)


# These permissions never go below these roles, whatever the settings say.
LOWEST = {
    Permission.APPROVE: Role.MEMBER,
    Permission.APPROVE_OTHERS: Role.ADMIN,
    Permission.HOME: Role.ADMIN,
    Permission.PEOPLE: Role.ADMIN,
    Permission.OPERATE: Role.OWNER,
}


T = TypeVar("T")
# A setting that may be left to others; people may write that as "", too.
Unset = Annotated[T | None, BeforeValidator(lambda given: None if given == "" else given)]


class Access(Section):
    owners: tuple[str, ...] = Field(
        (), description='Owners, as "platform:ID" of people. An owner may do everything; the console always is one.'
    )
    admins: tuple[str, ...] = Field(
        (), description='Admins, as "platform:ID" of people. Admins admit people and stop what others began.'
    )
    allow: tuple[str, ...] = Field(
        (),
        description='Who may talk to the bot, as "platform:ID": a person as a member, everyone in a group as a guest.',
    )
    bots: tuple[str, ...] = Field(
        (),
        description='Other bots that are answered like guests, as "platform:ID"; all others are ignored, also in groups'
        " that allow names.",
    )
    strangers: Literal["pair", "tell", "ignore"] = Field(
        "pair",
        description="What a stranger who writes in private gets: pair (a code, and you are asked), tell (their id),"
        " or ignore (nothing).",
    )
    settings_only: bool = Field(
        False,
        description="Whether only the people in these settings are admitted; stored people then count as strangers.",
    )
    requires: dict[Permission, Role] = Field(
        {},
        description="The lowest role for a permission (talk, basics, work, approve, approve_others, others, home,"
        ' people, operate), such as { approve = "member" }.',
    )

    @field_validator("requires")
    @classmethod
    def _is_safe(cls, requires: dict[Permission, Role]) -> dict[Permission, Role]:
        for permission, role in requires.items():
            if role not in GIVEN or not role.includes(LOWEST.get(permission, Role.GUEST)):
                raise ValueError(f"{permission} cannot be given to the role {role}")
        return requires


class Approvals(Section):
    """How people are asked before a bot uses a tool with an effect; what is asked about stands with each bot."""

    minutes: float = Field(
        30,
        gt=0,
        description="How long a question waits for an answer; without one, the tool does not run.",
    )
    api_seconds: float = Field(
        60, gt=0, description="How long a request over HTTP without a stream waits for an answer."
    )
    talk_minutes: float = Field(60, gt=0, description="How long an approval for a talk holds.")
    always_days: float = Field(30, gt=0, description="How long an approval for always holds.")
    members_approve: bool = Field(
        False, description="Whether members may approve what a bot does for them; admins and owners always may."
    )


class Groups(Section):
    memory: Literal["chat", "member"] = Field(
        "chat", description="What a bot remembers in groups: one conversation per chat, or one for each member."
    )
    bot_exchanges: int = Field(
        1,
        ge=0,
        description="How many messages of other bots are answered in a chat until a person writes there again.",
    )


class Limits(Section):
    runs: int = Field(1000, ge=1, description="Runs at the same time; further messages wait.")
    queued_per_conversation: int = Field(
        200,
        ge=1,
        description="Messages that may wait in one conversation; then the sender is told to slow down.",
    )
    queued_per_person: int = Field(
        2_000,
        ge=1,
        description="Messages of one person that may wait in all conversations together; further ones are refused.",
    )
    queued: int = Field(20_000, ge=1, description="Messages that may wait in all conversations together.")
    busy: Busy = Field(
        Busy.QUEUE,
        description="What becomes of a message that comes while an answer is running: queue (answered next), collect"
        " (all that came meanwhile is answered together), steer (the running answer takes it into account) or"
        " interrupt (the running answer is stopped). A rule or a bot may have its own, and /busy changes it in a chat.",
    )
    burst_seconds: float = Field(
        0.8,
        ge=0,
        le=10,
        description="Messages that a person sends within this time of each other are answered together; 0 answers each"
        " at once. Requests over HTTP and the console are never held back.",
    )
    run_seconds: float = Field(600, gt=0, description="A run that takes longer is halted, and its answer says so.")
    errand_seconds: float = Field(
        3600, gt=0, description="Work that no person waits for, such as /bg or a schedule, is halted after this time."
    )
    output_characters: int = Field(
        400_000, ge=1000, description="An answer that grows longer is halted, and says so at its end."
    )
    message_characters: int = Field(
        200_000, ge=1000, description="A longer message is refused, and the sender is told."
    )
    drain_seconds: float = Field(
        10,
        ge=0,
        description="How long a stop waits for running answers; unfinished ones resume at the next start.",
    )


# More than any allowance; the store counts no further than a thousand times this.
MOST = 10**15


class Allowance(Section):
    """What somebody may use; 0 means no limit."""

    messages: int = Field(0, ge=0, le=MOST, description="Messages a minute; here and below, 0 means no limit.")
    runs: int = Field(0, ge=0, le=MOST, description="Answers a day.")
    tokens: int = Field(0, ge=0, le=MOST, description="Tokens a day, to the model and from it.")
    money: float = Field(0, ge=0, le=MOST, description="US dollars a day, by the list prices of the models.")

    @property
    def has_day(self) -> bool:
        return bool(self.runs or self.tokens or self.money)

    @property
    def is_limited(self) -> bool:
        return self.has_day or bool(self.messages)


class PersonAllowance(Allowance):
    zone: str = Field("", description="The time zone of this person's days, such as Europe/Berlin.")

    @field_validator("zone")
    @classmethod
    def _is_known(cls, zone: str) -> str:
        return known_zone(zone)


class Allowances(Section):
    """What people, chats, bots and the gateway may use in a day; nothing is limited by default."""

    zone: str = Field("", description="The time zone in which a day begins; empty means this machine's.")
    gateway: Allowance = Field(Allowance(), description="All of them together; you are told at 80 % and at 100 %.")
    roles: dict[Role, PersonAllowance] = Field({}, description="Each person with a role, as [allowances.roles.guest].")
    people: dict[str, PersonAllowance] = Field(
        {},
        description='One person, instead of what the role has, as [allowances.people."platform:ID"]; all linked'
        " identities count together.",
    )
    chats: dict[str, Allowance] = Field(
        {}, description='Everybody in a chat together, as [allowances.chats."platform:ID"].'
    )
    bots: dict[str, Allowance] = Field({}, description="Everybody who talks to a bot, as [allowances.bots.NAME].")

    @field_validator("zone")
    @classmethod
    def _is_known(cls, zone: str) -> str:
        return known_zone(zone)

    @property
    def is_empty(self) -> bool:
        tables = (*self.roles.values(), *self.people.values(), *self.chats.values(), *self.bots.values())
        return not any(each.is_limited for each in (self.gateway, *tables))


def known_zone(name: str) -> str:
    """Raises ValueError for a name that is not a time zone."""
    try:
        if name:
            ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r}; write for example Europe/Berlin or UTC") from None
    return name


class Work(Section):
    """Limits for work that starts or ends later, and how much is reported about it."""

    delegates: int = Field(5, ge=0, description="Agents that may work in the background for one conversation at once.")
    depth: int = Field(2, ge=0, description="How many levels deep agents may delegate work to further agents.")
    processes: int = Field(10, ge=0, description="Background processes of one conversation at once.")
    process_seconds: float = Field(86_400, gt=0, description="A background process is ended after this time.")
    process_output_bytes: int = Field(
        50_000_000, ge=10_000, description="A background process that writes more is ended."
    )
    process_memory_bytes: int = Field(
        0, ge=0, description="Memory for each process of a background or scheduled command; 0 means no limit."
    )
    schedules: int = Field(50, ge=0, description="Schedules that one conversation may have.")
    command_seconds: float = Field(600, gt=0, description="A scheduled command is ended after this time.")
    notices: Literal["full", "short"] = Field(
        "full",
        description="What a notice about an ended background process contains: also its output, or only how it ended.",
    )


class Terminal(Section):
    """The fence around commands: of the tool terminal, in the background, and of schedules."""

    backend: Literal["sandbox", "container", "ssh", "local"] = Field(
        "sandbox",
        description="Where commands run: sandbox (fenced in on this machine), container, ssh (on another host), or"
        " local (without any fence: a command can do what the gateway can).",
    )
    network: Literal["off"] | tuple[str, ...] = Field(
        "off",
        description='What commands in the sandbox can reach: "off", or a list of public hosts, such as'
        ' ["packages.example.com"].',
    )
    private_hosts: tuple[str, ...] = Field(
        (),
        description="Hosts that commands may reach although they are not public, as host or host:port, such as your"
        " own package index.",
    )
    readable: tuple[str, ...] = Field(
        (), description="More folders that commands in the sandbox may read, such as /opt/tools."
    )
    memory_bytes: int = Field(
        4_000_000_000, ge=0, description="Memory for each process of a command; here and below, 0 means no limit."
    )
    processes: int = Field(256, ge=0, description="Processes and threads of one command at once.")
    disk_bytes: int = Field(
        2_000_000_000, ge=0, description="A command is ended when its workspace holds more than this."
    )
    temporary_bytes: int = Field(
        500_000_000, ge=1_000_000, description="How much the private /tmp of a command holds, in memory."
    )
    engine: Literal["podman", "docker"] = Field("podman", description="For container: the program that runs it.")
    image: str = Field("", description="For container: the image, such as docker.io/library/debian:12.")
    host: str = Field("", description="For ssh: the host on which commands run.")
    port: int = Field(22, ge=1, le=65_535, description="For ssh: the port of that host.")
    user: str = Field("", description="For ssh: the user on that host; better one with nothing to lose.")
    identity_file: str = Field("", description="For ssh: the file of the private key.")
    known_hosts: str = Field("", description="For ssh: the file with the host's key; an unknown host is refused.")
    folder: str = Field("tidings", description="For ssh: the folder there that holds a folder for each conversation.")

    @field_validator("host", "user", "image")
    @classmethod
    def _is_no_option(cls, name: str) -> str:
        if name.startswith("-") or any(letter.isspace() for letter in name):
            raise ValueError("must be a name, without spaces and without a dash at its start")
        return name

    @model_validator(mode="after")
    def _is_complete(self) -> Terminal:
        needed = {"container": ("image",), "ssh": ("host", "user", "known_hosts")}.get(self.backend, ())
        for name in needed:
            if not getattr(self, name):
                raise ValueError(f'backend = "{self.backend}" needs {name}')
        if self.backend != "sandbox" and (self.network != "off" or self.private_hosts):
            raise ValueError(f'network by list is for backend = "sandbox", not for "{self.backend}"')
        return self

    @property
    def by_list(self) -> bool:
        """Whether commands reach some hosts."""
        return self.network != "off" or bool(self.private_hosts)


class Retention(Section):
    """How long finished work is kept: at least as long as a platform may repeat an event."""

    journals_days: float = Field(
        30, ge=0, description="Days to keep the events of an ended run; here and below, 0 means for ever."
    )
    runs_days: float = Field(
        30,
        ge=0,
        description="Days to keep ended runs and the logs of cards; the last ten runs of a conversation always stay."
        " A single API request, task, job or card is removed with its whole conversation.",
    )
    deliveries_days: float = Field(30, ge=0, description="Days to keep deliveries that were sent or given up.")
    attachments_days: float = Field(30, ge=0, description="Days to keep the files that people have sent.")
    history_days: float = Field(
        0, ge=0, description="Days to keep what was said in conversations, and what a bot remembers of it."
    )
    cards_days: float = Field(0, ge=0, description="Days to keep the events of a card that is done or archived.")
    audit_days: float = Field(365, ge=0, description="Days to keep the audit trail.")
    usage_days: float = Field(400, ge=0, description="Days to keep what was used day by day; the sums stay.")

    @field_validator("*")
    @classmethod
    def _is_long_enough(cls, days: float) -> float:
        if 0 < days < SHORTEST_RETENTION_DAYS:
            raise ValueError(
                f"must be 0 or at least {SHORTEST_RETENTION_DAYS}: a platform may repeat a message for that long"
            )
        return days


class Board(Section):
    """Limits for cards on the board, and rules for their workers."""

    parallel: int = Field(4, ge=1, description="Cards in progress at the same time.")
    open_cards: int = Field(20_000, ge=1, description="Cards that may be open in total.")
    lease_seconds: float = Field(
        45, gt=0, description="A worker that is silent for this long loses its card and is ended."
    )
    heartbeat_seconds: float = Field(10, gt=0, description="How often the lease of a bot's run is renewed.")
    attempts: int = Field(
        2, ge=1, description="Attempts at a card whose worker ends without a verdict and without an effect."
    )
    retry_seconds: float = Field(
        5, ge=0, description="The pause before the second attempt; it doubles before each later one."
    )
    worker_seconds: float = Field(3600, gt=0, description="A worker process is ended after this time.")
    people: Literal["all", "maker"] = Field(
        "all",
        description="Who may change a card: all people who may talk to the bots, or with maker only the chats that "
        "made or watch the card, and the owner. All may read it.",
    )
    workers: dict[str, tuple[str, ...]] = Field(
        {}, description='Workers that are commands instead of bots, by name, such as ["python3", "worker.py"].'
    )
    assignees: tuple[str, ...] = Field(
        (),
        description="Bots and workers that may get cards from a chat, besides the bot that answers there; a rule may "
        "have its own list instead. Cards that a bot makes follow the same list. The command line, the console and "
        "admin keys may choose any assignee.",
    )


class Log(Section):
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The lowest level that is logged: debug, info, warning or error."
    )
    format: Literal["auto", "text", "json"] = Field(
        "auto",
        description="The format of log lines: text, json, or auto: text in a terminal and JSON elsewhere.",
    )


class Rule(Section):
    """Which bot answers where, and how it behaves there; an empty field matches anything.

    A rule for a chat covers its threads.
    """

    # People may write an id as a number.
    model_config = ConfigDict(coerce_numbers_to_str=True)

    platform: str = Field("", description="The platform; here and below, empty means any.")
    account: str = Field("", description="The account on that platform.")
    server: str = Field("", description="The id of the server (guild) or workspace.")
    chat: str = Field("", description="The id of the chat.")
    thread: str = Field("", description="The id of the thread in that chat; empty means the whole chat.")
    person: str = Field("", description='A person, as "platform:ID"; their other linked identities count too.')
    bot: str = Field("", description="The name of the bot that answers there; empty leaves that to later rules.")
    busy: Unset[Busy] = Field(
        None, description="What becomes of messages that come while an answer is running there: see [limits] busy."
    )
    assignees: tuple[str, ...] | None = Field(
        None,
        description="Bots and workers that may get cards from there, besides that bot; if unset, the list of [board].",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Rule:
        if not self.bot and not self.busy:
            raise ValueError("needs bot or busy: which bot answers there, or what it does while it is busy")
        if not self.bot and self.assignees is not None:
            raise ValueError("assignees needs bot: the list is for the chats where that bot answers")
        return self


class Core(Section):
    """The sections of core, as they stand in tidings.toml."""

    access: Access = Access()
    approvals: Approvals = Approvals()
    groups: Groups = Groups()
    limits: Limits = Limits()
    allowances: Allowances = Allowances()
    log: Log = Log()
    retention: Retention = Retention()
    work: Work = Work()
    terminal: Terminal = Terminal()
    board: Board = Board()
    rules: tuple[Rule, ...] = Field(
        (),
        description="Which bot answers where; the first rule that matches and names a bot wins, else the default bot"
        " answers. The same goes for busy.",
    )

    @property
    def permissions(self) -> Access:
        """Who may do what, together with what [approvals] says about members."""
        if not self.approvals.members_approve:
            return self.access
        requires = {Permission.APPROVE: Role.MEMBER, **self.access.requires}
        return self.access.model_copy(update={"requires": requires})
