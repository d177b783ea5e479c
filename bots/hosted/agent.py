"""Hosts an agent of the model library's: its words become events, and no tool of it acts before that is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from tidings.bots.assistant.turnstile import Turnstile
from tidings.core.agent import Event, Finished, OutcomeKind, TextDelta, ToolStarted, Turn

if TYPE_CHECKING:
    import pydantic_ai

    from tidings.bots.hosted.run import Ending

log = logging.getLogger(__name__)

NO_ANSWER = "the model gave no answer"


class HostedAgent:
    """Its tools have no declared effect, so all of them are effectful, and run only if they are permitted by name.

    `needs_finish_reason` is false for models that never say why they end.
    """

    def __init__(
        self,
        agent: pydantic_ai.Agent[Any, Any],
        permitted: frozenset[str],
        *,
        needs_finish_reason: bool = True,
        turnstile: Turnstile | None = None,
    ) -> None:
        self._agent = agent
        self._permitted = permitted
        self._needs_finish_reason = needs_finish_reason
        self._turnstile = turnstile or Turnstile()

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        # By now somebody has built an agent, so the library is there already.
        from tidings.bots.hosted.run import Play

        stage = Stage()
        play = Play(self._agent, turn, stage, self._permitted, self._turnstile, self._needs_finish_reason)
        playing = asyncio.create_task(play.perform())
        # Nobody waits on the stage for what has ended.
        playing.add_done_callback(lambda _: stage.close())
        said = False
        try:
            while (scene := await stage.next()) is not None:
                event, resumed = scene
                said = said or (isinstance(event, TextDelta) and bool(event.text.strip()))
                yield event
                # We are asked to go on only when the event is stored.
                if resumed is not None and not resumed.done():
                    resumed.set_result(None)
            yield _finished(playing.result(), said)
        finally:
            play.stop()
            await asyncio.wait({playing})
            if not playing.cancelled() and (error := playing.exception()):
                log.debug("the hosted agent ended with %s", type(error).__name__)


class Stage:
    """Between the library, which may run ahead, and whoever stores what it does: one event at a time."""

    def __init__(self) -> None:
        self._scenes: asyncio.Queue[tuple[Event, asyncio.Future[None] | None] | None] = asyncio.Queue()

    def close(self) -> None:
        self._scenes.put_nowait(None)

    async def next(self) -> tuple[Event, asyncio.Future[None] | None] | None:
        return await self._scenes.get()

    async def show(self, event: Event) -> None:
        """Returns when the event is stored, or as good as: its reader came back for the next one."""
        resumed = asyncio.get_running_loop().create_future()
        self._scenes.put_nowait((event, resumed))
        await resumed

    def tell(self, event: Event) -> None:
        """In its place in the order, but nobody waits: for what has happened already."""
        assert not isinstance(event, ToolStarted), "a tool waits until it was announced"
        self._scenes.put_nowait((event, None))


def _finished(ending: Ending, said: bool) -> Finished:
    if ending.kind is OutcomeKind.COMPLETED and not said:
        return Finished(OutcomeKind.FAILED, NO_ANSWER, ending.usage)
    return Finished(ending.kind, ending.reason, ending.usage, ending.passing)
