"""What a model is offered and what may run: one policy over our own tools and foreign ones."""

import re
from collections.abc import Iterator
from contextvars import Context
from dataclasses import replace
from pathlib import Path

import pytest

from tests.worlds.fakes import FakeDesk
from tests.worlds.tool_bench import in_session
from tidings.bots.assistant import agent
from tidings.bots.assistant.settings import Assistant, Mode
from tidings.bots.assistant.tools import board
from tidings.bots.assistant.tools.policy import Refusal
from tidings.bots.assistant.tools.tool import DEEDS, Arguments, Occasion, Result, Tool, ToolError, define
from tidings.bots.assistant.tools.toolbox import Standing, Toolbox, built_in
from tidings.core.agent import Effect
from tidings.core.errors import ConfigError, NoSession
from tidings.core.roles import Permission, Role
from tidings.core.types import Errand

# Every tool of our own: what the person that a run works for must be permitted. A new tool needs an entry here.
NEEDS = {
    **dict.fromkeys(("time", "list_files", "read_file", "search_files", "attach_file"), Permission.TALK),
    **dict.fromkeys(("fetch_url", "remember", "recall"), Permission.TALK),
    **dict.fromkeys(("write_file", "terminal", "process", "process_control"), Permission.WORK),
    **dict.fromkeys(("send_message", "schedules", "delegate"), Permission.WORK),
    **dict.fromkeys(("board_show", "board_comment", "board_attach", "board_heartbeat"), Permission.WORK),
    **dict.fromkeys(("board_complete", "board_block", "board_request_review", "board_list"), Permission.WORK),
    **dict.fromkeys(("board_create", "board_link", "board_unblock", "board_archive"), Permission.WORK),
}
EVERYTHING = ("time", "files", "fetch_url", "notes", "terminal", "send_message", "schedules", "board", "delegate")
FILES = {"list_files", "read_file", "write_file", "search_files", "attach_file"}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    """A run that works for an owner, unless a test says otherwise."""
    with in_session():
        yield


class Nothing(Arguments, frozen=True):
    pass


def foreign(name: str, effect: Effect = Effect.EFFECT, answer: str = "") -> Tool:
    async def act(asked: Nothing, occasion: Occasion) -> Result:
        return Result(answer or name)

    needs = Permission.TALK if effect is Effect.PURE else Permission.WORK
    return define(name, f"Does {name}.", Nothing, effect, needs, act)


def names(box: Toolbox) -> set[str]:
    return {tool.name for tool in box.offered()}


def reason(box: Toolbox, name: str) -> str:
    found = box.find(name)
    assert isinstance(found, Refusal)
    return found.reason


async def use(box: Toolbox, name: str) -> str:
    found = box.find(name)
    assert isinstance(found, Tool)
    return (await found.act("{}", Occasion(FakeDesk(), "k"))).text


def test_by_default_nothing_is_offered_that_acts() -> None:
    box = Toolbox(Assistant())
    assert names(box) == {"time", *FILES, "fetch_url", "remember", "recall"}
    assert not any(tool.effect is Effect.EFFECT for tool in box.offered())
    assert all(isinstance(box.find(name), Tool) for name in names(box))


@pytest.mark.parametrize("name", ["terminal", "send_message"])
def test_what_acts_runs_only_if_the_settings_name_it(name: str) -> None:
    assert reason(Toolbox(Assistant()), name) == (
        f"{name} changes things outside this talk, and the settings of this bot do not permit it. "
        "Tell the person that the owner can add it to tools."
    )
    box = Toolbox(Assistant(tools=("time", name)))
    assert names(box) == {"time", name, *(["process", "process_control"] if name == "terminal" else [])}
    assert isinstance(box.find(name), Tool)


def test_what_only_looks_is_closed_too_where_it_is_not_named() -> None:
    box = Toolbox(Assistant(tools=("time",)))
    assert "read_file is not in use here" in reason(box, "read_file")
    assert names(Toolbox(Assistant(tools=()))) == set()


@pytest.mark.parametrize("name", ["rm", "", "Terminal", "files"])
def test_what_does_not_exist_is_said_not_to(name: str) -> None:
    assert reason(Toolbox(Assistant()), name) == f"There is no tool called {name}."


def test_a_wrong_name_in_the_settings_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="tools: there is no tool terminl, did you mean terminal?"):
        Toolbox(Assistant(tools=("terminl",)))
    with pytest.raises(ConfigError, match=r"there is no tool xyz \(there are: time, files"):
        Toolbox(Assistant(tools=("xyz",)))


async def test_a_foreign_tool_acts_at_once_only_if_its_server_allows_it() -> None:
    tools = [foreign("star"), foreign("delete"), foreign("look", Effect.PURE), foreign("put", Effect.IDEMPOTENT)]
    box = Toolbox(Assistant(tools=()), {"hub": tools, "other": [foreign("push")]}, {"hub": frozenset({"star", "push"})})
    modes = {tool.name: box.standing(tool.name).mode for tool in box.tools}
    # What one server allows is not allowed for another.
    assert modes == {"star": "allow", "delete": "ask", "look": "allow", "put": "allow", "push": "ask"}


