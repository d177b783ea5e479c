"""Asks one model after the other until one answers; without an answer, says in plain words why."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from enum import Enum, auto

import httpx2
from pydantic_ai import exceptions as errors
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings

from tidings.bots.assistant.models import Built, Models, NotStreamed, Unbuilt
from tidings.bots.assistant.settings import Assistant, ModelChoice
from tidings.bots.assistant.turnstile import Turnstile
from tidings.core.agent import Progress, ReasoningDelta, TextDelta
from tidings.core.redaction import plain

log = logging.getLogger(__name__)

# A provider that asks for a longer pause than this is skipped.
LONGEST_WAIT_SECONDS = 60.0
# One empty answer may be an accident; two in a row count as a failure.
EMPTY_TRIES = 1
# The words with which servers refuse a request that has a field unknown to them.
UNSTREAMED = (400, 405, 415, 422, 501)

# The words with which servers say that they cannot stream; "upstream" means something else.
_STREAMING = re.compile(r"\bstream(s|ing|ed)?\b", re.IGNORECASE)


class Kind(Enum):
    # Another attempt would fail in the same way.
    FINAL = auto()
    # Part of the answer was already shown, so no second attempt may follow.
    BROKEN_OFF = auto()
    # Worth another attempt, then the next model.
    PASSING = auto()
    # Worth one more attempt.
    EMPTY = auto()
    # The model may answer when asked without streaming.
    UNSTREAMED = auto()
    # The question is longer than the model's window.
    TOO_LONG = auto()


class Unanswered(Exception):
    """Why there is no answer, or only half of one; `sentence` is fit for the person."""

    def __init__(self, kind: Kind, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.sentence = sentence
        self.retry_after = retry_after

    @property
    def is_passing(self) -> bool:
        """Whether asking the same question later may succeed."""
        reason = self.__cause__ if self.kind is Kind.BROKEN_OFF else self
        return isinstance(reason, Unanswered) and reason.kind in (Kind.PASSING, Kind.EMPTY)


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer with the provider's finish reason."""

    response: ModelResponse
    model: Built
    # The model that answered.
    position: int = 0


Piece = TextDelta | ReasoningDelta | Progress | Answer


@dataclass(frozen=True, slots=True)
class Question:
    messages: Sequence[ModelMessage]
    parameters: ModelRequestParameters
    # The model sees the tools but must not call them.
    tools_off: bool = False


