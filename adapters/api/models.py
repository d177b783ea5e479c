"""What requests bring, by body, query and header: what is validated here is also what /openapi.json describes."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

MESSAGES = 10_000
TEXT = 200_000
PAGE, LARGEST_PAGE = 50, 500
# The largest number of a row.
LARGEST = 2**63 - 1
# The id by which a client names a person.
USER = 128
# Letters and marks that draw nothing; Python counts them as printable.
_UNDRAWN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
Name = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]
Text = Annotated[str, StringConstraints(max_length=TEXT)]


class Lenient(BaseModel):
    """Clients send much that does not concern us: a temperature, tools of their own; it is left aside."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def _digits(value: Any) -> Any:
    """Nothing else is a number here, whatever Python would make of it."""
    if not isinstance(value, str):
        return value
    if not value:
        return 0
    if not value.isascii() or not value.isdigit() or len(value) > 19:
        raise ValueError("must be a number")
    return int(value)


Number = Annotated[int, BeforeValidator(_digits)]


def _yes_or_no(value: Any) -> Any:
    """Accepts the words that a query uses for true and false."""
    if isinstance(value, str):
        if value.lower() not in ("true", "false", "1", "0", ""):
            raise ValueError("must be true or false")
        return value.lower() in ("true", "1")
    return value


def is_legible(text: str) -> bool:
    """Tells whether an id can be read and written at a command line: without spaces, all of it drawn as it is."""
    return text.isprintable() and " " not in text and not _UNDRAWN.search(text)


def _nameable(value: Any) -> Any:
    """Refuses the id of a person whom nobody could block at the command line."""
    if isinstance(value, str) and (len(value) > USER or not is_legible(value)):
        raise ValueError(f"a person's id has at most {USER} characters, and neither spaces nor invisible characters")
    return value


def _legible(value: str) -> str:
    if not is_legible(value):
        raise ValueError("has characters that are not allowed here")
    return value


class Page(Lenient):
    limit: Number = Field(PAGE, ge=1, le=LARGEST_PAGE, description="So many lines at most.")
    after: Number = Field(0, ge=0, le=LARGEST, description="The `next` of the page before.")


class UsageQuery(Lenient):
    by: Literal["person", "bot", "chat"] = Field("person", description="Whose usage is added up.")
    since: Annotated[str, StringConstraints(pattern=r"^([0-9]{4}-[0-9]{2}-[0-9]{2})?$")] = Field(
        "", description="The first day that counts, as 2026-11-18; today if left out."
    )


class After(Lenient):
    after: Number = Field(0, ge=0, le=LARGEST, description="As Last-Event-ID, for who cannot send headers.")


HeaderName = Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]
HeaderUser = Annotated[str, StringConstraints(max_length=USER), BeforeValidator(_nameable)]
User = Annotated[str, StringConstraints(min_length=1, max_length=USER), BeforeValidator(_nameable)]


class Caller(Lenient):
    """Tells people apart when a chat program serves several of them with one key."""

    user: HeaderUser = Field(
        "",
        alias="X-OpenWebUI-User-Id",
        description="The person who asks, under this key; what belongs to others is hidden from them.",
    )


class Seen(Caller):
    last: Number = Field(
        0, alias="Last-Event-ID", ge=0, le=LARGEST, description="The id of the last event that you saw."
    )


class Again(Lenient):
    stream: Annotated[bool, BeforeValidator(_yes_or_no)] = Field(False, description="Whether to stream its events.")
    starting_after: Number = Field(-1, ge=-1, le=LARGEST, description="The sequence_number of the last event you saw.")


class InputItems(Lenient):
    limit: Number = Field(20, ge=1, le=100, description="At most this many.")
    order: Literal["asc", "desc"] = Field("desc", description="desc is newest first, asc oldest first.")
    after: HeaderName = Field("", description="The last_id of the previous page.")


class Repeatable(Caller):
    key: Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]{1,255}$")] | None = Field(
        None, alias="Idempotency-Key", description="The same key with the same body is the same request, for a day."
    )


class Named(Repeatable):
    """Open WebUI and hermes' clients name a conversation in their own ways."""

    tidings: HeaderName = Field(
        "", alias="X-Tidings-Conversation", description="The conversation that this belongs to."
    )
    hermes: HeaderName = Field("", alias="X-Hermes-Session-Id", description="As X-Tidings-Conversation.")
    chat: HeaderName = Field("", alias="X-OpenWebUI-Chat-Id", description="As X-Tidings-Conversation.")
    task: HeaderName | None = Field(
        None,
        alias="X-OpenWebUI-Task",
        description="Set for side work, such as finding a title; it belongs to no conversation.",
    )


class ContentPart(Lenient):
    type: str = Field(max_length=64)
    text: Text | None = None


Content = Text | Annotated[list[ContentPart], Field(max_length=1000)] | None


class ChatMessage(Lenient):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content = None
    name: str | None = Field(None, max_length=256)


