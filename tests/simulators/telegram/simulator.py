"""Telegram in a box: the Bot API on a loopback socket, as strict as the platform, with a ground truth and levers."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulators.shared.server import SimulatedPlatform
from tests.simulators.telegram.arguments import DEFAULT_SCOPE
from tests.simulators.telegram.calls import Calls, Stops
from tests.simulators.telegram.chats import PERSON, Bot, Chats, Id
from tests.simulators.telegram.faults import MILD, NASTY, Faults, Odds
from tests.simulators.telegram.files import UPLOAD_BYTES, Shelf
from tests.simulators.telegram.levers import Levers
from tests.simulators.telegram.people import People
from tests.simulators.telegram.rates import Rates
from tests.simulators.telegram.switchboard import Switchboard
from tests.simulators.telegram.truth import Call, Effect, Entity, File, Message, Truth
from tests.simulators.telegram.updates import REPEAT_SECONDS, Queue
from tests.simulators.telegram.webhook import Webhooks
from tidings.core.clock import Clock

__all__ = ["MILD", "NASTY", "PERSON", "TOKEN", "Call", "Effect", "Entity", "File", "Message", "Odds", "TelegramServer"]

TOKEN = "1000001:simulated-token"
FIRST_BOT = 1_000_001
TYPING_SECONDS = 5.0


class TelegramServer(People, Levers, SimulatedPlatform[Effect, Call, Message]):
    """`async with TelegramServer() as telegram:` listens on `telegram.address`; give `telegram.base_url` to a client.

    A client may be another process and may die at any moment. The bot `main` exists and knows the private chat with
    person 7; speaking in a chat or topic makes it exist. Chats are named by numbers, or by those as text.

    `repeat_seconds` is how long the server slows down who polls again with the same offset, and who fights over a bot;
    `webhook_pause` is the time between two calls of setWebhook; `retry_seconds` and `longest_retry` are the pauses
    between attempts of a webhook. All but `webhook_pause` are real time. `rich` and `drafts` may be switched at any
    time; without them the methods do not exist, as on an older server. `stops` says whether a person can stop drafts:
    "known", or "ignored" or "refused" on a server that is older than that.
    """

    truth: Truth
    _switchboard: Switchboard

    def __init__(
        self,
        *,
        token: str = TOKEN,
        username: str = "tidings_bot",
        clock: Clock | None = None,
        rich: bool = True,
        drafts: bool = True,
        stops: Stops = "known",
        reads_all: bool = False,
        repeat_seconds: float = REPEAT_SECONDS,
        webhook_pause: float = 1.0,
        retry_seconds: float = 0.05,
        longest_retry: float = 1.0,
        upload_limit: int = UPLOAD_BYTES,
    ) -> None:
        super().__init__(clock)
        self.truth = Truth(self.clock)
        self.faults: Faults = Faults()
        self.rates = Rates(self.clock)
        self.shelf = Shelf()
        self.chats = Chats(self.truth, self.clock)
        self._repeat_seconds = repeat_seconds
        self._calls = Calls(self.chats, self.shelf, self.rates)
        self.rich, self.drafts = rich, drafts
        self._calls.stops = stops
        self._webhooks = Webhooks(self.clock, pause=webhook_pause, delay=retry_seconds, longest=longest_retry)
        self._switchboard = Switchboard(self._calls, self._webhooks, self.faults, self.truth, upload_limit)
        self.add_bot("main", token, username, reads_all=reads_all)
        self.chats.open("main", PERSON)

    def add_bot(self, account: str, token: str, username: str, *, reads_all: bool = False) -> Bot:
        """Another bot on the same server; its privacy mode is on unless it reads all."""
        queue = Queue(account, self.truth, self.faults, self._repeat_seconds)
        bot = Bot(account, FIRST_BOT + len(self.chats.bots), token, username, queue, reads_all=reads_all)
        self.chats.bots[account] = bot
        return bot

    @property
    def base_url(self) -> str:
        return f"http://{self.address}/bot"

    @property
    def base_file_url(self) -> str:
        return f"http://{self.address}/file/bot"

    @property
    def token(self) -> str:
        return self.chats.bot("main").token

    @property
    def skew(self) -> float:
        """How far the platform's dates are ahead of its clock, in seconds."""
        return self.chats.skew

    @skew.setter
    def skew(self, seconds: float) -> None:
        self.chats.skew = seconds

    @property
    def rich(self) -> bool:
        return self._calls.rich

    @rich.setter
    def rich(self, on: bool) -> None:
        self._calls.rich = on

    @property
    def drafts(self) -> bool:
        return self._calls.drafts

    @drafts.setter
    def drafts(self, on: bool) -> None:
        self._calls.drafts = on

    # The ground truth.

    def posts_in(self, chat: Id, thread: Id | None = None) -> list[str]:
        return [message.text for message in self.truth.sent(str(chat), _thread(thread))]

    def visible(self, chat: Id = PERSON, thread: Id = "") -> tuple[Message, ...]:
        """What a person sees there of the bot now; a draft stands last and has no id."""
        return self.truth.visible(str(chat), _thread(thread) or "")

    def message(self, name: str, *, account: str = "main") -> Message:
        return self._find(name, account)[1]

    @property
    def confirmed(self) -> list[str]:
        """The names of all updates that were forgotten by an offset or accepted by a webhook, in order."""
        return [name for _, name in self.truth.confirmed]

    def confirmed_by(self, account: str) -> list[str]:
        return [name for whose, name in self.truth.confirmed if whose == account]

    @property
    def unconfirmed(self) -> list[str]:
        return [update.name for bot in self.chats.bots.values() for update in bot.queue.pending]

    @property
    def expired(self) -> list[str]:
        """What nobody fetched for a day, and nobody will."""
        return [update.name for bot in self.chats.bots.values() for update in bot.queue.expired]

    @property
    def conflicts(self) -> int:
        return self.truth.conflicts

    @property
    def reactions(self) -> dict[str, str]:
        """The bot's reaction by the name of the message."""
        return {message.id: message.reaction for message in self.truth.messages.values() if message.reaction}

    @property
    def menu(self) -> tuple[tuple[str, str], ...]:
        """Commands and descriptions of the first bot's default menu."""
        return self.menus("main").get((DEFAULT_SCOPE, ""), ())

    def menus(self, account: str = "main") -> dict[tuple[str, str], tuple[tuple[str, str], ...]]:
        """Each menu by its scope as JSON and its language."""
        return dict(self.chats.bot(account).menus)

    @property
    def webhook_attempts(self) -> list[tuple[int, int]]:
        """(update id, status) of each attempt; 0 where nobody answered."""
        return list(self._webhooks.attempts)

    def typing_times(self, chat: Id = PERSON) -> list[float]:
        return [effect.at for effect in self.truth.effects if effect.act == "typing" and effect.chat == str(chat)]

    def is_typing(self, chat: Id = PERSON, thread: Id = "") -> bool:
        """A person sees it for a few seconds, or until a message comes."""
        place = (str(chat), _thread(thread))
        seen = [each for each in self.truth.effects if (each.chat, each.thread) == place]
        last = next((each for each in reversed(seen) if each.act in ("typing", "post")), None)
        return last is not None and last.act == "typing" and self.clock.wall() - last.at < TYPING_SECONDS

    def attached(self, account: str = "main") -> bool:
        """A long poll is open or a webhook is set."""
        queue = self.chats.bot(account).queue
        return queue.is_polled or queue.hook is not None

    def _story(self) -> Iterable[str]:
        yield from super()._story()
        yield f"unconfirmed {self.unconfirmed[-10:]}"


def _thread(thread: Id | None) -> str | None:
    return None if thread is None else str(thread or "")
