"""No constructor of the product takes more than seven parameters: parts are handed over in bundles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.sources import ROOT

MOST_PARAMETERS = 7


def constructors(text: str) -> Iterator[tuple[str, int]]:
    """Each class that writes its own constructor, with the number of parameters beside `self`."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ClassDef):
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                named = (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs)
                yield node.name, len(named) - 1


def wide(root: Path) -> dict[str, int]:
    found = {}
    for package in ("core", "adapters", "bots"):
        for path in sorted((root / package).rglob("*.py")):
            for name, parameters in constructors(path.read_text(encoding="utf-8")):
                if parameters > MOST_PARAMETERS:
                    found[f"{path.relative_to(root)}: {name}"] = parameters
    return found


def test_no_constructor_takes_more_than_seven_parameters() -> None:
    assert wide(ROOT) == {}


def test_a_wide_constructor_is_found(tmp_path: Path) -> None:
    for package in ("core", "adapters", "bots"):
        (tmp_path / package).mkdir()
    (tmp_path / "core" / "office.py").write_text(
        "class Office:\n    def __init__(self, a, b, c, d, *, e, f, g, h):\n        pass\n"
        "class Desk:\n    def __init__(self, a, b, c, d, *, e, f, g):\n        pass\n"
    )
    assert wide(tmp_path) == {"core/office.py: Office": 8}
