"""The echo client of discord.py's own quickstart: stock client, stock connection, nothing stored."""

from __future__ import annotations

import sys

import discord
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route


class Echo(discord.Client):
    async def on_message(self, message: discord.Message) -> None:
        if message.author != self.user:
            await message.reply(f"you said: {message.content}")


def main() -> None:
    token, Route.BASE, gateway = sys.argv[1:]
    DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(gateway)
    intents = discord.Intents.default()
    intents.message_content = True
    Echo(intents=intents).run(token, log_handler=None)


if __name__ == "__main__":
    main()
