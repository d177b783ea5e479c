"""The composition root and the command line: the only module that sees bots, adapters and core."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import typer

from bots import keys
from bots.place import Place
from core.errors import ConfigError, NotRunning, TidingsError, Unrouted

if TYPE_CHECKING:
    import asyncio

    from adapters.api.settings import HttpSettings
    from adapters.shared.examination import Finding
    from adapters.shared.local import LocalServer
    from adapters.shared.server import HttpServer
    from bots.building import Staff
    from bots.settings import Loaded
    from core.gateway import Gateway

T = TypeVar("T")

USAGE = 64
# What a shell says of a command that Ctrl-C ended.
INTERRUPTED = 130
# By name, so that an error's home need not be imported before it is raised.
EXIT_CODES = {"NotRunning": 69, "HomeInUse": 75, "StoreRefused": 76, "ConfigError": 78}
EPILOGUE = """\b
Exit codes:
  0   done
  1   failed, for the reason given
  64  wrong command line
  69  no gateway runs in this home
  75  another process uses this home
  76  the store was refused: foreign, newer, corrupt or not durable
  78  a setting is wrong
"""
# Nothing more is expected of a pipe that has been silent for so long.
PIPE_SECONDS = 120.0
# A tool that blocks must not wait for another that does.
THREADS = 64
# How often somebody at the prompt is told of what has changed beside the talk.
NEWS_SECONDS = 1.0

app = typer.Typer(
    name="tidings",
    help="A messaging gateway for bots and agents: never silent, never lost, never in the wrong place.",
    epilog=EPILOGUE,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(keys.app, name="key")


def main() -> None:
    """One line for what went wrong, and an exit code that means something; never a traceback for a known error."""
    try:
        app(prog_name="tidings")
    except TidingsError as error:
        _tell(str(error))
        names = [kind.__name__ for kind in type(error).__mro__]
        sys.exit(next((EXIT_CODES[name] for name in names if name in EXIT_CODES), 1))
    except SystemExit as end:
        # The parser says 2 for a wrong command line, as no other program's documentation does.
        sys.exit(USAGE if end.code == 2 else end.code)


@app.callback()
def _options(
    context: typer.Context,
    home: Path | None = typer.Option(
        None, envvar="TIDINGS_HOME", show_default="~/.tidings", help="Where everything is kept."
    ),
    config: Path | None = typer.Option(
        None, envvar="TIDINGS_CONFIG", show_default="tidings.toml in the home", help="The settings to read."
    ),
) -> None:
    try:
        folder = Path(home or "~/.tidings").expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError("there is no home directory to keep things in; name a folder with --home") from error
    chosen = config.expanduser().absolute() if config else None
    context.obj = Place(folder, chosen, partial(_ask, folder), partial(_ask_keys, folder, chosen))


@app.command()
def run(
    context: typer.Context,
    no_chat: bool = typer.Option(False, "--no-chat", help="Only serve, in a terminal too."),
) -> None:
    """Start the gateway. In a terminal you can talk to the bot at once; otherwise it serves until SIGTERM."""
    from adapters import catalog
    from core import logs
    from core.store.lock import unusable

    place: Place = context.obj
    loaded = _load(place.home, place.config)
    platforms = {name for name, _, _ in catalog.configured(loaded.platforms)}
    chats = _is_terminal() and "console" in platforms and not no_chat
    try:
        place.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Everything made from here on is the owner's alone.
        os.umask(0o077)
        # In a terminal the log would run over the prompt.
        stream = open(place.home / "tidings.log", "a", encoding="utf-8") if chats else sys.stderr  # noqa: SIM115
        logs.configure(loaded.core.log.level, loaded.core.log.format, stream)
    except OSError as error:
        raise ConfigError(unusable(place.home, error)) from error
    for warning in loaded.warnings:
        _tell(f"warning: {warning}")
    _run(_serve(place.home, loaded, chats))


@app.command()
def chat(
    context: typer.Context,
    thread: str = typer.Option("", help="Talk in a thread of its own."),
    timeout: float = typer.Option(
        PIPE_SECONDS, min=0.1, help="From a pipe: give up after so many seconds without any news."
    ),
) -> None:
    """Talk to the bot. From a pipe, each line is a message: echo hi | tidings chat."""
    from adapters.console import client

    place: Place = context.obj
    if _is_terminal():
        _run(client.terminal(place.home, thread))
    elif not _run(client.pipe(place.home, thread, timeout)):
        raise typer.Exit(1)


@app.command()
def notify(
    context: typer.Context,
    target: str = typer.Argument(help="Where to: console, platform:CHAT or platform:CHAT:THREAD."),
    text: str = typer.Argument("-", help="What to say.", show_default="read from the pipe"),
) -> None:
    """Send a message. It is stored first, so it arrives even if the platform or the gateway fails now."""
    if text == "-":
        if sys.stdin.isatty():
            raise typer.BadParameter("say what to send, or pipe it in: df -h | tidings notify console")
        text = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\n")
    # What the shell passed on may not be UTF-8.
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if not text.strip():
        raise typer.BadParameter("there is nothing to send: the text is empty")
    place: Place = context.obj
    answer = place.ask({"verb": "notify", "target": target, "text": text})
    typer.echo(f"stored as {answer['owed']}; it goes to {answer['target']} as soon as that can be reached")


@app.command()
def allow(
    context: typer.Context, id: str = typer.Argument(help="Who, as platform:ID; the bot tells strangers theirs.")
) -> None:
    """Let somebody talk to the bot, at once. Works without a running gateway, too."""
    place: Place = context.obj
    try:
        added = place.ask({"verb": "allow", "id": id})["allowed"]
    except NotRunning:
        from core import offline

        added = offline.allow(place.home, id)
    typer.echo(f"{id} may talk to the bot now" if added else f"{id} was admitted before")


@app.command()
def status(context: typer.Context, as_json: bool = typer.Option(False, "--json", help="For programs.")) -> None:
    """Say how the running gateway fares."""
    from adapters.console.screen import visible

    place: Place = context.obj
    health: dict[str, Any] = place.ask({"verb": "status"})["health"]
    if as_json:
        import json

        typer.echo(json.dumps(health))
        return
    typer.echo(f"tidings {health['version']} in {place.home}, store {visible(health['store'])}")
    for line in _lines_of(health):
        typer.echo(visible(line))


@app.command()
def doctor(context: typer.Context) -> None:
    """Look everything over: settings, home, store and gateway, and what to mend."""
    from adapters.console.screen import visible
    from bots.doctor import Doctor

    place: Place = context.obj
    examined = Doctor(lambda line: typer.echo(visible(line)))
    with examined.examining("settings"):
        loaded = _load(place.home, place.config)
        examined.settings(loaded)
        _run(examined.bots(loaded.bots, os.environ))
        for name, account, findings in _run(_examine_platforms(loaded)):
            examined.platform(f"{name}@{account}", findings)
    examined.home(place.home)
    with examined.examining("store"):
        examined.store(place.home)
    with examined.examining("gateway"):
        try:
            examined.gateway(place.ask({"verb": "status"})["health"])
        except NotRunning:
            examined.ok("gateway", "none runs now; start it with: tidings run")
    raise typer.Exit(int(examined.failed))


@app.command()
def version() -> None:
    """Say which version this is."""
    typer.echo(f"tidings {_version()}")


async def _examine_platforms(loaded: Loaded) -> list[tuple[str, str, list[Finding]]]:
    """What each configured platform itself says of its account."""
    from adapters import catalog

    found = []
    for name, account, section in catalog.configured(loaded.platforms):
        if (examine := catalog.PLATFORMS[name].load_examine()) is not None:
            found.append((name, account, await examine(account, section)))
    return found


async def _serve(home: Path, loaded: Loaded, chats: bool) -> None:
    import asyncio
    import logging
    import signal
    from concurrent.futures import ThreadPoolExecutor

    from adapters.shared import local
    from adapters.shared.server import HttpServer
    from bots import building

    http = _http(loaded)
    staff = building.build(loaded.bots)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def stop_once() -> None:
        stop.set()
        # Whoever asks a second time does not want to wait; the next start resumes what was cut off.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_once)
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="tidings"))
    # The server is outermost: while the gateway drains, whoever is attached still gets the last answers.
    async with (
        local.LocalServer() as server,
        HttpServer(http.host, http.port, connections=http.connections) as listener,
        building.closing(staff.agents.values()),
        _gateway(home, loaded, staff, server, listener) as gateway,
    ):
        with server.routes(local.routes_for(gateway)):
            async with server.serving(home):
                logging.getLogger(__name__).info("the gateway serves in %s", home)
                # Only now: a heavy library must keep nobody from being heard.
                preparing = asyncio.create_task(building.prepare(staff.agents.values()))
                if chats:
                    await _chat_until(stop, home, loaded, gateway)
                else:
                    await stop.wait()
                preparing.cancel()


async def _chat_until(stop: asyncio.Event, home: Path, loaded: Loaded, gateway: Gateway) -> None:
    import asyncio

    from adapters.console import client

    typer.echo(_greeting(home, loaded))
    chat = client.terminal(home, "", _news(gateway))
    tasks = [asyncio.create_task(stop.wait()), asyncio.create_task(chat)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stopping, chatting = tasks
    stopping.cancel()
    if not chatting.done():
        chatting.cancel()
    await asyncio.wait(tasks)
    typer.echo("stopping; what is not finished goes on at the next start")
    if not chatting.cancelled():
        chatting.result()


async def _news(gateway: Gateway) -> AsyncIterator[str]:
    """How the parts fare, whenever that changes: what is in the log only, nobody at the prompt would see."""
    import asyncio

    from adapters.console.screen import visible

    known: dict[str, str] = {}
    while True:
        for part in (await gateway.health()).parts:
            if part.state != known.get(part.name, "up") and part.state != "starting":
                trouble = f": {part.last_error}" if part.last_error and part.state != "up" else ""
                yield visible(f"{part.name} is {part.state}{trouble}")
                known[part.name] = part.state
        await asyncio.sleep(NEWS_SECONDS)


def _greeting(home: Path, loaded: Loaded) -> str:
    from adapters import catalog

    others = [f"{name}@{account}" for name, account, _ in catalog.configured(loaded.platforms) if name != "console"]
    connected = f"  Also at {', '.join(others)}: how they fare says tidings status.\n" if others else ""
    hint = "" if others else "  To connect Telegram, set TIDINGS_TELEGRAM__TOKEN to the token BotFather gives you.\n"
    return f"""\
