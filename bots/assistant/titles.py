"""Gives a new talk a title by a model, in the background: no answer waits for it, and a failure is only logged."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing

from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters

from tidings.bots.assistant.ask import Asking, Question, Unanswered
from tidings.bots.assistant.models import Models
from tidings.bots.assistant.prompt import fence
from tidings.core.agent import Ended, OutcomeKind, TextDelta, Turn
from tidings.core.errors import TidingsError

log = logging.getLogger(__name__)

WORDS = 6
# How much of the question and of the answer the model gets.
SHOWN_CHARACTERS = 1000
# How long the run may still take to end, and the model to answer.
SECONDS = 60.0
ASKED = f"""\
Write a title for the talk below: at most {WORDS} words, in the language of the talk, without quotes. Answer with the \
title alone.

"""


async def name(turn: Turn, model: str, models: Models, asking: Asking) -> None:
    """Asks for a title once the run is over, and stores it."""
    try:
        async with asyncio.timeout(SECONDS):
            answer = await _answer_of(turn)
            if answer:
                await turn.desk.name_talk(turn.run, await _ask(turn, answer, model, models, asking))
    except (TidingsError, Unanswered, TimeoutError) as error:
        log.info("a talk keeps its first words as title: %r", error)


async def _answer_of(turn: Turn) -> str:
    """The answer, once it is stored; empty for a run that did not complete."""
    async with aclosing(turn.desk.follow(turn.run)) as entries:  # type: ignore[type-var]
        async for entry in entries:
            if isinstance(entry.event, Ended):
                return entry.event.text if entry.event.kind is OutcomeKind.COMPLETED else ""
    return ""


async def _ask(turn: Turn, answer: str, model: str, models: Models, asking: Asking) -> str:
    talk = f"Person: {turn.message.in_full[:SHOWN_CHARACTERS]}\nAssistant: {answer[:SHOWN_CHARACTERS]}"
    message = ModelRequest(parts=[UserPromptPart(ASKED + fence(talk, "the talk"))])
    question, title = Question([message], ModelRequestParameters()), ""
    async with aclosing(asking.ask(models.choices(model)[:1], question)) as pieces:
        async for piece in pieces:
            if isinstance(piece, TextDelta):
                title += piece.text
    return " ".join(title.split()[:WORDS]).strip("\"'“”*#. ")
