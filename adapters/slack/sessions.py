"""Sets a thread's status and title: as an agent session, or in the assistant's pane in older workspaces."""

from __future__ import annotations

from typing import Any

from tidings.adapters.slack.client import Client, Refused

STATUS = "is working on it\u2026"
# The app is not an agent, or the workspace does not have sessions yet: the assistant's pane is used.
NO_SESSIONS = ("unknown_method", "not_allowed", "feature_not_enabled", "feature_disabled", "method_deprecated")
# A session begins with its first status.
NOT_BEGUN = "not_authorized"


class Sessions:
    """Tries sessions first; where there are none, uses the assistant's pane from then on."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._has_sessions = True

    async def work(self, channel: str, thread: str, *, on: bool, **how: Any) -> None:
        place = {"channel_id": channel, "thread_ts": thread, **how}
        if not await self._ask("agents.sessions.setStatus", status="processing" if on else "active", **place):
            await self._client.call("assistant.threads.setStatus", status=STATUS if on else "", **place)

    async def name(self, channel: str, thread: str, title: str, **how: Any) -> None:
        place = {"channel_id": channel, "thread_ts": thread, **how}
        try:
            if not await self._ask("agents.sessions.rename", title=title, **place):
                await self._client.call("assistant.threads.setTitle", title=title, **place)
        except Refused as error:
            if error.code != NOT_BEGUN:
                raise
            # Not by the title argument of setStatus: Slack changes some of its characters.
            await self._client.call("agents.sessions.setStatus", status="active", **place)
            await self._client.call("agents.sessions.rename", title=title, **place)

    async def suggest(self, channel: str, thread: str, prompts: list[dict[str, str]], **how: Any) -> None:
        """Suggests prompts above all threads of an agent, or in one thread of the assistant's pane."""
        place = {"channel_id": channel, "thread_ts": thread or None, **how}
        await self._client.call("assistant.threads.setSuggestedPrompts", prompts=prompts, **place)

    async def _ask(self, method: str, **arguments: Any) -> bool:
        if not self._has_sessions:
            return False
        try:
            await self._client.call(method, **arguments)
        except Refused as error:
            if error.code not in NO_SESSIONS:
                raise
            self._has_sessions = False
        return self._has_sessions
