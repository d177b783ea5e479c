"""Asks a model one question, to find out whether it works at all."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters

from tidings.bots.assistant.ask import Answer, Asking, Question, Unanswered
from tidings.bots.assistant.models import Models
from tidings.bots.assistant.settings import Assistant
from tidings.bots.assistant.turnstile import Turnstile
from tidings.core.errors import ConfigError

QUESTION = "Answer with one word: ready"


async def try_out(settings: Assistant) -> str:
    """The answer of the bot's first model. Raises ConfigError with the reason if there is none."""
    models = Models(settings)
    # The person at the terminal can try again, so there are no retries.
    asking = Asking(models, settings.model_copy(update={"retries": 0}), asyncio.sleep, Turnstile())
    question = Question([ModelRequest(parts=[UserPromptPart(QUESTION)])], ModelRequestParameters())
    try:
        async with aclosing(asking.ask(models.choices("")[:1], question)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Answer):
                    return piece.response.text or ""
    except Unanswered as unanswered:
        raise ConfigError(unanswered.sentence) from unanswered
    finally:
        await models.close()
    return ""
