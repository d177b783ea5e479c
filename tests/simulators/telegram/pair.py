"""The simulated Telegram and the real library's bot, joined."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from telegram import Bot
from telegram.request import HTTPXRequest

from tests.simulators.telegram.simulator import TelegramServer


def bot_for(telegram: TelegramServer, *, account: str = "main", read_timeout: float = 5.0) -> Bot:
    # Nothing here is encrypted, and to load certificates takes longer than most tests.
    plain = {"verify": False}
    return Bot(
        telegram.chats.bot(account).token,
        base_url=telegram.base_url,
        base_file_url=telegram.base_file_url,
        request=HTTPXRequest(read_timeout=read_timeout, httpx_kwargs=plain),
        get_updates_request=HTTPXRequest(read_timeout=read_timeout, httpx_kwargs=plain),
    )


@asynccontextmanager
async def platform(read_timeout: float = 5.0, **options: Any) -> AsyncIterator[tuple[TelegramServer, Bot]]:
    async with TelegramServer(**options) as telegram, bot_for(telegram, read_timeout=read_timeout) as bot:
        yield telegram, bot
