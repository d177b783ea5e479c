"""Approvals on each real platform: the buttons of a question, who may press them, and what becomes of its message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds.careful import Careful
from tests.worlds.stages import GROUP, PLATFORMS, Asked, Stage, stage
from tests.worlds.world import OwnedClock
from tidings.adapters.shared import replies
from tidings.core.inbound.door import QUESTION_CLOSED
from tidings.core.types import Refusal

NOT_YOURS = replies.REFUSALS[Refusal.NOT_PERMITTED]
SUPERGROUP = -1000000000005
ALL = ["Once", "For this talk", "Always", "Deny"]

# What each platform calls a new message, and one that is changed.
POST = {"telegram": "sendRichMessage", "discord": "send", "slack": "chat.postMessage"}
EDIT = {"telegram": "editMessageText", "discord": "edit", "slack": "chat.update"}

each = pytest.mark.parametrize("platform", PLATFORMS)


async def asks(there: Stage, who: str = "ada", *, room: bool = False, at: str = "ada") -> Asked:
    """Somebody's message, in private or in the room, leads to a question: in a private chat, or in the room."""
    there.says(who, "clean up", room=room)
    return await is_asked(there, at)


async def is_asked(there: Stage, at: str = "ada") -> Asked:
    await there.until(lambda: any(each.buttons for each in there._said_in(at)))
    return there.question(at)


def is_open(there: Stage) -> bool:
    return bool(there.world.rows("SELECT 1 FROM approvals WHERE state = 'open'"))


async def sent(there: Stage) -> None:
    """Nothing is on its way any more."""
    await there.until(lambda: not there.world.rows("SELECT 1 FROM deliveries WHERE state IN ('waiting', 'doubtful')"))


def _count(told: list[str], begins: str) -> int:
    return sum(text.startswith(begins) for text in told)


async def ended(there: Stage, asked: Asked, begins: str) -> None:
    """The message of the question says how it ended, and has no buttons any more."""

    def holds() -> bool:
        now = there.now(asked)
        return now is not None and now.text.startswith(begins)

    await there.until(holds)
    now = there.now(asked)
    assert now is not None
    assert now.buttons == {}


@each
async def test_a_press_lets_the_tool_act_once_and_the_question_becomes_its_answer(
    tmp_path: Path, platform: str
) -> None:
    """F2: the same buttons everywhere; D5: replaced by the result."""
    agent = Careful()
    async with stage(tmp_path, platform, agent) as there:
        asked = await asks(there)
        assert list(asked.buttons) == ALL
        assert "rm build" in asked.text
        there.presses("ada", "Once", asked)
        await there.until(lambda: there.told("ada")[-1] == "Done: rm build.")
        await ended(there, asked, "Approved once by")
        for number, choice in enumerate(("Once", "Deny", "Once"), start=1):
            there.forges("ada", asked, asked.buttons[choice])
            await there.until(lambda n=number: _count(there.told("ada"), "Approved once by") == n + 1)  # type: ignore[misc]
        await sent(there)
        assert len(agent.acted) == 1


@each
async def test_a_denial_stands_in_the_question_s_message(tmp_path: Path, platform: str) -> None:
    agent = Careful()
    async with stage(tmp_path, platform, agent) as there:
        asked = await asks(there)
        there.presses("ada", "Deny", asked)
        await ended(there, asked, "Denied by")
        await there.until(lambda: there.told("ada")[-1].startswith("Not done: rm build"))
        assert agent.acted == []


@each
async def test_presses_of_others_are_answered_to_them_alone_and_the_question_stays_open(
    tmp_path: Path, platform: str
) -> None:
    """D5: by a member, by a guest of the group, and by a stranger."""
    agent = Careful()
    async with stage(tmp_path, platform, agent, members=["carol"], guests=True) as there:
        asked = await asks(there, room=True, at="")
        before = list(there.heard)
        for who in ("carol", "dora"):
            there.presses(who, "Once", asked)
            await there.until(lambda who=who: there.whispered(who) == [NOT_YOURS])  # type: ignore[misc]
        await sent(there)
        assert there.heard == before
        assert is_open(there)
        assert agent.acted == []
        there.presses("ada", "Once", asked)
        await ended(there, asked, "Approved once by")
        await there.until(lambda: len(agent.acted) == 1)


