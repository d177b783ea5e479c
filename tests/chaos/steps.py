"""What a scenario is made of: steps, platforms, and what may be seen of each message in the end."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from tests.simulators.paper.chats import Kind

# Whom the settings admit on every platform, as a member and as an owner; anybody else is a stranger.
PERSON = "7"
OWNER = "1"


class Fate(Enum):
    """What becomes of a message, by who its sender is when they say it and afterwards."""

    # Stored, and answered.
    TAKEN = auto()
    # A stranger's: answered once they are admitted, and never before.
    LATER = auto()
    # A stranger's or a blocked person's: neither stored nor answered.
    UNHEARD = auto()
    # Stored; its run is cut short, or never begins, because its person is removed or blocked.
    ENDED = auto()
    # Answered; what was promised in it is cancelled, because its person is removed.
    WITHDRAWN = auto()
    # Said while its sender is being removed or blocked: any of the others, and never more than one answer.
    OPEN = auto()
    # Said while its chat may be busy: answered alone or together with others, or cut short by the next one.
    SHARED = auto()


class Platform(NamedTuple):
    """One platform, most often of paper; each of its accounts is an adapter of its own."""

    name: str
    kind: Kind
    accounts: tuple[str, ...] = ("main",)
    # Short, so that a long answer has parts without being long.
    limit: int = 300

    @property
    def settles_doubts(self) -> bool:
        """A key or a look at the chat tells whether a send arrived, so no copy is ever sent twice."""
        return self.kind.keyed_for > 0 or self.kind.readback


class Say(NamedTuple):
    """A person writes; a key that was used before announces the same message by another event."""

    key: str
    where: str
    text: str
    chat: str = "1"
    thread: str = ""
    sender: str = PERSON
    # Of an album; its rows have the same.
    group: str = ""
    # The name of a file that comes with it.
    file: str = ""
    # False is said in a group, and not to us.
    addressed: bool = True
    # None is taken if the settings admit the sender, and unheard if not.
    fate: Fate | None = None
    # How the line begins that answers it besides, or instead of, a run.
    reply: str = ""
    # The platform and chat whose last code stands for {code} in the text.
    code: tuple[str, str] | None = None

    @property
    def becomes(self) -> Fate:
        return self.fate or (Fate.TAKEN if self.sender in (PERSON, OWNER) else Fate.UNHEARD)

    @property
    def is_stored(self) -> bool:
        """Whoever is not admitted, or does not speak to us, leaves no row behind."""
        return self.becomes is not Fate.UNHEARD and self.addressed

    @property
    def is_stored_at_once(self) -> bool:
        return self.is_stored and self.becomes not in (Fate.LATER, Fate.OPEN)

    @property
    def platform(self) -> str:
        return self.where.partition("@")[0]

    @property
    def account(self) -> str:
        return self.where.partition("@")[2] or "main"


class Edit(NamedTuple):
    """A person corrects what they said."""

    about: str
    platform: str
    text: str


class Delete(NamedTuple):
    about: str
    platform: str


class Do(NamedTuple):
    """Pulls a lever of a platform's: a fault is armed, a chat moves or is blocked."""

    platform: str
    lever: str
    arguments: tuple[object, ...]


class Press(NamedTuple):
    """A person presses a button below the newest message in a chat that says this."""

    platform: str
    chat: str
    about: str
    label: str
    sender: str = OWNER


class Told(NamedTuple):
    """What the bot says in a chat without answering a message there, so often."""

    platform: str
    chat: str
    begins: str
    times: int = 1
    # Only if that message began a task, which a kill may have kept it from.
    task_of: str = ""


class Wait(NamedTuple):
    seconds: float


class Stop(NamedTuple):
    """The gateway ends as it does on SIGTERM, and another starts."""


class Expected(NamedTuple):
    """What a person may see of one message when all has come to rest."""

    # The one answer when nothing is cut off, as one text.
    answer: str = ""
    outcome: str = "completed"
    # An effectful tool, which may leave the run interrupted instead.
    tool: str = ""
    # Told later, beside the answer; only a run that was interrupted may never have promised it.
    report: str = ""
    # Whatever was said until a person stopped it.
    is_open: bool = False
    # What comes with the answer.
    file: str = ""


Step = Say | Edit | Delete | Do | Press | Wait | Stop


