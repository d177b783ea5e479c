"""Delegates work to another agent, with its own memory, a limit, and no more tools than this bot has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta

from tidings.bots.assistant.tools.tool import Arguments, Occasion, Result, Tool, ToolError, define
from tidings.core import context
from tidings.core.agent import Effect, Outcome, OutcomeKind
from tidings.core.desk.work import Goal, Manner
from tidings.core.errors import Overdrawn, Unstored, Unsupported
from tidings.core.roles import Permission

TITLE_CHARACTERS = 80
DESCRIPTION = (
    "Gives a piece of work to another agent that starts with an empty memory and reports back. Without background "
    "you get its report as the result. With background you go on at once, and its report comes later: then=tell shows "
    "it to the person, then=wake brings it to you as a new turn."
)
# What the model reads when a promise could not be kept.
DONE_AT_ONCE = "(It was done at once and not in the background, because the result could not be told here later.)"


class Delegate(Arguments, frozen=True):
    goal: Annotated[str, Meta(min_length=1, description="What to do and what the report should say.")]
    context: Annotated[str, Meta(description="All it needs to know: it sees nothing of this talk.")] = ""
    tools: Annotated[
        list[str] | None, Meta(description="Which of your groups of tools it may use; all of them if left out.")
    ] = None
    background: bool = False
    then: Annotated[Literal["tell", "wake"], Meta(description="Only for background.")] = "tell"


def tools(groups: Iterable[str], requests: int) -> tuple[Tool, ...]:
    """`groups` are the tools that this bot may use itself; `requests` limits one delegated task."""
    own = tuple(groups)

    async def act(asked: Delegate, occasion: Occasion) -> Result:
        return await _delegate(asked, occasion, own, requests)

    # Delegated work has the effects of the tools that it may use.
    source = "the report of another agent"
    tool = define(
        "delegate", DESCRIPTION, Delegate, Effect.EFFECT, Permission.WORK, act, untrusted=True, source=lambda _: source
    )
    return (tool,)


async def _delegate(asked: Delegate, occasion: Occasion, own: tuple[str, ...], requests: int) -> Result:
    unknown = [name for name in asked.tools or () if name not in own]
    if unknown:
        raise ToolError(f"You have no tools called {', '.join(unknown)}; there are: {', '.join(own) or 'none'}.")
    session = context.current()
    later = asked.background and session.can.async_delivery
    # A run that was given only some tools cannot pass on more.
    given = tuple(asked.tools) if asked.tools is not None else session.errand.tools if session.errand else None
    text = f"{asked.goal}\n\n{asked.context}".strip()
    goal = Goal(
        text=text,
        title=asked.goal.strip().splitlines()[0][:TITLE_CHARACTERS],
        manner=Manner(asked.then) if later else None,
        tools=given,
        requests=requests,
        key=occasion.key,
    )
    try:
        begun = await occasion.desk.tasks.delegate(goal)
    except (Overdrawn, Unsupported, Unstored) as error:
        raise ToolError(f"Nothing was begun: {error}.") from error
    if later:
        how = "You get its report as a new turn" if asked.then == "wake" else "The person is told here how it ended"
        return Result(f"It works in the background as {begun.task}. {how}; there is no need to wait for it.")
    report = _report(await occasion.desk.tasks.finish(begun))
    return Result(f"{report}\n\n{DONE_AT_ONCE}" if asked.background else report)


def _report(outcome: Outcome) -> str:
    text = outcome.text.strip()
    if outcome.kind is OutcomeKind.COMPLETED:
        return text or "(It is done and had nothing to say.)"
    ended = f"(It did not complete: {outcome.kind}, {outcome.reason or 'for no known reason'}.)"
    return f"{ended}\n\n{text}".strip()
