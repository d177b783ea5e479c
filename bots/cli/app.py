"""The command line: registers every command, and turns an error into one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from tidings.bots.cli import (
    approvals,
    audit,
    backup,
    board,
    config,
    deliveries,
    doctor,
    init,
    keys,
    notify,
    people,
    reload,
    schedules,
    service,
    status,
    usage,
)
from tidings.bots.cli.context import Place
from tidings.core.errors import ConfigError, TidingsError

USAGE = 64
# By name, so that the modules of these errors need not be imported.
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
# How long a chat from a pipe waits without any news.
PIPE_SECONDS = 120.0

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


def main(place_at: Callable[[Path, Path | None], Place]) -> None:
    """Runs the command line; a known error is one line, never a traceback."""
    try:
        app(prog_name="tidings", obj=place_at)
    except TidingsError as error:
        tell(str(error))
        names = [kind.__name__ for kind in type(error).__mro__]
        sys.exit(next((EXIT_CODES[name] for name in names if name in EXIT_CODES), 1))
    except SystemExit as end:
        # The parser exits with 2 for a wrong command line; ours is the code from sysexits.
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
    context.obj = context.obj(folder, chosen)


@app.command()
def run(
    context: typer.Context,
    no_chat: bool = typer.Option(False, "--no-chat", help="Do not open a chat in the terminal."),
) -> None:
    """Start the gateway. In a terminal you can talk to the bot at once; otherwise it serves until SIGTERM."""
    place: Place = context.obj
    place.serve(place, chats=_is_terminal() and not no_chat)


@app.command()
def chat(
    context: typer.Context,
    thread: str = typer.Option("", help="Talk in a thread of its own."),
    timeout: float = typer.Option(
        PIPE_SECONDS, min=0.1, help="From a pipe: give up after so many seconds without any news."
    ),
) -> None:
    """Talk to the bot. From a pipe, each line is a message: echo hi | tidings chat."""
    place: Place = context.obj
    if not place.talk(thread, None if _is_terminal() else timeout):
        raise typer.Exit(1)


@app.command()
def version() -> None:
    """Show the version."""
    typer.echo(f"tidings {own_version()}")


app.add_typer(people.app, name="people")
app.add_typer(approvals.app, name="approvals")
app.command()(audit.audit)
app.command("init")(init.init)
app.command("status")(status.status)
app.command("usage")(usage.usage)
app.command("doctor")(doctor.doctor)
app.command()(notify.notify)
app.command()(notify.home)
app.add_typer(keys.app, name="key")
app.add_typer(service.app, name="service")
app.add_typer(deliveries.app, name="deliveries")
app.command()(backup.backup)
app.command()(backup.restore)
app.command()(backup.prune)
app.add_typer(config.app, name="config")
app.add_typer(schedules.app, name="schedule")
app.add_typer(board.app, name="board")
app.command()(reload.reload)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def own_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("tidings")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def tell(sentence: str) -> None:
    typer.echo(f"tidings: {sentence}", err=True)
