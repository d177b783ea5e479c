"""The greeting in the terminal when the gateway starts: who answers, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.bots.cli.app import own_version

if TYPE_CHECKING:
    from tidings.bots.app.settings import Loaded


def greeting(home: Path, loaded: Loaded, others: Sequence[str]) -> str:
    """`others` are the accounts on other platforms."""
    connected = f"  Also at {', '.join(others)}; tidings status shows how they are doing.\n" if others else ""
    hint = "" if others else "  To connect Telegram, set TIDINGS_TELEGRAM__TOKEN to the token BotFather gives you.\n"
    return f"""\
Tidings {own_version()}: {loaded.bot.called} is listening. Everything is kept in {home}; the log is tidings.log there.
  Say hi, or /help. Ctrl-D or /quit stops the gateway. From another terminal: tidings chat
{connected}{hint}\
  {_who_answers(loaded)}
"""


def _who_answers(loaded: Loaded) -> str:
    others = list(loaded.bots)[1:]
    beside = f" Other bots: {', '.join(others)}." if others else ""
    if loaded.bot.chosen_agent == "assistant":
        return f"{loaded.bot.model} answers; /model says which others can.{beside}"
    if loaded.bot.agent:
        return f"{loaded.bot.agent} answers.{beside}"
    return f"To use a model, set TIDINGS_BOT__MODEL=openai:gpt-5-mini and OPENAI_API_KEY to your key.{beside}"
