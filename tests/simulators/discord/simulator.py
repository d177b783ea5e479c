"""Discord in a box: REST and gateway on a loopback socket, strict as the platform, with a ground truth and levers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.simulators.discord.about import About
from tests.simulators.discord.faults import MILD, NASTY, Faults, Odds
from tests.simulators.discord.gateway import Gateway, Session
from tests.simulators.discord.interactions import Interactions
from tests.simulators.discord.levers import Levers
from tests.simulators.discord.messages import Messages
from tests.simulators.discord.news import News
from tests.simulators.discord.people import People, Person
from tests.simulators.discord.places import PRIVILEGED, Bot, Channel, Guild, Places, Where
from tests.simulators.discord.rates import Rates
from tests.simulators.discord.routes import ROOT
from tests.simulators.discord.shapes import Shapes
from tests.simulators.discord.switchboard import Switchboard
from tests.simulators.discord.threads import Threads
from tests.simulators.discord.truth import Call, Effect, File, Interaction, Message, Truth
from tests.simulators.shared.server import SimulatedPlatform
from tidings.core.clock import Clock

__all__ = [
    "MILD",
    "NASTY",
    "TOKEN",
    "Bot",
    "Call",
    "Channel",
    "DiscordServer",
    "Effect",
    "File",
    "Guild",
    "Interaction",
    "Message",
    "Odds",
    "Person",
]

TOKEN = "simulated.discord.token"
# A person sees it so long, or until a message comes.
TYPING_SECONDS = 10.0
INVALID_LIMIT = 10_000


class DiscordServer(People, Levers, SimulatedPlatform[Effect, Call, Message]):
    """`async with DiscordServer() as discord:` listens on `discord.address`; give `api_url` and `gateway_url` away.

    A client may be another process and may die at any moment. The bot `main` exists and is in no guild yet:
    `guild`, `channel` and `person` make them. Places are named by their ids, or by what those verbs return.

    `nonce_seconds` is how long a nonce is remembered, `resume_seconds` how long a session without a socket, and
    `identify_pause` the time between two sessions; these and all limits are by the given clock. Heartbeats are
    real time. `skew` is how far the platform's dates are ahead of that clock, also those in the first ids; later ids
    never go back. Intents are the privileged ones that the developer portal has switched on.
    """

    truth: Truth
    _switchboard: Switchboard

    def __init__(
        self,
        *,
        token: str = TOKEN,
        username: str = "tidings",
        clock: Clock | None = None,
        intents: tuple[str, ...] = ("message_content", "members", "presences"),
        nonce_seconds: float = 180.0,
        resume_seconds: float = 180.0,
        heartbeat_interval: float = 41.25,
        identify_pause: float = 0.0,
        identify_limit: int = 1000,
        invalid_limit: int = INVALID_LIMIT,
        skew: float = 0.0,
        told_as: Callable[[str, Any], Any] = lambda name, data: data,
    ) -> None:
        super().__init__(clock)
        self.truth = Truth(self.clock)
        self.faults = Faults()
        self.rates = Rates(self.clock, invalid_limit)
        self.places = Places(self.truth, self.clock)
        self.places.skew = skew
        self._named: dict[str, Person] = {}
        self._switchboard = Switchboard(self.faults, self.rates, self.truth, self.places)
        shapes = Shapes(self.places, self.truth, f"http://{self.address}")
        self.gateway = Gateway(self.places, shapes, self.truth, self.clock, self.address)
        self.gateway.heartbeat_interval = heartbeat_interval
        self.gateway.resume_seconds = resume_seconds
        self.gateway.identify_pause = identify_pause
        self.gateway.identify_limit = identify_limit
        self.gateway.told_as = told_as
        self.gateway.befalls = self.faults.befalls
        self.news = News(self.places, shapes, self.gateway)
        self.messages = Messages(self.places, shapes, self.news, nonce_seconds)
        self.threads = Threads(self.places, shapes, self.news)
        self._switchboard.gateway = self.gateway
        for part in (
            About(self.places, shapes, self.gateway),
            self.messages,
            self.threads,
            Interactions(self.places, shapes, self.messages),
        ):
            self._switchboard.handlers |= part.handlers
        self.add_bot("main", token, username, intents=intents)

    def add_bot(
        self,
        account: str,
        token: str,
        username: str,
        *,
        intents: tuple[str, ...] = ("message_content", "members", "presences"),
    ) -> Bot:
        """Another bot under test on the same server."""
        portal = sum(PRIVILEGED[name] for name in intents)
        self.places.bots[account] = Bot(account, self.places.new_id(), token, username, portal)
        return self.places.bots[account]

    @property
    def api_url(self) -> str:
        return f"http://{self.address}{ROOT}"

    @property
    def gateway_url(self) -> str:
        return f"ws://{self.address}/gateway"

    @property
    def token(self) -> str:
        return self.bot.token

    @property
    def bot(self) -> Bot:
        return self.places.bot("main")

    @property
    def skew(self) -> float:
        """How far the platform's dates are ahead of its clock, in seconds."""
        return self.places.skew

    @skew.setter
    def skew(self, seconds: float) -> None:
        self.places.skew = seconds

    # The ground truth.

    def posts_in(self, channel: Where) -> list[str]:
        return [message.text for message in self.truth.sent(_id(channel))]

    def visible(self, channel: Where) -> tuple[Message, ...]:
        """What people see there of our bots now; what only one of them sees is named so."""
        return self.truth.sent(_id(channel))

    def message(self, id: str | int) -> Message:
        """As it stands, or stood when it was removed."""
        return self.truth.messages[str(id)]

    def interaction(self, id: str | int) -> Interaction:
        return self.truth.interactions[str(id)]

    @property
    def pings(self) -> list[tuple[str, str]]:
        """Whose device our bots have rung, with the message's id."""
        return [(ping, each.id) for each in self.truth.messages.values() if each.account for ping in each.pings]

    @property
    def reactions(self) -> dict[str, list[str]]:
        """What our bots show under each message now, by its id."""
        ours = {bot.id for bot in self.places.bots.values()}
        shown = {
            id: [emoji for emoji, user in message.reactions if user in ours]
            for id, message in self.truth.messages.items()
        }
        return {id: emojis for id, emojis in shown.items() if emojis}

    def commands(self, guild: str = "", *, account: str = "main") -> list[str]:
        """The names that the bot offers, everywhere or in one guild."""
        return [command["name"] for command in self.places.bot(account).commands.get(guild, [])]

    def typing_times(self, channel: Where) -> list[float]:
        return [each.at for each in self.truth.effects if (each.act, each.channel) == ("typing", _id(channel))]

    def is_typing(self, channel: Where) -> bool:
        seen = [each for each in self.truth.effects if each.channel == _id(channel)]
        last = next((each for each in reversed(seen) if each.act in ("typing", "post")), None)
        return last is not None and last.act == "typing" and self.clock.wall() - last.at < TYPING_SECONDS

    # The gateway.

    def attached(self, account: str = "main") -> int:
        """How many sessions have a socket now."""
        return sum(session.link is not None for session in self.sessions(account))

    def sessions(self, account: str = "main") -> list[Session]:
        """Those that have a socket, and those that may still come back."""
        return self.gateway.alive(account)

    def identifies(self, account: str = "main") -> int:
        """So many were taken, ever."""
        return len(self.places.bot(account).identifies)

    def resumes(self, account: str = "main") -> int:
        return sum(session.resumed for session in self.sessions(account))

    def _story(self) -> Iterable[str]:
        told = {each.id: [name for _, name, _ in each.log[-5:]] for each in self.sessions()}
        yield from super()._story()
        yield f"last paths {[call.path for call in self.truth.calls[-10:]]}"
        yield f"last events {told}"


def _id(channel: Where) -> str:
    return channel.id if isinstance(channel, Channel) else str(channel)
