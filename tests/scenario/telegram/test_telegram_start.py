"""How Telegram is set up and begins to listen: settings, tokens, doubles, outages, and what the owner is told."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.simulators.telegram.pair import bot_for
from tests.simulators.telegram.simulator import TelegramServer
from tests.worlds.fakes import FakeClock
from tests.worlds.process import accounts as process_accounts
from tests.worlds.process import ask, chat, part_of, status, until_misconfigured
from tests.worlds.telegram import SECRET, TelegramWorld, environment, process
from tests.worlds.world import Echo, OwnedClock
from tidings.adapters import catalog
from tidings.adapters.telegram.settings import TelegramAccount
from tidings.bots.app import settings
from tidings.core.agent import Event, Finished, TextDelta, Turn
from tidings.core.desk.health import Alarm
from tidings.core.errors import ConfigError
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.roles import Permission
from tidings.core.store.store import Transaction
from tidings.core.types import Inbound

TOKEN = "123456789:AAF-a_token"
DAY = 86_400.0
# Another process takes over within so many seconds.
TAKE_OVER_SECONDS = 30.0


# The settings.


def accounts(home: Path, toml: str = "", **environment: str) -> dict[str, TelegramAccount]:
    return process_accounts(home, "telegram", toml, **environment)


def complaint(tmp_path: Path, toml: str = "", **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        accounts(tmp_path, toml, **environment)
    said = str(caught.value)
    assert "\n" not in said
    assert TOKEN not in said
    return said


def test_without_a_token_it_is_off(tmp_path: Path) -> None:
    assert accounts(tmp_path) == {}
    assert accounts(tmp_path, '[telegram]\nmode = "polling"') == {}


def test_a_token_is_all_it_takes(tmp_path: Path) -> None:
    (account,) = accounts(tmp_path, f'[telegram]\ntoken = "{TOKEN}"').items()
    assert account[0] == "main"
    assert account[1].token.get_secret_value() == TOKEN
    assert (account[1].mode, account[1].api_url) == ("polling", "https://api.telegram.org")


def test_the_environment_sets_what_the_file_can(tmp_path: Path) -> None:
    found = accounts(
        tmp_path,
        '[telegram]\ntoken = "1:older"\ngroups = "all"',
        TIDINGS_TELEGRAM__TOKEN=TOKEN,
        TIDINGS_TELEGRAM__API_URL="http://127.0.0.1:8081",
        TIDINGS_TELEGRAM__MODE="webhook",
        TIDINGS_TELEGRAM__WEBHOOK_URL="https://bot.example.org",
        TIDINGS_TELEGRAM__WEBHOOK_SECRET=SECRET,
        TIDINGS_TELEGRAM__ACCOUNTS__WORK__TOKEN="2:other",
    )
    main, work = found["main"], found["work"]
    assert (main.token.get_secret_value(), main.mode, main.groups) == (TOKEN, "webhook", "all")
    assert (main.webhook_url, main.webhook_secret.get_secret_value()) == ("https://bot.example.org", SECRET)
    assert (work.token.get_secret_value(), work.api_url) == ("2:other", "http://127.0.0.1:8081")


def test_several_accounts_share_what_they_do_not_say_themselves(tmp_path: Path) -> None:
    found = accounts(
        tmp_path,
        f"""
        [telegram]
        api_url = "http://127.0.0.1:8081"
        groups = "never"
        [telegram.accounts.work]
        token = "{TOKEN}"
        [telegram.accounts.home]
        token = "2:other"
        groups = "all"
        chats = {{ "-5" = "never" }}
        """,
    )
    assert set(found) == {"work", "home"}
    assert {account.api_url for account in found.values()} == {"http://127.0.0.1:8081"}
    assert (found["work"].rule("-5"), found["home"].rule("-5"), found["home"].rule("-6")) == ("never", "never", "all")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('token = "my token"', "token must look like"),
        (f'token = "{TOKEN}"\napi_url = "api.telegram.org"', "api_url must be an address"),
        (f'token = "{TOKEN}"\nmode = "pulling"', "mode = 'pulling'"),
        (f'token = "{TOKEN}"\nmode = "webhook"', "needs webhook_url"),
        (f'token = "{TOKEN}"\nmode = "webhook"\nwebhook_url = "bot.example.org"', "needs webhook_url"),
        (f'token = "{TOKEN}"\nmode = "webhook"\nwebhook_url = "https://x.org"', "needs webhook_secret"),
        (
            f'token = "{TOKEN}"\nmode = "webhook"\nwebhook_url = "https://x.org"\nwebhook_secret = "with spaces, long"',
            "needs webhook_secret",
        ),
        (f'token = "{TOKEN}"\ngroups = "sometimes"', "groups = 'sometimes'"),
        (f'token = "{TOKEN}"\nchats = {{ "-5" = "often" }}', "-5 = 'often'"),
        (f'[telegram.accounts.work]\ntoken = ""\n#{TOKEN}', "accounts.work has no token"),
        (f'[telegram.accounts."a/b"]\ntoken = "{TOKEN}"', "cannot name an account"),
        (f'token = "{TOKEN}"\n[telegram.accounts.main]\ntoken = "2:other"', "is the account main already"),
        (f'token = "{TOKEN}"\n[telegram.accounts.work]\ntoken = "{TOKEN}"', "the same token"),
    ],
)
def test_a_wrong_setting_says_what_is_wrong(tmp_path: Path, lines: str, words: str) -> None:
    said = complaint(tmp_path, f"[telegram]\n{lines}")
    assert words in said
    assert "telegram" in said


def test_a_misspelt_setting_of_an_account_is_told(tmp_path: Path) -> None:
    (tmp_path / "tidings.toml").write_text(f'[telegram.accounts.work]\ntoken = "{TOKEN}"\ngruops = "all"')
    (warning,) = settings.load(catalog.sections(), tmp_path, None, {}).warnings
    assert "did you mean groups?" in warning


async def test_the_address_of_the_server_may_end_with_a_slash(tmp_path: Path) -> None:
    """Calls go to /bot<token>/ below it, files come from /file/bot<token>/."""
    async with TelegramWorld(tmp_path, Fetches()) as world:
        await world.end()
        world.account_settings["api_url"] = f"http://{world.telegram.address}/"
        await world.start()
        world.telegram.says(files=[("a.txt", b"of text")])
        await world.telegram.until(lambda telegram: telegram.posts == ["of text"])


class Fetches:
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        path = await turn.desk.fetch(turn.message.attachments[0])
        yield TextDelta(await asyncio.to_thread(path.read_text))
        yield Finished()


# Several accounts.


async def test_two_bots_in_one_process_are_two(tmp_path: Path) -> None:
    echo = Echo()
    async with TelegramWorld(tmp_path, echo, bots=("other",)) as world:
        telegram = world.telegram
        telegram.says("to the first")
        telegram.says("to the second", account="other")
        await telegram.until(lambda telegram: len(telegram.posts) == 2)
        said = {message.account: message.text for message in telegram.sent}
        assert said == {"main": "you said: to the first", "other": "you said: to the second"}
        assert len(world.rows("SELECT * FROM conversations")) == 2


async def test_a_wrong_token_of_one_account_does_not_stop_the_other(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), bots=("other",)) as world:
        await world.end()
        world.accounts["other"]["token"] = "1:wrong-token"
        await world.start(attached=False)
        await world.telegram.until(lambda telegram: telegram.attached("main"))
        world.telegram.says("hi")
        await world.telegram.until(lambda telegram: telegram.posts == ["you said: hi"])
        assert (await world.listener("other")).state == "misconfigured"
        assert (await world.listener("main")).state == "up"


# A wrong token.


async def test_a_wrong_token_is_told_and_stops_nothing_else(tmp_path: Path) -> None:
    wrong = "1000001:not-the-token"
    async with TelegramServer() as telegram:
        told = environment(telegram, TIDINGS_TELEGRAM__TOKEN=wrong)
        async with process(tmp_path, telegram, TIDINGS_TELEGRAM__TOKEN=wrong):
            assert await chat(tmp_path, "still there?") == "you said: still there?\n"
            (part,) = [part for part in (await status(tmp_path))["parts"] if part["name"] == "telegram@main"]
            assert part["state"] == "misconfigured"
            assert "Telegram refuses the token" in part["last_error"]
            shown = await ask(tmp_path, told, "status")
            assert "telegram@main" in shown.stdout
            assert "misconfigured" in shown.stdout
            # It asked once, and goes on to do so, but seldom.
            assert [call.method for call in telegram.calls()] == ["getMe"]
        examined = await ask(tmp_path, told, "doctor")
        assert examined.returncode == 1
        assert "fail  telegram@main: Telegram refuses the token" in examined.stdout
        log = (tmp_path / "stderr.log").read_text()
        assert "Telegram refuses the token" in log
        assert "not-the-token" not in log + examined.stdout + examined.stderr + shown.stdout
        # And with the right one it says whose it is.
        examined = await ask(tmp_path, environment(telegram), "doctor")
        assert examined.returncode == 0
        assert "ok    telegram@main: the token is right: it is @tidings_bot's" in examined.stdout


async def test_a_token_that_is_revoked_later_is_told_too(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo()) as world:
        world.telegram.revoke()
        await until_part(world, "misconfigured")
        assert "Telegram refuses the token" in (await world.listener()).last_error


async def until_part(world: TelegramWorld, state: str) -> None:
    async with asyncio.timeout(10):
        while (await world.listener()).state != state:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# The menu.


def obey(tx: Transaction, inbound: Inbound) -> Obeyed:
    return Obeyed("done")


async def test_the_menu_is_told_once_and_again_only_when_it_has_changed(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo()) as world:
        telegram = world.telegram
        names = [name for name, _ in telegram.menu]
        assert {"help", "new", "stop"} <= set(names)
        await world.restart()
        assert len(telegram.calls("setMyCommands")) == 1
        world.commands = (Command("tea", "make tea", obey, Permission.BASICS),)
        await world.restart()
        assert len(telegram.calls("setMyCommands")) == 2
        assert ("tea", "make tea") in telegram.menu
        telegram.says("/tea")
        await telegram.until(lambda telegram: telegram.posts == ["done"])


async def test_a_menu_that_is_refused_does_not_keep_us_from_listening(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo()) as world:
        await world.end()
        world.commands = (Command("tea", "make tea", obey, Permission.BASICS),)
        world.telegram.fail_next(400, method="setMyCommands", description="Bad Request: BOT_COMMAND_INVALID")
        await world.start()
        world.telegram.says("hi")
        await world.telegram.until(lambda telegram: telegram.posts == ["you said: hi"])
        assert (await world.listener()).restarts == 0


# Polling and webhook take turns.


async def test_a_webhook_gives_way_to_polling_and_comes_back(tmp_path: Path) -> None:
    """Telegram lets nobody poll while a webhook is set; nothing that waits is dropped on the way."""
    async with TelegramWorld(tmp_path, Echo(), webhook=True, clock=OwnedClock()) as world:
        telegram = world.telegram
        assert telegram.calls("setWebhook")[-1].params["url"] == world.address()
        await world.end()
        telegram.says("one")
        world.account_settings["mode"] = "polling"
        await world.start(attached=False)
        await world.until(lambda: telegram.posts == ["you said: one"])
        assert telegram.chats.bot("main").queue.hook is None
        await world.stop()
        telegram.says("two")
        world.account_settings["mode"] = "webhook"
        await world.start()
        await world.until(lambda: telegram.posts[1:] == ["you said: two"])
        assert "drop_pending_updates" not in {name for call in telegram.calls() for name in call.params}


async def test_a_public_address_with_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), webhook=True) as world:
        await world.end()
        world.account_settings["webhook_url"] = f"{world.address()}?behind=proxy"
        await world.start()
        assert world.telegram.calls("setWebhook")[-1].params["url"] == f"{world.address()}?behind=proxy"
        world.telegram.says("hi")
        await world.telegram.until(lambda telegram: telegram.posts == ["you said: hi"])


# Two at once.


async def test_a_second_process_stands_by_and_takes_over(tmp_path: Path) -> None:
    """E5. From another home, with the same token."""
    homes = [tmp_path / "first", tmp_path / "second"]
    for home in homes:
        home.mkdir()
    async with TelegramServer() as telegram, AsyncExitStack() as stack:
        first = await stack.enter_async_context(process(homes[0], telegram))
        await telegram.until(lambda telegram: telegram.attached())
        seen = len(telegram.calls())
        await stack.enter_async_context(process(homes[1], telegram))
        listener = await part_of(homes[1], "telegram@main")
        assert listener["state"] == "standing by"
        assert listener["last_error"] == f"process {first.pid} listens with this token already"
        telegram.says("one")
        await telegram.until(lambda telegram: telegram.posts == ["you said: one"])
        # The second has not said a word to the platform.
        assert [call.method for call in telegram.calls()[seen:] if call.method != "getUpdates"] == ["sendMessage"]
        assert len(telegram.calls()) - seen <= 4
        first.send_signal(signal.SIGKILL)
        await asyncio.to_thread(first.wait)
        began = time.monotonic()
        telegram.says("two")
        await telegram.until(lambda telegram: telegram.posts[1:] == ["you said: two"], TAKE_OVER_SECONDS)
        assert time.monotonic() - began < TAKE_OVER_SECONDS
        assert telegram.conflicts == 0


async def test_one_that_polls_elsewhere_is_told_and_not_fought(tmp_path: Path) -> None:
    """E5. On another machine no lock can be seen, only that Telegram ends our polls."""
    clock = OwnedClock()
    async with TelegramWorld(tmp_path, Echo(), clock=clock, server={"repeat_seconds": 0.0}) as world:
        telegram = world.telegram
        async with bot_for(telegram, read_timeout=60) as other:
            for _ in range(3):
                await telegram.until(lambda telegram: telegram.attached())
                polls, conflicts = len(telegram.calls("getUpdates")), telegram.conflicts
                poll = asyncio.create_task(other.get_updates(timeout=50))
                await telegram.until(lambda telegram: telegram.conflicts > conflicts)  # noqa: B023
                await until_part(world, "standing by")
                assert "another process, perhaps on another machine" in (await world.listener()).last_error
                # It leaves the other alone for a while, and comes back.
                await clock.advance(15)
                assert len(telegram.calls("getUpdates")) == polls + 1
                poll.cancel()
                await asyncio.gather(poll, return_exceptions=True)
                await clock.advance(10)
        assert telegram.conflicts <= 6
        telegram.says("hi")
        await world.until(lambda: telegram.posts == ["you said: hi"])


# Outages.


@asynccontextmanager
async def closed_door(port: int) -> AsyncIterator[list[float]]:
    """Takes every connection and ends it at once; says when each came."""
    came: list[float] = []

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(time.monotonic())
        writer.transport.abort()

    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    server = await asyncio.start_server(take, sock=bound)
    try:
        yield came
    finally:
        server.close()
        await server.wait_closed()


async def test_an_outage_is_borne_without_haste_and_then_it_goes_on(tmp_path: Path) -> None:
    """E8."""
    clock = FakeClock()
    async with TelegramWorld(tmp_path, Echo(), clock=clock) as world:
        telegram = world.telegram
        await telegram.outage(True)
        async with closed_door(int(telegram.address.partition(":")[2])) as came:
            began = clock.now()
            await clock.advance_until(lambda: len(came) == 3)
            # Where time stands still, so do we.
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert len(came) == 3
            await clock.advance_until(lambda: clock.now() - began > 1800, limit=1900, real_limit=20)
            # Half an hour: a dozen times in the first minutes, then four times a minute at most.
            assert 5 < len(came) < 150
            assert (await world.listener()).state == "degraded"
            telegram.says("are you back?")
        await telegram.outage(False)
        await clock.advance_until(lambda: telegram.posts == ["you said: are you back?"], limit=200)
        await clock.advance_until(lambda: clock.now() - began > 2200)
        assert (await world.listener()).state == "up"


async def test_a_poll_that_is_lost_now_and_then_is_not_worth_a_word(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.fail_next(502, method="getUpdates", html=True)
        telegram.garble_next(method="getUpdates")
        telegram.cut()
        telegram.says("hi")
        await world.until(lambda: telegram.posts == ["you said: hi"])
        listener = await world.listener()
        assert (listener.state, listener.restarts) == ("up", 0)


async def test_a_flooded_poll_waits_as_long_as_it_is_told(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with TelegramWorld(tmp_path, Echo(), clock=clock) as world:
        telegram = world.telegram
        telegram.fail_next(429, retry_after=40, method="getUpdates")
        telegram.chats.bot("main").queue.wake()
        await telegram.until(lambda telegram: telegram.calls("getUpdates")[-1].verdict == "429")
        polls = len(telegram.calls("getUpdates"))
        telegram.says("hi")
        await clock.advance(39)
        assert len(telegram.calls("getUpdates")) == polls
        await world.until(lambda: telegram.posts == ["you said: hi"])


# A gap.


def gaps(alarms: tuple[Alarm, ...]) -> list[str]:
    return [alarm.last for alarm in alarms if alarm.name == "gap"]


async def noted(world: TelegramWorld) -> None:
    """It has written down that it listens."""
    await world.eventually(lambda: world.rows("SELECT * FROM notebook WHERE name = 'listened'"))


@pytest.mark.parametrize("tell", [False, True])
async def test_whoever_was_offline_for_a_day_says_so(tmp_path: Path, tell: bool) -> None:
    """What nobody fetched for a day, Telegram throws away."""
    clock = FakeClock()
    async with TelegramWorld(tmp_path, Echo(), clock=clock, settings={"tell_gaps": tell}) as world:
        telegram = world.telegram
        telegram.says("before")
        await clock.advance_until(lambda: telegram.posts == ["you said: before"])
        await noted(world)
        await world.stop()
        clock.jump(30 * 3600)
        await world.start()
        words = "I was offline for 30 hours; what was written to me more than a day ago may be lost."
        assert gaps((await world.health()).alarms) == [f"telegram@main: {words}"]
        telegram.says("after")
        await clock.advance_until(lambda: "you said: after" in telegram.posts)
        assert telegram.posts[1:] == ([words] if tell else []) + ["you said: after"]


async def test_whoever_was_away_for_an_evening_says_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    async with TelegramWorld(tmp_path, Echo(), clock=clock, settings={"tell_gaps": True}) as world:
        world.telegram.says("before")
        await clock.advance_until(lambda: world.telegram.posts == ["you said: before"])
        await noted(world)
        await world.stop()
        clock.jump(22 * 3600)
        await world.start()
        assert gaps((await world.health()).alarms) == []


@pytest.mark.parametrize("webhook", [False, True], ids=["polling", "webhook"])
async def test_a_quiet_day_is_not_an_absence(tmp_path: Path, webhook: bool) -> None:
    """It listened all the time, and nobody said anything."""
    clock = FakeClock()
    async with TelegramWorld(tmp_path, Echo(), clock=clock, webhook=webhook) as world:
        # A poll ends with nothing.
        world.telegram.chats.bot("main").queue.wake()
        await noted(world)
        (first,) = world.rows("SELECT value FROM notebook WHERE name = 'listened'")
        await world.telegram.until(lambda telegram: telegram.attached())
        clock.jump(DAY)
        world.telegram.chats.bot("main").queue.wake()
        if webhook:
            await clock.advance(600)
        await world.eventually(
            lambda: world.rows("SELECT value FROM notebook WHERE name = 'listened'")[0]["value"] != first["value"]
        )
        await world.end()
        clock.jump(3600)
        await world.start()
        assert gaps((await world.health()).alarms) == []


# The token.


async def test_the_token_is_nowhere(tmp_path: Path) -> None:
    """D8. In no log, no error, no status and no file of the home, after a run in which everything failed once."""
    token = "1000001:AAFsecret-part-of-the-token"
    async with TelegramServer(token=token) as telegram:
        loud = {"TIDINGS_BOT__AGENT": "demo", "TIDINGS_LOG__LEVEL": "debug", "TIDINGS_LOG__FORMAT": "text"}
        async with process(tmp_path, telegram, **loud) as running:  # type: ignore[arg-type]
            await telegram.until(lambda telegram: telegram.attached())
            telegram.fail_next(404, method="getFile", description="Not Found")
            telegram.says(files=[("a.txt", b"1")])
            await telegram.until(lambda telegram: len(telegram.posts) == 1)
            telegram.drop_next(after_effect=False, method="file")
            telegram.says(files=[("b.txt", b"1")])
            await telegram.until(lambda telegram: len(telegram.posts) == 2)
            telegram.fail_next(500, method="sendMessage")
            telegram.drop_next(after_effect=True, method="getUpdates")
            telegram.fail_next(400, method="setMessageReaction", description="Bad Request: REACTION_INVALID")
            telegram.cut()
            telegram.says("fail")
            await telegram.until(lambda telegram: len(telegram.posts) >= 3)
            telegram.revoke()
            await until_misconfigured(tmp_path, "telegram@main")
            told = environment(telegram)
            shown = [await ask(tmp_path, told, *words) for words in (["status"], ["status", "--json"], ["doctor"])]
            files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
            assert {"stderr.log", "tidings.db"} <= {path.name for path in files}
            running.kill()
    log = files[tmp_path / "stderr.log"].decode()
    assert "Telegram refuses the token" in log
    assert " debug " in log
    secrets = [token, token.partition(":")[2], token.replace(":", "%3A")]
    for secret in secrets:
        assert [path.name for path, data in files.items() if secret.encode() in data] == []
        assert [each.args for each in shown if secret in each.stdout + each.stderr] == []
    # What a person would see of it, no less.
    assert [text for text in telegram.posts if any(secret in text for secret in secrets)] == []
