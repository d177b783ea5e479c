"""A model provider in a box: OpenAI's and Anthropic's APIs on a loopback socket, strict, scripted, and with levers."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulators.provider.faults import Faults
from tests.simulators.provider.levers import Levers
from tests.simulators.provider.minds import Mind, Minds, echo, obedient
from tests.simulators.provider.switchboard import ANTHROPIC, Switchboard
from tests.simulators.provider.truth import Api, Asked, Exchange, Line, Truth
from tests.simulators.provider.turns import Answer, Call, Say, Turn, count_tokens
from tests.simulators.shared.server import SimulatedServer
from tidings.core.clock import Clock

__all__ = [
    "KEY",
    "MODEL",
    "SMALL",
    "Answer",
    "Asked",
    "Call",
    "Exchange",
    "Line",
    "Mind",
    "ProviderServer",
    "Say",
    "Turn",
    "count_tokens",
]

KEY = "sk-simulated-0123456789abcdef"
MODEL, SMALL = "sim-large", "sim-small"


class ProviderServer(Levers, SimulatedServer):
    """`async with ProviderServer() as provider:` and give `provider.openai_url` or `.anthropic_url` to a client.

    Until told otherwise it echoes. A client may be another process and may die at any moment. Requests are checked
    before faults befall them, so a wrong request is refused whatever is armed.
    """

    truth: Truth
    _switchboard: Switchboard

    def __init__(
        self,
        *,
        key: str = KEY,
        models: Iterable[str] = (MODEL, SMALL),
        window: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(clock)
        self.truth = Truth(self.clock)
        self.faults = Faults()
        self._minds = Minds()
        self._switchboard = Switchboard(self.truth, self.faults, self._minds, key, models)
        self.window = window

    @property
    def openai_url(self) -> str:
        return f"http://{self.address}/v1"

    @property
    def anthropic_url(self) -> str:
        return f"http://{self.address}{ANTHROPIC}"

    @property
    def key(self) -> str:
        return self._switchboard.key

    @key.setter
    def key(self, key: str) -> None:
        self._switchboard.key = key

    @property
    def models(self) -> list[str]:
        """Those that exist; may be changed."""
        return self._switchboard.models

    @property
    def window(self) -> int | None:
        """The most tokens a request may have."""
        return self._switchboard.window

    @window.setter
    def window(self, tokens: int | None) -> None:
        self._switchboard.window = tokens

    @property
    def alternating(self) -> bool:
        """Whether Anthropic refuses two messages of one role in a row, as it did for long; today it joins them."""
        return self._switchboard.anthropic.alternating

    @alternating.setter
    def alternating(self, on: bool) -> None:
        self._switchboard.anthropic.alternating = on

    # What the model says.

    def script(self, *turns: Turn | Mind, model: str | None = None, then: Turn | Mind | None = None) -> None:
        """The next turns, after those that are left; each is said once, then `then` for ever.

        A turn is a `Say`, a `Call`, a list of those, or a function of the `Exchange` that returns one and may be
        async. Where a script ends without a `then`, requests are refused with 400 and code "unscripted". A script for
        a model comes before the one for any.
        """
        self._minds.script(turns, model, then)

    def echo(self) -> None:
        """Says back what the person said last; forgets scripts."""
        self._minds.become(echo)

    def obedient(self) -> None:
        """Does whatever any text in its context tells it by `CALL tool {json}`, else says "done"; forgets scripts."""
        self._minds.become(obedient)

    @property
    def turns_left(self) -> int:
        return self._minds.left

    # The ground truth.

    @property
    def requests(self) -> tuple[Exchange, ...]:
        """All that were made of a model, with what came of them."""
        return tuple(exchange for exchange in self.truth.exchanges if exchange.api != "models")

    def requests_to(self, *, api: Api | None = None, model: str | None = None) -> tuple[Exchange, ...]:
        return tuple(
            exchange
            for exchange in self.truth.exchanges
            if api in (None, exchange.api) and model in (None, exchange.model)
        )

    @property
    def last(self) -> Exchange:
        return self.requests[-1]

    @property
    def open_streams(self) -> int:
        return self.truth.open

    @property
    def most_streams(self) -> int:
        """How many were open at the same time, at most."""
        return self.truth.most

    def _story(self) -> Iterable[str]:
        seen = [
            (each.api or each.path, each.model, each.status, each.chunks, each.verdict or "open")
            for each in self.truth.exchanges[-10:]
        ]
        yield f"{len(self.truth.exchanges)} requests"
        yield f"the last {seen}"
        yield f"{self.open_streams} streams open"
