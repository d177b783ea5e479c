"""Seeded bugs in approvals: taint that is forgotten, rules on text, verdicts that hold for more than they were given.

The assistant is imported by who becomes one of these, and by nobody else: its library takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.chaos.mutation_seams import swap

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ToolCallPart

    from tidings.bots.assistant.memory import Memory
    from tidings.bots.assistant.tools.command_rules import Rule
    from tidings.bots.assistant.tools.policy import Case, Decision
    from tidings.bots.assistant.tools.tool import Tool
    from tidings.bots.hosted.tool_gate import Gate, Judged
    from tidings.core.agent import Verdict


def _decides(change: Callable[[Case], Case]) -> None:
    """Lets every gate decide about a case that was changed."""
    from tidings.bots.assistant import approval
    from tidings.bots.assistant.tools import policy
    from tidings.bots.hosted import tool_gate

    real = policy.decide

    def decide(case: Case) -> Decision:
        return real(change(case))

    for module in (policy, approval, tool_gate):
        swap(module, "decide", decide)


def taint_forgotten_after_compaction() -> None:
    """A summary is taken for the bot's own words."""
    from tidings.bots.assistant.memory import Memory

    real = Memory.replace

    def replaced(self: Memory, messages: list[ModelMessage], begin: int) -> None:
        real(self, messages, begin)
        self.taint.sources.clear()

    swap(Memory, "replace", replaced)


def taint_of_results_overlooked() -> None:
    """Only what people send is looked at, not what tools bring back."""
    from tidings.bots.assistant.taint import Taint

    def use(self: Taint, tool: Tool, written: str) -> None:
        return

    swap(Taint, "use", use)


def rule_matched_on_text() -> None:
    """A command that begins like a rule is taken for it."""
    from tidings.bots.assistant.tools import command_rules

    def is_covered(rules: Iterable[Rule], command: str) -> bool:
        return any(command.startswith(" ".join(rule.words)) for rule in rules)

    swap(command_rules, "is_covered", is_covered)


def digest_not_compared() -> None:
    """Whoever approved one thing has approved what became of it."""
    _decides(lambda case: replace(case, digest=case.verdict.digest) if case.verdict else case)


def denied_verdict_runs() -> None:
    """An answer is an answer."""

    def granted(case: Case) -> Case:
        from msgspec import structs

        if case.verdict is None:
            return case
        return replace(case, verdict=structs.replace(case.verdict, granted=True))

    _decides(granted)


def verdict_above_the_settings() -> None:
    """What was approved runs, though the owner has forbidden it meanwhile."""

    def permitted(case: Case) -> Case:
        from tidings.bots.assistant.settings import Mode

        return replace(case, mode=Mode.ASK, barred=None) if case.verdict else case

    _decides(permitted)


def hosted_gate_open() -> None:
    """Whatever a hosted agent may use runs at once."""
    from tidings.bots.assistant.tools.policy import Granted
    from tidings.bots.hosted.tool_gate import Gate, Judged

    async def judge(self: Gate, call: ToolCallPart, verdict: Verdict | None = None) -> Judged:
        return Judged(Granted())

    swap(Gate, "judge", judge)


def question_repeats_the_round() -> None:
    """After a verdict, the calls before the question are made once more."""
    from pydantic_ai.messages import ModelResponse, ToolReturnPart

    from tidings.bots.assistant.memory import Memory

    real = Memory.reopen

    def reopen(self: Memory) -> tuple[ModelResponse, list[ToolReturnPart]]:
        return real(self)[0], []

    swap(Memory, "reopen", reopen)
