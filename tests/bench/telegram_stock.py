"""The echo bot of python-telegram-bot's own tutorial: stock application, stock polling, nothing stored."""

from __future__ import annotations

import sys
from typing import Any

from telegram import Update
from telegram.ext import ApplicationBuilder, MessageHandler, filters


async def echo(update: Update, context: Any) -> None:
    if update.message is not None and update.message.text is not None:
        await update.message.reply_text(f"you said: {update.message.text}")


def main() -> None:
    token, server = sys.argv[1:]
    builder = ApplicationBuilder().token(token).base_url(f"{server}/bot").base_file_url(f"{server}/file/bot")
    application = builder.build()
    application.add_handler(MessageHandler(filters.TEXT & ~filters.COMMAND, echo))
    application.run_polling()


if __name__ == "__main__":
    main()
