"""The gate for tool calls of a hosted agent: judged by the one policy, stored, and only then executed."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from pydantic_ai import ApprovalRequired, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.output import OutputContext
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)
from pydantic_core import to_json

from tidings.bots.assistant.approval import CHANGED, HAS_SECRET, NO_OBJECT, digest_of
from tidings.bots.assistant.settings import Approvals, Mode
from tidings.bots.assistant.taint import Taint
from tidings.bots.assistant.tools import question
from tidings.bots.assistant.tools.policy import Asked, Case, Decision, Granted, Refusal, decide
from tidings.bots.assistant.tools.tool import barred
from tidings.bots.assistant.tools.toolbox import EVERY
from tidings.bots.hosted.agent import Stage
from tidings.core import context
from tidings.core.agent import ApprovalAsked, Effect, ToolFinished, ToolStarted, Verdict
from tidings.core.desk.desk import Desk
from tidings.core.redaction import plain
from tidings.core.roles import Permission, Role

log = logging.getLogger(__name__)

# How much of a result the journal keeps; the model gets all of it.
OUTPUT_CHARACTERS = 10_000
NOT_NAMED = (
    "{name} was not run: the settings of this bot do not permit it. "
    "Tell the person that the owner can add it to the bot's tools."
)
CANNOT_WAIT = (
    "{name} was not run: people must be asked first, and this agent cannot wait, because it checks its output. "
    'Tell the person that the owner can allow it in approvals.modes."{name}".'
)
# What the person reads instead of an answer that a function of the agent's would have made.
NO_OUTPUT = "I may not do this for a {role}. An owner or admin can give you another role."


class Terms(NamedTuple):
    """What the settings say about the tools of a hosted agent."""

    # The names of the tools that it may use at all.
    permitted: frozenset[str]
    approvals: Approvals = Approvals()


class Judged(NamedTuple):
    """What was decided about a call, with its arguments in one spelling and the digest that identifies it."""

    decision: Decision
    arguments: str = "{}"
    digest: str = ""


class Gate(AbstractCapability[Any]):
    """A capability for one run of the library, placed directly in front of the tools.

    A hosted tool declares no effect, so each counts as one that has an effect. A call that people are asked about is
    deferred: the library ends its run with the open requests, and takes them up again with the verdicts.
    """

    def __init__(self, stage: Stage, terms: Terms, desk: Desk, taint: Taint) -> None:
        self._session = context.current()
        self._stage = stage
        self._desk = desk
        self._terms = terms
        self._taint = taint
        self._calls: set[str] = set()
        # Verdicts of people about the open calls, by the library's id of the call.
        self.verdicts: dict[str, Verdict] = {}
        # Whether this run can end with open requests; an agent with validators of its output cannot.
        self.can_wait = True

    def get_ordering(self) -> CapabilityOrdering:
        # Innermost, so that retries by other capabilities pass the gate too.
        return CapabilityOrdering(position="innermost")

    async def judge(self, call: ToolCallPart, verdict: Verdict | None = None) -> Judged:
        """Decides about one call by the settings, the person, the texts read, and the verdict of people."""
        name = call.tool_name
        if name not in self._terms.permitted:
            return Judged(Refusal(NOT_NAMED.format(name=name)))
        arguments = question.canonical(call.args_as_json_str())
        if arguments is None:
            return Judged(Refusal(f"{name}: {NO_OBJECT}."))
        digest = await digest_of(name, arguments)
        decision = self._decide(name, verdict, digest)
        if isinstance(decision, Asked) and not self.can_wait:
            decision = Refusal(CANNOT_WAIT.format(name=name))
        if isinstance(decision, Asked) and plain(arguments) != arguments:
            decision = Refusal(HAS_SECRET)
        return Judged(decision, arguments, digest)

    def _decide(self, name: str, verdict: Verdict | None = None, digest: str = "") -> Decision:
        approvals = self._terms.approvals
        setting = name if name in approvals.modes or EVERY not in approvals.modes else EVERY
        return decide(
            Case(
                name=name,
                effect=Effect.EFFECT,
                needs=Permission.WORK,
                mode=approvals.modes.get(setting, Mode.ASK),
                setting=f'approvals.modes."{setting}"',
                barred=self._barred(),
                is_tainted=bool(self._taint.sources),
                trusts_tainted=approvals.trust_tainted,
                verdict=verdict,
                digest=digest,
            )
        )

    def ask(self, call: str, part: ToolCallPart, judged: Judged) -> ApprovalAsked:
        name, arguments = part.tool_name, judged.arguments
        shown = question.detail(name, arguments, None)
        covers = question.covers(name, arguments)
        return ApprovalAsked(call, name, shown, judged.digest, covers, tuple(self._taint.sources))

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        name, verdict = call.tool_name, self.verdicts.get(call.tool_call_id)
        decision = (await self.judge(call, verdict)).decision
        if isinstance(decision, Asked):
            # Before it is announced: what is only asked about has not started.
            raise ApprovalRequired
        if isinstance(decision, Refusal):
            log.info("the tool %s was refused: it is not permitted", name)
            return decision.reason

        async def act() -> Any:
            # The role may have changed while the call was stored.
            again = (await self.judge(call, verdict)).decision
            if isinstance(again, Granted):
                # A verdict is used up, so that another capability that repeats the call has to ask.
                self.verdicts.pop(call.tool_call_id, None)
                return await handler(args)
            return again.reason if isinstance(again, Refusal) else CHANGED

        return await self._announced(call.tool_call_id, name, call.args_as_json_str(), act)

    async def wrap_output_process(
        self,
        ctx: RunContext[Any],
        *,
        output_context: OutputContext,
        output: Any,
        handler: Callable[[Any], Awaitable[Any]],
    ) -> Any:
        """Announces output functions too: they are tools that end the run, and their author has permitted them."""
        if not output_context.has_function:
            return await handler(output)
        if role := self._barred():
            return NO_OUTPUT.format(role=role)
        call = output_context.tool_call
        name = output_context.function_name or (call.tool_name if call else "output")
        written = call.args_as_json_str() if call else text_of(output)

        async def act() -> Any:
            role = self._barred()
            return NO_OUTPUT.format(role=role) if role else await handler(output)

        return await self._announced(call.tool_call_id if call else name, name, written, act)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Offers the provider's own tools only if they are permitted, because no gate can stop them at the provider."""
        parameters = request_context.model_request_parameters
        native = [tool for tool in parameters.native_tools if self._offers(tool.kind)]
        if len(native) == len(parameters.native_tools):
            return request_context
        return dataclasses.replace(
            request_context, model_request_parameters=dataclasses.replace(parameters, native_tools=native)
        )

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        """Resolves what the settings decide alone; what is left open is asked about when the run has ended."""
        approvals: dict[str, bool | ToolApproved | ToolDenied] = {}
        for call in requests.approvals:
            decision = (await self.judge(call, self.verdicts.get(call.tool_call_id))).decision
            if isinstance(decision, Refusal):
                approvals[call.tool_call_id] = ToolDenied(decision.reason)
            elif isinstance(decision, Granted):
                approvals[call.tool_call_id] = ToolApproved()
        return DeferredToolResults(
            approvals=approvals,
            calls={
                call.tool_call_id: f"{call.tool_name} was not run: it is made to be run elsewhere."
                for call in requests.calls
            },
        )

    async def _announced(self, wanted: str, name: str, written: str, act: Callable[[], Awaitable[Any]]) -> Any:
        call = self._free(wanted)
        await self._stage.show(ToolStarted(call, name, written, Effect.EFFECT))
        try:
            result = await act()
        except Exception as error:
            # The error is recorded and raised again: the library decides what each kind means.
            self._stage.tell(ToolFinished(call, error=str(error) or type(error).__name__))
            raise
        self._stage.tell(ToolFinished(call, text_of(result)[:OUTPUT_CHARACTERS]))
        return result

    def _barred(self) -> Role | None:
        return barred(self._session, self._desk, Permission.WORK)

    def _offers(self, name: str) -> bool:
        """Whether a tool of the provider's own is offered: only if it may run without asking."""
        return name in self._terms.permitted and isinstance(self._decide(name), Granted)

    def _free(self, wanted: str) -> str:
        """A free id for a call: the library may repeat an id, but each call is its own event."""
        call, number = wanted, 1
        while call in self._calls:
            number += 1
            call = f"{wanted}#{number}"
        self._calls.add(call)
        return call


def text_of(value: Any) -> str:
    """A result as the text that a model would read."""
    return value if isinstance(value, str) else to_json(value, fallback=str, bytes_mode="base64").decode()
