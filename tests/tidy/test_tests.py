"""Every test can fail, and no test patches the product: a constructor or a setting gives what a test needs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each raises when something is not so; those of a wait raise when its time is up.
CHECKING = frozenset(
    {
        "raises",
        "warns",
        "fail",
        "until",
        "eventually",
        "advance_until",
        "next",
        "answers",
        "run_state_machine_as_test",
    }
)
# A mutant is a seeded bug: its whole point is to change the product.
MUTANTS = Path("tests/chaos/mutation_seams.py")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        yield path.relative_to(ROOT), ast.parse(path.read_text())


def functions(module: ast.Module) -> Iterator[Function]:
    for node in ast.walk(module):
        if isinstance(node, Function):
            yield node


def called(node: ast.AST) -> Iterator[str]:
    """The last word of every call: `world.until(...)` calls until."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            yield ast.unparse(each.func).rpartition(".")[2]


def unchecked(module: ast.Module) -> list[str]:
    """The tests that neither assert nor call a function that checks, of those above or of their own module."""
    checking = set(CHECKING)
    while found := {each.name for each in functions(module) if _checks(each, checking)} - checking:
        checking |= found
    return [each.name for each in functions(module) if each.name.startswith("test_") and each.name not in checking]


def _checks(function: Function, checking: set[str]) -> bool:
    return any(isinstance(each, ast.Assert) for each in ast.walk(function)) or not checking.isdisjoint(called(function))


def patches(module: ast.Module) -> list[str]:
    """Every place that replaces an attribute of a module, a class or an object by name."""
    return [
        f"{each.lineno}: {ast.unparse(each)}"
        for each in ast.walk(module)
        if isinstance(each, ast.Call) and ast.unparse(each.func).rpartition(".")[2] in ("setattr", "setitem", "delattr")
    ]


def test_every_test_checks_something() -> None:
    assert {str(path): names for path, module in modules() if (names := unchecked(module))} == {}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def test_a():\n    work()", ["test_a"]),
        ("async def test_a():\n    await world.start()", ["test_a"]),
        ("def test_a():\n    assert work()", []),
        ("async def test_a():\n    await world.until(lambda: True)", []),
        ("def test_a():\n    with pytest.raises(ValueError):\n        work()", []),
        ("def look():\n    assert work()\ndef see():\n    look()\ndef test_a():\n    see()", []),
        ("def look():\n    work()\ndef test_a():\n    look()", ["test_a"]),
        ("class TestIt:\n    def test_a(self):\n        work()", ["test_a"]),
    ],
)
def test_a_test_that_checks_nothing_is_found(source: str, names: list[str]) -> None:
    assert unchecked(ast.parse(source)) == names


@pytest.mark.parametrize(
    "source", ["monkeypatch.setattr(listen, 'SECONDS', 1)", "setattr(adapter, 'Client', Other)", "delattr(a, 'b')"]
)
def test_a_patch_is_found(source: str) -> None:
    assert len(patches(ast.parse(source))) == 1
