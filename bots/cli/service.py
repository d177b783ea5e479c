"""Lets systemd keep the gateway running: `tidings service` installs the unit, removes it and shows its state."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import typer

from tidings.bots.cli.context import Place
from tidings.bots.cli.unit import Unit
from tidings.core.errors import ConfigError, TidingsError

NAME = "tidings.service"
SYSTEM_FOLDER = Path("/etc/systemd/system")
SYSTEM_HOME = Path("/var/lib/tidings")
# The time limit of a call to systemctl; a start may take minutes.
SECONDS = 330

app = typer.Typer(
    help="Let systemd keep the gateway running: after a crash, after a reboot, and when it is stuck.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
SYSTEM = typer.Option(False, "--system", help="For the whole machine, as root; else for you alone.")
USER = typer.Option("tidings", "--user", metavar="NAME", help="With --system: who runs it.")
FORCE = typer.Option(False, "--force", help="Also where the unit was changed by hand; that one is kept beside it.")
FOLDER = typer.Option(None, "--folder", hidden=True, help="Where units lie.")


class Site(NamedTuple):
    """The path of the unit, and its text."""

    file: Path
    unit: Unit
    is_system: bool

    @property
    def control(self) -> list[str]:
        return ["systemctl"] if self.is_system else ["systemctl", "--user"]

    def words(self, *arguments: str) -> str:
        return " ".join([*(["sudo"] if self.is_system else []), *self.control, *arguments])


@app.command("install")
def install(
    context: typer.Context,
    system: bool = SYSTEM,
    user: str = USER,
    force: bool = FORCE,
    start: bool = typer.Option(True, help="Whether to start it now, too."),
    folder: Path | None = FOLDER,
) -> None:
    """Write the unit, and start the gateway now and at every boot.

    A unit that was changed by hand is never overwritten: you see the difference first, and --force keeps a copy.
    """
    site = _site(context, system, user, folder)
    _write(site, force)
    if not start:
        typer.echo(f"start it with: {site.words('enable', '--now', NAME)}")
    elif _control(
        site, ["daemon-reload"], ["enable", NAME], ["restart", NAME], at_last=partial(_make_room, context.obj, site)
    ):
        typer.echo("the gateway runs, and will start at every boot; see its state with: tidings service status")
    if not system:
        typer.echo("to keep it running while you are logged out, run once: loginctl enable-linger")


@app.command("remove")
def remove(
    context: typer.Context,
    system: bool = SYSTEM,
    user: str = USER,
    force: bool = FORCE,
    folder: Path | None = FOLDER,
) -> None:
    """Stop the gateway and remove the unit; the home stays as it is."""
    site = _site(context, system, user, folder)
    written = _read(site.file)
    if written is None:
        typer.echo(f"there is no {site.file}")
        return
    if written != str(site.unit):
        _refuse_changed(site, written, force)
        _keep(site.file)
    again = f"then run again: tidings service remove{' --system' if system else ''}; until then the unit stays"
    _control(site, ["disable", "--now", NAME], again=again)
    try:
        site.file.unlink()
    except OSError as error:
        raise TidingsError(f"{site.file} cannot be removed: {error.strerror}") from error
    _control(site, ["daemon-reload"])
    typer.echo(f"{site.file} is gone; everything that was kept is still in {site.unit.home}")


@app.command("status")
def status(context: typer.Context, system: bool = SYSTEM, user: str = USER, folder: Path | None = FOLDER) -> None:
    """Show whether systemd keeps the gateway running. The exit code is 0 only if it runs."""
    site = _site(context, system, user, folder)
    written = _read(site.file)
    if written is None:
        typer.echo(f"there is no {site.file}; write it with: tidings service install{' --system' if system else ''}")
        raise typer.Exit(1)
    changed = "" if written == str(site.unit) else ", which differs from what install would write now"
    typer.echo(f"the unit is {site.file}{changed}")
    told = _shown(site)
    if told is None:
        typer.echo("whether it runs is unknown: systemctl is not installed here, or does not answer")
        raise typer.Exit(1)
    restarts = f", restarted {told['NRestarts']} times" if told.get("NRestarts", "0") != "0" else ""
    typer.echo(
        f"systemd says {told.get('ActiveState')} ({told.get('SubState')}), {told.get('UnitFileState')}{restarts}"
    )
    if text := told.get("StatusText"):
        typer.echo(f"the gateway says: {text}")
    if told.get("ActiveState") != "active":
        typer.echo(f"to see why: {'sudo ' if system else ''}journalctl {'-u' if system else '--user -u'} {NAME} -n 50")
        raise typer.Exit(1)


def _site(context: typer.Context, system: bool, user: str, folder: Path | None) -> Site:
    place: Place = context.obj
    if os.geteuid() == 0 and not system and folder is None:
        raise TidingsError(
            "a bot should not run as root: let it run as its own user with --system, or run this as yourself"
        )
    environment = {"TIDINGS_CONFIG": str(place.config)} if place.config else {}
    if not system:
        above = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
        unit = Unit(_command(), place.home, environment=environment)
        return Site((folder or above / "systemd" / "user") / NAME, unit, is_system=False)
    _check_user(user)
    # Root's own home is the wrong default for another user, so only a home that was named counts.
    home = place.home if context.find_root().params.get("home") else SYSTEM_HOME
    if home.parent != SYSTEM_HOME.parent and not home.is_dir():
        raise ConfigError(f"the home {home} is missing: make it with: install -d -m 700 -o {user} {home}")
    unit = Unit(_command(), home, user, environment)
    return Site((folder or SYSTEM_FOLDER) / NAME, unit, is_system=True)


def _check_user(user: str) -> None:
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        make = f"useradd --system --home-dir {SYSTEM_HOME} --shell /usr/sbin/nologin {user}"
        raise ConfigError(f"there is no user {user}: make one with: {make}") from None
    if uid == 0:
        raise ConfigError("a bot should not run as root: name another with --user")


def _command() -> tuple[str, ...]:
    """The command that started this program, so that the unit starts the same one."""
    called = Path(sys.argv[0])
    if called.name == "tidings" and called.is_file():
        return (str(called.absolute()),)
    return (sys.executable, "-m", "tidings.bots.main")


def _write(site: Site, force: bool) -> None:
    written, text = _read(site.file), str(site.unit)
    if written == text:
        typer.echo(f"{site.file} is as it should be")
        return
    if written is not None:
        _refuse_changed(site, written, force)
        _keep(site.file)
    try:
        site.file.parent.mkdir(parents=True, exist_ok=True)
        # Readers see either the old unit or the new one, never half of it.
        fresh = site.file.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o644)
        fresh.replace(site.file)
    except OSError as error:
        as_root = "; run it as root" if site.is_system and os.geteuid() != 0 else ""
        raise TidingsError(f"{site.file} cannot be written: {error.strerror}{as_root}") from error
    typer.echo(f"{site.file} is written")


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise TidingsError(f"{file} cannot be read: {getattr(error, 'strerror', 'it is no text')}") from error


def _refuse_changed(site: Site, written: str, force: bool) -> None:
    import difflib

    if force:
        return
    lines = difflib.unified_diff(
        written.splitlines(), str(site.unit).splitlines(), "as it is", "as it would be", lineterm="", n=1
    )
    for line in lines:
        typer.echo(line)
    raise TidingsError(
        f"{site.file} is not as it would be written now (above); nothing was changed. Go on with --force, which keeps"
        f" a copy, or leave it and put changes of your own into: {site.words('edit', NAME)}"
    )


def _keep(file: Path) -> None:
    """Keeps a copy of a unit that was changed by hand, under a free name."""
    kept = next(path for path in _copies(file) if not path.exists())
    try:
        shutil.copy2(file, kept)
    except OSError as error:
        raise TidingsError(f"{kept} cannot be written: {error.strerror}; nothing was changed") from error
    typer.echo(f"the unit as it was is kept in {kept}")


def _copies(file: Path) -> Iterable[Path]:
    return (file.with_name(f"{file.name}.{number}.kept") for number in range(1, sys.maxsize))


def _make_room(place: Place, site: Site) -> None:
    """Stops a gateway that was started by hand or by `init`: it would keep the unit's own out of the home."""
    from tidings.bots.cli import launch

    if site.unit.home != place.home or not launch.is_running(place) or launch.service_order(place):
        return
    number = launch.stop(place)
    typer.echo(f"stopped process {number}, which ran here until now; its unfinished work continues")


