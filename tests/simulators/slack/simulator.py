"""Slack in a box: Web API, Socket Mode and signed events on a loopback socket, as strict as the platform."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

from tests.simulators.shared.server import SimulatedPlatform
from tests.simulators.slack.board import STREAM_SECONDS, Board
from tests.simulators.slack.calls import Calls
from tests.simulators.slack.faults import MILD, NASTY, Faults, Odds
from tests.simulators.slack.feed import ACK_SECONDS, RETRY_SECONDS, Feeds, Happening
from tests.simulators.slack.files import Shelf
from tests.simulators.slack.history import History
from tests.simulators.slack.levers import Levers
from tests.simulators.slack.messages import Messages
from tests.simulators.slack.people import Desk, Person, Workspace
from tests.simulators.slack.places import App, Channel, Ids, View
from tests.simulators.slack.rates import Rates
from tests.simulators.slack.requests import Request, Requests, headers_for
from tests.simulators.slack.sockets import PING_SECONDS, Sockets
from tests.simulators.slack.streams import Streams
from tests.simulators.slack.switchboard import Switchboard
from tests.simulators.slack.texts import buttons, shown
from tests.simulators.slack.truth import Button, Call, Delivery, Effect, File, Message, Truth
from tidings.core.clock import Clock

__all__ = [
    "APP_TOKEN",
    "BOT_TOKEN",
    "MILD",
    "NASTY",
    "SECRET",
    "App",
    "Button",
    "Call",
    "Channel",
    "Delivery",
    "Effect",
    "File",
    "Happening",
    "Message",
    "Odds",
    "Person",
    "SlackServer",
    "Workspace",
    "choices_of",
    "text_of",
]

BOT_TOKEN = "xoxb-1000001-simulated-token"
APP_TOKEN = "xapp-1-A000000001-simulated-token"
SECRET = "0123456789abcdef0123456789abcdef"


def text_of(message: Message | Effect) -> str:
    """What a person reads: blocks stand in the place of the text, and below what was streamed."""
    below = shown(message.blocks)
    if message.stream:
        return "\n".join(each for each in (message.text, below) if each)
    return below or message.text


def choices_of(message: Message) -> tuple[Button, ...]:
    return buttons(message.blocks)


class SlackServer(Levers, SimulatedPlatform[Effect, Call, Message]):
    """`async with SlackServer() as slack:` listens on `slack.address`; give `slack.api_url` to a client.

    A client may be another process and may die at any moment. The workspace `main` exists; its app hears by
    Socket Mode until `send_events_to` gives it a URL. Who has no socket open and no URL hears of what happens
    only by retries. All times are the clock's: how long an answer may take, when an event comes again, when a
    stream ends, when a socket is pinged (never, where `ping_seconds` is None). `retry_seconds` has a pause for each
    retry. `view` says how the first app shows itself: as an agent with sessions, by the assistant's pane as older apps
    do, or in a workspace that knows no sessions.
    """

    truth: Truth
    _switchboard: Switchboard

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        ack_seconds: float = ACK_SECONDS,
        retry_seconds: tuple[float, ...] = RETRY_SECONDS,
        stream_seconds: float = STREAM_SECONDS,
        ping_seconds: float | None = PING_SECONDS,
        view: View = "assistant",
    ) -> None:
        super().__init__(clock)
        self.truth = Truth(self.clock)
        self.faults = Faults()
        self.rates = Rates(self.clock)
        self.sockets = Sockets(self.truth, self.clock, ping_seconds)
        self._ids = Ids()
        self._requests = Requests(self.truth, self.clock)
        self.feeds = Feeds(self.truth, self.faults, self._ids, self.sockets, self._requests, ack_seconds, retry_seconds)
        self.board = Board(self.truth, self.feeds, stream_seconds)
        messages, self.shelf = Messages(self.board), Shelf(self.board)
        history = History(self.truth)
        self.calls_of = Calls(self.sockets, messages, Streams(self.board), history, self.shelf, self.rates)
        self._switchboard = Switchboard(self.calls_of, self.sockets, self._requests, self.faults, self.truth)
        self._desk = Desk(self.board, self.feeds, messages, self.shelf)
        self._desk.origin = self.origin
        self._workspaces: dict[str, Workspace] = {}
        self.app = self.add_app("main", APP_TOKEN, SECRET)
        self.app.view = view
        self.main = self.workspace("main")

    def add_app(self, name: str, token: str, secret: str) -> App:
        app = App(name, self._ids.next("A"), token, secret, url_of_files=self.origin)
        self.calls_of.apps[name] = app
        return app

    def workspace(self, name: str = "main", *, app: App | None = None) -> Workspace:
        """Made when it is first named; with the first app unless told otherwise, and a bot token of its own."""
        if name not in self._workspaces:
            token = BOT_TOKEN if name == "main" else f"xoxb-{1000001 + len(self._workspaces)}-token-of-{name}"
            made = Workspace(name, app or self.app, self._ids, self.truth, token, self._desk)
            self._workspaces[name] = self.calls_of.teams[name] = made
        return self._workspaces[name]

    def channel(self, name: str = "general", *, private: bool = False, member: bool = True) -> Channel:
        return self.main.channel(name, private=private, member=member)

    def person(self, name: str = "ann") -> Person:
        return self.main.person(name)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.feeds.close()
        await super().__aexit__(kind, error, trace)

    @property
    def origin(self) -> str:
        return f"http://{self.address}"

    @property
    def api_url(self) -> str:
        return f"{self.origin}/api/"

    @property
    def token(self) -> str:
        return self.main.token

    @property
    def app_token(self) -> str:
        return self.app.token

    @property
    def secret(self) -> str:
        return self.app.secret

    @property
    def skew(self) -> float:
        """How far the platform's dates are ahead of its clock, in seconds."""
        return self.truth.skew

    @skew.setter
    def skew(self, seconds: float) -> None:
        self.truth.skew = seconds

    async def send_events_to(self, url: str, *, app: App | None = None) -> None:
        """Asks the URL whether it is the app's; from then on events, commands and presses are posted there."""
        await self._requests.verify(app or self.app, url, self.feeds.ack_seconds)

    def sign(self, body: bytes, *, at: float | None = None, type: str = "application/json") -> dict[str, str]:
        """Headers for a request of the test's own."""
        return headers_for(self.secret, body, int(self.truth.wall() if at is None else at), type)

    def tells(self, event: dict[str, Any], *, workspace: str = "main") -> Happening:
        """An event of a shape that nobody expects; it is confirmed under its id."""
        return self.feeds.tell(self._workspaces[workspace], event, f"odd:{len(self.feeds.happenings)}", "odd")

    # The ground truth.

    def _text(self, message: Message) -> str:
        return text_of(message)

    def posts_in(self, channel: Channel | str, thread: str | None = None) -> list[str]:
        return [text_of(message) for message in self.visible(channel, thread)]

    def visible(self, channel: Channel | str, thread: str | None = "") -> tuple[Message, ...]:
        """What a person sees there of the app now; None is every thread of the channel."""
        return self.truth.sent(channel if isinstance(channel, str) else channel.id, thread)

    def message(self, name: str) -> Message:
        """As it stands now, by "CHANNEL:TS"."""
        channel, _, ts = name.partition(":")
        return self.truth.messages[channel, ts]

    @property
    def whispers(self) -> tuple[Message, ...]:
        """What only one person was shown."""
        return tuple(self.truth.whispers)

    def deliveries(self, name: str | None = None) -> tuple[Delivery, ...]:
        """Every attempt to tell the app something, by the name of what it is about."""
        return tuple(each for each in self.truth.deliveries if name in (None, each.name))

    @property
    def acks(self) -> tuple[Delivery, ...]:
        return tuple(each for each in self.truth.deliveries if each.acked)

    @property
    def confirmed(self) -> list[str]:
        """The names of what the app has confirmed, each once: a mention counts as soon as either event does."""
        return [name for _, name in self.truth.confirmed]

    def confirmed_by(self, account: str) -> list[str]:
        return [name for whose, name in self.truth.confirmed if whose == account]

    @property
    def unconfirmed(self) -> list[str]:
        return [each.name for each in self.feeds.open()]

    @property
    def lost(self) -> list[str]:
        """What the app was told for the last time and did not confirm."""
        return [each.name for _, each in self.feeds.happenings if each.state == "lost"]

    @property
    def pings(self) -> tuple[str, ...]:
        """Whom messages of the app have called, one after the other."""
        return tuple(ping for message in self.truth.sent() for ping in message.pings)

    @property
    def reactions(self) -> dict[str, tuple[str, ...]]:
        """The app's reactions by the name of the message."""
        bots = {workspace.bot.id for workspace in self._workspaces.values()}
        found = {
            f"{channel}:{ts}": tuple(name for name, who in names.items() if bots & set(who))
            for (channel, ts), names in self.truth.reactions.items()
        }
        return {name: names for name, names in found.items() if names}

    def status(self, channel: Channel, thread: str) -> str:
        """What stands below a thread while the app works."""
        status, until = self.truth.statuses.get((channel.id, thread), ("", 0.0))
        return status if self.clock.now() < until else ""

    def session(self, channel: Channel, thread: str) -> str:
        """The status of an agent's session; empty where there is none."""
        return self.truth.sessions.get((channel.id, thread), "")

    def typing_times(self, channel: Channel | str) -> list[float]:
        id = channel if isinstance(channel, str) else channel.id
        return [each.at for each in self.truth.effects if each.act == "status" and each.channel == id and each.text]

    @property
    def requests(self) -> tuple[Request, ...]:
        """Every signed request that was answered or given up, oldest first."""
        return tuple(self._requests.made)

    def attached(self, account: str = "main") -> bool:
        """A socket is open or a URL is known."""
        app = self._workspaces[account].app
        return bool(app.url or self.sockets.of(app))

    def _story(self) -> Iterable[str]:
        told = [(each.name, each.attempt, each.verdict or "open") for each in self.truth.deliveries[-10:]]
        yield from super()._story()
        yield f"last deliveries {told}"
        yield f"{len(self.sockets.open)} sockets open"