class StreamOptions(Lenient):
    include_usage: bool = False


class ChatRequest(Lenient):
    model: str = Field("", max_length=256)
    messages: list[ChatMessage] = Field(min_length=1, max_length=MESSAGES)
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=1, description="Only 1; ask again for another answer.")
    user: User | None = Field(None, description="As X-OpenWebUI-User-Id, which wins.")

    @field_validator("n", mode="before")
    @classmethod
    def _is_one(cls, value: Any) -> Any:
        """Refuses n above 1: a client that asks for three answers must not get one without a word."""
        if value not in (None, 1):
            raise ValueError("a request gets one answer; leave out n, and ask again for another answer")
        return value


# The kinds of input that are read; anything else that clients send, such as their own notes, is ignored.
ITEMS = ("message", "function_call", "function_call_output", "mcp_call", "item_reference")


class InputItem(Lenient):
    """A message, what a tool did in an earlier turn, or the id of such an item."""

    type: str = Field("message", max_length=64)
    id: str | None = Field(None, max_length=256)
    role: Literal["system", "developer", "user", "assistant", "tool"] | None = None
    content: Content = None
    call_id: str | None = Field(None, max_length=256)
    name: str | None = Field(None, max_length=256)
    arguments: str | None = Field(None, max_length=TEXT)
    output: Any = None
    error: Any = None

    @model_validator(mode="before")
    @classmethod
    def _is_known(cls, value: Any) -> Any:
        """Ignores the content of an item whose kind is not read."""
        if not isinstance(value, dict):
            return value
        kind = value.get("type")
        if kind is None:
            is_named = "id" in value and not ("role" in value or "content" in value)
            return {**value, "type": "item_reference" if is_named else "message"}
        return value if kind in ITEMS or not isinstance(kind, str) else {"type": kind[:64]}

    @property
    def is_reference(self) -> bool:
        """Whether its content must be looked up by its id: some clients send a call without its output."""
        if self.type == "mcp_call":
            return self.id is not None and self.output is None and self.error is None
        return self.type == "item_reference"


Input = Text | Annotated[list[InputItem], Field(min_length=1, max_length=MESSAGES)]


class ResponseRequest(Lenient):
    model: str = Field("", max_length=256)
    input: Input
    instructions: Text | None = None
    previous_response_id: Name | None = None
    conversation: Name | None = None
    store: bool = True
    stream: bool = False
    background: bool = Field(False, description="Return at once and go on working; fetch the response later.")
    user: User | None = Field(None, description="As X-OpenWebUI-User-Id, which wins.")

    @field_validator("conversation", mode="before")
    @classmethod
    def _is_named(cls, value: Any) -> Any:
        """Some clients give an object with an id."""
        return value.get("id") if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _has_one_past(self) -> Self:
        if self.previous_response_id is not None and self.conversation is not None:
            raise ValueError("give previous_response_id or conversation, not both")
        return self

    @model_validator(mode="after")
    def _can_be_looked_at(self) -> Self:
        if self.background and not self.store:
            raise ValueError("a background response is fetched later, so it must be stored; leave out store")
        return self


class HistoryItem(Lenient):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None


class RunRequest(Lenient):
    input: Input
    model: str = Field("", max_length=256)
    session_id: Name | None = None
    conversation: Name | None = None
    instructions: Text | None = None
    conversation_history: Annotated[list[HistoryItem], Field(max_length=MESSAGES)] | None = None
    previous_response_id: Name | None = None
    user: User | None = Field(None, description="As X-OpenWebUI-User-Id, which wins.")


def _as_choice(value: Any) -> Any:
    """Some clients say that they approve, and not for how long."""
    return "once" if value in ("approve", "approved", "allow") else value


class ApprovalAnswer(Lenient):
    choice: Annotated[Literal["once", "session", "talk", "always", "deny"], BeforeValidator(_as_choice)] = Field(
        description="session and talk are the same; always is for owners."
    )
    reason: str = Field("", max_length=300, description="Why not, in words for the bot.")


class RunSteer(Lenient):
    """Clients name the text in one of three ways."""

    input: Text | None = Field(None, description="What the running agent should take into account.")
    message: Text | None = Field(None, description="The same as input.")
    text: Text | None = Field(None, description="The same as input.")

    @property
    def words(self) -> str:
        return next((said for said in (self.input, self.message, self.text) if said and said.strip()), "")


class RunApproval(ApprovalAnswer):
    request_id: Name | None = Field(None, description="Which question; without it, the one that the run waits for.")


class NotifyRequest(Lenient):
    target: str = Field(min_length=1, max_length=512, examples=["console"])
    text: str = Field(min_length=1, max_length=TEXT)


class Listed(Lenient):
    include_disabled: Annotated[bool, BeforeValidator(_yes_or_no)] = Field(
        False, description="Those that are paused, too."
    )