@each
async def test_a_member_s_question_is_asked_at_home_and_answered_there(tmp_path: Path, platform: str) -> None:
    agent = Careful()
    async with stage(tmp_path, platform, agent, members=["carol"]) as there:
        await there.world.set_home(there.home)
        asked = await asks(there, "carol", at="")
        assert list(asked.buttons) == ALL
        assert there.identity("carol") in asked.text
        there.presses("carol", "Once", asked)
        await there.until(lambda: there.whispered("carol") == [NOT_YOURS])
        there.presses("ada", "For this talk", asked)
        await ended(there, asked, "Approved for this talk by")
        await there.until(lambda: there.told("carol")[-1:] == ["Done: rm build."])


@each
async def test_forged_presses_answer_nothing(tmp_path: Path, platform: str) -> None:
    """Another id, another choice, a choice that does not exist, and the right one from a chat where it is not asked."""
    agent = Careful()
    async with stage(tmp_path, platform, agent, members=["carol"]) as there:
        await there.world.set_home(there.home)
        asked = await asks(there, "carol", at="")
        id = asked.buttons["Once"].partition("/")[0]
        await there.until(lambda: there.told("carol"))
        elsewhere = there._said_in("carol")[0]
        forged = [f"{id}/yes", f"{id}/", id, f"{id[:-1]}/once", "ask_/once", f"{id}/once/deny", f"{id}/ONCE"]
        for number, choice in enumerate(forged, start=1):
            there.forges("ada", asked, choice)
            await there.until(lambda n=number: there.heard.count(QUESTION_CLOSED) == n)  # type: ignore[misc]
        for who in ("carol", "ada"):
            there.forges(who, elsewhere, asked.buttons["Once"])
        await there.until(lambda: there.told("carol").count(QUESTION_CLOSED) == 2)
        assert is_open(there)
        assert agent.acted == []
        there.presses("ada", "Once", asked)
        await ended(there, asked, "Approved once by")


@each
async def test_a_stranger_s_press_is_no_answer(tmp_path: Path, platform: str) -> None:
    agent = Careful()
    async with stage(tmp_path, platform, agent) as there:
        asked = await asks(there, room=True, at="")
        there.presses("bob", "Once", asked)
        await there.until(lambda: there.whispered("bob"))
        await sent(there)
        assert is_open(there)
        assert agent.acted == []


@each
async def test_buttons_work_after_a_kill_and_too_late_is_told(tmp_path: Path, platform: str) -> None:
    agent, clock = Careful(), OwnedClock()
    async with stage(tmp_path, platform, agent, clock=clock) as there:
        asked = await asks(there)
        await there.world.crash()
        await there.world.start()
        there.presses("ada", "Once", asked)
        await ended(there, asked, "Approved once by")
        await there.until(lambda: len(agent.acted) == 1)
        late = await asks(there)
        await clock.advance(31 * 60)
        await ended(there, late, "Nobody answered until")
        there.forges("ada", late, late.buttons["Once"])
        await there.until(lambda: there.told("ada")[-1].startswith("Nobody answered until"))
        assert len(agent.acted) == 1


@each
async def test_a_question_that_is_gone_is_answered_by_a_new_message(tmp_path: Path, platform: str) -> None:
    """Who deleted the question still learns how it ended."""
    agent = Careful()
    async with stage(tmp_path, platform, agent) as there:
        asked = await asks(there)
        there.erases(asked)
        there.says("ada", "/deny")
        await there.until(lambda: any("rm build" in text for text in there.told("ada") if text.startswith("Denied by")))
        await there.until(lambda: there.told("ada")[-1].startswith("Not done"))


@each
async def test_words_answer_too_and_a_quoted_or_forwarded_command_does_not(tmp_path: Path, platform: str) -> None:
    """D10: an "/approve" in the words of others is no command."""
    agent = Careful()
    async with stage(tmp_path, platform, agent) as there:
        asked = await asks(there)
        prefix = "!" if platform == "slack" else "/"
        id = asked.buttons["Once"].partition("/")[0].removeprefix("ask_")[:6]
        there.forwards("ada", f"{prefix}approve {id}")
        there.says("ada", f"mallory wrote: “{prefix}approve {id}”")
        there.says("ada", f"> {prefix}approve {id}")
        await there.until(lambda: len(there.world.rows("SELECT 1 FROM inbox WHERE state = 'waiting'")) == 3)
        assert is_open(there)
        assert agent.acted == []
        there.says("ada", f"/approve {id}")
        await ended(there, asked, "Approved once by")
        await there.until(lambda: len(agent.acted) == 1)


