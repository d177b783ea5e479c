"""A task that nothing awaits is held by a Background: no module keeps a set of its own and discards from it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [file for folder in ("core", "adapters", "bots") for file in sorted((ROOT / folder).rglob("*.py"))]


def discards(source: str) -> Iterator[int]:
    """The lines at which an ended task is only discarded."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="add_done_callback"), args=[ast.Attribute(attr="discard" | "remove"), *_]
            ):
                yield node.lineno


def test_no_module_only_discards_its_tasks() -> None:
    found = {str(file.relative_to(ROOT)): [*discards(file.read_text(encoding="utf-8"))] for file in SOURCES}
    assert {file: lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("task.add_done_callback(self._tasks.discard)", [1]),
        ("x = 1\nbegin().add_done_callback(tasks.remove)", [2]),
        ("task.add_done_callback(lambda done: self._ended(lane, done))", []),
    ],
)
def test_a_discarded_task_is_found(source: str, lines: list[int]) -> None:
    assert list(discards(source)) == lines
