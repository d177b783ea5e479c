"""From nothing to an answer: `tidings init` in a terminal, by flags alone, and again where something is set."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.security import command_lines
from tests.simulators.provider.simulator import KEY, MODEL, ProviderServer
from tests.simulators.slack.simulator import APP_TOKEN, BOT_TOKEN, SlackServer
from tests.simulators.telegram.simulator import TelegramServer
from tests.worlds.process import status, surroundings, tidings
from tests.worlds.terminal import Terminal
from tidings.adapters.local import socket
from tidings.bots.cli import launch
from tidings.core.inbound.pairing import WELCOME

CODE = re.compile(r"[0-9A-Z]{4}-[0-9A-Z]{4}")
SECRETS = (KEY, APP_TOKEN, BOT_TOKEN)


@asynccontextmanager
async def ending(home: Path) -> AsyncIterator[None]:
    """Whatever was started in this home has ended afterwards."""
    try:
        yield
    finally:
        with suppress(FileNotFoundError, ValueError, ProcessLookupError):
            holder = int((home / "lock").read_text())
            os.kill(holder, signal.SIGTERM)
            async with asyncio.timeout(30):
                while True:
                    os.kill(holder, 0)
                    await asyncio.sleep(0.05)


async def owners(home: Path) -> set[str]:
    known = (await socket.call(home, {"verb": "people", "do": "list"}))["people"]
    return {id for each in known if each["role"] == "owner" for id in each["identities"]}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_from_nothing_to_an_answer_on_two_platforms_in_a_terminal(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with TelegramServer() as telegram, SlackServer() as slack, ProviderServer() as provider, ending(home):
        pointed = [f"telegram.api_url=http://{telegram.address}", f"slack.api_url={slack.api_url}", "http.port=0"]
        flags = [word for each in pointed for word in ("--set", each)]
        async with Terminal(surroundings(home), "init", *flags) as terminal:
            await terminal.answer("Number", "4")
            await terminal.answer("Its address", provider.openai_url)
            await terminal.answer("Which model", MODEL)
            await terminal.answer("Your key", "sk-wrong-wrong-wrong-wrong")
            # One that is wrong is found out at once, and nothing is lost by it.
            await terminal.until("does not accept the key")
            await terminal.answer("leave it out?", "again")
            await terminal.answer("Number [4]", "")
            await terminal.answer(f"Its address [{provider.openai_url}]", "")
            await terminal.answer(f"Which model [{MODEL}]", "")
            await terminal.answer("Your key", KEY)
            await terminal.until("It answers: ")
            await terminal.answer("Connect Telegram?", "y")
            await terminal.answer("The token from BotFather", "123:wrong-token")
            await terminal.until("Telegram refuses the token")
            await terminal.answer("leave it out?", "again")
            await terminal.answer("The token from BotFather", telegram.token)
            await terminal.until("the token is right: it is @tidings_bot's")
            await terminal.answer("Your own id on Telegram, if you know it", "@ada")
            await terminal.until("is not an id of telegram: it must be a number")
            await terminal.answer("Your own id on Telegram, if you know it", "-100")
            await terminal.until("telegram:-100 is not a person on Telegram")
            await terminal.answer("Your own id on Telegram, if you know it", "")
            await terminal.answer("Connect Discord?", "n")
            await terminal.answer("Connect Slack?", "y")
            await terminal.answer("The bot token", BOT_TOKEN)
            await terminal.answer("The app-level token", APP_TOKEN)
            await terminal.until("events come by Socket Mode")
            await terminal.answer("Your own id on Slack, if you know it", "")
            await terminal.answer("Start it now?", "")
            await terminal.until("telegram@main is up")
            await terminal.answer("Admit yourself on Telegram now?", "")
            await terminal.until("Waiting for your message")
            telegram.says("hello?")
            await terminal.answer("(telegram:7) has written. Is that you?", "")
            await terminal.until("You are admitted, and the owner.")
            await terminal.answer("Admit yourself on Slack now?", "")
            await terminal.until("Waiting for your message")
            await slack.until(lambda slack: slack.attached(), 30)
            ann = slack.person("ann")
            ann.says(ann.direct, "hello?")
            await terminal.answer(f"(slack:{ann.id}) has written. Is that you?", "n")
            # Whoever says no may still say by the code which of the strangers it is.
            await slack.until(lambda slack: any(CODE.search(post) for post in slack.posts), 30)
            [code] = {found[0] for post in slack.posts if (found := CODE.search(post))}
            terminal.type("NOTACODE")
            await terminal.until("That does not work: this code is wrong, expired or already used")
            terminal.type(code)
            await terminal.until("You are admitted, and the owner.")
            assert await terminal.end() == 0
        # The terminal has gone, and the bot answers, also what brought them here.
        await telegram.until(lambda telegram: any("hello?" in post for post in telegram.posts), 30)
        await slack.until(lambda slack: any("hello?" in post for post in slack.posts), 30)
        assert sum(WELCOME in post for post in telegram.posts) == 1
        telegram.says("what did I say?")
        await telegram.until(lambda telegram: any("what did I say?" in post for post in telegram.posts), 30)
        ann.says(ann.direct, "and what here?")
        await slack.until(lambda slack: any("and what here?" in each for each in slack.posts), 30)
        written = (home / "tidings.toml").read_text()
        assert not [secret for secret in (*SECRETS, telegram.token) if secret in written + terminal.shown]
        kept = tomllib.loads((home / "secrets.toml").read_text())
        assert kept["telegram"]["token"] == telegram.token
        assert kept["slack"] == {"bot_token": BOT_TOKEN, "app_token": APP_TOKEN}
        assert [mode(home / name) for name in ("secrets.toml", "tidings.toml", "tidings.log")] == [0o600] * 3
        health = await status(home)
        assert health["overview"]["admitted"] == 2
        assert health["strangers"] == []
        assert await owners(home) == {"telegram:7", f"slack:{ann.id}"}


FILE = """\
# Mine: do not touch.
[bot]   # who answers
agent = ""
name = "rosa" # after my aunt