class Runs(Lenient):
    limit: Number = Field(PAGE, ge=1, le=LARGEST_PAGE, description="So many at most, the newest first.")


JobName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
JobPrompt = Annotated[str, StringConstraints(max_length=5000)]
JobTime = Annotated[str, StringConstraints(min_length=1, max_length=200)]
JobTarget = Annotated[str, StringConstraints(max_length=512)]
Times = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


SKILLS = "Taken, so that clients which send it need not change, and ignored: a job is its prompt."


class JobCommand(Lenient):
    """A field that no request may have."""

    command: Any = None


class JobRequest(Lenient):
    name: JobName = Field(examples=["the morning report"])
    schedule: JobTime = Field(examples=["every day at 9:00"])
    prompt: JobPrompt = Field(examples=["tell me the weather"])
    deliver: JobTarget = "local"
    deliver_failures: JobTarget = ""
    timezone: str = Field("", max_length=64)
    bot: str = Field("", max_length=256)
    on_missed: Literal["run_once", "skip"] = "run_once"
    repeat: Times | None = None
    paused: bool = False
    paused_reason: str = Field("", max_length=200)
    skills: Any = Field(None, description=SKILLS)


class JobChange(Lenient):
    """Fields that are left out stay as they are."""

    name: JobName | None = None
    schedule: JobTime | None = None
    prompt: JobPrompt | None = None
    deliver: JobTarget | None = None
    timezone: str | None = Field(None, max_length=64)
    repeat: Times | None = None
    enabled: bool | None = None
    skills: Any = Field(None, description=SKILLS)
    skill: Any = Field(None, description=SKILLS)


CardText = Annotated[str, StringConstraints(max_length=20_000)]
CardName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
CardNumber = Annotated[str, StringConstraints(pattern=r"^#?[0-9]{1,18}$")]
State = Literal["", "triage", "todo", "ready", "running", "blocked", "review", "done", "archived"]


class Cards(Lenient):
    state: State = Field("", description="Cards in this state; without it all but the archived.")
    assignee: HeaderName = Field("", description="Cards of this bot or worker.")
    limit: Number = Field(PAGE, ge=1, le=LARGEST_PAGE, description="So many at most.")


class CardRequest(Lenient):
    title: CardName = Field(examples=["Paint the fence"])
    body: str = Field("", max_length=100_000)
    assignee: str = Field("", max_length=256)
    parents: list[CardNumber] = Field([], max_length=100)
    priority: int = Field(0, ge=-1000, le=1000)
    workspace: str = Field("", max_length=100, pattern=r"^[A-Za-z0-9_-]*$")
    budget: int = Field(0, ge=0, le=100_000)
    triage: bool = False


class CardComment(Lenient):
    text: Annotated[str, StringConstraints(min_length=1, max_length=20_000, pattern=r"\S")]


class CardAttachment(Lenient):
    """A link, or a text that is kept as a file."""

    url: str = Field("", max_length=2000, pattern=r"^(https?://\S+)?$", examples=["https://example.org/plan"])
    text: str = Field("", max_length=100_000)
    name: str = Field("", max_length=100, pattern=r"^[^/\x00-\x1f]*$", examples=["plan.md"])


class CardSummary(Lenient):
    text: CardText = ""


class CardBlock(Lenient):
    kind: Literal["needs_input", "capability", "transient", "budget", "approval"] = "needs_input"
    reason: Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"\S")]


class CardParent(Lenient):
    parent: CardNumber


class CardWatcher(Lenient):
    target: str = Field(min_length=1, max_length=512, examples=["console"])
    on: bool = True


# The roles that a person can be given.
GivenRole = Literal["guest", "member", "admin", "owner"]
Identity = Annotated[
    str, StringConstraints(max_length=300, pattern=r"^([^\s:@]+(@[^\s:@]+)?:\S+)?$"), AfterValidator(_legible)
]
Code = Annotated[str, StringConstraints(max_length=64, pattern=r"^([0-9A-Za-z_-]{8,40})?$")]
PersonName = Annotated[str, StringConstraints(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")]


class PersonRequest(Lenient):
    """Somebody to admit: by identity, or by the code of a stranger who waits."""

    id: Identity = Field("", examples=["telegram:123"])
    code: Code = Field("", description="The stranger's code, or the id of a waiting request.")
    role: GivenRole | None = Field(None, description="Without it, a member.")
    name: PersonName = ""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.id) == bool(self.code):
            raise ValueError("give either id or code")
        return self


class PersonChange(Lenient):
    """Fields that are left out stay as they are."""

    role: GivenRole | None = None
    name: PersonName | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.role is None and self.name is None:
            raise ValueError("give role or name")
        return self


class PersonLink(Lenient):
    other: Annotated[str, StringConstraints(min_length=1, max_length=300), AfterValidator(_legible)] = Field(
        description="The other person's id, or an identity of theirs.", examples=["slack:U1"]
    )
