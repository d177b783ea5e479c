"""The echo app of Bolt's own quickstart in Socket Mode: stock app, stock connection, nothing stored."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient


async def serve(api_url: str, token: str, app_token: str) -> None:
    app = AsyncApp(client=AsyncWebClient(token, base_url=api_url))

    @app.message()
    async def echo(message: dict[str, Any], say: Any) -> None:
        await say(f"you said: {message['text']}")

    await AsyncSocketModeHandler(app, app_token).start_async()  # type: ignore[no-untyped-call]


def main() -> None:
    asyncio.run(serve(*sys.argv[1:]))


if __name__ == "__main__":
    main()