Tidings {_version()}: {loaded.bot.called} listens here. Everything is kept in {home}, the log in tidings.log there.
  Say hi, or /help. Ctrl-D or /quit stops the gateway; from another terminal talk with: tidings chat
{connected}{hint}\
  {_who_answers(loaded)}
"""


def _who_answers(loaded: Loaded) -> str:
    others = list(loaded.bots)[1:]
    beside = f" Other bots: {', '.join(others)}." if others else ""
    if loaded.bot.chosen_agent == "assistant":
        return f"{loaded.bot.model} answers; /model says which others can.{beside}"
    if loaded.bot.agent:
        return f"{loaded.bot.agent} answers.{beside}"
    return f"To let a model answer, set TIDINGS_BOT__MODEL=openai:gpt-5-mini and OPENAI_API_KEY to your key.{beside}"


def _http(loaded: Loaded) -> HttpSettings:
    return cast("HttpSettings", loaded.platforms["http"])


def _with_key(home: Path, http: HttpSettings) -> HttpSettings:
    """The owner's key is made at the first start and told once; nobody serves the API without one."""
    from pydantic import SecretStr

    from adapters.api import keys
    from core import redaction

    if http.key.get_secret_value() or not http.enabled:
        return http
    secret = keys.read_own(home)
    if secret is None:
        secret = keys.make_own(home)
        _tell(f"the key of the HTTP API is {secret}; it is told only now, and kept in {home / keys.FILE}")
    redaction.remember(secret)
    return http.model_copy(update={"key": SecretStr(secret)})