class Scenario(NamedTuple):
    platforms: tuple[Platform, ...]
    steps: tuple[Step, ...]
    told: tuple[Told, ...] = ()
    # Every decision about people, as the audit trail has it: what was done, and the ids behind it.
    decisions: tuple[tuple[str, str], ...] = ()
    # Every stored identity in the end, with its role in the store.
    roles: tuple[tuple[str, str], ...] = ()
    # Which of them are one person, for each who has several.
    linked: tuple[tuple[str, ...], ...] = ()
    # How the question of each message that asks before it pays ends.
    asked: tuple[tuple[str, str], ...] = ()
    # Which message joins the run of which other one, as long as nothing is killed.
    joins: tuple[tuple[str, str], ...] = ()
    # The limit of the same name.
    burst_seconds: float = 0.0

    def said(self) -> dict[str, Say]:
        """Every message once, as it was corrected."""
        said = {step.key: step for step in reversed(self.steps) if isinstance(step, Say)}
        for step in self.steps:
            if isinstance(step, Edit):
                said[step.about] = said[step.about]._replace(text=step.text)
            elif isinstance(step, Delete):
                said[step.about] = said[step.about]._replace(text=DELETED)
        return said

    def moves(self) -> dict[tuple[str, str], str]:
        """(platform, chat) to where its people went."""
        return {(do.platform, str(do.arguments[0])): str(do.arguments[1]) for do in self._done("move")}

    def blocked(self) -> set[tuple[str, str]]:
        """(platform, chat) where the bot is turned away for a while."""
        return {(do.platform, str(do.arguments[0])) for do in self._done("block")}

    def _done(self, lever: str) -> list[Do]:
        return [step for step in self.steps if isinstance(step, Do) and step.lever == lever]

    def platform(self, name: str) -> Platform:
        return next(platform for platform in self.platforms if platform.name == name)


DELETED = "(deleted)"
STREAMED = ("This answer ", "grows while ", "a person ", "looks on.")
BROKEN = "the agent broke as it was told"
SLOW_SECONDS = 1.0
REPORT_SECONDS = 2.0
FRAIL_SECONDS = 1.0
# Later than any removal that follows, however many kills come between.
VOW_SECONDS = 20.0
# How long a run takes that hears what is said meanwhile: from step to step, and behind the last one.
STEPS = 3
STEP_SECONDS = 1.0
LAST_SECONDS = 0.5


def expected(say: Say) -> Expected:
    token = f"[{say.key}]"
    word, _, rest = say.text.partition(" ")
    if say.becomes is Fate.ENDED:
        return Expected(outcome="cancelled", is_open=True)
    match word:
        case "plain" | "late":
            return Expected(f"{token} A plain answer.")
        case "stream":
            return Expected(f"{token} " + "".join(STREAMED).strip())
        case "think":
            return Expected(f"{token} I thought about it.")
        case "pure":
            return Expected(f"{token} I looked: it is noon.")
        case "put":
            return Expected(f"{token} Put in its place.")
        case "effect":
            return Expected(f"{token} Paid, and written down.", tool="pay")
        case "bold":
            return Expected(bold_text(token))
        case "table":
            return Expected(table_text(token))
        case "long" | "tale":
            return Expected(long_text(token))
        case "hold":
            return Expected(f"{token} One moment. Done.")
        case "recall":
            return Expected(f"{token} I remember {rest} entries.")
        case "album":
            return Expected(f"I see {say.file}.")
        case "file":
            return Expected(f"{token} Here it is.", file=f"{say.key}.txt")
        case "slow":
            return Expected(token, outcome="cancelled", is_open=True)
        case "halt":
            return Expected(f"{token} This far.", outcome="halted")
        case "fail":
            return Expected(f"{token} It began well.\n\n⚠ I could not finish this: {BROKEN}.", outcome="failed")
        case "task" | "frail":
            return Expected(f"{token} I will report back.", tool="promise", report=report(token))
        case "vow":
            kept = f"“{token}” was cancelled: " if say.becomes is Fate.WITHDRAWN else report(token)
            return Expected(f"{token} I will report back.", tool="promise", report=kept)
        case "ask":
            return Expected(f"{token} Let me see. Paid, and written down.", tool="pay")
        case "beg":
            return Expected(f"{token} Let me see. Not paid.")
        case "(deleted)":
            return Expected("the message was deleted.", outcome="cancelled")
        case _:
            return Expected(outcome="", is_open=True)


# How the reply to a command begins. A run that is stopped answers for itself, hence the other word for an idle stop.
REPLIES = {
    "/status": ("Working on your message", "Nothing is running here."),
    "/whoami": ("You are ",),
    "/new": ("This is a new conversation",),
    "/stop idle": ("Nothing is running.",),
}


def long_text(token: str) -> str:
    """Three parts at the platforms' limit."""
    lines = [f"{token} Line {number} of an answer that does not fit into one message." for number in range(1, 12)]
    return "\n\n".join(lines)


def bold_text(token: str) -> str:
    return f"{token} A **bold** word and some `code`."


def table_text(token: str) -> str:
    return f"{token} A table follows.\n\n| day | sum |\n|---|---|\n| Monday | 17 |"


def report(token: str) -> str:
    return f"{token} The report, as promised."
