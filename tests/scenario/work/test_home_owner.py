"""A home has one owner: nobody else writes there, root least of all; and what is not ours is named in one line."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidings.core.errors import ConfigError
from tidings.core.operations import offline
from tidings.core.settings import Access
from tidings.core.store.lock import HomeLock, check_owner

ROOT = Path(__file__).resolve().parents[3]
SOMEBODY = 1234
# Everything is imported before the rights are given away: somebody may not be able to read the program itself.
AS_SOMEBODY = """
import os, sys
from pathlib import Path
from tidings.core.errors import TidingsError
from tidings.core.store.lock import HomeLock

os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
try:
    HomeLock(Path(sys.argv[1])).take()
    Path(sys.argv[1], "tidings.db").touch()
except TidingsError as error:
    print(f"{type(error).__name__}: {error}", end="")
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")


def as_somebody(home: Path, uid: int = SOMEBODY) -> str:
    code = [sys.executable, "-c", AS_SOMEBODY, str(home), str(uid)]
    return subprocess.run(code, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def volume() -> Iterator[Path]:
    """As in the image: everybody may make a folder of their own in it. Not in pytest's folder, which is its owner's."""
    folder = Path(tempfile.mkdtemp(prefix="tidings-volume-")).resolve()
    folder.chmod(0o1777)
    if not all(above.stat().st_mode & 0o001 for above in folder.parents):
        shutil.rmtree(folder)
        pytest.skip(f"nobody else can enter {folder.parent}")
    yield folder
    shutil.rmtree(folder)


def write_into(home: Path) -> None:
    """As every command does that changes something while no gateway runs."""
    with offline.open_people(home, Access()):
        pass


@needs_root
def test_any_uid_can_start_in_an_empty_volume_and_again(volume: Path) -> None:
    """E4: `docker run --user 1234 -v vol` works at the first start, and at the second."""
    for _ in range(2):
        assert as_somebody(volume / "home") == ""
    assert {path.stat().st_uid for path in (volume / "home").iterdir()} == {SOMEBODY}


@needs_root
def test_root_writes_nothing_into_the_home_of_somebody_else(volume: Path) -> None:
    home = volume / "home"
    as_somebody(home)
    before = sorted((path.name, path.stat().st_uid, path.stat().st_mtime_ns) for path in home.iterdir())
    with pytest.raises(ConfigError) as refusal:
        write_into(home)
    assert str(refusal.value) == (
        f"the home {home} belongs to uid 1234, and this is root (uid 0), whose files the owner could not read;"
        " run this as the owner (sudo -u '#1234' tidings …; in a container docker exec --user 1234 …)"
        f" or change the owner: chown -R 0 {home}"
    )
    assert sorted((path.name, path.stat().st_uid, path.stat().st_mtime_ns) for path in home.iterdir()) == before


@needs_root
def test_root_does_not_even_begin_in_an_empty_folder_of_somebody_else(volume: Path) -> None:
    home = volume / "home"
    home.mkdir()
    os.chown(home, SOMEBODY, SOMEBODY)
    with pytest.raises(ConfigError, match="belongs to uid 1234"):
        HomeLock(home).take()
    assert list(home.iterdir()) == []


def test_whoever_owns_a_home_may_use_it_root_too(tmp_path: Path) -> None:
    write_into(tmp_path / "home")
    check_owner(tmp_path / "home")
    write_into(tmp_path / "home")
    assert {path.stat().st_uid for path in (tmp_path / "home").iterdir()} == {os.geteuid()}


@needs_root
def test_a_folder_of_roots_that_somebody_may_write_is_theirs_once_they_have(volume: Path) -> None:
    """As volumes are mounted for a group: the folder stays root's, and all in it is the process's."""
    assert as_somebody(volume) == ""
    with pytest.raises(ConfigError, match="belongs to uid 1234"):
        write_into(volume)


@needs_root
def test_another_uid_is_told_whose_home_it_is(volume: Path) -> None:
    as_somebody(volume / "home")
    said = as_somebody(volume / "home", 4321)
    assert said == (
        f"ConfigError: the home {volume / 'home'} cannot be written (Permission denied); fix its permissions"
        f" ({volume / 'home'} belongs to uid 1234, and this is uid 4321: as root, chown -R 4321 {volume / 'home'}),"
        " or choose another with --home or TIDINGS_HOME"
    )


@needs_root
def test_a_mount_that_only_root_may_write_is_named_with_its_owner(volume: Path) -> None:
    volume.chmod(0o755)
    said = as_somebody(volume / "home")
    assert f"({volume} belongs to root (uid 0), and this is uid 1234: as root, chown -R 1234 {volume})" in said


@needs_root
@pytest.mark.parametrize("name", ["tidings.db", "api.key", "tidings.toml"])
def test_one_file_that_cannot_be_read_is_named_with_its_owner_and_what_to_do(volume: Path, name: str) -> None:
    home = volume / "home"
    as_somebody(home)
    (home / name).touch()
    os.chown(home / name, 0, 0)
    (home / name).chmod(0o600)
    assert as_somebody(home) == (
        f"ConfigError: {home / name} belongs to root (uid 0) and cannot be used by uid 1234;"
        f" give it back, as root: chown -R 1234 {home}"
    )


@needs_root
def test_settings_that_root_has_put_there_for_all_to_read_do_no_harm(volume: Path) -> None:
    home = volume / "home"
    as_somebody(home)
    (home / "tidings.toml").write_text("[log]\n")
    (home / "tidings.toml").chmod(0o644)
    assert as_somebody(home) == ""
