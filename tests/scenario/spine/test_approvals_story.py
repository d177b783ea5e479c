"""The story in docs/approvals.md: a run by the API asks its owner in Slack, and the stream shows it."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from tests.simulators.slack.people import Person as SlackPerson
from tests.simulators.slack.simulator import SlackServer, choices_of, text_of
from tests.sources import ROOT
from tests.worlds.api import KEY, frames_of
from tests.worlds.careful import Careful
from tests.worlds.fakes import FakeLocal
from tidings.adapters.api.adapter import ApiAdapter
from tidings.adapters.api.keys import Grant
from tidings.adapters.api.settings import HttpSettings
from tidings.adapters.shared.http_server import HttpServer
from tidings.adapters.slack.adapter import SlackAdapter
from tidings.adapters.slack.settings import SlackAccount
from tidings.core.adapter import NearbyHost, Platform
from tidings.core.desk.people import Scope
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.roles import OWNER, Role
from tidings.core.settings import Core, Limits

STORY = re.compile(r"<!-- story -->\n```\n(.*?)```\n<!-- end of story -->", re.DOTALL)
# What differs from one time to the next.
VARYING = (
    (re.compile(r"\b(run|ask)_[0-9a-f]+"), r"\1_ID"),
    (re.compile(r"\b\d\d:\d\d UTC"), "HH:MM UTC"),
    (re.compile(r"\bonce-[0-9a-f]+"), "once-ID"),
    (re.compile(r'"(timestamp|created_at|updated_at|expires_at|duration)":[0-9.e-]+'), r'"\1":N'),
)


class Stage:
    """A simulated Slack, the real API, one gateway, and a transcript of what the script and the owner saw."""

    def __init__(self, slack: SlackServer, olga: SlackPerson, http: httpx.AsyncClient) -> None:
        self.slack = slack
        self.olga = olga
        self.http = http
        self.lines: list[str] = []
        self.asked = asyncio.Event()

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._tell(f"script: POST {path} {httpx.Request('POST', 'http://x', json=body).content.decode()}")
        answer = await self.http.post(path, json=body)
        return self._answered(answer)

    async def get(self, path: str) -> dict[str, Any]:
        self._tell(f"script: GET {path}")
        return self._answered(await self.http.get(path))

    async def follow(self, run: str) -> None:
        """Writes down what the stream says, to its end."""
        self._tell(f"script: GET /v1/runs/{run}/events")
        async with self.http.stream("GET", f"/v1/runs/{run}/events") as response:
            async for frame in frames_of(response.aiter_lines()):
                self._tell(f"stream: {frame.data}")
                if frame.json["event"] == "approval.request":
                    self.asked.set()

    async def hear(self, text: str) -> None:
        """Waits for a message that begins so in the owner's chat, as it stands there then."""
        await self.slack.until(lambda slack: any(each.startswith(text) for each in slack.posts_in(self.olga.direct)))
        message = next(each for each in self.slack.visible(self.olga.direct) if text_of(each).startswith(text))
        buttons = "".join(f" [{choice.label}]" for choice in choices_of(message))
        self._tell(f"Slack, bot to Olga: {text_of(message)}{buttons}")

    def press(self, label: str) -> None:
        asked = next(each for each in self.slack.visible(self.olga.direct) if choices_of(each))
        self._tell(f"Slack, Olga presses {label}")
        self.olga.presses(asked, next(each.id for each in choices_of(asked) if each.label == label))

    def _answered(self, answer: httpx.Response) -> dict[str, Any]:
        self._tell(f"gateway: {answer.status_code} {answer.text}")
        return dict(answer.json())

    def _tell(self, text: str) -> None:
        first, *more = filter(str.strip, text.splitlines())
        self.lines += [first, *(f"    {line}" for line in more)]


async def play(home: Path, stack: AsyncExitStack) -> list[str]:
    slack = await stack.enter_async_context(SlackServer())
    olga = slack.person("olga")
    account = SlackAccount(
        bot_token=SecretStr(slack.token), app_token=SecretStr(slack.app_token), api_url=slack.api_url
    )
    listening = HttpServer("127.0.0.1", 0, patience=0.0)
    server = await stack.enter_async_context(listening)
    apis: list[ApiAdapter] = []

    def build_api(host: NearbyHost) -> ApiAdapter:
        apis.append(ApiAdapter("main", HttpSettings(port=0, key=SecretStr(KEY)), host))
        return apis[-1]

    gateway = await stack.enter_async_context(
        Gateway(
            home,
            Core(limits=Limits(burst_seconds=0, drain_seconds=0)),
            [
                Platform("slack", "main", lambda host: SlackAdapter("main", account, host)),
                Platform("api", "main", build_api, nearby=True),
            ],
            Team({"bot": Careful("rm -r build/2026-10", words="Let me see what is old. ")}, "bot"),
            FakeLocal(),
            server,
        )
    )
    await slack.until(lambda server: server.attached())
    await gateway.desk.people.admit(OWNER, f"slack:{olga.id}", Role.OWNER, "Olga")
    secret = await apis[0].keys.add("nightly", Grant((Scope.RUNS,), f"slack:{olga.id}", (), ()), 0.0)
    headers = {"Authorization": f"Bearer {secret}"}
    http = await stack.enter_async_context(
        httpx.AsyncClient(base_url=listening.address, headers=headers, timeout=30, trust_env=False)
    )
    stage = Stage(slack, olga, http)
    olga.says(olga.direct, "!sethome")
    await slack.until(lambda server: server.posts_in(olga.direct))
    run = (await stage.post("/v1/runs", {"input": "remove old builds"}))["run_id"]
    await stage.hear("May I run")
    await stage.get(f"/v1/runs/{run}")
    following = asyncio.create_task(stage.follow(run))
    await stage.asked.wait()
    stage.press("Once")
    await following
    await stage.hear("Approved once")
    return stage.lines


def steady(line: str) -> str:
    for pattern, word in VARYING:
        line = pattern.sub(word, line)
    return line


async def test_the_story_of_a_script_whose_owner_is_asked_in_slack(tmp_path: Path) -> None:
    document = ROOT / "docs" / "approvals.md"
    async with AsyncExitStack() as stack:
        lines = await play(tmp_path, stack)
    found = STORY.search(document.read_text(encoding="utf-8"))
    assert found is not None, "\n".join(lines)
    assert [steady(line) for line in lines] == [steady(line) for line in found[1].splitlines()], "\n".join(lines)