class Asking:
    def __init__(
        self,
        models: Models,
        settings: Assistant,
        sleep: Callable[[float], Awaitable[None]],
        turnstile: Turnstile,
    ) -> None:
        self._models = models
        self._settings = settings
        self._sleep = sleep
        self.turnstile = turnstile

    async def ask(self, choices: Sequence[ModelChoice], question: Question) -> AsyncGenerator[Piece, None]:
        """Raises Unanswered; text that was shown before stays shown."""
        trouble: Unanswered | None = None
        for number, choice in enumerate(choices):
            if number:
                yield Progress(f"{choices[number - 1].model} does not answer; I ask {choice.model} …")
            try:
                async with aclosing(self._ask_one(choice, question)) as pieces:
                    async for piece in pieces:
                        if not isinstance(piece, Answer):
                            yield piece
                            continue
                        # The next step is expensive: the whole memory is stored.
                        await self.turnstile.enter()
                        yield replace(piece, position=number)
                return
            except Unanswered as unanswered:
                # The first model's fault is the one that is reported; a fallback that fails for good is skipped.
                trouble = trouble or unanswered
                passed_over = number and unanswered.kind in (Kind.FINAL, Kind.EMPTY)
                if unanswered.kind is not Kind.PASSING and not passed_over:
                    raise
        raise trouble or Unanswered(Kind.FINAL, "no model is set for this bot")

    async def _ask_one(self, choice: ModelChoice, question: Question) -> AsyncGenerator[Piece, None]:
        """Asks one model, as often as the settings say; no attempt follows once a word of the answer was shown."""
        built = await self._get(choice)
        streams = built.streams
        tries = empties = 0
        while True:
            said = False
            try:
                async with aclosing(self._try(built, question, streams)) as pieces:
                    async for piece in pieces:
                        said = said or isinstance(piece, TextDelta)
                        yield piece
                # The answer proves whether this model needs to be asked without a stream.
                built.streams = streams
                return
            except Unanswered as unanswered:
                if said:
                    raise Unanswered(Kind.BROKEN_OFF, f"the answer broke off: {unanswered.sentence}") from unanswered
                if unanswered.kind is Kind.UNSTREAMED and streams:
                    streams = False
                    continue
                if unanswered.kind is Kind.EMPTY and empties < EMPTY_TRIES:
                    empties += 1
                    continue
                wait = unanswered.retry_after or 0.0
                if unanswered.kind is not Kind.PASSING or tries >= self._settings.retries:
                    raise
                if wait > LONGEST_WAIT_SECONDS:
                    raise
                yield Progress(f"{unanswered.sentence}; I try again …")
                await self._sleep(max(wait, self._pause(tries)))
                tries += 1

    def _pause(self, tries: int) -> float:
        pause = self._settings.retry_seconds * 2**tries * random.uniform(0.8, 1.2)
        return float(min(pause, LONGEST_WAIT_SECONDS))

    async def _get(self, choice: ModelChoice) -> Built:
        try:
            return await self._models.get(choice)
        except Unbuilt as unbuilt:
            log.error("%s", unbuilt)
            raise Unanswered(Kind.FINAL, str(unbuilt)) from unbuilt

    async def _try(self, built: Built, question: Question, streams: bool) -> AsyncGenerator[Piece, None]:
        """The seam where every exception of a provider's library becomes a verdict."""
        # The library builds the request in one go, which takes longer for a longer conversation.
        await self.turnstile.enter()
        try:
            asked = self._stream(built, question) if streams else self._whole(built, question)
            async with aclosing(asked) as pieces:
                async for piece in pieces:
                    yield piece
        except Unanswered as unanswered:
            log.warning("%s did not answer: %s", built.name, unanswered)
            raise
        except Exception as error:
            verdict = judge(error, built.name, built.provider)
            log.warning("%s did not answer: %s: %s", built.name, type(error).__name__, plain(str(error)))
            raise verdict from error

    async def _stream(self, built: Built, question: Question) -> AsyncGenerator[Piece, None]:
        settings = _settings_of(question)
        async with model_request_stream(
            built.model, question.messages, model_settings=settings, model_request_parameters=question.parameters
        ) as stream:
            try:
                events = aiter(stream)
                while (event := await self._next(events, built)) is not None:
                    if piece := _piece_of(event):
                        yield piece
            except GeneratorExit:
                await _end(stream)
                raise
        yield self._checked(stream.get(), built)

    async def _next(self, events: AsyncIterator[object], built: Built) -> object | None:
        async with self._patience(built):
            return await anext(events, None)

    def _patience(self, built: Built) -> asyncio.Timeout:
        """The time limit for libraries that bring their own transport; ours watches the bytes itself."""
        return asyncio.timeout(None if built.watched else self._settings.read_seconds + self._settings.stall_seconds)

    async def _whole(self, built: Built, question: Question) -> AsyncGenerator[Piece, None]:
        async with self._patience(built):
            response = await model_request(
                built.model,
                question.messages,
                model_settings=_settings_of(question),
                model_request_parameters=question.parameters,
            )
        # The answer is judged before any of it is shown, so a failure leaves nothing half shown.
        answer = self._checked(response, built)
        for part in response.parts:
            if isinstance(part, ThinkingPart) and part.content:
                yield ReasoningDelta(part.content)
            elif isinstance(part, TextPart) and part.content:
                yield TextDelta(part.content)
        yield answer

    def _checked(self, response: ModelResponse, built: Built) -> Answer:
        """Tells a complete answer from one that just stopped, by the provider's own finish reason."""
        # A refusal comes first, because it has no finish reason.
        if response.finish_reason == "content_filter":
            raise Unanswered(Kind.FINAL, "the model's provider withheld the answer because of its content")
        why = (response.provider_details or {}).get("finish_reason")
        if why is None and self._settings.needs_finish_reason:
            raise Unanswered(Kind.PASSING, "the model's answer stopped without an end")
        if response.finish_reason == "error":
            raise Unanswered(Kind.PASSING, "the model's provider broke off the answer")
        if not response.tool_calls and not (response.text or "").strip():
            if response.finish_reason == "length":
                raise Unanswered(Kind.FINAL, "the model used up its length limit before it said anything")
            raise Unanswered(Kind.EMPTY, "the model gave an empty answer")
        return Answer(response, built)