def test_the_owner_is_told_the_name_that_the_settings_take() -> None:
    """The model knows a tool by the name of its server too, and the settings do not."""
    shown = replace(foreign("hub__delete"), called="delete")
    box = Toolbox(Assistant(tools=(), approvals={"modes": {"hub.delete": "deny"}}), {"hub": [shown]}, {})
    assert box.standing("hub__delete") == Standing(Mode.DENY, 'approvals.modes."hub.delete"')


def test_the_model_is_told_which_tools_are_denied_and_which_ask() -> None:
    tools = [foreign("star"), foreign("delete"), foreign("burn")]
    settings = Assistant(tools=(), approvals={"modes": {"hub.burn": "deny"}})
    box = Toolbox(settings, {"hub": tools}, {"hub": frozenset({"star"})})
    described = {tool.name: tool.description for tool in box.offered()}
    assert described["star"] == "Does star."
    assert "People are asked before it runs" in described["delete"]
    assert "do not permit" in described["burn"]


MODES = {
    # The nearest name counts: the tool's own, what its server allows, its group or server, then every tool that acts.
    ("terminal", "ask"): {},
    ("terminal", "allow"): {"terminal": "allow"},
    ("terminal", "deny"): {"terminal": "deny", "*": "allow"},
    ("process_control", "allow"): {"terminal": "allow"},
    ("process_control", "deny"): {"terminal": "allow", "process_control": "deny"},
    ("send_message", "allow"): {"*": "allow", "terminal": "ask"},
    ("read_file", "allow"): {"*": "ask", "files": "ask"},
    ("write_file", "deny"): {"*": "ask", "files": "deny"},
    ("write_file", "ask"): {"write_file": "ask"},
    ("time", "allow"): {"*": "deny"},
    ("star", "allow"): {},
    ("delete", "ask"): {},
    ("delete", "allow"): {"hub.*": "allow"},
    ("delete", "deny"): {"hub.*": "allow", "hub.delete": "deny"},
    ("star", "deny"): {"hub.star": "deny"},
    ("look", "allow"): {"hub.*": "ask", "*": "ask"},
    ("look", "deny"): {"hub.look": "deny"},
}


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_the_nearest_name_decides_about_the_mode(name: str, mode: str) -> None:
    settings = Assistant(tools=EVERYTHING, approvals={"modes": MODES[name, mode]})
    tools = [foreign("star"), foreign("delete"), foreign("look", Effect.PURE)]
    assert Toolbox(settings, {"hub": tools}, {"hub": frozenset({"star"})}).standing(name).mode == mode


@pytest.mark.parametrize(
    ("name", "nearest"), [("terminl", "terminal"), ("gitub.*", r"github\.\*"), ("send_mesage", "send_message")]
)
def test_a_mode_of_nothing_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    settings = Assistant(mcp={"github": {"command": ["true"]}}, approvals={"modes": {name: "ask"}})
    with pytest.raises(ConfigError, match=rf"approvals: modes: there is no tool .*, did you mean {nearest}\?"):
        Toolbox(settings)


def test_a_mode_may_name_any_tool_of_a_server_that_is_not_connected_yet() -> None:
    settings = Assistant(mcp={"github": {"command": ["true"]}}, approvals={"modes": {"github.create_issue": "deny"}})
    assert "time" in names(Toolbox(settings))
    # An errand that was given no server has no use for the server's modes either.
    errand = Errand(id="task_1", tools=("time",))
    assert names(Toolbox(agent.Assistant("ada", settings).settings_for(errand))) == {"time"}


async def test_names_that_collide_are_called_after_their_server() -> None:
    box = Toolbox(
        Assistant(tools=("time",)),
        {
            "a": [
                foreign("time", answer="a's"),
                foreign("terminal", answer="a's terminal"),
                foreign("find", answer="a"),
            ],
            "b": [foreign("find", answer="b"), foreign("alone", answer="alone")],
        },
        {"a": frozenset({"time", "find"}), "b": frozenset({"find", "alone"})},
    )
    assert names(box) == {"time", "a_time", "a_terminal", "a_find", "b_find", "alone"}
    assert [await use(box, name) for name in ("a_time", "a_find", "b_find", "alone")] == ["a's", "a", "b", "alone"]
    # A foreign tool never stands in for one of ours, not even for one that is off.
    assert "owner can add it to tools" in reason(box, "terminal")
    assert box.standing("a_terminal") == Standing(Mode.ASK, 'approvals.modes."a.terminal"')
    assert "UTC" in await use(box, "time")


