"""Hosts a `pydantic_ai.Agent`: its words become events, and none of its tools acts before the call is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from tidings.bots.assistant.settings import Approvals
from tidings.bots.assistant.turnstile import Turnstile
from tidings.core.agent import ApprovalAsked, Event, Finished, OutcomeKind, ToolStarted, Turn

if TYPE_CHECKING:
    import pydantic_ai

    from tidings.bots.hosted.run import Ending

log = logging.getLogger(__name__)

NO_ANSWER = "the model gave no answer"


class HostedAgent:
    """The tools of a hosted agent declare no effect, so all count as effectful.

    A tool runs only if it is permitted by name, and asks people first unless `approvals` allows it.
    `needs_finish_reason` is false for models that never say why they end.
    """

    def __init__(
        self,
        agent: pydantic_ai.Agent[Any, Any],
        permitted: frozenset[str],
        approvals: Approvals | None = None,
        *,
        needs_finish_reason: bool = True,
        turnstile: Turnstile | None = None,
    ) -> None:
        self._agent = agent
        self._permitted = permitted
        self._approvals = approvals or Approvals()
        self._needs_finish_reason = needs_finish_reason
        self._turnstile = turnstile or Turnstile()

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        # The owner's module has built an agent by now, so the library is already imported.
        from tidings.bots.hosted.run import Play
        from tidings.bots.hosted.tool_gate import Terms

        stage = Stage()
        terms = Terms(self._permitted, self._approvals)
        play = Play(self._agent, turn, stage, terms, self._turnstile, self._needs_finish_reason)
        playing = asyncio.create_task(play.perform())
        # Closing the stage ends the loop below when the run has ended.
        playing.add_done_callback(lambda _: stage.close())
        try:
            while (scene := await stage.next()) is not None:
                event, resumed = scene
                yield event
                # The runner asks for the next event only after this one is stored.
                if resumed is not None and not resumed.done():
                    resumed.set_result(None)
            if isinstance(ending := playing.result(), ApprovalAsked):
                yield ending
            else:
                yield _finished(ending, play.spoke)
        finally:
            play.stop()
            await asyncio.wait({playing})
            if not playing.cancelled() and (error := playing.exception()):
                log.debug("the hosted agent ended with %s", type(error).__name__)


class Stage:
    """Passes events one at a time from the library, which may run ahead, to the runner, which stores them."""

    def __init__(self) -> None:
        self._scenes: asyncio.Queue[tuple[Event, asyncio.Future[None] | None] | None] = asyncio.Queue()

    def close(self) -> None:
        self._scenes.put_nowait(None)

    async def next(self) -> tuple[Event, asyncio.Future[None] | None] | None:
        return await self._scenes.get()

    async def show(self, event: Event) -> None:
        """Returns when the event is stored: the reader has asked for the next one."""
        resumed = asyncio.get_running_loop().create_future()
        self._scenes.put_nowait((event, resumed))
        await resumed

    def tell(self, event: Event) -> None:
        """Queues an event without waiting, for things that have already happened."""
        assert not isinstance(event, ToolStarted), "a tool waits until it was announced"
        self._scenes.put_nowait((event, None))


def _finished(ending: Ending, said: bool) -> Finished:
    if ending.kind is OutcomeKind.COMPLETED and not said:
        return Finished(OutcomeKind.FAILED, NO_ANSWER, ending.usage)
    return Finished(ending.kind, ending.reason, ending.usage, ending.passing)
