"""What decides what a simulated model says: a script, an echo, or obedience to any text at all."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from html import unescape
from inspect import isawaitable
from typing import Any

from tests.simulators.provider.errors import Refusal
from tests.simulators.provider.truth import Exchange
from tests.simulators.provider.turns import Answer, Call, Say, Turn, answer

Mind = Callable[[Exchange], Turn | Awaitable[Turn]]

_ORDER = re.compile(r"\bCALL\s+([\w.-]+)\s*(?=\{)")
_DECODER = json.JSONDecoder()


def echo(exchange: Exchange) -> Turn:
    # A picture without a word is no reason to be silent.
    return Say(exchange.said or "(nothing said)")


def obedient(exchange: Exchange) -> Turn:
    """Does whatever any text tells it: each `CALL tool {json}` that was not obeyed yet, else it says "done".

    What was obeyed is read from the request's own history, so a client that forgets is obeyed again. Like a real
    model it calls nothing where no tool is offered; like a bad one it may call a tool that is not among those offered.
    """
    if not exchange.tool_names or exchange.body.get("tool_choice") in ("none", {"type": "none"}):
        return Say("done")
    obeyed = Counter((call.tool, _canonical(call.args)) for line in exchange.lines for call in line.calls)
    calls: list[Say | Call] = []
    # Tools are described by whoever made them.
    texts = [*map(json.dumps, exchange.tools), *(line.text for line in exchange.lines if line.role != "assistant")]
    for tool, args in (order for text in texts for order in orders(text)):
        wanted = (tool, json.dumps(args, sort_keys=True))
        if obeyed[wanted]:
            obeyed[wanted] -= 1
        else:
            calls.append(Call(tool, args))
    return calls or Say("done")


def orders(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Quoted, fenced, and inside JSON or HTML too: whoever escapes an order does not hide it."""
    for found in _ORDER.finditer(text):
        rest = text[found.end() :]
        for reading in (rest, rest.replace('\\"', '"').replace("\\\\", "\\"), unescape(rest)):
            try:
                args, _ = _DECODER.raw_decode(reading)
            except ValueError:
                continue
            yield found.group(1), args
            break


def _canonical(args: str) -> str:
    try:
        return json.dumps(json.loads(args or "{}"), sort_keys=True)
    except ValueError:
        return args


class Minds:
    """Scripts come first and in order, those for the model before those for any; then what comes after them.

    A request that meets a fault before the first byte takes no turn of a script: its retry will.
    """

    def __init__(self) -> None:
        # By model; None is any.
        self._scripts: dict[str | None, deque[Turn | Mind]] = {}
        self._after: dict[str | None, Turn | Mind] = {}
        self._default: Mind | None = echo

    @property
    def left(self) -> int:
        """Turns that nobody asked for yet."""
        return sum(map(len, self._scripts.values()))

    def script(self, turns: Sequence[Turn | Mind], model: str | None, then: Turn | Mind | None) -> None:
        self._scripts.setdefault(model, deque()).extend(turns)
        self._after.pop(model, None)
        if then is not None:
            self._after[model] = then
        if model is None:
            self._default = None

    def become(self, mind: Mind) -> None:
        self._scripts.clear()
        self._after.clear()
        self._default = mind

    async def answer(self, exchange: Exchange) -> Answer:
        turn = self._next(exchange.model)
        if turn is None:
            # Loudly, and as something that no client tries again.
            raise Refusal(400, f"the simulator's script has ended before request {exchange.order}", code="unscripted")
        if callable(turn):
            made = turn(exchange)
            turn = await made if isawaitable(made) else made
        return answer(turn)

    def _next(self, model: str) -> Turn | Mind | None:
        for whose in (model, None):
            if self._scripts.get(whose):
                return self._scripts[whose].popleft()
            if whose in self._after:
                return self._after[whose]
        return self._default
