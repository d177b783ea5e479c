"""Shows a growing answer: picks the newest text worth showing, and signals typing meanwhile."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextvars import Context

from msgspec.structs import replace

from tidings.core.agent import Ended, Progress, Restarted, TextDelta, ToolFinished, ToolStarted
from tidings.core.clock import Clock, Timer
from tidings.core.desk.runs import Numbered
from tidings.core.errors import Lagged
from tidings.core.outbound import splitter
from tidings.core.outbound.views import Views
from tidings.core.types import Body, Capabilities, Signal, Target, View

# An answer that is ready sooner needs no view: people hardly notice the wait.
OPEN_AFTER_SECONDS = 0.5
# Typing fades after five seconds on most platforms.
TYPING_SECONDS = 4.0
# Temporary drafts fade by themselves, after half a minute on the platforms we know.
REFRESH_SECONDS = 20.0
# No platform shows more than this of a growing text. A longer text is cut to KEPT_CHARACTERS, so that cuts are
# rare; only the final answer has the beginning again.
SHOWN_CHARACTERS = 12_000
KEPT_CHARACTERS = 8_000

Follow = Callable[[str, int], AsyncIterator[Numbered]]
Fit = Callable[[Target, str], str]


class Drafts:
    """The drafts of running runs; a closed draft shows nothing more."""

    def __init__(self, clock: Clock, views: Views, follow: Follow, fit: Fit) -> None:
        self._clock = clock
        self._views = views
        self._follow = follow
        self._fit = fit
        self._open: dict[str, Draft] = {}
        self._timers: dict[str, Timer] = {}

    def watch(self, run: str, target: Target, can: Capabilities, view: View | None, *, quietly: bool = False) -> None:
        """With `quietly`, nothing is shown before the answer has words: the run may end in silence."""
        if quietly:
            can = replace(can, typing=False, reactions=False)

        def begin() -> None:
            self._timers.pop(run, None)
            self._open[run] = Draft(run, target, can, view, self, quietly=quietly)

        if can.typing or can.streaming_edits or can.reactions:
            self._timers[run] = self._clock.call_later(OPEN_AFTER_SECONDS, begin)

    def close(self, run: str) -> bool:
        """Ends the draft of a run; true when the person has seen a sign of this run."""
        if timer := self._timers.pop(run, None):
            timer.cancel()
        draft = self._open.pop(run, None)
        if draft:
            draft.close()
        return draft is not None


class Draft:
    def __init__(
        self, run: str, target: Target, can: Capabilities, view: View | None, drafts: Drafts, *, quietly: bool
    ) -> None:
        self._run = run
        self._quietly = quietly
        self._target = target
        self._view = view
        self._clock, self._views = drafts._clock, drafts._views
        self._follow, self._fit = drafts._follow, drafts._fit
        # The text so far, or only its end if it is long.
        self._text = ""
        self._progress = ""
        # The names of running tools, by call.
        self._tools: dict[str, str] = {}
        self._changed = asyncio.Event()
        # The text on display, and when it fades.
        self._shown, self._fades = "", math.inf
        self._tasks: list[asyncio.Task[None]] = []
        if can.reactions:
            self._views.signal(target, Signal.SEEN)
        if can.typing:
            self._tasks.append(asyncio.create_task(self._type(), context=Context()))
        if can.streaming_edits:
            self._tasks.append(asyncio.create_task(self._read(), context=Context()))
            self._tasks.append(asyncio.create_task(self._show(), context=Context()))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _type(self) -> None:
        while True:
            self._views.signal(self._target, Signal.TYPING)
            await self._clock.sleep(TYPING_SECONDS)

    async def _read(self) -> None:
        """Follows the run without waiting for the platform, so that a slow platform does not make this reader lag."""
        seen = 0
        while True:
            try:
                async for entry in self._follow(self._run, seen):
                    seen = entry.seq
                    if isinstance(entry.event, Ended):
                        return
                    self._take(entry)
                return
            except Lagged:
                continue

    def _take(self, entry: Numbered) -> None:
        match entry.event:
            case TextDelta(text=text):
                # New text replaces the progress line that was shown before it.
                self._text, self._progress = _end(self._text + text), ""
            case Restarted():
                self._text, self._progress = "", ""
                self._tools.clear()
            case ToolStarted(call=call, name=name):
                self._tools[call], self._progress = name, ""
            case ToolFinished(call=call):
                self._tools.pop(call, None)
            case Progress(text=text):
                self._progress = text
            case _:
                return
        if self._text.strip() or not self._quietly:
            self._changed.set()

    def _latest(self) -> str:
        """The text to show: its end if it is too long for one message; only the final answer is split."""
        self._changed.clear()
        working = f"{', '.join(dict.fromkeys(self._tools.values()))} …" if self._tools else ""
        text = "\n\n".join(filter(None, (self._text.strip(), self._progress or working)))
        return self._fit(self._target, _end(text) or "…")

    def _news(self) -> str | None:
        """The text to show now; None if it is already on display."""
        text = self._latest()
        if text == self._shown and self._clock.now() < self._fades:
            return None
        self._shown, self._fades = text, self._clock.now() + REFRESH_SECONDS
        return text

    async def _show(self) -> None:
        while True:
            await self._change()
            if self._view is None:
                self._shown = self._latest()
                self._view = await self._views.open(self._run, self._target, self._shown)
                self._fades = self._clock.now() + REFRESH_SECONDS
            else:
                self._view = await self._views.show(self._run, self._target, self._view, self._news)
            if self._view is None:
                return
            if self._view.anchored:
                self._fades = math.inf

    async def _change(self) -> None:
        if self._fades == math.inf:
            await self._changed.wait()
            return
        timer = self._clock.call_later(self._fades - self._clock.now(), self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()


def _end(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else splitter.tail(text, KEPT_CHARACTERS)


def tail(compose: Callable[[Target, Body], tuple[Body, ...]]) -> Fit:
    def fit(target: Target, text: str) -> str:
        bodies = compose(target, Body(text=text))
        return bodies[-1].text if bodies else text

    return fit