def _gateway(home: Path, loaded: Loaded, staff: Staff, server: LocalServer, listener: HttpServer) -> Gateway:
    from adapters import catalog
    from bots.assistant.commands import commands
    from core.adapter import Platform
    from core.gateway import Gateway
    from core.inbound.dispatcher import Bots

    platforms = []
    for name, account, section in catalog.configured(loaded.platforms):
        # Where no name was chosen for a platform, the bot is called there as it is called everywhere.
        if getattr(section, "name", None) == "":
            section = section.model_copy(update={"name": loaded.bot.called})
        if name == "api":
            section = _with_key(home, _http(loaded))
        build = partial(catalog.PLATFORMS[name].load_adapter(), account, section)
        platforms.append(Platform(name, account, build))
    default = loaded.bot.called
    find = Bots(staff.agents, default, loaded.core.rules).find
    obeyed = commands(find, loaded.bots)
    return Gateway(home, loaded.core, platforms, staff.agents, default, server, listener, staff.kinds, obeyed)


def _ask(home: Path, question: dict[str, Any]) -> dict[str, Any]:
    from adapters.shared import local

    return _run(local.call(home, question))


def _ask_keys(home: Path, config: Path | None, question: dict[str, Any]) -> dict[str, Any]:
    """A running gateway is asked; else the store is opened for a moment."""
    from adapters.api import keys

    try:
        return _ask(home, {"verb": "key", **question})
    except Unrouted:
        away = "the gateway runs, but its HTTP API is off or not up: tidings status says more"
        raise TidingsError(f"{away}; keys can also be changed while no gateway runs") from None
    except NotRunning:
        from core import offline

        owner = _http(_load(home, config)).key.get_secret_value() or keys.read_own(home) or ""
        with offline.open_notebook(home, "api", "main") as notebook:
            return _run(keys.change(keys.Keys(notebook, owner), question, time.time()))


def _load(home: Path, config: Path | None) -> Loaded:
    from adapters import catalog
    from bots import settings
    from core import redaction

    loaded = settings.load(catalog.sections(), home, config, os.environ)
    redaction.remember(*loaded.secrets)
    return loaded


def _lines_of(health: dict[str, Any]) -> list[str]:
    import time

    lines = []
    for part in health["parts"]:
        trouble = f", {part['restarts']} restarts, last: {part['last_error']}" if part["last_error"] else ""
        lines.append(f"  {part['name']:<20} {part['state']}{trouble}")
    owed = ", ".join(f"{count} {state}" for state, count in sorted(health["deliveries"].items()))
    lines.append(f"  running {health['running']}, queued {health['queued']}; owed: {owed or 'nothing'}")
    for alarm in health["alarms"]:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(alarm["at"]))
        lines.append(f"  alarm {alarm['name']}: {alarm['count']} times, last at {at}: {alarm['last']}")
    return lines


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("tidings")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _tell(sentence: str) -> None:
    typer.echo(f"tidings: {sentence}", err=True)


if __name__ == "__main__":
    main()
