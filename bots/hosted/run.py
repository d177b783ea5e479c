"""One run of a hosted agent: shows what the library streams, and puts the end into words."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import anyio
import pydantic_ai
from pydantic_ai import exceptions
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    UserContent,
)
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.usage import RunUsage

from tidings.bots.assistant import attachments
from tidings.bots.assistant.taint import Taint
from tidings.bots.assistant.tools.policy import Asked, Granted, Refusal
from tidings.bots.assistant.turnstile import Turnstile
from tidings.bots.hosted.agent import Stage
from tidings.bots.hosted.memory import Memory, recall, seal
from tidings.bots.hosted.tool_gate import Gate, Terms, text_of
from tidings.core import context
from tidings.core.agent import ApprovalAsked, Checkpoint, OutcomeKind, ReasoningDelta, TextDelta, Turn, Usage
from tidings.core.roles import Permission
from tidings.core.types import Value

log = logging.getLogger(__name__)

BROKE_OFF = "the model's answer broke off"
# The first match counts, so specific errors come before general ones.
_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (exceptions.ModelAuthenticationError, "the model's provider does not accept the key"),
    (exceptions.ModelQuotaExceededError, "the account at the model's provider has nothing left to spend"),
    (exceptions.ModelRateLimitError, "the model's provider is asked too often at the moment"),
    (exceptions.ModelContextWindowExceededError, "the conversation has become too long for the model"),
    (exceptions.ModelNotFoundError, "the model's provider does not know the model"),
    (exceptions.ModelRequestRejectedError, "the model's provider refused the request"),
    (exceptions.ModelTimeoutError, "the model's provider did not answer in time"),
    (exceptions.ModelConnectionError, "the connection to the model's provider failed"),
    (exceptions.ModelUnavailableError, "the model's provider is overloaded"),
    (exceptions.ModelServerError, "the model's provider has trouble at the moment"),
    (exceptions.ModelAPIError, "the model's provider failed"),
    (exceptions.ContentFilterError, "the model's provider withheld the answer because of its content"),
    (exceptions.UnexpectedModelBehavior, "the model gave no answer that could be used"),
    (exceptions.UsageLimitExceeded, "the limit of what one answer may cost was reached"),
    (exceptions.RunTimedOut, "the time for one answer was up"),
    (exceptions.AgentRunError, "the agent could not go on"),
)
# Faults of the provider rather than the request, so a later attempt may work.
_PASSING = (
    exceptions.ModelRateLimitError,
    exceptions.ModelTimeoutError,
    exceptions.ModelConnectionError,
    exceptions.ModelUnavailableError,
    exceptions.ModelServerError,
)
_HALTING = (exceptions.UsageLimitExceeded, exceptions.RunTimedOut)


class Ending(Value, frozen=True, kw_only=True):
    kind: OutcomeKind = OutcomeKind.COMPLETED
    reason: str = ""
    usage: Usage | None = None
    passing: bool = False


class _Broken(Exception):
    """The stream ended without a finish reason."""


class _Overdrawn(Exception):
    """Allowances leave nothing for another request."""


class Play:
    def __init__(
        self,
        agent: pydantic_ai.Agent[Any, Any],
        turn: Turn,
        stage: Stage,
        terms: Terms,
        turnstile: Turnstile,
        needs_finish_reason: bool,
    ) -> None:
        self._agent = agent
        self._turn = turn
        self._stage = stage
        self._taint = Taint()
        self._gate = Gate(stage, terms, turn.desk, self._taint)
        self._turnstile = turnstile
        self._needs_finish_reason = needs_finish_reason
        # If the text is not the output, such as JSON in parts, only the output is shown.
        self._is_live = agent.output_type is str or (
            isinstance(agent.output_type, (list, tuple)) and str in agent.output_type
        )
        self._last = ""
        self._said: list[str] = []
        self._took_up = False
        # What the run has used before it waited for people.
        self._before = Usage()
        # The time of the newest entry that this run knew when it began.
        self._told = 0.0
        self._scope = anyio.CancelScope()

    @property
    def spoke(self) -> bool:
        """Whether the person has read anything of this run, also before it waited for people."""
        return bool("".join(self._said).strip())

    def stop(self) -> None:
        # Cancelling the task itself could interrupt the library's clean-up and leave its tasks behind.
        self._scope.cancel()

    async def perform(self) -> Ending | ApprovalAsked:
        """Runs to the end, or to the next question, which is behind its checkpoint then."""
        with self._scope:
            return await self._perform()
        return Ending(kind=OutcomeKind.CANCELLED)

    async def _perform(self) -> Ending | ApprovalAsked:
        await self._turnstile.enter()
        memory = recall(self._turn)
        self._told, self._before = memory.told, memory.usage or Usage()
        self._taint.sources += memory.read
        if memory.answer:
            await self._say(memory.answer)
            return Ending(usage=memory.usage)
        if memory.said:
            await self._repeat(memory.said)
        if memory.waiting:
            return await self._take_up(memory)
        heard = None
        if not memory.resumed:
            self._taint.hear(self._turn.message, is_peer=Permission.WORK in context.current().permissions)
            heard = await attachments.take(self._turn, images=False)
        for complaint in heard.refused if heard else ():
            await self._say(f"({complaint})\n\n")
        return await self._play(heard.content if heard else None, memory.messages)

    async def _repeat(self, said: str) -> None:
        """Says again what was said before a restart; what was said before a question still stands."""
        if self._turn.goes_on:
            self._said, self._last = [said], said
        else:
            await self._say(said)

    async def _take_up(self, memory: Memory) -> Ending | ApprovalAsked:
        """Goes on with the calls that people were asked about, or asks about the next of them."""
        verdicts = {verdict.call: verdict for verdict in self._turn.verdicts}
        results = DeferredToolResults()
        for part in _open_calls(memory):
            call = f"{part.tool_call_id}#{len(memory.messages)}"
            verdict = verdicts.get(call)
            judged = await self._gate.judge(part, verdict)
            match judged.decision:
                case Granted():
                    results.approvals[part.tool_call_id] = ToolApproved()
                case Refusal(reason=reason):
                    results.approvals[part.tool_call_id] = ToolDenied(f"({reason})")
                case Asked():
                    await self._keep(list(memory.messages), waiting=memory.waiting)
                    return self._gate.ask(call, part, judged)
            if verdict is not None:
                self._gate.verdicts[part.tool_call_id] = verdict
        self._took_up = True
        return await self._play(None, memory.messages, results)

    async def _play(
        self,
        content: str | Sequence[UserContent] | None,
        messages: Sequence[ModelMessage],
        results: DeferredToolResults | None = None,
    ) -> Ending | ApprovalAsked:
        run: AgentRun[Any, Any] | None = None
        try:
            async with AsyncExitStack() as stack:
                try:
                    run = await stack.enter_async_context(self._iterate(content, messages, results, waits=True))
                except exceptions.UserError:
                    # An agent that validates its output takes no other type of output, so it cannot end with questions.
                    self._gate.can_wait = False
                    run = await stack.enter_async_context(self._iterate(content, messages, results, waits=False))
                await self._follow(run)
            return await self._conclude(run)
        except _Overdrawn as overdrawn:
            return Ending(kind=OutcomeKind.HALTED, reason=str(overdrawn), usage=self._usage(run) if run else None)
        except (exceptions.AgentRunError, exceptions.FallbackExceptionGroup, _Broken) as error:
            return self._failed(error, run)

    def _iterate(
        self,
        content: str | Sequence[UserContent] | None,
        messages: Sequence[ModelMessage],
        results: DeferredToolResults | None,
        *,
        waits: bool,
    ) -> AbstractAsyncContextManager[AgentRun[Any, Any]]:
        given = self._turn.message.given
        output: Any = self._agent.output_type
        outputs = (
            [*output, DeferredToolRequests] if isinstance(output, list | tuple) else [output, DeferredToolRequests]
        )
        return self._agent.iter(
            content,
            output_type=outputs if waits else None,
            message_history=list(messages),
            deferred_tool_results=results,
            instructions=(given.instructions if given else "") or None,
            capabilities=[self._gate],
        )

    async def _follow(self, run: AgentRun[Any, Any]) -> None:
        asked = 0
        async for node in run:
            if not pydantic_ai.Agent.is_model_request_node(node):
                continue
            # A later call may bear the same id.
            self._gate.verdicts.clear()
            if asked or self._took_up:
                # The next request holds the results of the tools, so a restart need not repeat them.
                await self._keep([*run.all_messages(), node.request], usage=self._usage(run))
                self._check_rest(run)
            asked += 1
            await self._turnstile.enter()
            async with node.stream(run.ctx) as stream:
                await self._stream(stream)
            self._judge(stream.response)
            for part in stream.response.parts:
                if isinstance(part, NativeToolReturnPart):
                    self._taint.add(f"what {part.tool_name} has found")

    def _check_rest(self, run: AgentRun[Any, Any]) -> None:
        """Raises _Overdrawn before a request for which allowances leave nothing."""
        used, rest = self._usage(run), self._turn.rest()
        by_tokens = rest.tokens is not None and used.input_tokens + used.output_tokens >= rest.tokens
        if by_tokens or (rest.money is not None and used.cost >= rest.money):
            raise _Overdrawn(rest.words)

    async def _stream(self, stream: Any) -> None:
        fresh = True
        async for event in stream:
            text = thought = ""
            match event:
                case PartStartEvent(part=TextPart(content=text)):
                    pass
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                    pass
                case PartStartEvent(part=ThinkingPart(content=thought)):
                    pass
                case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=words)):
                    thought = words or ""
                case _:
                    continue
            if thought:
                await self._stage.show(ReasoningDelta(thought))
            if text and self._is_live:
                # Text after a tool call starts a new paragraph.
                await self._say(text, apart=fresh)
                fresh = False

    def _judge(self, response: ModelResponse) -> None:
        """Raises _Broken without a finish reason from the provider; the library fills in "stop" for some models."""
        details = response.provider_details
        guessed = response.finish_reason == "stop" and details is not None and "finish_reason" not in details
        if self._needs_finish_reason and (response.finish_reason is None or guessed):
            raise _Broken(f"the model {response.model_name} ended without a finish reason")

    async def _conclude(self, run: AgentRun[Any, Any]) -> Ending | ApprovalAsked:
        assert run.result is not None, "a run that was followed to its end has a result"
        output, messages = run.result.output, run.result.all_messages()
        usage = self._usage(run)
        if isinstance(output, DeferredToolRequests):
            self._before = usage
            waiting = tuple(call.tool_call_id for call in output.approvals)
            memory = Memory(messages=tuple(messages), waiting=waiting, told=self._told)
            return await self._take_up(memory)
        if isinstance(output, BinaryContent):
            return Ending(
                kind=OutcomeKind.FAILED, reason="the agent answered with a file instead of words", usage=usage
            )
        answer = "" if output is None else text_of(output)
        last = next((each for each in reversed(messages) if isinstance(each, ModelResponse)), None)
        spoken = "".join(part.content for part in last.parts if isinstance(part, TextPart)) if last else ""
        if not (self._is_live and isinstance(output, str) and spoken == output):
            await self._say(answer, apart=True)
        await self._keep(messages, answer, usage=usage)
        if last is not None and last.finish_reason == "length":
            return Ending(kind=OutcomeKind.HALTED, reason="the model's answer grew too long and was cut", usage=usage)
        if last is not None and last.finish_reason in ("content_filter", "error"):
            return Ending(kind=OutcomeKind.FAILED, reason=BROKE_OFF, usage=usage)
        return Ending(usage=usage)

    async def _say(self, text: str, *, apart: bool = False) -> None:
        if not text:
            return
        if apart and self._last and not self._last[-1].isspace():
            text = f"\n\n{text}"
        self._last = text
        self._said.append(text)
        await self._stage.show(TextDelta(text))

    async def _keep(
        self,
        messages: list[ModelMessage],
        answer: str = "",
        *,
        waiting: tuple[str, ...] = (),
        usage: Usage | None = None,
    ) -> None:
        usage = usage or self._before
        memory = Memory(
            messages=tuple(messages),
            answer=answer,
            told=self._told,
            waiting=waiting,
            said="".join(self._said),
            usage=usage,
            read=tuple(self._taint.sources),
        )
        await self._stage.show(Checkpoint(seal(self._turn.run, memory), usage))

    def _usage(self, run: AgentRun[Any, Any]) -> Usage:
        """What the run has used, also before it waited for people."""
        now, before = _usage(run.usage), self._before
        return Usage(
            input_tokens=before.input_tokens + now.input_tokens,
            output_tokens=before.output_tokens + now.output_tokens,
            requests=before.requests + now.requests,
            cost=before.cost + now.cost,
        )

    def _failed(self, error: BaseException, run: AgentRun[Any, Any] | None) -> Ending:
        log.warning("the hosted agent failed: %s", error, exc_info=error)
        while isinstance(error, BaseExceptionGroup):
            # Every model was tried; the last error stands for all.
            error = error.exceptions[-1]
        reason = next((words for kind, words in _WORDS if isinstance(error, kind)), BROKE_OFF)
        kind = OutcomeKind.HALTED if isinstance(error, _HALTING) else OutcomeKind.FAILED
        usage = self._usage(run) if run is not None else None
        return Ending(kind=kind, reason=reason, usage=usage, passing=isinstance(error, _PASSING))


def _open_calls(memory: Memory) -> list[ToolCallPart]:
    """The calls of the last answer that people are asked about."""
    last = next((each for each in reversed(memory.messages) if isinstance(each, ModelResponse)), None)
    return [part for part in last.tool_calls if part.tool_call_id in memory.waiting] if last else []


def _usage(usage: RunUsage) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        requests=usage.requests,
        cost=float(usage.cost or 0),
    )
