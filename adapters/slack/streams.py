"""Answers that grow: by Slack's native streams where they are allowed, else by a message that is edited."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from tidings.adapters.slack import compose, render
from tidings.adapters.slack.address import Handle, Shown, handle_of, is_direct
from tidings.adapters.slack.client import GONE, UNDRAWN, Client, Refused, Scopeless
from tidings.core.clock import Clock
from tidings.core.errors import Doubtful, RateLimited, SendError, Stopped, Unfit, Unreachable, ViewLost
from tidings.core.outbound.pace import Budgets
from tidings.core.types import Body, Pace, Part, Target

# Slack ends a stream after five minutes, and takes 12,000 characters; before that we do.
STREAM_SECONDS = 4 * 60.0
# Slack opens so many streams a minute; who comes beyond that is answered by a message.
STARTS = Pace(key="starts", seconds=3.0, burst=8)
# How many views we know by what they say.
REMEMBERED = 2000
ENDED = "message_not_in_streaming_state"
STOPPED = "stopped_by_user"
BUDGETS = {"chat.appendStream": "append", "chat.stopStream": "stop", "chat.update": "update"}
# Answers of Slack that mean: this app can never use native streams.
NEVER = ("unknown_method", "feature_not_enabled", "not_allowed", "method_deprecated")


class Growth(NamedTuple):
    """How far and how quickly an answer grows."""

    # The longest text of one message.
    text: int = render.LIMIT
    # A stream that is longer ends before Slack ends it.
    stream: int = 11_000
    # Between two pieces of a stream.
    flush_seconds: float = 1.0
    # Slack asks not to edit a message more often.
    edit_seconds: float = 3.0


USUAL_GROWTH = Growth()


class _Live:
    """What this process knows of a view; of a stream that another one has opened it knows nothing."""

    __slots__ = ("edited", "is_open", "since", "text")

    def __init__(self, now: float, *, is_open: bool, text: str | None) -> None:
        self.since = self.edited = now
        self.is_open = is_open
        # The exact text of a stream so far; None when it is not known.
        self.text = text


class Streams:
    def __init__(
        self, client: Client, clock: Clock, account: str, growth: Growth, *, native: bool, mentions: bool
    ) -> None:
        self._client = client
        self._growth = growth
        self._clock = clock
        self._account = account
        self._native = native
        self._mentions = mentions
        self._budgets = Budgets(clock)
        self._paused_until = 0.0
        self._refused: set[str] = set()
        self._views: OrderedDict[str, _Live] = OrderedDict()

    # Opening.

    def may_stream(self, target: Target) -> bool:
        handle = handle_of(target)
        has_place = bool(target.thread) and (is_direct(target.chat) or bool(handle.team and handle.user))
        return self._native and has_place and target.chat not in self._refused

    async def open(self, part: Part, channel: str) -> Shown | None:
        """None where it is to be a message; nothing was begun then. Raises a SendError."""
        if not self.may_stream(part.target) or self._clock.now() < self._paused_until:
            return None
        if not self._budgets.take((STARTS,)):
            return None
        handle, text = handle_of(part.target), self._settled(part.body.text)
        try:
            opened = await self._client.call(
                "chat.startStream",
                channel=channel,
                thread_ts=part.target.thread,
                markdown_text=text or None,
                **_recipient(handle),
            )
        except RateLimited as error:
            self._paused_until = self._clock.now() + (error.retry_after or STARTS.seconds)
            return None
        except (Scopeless, Refused) as error:
            # Whatever is wrong with the place itself, the message will tell.
            if isinstance(error, Scopeless) or error.code in NEVER:
                self._native = False
            else:
                self._refused.add(part.target.chat)
            return None
        shown = Shown(channel, str(opened["ts"]), part.target.thread, stream=True)
        self._keep(shown, _Live(self._clock.now(), is_open=True, text=text))
        return shown

    def opened(self, shown: Shown) -> None:
        """A message was posted that will be edited."""
        self._keep(shown, _Live(self._clock.now(), is_open=False, text=None))

    def knows(self, ts: str) -> bool:
        return ts in self._views

    async def adopt(self, shown: Shown) -> None:
        """Takes over a stream whose opening was in doubt: ends the stream, and edits its message from now on."""
        try:
            await self._end(shown, self._live(shown))
        except SendError as error:
            # The stream stays unknown, and the next search finds it again.
            self._forget(shown)
            if isinstance(error, Doubtful):
                raise Unreachable(str(error)) from error
            raise

    # Growing.

    async def show(self, shown: Shown, text: str) -> None:
        """Raises ViewLost when there is nothing left to grow."""
        live = self._live(shown)
        try:
            if shown.stream and live.is_open and await self._grows(shown, live, text):
                return
            self._await_turn(shown, live)
            await self._edit(shown, self._growing(shown, text))
        except Refused as error:
            if error.code == STOPPED and is_direct(shown.channel):
                # In a direct message only that person can press stop; elsewhere only the event says who did.
                raise Stopped(str(error)) from error
            if error.code in (*GONE, STOPPED):
                raise ViewLost(str(error)) from error
            raise
        live.edited = self._clock.now()

    async def _grows(self, shown: Shown, live: _Live, text: str) -> bool:
        """False when the stream is over, however that came."""
        said, known = self._settled(text), live.text
        old = self._clock.now() - live.since >= STREAM_SECONDS
        if known is None or old or len(said) > self._growth.stream or not said.startswith(known):
            if known is not None and not old and known.startswith(said):
                # A line that came and went; what stands there is still right.
                return True
            await self._end(shown, live)
            live.edited = -self._growth.edit_seconds
            return False
        if said == known:
            return True
        try:
            await self._call("chat.appendStream", shown, markdown_text=said[len(known) :])
        except Refused as error:
            live.is_open = False
            if error.code != ENDED:
                raise
            live.edited = -self._growth.edit_seconds
            return False
        except Doubtful:
            # Perhaps it says more than we know.
            live.text = None
            raise
        live.text = said
        return True

    def _await_turn(self, shown: Shown, live: _Live) -> None:
        left = live.edited + self._growth.edit_seconds - self._clock.now()
        if left > 0.01 and (shown.stream or shown.instead):
            raise RateLimited(left, f"{self._account}/{shown.channel}/{shown.thread}/show")

    def _growing(self, shown: Shown, text: str) -> dict[str, Any]:
        if not shown.stream:
            return compose.growing(text, mentions=self._mentions, limit=self._growth.text)
        whole = render.stream(text, mentions=self._mentions)
        return {"markdown_text": render.tail(whole, min(render.UPDATE_LIMIT, self._growth.text)) or render.MARK}

    # Finishing. Each of these may be done twice.

    async def finish(self, shown: Shown, body: Body, metadata: dict[str, Any]) -> bool:
        """False when it cannot say this: it is to be dropped, and said anew. Raises ViewLost when it is gone."""
        if len(render.block(body.text)) > self._growth.text:
            raise Unfit(f"Slack takes {self._growth.text} characters")
        live = self._live(shown)
        try:
            if not shown.stream:
                return await self._replace(shown, body, metadata)
            final = render.stream(body.text, mentions=self._mentions)
            if await self._stop(shown, live, final, body, metadata):
                return self._forget(shown)
            if len(final) > render.UPDATE_LIMIT or body.choices:
                return False
            await self._edit(shown, {"markdown_text": final, "metadata": metadata})
            return self._forget(shown)
        except Refused as error:
            if error.code in GONE:
                raise ViewLost(str(error)) from error
            raise

    async def _replace(self, shown: Shown, body: Body, metadata: dict[str, Any]) -> bool:
        said = {"channel": shown.channel, "ts": shown.ts, "metadata": metadata, "budget": f"{self._account}/update"}
        fitting = (
            words
            for words in compose.wordings(body, mentions=self._mentions)
            if len(words["text"]) <= render.UPDATE_LIMIT
        )
        try:
            await self._client.say("chat.update", said, fitting)
        except Refused as error:
            if error.code not in UNDRAWN:
                raise
            return False
        return self._forget(shown)

    async def _stop(self, shown: Shown, live: _Live, final: str, body: Body, metadata: dict[str, Any]) -> bool:
        """True when the stream ended with the whole answer in it."""
        if not live.is_open:
            return False
        known = live.text
        if known is None or not final.startswith(known) or len(final) > self._growth.text:
            await self._end(shown, live)
            return False
        blocks = compose.buttons(body.choices) or None
        rest = final[len(known) :] or None
        try:
            await self._call("chat.stopStream", shown, markdown_text=rest, blocks=blocks, metadata=metadata)
        except Unfit:
            await self._end(shown, live)
            return False
        except Refused as error:
            if error.code not in (ENDED, STOPPED):
                raise
            live.is_open = False
            return False
        return True

    async def drop(self, shown: Shown) -> None:
        """Deletes the shown text, because the whole answer is sent anew."""
        live = self._live(shown)
        try:
            if shown.stream and live.is_open:
                await self._end(shown, live)
            await self._client.call("chat.delete", channel=shown.channel, ts=shown.ts)
        except Refused as error:
            # A message that may not be deleted stays above the answer.
            if error.code not in (*GONE, "cant_delete_message", "compliance_exports_prevent_deletion"):
                raise
        self._forget(shown)

    async def _end(self, shown: Shown, live: _Live) -> None:
        try:
            await self._call("chat.stopStream", shown)
        except Refused as error:
            if error.code not in (ENDED, STOPPED):
                raise
        live.is_open = False

    # The rest.

    def _settled(self, text: str) -> str:
        return render.stream(render.settled(text), mentions=self._mentions)

    def _live(self, shown: Shown) -> _Live:
        if shown.ts not in self._views:
            self._keep(shown, _Live(self._clock.now() - self._growth.edit_seconds, is_open=shown.stream, text=None))
        return self._views[shown.ts]

    def _keep(self, shown: Shown, live: _Live) -> None:
        self._views[shown.ts] = live
        while len(self._views) > REMEMBERED:
            self._views.popitem(last=False)

    def _forget(self, shown: Shown) -> bool:
        self._views.pop(shown.ts, None)
        return True

    async def _edit(self, shown: Shown, said: dict[str, Any]) -> None:
        await self._call("chat.update", shown, **said)

    async def _call(self, method: str, shown: Shown, **said: Any) -> None:
        budget = f"{self._account}/{BUDGETS[method]}"
        await self._client.call(method, channel=shown.channel, ts=shown.ts, budget=budget, **said)


def _recipient(handle: Handle) -> dict[str, Any]:
    if not (handle.team and handle.user):
        return {}
    return {"recipient_team_id": handle.team, "recipient_user_id": handle.user}
