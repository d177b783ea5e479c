"""The log of a gateway that was started by hand or by `tidings init`: it does not grow for ever."""

from pathlib import Path

import pytest

from tidings.bots.cli import launch
from tidings.core.errors import HomeInUse
from tidings.core.store.lock import HomeLock


def grown(home: Path, size: int) -> Path:
    log = home / launch.LOG
    with log.open("wb") as file:
        file.truncate(size)
    return log


def test_a_log_that_has_grown_large_is_kept_once_beside_a_new_one(tmp_path: Path) -> None:
    log = grown(tmp_path, launch.LOG_BYTES + 1)
    (tmp_path / "tidings.log.1").write_text("of the time before")
    assert launch.fresh_log(tmp_path) == log
    assert not log.exists()
    assert (tmp_path / "tidings.log.1").stat().st_size == launch.LOG_BYTES + 1


def test_a_log_of_usual_size_is_written_on(tmp_path: Path) -> None:
    assert launch.fresh_log(tmp_path).exists() is False
    log = grown(tmp_path, launch.LOG_BYTES)
    assert launch.fresh_log(tmp_path) == log
    assert log.exists()


def test_the_log_of_a_gateway_that_runs_stays_where_it_is_looked_for(tmp_path: Path) -> None:
    log = grown(tmp_path, launch.LOG_BYTES + 1)
    lock = HomeLock(tmp_path)
    lock.take()
    with pytest.raises(HomeInUse):
        launch.fresh_log(tmp_path)
    lock.release()
    assert log.exists()
