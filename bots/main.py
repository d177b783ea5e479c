"""The composition root: the only module that sees bots, adapters and core."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import typer

from tidings.bots.cli.app import tell
from tidings.bots.cli.context import Findings, Guide, Place
from tidings.core.errors import ConfigError, NotRunning, TidingsError, Unrouted

if TYPE_CHECKING:
    import asyncio

    from tidings.adapters.api.settings import HttpSettings
    from tidings.adapters.local.socket import LocalServer
    from tidings.adapters.shared.http_server import HttpServer
    from tidings.bots.app.agents import Staff
    from tidings.bots.app.settings import Loaded
    from tidings.core.desk.people import PeopleDesk
    from tidings.core.gateway.gateway import Gateway
    from tidings.core.gateway.options import BotOf
    from tidings.core.inbound.commands import Command
    from tidings.core.work.processes.sandbox import Outlet

T = TypeVar("T")

# The exit code that shells use for a command ended by Ctrl-C.
INTERRUPTED = 130
# Enough threads that one blocking tool does not wait for another.
THREADS = 64
# How often the prompt looks for changes to report.
NEWS_SECONDS = 1.0


def main() -> None:
    from tidings.bots.cli import app

    app.main(place)


def place(home: Path, config: Path | None) -> Place:
    return Place(
        home=home,
        config=config,
        ask=partial(_ask, home),
        ask_keys=partial(_ask_keys, home, config),
        ask_people=partial(_ask_people, home, config),
        say=_say,
        load=partial(_load, home, config),
        check=_check,
        check_id=_check_id,
        is_group=_is_group,
        examine=_examine,
        guides=_guides,
        serve=_begin,
        talk=partial(_talk, home),
    )


def _begin(place: Place, *, chats: bool) -> None:
    from tidings.adapters import catalog
    from tidings.bots.app import hardening, last_good
    from tidings.bots.cli import launch
    from tidings.bots.cli.safety import remarks
    from tidings.core.store.lock import check_owner, unusable
    from tidings.core.telemetry import logs

    hardening.forbid_dumps()
    check_owner(place.home)
    loaded = _load_to_run(place.home, place.config)
    platforms = {name for name, _, _ in catalog.configured(loaded.platforms)}
    chats = chats and "console" in platforms
    try:
        place.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Every file created from here on is readable by the owner only.
        os.umask(0o077)
        # The key is read before the first log line, so that every line is redacted.
        http, told = _with_key(place.home, _http(loaded))
        # In a terminal the log would overwrite the prompt.
        stream = open(launch.fresh_log(place.home), "a", encoding="utf-8") if chats else sys.stderr  # noqa: SIM115
        logs.configure(loaded.core.log.level, loaded.core.log.format, stream)
    except OSError as error:
        raise ConfigError(unusable(place.home, error)) from error
    if told:
        tell(told)
    found = remarks(loaded, os.environ, place.check_id, place.is_group)
    dangers = [f"{each.subject}: {each.words}" for each in found if each.level == "fail"]
    for warning in (*loaded.warnings, *filter(None, [last_good.warning(loaded)]), *dangers):
        tell(f"warning: {warning}")
    _name_the_proxies(loaded)
    _run(_serve(place, loaded, http, chats))


def _talk(home: Path, thread: str, patience: float | None) -> bool:
    """With `patience`, each line of a pipe is a message; without, a person types at the terminal."""
    from tidings.adapters.console import terminal

    if patience is not None:
        return _run(terminal.pipe(home, thread, patience))
    _run(terminal.terminal(home, thread))
    return True


def _examine(loaded: Loaded, platform: str) -> list[tuple[str, str, Findings]]:
    """Asks each configured platform about its account."""
    from tidings.adapters import catalog

    async def examine_all() -> list[tuple[str, str, Findings]]:
        found: list[tuple[str, str, Findings]] = []
        for name, account, section in catalog.configured(loaded.platforms):
            examine = catalog.PLATFORMS[name].load_examine() if platform in ("", name) else None
            if examine is None:
                continue
            try:
                found.append((name, account, await examine(account, section)))
            except TidingsError as error:
                # An error with one platform must not hide the next.
                found.append((name, account, [(str(error), True, False)]))
        return found

    return _run(examine_all())


def _guides() -> dict[str, Guide]:
    from importlib import import_module

    from tidings.adapters import catalog

    modules = {name: entry.examine.partition(":")[0] for name, entry in catalog.PLATFORMS.items() if entry.examine}
    return {name: import_module(module).GUIDE for name, module in modules.items()}


def _check_id(id: str) -> None:
    from tidings.adapters import catalog

    catalog.check_id(id)


def _is_group(id: str) -> bool:
    from tidings.adapters import catalog

    return catalog.is_group(id)


def _check(loaded: Loaded) -> None:
    """Raises ConfigError if no gateway can be built from these settings."""
    from tidings.bots.app import agents

    agents.build(loaded.bots)


def _name_the_proxies(loaded: Loaded) -> None:
    """Logs the proxies in use, because a dead proxy from the environment is hard to suspect."""
    import logging

    from tidings.adapters import catalog
    from tidings.adapters.shared import proxy
    from tidings.core import redaction

    ways = {
        f"{name}@{account}": way
        for name, account, section in catalog.configured(loaded.platforms)
        if (way := proxy.way_of(section)) is not None
    }
    asked = [bot for bot in loaded.bots.values() if bot.chosen_agent == "assistant"]
    ways |= {f"{bot.called}'s model": proxy.way("", bot.base_url or "https://models.invalid") for bot in asked}
    redaction.remember(*(way.password for way in ways.values()))
    if any(way.by for way in ways.values()):
        told = "; ".join(f"{who} {way}" for who, way in ways.items())
        logging.getLogger(__name__).info("the way out: %s", told)


async def _serve(place: Place, loaded: Loaded, http: HttpSettings, chats: bool) -> None:
    import asyncio
    import logging
    import signal
    from concurrent.futures import ThreadPoolExecutor

    from tidings.adapters.local import socket, verbs
    from tidings.adapters.shared.http_server import HttpServer, Limits
    from tidings.bots.app import agents, last_good
    from tidings.bots.app.fencing import try_fence
    from tidings.bots.app.reload import Reloading
    from tidings.bots.app.watchdog import Watchdog
    from tidings.core.roles import Permission

    began, home = time.perf_counter(), place.home
    staff = agents.build(loaded.bots)
    log = logging.getLogger(__name__)
    log.info("start: making the bots took %.0f ms", (time.perf_counter() - began) * 1000)
    reloading = Reloading(loaded, staff, partial(_load, home, place.config), _commands, partial(last_good.keep, home))
    loop, stop, asked = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def stop_once() -> None:
        stop.set()
        # A second signal ends the process at once; the next start resumes the work that was cut off.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_once)
    # In a terminal, SIGHUP means that the terminal was closed, and the gateway ends with it.
    if not sys.stdin.isatty():
        loop.add_signal_handler(signal.SIGHUP, asked.set)
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="tidings"))
    # The servers outlive the gateway, so that attached clients get the last answers while it drains.
    async with (
        Watchdog(os.environ) as watchdog,
        socket.LocalServer() as server,
        HttpServer(http.host, http.port, limits=Limits(connections=http.connections)) as listener,
        reloading,
        _health_meanwhile(listener, http),
        _outlet(home, loaded) as outlet,
        _gateway(home, loaded, http, staff, server, listener, outlet) as gateway,
    ):
        reload = verbs.guarded(gateway.desk, Permission.OPERATE, partial(reloading.answer, gateway=gateway))
        words = verbs.routes_for(gateway.desk) | {"reload": reload}
        with server.routes(words):
            async with server.serving(home):
                log.info("the gateway serves in %s, %.1f s after it was begun", home, time.perf_counter() - began)
                last_good.keep(home, loaded)
                reloading.prepare()
                fencing = asyncio.create_task(try_fence(gateway.desk.processes.fence, loaded))
                listening = asyncio.create_task(reloading.listen(asked, gateway))
                watchdog.ready(gateway.desk.health)
                if chats:
                    await _chat_until(stop, home, loaded, gateway)
                else:
                    await stop.wait()
                listening.cancel()
                fencing.cancel()
                watchdog.stopping()


@asynccontextmanager
async def _outlet(home: Path, loaded: Loaded) -> AsyncIterator[Outlet | None]:
    """Serves the way out for fenced commands, if the settings list hosts for them."""
    if not loaded.core.terminal.by_list:
        yield None
        return
    from tidings.bots.app.outlet import OutletServer

    async with OutletServer(home, loaded.core.terminal) as server:
        yield server.outlet


@asynccontextmanager
async def _health_meanwhile(listener: HttpServer, http: HttpSettings) -> AsyncIterator[None]:
    """Answers /health whenever the API does not: while the gateway starts, and until the API has its routes."""
    if not http.enabled:
        yield
        return
    from tidings.adapters.api.handlers import about

    async with listener.meanwhile("/health", about.starting):
        yield


async def _chat_until(stop: asyncio.Event, home: Path, loaded: Loaded, gateway: Gateway) -> None:
    import asyncio

    from tidings.adapters import catalog
    from tidings.adapters.console import terminal
    from tidings.bots.cli.greeting import greeting

    others = [f"{name}@{account}" for name, account, _ in catalog.configured(loaded.platforms) if name != "console"]
    typer.echo(greeting(home, loaded, others))
    chat = terminal.terminal(home, "", _news(gateway))
    tasks = [asyncio.create_task(stop.wait()), asyncio.create_task(chat)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stopping, chatting = tasks
    stopping.cancel()
    if not chatting.done():
        chatting.cancel()
    await asyncio.wait(tasks)
    typer.echo("stopping; unfinished work continues at the next start")
    if not chatting.cancelled():
        chatting.result()


async def _news(gateway: Gateway) -> AsyncIterator[str]:
    """Reports each change of a part's state, which would otherwise be visible only in the log."""
    import asyncio

    from tidings.adapters.console.escape import visible

    known: dict[str, str] = {}
    while True:
        for part in (await gateway.desk.health()).parts:
            if part.state != known.get(part.name, "up") and part.state != "starting":
                trouble = f": {part.last_error}" if part.last_error and part.state != "up" else ""
                yield visible(f"{part.name} is {part.state}{trouble}")
                known[part.name] = part.state
        await asyncio.sleep(NEWS_SECONDS)


