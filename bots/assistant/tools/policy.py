"""The one decision about a tool call: it may run, people are asked first, or it is refused."""

from __future__ import annotations

from dataclasses import dataclass

from tidings.bots.assistant.settings import Mode
from tidings.bots.assistant.tools.tool import not_for
from tidings.core.agent import Effect, Verdict
from tidings.core.roles import Permission, Role

# How the reason of a call begins that people, or what they were shown, kept from running.
NOT_RUN = "Not run:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything that the decision about one call depends on."""

    name: str
    effect: Effect
    needs: Permission
    # As the settings say for this tool, and the name of the setting.
    mode: Mode
    setting: str = ""
    # The role of the person that the run works for, if it is too low for this tool.
    barred: Role | None = None
    # Whether a rule for commands covers the call.
    is_covered: bool = False
    # Whether texts of others are in the model's context, and whether the settings trust the bot all the same.
    is_tainted: bool = False
    trusts_tainted: bool = False
    # Whether the call reaches an address that no person in the chat has named.
    is_unnamed: bool = False
    # What people have decided about this call, and what would run now.
    verdict: Verdict | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Granted:
    """The only leave to run a tool; nothing but `decide` makes one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """People decide first."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a tool does not run, in words for the model."""

    reason: str


Decision = Granted | Asked | Refusal


def decide(case: Case) -> Decision:
    """Settings and role come before a verdict: what became forbidden meanwhile stays unrun, whoever has approved it."""
    if case.mode is Mode.DENY:
        return Refusal(
            f"{case.name} did not run: the settings of this bot deny it. "
            f"Tell the person that the owner can change {case.setting}."
        )
    if case.barred is not None:
        return Refusal(not_for(case.barred, case.name, case.needs))
    if not _asks(case):
        return Granted()
    if case.verdict is None:
        return Asked()
    if not case.verdict.granted:
        return Refusal(f"{NOT_RUN} {case.verdict.reason or 'it was not approved'}")
    # A verdict holds for exactly what was shown.
    return Granted() if case.digest and case.verdict.digest == case.digest else Asked()


def _asks(case: Case) -> bool:
    if case.mode is Mode.ASK and not case.is_covered:
        return True
    if not case.is_tainted or case.trusts_tainted:
        return False
    return case.effect is Effect.EFFECT or case.is_unnamed