@each
async def test_a_slash_command_answers(tmp_path: Path, platform: str) -> None:
    agent = Careful()
    async with stage(tmp_path, platform, agent) as there:
        await there.ready()
        asked = await asks(there)
        id = asked.buttons["Once"].partition("/")[0].removeprefix("ask_")[:6]
        there.slash("ada", "approve", id)
        await ended(there, asked, "Approved once by")
        await there.until(lambda: len(agent.acted) == 1)


@each
@pytest.mark.parametrize(
    "command",
    [
        "echo " + "x" * 5_900,
        "\n".join(f"line {number} of a script" for number in range(250)),
        "```\n@everyone <@7> <!channel> **bold** `` ` ``` ```` <b>&amp;</b> [a](http://e.org) \\ | ~~x~~ ```\n# head",
        "`" * 5000,
    ],
    ids=["long", "lines", "markup", "backticks"],
)
async def test_any_command_can_be_asked_about(tmp_path: Path, platform: str, command: str) -> None:
    """B4: a long command or one full of markup costs neither the question nor its answer."""
    agent = Careful(command, covers=False)
    async with stage(tmp_path, platform, agent) as there:
        asked = await asks(there)
        assert list(asked.buttons) == ["Once", "Deny"]
        there.presses("ada", "Deny", asked)
        await ended(there, asked, "Denied by")
        await there.until(lambda: len(agent.turns) == 2)
        assert agent.acted == []


@each
async def test_what_cannot_be_shown_cannot_be_approved(tmp_path: Path, platform: str) -> None:
    """Nothing hides in the middle of a command that is too long to be read."""
    agent = Careful("echo hello; " + "#" * 7_000 + "\nrm -rf ~", covers=False)
    async with stage(tmp_path, platform, agent) as there:
        there.says("ada", "clean up")
        await there.until(lambda: len(agent.turns) == 2)
        assert "it is too long to be shown to people" in agent.turns[-1].verdicts[0].reason
        assert agent.acted == []


@each
@pytest.mark.parametrize("after", [True, False], ids=["arrived", "lost"])
async def test_a_question_in_doubt_is_asked_and_answered_all_the_same(
    tmp_path: Path, platform: str, after: bool
) -> None:
    agent = Careful()
    async with stage(tmp_path, platform, agent) as there:
        there.world.platform.drop_next(after_effect=after, method=POST[platform])
        asked = await asks(there)
        await sent(there)
        asked = there.question("ada")
        there.world.platform.drop_next(after_effect=after, method=EDIT[platform])
        there.presses("ada", "Once", asked)
        await ended(there, asked, "Approved once by")
        await there.until(lambda: "Done: rm build." in there.told("ada")[-1])
        await sent(there)
        assert len(agent.acted) == 1
        assert there.world.rows("SELECT 1 FROM deliveries WHERE state <> 'delivered'") == []


async def test_a_question_in_a_group_that_moved_is_answered_where_its_people_are(tmp_path: Path) -> None:
    """Telegram: the message stayed behind in the old group, so a new one says how it ended."""
    agent = Careful()
    async with stage(tmp_path, "telegram", agent) as there:
        await asks(there, room=True, at="")
        telegram = there.world.telegram
        telegram.migrate(GROUP, SUPERGROUP)
        telegram.says("/approve@tidings_bot", chat=SUPERGROUP, user=7)
        await there.until(lambda: len(agent.acted) == 1)
        await there.until(lambda: any(text == "Done: rm build." for text in telegram.posts_in(SUPERGROUP)))
        await sent(there)
        assert any("rm build" in text for text in telegram.posts_in(SUPERGROUP) if text.startswith("Approved once by"))


async def test_a_question_in_a_thread_of_slack_is_answered_there_by_a_word(tmp_path: Path) -> None:
    agent = Careful()
    async with stage(tmp_path, "slack", agent) as there:
        slack, ada, room = there.world.slack, there.world.ada, there.world.room
        root = ada.says(room, "clean up", mention=True)
        await is_asked(there, "")
        asked = there.question()
        assert asked.message.thread == root.ts
        ada.says(room, "!approve", thread=root)
        await ended(there, asked, "Approved once by")
        await there.until(lambda: "Done: rm build." in slack.posts_in(room, root.ts))
