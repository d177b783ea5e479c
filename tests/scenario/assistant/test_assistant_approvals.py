"""The assistant asks before it acts: a verdict lets exactly the call run that was shown, once, and then the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulators.provider.simulator import Call, ProviderServer, Say
from tests.worlds.asking import Talk
from tests.worlds.assistant import assistant, settings_for
from tidings.bots.assistant.agent import Assistant
from tidings.bots.assistant.tools.tool import Arguments, Occasion, Result, Tool, define
from tidings.bots.assistant.tools.toolbox import Toolbox
from tidings.core import redaction
from tidings.core.agent import Effect, OutcomeKind
from tidings.core.roles import Permission, Role
from tidings.core.types import Errand, Origin

TOOLS = ("time", "files", "notes", "terminal", "send_message")


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server
        while MADE:
            await MADE.pop().close()


# Closed when their provider goes.
MADE: list[Assistant] = []


def asking(provider: ProviderServer, limits: Any = None, **approvals: Any) -> Assistant:
    """As the settings are by default."""
    MADE.append(assistant(provider, tools=TOOLS, approvals=approvals, limits=limits or {}))
    return MADE[-1]


def echo(number: int) -> Call:
    return Call("terminal", {"command": f"echo {number} >> done"})


def results(provider: ProviderServer) -> list[str]:
    return list(provider.last.results.values())


def done(talk: Talk) -> list[str]:
    """What the commands have really left behind."""
    file = talk.workspace / "done"
    return file.read_text().split() if file.exists() else []


async def test_a_tool_that_asks_runs_once_after_it_was_approved(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script([Say("I count."), echo(1)], Say("One."))
    talk = Talk(tmp_path, asking(provider))
    asked = await talk.says("count")
    assert (asked.tool, asked.detail) == ("terminal", "$ echo 1 >> done\n(in the folder workspace)")
    assert (asked.covers, asked.read) == ("echo 1 >> done", ())
    assert (done(talk), talk.started) == ([], [])
    assert await talk.answers() is None
    assert done(talk) == ["1"]
    assert [(event.call, event.effect) for event in talk.started] == [(asked.call, Effect.EFFECT)]
    # What was said before still stands, and is not said again.
    assert talk.text == "I count.\n\nOne."
    assert talk.end.kind is OutcomeKind.COMPLETED
    assert talk.end.usage is not None
    assert talk.end.usage.requests == len(provider.requests) == 2
    # With the verdict still there, nothing is left to run.
    assert await talk.crashes() is None
    assert done(talk) == ["1"]


async def test_after_a_crash_behind_the_verdict_the_text_is_said_again_and_the_tool_runs_once(
    tmp_path: Path, provider: ProviderServer
) -> None:
    provider.script([Say("I count."), echo(1)], Say("One."))
    talk = Talk(tmp_path, asking(provider))
    await talk.says("count")
    talk.events.clear()
    # Before anybody has answered, a restart asks the same again.
    asked = await talk.crashes()
    assert asked is not None
    assert talk.text == "I count."
    await talk.answers()
    assert done(talk) == ["1"]
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("Ada denied it: not on a Friday", "(Not run: Ada denied it: not on a Friday)"),
        ("nobody answered within 30 minutes", "(Not run: nobody answered within 30 minutes)"),
    ],
)
async def test_a_denial_and_an_expiry_are_results_that_the_model_sees(
    tmp_path: Path, provider: ProviderServer, reason: str, told: str
) -> None:
    provider.script(echo(1), Say("I may not."))
    talk = Talk(tmp_path, asking(provider))
    await talk.says()
    assert await talk.answers(reason) is None
    assert results(provider) == [told]
    assert (done(talk), talk.text) == ([], "I may not.")
    assert [(event.effect, event.name) for event in talk.started] == [(Effect.PURE, "terminal")]


async def test_two_questions_of_one_round_come_one_after_the_other_and_nothing_is_repeated(
    tmp_path: Path, provider: ProviderServer
) -> None:
    looked: list[str] = []

    async def look(asked: Nothing, occasion: Occasion) -> Result:
        looked.append(occasion.key)
        return Result("a view")

    tool = define("look", "Looks.", Nothing, Effect.PURE, Permission.TALK, look)
    bot = equipped(provider, tool)
    provider.script([Call("look"), echo(1), Call("look"), echo(2), Call("look")], Say("Done."))
    talk = Talk(tmp_path, bot)
    first = await talk.says()
    assert (len(looked), done(talk)) == (1, [])
    second = await talk.answers()
    assert second.call != first.call
    assert (len(looked), done(talk)) == (2, ["1"])
    assert await talk.answers("Ada denied it") is None
    assert (len(looked), done(talk)) == (3, ["1"])
    assert len(set(looked)) == 3
    assert [each.split("\n")[0] for each in results(provider)][3] == "(Not run: Ada denied it)"
    assert len(results(provider)) == 5
    assert len({event.call for event in talk.started}) == 5


async def test_a_crash_between_two_questions_repeats_nothing(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script([echo(1), echo(2)], Say("Done."))
    talk = Talk(tmp_path, asking(provider))
    await talk.says()
    await talk.answers()
    again = await talk.crashes()
    assert (again is not None, done(talk)) == (True, ["1"])
    await talk.answers()
    assert done(talk) == ["1", "2"]


async def test_calls_with_one_id_are_asked_about_one_by_one(tmp_path: Path, provider: ProviderServer) -> None:
    same = [Call("terminal", {"command": f"echo {number} >> done"}, id="call_1") for number in (1, 2)]
    provider.script(same, Say("Done."))
    talk = Talk(tmp_path, asking(provider))
    first = await talk.says()
    second = await talk.answers()
    assert (first.call, second.call) == ("call_1#1", "call_1#2")
    await talk.answers("Ada denied it")
    assert done(talk) == ["1"]


async def test_a_program_that_was_exchanged_meanwhile_is_asked_about_anew(
    tmp_path: Path, provider: ProviderServer
) -> None:
    provider.script(Call("terminal", {"command": "./count 1"}), Say("Done."))
    talk = Talk(tmp_path, asking(provider))
    talk.workspace.mkdir()
    program(talk, "echo good >> done")
    first = await talk.says()
    program(talk, "echo evil >> done")
    second = await talk.answers()
    assert second is not None
    assert (second.call, second.digest != first.digest) == (first.call, True)
    assert done(talk) == []
    await talk.answers()
    assert done(talk) == ["evil"]


async def test_a_verdict_for_something_else_is_none_for_this_call(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(echo(1), Say("Done."))
    talk = Talk(tmp_path, asking(provider))
    asked = await talk.says()
    for digest in ("", "0" * 64, asked.digest.upper()):
        assert (await talk.answers(digest=digest)) == asked
    assert done(talk) == []


async def test_what_the_settings_deny_meanwhile_stays_unrun_though_it_was_approved(
    tmp_path: Path, provider: ProviderServer
) -> None:
    provider.script(echo(1), Say("I may not."))
    talk = Talk(tmp_path, asking(provider))
    await talk.says()
    talk.agent = asking(provider, modes={"terminal": "deny"})
    assert await talk.answers() is None
    assert done(talk) == []
    assert results(provider) == [
        "(It failed: terminal did not run: the settings of this bot deny it. "
        'Tell the person that the owner can change approvals.modes."terminal".)'
    ]


async def test_a_person_whose_role_was_lowered_meanwhile_gets_nothing_done(
    tmp_path: Path, provider: ProviderServer
) -> None:
    provider.script(echo(1), Say("I may not."))
    talk = Talk(tmp_path, asking(provider), role=Role.MEMBER)
    await talk.says()
    talk.desk.people.barred.add(Permission.WORK)
    assert await talk.answers() is None
    assert (done(talk), "did not run: you work for" in results(provider)[0]) == ([], True)


async def test_nobody_is_asked_for_a_guest(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(echo(1), Say("I may not."))
    talk = Talk(tmp_path, asking(provider), role=Role.GUEST)
    assert await talk.says() is None
    assert "you work for a guest" in results(provider)[0]


async def test_a_rule_lets_its_words_run_at_once_and_nothing_else(tmp_path: Path, provider: ProviderServer) -> None:
    settings = {"commands": ["touch done", "echo *"]}
    for command, runs in (("touch  done", True), ("echo -n 1", True), ("touch done x", False), ("echo 1; ls", False)):
        provider.script(Call("terminal", {"command": command}), Say("Done."))
        talk = Talk(tmp_path, asking(provider, **settings))
        assert (await talk.says() is None) == runs, command
        if not runs:
            await talk.answers("Ada denied it")
    background = {"command": "touch done", "background": True}
    provider.script(Call("terminal", background), Say("Done."))
    asked = await Talk(tmp_path, asking(provider, **settings)).says()
    assert asked.detail == "$ touch done\n(in the folder workspace, background = true)"


async def test_impossible_calls_are_refused_without_asking(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(Call("terminal", {"cmd": "ls"}), Call("send_message", {"target": "x"}), Say("I see."))
    talk = Talk(tmp_path, asking(provider))
    assert await talk.says() is None
    assert "missing required field" in results(provider)[0]


async def test_a_call_with_a_secret_in_it_is_neither_shown_nor_run(tmp_path: Path, provider: ProviderServer) -> None:
    redaction.remember("hunter2-hunter2")
    try:
        provider.script(Call("terminal", {"command": "echo hunter2-hunter2 >> done"}), Say("I see."))
        talk = Talk(tmp_path, asking(provider))
        assert await talk.says() is None
        assert (done(talk), "there is a secret in this call" in results(provider)[0]) == ([], True)
    finally:
        redaction.forget_all()


async def test_the_rails_count_on_after_a_question(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(then=echo(1))
    talk = Talk(tmp_path, asking(provider))
    await talk.says()
    for _ in range(3):
        assert await talk.answers("Ada denied it") is not None
    assert await talk.answers("Ada denied it") is None
    assert talk.end.kind is OutcomeKind.HALTED
    assert "4 times with the same input" in talk.text


async def test_the_budget_counts_on_after_a_question(tmp_path: Path, provider: ProviderServer) -> None:
    provider.script(echo(1), echo(2), then=Say("That is all."))
    talk = Talk(tmp_path, asking(provider, limits={"requests": 2}))
    await talk.says()
    await talk.answers()
    assert await talk.answers() is None
    assert (done(talk), talk.end.kind) == (["1", "2"], OutcomeKind.HALTED)
    assert "my limit of 2 requests" in talk.text


async def test_a_question_that_nobody_answered_leaves_a_memory_that_goes_on(
    tmp_path: Path, provider: ProviderServer
) -> None:
    """The run was stopped while it waited: the next one sees a call that has no result."""
    provider.script([Call("list_files"), echo(1)], Say("Never mind."))
    talk = Talk(tmp_path, asking(provider))
    await talk.says("count")
    assert await talk.says("forget it") is None
    assert (talk.text, done(talk)) == ("Never mind.", [])
    assert len(provider.last.results) == 2


@pytest.mark.parametrize("origin", [Origin.PERSON, Origin.TASK, Origin.SCHEDULE, Origin.CARD])
async def test_work_without_a_person_passes_the_same_gate(
    tmp_path: Path, provider: ProviderServer, origin: Origin
) -> None:
    provider.script(echo(1), Say("Done."))
    talk = Talk(tmp_path, asking(provider))
    errand = None if origin is Origin.PERSON else Errand(id="task_1", tools=("terminal",), requests=3)
    asked = await talk.says("count", origin=origin, errand=errand)
    assert (asked.tool, done(talk)) == ("terminal", [])
    assert await talk.answers() is None
    assert (done(talk), talk.text) == (["1"], "Done.")


async def test_to_look_at_what_is_planned_asks_nobody(tmp_path: Path, provider: ProviderServer) -> None:
    settings = settings_for(provider, tools=("schedules",), approvals={})
    MADE.append(Assistant("Tide", settings))
    talk = Talk(tmp_path, MADE[-1])
    talk.desk.schedules = Calendar()
    provider.script(Call("schedules", {"action": "list"}), Call("schedules", {"action": "remove", "id": "x"}))
    asked = await talk.says()
    assert (asked.detail, results(provider)) == (
        "schedules\naction: remove\nid: x",
        ["Nothing is planned in this conversation."],
    )


async def test_a_foreign_tool_asks_unless_its_server_allows_it(tmp_path: Path, provider: ProviderServer) -> None:
    launched: list[str] = []

    async def launch(asked: Aim, occasion: Occasion) -> Result:
        launched.append(asked.at)
        return Result("lift-off")

    tool = define("launch", "Launches.", Aim, Effect.EFFECT, Permission.WORK, launch, untrusted=True)
    provider.script(Call("launch", {"at": "the\nmoon"}), Say("Done."), Call("launch", {"at": "mars"}), Say("Done."))
    talk = Talk(tmp_path, equipped(provider, tool))
    asked = await talk.says()
    assert asked.detail == "launch\nat: the\n  | moon"
    await talk.answers()
    assert launched == ["the\nmoon"]
    # The server has spoken, so that even what it is allowed asks from now on.
    talk.agent = equipped(provider, tool, allow=("launch",))
    assert (await talk.says()).read == ("the server bench",)


class Calendar:
    async def all(self, conversation: str) -> list[Any]:
        return []


class Nothing(Arguments, frozen=True):
    pass


class Aim(Arguments, frozen=True):
    at: str = ""


def equipped(provider: ProviderServer, *tools: Tool, allow: tuple[str, ...] = ()) -> Assistant:
    settings = settings_for(provider, tools=TOOLS, approvals={})
    toolbox = Toolbox(settings, {"bench": tools}, {"bench": frozenset(allow)})
    MADE.append(Assistant("Tide", settings, toolbox=toolbox))
    return MADE[-1]


def program(talk: Talk, line: str) -> None:
    file = talk.workspace / "count"
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o700)
