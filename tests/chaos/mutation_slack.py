"""Seeded bugs in the Slack adapter: early confirmations, mentions, the library's retries, threads and proofs.

The adapter is imported by who becomes one of these, and by nobody else: its library takes a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tests.chaos.mutation_seams import swap
from tidings.core.types import Inbound, Part, Receipt

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient


def acknowledged_before_the_listener() -> None:
    """Bolt's default: an event is acknowledged at once, before its listener has stored anything."""
    from slack_bolt.async_app import AsyncApp

    from tidings.adapters.slack import bolt

    class Stock(AsyncApp):
        def __init__(self, **options: Any) -> None:
            super().__init__(**{**options, "process_before_response": False})

    swap(bolt, "AsyncApp", Stock)


def unknown_workspace_authorized_as_none() -> None:
    """Bolt apologizes to the person and acknowledges an event that no account has stored."""
    from tidings.adapters.slack import bolt
    from tidings.adapters.slack.workspaces import Find
    from tidings.core.errors import Unstored

    real = bolt._authorize_by

    def authorize_by(find: Find) -> Any:
        asked = real(find)

        async def authorize(context: Any, team_id: str | None, enterprise_id: str | None) -> Any:
            try:
                return await asked(context, team_id, enterprise_id)
            except Unstored:
                return None

        return authorize

    swap(bolt, "_authorize_by", authorize_by)


def assistant_as_bolt_has_it() -> None:
    """Bolt's AsyncAssistant acknowledges edits and deletions in its threads, and no listener hears of them."""
    from slack_bolt.async_app import AsyncAssistant

    from tidings.adapters.slack import bolt

    real = bolt.BoltApp.__init__

    def init(self: bolt.BoltApp, find: Any) -> None:
        real(self, find)
        self._app.use(AsyncAssistant())

    swap(bolt.BoltApp, "__init__", init)


def mention_is_another_message() -> None:
    """Slack tells of it twice, so it is answered twice."""
    from tidings.adapters.slack.parse import Reader

    real = Reader._said

    def said(self: Reader, event: Mapping[str, Any], channel: str, payload: Mapping[str, Any]) -> Inbound | None:
        inbound = real(self, event, channel, payload)
        is_mention = event.get("type") == "app_mention"
        return msgspec.structs.replace(inbound, key=f"{inbound.key}:mention") if inbound and is_mention else inbound

    swap(Reader, "_said", said)


def retries_as_the_library_has_them() -> None:
    """Whoever leaves them out of the settings has one, which posts again when the answer is lost."""
    from slack_sdk.http_retry.builtin_async_handlers import async_default_handlers

    from tidings.adapters.slack.client import Client

    real = Client._library

    def library(self: Client) -> AsyncWebClient:
        found = real(self)
        found.retry_handlers = async_default_handlers()
        return found

    swap(Client, "_library", library)


def thread_dropped_from_a_post() -> None:
    """The answer stands in the channel, beside everybody's."""
    from tidings.adapters.slack.adapter import SlackAdapter

    real = SlackAdapter._post

    async def post(self: SlackAdapter, part: Part, channel: str) -> Receipt:
        target = msgspec.structs.replace(part.target, thread="")
        return await real(self, msgspec.structs.replace(part, target=target), channel)

    swap(SlackAdapter, "_post", post)


def any_metadata_is_proof() -> None:
    """Another app that has seen a key says that our answer is there."""
    from tidings.adapters.slack.signature import Seal, payload_of

    async def proves(self: Seal, message: Mapping[str, Any], part: Part, channel: str) -> bool:
        payload = payload_of(message)
        return (payload.get("k"), payload.get("i")) == (part.key, part.position)

    swap(Seal, "proves", proves)


def sessions_or_nothing() -> None:
    """Whoever knows no sessions is shown nothing."""
    from tidings.adapters.slack import sessions

    swap(sessions, "NO_SESSIONS", ())


def session_left_at_work() -> None:
    """Slack is trusted to say itself that nobody works there any more."""
    from tidings.adapters.slack.listen import Intake

    async def rest(self: Intake, channel: str, thread: str) -> None:
        return

    swap(Intake, "_rest", rest)


def anybodys_stop_counts() -> None:
    """A stream that somebody has stopped ends the run, whoever it was."""
    from tidings.adapters.slack import streams

    def is_direct(channel: str) -> bool:
        return True

    swap(streams, "is_direct", is_direct)


def window_by_our_clock() -> None:
    """What was sent by a clock that is behind ours lies before the window, and counts as absent."""
    from tidings.adapters.slack.readback import Readback

    async def ago(self: Readback, seconds: float) -> float:
        return self._budgets._clock.wall() - seconds

    swap(Readback, "_ago", ago)
