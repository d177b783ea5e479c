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
# A mutant is a seeded bug, so it changes the product. The child of a sweep counts ids and orders what the store's
# thread does, so that the k-th commit is the same in every run: no other test needs that, and no product does.
SEAMS = (Path("tests/chaos/mutation_seams.py"), Path("tests/chaos/child.py"))
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
    """Every place that replaces an attribute by name, or an attribute of a module of the product."""
    product = set(_modules(module))
    return [f"{each.lineno}: {ast.unparse(each)}" for each in ast.walk(module) if _is_patch(each, product)]


def _modules(module: ast.Module) -> Iterator[str]:
    """The names under which modules of the product are known here."""
    for each in ast.walk(module):
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("tidings"):
            folder = ROOT.joinpath(*(each.module or "").split(".")[1:])
            for name in each.names:
                if (folder / f"{name.name}.py").exists() or (folder / name.name).is_dir():
                    yield name.asname or name.name


def _is_patch(node: ast.AST, product: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).rpartition(".")[2] in ("setattr", "setitem", "delattr")
    if not isinstance(node, ast.Assign):
        return False
    targets = [each for target in node.targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return any(isinstance(each, ast.Attribute) and ast.unparse(each).split(".")[0] in product for each in targets)


def test_every_test_checks_something() -> None:
    assert {str(path): names for path, module in modules() if (names := unchecked(module))} == {}


def test_nothing_is_patched() -> None:
    found = {str(path): places for path, module in modules() if (places := patches(module)) and path not in SEAMS}
    assert found == {}


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
    "source",
    [
        "monkeypatch.setattr(listen, 'SECONDS', 1)",
        "setattr(adapter, 'Client', Other)",
        "delattr(a, 'b')",
        "from tidings.core.gateway import supervisor\nsupervisor.SECONDS = 1",
        "from tidings.core.gateway import supervisor as soon\nsoon.SECONDS, other = 1, 2",
        "from tidings.core.gateway import supervisor\nsupervisor.Supervisor.keep = other",
    ],
)
def test_a_patch_is_found(source: str) -> None:
    assert len(patches(ast.parse(source))) == 1


def test_setting_an_attribute_of_an_object_is_no_patch() -> None:
    assert patches(ast.parse("from tidings.core.settings import Core\nworld.limits = 1\nself.core = Core()")) == []
