"""The gate for tool calls of a hosted agent: permitted by name and to the person, stored, and only then executed."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_ai import RunContext
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

from tidings.bots.assistant.tools.tool import barred, not_for
from tidings.bots.hosted.agent import Stage
from tidings.core import context
from tidings.core.agent import Effect, ToolFinished, ToolStarted
from tidings.core.desk.desk import Desk
from tidings.core.roles import Permission, Role

log = logging.getLogger(__name__)

# How much of a result the journal keeps; the model gets all of it.
OUTPUT_CHARACTERS = 10_000
# What the person reads instead of an answer that a function of the agent's would have made.
NO_OUTPUT = "I may not do this for a {role}. An owner or admin can give you another role."


class Gate(AbstractCapability[Any]):
    """A capability for one run of the library, placed directly in front of the tools.

    A hosted tool declares no effect, so each needs the permission of a tool that has one.
    """

    def __init__(self, stage: Stage, permitted: frozenset[str], desk: Desk) -> None:
        self._session = context.current()
        self._stage = stage
        self._desk = desk
        self._named = permitted
        self._calls: set[str] = set()

    def get_ordering(self) -> CapabilityOrdering:
        # Innermost, so that retries by other capabilities pass the gate too.
        return CapabilityOrdering(position="innermost")

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        name = call.tool_name
        if refusal := self._refusal(name):
            log.info("the tool %s was refused: it is not permitted", name)
            return refusal

        async def act() -> Any:
            # The role may have changed while the call was stored.
            return self._refusal(name) or await handler(args)

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
        native = [tool for tool in parameters.native_tools if not self._refusal(tool.kind)]
        if len(native) == len(parameters.native_tools):
            return request_context
        return dataclasses.replace(
            request_context, model_request_parameters=dataclasses.replace(parameters, native_tools=native)
        )

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        """Approves or denies at once by the settings, because no person can be asked here."""
        return DeferredToolResults(
            approvals={
                call.tool_call_id: ToolDenied(refusal) if (refusal := self._refusal(call.tool_name)) else ToolApproved()
                for call in requests.approvals
            },
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

    def _refusal(self, name: str) -> str:
        """Why a tool does not run, in words for the model; empty if it may run right now."""
        if name in self._named:
            role = self._barred()
            return not_for(role, name, Permission.WORK) if role else ""
        return (
            f"{name} was not run: the settings of this bot do not permit it. "
            "Tell the person that the owner can add it to the bot's tools."
        )

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