[telegram]
groups = "all"
chats = { "-1" = "never" }
tokn = "unknown to anybody"

[pigeons]
coop = 3
"""


async def test_flags_alone_need_no_terminal_and_spare_what_somebody_has_written(tmp_path: Path) -> None:
    (tmp_path / "tidings.toml").write_text(FILE)
    (tmp_path / "token").write_text("1000001:simulated-token\n")
    async with TelegramServer(reads_all=True) as telegram, ProviderServer() as provider:
        pointed = ["--set", f"telegram.api_url=http://{telegram.address}", "--set", "telegram.reactions=false"]
        model = ["--model", MODEL, "--model-url", provider.openai_url, "--model-key", "env:MY_KEY"]
        token = ["--telegram-token", f"file:{tmp_path / 'token'}"]
        who = ["--owner", "telegram:7", "--admit", "telegram:8"]
        shown = await asyncio.to_thread(tidings, tmp_path, "init", *model, *token, *pointed, *who, MY_KEY=KEY)
        again = await asyncio.to_thread(tidings, tmp_path, "init", *token, *pointed, *who)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "the token is right: it is @tidings_bot's" in shown.stdout
    assert "telegram:7 may talk to the bot now, as an owner" in shown.stdout
    assert "telegram:8 may talk to the bot now, as a member" in shown.stdout
    written = (tmp_path / "tidings.toml").read_text()
    # Line by line what it was, with lines of ours between.
    rest = iter(written.splitlines())
    assert all(line in rest for line in FILE.splitlines())
    meant = tomllib.loads(written)
    assert meant["bot"] == {"agent": "", "name": "rosa", "model": MODEL, "base_url": provider.openai_url}
    assert meant["telegram"]["reactions"] is False
    assert tomllib.loads((tmp_path / "secrets.toml").read_text()) == {
        "telegram": {"token": "1000001:simulated-token"},
        "bot": {"api_key": KEY},
    }
    (copy,) = tmp_path.glob("tidings.toml.*.bak")
    assert (copy.read_text(), mode(copy)) == (FILE, 0o600)
    # The second time nothing is left to change, so nothing is written and no copy is made.
    assert (again.returncode, "telegram:7 was already an owner" in again.stdout) == (0, True)
    assert len(list(tmp_path.glob("*.bak"))) == 1
    assert not [text for text in (shown.stdout, again.stdout) if KEY in text or telegram.token in text]


async def test_a_token_that_the_platform_refuses_changes_nothing(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        pointed = ["--set", f"telegram.api_url=http://{telegram.address}"]
        # A file that is named may be one that is yet to be made.
        wrong = ["--config", str(tmp_path / "own.toml"), "init", "--telegram-token", "1:no", *pointed]
        rows = [(wrong, {}), ([*wrong, "--unchecked"], {})]
        shown, kept = await asyncio.to_thread(command_lines.tidings, tmp_path, *rows)
    assert (shown.code, "Telegram refuses the token" in shown.err) == (78, True)
    assert kept.code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.toml", "secrets.toml"]


async def test_who_leaves_half_way_has_changed_nothing(tmp_path: Path) -> None:
    async with Terminal(surroundings(tmp_path), "init") as terminal:
        await terminal.answer("Number", "5")
        await terminal.until("Connect Telegram?")
        terminal.type("\x03")
        assert await terminal.end() != 0
    assert list(tmp_path.iterdir()) == []


async def test_a_second_time_offers_what_is_set_and_restarts_what_runs(tmp_path: Path) -> None:
    async with TelegramServer() as telegram, ending(tmp_path):
        pointed = ["--set", f"telegram.api_url=http://{telegram.address}", "--set", "bot.name=rosa"]
        token = ["--telegram-token", telegram.token]
        first = await asyncio.to_thread(tidings, tmp_path, "init", *token, *pointed, "--start", "--owner", "telegram:7")
        assert first.returncode == 0, first
        before = await status(tmp_path)
        async with Terminal(surroundings(tmp_path), "init", "--set", "bot.name=lena") as terminal:
            await terminal.answer("Number [5]", "")
            await terminal.answer("Telegram is set up. Replace its tokens?", "y")
            await terminal.answer("Enter keeps the current one", "")
            await terminal.until("the token is right")
            await terminal.answer("Connect Discord?", "")
            await terminal.answer("Connect Slack?", "")
            await terminal.answer("Restart it now?", "")
            assert await terminal.end() == 0
        assert "Your own id" not in terminal.shown, "the owner is known there"
        assert "Admit yourself" not in terminal.shown
        after = await status(tmp_path)
        assert after["started"] > before["started"]
        telegram.says("hi")
        await telegram.until(lambda telegram: len(telegram.posts) > 0)
    assert tomllib.loads((tmp_path / "tidings.toml").read_text())["bot"] == {"name": "lena"}


@pytest.mark.parametrize(
    ("groups", "order"),
    [
        ("0::/system.slice/tidings.service\n", "sudo systemctl restart tidings.service"),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/tidings.service\n",
            "systemctl --user restart tidings.service",
        ),
        ("3:cpu:/system.slice/tidings.service\n0::/\n", "sudo systemctl restart tidings.service"),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", ""),
        ("0::/\n", ""),
    ],
)
def test_a_gateway_that_systemd_keeps_is_left_to_systemd(groups: str, order: str) -> None:
    assert launch.order_for(groups) == order


WRONG: list[tuple[list[str], int, str]] = [
    ([], 64, "there is no terminal to ask in"),
    (["--yes"], 64, "nothing was given"),
    (["--yes", "--model-key", "a"], 64, "name the model with"),
    (["--set", "groups=all"], 64, "is not SECTION.KEY=VALUE"),
    (["--set", "limits.runs=0"], 78, "must be greater than or equal to 1"),
    (["--telegram-token", "env:NOBODYS"], 78, "env:NOBODYS is empty or not set"),
    (["--telegram-token", "hello"], 78, "token must look like"),
    (["--admit", "me", "--yes"], 1, "is not an id"),
    (["--owner", "me", "--set", "bot.name=rosa"], 1, "is not an id"),
    (["--owner", "telegram:-100", "--set", "bot.name=rosa"], 1, "is a group"),
]


def test_wrong_answers_are_told_in_one_line(tmp_path: Path) -> None:
    rows = [(["init", *arguments], {}) for arguments, _, _ in WRONG]
    for shown, (arguments, code, words) in zip(command_lines.tidings(tmp_path, *rows), WRONG, strict=True):
        assert (shown.code, words in shown.err) == (code, True), (arguments, shown)
    assert not (tmp_path / "tidings.toml").exists()


async def test_an_id_that_is_known_makes_its_person_the_owner_without_any_message(tmp_path: Path) -> None:
    async with TelegramServer() as telegram, ending(tmp_path):
        pointed = ["--set", f"telegram.api_url=http://{telegram.address}", "--set", "http.port=0"]
        async with Terminal(surroundings(tmp_path), "init", *pointed) as terminal:
            await terminal.answer("Number [5]", "")
            await terminal.answer("Connect Telegram?", "y")
            await terminal.answer("The token from BotFather", telegram.token)
            await terminal.answer("Your own id on Telegram, if you know it", "7")
            await terminal.answer("Connect Discord?", "")
            await terminal.answer("Connect Slack?", "")
            await terminal.until("telegram:7 may talk to the bot now, as an owner")
            await terminal.answer("Start it now?", "")
            assert await terminal.end() == 0
        assert "Admit yourself" not in terminal.shown
        assert await owners(tmp_path) == {"telegram:7"}
        assert "telegram:7" not in (tmp_path / "tidings.toml").read_text(), "it is stored, not written into a file"
        telegram.says("hi")
        await telegram.until(lambda telegram: any("hi" in post for post in telegram.posts), 30)
