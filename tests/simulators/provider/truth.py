"""The ground truth of the simulated provider: who asked what, what was told, and who listened to the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tests.simulators.provider.turns import EMPTY, Answer
from tests.simulators.shared.truth import News
from tidings.core.clock import Clock

Api = Literal["chat", "responses", "messages", "models", ""]
# told: all was sent and the client stayed; hung up: it did not; refused: an error status; cut: by a lever, in the
# middle; closed: the simulator itself went away. Empty while it is open.
Verdict = Literal["", "told", "hung up", "refused", "cut", "closed"]


class Asked(NamedTuple):
    """A tool call that stands in the history of a request."""

    tool: str
    args: str
    id: str


class Line(NamedTuple):
    """One message of a request, whatever the dialect: role is system, user, assistant or tool."""

    role: str
    text: str
    calls: tuple[Asked, ...] = ()
    # Of a tool's line: which call it answers.
    id: str = ""


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request and its answer; it grows while it is open.

    Nobody can know what a client did with bytes that its kernel took: "told" says that all was taken, and that the
    client was still there. Who hangs up during the last bytes is not caught.
    """

    order: int
    # By the wall clock and by the steady one.
    at: float
    now: float
    method: str
    path: str
    api: Api
    # Lower case; where a key stands is only told.
    headers: dict[str, str]
    # Empty where it was no JSON object.
    body: dict[str, Any]
    model: str = ""
    stream: bool = False
    # As they came, in the dialect of the path.
    messages: list[Any] = field(default_factory=list)
    tools: list[Any] = field(default_factory=list)
    # The same for all dialects; empty where the request was refused.
    lines: tuple[Line, ...] = ()
    tool_names: tuple[str, ...] = ()
    input_tokens: int = 0
    status: int = 0
    # The fault's action, if it met one.
    fault: str = ""
    # What the model wanted to say, and the bytes of the body that left us.
    answer: Answer = EMPTY
    sent: bytearray = field(default_factory=bytearray)
    # How many pieces of words, thoughts or arguments left us; 1 for an answer that is not streamed.
    chunks: int = 0
    verdict: Verdict = ""
    ended: float = 0.0

    @property
    def system(self) -> str:
        return "\n".join(line.text for line in self.lines if line.role == "system")

    @property
    def said(self) -> str:
        """What the person said last."""
        return next((line.text for line in reversed(self.lines) if line.role == "user"), "")

    @property
    def results(self) -> dict[str, str]:
        """What tools answered, by the id of the call."""
        return {line.id: line.text for line in self.lines if line.role == "tool"}

    @property
    def read(self) -> bool:
        return self.verdict == "told"

    @property
    def hung_up(self) -> bool:
        return self.verdict == "hung up"

    @property
    def seconds(self) -> float:
        return self.ended - self.now if self.ended else 0.0


class Truth(News):
    """Append-only."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.exchanges: list[Exchange] = []
        # Streams that are open now, and that were open at most.
        self.open = 0
        self.most = 0

    def arrived(self, method: str, path: str, api: Api, headers: dict[str, str], body: dict[str, Any]) -> Exchange:
        exchange = Exchange(
            order=len(self.exchanges),
            at=self.clock.wall(),
            now=self.clock.now(),
            method=method,
            path=path,
            api=api,
            headers=headers,
            body=body,
        )
        self.exchanges.append(exchange)
        self.wake()
        return exchange

    def opened(self) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        self.wake()

    def shut(self) -> None:
        self.open -= 1
        self.wake()

    def decided(self, exchange: Exchange, verdict: Verdict) -> None:
        # The first word counts: who was cut did not hang up.
        if not exchange.verdict:
            exchange.verdict = verdict
            exchange.ended = self.clock.now()
            self.wake()
