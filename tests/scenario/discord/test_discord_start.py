"""How Discord is set up and begins to listen: settings, tokens, intents, doubles, and what the owner is told."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest

from tests.simulators.discord.simulator import DiscordServer
from tests.simulators.telegram.simulator import TelegramServer
from tests.worlds.discord import DiscordWorld
from tests.worlds.process import accounts as process_accounts
from tests.worlds.process import ask, chat, echo_on, gateway, part_of, until_misconfigured
from tests.worlds.world import Echo, OwnedClock
from tidings.adapters.discord.settings import DiscordAccount
from tidings.core.errors import ConfigError
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.roles import Permission
from tidings.core.store.store import Transaction
from tidings.core.types import Inbound

TOKEN = "MTA.part-of-a.token_of-ours"
# Another process takes over within so many seconds.
TAKE_OVER_SECONDS = 30.0


# The settings.


def accounts(home: Path, toml: str = "", **environment: str) -> dict[str, DiscordAccount]:
    return process_accounts(home, "discord", toml, **environment)


def test_without_a_token_it_is_off_and_with_one_it_is_on(tmp_path: Path) -> None:
    assert accounts(tmp_path) == {}
    assert accounts(tmp_path, "[discord]\nthreads = true") == {}
    (account,) = accounts(tmp_path, f'[discord]\ntoken = "{TOKEN}"').items()
    assert (account[0], account[1].token.get_secret_value()) == ("main", TOKEN)
    assert account[1].api_url == "https://discord.com/api/v10"
    assert account[1].gateway_url.startswith("wss://gateway.discord.gg")


def test_the_environment_sets_what_the_file_can(tmp_path: Path) -> None:
    found = accounts(
        tmp_path,
        '[discord]\ntoken = "older"\nchannels = "all"\nchats = { "5" = "never" }',
        TIDINGS_DISCORD__TOKEN=TOKEN,
        TIDINGS_DISCORD__API_URL="http://127.0.0.1:8081/api/v10",
        TIDINGS_DISCORD__GATEWAY_URL="ws://127.0.0.1:8081/gateway",
        TIDINGS_DISCORD__THREADS="true",
        TIDINGS_DISCORD__ACCOUNTS__WORK__TOKEN="other",
    )
    main, work = found["main"], found["work"]
    assert (main.token.get_secret_value(), main.threads, main.rule("5"), main.rule("6")) == (
        TOKEN,
        True,
        "never",
        "all",
    )
    assert (work.token.get_secret_value(), work.api_url) == ("other", "http://127.0.0.1:8081/api/v10")
    assert (work.gateway_url, work.channels) == ("ws://127.0.0.1:8081/gateway", "all")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (f'token = "Bot {TOKEN}"', "token must be as the developer portal shows it"),
        (f'token = "{TOKEN}\\n"', "token must be as the developer portal shows it"),
        (f'token = "{TOKEN}"\napi_url = "discord.com"', "api_url must be an address"),
        (f'token = "{TOKEN}"\ngateway_url = "https://discord.com"', "gateway_url must be an address"),
        (f'token = "{TOKEN}"\nchannels = "sometimes"', "channels = 'sometimes'"),
        (f'token = "{TOKEN}"\nchats = {{ "5" = "often" }}', "5 = 'often'"),
        (f'token = "{TOKEN}"\n[discord.accounts.main]\ntoken = "other"', "is the account main already"),
        (f'token = "{TOKEN}"\n[discord.accounts.work]\ntoken = "{TOKEN}"', "the same token"),
    ],
)
def test_a_wrong_setting_says_what_is_wrong(tmp_path: Path, lines: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        accounts(tmp_path, f"[discord]\n{lines}")
    said = str(caught.value)
    assert words in said
    assert "discord" in said
    assert TOKEN not in said


# The process.


def environment(discord: DiscordServer, **more: str) -> dict[str, str]:
    """An echo answers Ada."""
    variables = {"TOKEN": discord.token, "API_URL": discord.api_url, "GATEWAY_URL": discord.gateway_url}
    return echo_on("discord", discord.person("ada").id, variables, **more)


def process(home: Path, discord: DiscordServer, **more: str) -> AbstractAsyncContextManager[subprocess.Popen[bytes]]:
    return gateway(home, **environment(discord, **more))  # type: ignore[arg-type]


async def test_a_wrong_token_and_a_missing_intent_are_told_and_stop_nothing_else(tmp_path: Path) -> None:
    """Two accounts that only the owner can mend, beside one that works, a Telegram bot and the console."""
    wrong = "MTA.not-the.token"
    async with DiscordServer() as discord, TelegramServer() as telegram:
        shy = discord.add_bot("shy", "token.of.shy", "shy", intents=())
        fine = discord.add_bot("fine", "token.of.fine", "fine")
        ada = discord.person("ada")
        told = environment(
            discord,
            TIDINGS_ACCESS__ALLOW=f"telegram:7,discord:{ada.id}",
            TIDINGS_DISCORD__TOKEN=wrong,
            TIDINGS_DISCORD__ACCOUNTS__SHY__TOKEN=shy.token,
            TIDINGS_DISCORD__ACCOUNTS__FINE__TOKEN=fine.token,
            TIDINGS_TELEGRAM__TOKEN=telegram.token,
            TIDINGS_TELEGRAM__API_URL=f"http://{telegram.address}",
        )
        async with process(tmp_path, discord, **told):
            assert (await until_misconfigured(tmp_path, "discord@main")).startswith("Discord does not accept the token")
            assert "“Message Content Intent”" in await until_misconfigured(tmp_path, "discord@shy")
            telegram.says("hi")
            await telegram.until(lambda telegram: telegram.posts == ["you said: hi"])
            await discord.until(lambda discord: discord.attached("fine"))
            ada.says(ada.private("fine"), "hi")
            await discord.until(lambda discord: discord.posts == ["you said: hi"])
            assert await chat(tmp_path, "still there?") == "you said: still there?\n"
            shown = (await ask(tmp_path, told, "status")).stdout
            assert ("discord@main" in shown, "discord@shy" in shown, "misconfigured" in shown) == (True, True, True)
            # Each asked once: whoever is turned away too often is shut out.
            assert [call.status for call in discord.calls("me") if call.account in ("", "shy")] == [401, 200]
        examined = await ask(tmp_path, told, "doctor")
    lines = examined.stdout.splitlines()
    assert examined.returncode == 1
    assert any(line.startswith("fail  discord@main: Discord does not accept the token") for line in lines)
    assert any(line.startswith("fail  discord@shy: the message content intent is off") for line in lines)
    assert "ok    discord@fine: the token is right: it is fine's" in lines
    log = (tmp_path / "stderr.log").read_text()
    assert "Discord does not accept the token" in log
    assert wrong not in log + examined.stdout + examined.stderr + shown


async def test_a_second_process_stands_by_and_takes_over(tmp_path: Path) -> None:
    """E5. From another home, with the same token."""
    homes = [tmp_path / "first", tmp_path / "second"]
    for home in homes:
        home.mkdir()
    async with DiscordServer() as discord, AsyncExitStack() as stack:
        ada = discord.person("ada")
        first = await stack.enter_async_context(process(homes[0], discord))
        await discord.until(lambda discord: discord.attached() and discord.commands())
        seen = len(discord.calls())
        await stack.enter_async_context(process(homes[1], discord))
        listener = await part_of(homes[1], "discord@main")
        assert listener["state"] == "standing by"
        assert listener["last_error"] == f"process {first.pid} listens with this token already"
        ada.says(ada.private(), "one")
        await discord.until(lambda discord: discord.posts == ["you said: one"])
        # The second has not said a word to the platform.
        assert {call.method for call in discord.calls()[seen:]} <= {"send", "typing", "react", "unreact"}
        assert discord.identifies() == 1
        first.send_signal(signal.SIGKILL)
        await asyncio.to_thread(first.wait)
        await discord.until(lambda discord: discord.identifies() == 2, TAKE_OVER_SECONDS)
        ada.says(ada.private(), "two")
        await discord.until(lambda discord: discord.posts[1:] == ["you said: two"], TAKE_OVER_SECONDS)


async def test_the_token_is_nowhere(tmp_path: Path) -> None:
    """D8. In no log, no error, no status and no file of the home, after a run in which everything failed once."""
    async with DiscordServer(token=TOKEN) as discord:
        ada, room = discord.person("ada"), discord.channel("room")
        loud = {"TIDINGS_BOT__AGENT": "demo", "TIDINGS_LOG__LEVEL": "debug", "TIDINGS_LOG__FORMAT": "text"}
        async with process(tmp_path, discord, **loud) as running:
            await discord.until(lambda discord: discord.attached() and discord.commands())
            discord.drop_next(False, "file")
            ada.says(ada.private(), files=[("a.txt", b"1")])
            await discord.until(lambda discord: len(discord.posts) == 1)
            discord.fail_next(500, method="send")
            discord.drop_next(True, "send")
            discord.fail_next(403, method="react", code=50013)
            ada.says(room, "fail", mention=True)
            await discord.until(lambda discord: len(discord.posts) >= 2)
            asked = ada.commands("/whoami", room)
            discord.drop_next(True, "edit_original")
            await discord.until(lambda discord: len(discord.posts) >= 3)
            discord.cut()
            await discord.until(lambda discord: discord.attached())
            discord.revoke()
            await until_misconfigured(tmp_path, "discord@main")
            told = environment(discord)
            shown = [await ask(tmp_path, told, *words) for words in (["status"], ["status", "--json"], ["doctor"])]
            files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
            running.kill()
    log = files[tmp_path / "stderr.log"].decode()
    assert "Discord does not accept the token" in log
    assert " debug " in log
    for secret in (TOKEN, TOKEN.rpartition(".")[2], f"token-of-{asked}"):
        # What a command is answered with must be kept until it is answered, but is for nobody to read in a log.
        kept = [path.name for path, data in files.items() if secret.encode() in data]
        assert kept == [] or (secret.endswith(asked) and "stderr.log" not in kept)
        assert [each.args for each in shown if secret in each.stdout + each.stderr] == []
        assert [text for text in discord.posts if secret in text] == []


# The commands.


def obey(tx: Transaction, inbound: Inbound) -> Obeyed:
    return Obeyed("done")


async def told(world: DiscordWorld, times: int) -> None:
    """The platform has our commands, and we have written down that it does."""
    await world.until(lambda: len(world.discord.calls("commands")) == times)
    await world.eventually(lambda: world.note("commands"))


async def test_commands_are_told_again_only_when_they_have_changed(tmp_path: Path) -> None:
    async with DiscordWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        await told(world, 1)
        before = world.note("commands")
        await world.restart()
        world.discord.invalidate()
        await world.until(lambda: world.discord.identifies() == 3)
        await world.settled()
        assert len(world.discord.calls("commands")) == 1
        world.commands = (Command("tea", "make tea", obey, Permission.BASICS),)
        await world.restart()
        await told(world, 2)
        await world.eventually(lambda: world.note("commands") != before)
        world.ada.commands("/tea", world.room)
        await world.until(lambda: world.posts == ["done"])


@pytest.mark.parametrize("status", [400, 403, 429, 503])
async def test_commands_that_are_not_taken_do_not_keep_us_from_listening(tmp_path: Path, status: int) -> None:
    world = DiscordWorld(tmp_path, Echo(), clock=OwnedClock())
    world.discord.fail_next(status, method="commands", code=50035, retry_after=20.0)
    async with world:
        world.ada.says(world.room, "hi", mention=True)
        await world.until(lambda: world.posts == ["you said: hi"])
        assert (await world.listener()).restarts == 0
        if status in (429, 503):
            await told(world, 2)
            assert "new" in world.discord.commands()