def test_every_name_is_unique_and_fit_for_every_provider() -> None:
    long = "x" * 100
    box = Toolbox(
        Assistant(tools=("time",)),
        {
            "a": [foreign("time"), foreign("a_time"), foreign("dotted.name"), foreign(long), foreign("same")],
            "b": [foreign("dotted/name"), foreign(long + "y"), foreign("same"), foreign("same"), foreign("b_same")],
            long: [foreign("same"), foreign(long)],
        },
    )
    offered = [tool.name for tool in box.offered()]
    assert len(offered) == len(set(offered)) == 13
    assert all(NAME.fullmatch(name) for name in offered)
    assert {"time", "a_time", "a_time_2", "b_same", "b_same_2", "b_same_3"} <= set(offered)


async def test_a_delegate_hands_on_no_server_of_tools_that_it_was_not_given(tmp_path: Path) -> None:
    servers = {name: {"command": ["true"]} for name in ("bank", "mail")}
    assistant = agent.Assistant("ada", Assistant(tools=("time", "delegate"), mcp=servers))
    errand = Errand(id="task_1", tools=("delegate", "mail"))

    tool = Toolbox(assistant.settings_for(errand)).find("delegate")

    assert isinstance(tool, Tool)
    with (
        in_session(tmp_path),
        pytest.raises(ToolError, match="You have no tools called bank; there are: delegate, mail"),
    ):
        await tool.act('{"goal": "pay", "tools": ["bank"]}', Occasion(FakeDesk(), "k"))


def test_every_tool_of_our_own_has_an_entry_in_the_table() -> None:
    assert {tool.name: tool.needs for tool in built_in()} == NEEDS
    assert set(NEEDS) == {tool.name for tool in Toolbox(Assistant(tools=EVERYTHING)).tools}
    # Every permission that a tool needs can be explained to the model.
    assert set(NEEDS.values()) <= set(DEEDS)


def test_what_has_an_effect_is_for_members_and_above() -> None:
    assert all(tool.needs is not Permission.TALK for tool in built_in() if tool.effect is Effect.EFFECT)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("name", sorted(NEEDS))
def test_each_role_has_the_tools_that_it_may_use_and_no_other(role: Role, name: str) -> None:
    box = Toolbox(Assistant(tools=EVERYTHING))
    least = Role.GUEST if NEEDS[name] is Permission.TALK else Role.MEMBER
    with in_session(role=role):
        found = box.find(name)
        described = next(tool.description for tool in box.offered() if tool.name == name)
    assert isinstance(found, Tool) == role.includes(least)
    assert ("may not have this done" in described) == (not role.includes(least))


def test_the_model_is_told_for_whom_it_works_and_what_they_can_do() -> None:
    box = Toolbox(Assistant(tools=("terminal",)))
    with in_session(role=Role.GUEST):
        assert reason(box, "terminal") == (
            "terminal did not run: you work for a guest, who may not have you change things, run commands or plan "
            "work. Tell them that an owner or admin can give them another role."
        )


def test_the_settings_come_before_the_role() -> None:
    """What nobody may use is refused in the same words for everybody."""
    with in_session(role=Role.GUEST):
        assert "the settings of this bot do not permit it" in reason(Toolbox(Assistant()), "terminal")


def test_a_foreign_tool_is_for_guests_only_if_it_changes_nothing() -> None:
    tools = [foreign("look", Effect.PURE), foreign("put", Effect.IDEMPOTENT), foreign("star")]
    box = Toolbox(Assistant(tools=()), {"hub": tools}, {"hub": frozenset({"star"})})
    with in_session(role=Role.GUEST):
        assert isinstance(box.find("look"), Tool)
        assert "you work for a guest" in reason(box, "put")
        assert "you work for a guest" in reason(box, "star")


def test_a_lent_tool_asks_for_the_role_too() -> None:
    box = Toolbox(Assistant(tools=())).lend(board.tools(everything=False))
    assert isinstance(box.find("board_complete"), Tool)
    with in_session(role=Role.GUEST):
        assert "you work for a guest" in reason(box, "board_complete")


def test_everybody_with_a_role_is_offered_the_same_list() -> None:
    """A provider's cache begins with the tools, and their names and order do not depend on the role either."""
    box = Toolbox(Assistant(tools=EVERYTHING))

    def offered(role: Role, run: str) -> tuple[tuple[str, str], ...]:
        with in_session(role=role, run=run):
            return tuple((tool.name, tool.description) for tool in box.offered())

    assert offered(Role.GUEST, "run_1") == offered(Role.GUEST, "run_2")
    assert offered(Role.MEMBER, "run_1") == offered(Role.OWNER, "run_2")
    assert [name for name, _ in offered(Role.GUEST, "r")] == [name for name, _ in offered(Role.OWNER, "r")]


def test_no_tool_is_found_outside_of_a_run() -> None:
    box = Toolbox(Assistant())
    with pytest.raises(NoSession):
        Context().run(box.find, "time")
