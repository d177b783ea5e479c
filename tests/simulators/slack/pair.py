"""The simulated Slack and the real libraries, joined."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.http_retry.async_handler import AsyncRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from tests.simulators.slack.simulator import SlackServer


def client_for(
    slack: SlackServer, *, account: str = "main", retry_handlers: list[AsyncRetryHandler] | None = None
) -> AsyncWebClient:
    """The library's own retries, unless told otherwise."""
    return AsyncWebClient(slack.workspace(account).token, base_url=slack.api_url, retry_handlers=retry_handlers)


def app_for(slack: SlackServer, **options: Any) -> AsyncApp:
    return AsyncApp(client=client_for(slack), signing_secret=slack.secret, **options)


@asynccontextmanager
async def connected(slack: SlackServer, app: AsyncApp, *, ping_interval: float = 10.0) -> AsyncIterator[None]:
    handler = AsyncSocketModeHandler(app, slack.app_token, ping_interval=ping_interval)
    before = len(slack.sockets.open)
    try:
        await handler.connect_async()  # type: ignore[no-untyped-call]
        await slack.until(lambda _: len(slack.sockets.open) > before)
        yield
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]