def _http(loaded: Loaded) -> HttpSettings:
    return cast("HttpSettings", loaded.platforms["http"])


def _with_key(home: Path, http: HttpSettings) -> tuple[HttpSettings, str]:
    """Adds the owner's key, which the first start creates, and returns what to tell the person about it.

    Only a terminal shows the key itself: anything else, such as a system journal, would store it.
    """
    from pydantic import SecretStr

    from tidings.adapters.api import keys
    from tidings.core import redaction

    if http.key.get_secret_value() or not http.enabled:
        return http, ""
    known = keys.read_own(home)
    secret = known or keys.make_own(home)
    redaction.remember(secret)
    told, path = "", home / keys.FILE
    if known is None and sys.stderr.isatty():
        told = f"the key of the HTTP API is {secret}; it is shown only this once and kept in {path}"
    elif known is None:
        told = f"a key for the HTTP API was made; it is in {path}"
    return http.model_copy(update={"key": SecretStr(secret)}), told


def _gateway(
    home: Path,
    loaded: Loaded,
    http: HttpSettings,
    staff: Staff,
    server: LocalServer,
    listener: HttpServer,
    outlet: Outlet | None = None,
) -> Gateway:
    from tidings.adapters import catalog
    from tidings.adapters.shared import proxy
    from tidings.bots.app import last_good, roster
    from tidings.core.adapter import Platform
    from tidings.core.gateway.gateway import Gateway
    from tidings.core.gateway.options import Options, Team
    from tidings.core.types import Target

    platforms = []
    for name, account, section in catalog.configured(loaded.platforms):
        # A platform without a name of its own shows the bot's name.
        if getattr(section, "name", None) == "":
            section = section.model_copy(update={"name": loaded.bot.called})
        if name == "api":
            section = http
        entry = catalog.PLATFORMS[name]
        build = partial(entry.load_adapter(), account, section)
        why = proxy.trouble(proxy.way_of(section))
        platforms.append(Platform(name, account, proxy.stranded(build, why) if why else build, entry.nearby))
    busy = roster.busy_modes(loaded.bots)
    team = Team(staff.agents, loaded.bot.called, staff.kinds, partial(_commands, loaded), busy)
    at_hand = any(platform.name == "console" for platform in platforms)
    options = Options(
        notices=tuple(filter(None, [last_good.warning(loaded)])),
        governed=True,
        outlet=outlet,
        # The person at the console is the owner.
        owner=Target(adapter="console") if at_hand else None,
    )
    return Gateway(home, loaded.core, platforms, team, server, listener, options)


