"""The story in docs/people.md happens as it is told: a stranger pairs on Telegram, links Slack, and goes on there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from pydantic import SecretStr

from tests.simulators.slack.people import Person as SlackPerson
from tests.simulators.slack.simulator import SlackServer, text_of
from tests.simulators.telegram.simulator import TelegramServer
from tests.sources import ROOT
from tests.worlds.fakes import FakeLocal, FakeServer
from tidings.adapters.slack.adapter import SlackAdapter
from tidings.adapters.slack.settings import SlackAccount
from tidings.adapters.telegram.adapter import TelegramAdapter
from tidings.adapters.telegram.settings import TelegramAccount
from tidings.core.adapter import Platform
from tidings.core.agent import Event, Finished, TextDelta, Turn
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.settings import Access, Core, Limits
from tidings.core.types import Author

STORY = re.compile(r"<!-- story -->\n```\n(.*?)```\n<!-- end of story -->", re.DOTALL)
CODE = re.compile(r"\b[0-9A-Z]{4}-[0-9A-Z]{4}\b")
OLGA, BEN = 1001, 1002


class Listener:
    """Remembers what it was told, and says so when asked."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        said = [entry.text for entry in turn.history if entry.author is Author.PERSON]
        if turn.message.text.startswith("what did I"):
            yield TextDelta(f"You said: {'; '.join(said) or 'nothing yet'}.")
        else:
            yield TextDelta("I'll keep that in mind.")
        yield Finished()


class Stage:
    """Two simulated platforms, one gateway, and a transcript of what everybody saw."""

    def __init__(self, telegram: TelegramServer, slack: SlackServer) -> None:
        self.telegram = telegram
        self.slack = slack
        self.ben: SlackPerson = slack.person("ben")
        self.lines: list[str] = []
        self._seen = {"telegram": 0, "slack": 0}

    async def on_telegram(self, who: int, text: str, answers: int) -> None:
        self._tell("Telegram", _name(who), text)
        self.telegram.says(text, chat=who)
        await self.hear(telegram=answers)

    async def on_slack(self, text: str, answers: int, telegram: int = 0) -> None:
        self._tell("Slack", "Ben", text)
        self.ben.says(self.ben.direct, text)
        await self.hear(slack=answers, telegram=telegram)

    async def press(self, who: int, label: str, answers: int) -> None:
        asked = next(each for each in reversed(self.telegram.sent) if each.choices)
        self._tell("Telegram", _name(who), f"presses {label}", mark="")
        choice = next(each.id for each in asked.choices if each.label == label)
        self.telegram.presses(asked.id, choice, user=who)
        await self.hear(telegram=answers)

    async def hear(self, telegram: int = 0, slack: int = 0) -> None:
        """Waits for so many more messages on each platform, and writes them down."""
        wanted = {"telegram": self._seen["telegram"] + telegram, "slack": self._seen["slack"] + slack}
        await self.telegram.until(lambda server: len(server.sent) >= wanted["telegram"])
        await self.slack.until(lambda server: len(server.sent) >= wanted["slack"])
        for message in self.telegram.sent[self._seen["telegram"] : wanted["telegram"]]:
            buttons = "".join(f" [{choice.label}]" for choice in message.choices)
            self._tell("Telegram", f"bot to {_name(int(message.chat))}", message.text + buttons)
        for each in self.slack.sent[self._seen["slack"] : wanted["slack"]]:
            self._tell("Slack", "bot to Ben", text_of(each))
        self._seen = wanted

    def code(self) -> str:
        return CODE.findall("\n".join(self.lines))[-1]

    def _tell(self, platform: str, who: str, text: str, mark: str = ":") -> None:
        # The simulator names people by their number.
        first, *more = text.replace(f"Person {BEN}", "Ben").splitlines()
        self.lines.append(f"{platform}, {who}{mark} {first}")
        self.lines += [f"    {line}" for line in more]


def _name(person: int) -> str:
    return {OLGA: "Olga", BEN: "Ben"}[person]


async def play(home: Path, stack: AsyncExitStack) -> list[str]:
    telegram = await stack.enter_async_context(TelegramServer())
    slack = await stack.enter_async_context(SlackServer())
    on_telegram = TelegramAccount(token=SecretStr(telegram.token), api_url=f"http://{telegram.address}")
    on_slack = SlackAccount(
        bot_token=SecretStr(slack.token), app_token=SecretStr(slack.app_token), api_url=slack.api_url
    )
    await stack.enter_async_context(
        Gateway(
            home,
            Core(access=Access(owners=(f"telegram:{OLGA}",)), limits=Limits(burst_seconds=0, drain_seconds=0)),
            [
                Platform("telegram", "main", lambda host: TelegramAdapter("main", on_telegram, host)),
                Platform("slack", "main", lambda host: SlackAdapter("main", on_slack, host)),
            ],
            Team({"bot": Listener()}, "bot"),
            FakeLocal(),
            FakeServer(),
        )
    )
    await telegram.until(lambda server: server.attached())
    await slack.until(lambda server: server.attached())
    stage = Stage(telegram, slack)
    await stage.on_telegram(OLGA, "/sethome", 1)
    await stage.on_telegram(BEN, "the launch is on Friday", 2)
    await stage.press(OLGA, "Admit", 3)
    await stage.on_telegram(BEN, "/link", 1)
    await stage.on_slack(f"!link {stage.code()}", 1, telegram=1)
    await stage.on_slack("!continue launch", 1)
    await stage.on_slack("what did I tell you?", 1)
    await stage.on_slack("!continue back", 1)
    await stage.on_slack("what did I tell you?", 1)
    return stage.lines


async def test_the_story_of_a_stranger_who_becomes_a_member_and_goes_on_elsewhere(tmp_path: Path) -> None:
    found = STORY.search((ROOT / "docs" / "people.md").read_text(encoding="utf-8"))
    async with AsyncExitStack() as stack:
        lines = await play(tmp_path, stack)
    assert found is not None, "\n".join(lines)
    assert sorted(CODE.sub("CODE", line) for line in lines) == sorted(
        CODE.sub("CODE", line) for line in found[1].splitlines() if line
    ), "\n".join(lines)
