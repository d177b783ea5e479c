"""The one decision about a tool call, over every tool, mode, role, taint and verdict; and every way to a tool."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tidings.bots.assistant.settings import Assistant, Mode
from tidings.bots.assistant.tools.policy import Asked, Case, Decision, Granted, Refusal, decide
from tidings.bots.assistant.tools.tool import Tool
from tidings.bots.assistant.tools.toolbox import Toolbox, built_in
from tidings.core.agent import Effect, Verdict
from tidings.core.roles import Permission, Role

BOTS = Path(__file__).resolve().parents[2] / "bots"
EVERYTHING = ("time", "files", "fetch_url", "notes", "terminal", "send_message", "schedules", "board", "delegate")
GRANTED = Verdict(call="c", granted=True, digest="d")
DENIED = Verdict(call="c", granted=False, reason="Ada denied it", digest="d")
OTHER = Verdict(call="c", granted=True, digest="e")


def case(tool: Tool, mode: Mode, **more: Any) -> Case:
    return Case(name=tool.name, effect=tool.effect, needs=tool.needs, mode=mode, **more)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("tool", built_in(), ids=lambda tool: tool.name)
def test_every_tool_in_every_mode_tainted_or_not(tool: Tool, mode: Mode) -> None:
    acts = tool.effect is Effect.EFFECT
    for tainted, trusts, unnamed, covered in product((False, True), repeat=4):
        found = decide(
            case(tool, mode, is_tainted=tainted, trusts_tainted=trusts, is_unnamed=unnamed, is_covered=covered)
        )
        wary = tainted and not trusts and (acts or unnamed)
        wanted: type[Decision] = Asked if wary or (mode is Mode.ASK and not covered) else Granted
        assert type(found) is (Refusal if mode is Mode.DENY else wanted)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("tool", built_in(), ids=lambda tool: tool.name)
def test_no_verdict_is_above_the_settings_and_the_role(tool: Tool, mode: Mode) -> None:
    for role in (None, Role.GUEST):
        found = decide(case(tool, mode, barred=role, verdict=GRANTED, digest="d", is_tainted=True))
        refused = mode is Mode.DENY or role is not None
        assert isinstance(found, Refusal) == refused
        assert isinstance(found, Granted) != refused


@pytest.mark.parametrize("tainted", [False, True])
def test_a_verdict_holds_for_what_was_shown_and_for_nothing_else(tainted: bool) -> None:
    for mode in (Mode.ASK, Mode.ALLOW) if tainted else (Mode.ASK,):
        tool = next(tool for tool in built_in() if tool.name == "terminal")

        def verdict(given: Verdict | None, digest: str, mode: Mode = mode, tool: Tool = tool) -> Decision:
            return decide(case(tool, mode, verdict=given, digest=digest, is_tainted=tainted))

        assert verdict(None, "d") == Asked()
        assert verdict(GRANTED, "d") == Granted()
        assert verdict(OTHER, "d") == verdict(GRANTED, "") == Asked()
        assert verdict(Verdict(call="c", granted=True), "") == Asked()
        assert verdict(DENIED, "d") == verdict(DENIED, "e") == Refusal("Not run: Ada denied it")


def test_what_is_denied_names_its_setting() -> None:
    found = decide(
        Case(name="x", effect=Effect.PURE, needs=Permission.TALK, mode=Mode.DENY, setting='approvals.modes."x"')
    )
    assert isinstance(found, Refusal)
    assert found.reason.endswith('the owner can change approvals.modes."x".')


def test_by_default_what_acts_asks_and_nothing_else_does() -> None:
    box = Toolbox(Assistant(tools=EVERYTHING))
    acting = {tool.name for tool in box.tools if tool.effect is Effect.EFFECT}
    assert {tool.name for tool in box.tools if box.standing(tool.name).mode is Mode.ASK} == acting
    assert acting == {"terminal", "process_control", "send_message", "schedules", "delegate"}


def _calls(name: str) -> set[str]:
    """The functions of bots that call something of this name, as file:function."""
    found = set()
    for path in BOTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for inner in ast.walk(node):
                    called = inner.func if isinstance(inner, ast.Call) else None
                    if name in (getattr(called, "attr", ""), getattr(called, "id", "")):
                        found.add(f"{path.relative_to(BOTS)}:{node.name}")
    return found


def test_nothing_but_the_policy_grants_and_nothing_acts_without_a_grant() -> None:
    assert _calls("Granted") == {"assistant/tools/policy.py:decide"}
    # A leave needs a grant, and the only place that lets a tool act needs a leave.
    assert _calls("Leave") == {"assistant/approval.py:judge"}
    acting = {place for place in _calls("act") if not place.startswith("assistant/tools/")}
    assert acting == {"assistant/use_tools.py:_act", "hosted/tool_gate.py:_announced"}
    # Inside the folder of tools, a tool's own function is called with its decoded arguments.
    own = {place for place in _calls("act") if place.startswith("assistant/tools/")}
    assert own == {
        "assistant/tools/tool.py:define",
        "assistant/tools/tool.py:decode_and_act",
        "assistant/tools/board.py:acting",
        "assistant/tools/board.py:_speaking",
    }
    assert _calls("decide") == {
        "assistant/approval.py:judge",
        "assistant/approval.py:still",
        "hosted/tool_gate.py:_decide",
    }