def _piece_of(event: object) -> TextDelta | ReasoningDelta | None:
    match event:
        case (
            PartStartEvent(part=TextPart(content=str() as text))
            | PartDeltaEvent(delta=TextPartDelta(content_delta=str() as text))
        ) if text:
            return TextDelta(text)
        case (
            PartStartEvent(part=ThinkingPart(content=str() as text))
            | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str() as text))
        ) if text:
            return ReasoningDelta(text)
        case _:
            return None


async def _end(stream: StreamedResponse) -> None:
    """Closes the library's generators in order; otherwise the garbage collector would close them at random."""
    with suppress(errors.AgentRunError, httpx2.HTTPError, NotImplementedError):
        await stream.cancel()
        async for _ in stream:
            continue


def _settings_of(question: Question) -> ModelSettings:
    return ModelSettings(tool_choice="none") if question.tools_off else ModelSettings()


def judge(error: Exception, name: str, provider: str) -> Unanswered:
    """The verdict for each error of a provider or its library."""
    status = f" (HTTP {error.status_code})" if isinstance(error, errors.ModelHTTPError) else ""
    match error:
        case errors.ModelAuthenticationError():
            return Unanswered(Kind.FINAL, f"{provider} does not accept the key of this bot{status}")
        case errors.ModelQuotaExceededError():
            return Unanswered(Kind.FINAL, f"the account at {provider} has no credit left{status}")
        case errors.ModelNotFoundError():
            return Unanswered(Kind.FINAL, f"{provider} knows no model called {name.partition(':')[2] or name}{status}")
        case errors.ModelContextWindowExceededError():
            return Unanswered(Kind.TOO_LONG, f"this talk has become too long for {name}{status}")
        case errors.ModelAPIError() if _cannot_stream(error):
            return Unanswered(Kind.UNSTREAMED, f"{provider} refused the request{status}")
        case errors.ModelRequestRejectedError():
            return Unanswered(Kind.FINAL, f"{provider} refused the request{status}")
        case errors.ModelRateLimitError():
            return Unanswered(Kind.PASSING, f"{provider} takes no more requests for now{status}", error.retry_after)
        case errors.ModelUnavailableError() | errors.ModelServerError():
            return Unanswered(Kind.PASSING, f"{provider} has trouble of its own{status}", error.retry_after)
        case errors.ModelTimeoutError() | TimeoutError():
            return Unanswered(Kind.PASSING, f"{provider} has gone silent")
        case errors.ModelConnectionError():
            return Unanswered(Kind.PASSING, f"{provider} cannot be reached, or hung up")
        case errors.ContentFilterError():
            return Unanswered(Kind.FINAL, "the model's provider withheld the answer because of its content")
        case errors.ModelHTTPError():
            kind = Kind.PASSING if error.status_code >= 500 or error.status_code == 408 else Kind.FINAL
            words = "has trouble of its own" if kind is Kind.PASSING else "refused the request"
            return Unanswered(kind, f"{provider} {words}{status}", error.retry_after)
        case errors.ModelAPIError() | errors.UnexpectedModelBehavior():
            return Unanswered(Kind.PASSING, f"{provider} sent something that is no answer")
        case errors.UserError():
            return Unanswered(Kind.FINAL, f"the model {name} cannot be used like this: {' '.join(str(error).split())}")
        case _:
            return Unanswered(Kind.FINAL, f"asking {name} failed in a way I do not know ({type(error).__name__})")


def _cannot_stream(error: errors.ModelAPIError) -> bool:
    """Whether the error says so, or the server sent something other than a stream."""
    if isinstance(error, errors.ModelHTTPError):
        return error.status_code in UNSTREAMED and _STREAMING.search(str(error.body)) is not None
    return any(isinstance(each, NotStreamed) for each in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
