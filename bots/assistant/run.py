"""One run of the assistant: asks the model, uses the tools that it wants, and always ends in words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from msgspec import structs
from pydantic_ai import exceptions as errors
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from tidings.bots.assistant import attachments, compaction, memory, model_choice, prompt
from tidings.bots.assistant.ask import Answer, Asking, Kind, Question, Unanswered
from tidings.bots.assistant.budget import Budget
from tidings.bots.assistant.loop_guard import Guard
from tidings.bots.assistant.models import Built, Models, Unbuilt
from tidings.bots.assistant.settings import Assistant
from tidings.bots.assistant.tools.toolbox import Toolbox
from tidings.bots.assistant.use_tools import Round, Using
from tidings.core import context
from tidings.core.agent import (
    ApprovalAsked,
    Checkpoint,
    Event,
    FileMade,
    Finished,
    OutcomeKind,
    Progress,
    TextDelta,
    Turn,
)
from tidings.core.roles import Permission
from tidings.core.runs.silence import SIGNS, Quiet, is_sign
from tidings.core.types import File, Inbound, Origin

log = logging.getLogger(__name__)

# The budget of the summary at the end of a run, whatever the run's own budget was.
LAST_WORDS_SECONDS = 60.0
LAST_WORDS = (
    f"{prompt.NOTE} {{reason}}. Use no tools any more. Tell the person in a few sentences what was done and found, "
    "and what is still open.)"
)
TOO_LONG = "the answer reached the longest that the model may write"
CHOSE_SILENCE = "the model chose to say nothing"


class Work:
    def __init__(
        self,
        name: str,
        settings: Assistant,
        models: Models,
        asking: Asking,
        toolbox: Toolbox,
        turn: Turn,
        budget: Budget,
    ) -> None:
        self._settings = settings
        self._models = models
        self._asking = asking
        self._turn = turn
        self._budget = budget
        self._memory = memory.of(turn)
        # Spending from before a restart counts too.
        budget.resume(self._memory.spent)
        self._chosen = model_choice.chosen(settings, turn.preferences.get("model", ""))
        self._choices = models.choices(self._chosen)
        self._using = Using(toolbox, Guard(settings.rails, self._memory.counted), turn, self._memory, self._listen)
        given = turn.message.given.instructions if turn.message.given else ""
        self._instructions = prompt.instructions(
            name,
            turn.preferences.get("persona", "") or settings.persona,
            given,
            missing=tuple(toolbox.missing),
            async_delivery=context.current().can.async_delivery,
            alone=turn.message.errand is not None,
        )
        self._tools = [
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.schema))
            for tool in toolbox.offered()
        ]
        self._mark = prompt.mark(context.current().conversation.id)
        # Messages that came while the run goes on, and that the model has not read yet.
        self._meanwhile: list[Inbound] = []
        self._spoke = False
        # The next words begin a new paragraph.
        self._apart = False
        self._answer: Answer | None = None

    async def events(self) -> AsyncGenerator[Event, None]:
        try:
            built = await self._models.get(self._choices[0])
        except Unbuilt as unbuilt:
            log.error("%s", unbuilt)
            yield Finished(OutcomeKind.FAILED, str(unbuilt))
            return
        async with aclosing(self._begin(built)) as begun:
            async for event in begun:
                yield event
        if self._memory.ended is not None:
            yield self._memory.ended
            return
        try:
            async with aclosing(self._go_on(built)) as going:
                async for event in going:
                    yield event
        except Unanswered as unanswered:
            sentence = unanswered.sentence
            # A broken or unsupported image would make the provider refuse every later request too.
            if _was_rejected(unanswered) and self._memory.hide_images():
                sentence += "; I leave the images of this talk out from now on"
            if self._chosen and isinstance(unanswered.__cause__, errors.ModelNotFoundError):
                sentence += f"; /model default goes back to {self._settings.model}"
            self._memory.hear(f"{prompt.NOTE} that answer was not finished: {sentence}.)")
            for event in self._end(OutcomeKind.FAILED, sentence, passing=unanswered.is_passing):
                yield event

    async def _begin(self, built: Built) -> AsyncGenerator[Event, None]:
        if self._memory.resumes:
            said = self._memory.said
            self._spoke = self._apart = bool(said)
            if self._turn.goes_on:
                return
            # Readers of the stream discard the text from before the restart, so it is sent again.
            for file in self._memory.files:
                yield FileMade(file.path, file.name)
            if said:
                yield TextDelta(said)
            return
        self._memory.taint.hear(self._turn.message, is_peer=Permission.WORK in context.current().permissions)
        heard = await attachments.take(self._turn, images=built.images)
        self._memory.hear(heard.content)
        for complaint in heard.refused:
            yield self._say(f"({complaint})")
            self._apart = True

    async def _go_on(self, built: Built) -> AsyncGenerator[Event, None]:
        if self._turn.message.command == "compact":
            async with aclosing(self._compact_now(built)) as events:
                async for event in events:
                    yield event
            return
        used_tools = self._memory.resumes
        response: ModelResponse | None = None
        while True:
            if self._memory.is_open or response is not None:
                is_over = False
                async with aclosing(self._use_tools(response)) as events:
                    async for event in events:
                        is_over = is_over or isinstance(event, Finished | ApprovalAsked)
                        yield event
                if is_over:
                    return
                used_tools = True
            async with aclosing(self._take_in(built)) as taken_in:
                async for event in taken_in:
                    yield event
            if self._is_full(built) and not (used_tools and compaction.shed(self._memory) and not self._is_full(built)):
                async with aclosing(self._make_room(built.window)) as events:
                    async for event in events:
                        yield event
            if reason := self._budget.exhausted:
                async with aclosing(self._run_out(reason)) as events:
                    async for event in events:
                        yield event
                return
            async with aclosing(self._ask(built)) as asked:
                async for event in asked:
                    yield event
            assert self._answer is not None
            response = self._answer.response
            if response.finish_reason == "length":
                self._memory.answer(_without_calls(response))
                for event in self._halt(f"(I stopped here: {TOO_LONG}.)", TOO_LONG):
                    yield event
                return
            self._memory.answer(response)
            if not response.tool_calls:
                for event in self._end(OutcomeKind.COMPLETED, ""):
                    yield event
                return

    async def _listen(self) -> bool:
        """Tells whether messages came that the model should read first."""
        self._meanwhile += await self._turn.heard()
        return bool(self._meanwhile)

    async def _take_in(self, built: Built) -> AsyncGenerator[Event, None]:
        """Gives the model the messages that came meanwhile; the checkpoint makes them part of this run."""
        if not await self._listen():
            return
        said, self._meanwhile = self._meanwhile, []
        for message in said:
            if not self._turn.message.overheard:
                # Somebody waits for this answer, whatever others say beside it.
                message = structs.replace(message, overheard=False)
            self._memory.taint.hear(message, is_peer=Permission.WORK in context.current().permissions)
            heard = await attachments.take(self._turn, images=built.images, message=message)
            self._memory.hear(heard.content)
            for complaint in heard.refused:
                self._apart = True
                yield self._say(f"({complaint})")
                self._apart = True
        yield self._checkpoint()

    async def _use_tools(self, response: ModelResponse | None) -> AsyncGenerator[Event, None]:
        """Uses the tools of an answer, or goes on with the round that waited for people."""
        result, approved = Round(), response is None
        if response is None:
            response, result.returns = self._memory.reopen()
        async with aclosing(self._using.use(response.tool_calls, result, approved=approved)) as used:
            async for event in used:
                if isinstance(event, FileMade):
                    self._memory.files.append(File(path=event.path, name=event.name))
                yield event
        if result.asked:
            self._memory.take_back(result.returns, is_open=True)
            yield self._checkpoint()
            yield result.asked
            return
        warning = self._budget.warning
        if warning and result.returns:
            last = result.returns[-1]
            result.returns[-1] = replace(last, content=f"{last.content}\n{warning}")
        self._memory.take_back(result.returns)
        self._apart = True
        if result.halted:
            for event in self._halt(result.halted.sentence, result.halted.reason):
                yield event
            return
        await self._asking.turnstile.enter()
        # The results of the tools are stored, so that a restart continues after them. A message that was heard counts
        # as taken in by the next checkpoint, which must hold it: that of `_take_in`.
        if not self._meanwhile:
            yield self._checkpoint()

    async def _ask(self, built: Built) -> AsyncGenerator[Event, None]:
        """Stores one complete answer in `_answer`; a model that answers only with a sign of silence is asked again."""
        retried = False
        while True:
            quiet = Quiet()
            said = ""
            try:
                question = await self._question(built)
                async with aclosing(self._asking.ask(self._choices, question)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, Answer):
                            self._answer = piece
                            self._spend(piece.response)
                            # The model that answered is asked first for the rest of the run.
                            self._choices = [*self._choices[piece.position :], *self._choices[: piece.position]]
                        elif not isinstance(piece, TextDelta):
                            yield piece
                        elif text := quiet.feed(piece.text):
                            said += text
                            yield self._say(text)
            except Unanswered as unanswered:
                if not quiet.silent and (rest := quiet.rest()):
                    said += rest
                    yield self._say(rest)
                if said:
                    self._memory.say(said)
                if unanswered.kind is Kind.EMPTY and self._may_stay_silent and not said:
                    # Providers refuse a history with an empty answer, so the sign stands for it.
                    self._answer = Answer(ModelResponse(parts=[TextPart(SIGNS[0])]), built)
                    return
                if unanswered.kind is not Kind.TOO_LONG:
                    raise
                if not compaction.shed(self._memory):
                    before = self._memory.messages
                    # The provider refused this length, so the real window is smaller.
                    async with aclosing(self._make_room(min(built.window, memory.tokens_in(before)))) as events:
                        async for event in events:
                            yield event
                    if self._memory.messages is before:
                        raise
                continue
            if not quiet.silent:
                if rest := quiet.rest():
                    yield self._say(rest)
                return
            assert self._answer is not None
            if self._answer.response.tool_calls:
                # The model continues with tools, so the sign of silence meant nothing.
                self._answer = replace(self._answer, response=_without_text(self._answer.response))
                return
            if self._may_stay_silent:
                return
            if retried:
                raise Unanswered(Kind.EMPTY, CHOSE_SILENCE)
            retried = True

    @property
    def _may_stay_silent(self) -> bool:
        """Whether nobody asked: the message was only overheard, or is none of a person's."""
        return self._turn.message.overheard or self._turn.message.origin is not Origin.PERSON

    async def _question(self, built: Built, *, tools_off: bool = False) -> Question:
        messages = await self._memory.shown(images=built.images)
        last = messages[-1]
        assert isinstance(last, ModelRequest), "a model is only asked when it is its turn"
        messages[-1] = replace(last, instructions=f"{self._instructions}\n\n{prompt.about(self._mark)}")
        messages = [memory.signed(message, self._mark) for message in messages]
        return Question(messages, ModelRequestParameters(function_tools=self._tools), tools_off)

    async def _make_room(self, window: int) -> AsyncGenerator[Event, None]:
        if not compaction.older(self._memory, window):
            return
        yield Progress("I sum up the older part of our talk to make room …")
        told = compaction.TOLD
        try:
            await compaction.compact(self._memory, window, self._sum_up)
        except Unanswered as unanswered:
            log.warning("the talk could not be summed up: %s", unanswered)
            compaction.leave_out(self._memory, window)
            told = compaction.TOLD_LEFT_OUT
        if told not in self._memory.said:
            self._apart = True
            yield self._say(told)
            self._apart = True
        # Stored at once, so that a restart neither shortens the conversation again nor repeats the notice.
        yield self._checkpoint()

    async def _compact_now(self, built: Built) -> AsyncGenerator[Event, None]:
        """Sums up the conversation by command; the command itself is not part of it."""
        self._memory.messages.pop()
        yield Progress("I sum up our talk …")
        summed = await compaction.compact(self._memory, built.window, self._sum_up, all_of_it=True)
        if summed:
            counted = "one message" if summed == 1 else f"{summed} messages"
            yield self._say(f"I summed up {counted} of our talk to make room. You can still read all of it.")
        else:
            yield self._say("There is nothing to sum up yet.")
        for event in self._end(OutcomeKind.COMPLETED, ""):
            yield event

    async def _sum_up(self, text: str) -> str:
        if reason := self._budget.exhausted:
            # A long conversation and a small window could need many requests.
            raise Unanswered(Kind.FINAL, reason)
        question = Question([ModelRequest(parts=[UserPromptPart(prompt.bare(text))])], ModelRequestParameters())
        return await self._collect(question)

    async def _run_out(self, reason: str) -> AsyncGenerator[Event, None]:
        """Ends a run at its limit with the model's own summary, or at least a list of what was tried."""
        self._memory.hear(LAST_WORDS.format(reason=reason))
        built = await self._models.get(self._choices[0])
        try:
            if self._budget.is_overdrawn:
                raise Unanswered(Kind.FINAL, reason)
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                summary = await self._collect(await self._question(built, tools_off=True))
        except (Unanswered, TimeoutError) as error:
            log.warning("there were no last words: %s", error)
            summary = ""
        if summary:
            yield self._say(summary)
            self._memory.say(summary)
            self._apart = True
            sentence = f"(I stopped here: {reason}.)"
        else:
            sentence = f"(I stopped here: {reason}. {self._tried()} What you asked for may still be open.)"
        for event in self._halt(sentence, reason):
            yield event

    def _tried(self) -> str:
        counts = [f"{name} ({count} times)" if count > 1 else name for name, count in self._using.counts.items()]
        return f"Until then I used {', '.join(counts)}." if counts else "I had used no tools."

    async def _collect(self, question: Question) -> str:
        """Collects an answer without showing it; raises Unanswered, also for an answer without words."""
        text = ""
        async with aclosing(self._asking.ask(self._choices, question)) as pieces:
            async for piece in pieces:
                if isinstance(piece, TextDelta):
                    text += piece.text
                elif isinstance(piece, Answer):
                    self._spend(piece.response)
        if not text.strip() or is_sign(text):
            raise Unanswered(Kind.EMPTY, CHOSE_SILENCE)
        return text.strip()

    def _halt(self, sentence: str, reason: str) -> list[Event]:
        self._apart = True
        told = self._say(sentence)
        self._memory.say(sentence)
        return [told, *self._end(OutcomeKind.HALTED, reason)]

    def _end(self, kind: OutcomeKind, reason: str, *, passing: bool = False) -> list[Event]:
        self._memory.ended = Finished(kind, reason, self._budget.spent.usage, passing)
        return [self._checkpoint(), self._memory.ended]

    def _checkpoint(self) -> Checkpoint:
        self._budget.stamp()
        return Checkpoint(self._memory.store(), self._budget.spent.usage)

    def _say(self, text: str) -> TextDelta:
        paragraph = "\n\n" if self._apart and self._spoke else ""
        self._apart, self._spoke = False, True
        self._memory.tell(paragraph + text)
        return TextDelta(paragraph + text)

    def _spend(self, response: ModelResponse) -> None:
        usage = response.usage
        self._budget.spend(usage.input_tokens, usage.output_tokens, _cost(response))

    def _is_full(self, built: Built) -> bool:
        return compaction.is_full(self._memory, built.window, self._overhead)

    @property
    def _overhead(self) -> int:
        schemas = sum(len(str(tool.parameters_json_schema)) + len(tool.description or "") for tool in self._tools)
        return int((len(self._instructions) + schemas) / memory.CHARACTERS_PER_TOKEN)


def _was_rejected(unanswered: Unanswered) -> bool:
    """Whether the provider refused the request itself, rather than the key or the model."""
    others = (errors.ModelAuthenticationError, errors.ModelNotFoundError, errors.ModelContextWindowExceededError)
    cause = unanswered.__cause__
    return isinstance(cause, errors.ModelRequestRejectedError) and not isinstance(cause, others)


def _without_calls(response: ModelResponse) -> ModelResponse:
    """The answer without its tool calls, which may be cut off in the middle."""
    parts = [part for part in response.parts if part not in response.tool_calls]
    return replace(response, parts=parts)


def _without_text(response: ModelResponse) -> ModelResponse:
    return replace(response, parts=[part for part in response.parts if not isinstance(part, TextPart)])


def _cost(response: ModelResponse) -> float:
    """The cost in dollars by the list price; 0 if the price is unknown."""
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return 0.0
