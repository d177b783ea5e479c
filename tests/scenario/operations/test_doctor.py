"""`tidings doctor` against broken set-ups: each is named, with what to change, and no secret is shown."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web

from tests.scenario.operations.test_status import HEALTH
from tests.security import command_lines
from tests.simulators.discord.simulator import TOKEN as DISCORD_TOKEN
from tests.simulators.discord.simulator import DiscordServer
from tests.simulators.slack.simulator import APP_TOKEN, BOT_TOKEN, SlackServer
from tests.simulators.telegram.simulator import TOKEN, TelegramServer
from tidings.adapters.shared.checks import judge_clock
from tidings.bots.app.last_good import KEPT
from tidings.bots.cli.doctor import SCARCE_BYTES, Doctor
from tidings.core.clock import SystemClock
from tidings.core.store.connection import connect
from tidings.core.store.sqlite import DATABASE

STRONG = "5f1d6c0a9b8e7f3d2c4b6a8091e7d5c3"
MODEL = {"TIDINGS_BOT__MODEL": "openai:gpt-5-mini", "TIDINGS_BOT__API_KEY": "sk-canary-0123456789abcdef"}


CANARIES = (STRONG, TOKEN, BOT_TOKEN, APP_TOKEN, MODEL["TIDINGS_BOT__API_KEY"])


TERMINAL = '[bot]\nagent = "echo"\ntools = ["terminal"]\n[terminal]\n'


class Broken(NamedTuple):
    """A set-up with one thing wrong, and what must be said of it."""

    name: str
    expected: str
    toml: str = ""
    environment: Mapping[str, str] = {}
    arrange: Callable[[Path], object] = lambda home: None
    fails: bool = True


def put(name: str, text: str, mode: int = 0o600) -> Callable[[Path], None]:
    def arrange(home: Path) -> None:
        (home / name).write_text(text)
        (home / name).chmod(mode)

    return arrange


def open_to_others(home: Path) -> None:
    home.chmod(0o755)


def foreign_store(home: Path) -> None:
    with closing(sqlite3.connect(home / DATABASE)) as connection:
        connection.execute("PRAGMA application_id = 77")
        connection.execute("CREATE TABLE theirs (x)")


def garbled_store(home: Path) -> None:
    connect(home / DATABASE).close()
    data = bytearray((home / DATABASE).read_bytes())
    data[4096:8192] = os.urandom(4096)
    (home / DATABASE).write_bytes(data)


def left_behind(home: Path) -> None:
    """A message that waits, a delivery that is dead and one in doubt, all for two hours."""
    ago = SystemClock().now() - 7200
    target = json.dumps({"adapter": "telegram", "account": "main", "chat": "7"})
    message = "INSERT INTO inbox (run, adapter, account, key, kind, conversation, state, message, accepted, ready)"
    owed = "INSERT INTO deliveries (id, lane, kind, target, body, state, reason, created)"
    with closing(connect(home / DATABASE)) as connection:
        connection.execute(
            f"{message} VALUES ('run_1', 'telegram', 'main', '7:1', 'message', 'telegram:7', 'waiting', '{{}}', ?, 0)",
            (ago,),
        )
        for state in ("dead", "doubtful"):
            connection.execute(
                f"{owed} VALUES (?, 'telegram:7', 'reply', ?, '{{}}', ?, 'the chat is gone', ?)",
                (f"dlv_{state}", target, state, ago),
            )


def kept_copy(home: Path) -> None:
    (home / "last-good").mkdir()
    for name in ("tidings.toml", "secrets.toml"):
        (home / "last-good" / name).write_text(f"{KEPT}{home / name}\n")


def troubled_log(home: Path) -> None:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    lines = [
        {
            "at": at,
            "level": "error",
            "logger": "tidings.core.telemetry.alarms",
            "message": 'it said "no"',
            "error": "Traceback …",
        },
        {"at": at, "level": "info", "logger": "tidings.bots.main", "message": "the gateway serves"},
    ]
    (home / "tidings.log").write_text("".join(json.dumps(line) + "\n" for line in lines))


def somebody_elses(home: Path) -> None:
    (home / "lock").touch()
    os.chown(home / "lock", 4321, 4321)


BY_SETTINGS = [
    Broken("commands without a fence", "commands run without a fence", TERMINAL + 'backend = "local"\n'),
    Broken(
        "a pattern in the list of hosts",
        "[terminal] network: '*.example.com' is not a host; write it as example.com",
        TERMINAL + 'network = ["*.example.com"]\n',
    ),
    Broken("a fence without its host", '[terminal] backend = "ssh" needs host', '[terminal]\nbackend = "ssh"\n'),
    Broken(
        "a host whose key nobody knows",
        "[terminal] known_hosts: there is no file /nowhere/known; make it with: ssh-keyscan far.example.com",
        TERMINAL + 'backend = "ssh"\nhost = "far.example.com"\nuser = "visitor"\nknown_hosts = "/nowhere/known"\n',
    ),
    Broken("a file that is no TOML", "is not valid TOML: Expected ']'", "[limits\nruns = 1\n"),
    Broken("a value that cannot be", "[limits] runs = 0 must be greater than", "[limits]\nruns = 0\n"),
    Broken(
        "a key that is misspelt", "[limits] has no key 'rusn', did you mean runs?", "[limits]\nrusn = 1\n", fails=False
    ),
    Broken(
        "secrets that others may read",
        "secrets.toml: others may read these secrets; close it with: chmod 600",
        arrange=put("secrets.toml", '[http]\nkey = "x"\n', 0o644),
    ),
    Broken(
        "a secret in settings that others may read",
        "other users can read http.key: chmod 600",
        arrange=put("tidings.toml", f'[http]\nkey = "{STRONG}"\n', 0o644),
    ),
    Broken("a port open to all without a key", "a strong key must be set", '[http]\nhost = "0.0.0.0"\n'),
    Broken(
        "a port open to all",
        "host = '0.0.0.0' can be reached from outside, and speaks plain HTTP: set host = \"127.0.0.1\"",
        f'[http]\nhost = "0.0.0.0"\nkey = "{STRONG}"\n',
        fails=False,
    ),
    Broken(
        "a shell for whoever talks to it",
        "it acts without asking with ",
        '[bot]\ntools = ["time", "terminal"]\napprovals.modes = { terminal = "allow" }\n',
        MODEL,
        fails=False,
    ),
    Broken(
        "a shell for whoever wrote the page",
        "trust_tainted = true: pages, files and quotes can make it act; set it to false",
        '[bot]\ntools = ["terminal"]\napprovals = { modes = { "*" = "allow" }, trust_tainted = true }\n',
        MODEL,
        fails=False,
    ),
    Broken(
        "a rule that is more than words",
        'approvals: commands: "git status; ls" must be plain words',
        '[bot]\ntools = ["terminal"]\napprovals.commands = ["git status; ls"]\n',
        MODEL,
    ),
    Broken(
        "a mode of nothing",
        "approvals: modes: there is no tool terminl, did you mean terminal?",
        '[bot]\napprovals.modes = { terminl = "deny" }\n',
        MODEL,
    ),
    Broken(
        "a model without a key", "Set the `OPENAI_API_KEY` environment variable", '[bot]\nmodel = "openai:gpt-5-mini"\n'
    ),
    Broken("an agent that is not there", "cannot be loaded: No module named", '[bot]\nagent = "no.such:Agent"\n'),
    Broken(
        "runs without end",
        "one run may ask and spend without a limit",
        "[bot.limits]\ntokens = 0\n",
        MODEL,
        fails=False,
    ),
    Broken(
        "a token in the clear",
        "api_url sends the token in the clear: write https://bots.example.org",
        f'[telegram]\napi_url = "http://bots.example.org"\ntoken = "{TOKEN}"\n',
        {"TIDINGS_TELEGRAM__PROXY": "none"},
    ),
    Broken("a platform nobody knows", "there is no platform 'telegarm'", '[access]\nallow = ["telegarm:7"]\n'),
    Broken("everybody", "'*' is not an id and admits no one", '[access]\nallow = ["*"]\n'),
    Broken(
        "a group that is let in", "is a group: everyone in it", '[access]\nallow = ["telegram:-100"]\n', fails=False
    ),
    Broken(
        "a group that owns", "[access] owners #1: telegram:-100 is a group", '[access]\nowners = ["telegram:-100"]\n'
    ),
    Broken("a channel that is an admin", "slack:C012 is a group", '[access]\nadmins = ["slack:C012"]\n'),
    Broken("an owner who cannot be", "'slack:me' is not an id", '[access]\nowners = ["slack:me"]\n'),
    Broken(
        "nobody can come in", "strangers are not told how to get in", '[access]\nstrangers = "ignore"\n', fails=False
    ),
    Broken(
        "only settings, which name nobody",
        "only the console is answered",
        "[access]\nsettings_only = true\n",
        fails=False,
    ),
    Broken(
        "guests that may work",
        "requires gives work to the role guest, not only to member",
        '[access]\nrequires = { work = "guest" }\n',
        fails=False,
    ),
    Broken(
        "guests that get no answer",
        'talk = "member" means that guests get no answer',
        '[access]\nrequires = { talk = "member" }\n',
        fails=False,
    ),
    Broken(
        "people that anybody may admit",
        "people cannot be given to the role member",
        '[access.requires]\npeople = "member"\n',
    ),
    Broken("a home that others may enter", "close it with: chmod 700", arrange=open_to_others, fails=False),
    Broken("a store of another program", "belongs to another program", arrange=foreign_store),
    Broken("a store that is damaged", f"{DATABASE} ", arrange=garbled_store),
    Broken("what was left behind", "1 messages wait, the oldest for 2 h", arrange=left_behind, fails=False),
    Broken("what is in doubt", "1 deliveries are doubtful, the oldest for 2 h", arrange=left_behind, fails=False),
    Broken(
        "what was lost",
        "dlv_dead to telegram:7 will not arrive, since 2 h: the chat is gone",
        arrange=left_behind,
        fails=False,
    ),
    Broken("settings that others stand in for", "starts with the last good settings", "[limits\n", arrange=kept_copy),
    Broken("an error that nobody saw", 'ago, it said "no"', arrange=troubled_log, fails=False),
    Broken("files of another user", "belongs to uid 4321, and this is", arrange=somebody_elses),
    Broken(
        "a drain that nobody waits for",
        "drain_seconds = 600: a service manager kills before",
        "[limits]\ndrain_seconds = 600\n",
        fails=False,
    ),
]


def prepared(folder: Path, set_ups: list[Broken]) -> Iterator[tuple[list[str], dict[str, str]]]:
    for number, each in enumerate(set_ups):
        home = folder / str(number)
        home.mkdir(mode=0o700)
        if each.toml:
            put("tidings.toml", each.toml)(home)
        each.arrange(home)
        yield ["--home", str(home), "doctor"], dict(each.environment)


def unnamed(set_ups: list[Broken], found: list[command_lines.Shown]) -> list[tuple[str, int, str]]:
    """Those of which the wrong thing is said, with all that is said."""
    wrong = []
    for each, shown in zip(set_ups, found, strict=True):
        level = "fail" if each.fails else "warn"
        named = any(line.startswith(level) and each.expected in line for line in shown.out.splitlines())
        leaks = [secret for secret in CANARIES if secret in shown.out + shown.err]
        if not named or leaks or shown.code != int(each.fails):
            wrong.append((each.name, shown.code, shown.out + shown.err))
    return wrong


def test_each_broken_set_up_is_named_with_what_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    set_ups = [each for each in BY_SETTINGS if each.arrange is not somebody_elses or os.geteuid() == 0]
    assert unnamed(set_ups, command_lines.tidings(tmp_path, *prepared(tmp_path, set_ups))) == []


async def liar(ahead: float) -> tuple[web.AppRunner, str]:
    """A platform whose clock is not ours, and which otherwise says what it must."""

    async def answer(request: web.Request) -> web.Response:
        result = {"id": 1, "is_bot": True, "first_name": "b", "username": "b", "url": ""}
        return web.json_response(
            {"ok": True, "result": result}, headers={"Date": formatdate(time.time() + ahead, usegmt=True)}
        )

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def at_telegram(api: str, token: str = TOKEN, **more: str) -> dict[str, str]:
    section = {"api_url": api, "token": token, **more}
    return {f"TIDINGS_TELEGRAM__{key.upper()}": value for key, value in section.items()}


def at_discord(discord: DiscordServer) -> dict[str, str]:
    section = {"api_url": discord.api_url, "gateway_url": discord.gateway_url, "token": DISCORD_TOKEN}
    return {f"TIDINGS_DISCORD__{key.upper()}": value for key, value in section.items()}


def at_slack(slack: SlackServer, app_token: str = APP_TOKEN) -> dict[str, str]:
    section = {"api_url": slack.api_url, "bot_token": BOT_TOKEN, "app_token": app_token}
    return {f"TIDINGS_SLACK__{key.upper()}": value for key, value in section.items()}


async def test_each_platform_says_itself_what_is_wrong_with_an_account(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        telegram = await stack.enter_async_context(TelegramServer())
        slack, mute = [await stack.enter_async_context(SlackServer()) for _ in range(2)]
        discord = await stack.enter_async_context(DiscordServer(intents=()))
        runner, late = await liar(7777)
        stack.push_async_callback(runner.cleanup)
        slack.drop_scope(slack.main, "files:write")
        mute.drop_scope(mute.main, "chat:write")
        api = f"http://{telegram.address}"
        nowhere = f"http://127.0.0.1:{closed_port()}"
        allowed = {"TIDINGS_ACCESS__ALLOW": "telegram:7"}
        set_ups = [
            Broken(
                "a wrong token",
                "Telegram refuses the token: look at [telegram] token",
                environment=at_telegram(api, "1:x"),
            ),
            Broken("an address where nobody is", "Telegram cannot be reached", environment=at_telegram(nowhere)),
            Broken(
                "nobody is let in", "no one may talk to the bot at telegram", environment=at_telegram(api), fails=False
            ),
            Broken(
                "groups that Telegram hides",
                'a group is set to "all", but Telegram hides what is not addressed to it: turn off /setprivacy',
                environment=at_telegram(api, groups="all"),
            ),
            Broken("a clock that is wrong", "this machine's clock is 77", environment=at_telegram(late)),
            Broken("an intent that is off", "the message content intent is off", environment=at_discord(discord)),
            Broken(
                "a scope that is missing",
                "lacks the scope files:write and cannot send files",
                environment=at_slack(slack),
                fails=False,
            ),
            Broken("no scope to speak", "lacks the scope chat:write", environment=at_slack(mute)),
            Broken(
                "a wrong app token",
                "Socket Mode does not work",
                environment=at_slack(slack, "xapp-1-wrong"),
            ),
        ]
        rows = [(arguments, {**allowed, **given}) for arguments, given in prepared(tmp_path, set_ups)]
        rows[2][1].pop("TIDINGS_ACCESS__ALLOW")
        assert unnamed(set_ups, await asyncio.to_thread(command_lines.tidings, tmp_path, *rows)) == []


@pytest.mark.parametrize(
    ("ahead", "fault"), [(0.0, None), (-20.0, None), (45.0, False), (-45.0, False), (301.0, True), (-9999.0, True)]
)
def test_a_clock_that_is_off_is_odd_and_then_wrong(ahead: float, fault: bool | None) -> None:
    found = judge_clock(ahead)
    assert [each.is_fault for each in found] == ([] if fault is None else [fault])
    assert all(("behind" if ahead > 0 else "ahead of") in each.words for each in found)


def test_a_disk_that_runs_full_is_told_before_it_is(tmp_path: Path) -> None:
    said: list[str] = []
    doctor = Doctor(lambda remark: said.append(f"{remark.level} {remark.words}"))
    doctor.disk(tmp_path, SCARCE_BYTES)
    doctor.disk(tmp_path, SCARCE_BYTES - 1)
    assert said == [f"warn only 199 MB are free on the disk of {tmp_path}; make room"]


def test_what_a_running_gateway_complains_of_is_told(tmp_path: Path) -> None:
    doctor = Doctor(lambda remark: None)
    doctor.gateway({**HEALTH, "store": "the store cannot write: disk full"}, None, tmp_path)
    assert [f"{each.level} {each.words}" for each in doctor.remarks if "is installed" not in each.words] == [
        "ok version 1 runs",
        "fail the store cannot write: disk full",
        "warn raven@main is degraded: it flew away",
        "warn crow@main is standing by: another listens",
        "warn alarm dead, 1 times: the chat is gone",
    ]
    assert [each.words for each in doctor.remarks if "is installed and 1 runs: restart it" in each.words] != []


def test_programs_read_the_same_as_people(tmp_path: Path) -> None:
    put("tidings.toml", "[limits]\nrusn = 1\n")(tmp_path)
    people, programs = command_lines.tidings(tmp_path, (["doctor"], {}), (["doctor", "--json"], {}))
    told = json.loads(programs.out)
    assert (told["verdict"], programs.code) == ("warn", 0)
    lines = [f"{each['level']:<4}  {each['subject']}: {each['words']}" for each in told["remarks"]]
    assert lines == people.out.splitlines()
