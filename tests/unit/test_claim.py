"""The locks of tokens lie in a folder that is ours alone: whoever comes first to a shared one cannot lead us astray."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidings.adapters.shared.token_lock import claim
from tidings.core.errors import Misconfigured, StandingBy


def lock(folder: Path) -> list[str]:
    with claim("paper", "https://example.org", "secret", folder):
        return os.listdir(folder / f"tidings-{os.getuid()}")


def test_a_token_has_one_holder_at_a_time(tmp_path: Path) -> None:
    with claim("paper", "https://example.org", "secret", tmp_path), pytest.raises(StandingBy, match="process"):
        lock(tmp_path)
    (name,) = lock(tmp_path)
    assert "secret" not in name
    assert (tmp_path / f"tidings-{os.getuid()}").stat().st_mode & 0o777 == 0o700


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    ours = tmp_path / "elsewhere"
    ours.mkdir(mode=0o700)
    (tmp_path / f"tidings-{os.getuid()}").symlink_to(ours)

    with pytest.raises(Misconfigured, match="cannot be used for locks"):
        lock(tmp_path)
    assert list(ours.iterdir()) == []


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    shared = tmp_path / f"tidings-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)

    with pytest.raises(Misconfigured, match="is writable by other users"):
        lock(tmp_path)
    assert list(shared.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    theirs = tmp_path / f"tidings-{os.getuid()}"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 12345, 12345)

    with pytest.raises(Misconfigured, match="belongs to another user"):
        lock(tmp_path)
