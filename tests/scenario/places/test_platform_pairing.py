"""Pairing on each real platform: a stranger gets a code, the owner presses a button, and nobody else can."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.worlds.stages import PLATFORMS, Stage, stage
from tests.worlds.world import Echo, OwnedClock
from tidings.adapters.shared import replies
from tidings.core.inbound.pairing import OVER
from tidings.core.roles import Role
from tidings.core.types import Refusal

CODE = re.compile(r"I don't know you yet\. Your code is [0-9A-Z]{4}-[0-9A-Z]{4}: ")
NOT_YOURS = replies.REFUSALS[Refusal.NOT_PERMITTED]

each = pytest.mark.parametrize("platform", PLATFORMS)


async def meets(there: Stage, text: str = "can you help me?", *, home: bool = True) -> None:
    """Bob writes in private and gets a code, and ada is asked in the room."""
    if home:
        await there.world.set_home(there.home)
    there.says("bob", text)
    await there.until(lambda: there.told("bob"))
    assert CODE.match(there.told("bob")[-1])
    if home:
        await there.until(lambda: there.heard)


@each
async def test_a_stranger_is_admitted_by_the_owner_s_button_and_answered(tmp_path: Path, platform: str) -> None:
    async with stage(tmp_path, platform, Echo()) as there:
        await meets(there)
        asked = there.question()
        assert there.identity("bob") in asked.text
        assert list(asked.buttons) == ["Admit", "Ignore", "Block"]
        there.presses("ada", "Admit")
        await there.until(lambda: there.told("bob")[-1] == "you said: can you help me?")
        assert len(there.told("bob")) == 3
        assert there.told("bob")[1].startswith("You're in.")
        line = await there.world.gateway.desk.people.get(there.identity("bob"))
        assert (line.role, line.by) == (Role.MEMBER, there.identity("ada"))
        await there.until(lambda: there.heard[-1].endswith("is admitted as a member."))


@each
async def test_a_press_by_somebody_else_is_answered_to_them_alone_and_the_request_stays_open(
    tmp_path: Path, platform: str
) -> None:
    """D5, for pairing: by a member, by the stranger, then by the owner, and once more."""
    async with stage(tmp_path, platform, Echo(), members=["carol"]) as there:
        await meets(there)
        before = list(there.heard)
        there.presses("carol", "Admit")
        await there.until(lambda: there.whispered("carol") == [NOT_YOURS])
        there.presses("bob", "Admit")
        await there.until(lambda: there.whispered("bob"))
        assert "I don't know you yet" in there.whispered("bob")[0]
        await there.world.settled()
        assert there.heard == before
        assert there.world.rows("SELECT * FROM identities") == []
        assert there.world.rows("SELECT state FROM codes")[0]["state"] == "open"
        there.presses("ada", "Admit")
        await there.until(lambda: there.told("bob")[-1] == "you said: can you help me?")
        there.presses("ada", "Block")
        await there.until(lambda: OVER in there.heard)
        await there.world.settled()
        assert there.told("bob")[-1] == "you said: can you help me?"
        assert there.whispered("ada") == []


@each
async def test_who_is_blocked_gets_no_line_and_no_row(tmp_path: Path, platform: str) -> None:
    clock = OwnedClock()
    async with stage(tmp_path, platform, Echo(), clock=clock) as there:
        await meets(there)
        there.presses("ada", "Block")
        await there.until(lambda: there.heard[-1].endswith("is blocked."))
        await clock.advance(4000)
        rows = len(there.world.rows("SELECT * FROM inbox"))
        await there.passed_over(there.says("bob", "please?"))
        await there.passed_over(there.says("bob", "/help"))
        await there.passed_over(there.says("bob", "hello?", room=True))
        assert len(there.told("bob")) == 1
        assert len(there.world.rows("SELECT * FROM inbox")) == rows
        assert len(there.world.rows("SELECT * FROM codes")) <= 1


@each
async def test_a_stranger_is_told_seldom_and_nothing_of_the_owner(tmp_path: Path, platform: str) -> None:
    """D7: at most one line in ten minutes, whatever they send."""
    clock = OwnedClock()
    async with stage(tmp_path, platform, Echo(), clock=clock) as there:
        await meets(there)
        for text in ("hello?", "/help", "/start", "/people admit me"):
            await there.passed_over(there.says("bob", text))
        await clock.advance(500)
        await there.passed_over(there.says("bob", "are you there?"))
        (line,) = there.told("bob")
        rest = CODE.sub("", line)
        assert "ada" not in rest.lower()
        assert there.identity("ada").partition(":")[2] not in rest
        assert len(there.heard) == 1
        await clock.advance(101)
        there.says("bob", "and now?")
        await there.until(lambda: len(there.told("bob")) == 2)
        assert there.world.rows("SELECT * FROM inbox") == []


@each
async def test_a_first_message_that_is_a_command_is_welcomed_and_not_run(tmp_path: Path, platform: str) -> None:
    """The first message on Telegram is /start, which its button sends when a person opens the chat."""
    echo = Echo()
    async with stage(tmp_path, platform, echo) as there:
        await meets(there, "/start" if platform == "telegram" else "/help")
        there.presses("ada", "Admit")
        await there.until(lambda: there.told("bob")[-1].startswith("You're in."))
        there.says("bob", "hi")
        await there.until(lambda: there.told("bob")[-1] == "you said: hi")
        assert echo.heard == ["hi"]


@each
async def test_home_chosen_by_a_command_is_asked(tmp_path: Path, platform: str) -> None:
    async with stage(tmp_path, platform, Echo()) as there:
        await there.ready()
        there.slash("ada", "sethome", room=True)
        await there.world.eventually(lambda: there.world.rows("SELECT 1 FROM homes"))
        await there.world.settled()
        await meets(there, home=False)
        await there.until(lambda: any("would like to talk" in text for text in there.heard))
        there.presses("ada", "Ignore")
        await there.until(lambda: "is ignored" in there.heard[-1])
        assert len(there.told("bob")) == 1


@pytest.mark.parametrize("strangers", ["tell", "ignore"])
@each
async def test_pairing_can_be_switched_off(tmp_path: Path, platform: str, strangers: str) -> None:
    async with stage(tmp_path, platform, Echo(), access={"strangers": strangers}) as there:
        await there.world.set_home(there.home)
        await there.passed_over(there.says("bob", "hi"))
        if strangers == "tell":
            await there.until(lambda: there.told("bob"))
            assert f"tidings people admit {there.identity('bob')}" in there.told("bob")[0]
        assert len(there.told("bob")) == (strangers == "tell")
        assert there.heard == []
        assert there.world.rows("SELECT * FROM codes") == []


async def test_a_stranger_s_slash_command_on_discord_is_always_answered(tmp_path: Path) -> None:
    """Discord shows that the bot thinks until something is said: the code first, and then that there is none yet."""
    async with stage(tmp_path, "discord", Echo()) as there:
        await there.ready()
        there.slash("bob", "help")
        await there.until(lambda: len(there.told("bob")) == 1)
        assert CODE.match(there.told("bob")[0])
        there.slash("bob", "help")
        await there.until(lambda: len(there.told("bob")) == 2 and all(there.told("bob")))
        assert there.told("bob")[1] == f"I don't know you yet, so I can't do this. Your id is {there.identity('bob')}."
        there.slash("bob", "bg", "work", room=True)
        await there.until(lambda: there.world.discord.sent[-1].text.startswith("I don't know you yet"))
        await there.world.settled()
        assert not any(each.is_thinking for each in there.world.discord.sent)
        assert there.world.rows("SELECT * FROM inbox") == []
        assert len(there.world.rows("SELECT * FROM codes")) == 1


async def test_a_stranger_on_slack_pairs_by_message_and_by_pane_and_is_answered_for_a_slash_command(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, "slack", Echo()) as there:
        await there.world.set_home(there.home)
        there.slash("bob", "bg", "work")
        there.slash("bob", "help", room=True)
        await there.until(lambda: len(there.whispered("bob")) == 2)
        assert {text[:21] for text in there.whispered("bob")} == {"I don't know you yet,"}
        slack = there.world.slack
        bob = slack.person("bob")
        pane = bob.opens_assistant()
        bob.says(bob.direct, "plan my day", thread=pane)
        await there.until(lambda: slack.posts_in(bob.direct, pane.ts))
        assert CODE.match(slack.posts_in(bob.direct, pane.ts)[0])
        await there.until(lambda: there.heard)
        there.presses("ada", "Admit")
        await there.until(lambda: slack.posts_in(bob.direct, pane.ts)[-1] == "you said: plan my day")
        assert len(slack.posts_in(bob.direct, pane.ts)) == 3


@each
async def test_an_admission_that_was_forwarded_or_quoted_has_no_effect(tmp_path: Path, platform: str) -> None:
    """D10: the words of others are never a command, even when the owner passes them on."""
    echo = Echo()
    async with stage(tmp_path, platform, echo) as there:
        await meets(there)
        found = re.search(r"[0-9A-Z]{4}-[0-9A-Z]{4}", there.told("bob")[0])
        assert found is not None
        prefix = "!" if platform == "slack" else "/"
        command = f"{prefix}people admit {found[0]}"
        there.forwards("ada", command)
        await there.until(lambda: there.told("ada"))
        there.says("ada", f"bob wrote: “{command}”")
        await there.until(lambda: len(there.told("ada")) == 2)
        await there.world.settled()
        assert echo.heard == [command, f"bob wrote: “{command}”"]
        assert there.world.rows("SELECT * FROM identities") == []
        there.says("ada", f"/people admit {found[0]}")
        await there.until(lambda: there.told("bob")[-1] == "you said: can you help me?")
