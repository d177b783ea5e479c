"""The ground truth of the Discord simulator: what really happened, kept where the bot cannot reach it."""

from __future__ import annotations

from typing import Any

from tests.simulators.shared import truth
from tidings.core.clock import Clock
from tidings.core.types import Value

EPHEMERAL = 1 << 6
THINKING = 1 << 7


class File(Value, frozen=True, kw_only=True):
    """An attachment, whoever sent it."""

    id: str
    name: str
    data: bytes
    type: str = "application/octet-stream"
    description: str = ""
    # Only of a voice message.
    seconds: float = 0.0
    waveform: str = ""
    # By the wall clock: its address is worthless after this.
    until: float = 0.0


class Button(Value, frozen=True, kw_only=True):
    # What a press sends back; empty where the button is a link.
    id: str
    label: str
    url: str = ""


class Edit(Value, frozen=True, kw_only=True):
    at: float
    text: str


class Message(Value, frozen=True, kw_only=True):
    """One message as it stands now; what was removed stays here with the time of its end."""

    id: str
    # A channel, a thread or a private channel.
    channel: str
    # The user's or the webhook's id.
    author: str
    text: str
    at: float
    order: int
    # The bot under test that wrote it; empty for everybody else, other bots included.
    account: str = ""
    # Discord's number: 0 plain, 18 and 21 about threads, 19 a reply, 20 the answer to a command.
    kind: int = 0
    nonce: str = ""
    flags: int = 0
    files: tuple[File, ...] = ()
    embeds: tuple[dict[str, Any], ...] = ()
    components: tuple[dict[str, Any], ...] = ()
    reply_to: str = ""
    # Whom it names with the effect of a mention: ids of users, and of roles.
    mentions: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    everyone: bool = False
    # Whose device rang: user ids, "&ROLE" and "@everyone". An edit rings nobody.
    pings: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    # Emoji and user, in order.
    reactions: tuple[tuple[str, str], ...] = ()
    webhook: str = ""
    interaction: str = ""
    # The only person who sees it; empty where all do.
    only_for: str = ""
    deleted_at: float = 0.0

    @property
    def is_thinking(self) -> bool:
        return bool(self.flags & THINKING)

    @property
    def choices(self) -> tuple[Button, ...]:
        return tuple(_buttons(self.components))


class Interaction(Value, frozen=True, kw_only=True):
    """One command or press, and how it was answered."""

    id: str
    token: str
    account: str
    # command or button.
    kind: str
    # The command's name, or the button's id.
    name: str
    user: str
    channel: str
    at: float
    # By the steady clock.
    now: float
    options: dict[str, Any] = {}
    # The message whose button was pressed.
    message: str = ""
    is_user_installed: bool = False
    # message, thinking, update or silence; empty while the person waits.
    answer: str = ""
    answered_at: float = 0.0
    is_ephemeral: bool = False
    original: str = ""
    follow_ups: tuple[str, ...] = ()
    # Where it was told; nobody was there to hear it when this is 0.
    told: int = 0


class Effect(truth.Effect, frozen=True, kw_only=True):
    """An act is post, edit, delete, erase, react, unreact, typing, thread, think, defer or commands."""

    channel: str = ""


class Call(truth.Call, frozen=True, kw_only=True):
    """A method is the simulator's word for the route, as `fail_next` and the other levers know it."""

    verb: str
    # Without /api/v10.
    path: str
    query: dict[str, str]
    channel: str
    body: Any
    # Names of the files that came along, by field.
    files: dict[str, str]
    # What the caller was told; 0 where it heard nothing.
    status: int = 0
    # Discord's code of a refusal.
    code: int = 0

    @property
    def text(self) -> str:
        return str(self.body.get("content") or "") if isinstance(self.body, dict) else ""

    @property
    def nonce(self) -> str:
        return str(self.body.get("nonce") or "") if isinstance(self.body, dict) else ""


class Truth(truth.Truth[Effect, Call, Message]):
    """A message's present state is kept beside the log."""

    effect, call = Effect, Call

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        # Every message ever, in order of their ids.
        self.messages: dict[str, Message] = {}
        self.interactions: dict[str, Interaction] = {}
        self._channels: dict[str, list[str]] = {}

    def keep(self, message: Message, act: str = "") -> Message:
        """With an act it is logged too."""
        if message.id not in self.messages:
            self._channels.setdefault(message.channel, []).append(message.id)
        self.messages[message.id] = message
        if act:
            self.log(act, message.account, channel=message.channel, message=message.id, text=message.text)
        return message

    def find(self, channel: str, id: str) -> Message | None:
        """None where it was removed."""
        message = self.messages.get(id)
        return message if message is not None and message.channel == channel and not message.deleted_at else None

    def history(self, channel: str) -> list[Message]:
        """What stands there for everybody, oldest first."""
        found = (self.messages[id] for id in self._channels.get(channel, ()))
        return [message for message in found if not message.deleted_at and not message.only_for]

    def sent(self, channel: str | None = None) -> tuple[Message, ...]:
        """What the bots under test wrote and nobody removed, oldest first."""
        return tuple(
            message
            for message in self.messages.values()
            if message.account
            and not message.deleted_at
            and not message.is_thinking
            and message.kind in (0, 19, 20)
            and channel in (None, message.channel)
        )


def _buttons(components: Any) -> list[Button]:
    found: list[Button] = []
    for each in components:
        if each.get("type") == 2:
            label = str(each.get("label") or (each.get("emoji") or {}).get("name") or "")
            found.append(Button(id=str(each.get("custom_id") or ""), label=label, url=str(each.get("url") or "")))
        found += _buttons(each.get("components") or ())
        if isinstance(each.get("accessory"), dict):
            found += _buttons([each["accessory"]])
    return found
