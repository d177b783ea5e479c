"""Backs up, restores and trims the store: `tidings backup`, `tidings restore` and `tidings prune`."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import typer

from tidings.bots.cli.context import Place
from tidings.core.errors import NotRunning

if TYPE_CHECKING:
    from tidings.core.operations.restore import Restored

UNITS = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
# Names that ask for compression; a fast level, because a person is waiting.
PRESSED = (".gz", ".tgz")
FAST = 4
# How many of the files that were left out are named.
NAMED = 3


def backup(
    context: typer.Context,
    file: str = typer.Argument(metavar="FILE", help="Where to; a name in .gz takes less room, - is standard output."),
    force: bool = typer.Option(False, "--force", help="Overwrite a file that is there."),
    essential: bool = typer.Option(
        False, "--essential", help="Of attachments and workspaces, take only what open work refers to."
    ),
) -> None:
    """Write everything that another machine needs to go on into one file, also while the gateway runs.

    It holds the store, attachments, workspaces, keys and settings, but not the log. Anyone who can read it can speak
    as the bot: keep it safe. Messages that arrive after the copy are not in it.
    """
    from tidings.core.operations import backup as archive

    place: Place = context.obj
    settings = place.config or place.home / archive.SETTINGS
    version = _version()
    named, warnings = _named_by(settings)
    with _copied(place) as (snapshot, running), _opened(file, force=force) as stream:
        made = time.time()
        packed = archive.pack(
            place.home,
            snapshot,
            settings,
            stream,
            version=version,
            made=made,
            running=running,
            essential=essential,
            named=named,
        )
    for warning in warnings:
        _tell(f"warning: {warning}")
    for line in packed.skipped[:NAMED]:
        _tell(f"left out {line}")
    if len(packed.skipped) > NAMED:
        _tell(f"left out {len(packed.skipped) - NAMED} more")
    how = "while the gateway runs" if running else "while no gateway runs"
    _tell(f"backed up {how}: {packed.files} files, {packed.bytes / 1e6:.1f} MB, with keys in it; keep it safe")


def restore(
    context: typer.Context,
    file: Path = typer.Argument(metavar="FILE", help="A backup."),
    move_aside: bool = typer.Option(
        False, "--move-aside", help="Keep the store that is there in a folder of its own, and take its place."
    ),
) -> None:
    """Put a backup into the home while no gateway runs; the next start continues from it.

    Sends that were under way when the backup was made are settled by asking the platforms. Never run the old gateway
    again: two of them would both answer.
    """
    from tidings.core.operations import restore as restoring

    place: Place = context.obj
    restored = restoring.restore(file.expanduser(), place.home, move_aside=move_aside)
    for line in _told(place.home, restored):
        typer.echo(line)


def prune(
    context: typer.Context,
    older_than: str = typer.Option(
        "", metavar="30d", help="Take this age for all but history and cards, instead of the settings; at least 72h."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Only say what would go."),
) -> None:
    """Remove old data that is no longer needed: journals, runs, deliveries and attachments, as [retention] says.

    A running gateway does this once a day. The freed space is used again; without a running gateway, it is
    given back to the disk.
    """
    place: Place = context.obj
    seconds = _seconds(older_than)
    try:
        pruned = place.ask({"verb": "prune", "older_than": seconds, "dry_run": dry_run})["pruned"]
        running = True
    except NotRunning:
        pruned, running = _prune_at_rest(place, seconds, dry_run), False
    typer.echo(f"{'would go' if dry_run else 'gone'}: {_counted(pruned)}")
    if pruned["spare_bytes"] and not dry_run:
        spare = f"{pruned['spare_bytes'] / 1e6:.1f} MB of the store are free and will be used again"
        typer.echo(f"{spare}; to give them back, stop the gateway and prune once more" if running else spare)


def _prune_at_rest(place: Place, seconds: float | None, dry_run: bool) -> dict[str, Any]:
    import msgspec

    from tidings.core.operations import offline

    pruned = offline.prune(place.home, place.load({}).core.retention, seconds, rehearsal=dry_run)
    built: dict[str, Any] = msgspec.to_builtins(pruned)
    return built


def _counted(pruned: dict[str, Any]) -> str:
    from tidings.core.desk.deliveries import Pruned
    from tidings.core.operations import retention

    return retention.describe(Pruned(**pruned))


def _seconds(age: str) -> float | None:
    from tidings.core.operations.retention import SHORTEST_SECONDS

    if not age:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([hdw])", age.strip())
    if match is None:
        raise typer.BadParameter(f"{age!r} is no age; write 30d, 12w or 96h")
    seconds = float(match[1]) * UNITS[match[2]]
    if seconds < SHORTEST_SECONDS:
        raise typer.BadParameter(f"{age} is too short: what a platform may tell again must be known for 72h")
    return seconds


@contextmanager
def _copied(place: Place) -> Iterator[tuple[Path, bool]]:
    """A copy of the store, and whether a running gateway made it."""
    from tidings.core.operations import offline

    try:
        snapshot = Path(place.ask({"verb": "snapshot"})["snapshot"])
    except NotRunning:
        with offline.copied(place.home) as copy:
            yield copy, False
        return
    try:
        yield snapshot, True
    finally:
        snapshot.unlink(missing_ok=True)


@contextmanager
def _opened(file: str, *, force: bool) -> Iterator[IO[bytes]]:
    from tidings.core.operations import backup as archive

    if file == "-":
        if sys.stdout.isatty():
            raise typer.BadParameter("a backup is no text for a terminal; name a file")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with archive.written(Path(file).expanduser().absolute(), replace=force) as stream:
        if not file.endswith(PRESSED):
            yield stream
            return
        import gzip

        with gzip.GzipFile(fileobj=stream, mode="wb", filename="", compresslevel=FAST) as pressed:
            yield cast("IO[bytes]", pressed)


def _told(home: Path, restored: Restored) -> Iterator[str]:
    manifest = restored.manifest
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.made))
    yield f"{home} is as it was on {made}: {restored.files} files, made by tidings {manifest.version}"
    if restored.aside:
        yield f"what was there before is in {restored.aside}"
    for path in restored.beside:
        yield f"{path.name.removesuffix('.restored')} was there and stays; the one of the backup is {path.name}"
    if restored.runs or restored.owed:
        doubt = f", {restored.doubtful} of which may have arrived" if restored.doubtful else ""
        yield f"it goes on with {restored.runs} messages and {restored.owed} deliveries{doubt}"
    if manifest.running and (restored.runs or restored.owed):
        yield "if the old gateway went on after the backup, it may have answered these already"
    yield "look it over with: tidings doctor; then start it with: tidings run"


def _named_by(file: Path) -> tuple[list[str], list[str]]:
    """The files that the settings name, as paths below the settings; and warnings about those outside."""
    from tidings.bots.app import roster, settings
    from tidings.core.errors import ConfigError
    from tidings.core.operations import backup as archive

    folder, named, warnings = file.absolute().parent, [], []
    try:
        texts = settings.read(file, must_exist=False)
        plain, secret = settings.parse(file, texts.tidings), settings.parse(file, texts.secrets)
    except ConfigError as error:
        # A backup must also work for a home that cannot start.
        return [], [f"what the settings name was not looked for: {error}"]
    for written in dict.fromkeys(roster.files_named(settings.merged(plain, secret))):
        path = Path(os.path.normpath(folder / os.path.expanduser(written)))
        name = os.path.relpath(path, folder)
        if not archive.may_lie_below(name):
            warnings.append(f"{path} is not in it, and the settings name it: copy it yourself, to the same place")
            continue
        named.append(name)
        if path != Path(os.path.normpath(folder / written)) or Path(written).is_absolute():
            warnings.append(f"the settings name {path} by its whole path: restored elsewhere, let them name {name}")
    return named, warnings


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("tidings")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _tell(sentence: str) -> None:
    typer.echo(f"tidings: {sentence}", err=True)
