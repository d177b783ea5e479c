"""Messages to others: only where the desk and the settings permit it, and the same call owes once."""

from pathlib import Path

import pytest

from tests.worlds.fakes import FakeDesk
from tests.worlds.tool_bench import in_session, use
from tidings.bots.assistant.tools import messages
from tidings.bots.assistant.tools.tool import Result, ToolError
from tidings.core.agent import Effect
from tidings.core.errors import ConfigError, Conflict, Unknown, Unsupported
from tidings.core.types import Body, Target


class Ledger(FakeDesk):
    """Owes once for each key, as the gateway does, and permits only what it is told to."""

    def __init__(self, *strangers: str) -> None:
        super().__init__()
        self.strangers = strangers
        self.keys: dict[str, str] = {}

    async def permitted(self, target: Target) -> bool:
        return str(target) not in self.strangers

    async def owe(self, target: Target, body: Body, cause: str, key: str = "", digest: str = "") -> str:
        if target.adapter == "nowhere":
            raise Unknown("no platform nowhere@main is configured")
        if target.thread and target.adapter == "console":
            raise Unsupported("threads", str(target))
        if self.keys.setdefault(key, digest) != digest:
            raise Conflict("this key was used for another message")
        if len(self.owed) < len(self.keys):
            await super().owe(target, body, cause, key, digest)
        return key


async def send(
    desk: FakeDesk, target: str, text: str = "hi", *, send_to: tuple[str, ...] = (), key: str = "run_1/call_1"
) -> Result:
    with in_session(Path("workspace")):
        return await use(messages.tools(send_to), "send_message", desk, key, target=target, text=text)


def test_it_is_an_effect() -> None:
    assert [tool.effect for tool in messages.tools(())] == [Effect.EFFECT]


async def test_a_message_is_owed_to_its_target(tmp_path: Path) -> None:
    desk = Ledger()
    told = await send(desk, "paper@work:5:7", "hello")
    assert told.text == "The message is stored; it goes to paper@work:5:7 as soon as that can be reached."
    assert desk.owed == [
        (Target(adapter="paper", account="work", chat="5", thread="7"), Body(text="hello"), "tool/run_1")
    ]


async def test_the_same_call_owes_once_and_another_one_again() -> None:
    desk = Ledger()
    await send(desk, "paper:5")
    await send(desk, "paper:5")
    assert len(desk.owed) == 1
    await send(desk, "paper:5", key="run_1/call_2")
    assert len(desk.owed) == 2
    with pytest.raises(ToolError, match="Nothing was sent: this key was used for another message"):
        await send(desk, "paper:5", "something else")


async def test_strangers_are_not_written_to() -> None:
    desk = Ledger("paper:5")
    with pytest.raises(ToolError, match="paper:5 has neither written to this bot nor been admitted"):
        await send(desk, "paper:5")
    assert desk.owed == []


@pytest.mark.parametrize(
    ("target", "is_covered"),
    [
        ("paper:5", True),
        ("paper:5:7", True),
        (" paper:5 ", True),
        ("paper:6:1", True),
        ("paper@main:5", True),
        ("paper:6", False),
        ("paper:6:2", False),
        ("paper:55", False),
        ("paper@work:5", False),
        ("other:5", False),
        ("paper", False),
        ("console", True),
        ("console:5", False),
    ],
)
async def test_where_the_settings_name_targets_there_are_no_others(target: str, is_covered: bool) -> None:
    desk = Ledger()
    places = ("paper:5", "paper:6:1", "console")
    if is_covered:
        await send(desk, target, send_to=places)
    else:
        with pytest.raises(ToolError, match="The settings of this bot do not let it write to"):
            await send(desk, target, send_to=places)
    assert len(desk.owed) == is_covered


async def test_even_a_named_target_must_be_permitted() -> None:
    with pytest.raises(ToolError, match="has neither written"):
        await send(Ledger("paper:5"), "paper:5", send_to=("paper:5",))


@pytest.mark.parametrize(
    ("target", "text", "words"),
    [
        ("nowhere:1", "hi", "Nothing was sent: no platform nowhere@main is configured"),
        ("console:1:2", "hi", "Nothing was sent: console:1:2 has no threads"),
        ("a:b:c:d", "hi", "is not a target"),
        ("", "hi", "is not a target"),
        ("paper:5", " \n", "An empty message cannot be sent"),
    ],
)
async def test_what_could_never_arrive_is_said_in_a_sentence(target: str, text: str, words: str) -> None:
    desk = Ledger()
    with pytest.raises(ToolError, match=words):
        await send(desk, target, text)
    assert desk.owed == []


def test_a_wrong_target_in_the_settings_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match="send_to: 'a:b:c:d' is not a target"):
        messages.tools(("a:b:c:d",))