def _commands(loaded: Loaded, bot_of: BotOf) -> tuple[Command, ...]:
    from tidings.bots.assistant.commands import commands

    return commands(bot_of, loaded.bots)


def _ask(home: Path, question: dict[str, Any]) -> dict[str, Any]:
    from tidings.adapters.local import socket

    return _run(socket.call(home, question))


def _ask_keys(home: Path, config: Path | None, question: dict[str, Any]) -> dict[str, Any]:
    """Asks the running gateway; if none runs, opens the store for a moment."""
    from tidings.adapters.api import keys

    try:
        return _ask(home, {"verb": "key", **question})
    except Unrouted:
        away = "the gateway runs, but its HTTP API is off or not up: tidings status says more"
        raise TidingsError(f"{away}; keys can also be changed while no gateway runs") from None
    except NotRunning:
        from tidings.core.operations import offline

        loaded = _load(home, config)
        owner = _http(loaded).key.get_secret_value() or keys.read_own(home) or ""
        bots = [bot.called for bot in loaded.bots.values()]
        with offline.open_people(home, loaded.core.access) as people:
            return _run(keys.change(keys.Keys(people, owner), bots, question, time.time()))


def _ask_people(home: Path, config: Path | None, question: dict[str, Any]) -> dict[str, Any]:
    """Asks the running gateway; if none runs, lets the same verb answer from the store."""
    from tidings.adapters.local import verbs

    try:
        return _ask(home, question)
    except NotRunning:
        from tidings.core.operations import offline

        settings = _load(home, config).core.access
        with offline.open_people(home, settings, only_reads=verbs.only_reads(question)) as people:
            return _run(verbs.answer_at_rest(_AtRest(people), question))


class _AtRest(NamedTuple):
    """The desk of a home where no gateway runs."""

    people: PeopleDesk


def _load(home: Path, config: Path | None, beside: Mapping[str, Any] | None = None, *, is_new: bool = False) -> Loaded:
    from tidings.adapters import catalog
    from tidings.bots.app import settings
    from tidings.core import redaction

    texts = settings.read(config, must_exist=False) if config and is_new else None
    loaded = settings.load(catalog.sections(), home, config, os.environ, texts=texts, beside=beside)
    redaction.remember(*loaded.secrets)
    return loaded


def _load_to_run(home: Path, config: Path | None) -> Loaded:
    """Loads the settings, or the last good ones if the file was broken since the last start."""
    from tidings.adapters import catalog
    from tidings.bots.app import last_good
    from tidings.core import redaction

    loaded = last_good.load(catalog.sections(), home, config, os.environ, _check)
    redaction.remember(*loaded.secrets)
    return loaded


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _say(line: str) -> None:
    from tidings.adapters.console.escape import visible

    typer.echo(visible(line))


if __name__ == "__main__":
    main()
