"""ARCHITECTURE.md holds the map that `make map` would write now."""

from pathlib import Path

import pytest

from tests.sources import ROOT
from tests.tidy import map


def test_the_map_is_what_the_tree_says() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert text == map.write(text), "the map is out of date: run `make map`"


def test_a_new_file_changes_the_map(tmp_path: Path) -> None:
    for package in map.PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text('"""A room."""\n')
    assert "clock.py" not in map.drawn(tmp_path)
    (tmp_path / "core" / "clock.py").write_text('"""Time that never jumps. More about it."""\n')
    lines = [line.split(maxsplit=1) for line in map.drawn(tmp_path).splitlines()]
    assert lines[:2] == [["core/", "A room."], ["clock.py", "Time that never jumps."]]


def test_no_line_of_the_map_is_too_long(tmp_path: Path) -> None:
    for package in map.PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f'"""{"word " * 60}end."""\n')
    lines = map.drawn(tmp_path).splitlines()
    assert all(len(line) <= map.COLUMNS and line.endswith("word…") for line in lines)


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="markers"):
        map.write("# Architecture\n")
