"""The paper platform: a strict chat platform on a loopback socket, with a ground truth and levers."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tests.simulators.paper.chats import Chats, Kind, Rate
from tests.simulators.paper.faults import MILD, NASTY, Fault, Faults, Odds
from tests.simulators.paper.switchboard import Switchboard
from tests.simulators.paper.truth import Call, Effect, Truth
from tests.simulators.paper.wire import Event, Message, Sent, Upload
from tests.simulators.shared.levers import Levers
from tests.simulators.shared.server import SimulatedPlatform
from tidings.core.clock import Clock

__all__ = ["MILD", "NASTY", "Call", "Effect", "Event", "Kind", "Message", "Odds", "PaperServer"]


class PaperServer(Levers, SimulatedPlatform[Effect, Call, Message]):
    """`async with PaperServer(kind=...) as paper:` listens on `paper.address`.

    A client may be another process and may die at any moment. Chat "1" exists; speaking in a chat or
    thread makes it exist.
    """

    truth: Truth
    faults: Faults
    _switchboard: Switchboard

    def __init__(
        self, kind: Kind | None = None, *, limit: int = 2000, token: str = "token", clock: Clock | None = None
    ) -> None:
        super().__init__(clock)
        self.kind = Kind() if kind is None else kind
        self.truth = Truth(self.clock)
        self.chats = Chats(self.kind, limit, self.truth, self.clock)
        self.chats.open("1")
        self.faults = Faults()
        self._switchboard = Switchboard(token, self.chats, self.faults, self.truth)

    @property
    def limit(self) -> int:
        return self.chats.limit

    @property
    def token(self) -> str:
        return self._switchboard.token

    # The ground truth.

    def posts_in(self, chat: str, thread: str | None = None) -> list[str]:
        return [message.text for message in self.truth.sent(chat, thread)]

    def visible(self, chat: str = "1", thread: str = "") -> tuple[Message, ...]:
        """What a person sees there of the bot now; a draft stands last and has no id."""
        return self.truth.visible(chat, thread)

    def copies(self, key: str) -> tuple[Message, ...]:
        return tuple(message for message in self.truth.sent() if message.key == key)

    def message(self, id: str) -> Message:
        return self.truth.messages[id]

    @property
    def confirmed(self) -> list[str]:
        """The keys of all confirmed events, in order of confirmation."""
        return list(self.truth.confirmed)

    @property
    def unconfirmed(self) -> list[str]:
        return [event.key for feed in self._switchboard.feeds.values() for event in feed.unconfirmed]

    def typing_times(self, chat: str = "1") -> list[float]:
        return [effect.at for effect in self.truth.effects if effect.act == "typing" and effect.chat == chat]

    def attached(self, account: str = "main") -> bool:
        return account in self._switchboard.attached

    def _story(self) -> Iterable[str]:
        yield from super()._story()
        yield f"unconfirmed {self.unconfirmed[-10:]}"

    # What people do.

    def says(
        self,
        text: str,
        *,
        chat: str = "1",
        thread: str = "",
        sender: str = "7",
        key: str = "",
        group: str = "",
        private: bool = True,
        addressed: bool = True,
        quotes: str = "",
        bot: bool = False,
        files: Iterable[tuple[str, bytes]] = (),
        account: str = "main",
    ) -> str:
        """Returns the key of the message. A key used before announces the same message by another event."""
        key = key or self.chats.number("m")
        self.chats.open(chat, thread)
        sent = []
        for name, data in files:
            id = self.chats.number("f")
            self.chats.files[id] = Upload(name=name, data=data)
            sent.append(Sent(id=id, name=name, size=len(data)))
        self.truth.messages.setdefault(
            key,
            Message(
                id=key,
                account=account,
                chat=chat,
                thread=thread,
                text=text,
                reply_to="",
                key=key,
                at=self.clock.wall(),
                order=len(self.truth.effects) + 1,
                sender=sender,
            ),
        )
        return self._happens(
            Event(
                id="",
                key=key,
                type="message",
                account=account,
                chat=chat,
                thread=thread,
                private=private,
                sender=sender,
                sender_is_bot=bot,
                text=text,
                group=group,
                addressed=addressed,
                quoted=quotes,
                files=tuple(sent),
            )
        )

    def commands(self, name: str, argument: str = "", *, chat: str = "1", thread: str = "") -> str:
        return self.says(f"/{name} {argument}".strip(), chat=chat, thread=thread)

    def edits(self, key: str, text: str) -> str:
        self.truth.messages[key] = replace(self.message(key), text=text)
        return self._follows("edited", key, text=text)

    def deletes(self, key: str) -> str:
        event = self._follows("deleted", key)
        del self.truth.messages[key]
        return event

    def presses(self, message: str, choice: str, *, sender: str = "7") -> str:
        if choice not in {button.id for button in self.message(message).choices}:
            raise LookupError(f"message {message} has no button {choice}")
        return self._follows("pressed", message, choice=choice, sender=sender)

    def _follows(self, type: str, about: str, *, text: str = "", choice: str = "", sender: str = "") -> str:
        message = self.message(about)
        spoken = [event for event in self._switchboard.feed(message.account).events if event.chat == message.chat]
        return self._happens(
            Event(
                id="",
                key=self.chats.number("m"),
                type=type,
                account=message.account,
                chat=message.chat,
                thread=message.thread,
                private=spoken[-1].private if spoken else True,
                sender=sender or message.sender,
                text=text,
                about=about,
                choice=choice,
            )
        )

    def _happens(self, event: Event) -> str:
        self._switchboard.feed(event.account).put(replace(event, id=self.chats.number("e")))
        self.truth.wake()
        return event.key

    # What goes wrong.

    def fail_next(self, code: int, retry_after: float | None = None, method: str | None = None, count: int = 1) -> None:
        """The call is refused and has no effect."""
        self.faults.arm(Fault(action="fail", code=code, retry_after=retry_after, method=method), count)

    def duplicate_next(self, count: int = 1, account: str = "main") -> None:
        self._switchboard.feed(account).duplicates += count

    def reorder_next(self, count: int, account: str = "main") -> None:
        """The next events are told in reverse, once there are that many."""
        self._switchboard.feed(account).reordered = count

    def redeliver(self, key: str) -> None:
        """Tells the events of a message again, confirmed or not."""
        for feed in self._switchboard.feeds.values():
            for event in [event for event in feed.events if key in (event.key, event.id)]:
                feed.again(event)

    def revoke(self, token: str) -> None:
        """Only this token is good from now on; who is attached is cut off."""
        self._switchboard.token = token
        self._switchboard.cut()

    def limit_rate(self, chat: str | None, per_seconds: float, burst: int) -> None:
        """None limits the whole account; reading back is free."""
        self.chats.rates[chat] = Rate(per_seconds, burst, self.clock)

    def delete_thread(self, chat: str, thread: str) -> None:
        del self.chats.threads[chat][thread]
        for message in self.truth.visible(chat, thread):
            self.truth.messages.pop(message.id, None)

    def close_thread(self, chat: str, thread: str) -> None:
        self.chats.threads[chat][thread] = False

    def open_chat(self, chat: str, thread: str = "") -> None:
        self.chats.open(chat, thread)

    def block(self, chat: str, on: bool = True) -> None:
        (self.chats.blocked.add if on else self.chats.blocked.discard)(chat)

    def move(self, chat: str, to: str) -> None:
        """The old chat turns everyone away and names the new one, where its messages cannot be edited."""
        self.chats.threads[to] = dict(self.chats.threads.get(chat, {}))
        self.chats.moved[chat] = to

    def erase(self, message: str) -> None:
        """Somebody removes a message of the bot's, and nobody is told."""
        gone = self.truth.messages.pop(message)
        self.truth.log("erase", gone.account, chat=gone.chat, thread=gone.thread, message=message)

    def end_stream(self, message: str) -> None:
        """The platform stops a stream by itself, as it does with old ones."""
        self.truth.messages[message] = replace(self.message(message), streaming=False)

    def forget_keys(self) -> None:
        self.chats.keys.clear()