def _control(site: Site, *orders: list[str], at_last: Callable[[], None] | None = None, again: str = "") -> bool:
    """Runs systemctl; if it is missing or refuses, shows the commands that are left to run.

    `at_last` runs before the last command; `again` is shown after them if systemctl refuses.
    """
    if shutil.which("systemctl") is None:
        typer.echo("systemctl is not installed here, so systemd was not told; where it is installed, run:")
        for order in orders:
            typer.echo(f"  {site.words(*order)}")
        return False
    for number, order in enumerate(orders):
        if at_last is not None and number == len(orders) - 1:
            at_last()
        ended = _call(site, order)
        if ended.returncode:
            reason = " ".join(ended.stderr.split()) or f"it ended with {ended.returncode}"
            typer.echo(f"{site.words(*order)} did not work: {reason}; fix that, then run:")
            for left in orders[number:]:
                typer.echo(f"  {site.words(*left)}")
            if again:
                typer.echo(again)
            raise typer.Exit(1)
    return True


def _shown(site: Site) -> dict[str, str] | None:
    if shutil.which("systemctl") is None:
        return None
    names = "ActiveState,SubState,UnitFileState,NRestarts,StatusText"
    ended = _call(site, ["show", NAME, f"--property={names}"])
    if ended.returncode:
        return None
    return dict(line.split("=", 1) for line in ended.stdout.splitlines() if "=" in line)


def _call(site: Site, order: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([*site.control, *order], capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise TidingsError(f"{site.words(*order)} has not ended in {SECONDS} s") from None
