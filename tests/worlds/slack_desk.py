"""The Slack adapter alone on a simulated Slack: what a test sends by it, and how it dies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from tests.simulators.slack.simulator import SlackServer
from tests.worlds import builders
from tests.worlds.fakes import FakeClock, MemoryNotebook, host
from tidings.adapters.slack.adapter import SlackAdapter
from tidings.adapters.slack.address import Handle
from tidings.adapters.slack.settings import SlackAccount
from tidings.core.types import Audience, Body, File, Part, PartKind, Target, View


class Desk:
    """An adapter, and what a test sends by it."""

    def __init__(self, slack: SlackServer, clock: FakeClock, tmp_path: Path, **settings: Any) -> None:
        self.slack = slack
        self.clock = clock
        self.ann = slack.person("ann")
        self.room = slack.channel()
        self.notebook = MemoryNotebook()
        self._tmp_path = tmp_path
        self._settings = settings
        self.begin()

    def begin(self) -> None:
        """As after a crash: only the notebook is left."""
        account = SlackAccount(
            bot_token=SecretStr(self.slack.token),
            app_token=SecretStr(self.slack.app_token),
            api_url=self.slack.api_url,
            **self._settings,
        )
        here = replace(host(self.clock, attachments=self._tmp_path), notebook=self.notebook)
        self.adapter = SlackAdapter("main", account, here)

    async def crash(self) -> None:
        await self.adapter.close()
        self.begin()

    def in_thread(self, text: str = "go on") -> Target:
        said = self.ann.says(self.room, text, mention=True)
        handle = Handle(team=self.slack.main.id, user=self.ann.id).write()
        return builders.target(
            self.room.id,
            thread=said.ts,
            adapter="slack",
            reply_to=said.ts,
            audience=Audience.GROUP,
            handle=handle,
        )

    def in_direct(self) -> Target:
        return builders.target(self.ann.direct.id, adapter="slack")

    def part(self, target: Target, text: str = "hello", **fields: Any) -> Part:
        return builders.part(text, to=target, **fields)


async def opened(desk: Desk, target: Target, text: str = "…") -> View:
    receipt = await desk.adapter.send(desk.part(target, text, kind=PartKind.OPENING))
    assert receipt.view is not None
    return receipt.view


async def shared(desk: Desk, target: Target, path: Path) -> Part:
    path.write_bytes(b"all is well")
    return desk.part(target, "", what=Body(files=(File(path=str(path), name=path.name),)))
