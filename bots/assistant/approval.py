"""Brings each tool call before the policy: what the settings, the person, the texts read and people's verdicts say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidings.bots.assistant.settings import Mode
from tidings.bots.assistant.taint import Taint, address_of
from tidings.bots.assistant.tools import command_rules, question
from tidings.bots.assistant.tools.policy import NOT_RUN, Asked, Case, Granted, Refusal, decide
from tidings.bots.assistant.tools.tool import Tool, ToolError, barred
from tidings.bots.assistant.tools.toolbox import Toolbox
from tidings.core import context
from tidings.core.agent import ApprovalAsked, Effect, Turn, Verdict
from tidings.core.redaction import plain

FETCH = "fetch_url"
NO_OBJECT = "the arguments are no JSON object, so it did not run"
# A question must show what will run, and neither people nor the store may see a secret.
HAS_SECRET = f"{NOT_RUN} there is a secret in this call, and people cannot be asked about what may not be shown to them"
CHANGED = f"{NOT_RUN} what it would run has changed since people approved it; call it again, and they are asked anew"


@dataclass(frozen=True, slots=True)
class Leave:
    """A call that may run now, with the arguments exactly as they were judged."""

    tool: Tool
    written: str
    granted: Granted
    # Identifies what people have approved; empty if nobody was asked.
    digest: str = ""


class Gate:
    """The gate of one run; every call passes it twice: before it is announced, and right before it acts."""

    def __init__(self, toolbox: Toolbox, turn: Turn, taint: Taint) -> None:
        self._toolbox = toolbox
        self._desk = turn.desk
        self._verdicts = turn.verdicts
        self._taint = taint

    async def judge(self, call: str, tool: Tool, written: str) -> Leave | Refusal | ApprovalAsked:
        """Decides about one call; `call` is its id in this run, which a verdict names."""
        arguments = question.canonical(written)
        if arguments is None:
            return Refusal(f"{NO_OBJECT}: {written[:200]}")
        case = self._case(tool, arguments)
        decision = decide(case)
        if isinstance(decision, Refusal):
            return decision
        if isinstance(decision, Granted):
            # What a rule has covered runs as the words that the rule was compared with.
            return Leave(tool, question.reworded(arguments) if case.is_covered else arguments, decision)
        if tool.check is not None:
            try:
                tool.check(arguments)
            except ToolError as error:
                return Refusal(str(error))
        if plain(arguments) != arguments:
            return Refusal(HAS_SECRET)
        digest = await digest_of(tool.name, arguments)
        decision = decide(replace(case, verdict=_newest(self._verdicts, call), digest=digest))
        if isinstance(decision, Asked):
            return self._question(call, tool, arguments, digest)
        return decision if isinstance(decision, Refusal) else Leave(tool, arguments, decision, digest)

    async def still(self, leave: Leave) -> Refusal | None:
        """Looks again right before the tool acts: role and program may have changed while the call was stored."""
        tool = leave.tool
        decision = decide(self._case(tool, leave.written))
        if isinstance(decision, Refusal):
            return decision
        is_same = not leave.digest or await digest_of(tool.name, leave.written) == leave.digest
        is_asked = isinstance(decision, Asked) and not leave.digest
        return None if is_same and not is_asked else Refusal(CHANGED)

    def _case(self, tool: Tool, arguments: str) -> Case:
        standing = self._toolbox.standing(tool.name)
        approvals = self._toolbox.approvals
        only_looks = _only_looks(tool, arguments)
        return Case(
            name=tool.name,
            effect=Effect.PURE if only_looks else tool.effect,
            needs=tool.needs,
            mode=Mode.ALLOW if only_looks and standing.mode is Mode.ASK else standing.mode,
            setting=standing.setting,
            barred=barred(context.current(), self._desk, tool.needs),
            is_covered=self._is_covered(tool, arguments),
            is_tainted=bool(self._taint.sources),
            trusts_tainted=approvals.trust_tainted,
            is_unnamed=tool.name == FETCH and not self._taint.names(address_of(arguments)),
        )

    def _is_covered(self, tool: Tool, arguments: str) -> bool:
        command = question.command_alone(arguments) if tool.name == question.TERMINAL else None
        return command is not None and command_rules.is_covered(self._toolbox.rules, command)

    def _question(self, call: str, tool: Tool, arguments: str, digest: str) -> ApprovalAsked:
        folder = context.current().workspace
        return ApprovalAsked(
            call,
            tool.name,
            question.detail(tool.name, arguments, folder),
            digest,
            question.covers(tool.name, arguments),
            tuple(self._taint.sources),
        )


async def digest_of(tool: str, arguments: str) -> str:
    session, environment = context.current(), context.child_environment()
    return await asyncio.to_thread(question.digest, tool, arguments, session.workspace, environment)


def _only_looks(tool: Tool, arguments: str) -> bool:
    try:
        return tool.only_looks is not None and tool.only_looks(arguments)
    except ToolError:
        return False


def _newest(verdicts: Sequence[Verdict], call: str) -> Verdict | None:
    """The newest verdict about a call: a call whose program has changed was asked about more than once."""
    return next((verdict for verdict in reversed(verdicts) if verdict.call == call), None)
