"""How a running gateway fares as `tidings status` tells it, and settings that break while nobody looks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.security import command_lines
from tests.simulators.telegram.simulator import TelegramServer
from tests.worlds.process import ROOT, chat, gateway, surroundings
from tests.worlds.process import status as health_of
from tests.worlds.telegram import process
from tests.worlds.terminal import Terminal
from tidings.bots.cli.status import headline, lines_of, span

NOW = 1_000_000.0
KEY = "5f1d6c0a9b8e7f3d2c4b6a8091e7d5c3"
HEALTH: dict[str, Any] = {
    "version": "1",
    "store": "ok",
    "parts": [
        {
            "name": "pigeon@main",
            "state": "up",
            "since": NOW - 7300,
            "restarts": 0,
            "last_error": "",
            "last_inbound": NOW - 65,
            "last_outbound": None,
        },
        {"name": "raven@main", "state": "degraded", "since": NOW - 5, "restarts": 2, "last_error": "it flew away"},
        {"name": "crow@main", "state": "standing by", "since": NOW - 5, "restarts": 0, "last_error": "another listens"},
    ],
    "running": 1,
    "queued": 2,
    "deliveries": {"waiting": 3, "dead": 1},
    "alarms": [{"name": "dead", "count": 1, "last": "the chat is gone", "at": NOW - 3600}],
    "overview": {
        "oldest_queued": NOW - 90,
        "oldest_owed": {"waiting": NOW - 180},
        "runs": [{"id": "run_1", "conversation": "pigeon:7", "accepted": NOW - 12, "attempt": 2}],
        "lost": [{"id": "dlv_1", "target": "pigeon:7", "reason": "the chat is gone", "cause": "", "at": NOW - 3600}],
    },
    "strangers": [{"id": "pigeon:9", "name": "Zoe", "at": NOW - 30, "target": "pigeon:9"}],
}


def test_every_line_says_what_since_when_and_what_to_do() -> None:
    assert list(lines_of(HEALTH, NOW)) == [
        "pigeon@main        up for 2 h; last in 1 min ago",
        "raven@main         degraded for 5 s; 2 restarts, last: it flew away",
        "crow@main          standing by for 5 s: another listens",
        "running 1, queued 2 (the oldest for 1 min); owed: 1 dead, 3 waiting (for 3 min)",
        "run run_1 of pigeon:7 for 12 s, attempt 2",
        "dead dlv_1 to pigeon:7, 1 h ago: the chat is gone; tidings deliveries retry or drop dlv_1",
        "stranger pigeon:9 (Zoe), 30 s ago; to admit them: tidings people admit pigeon:9",
        "alarm dead: 1 times, last 1 h ago: the chat is gone",
    ]


def test_the_first_line_says_whether_anything_can_be_stored() -> None:
    assert headline({**HEALTH, "started": NOW - 60}, "/h", NOW) == "tidings 1 runs for 1 min in /h; store ok"
    faulty = {**HEALTH, "store": "the store cannot write: disk full"}
    assert headline(faulty, "/h", NOW) == "tidings 1 runs in /h; the store cannot write: disk full"


def test_a_clock_that_was_set_back_makes_nothing_negative() -> None:
    assert [span(each) for each in (-5.0, 0.4, 59.6, 60.0, 7199.0, 90_000.0)] == [
        "0 s",
        "0 s",
        "60 s",
        "1 min",
        "1 h",
        "1 d",
    ]


async def test_who_was_heard_and_answered_is_told_also_after_a_restart(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        async with process(tmp_path, telegram):
            telegram.says("hi")
            telegram.says("who is that?", chat=9)
            await telegram.until(lambda telegram: len(telegram.posts) == 2)
            async with asyncio.timeout(30):
                while True:
                    health = await health_of(tmp_path)
                    # The question about the stranger waits for somebody to open the console.
                    if health["deliveries"] == {"waiting": 1} and not health["running"]:
                        break
                    await asyncio.sleep(0.05)
            before = await part(tmp_path)
            assert [each["id"] for each in health["strangers"]] == ["telegram:9"]
            assert health["overview"]["queued"] == 0
        async with process(tmp_path, telegram):
            after = await part(tmp_path)
    assert before["last_inbound"] is not None
    for name in ("last_inbound", "last_outbound"):
        assert abs(after[name] - before[name]) < 60


async def part(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in (await health_of(home))["parts"] if each["name"] == "telegram@main")
    return found


async def test_whoever_watches_sees_a_gateway_go_and_come(tmp_path: Path) -> None:
    async with gateway(tmp_path, TIDINGS_BOT__AGENT="echo"):
        async with Terminal(surroundings(tmp_path), "status", "--watch", "--every", "0.2") as terminal:
            await terminal.until("console@main")
            await terminal.until("console@main")
            terminal.type("\x03")
            assert await terminal.end() == 0
        with subprocess.Popen(
            [sys.executable, "-m", "tidings.bots.main", "status", "--watch", "--json", "--every", "0.2"],
            cwd=ROOT,
            env=surroundings(tmp_path),
            stdout=subprocess.PIPE,
            text=True,
        ) as watching:
            assert watching.stdout is not None
            looks = [json.loads(await asyncio.to_thread(watching.stdout.readline)) for _ in range(2)]
            watching.kill()
    assert [look["store"] for look in looks] == ["ok", "ok"]


async def test_settings_that_break_while_nobody_looks_do_not_keep_it_from_starting(tmp_path: Path) -> None:
    """openclaw #35957: one line in a file, and a bot that was down for 18 hours."""
    file = tmp_path / "tidings.toml"
    file.write_text(f'[bot]\nagent = "echo"\npersona = "who.md"\n[http]\nkey = "{KEY}"\n')
    file.chmod(0o644)
    (tmp_path / "who.md").write_text("You are Rosa.")
    async with gateway(tmp_path):
        pass
    file.write_text('[bot]\nagent = "echo\n')
    async with gateway(tmp_path):
        # The owner is told of it there, too, before or after.
        assert "you said: hi\n" in await chat(tmp_path, "hi")
        rows: list[tuple[list[str], dict[str, str]]] = [(["status"], {}), (["doctor"], {}), (["config", "check"], {})]
        shown, looked, check = await asyncio.to_thread(command_lines.tidings, tmp_path, *rows)
    assert "alarm settings: 1 times" in shown.out
    assert "the settings are broken, so those of the last good start are used" in shown.out
    assert ("starts with the last good settings" in looked.out, looked.code) == (True, 1)
    assert ("is not valid TOML" in check.err, check.code) == (True, 78)
    log = (tmp_path / "stderr.log").read_text()
    # What is dangerous is told at every start, and the secret itself never.
    assert f"warning: secrets: {file}: other users can read http.key: chmod 600" in log
    assert KEY not in log
    assert "tidings: warning: the settings are broken" in log
    # What broke is not kept as good.
    assert 'agent = "echo"\n' in (tmp_path / "last-good" / "tidings.toml").read_text()
    file.write_text('[bot]\nagent = "echo"\n')
    # What the environment breaks, no copy can mend.
    rows = [(["config", "check"], {}), (["run"], {"TIDINGS_LIMITS__RUNS": "0"})]
    check, refused = await asyncio.to_thread(command_lines.tidings, tmp_path, *rows)
    assert (check.code, check.err) == (0, "")
    assert (refused.code, "TIDINGS_LIMITS__RUNS" in refused.err) == (78, True)
