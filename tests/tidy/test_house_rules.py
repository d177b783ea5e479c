"""The rules of the house that no linter knows: names, opening sentences, silence, and what may not leak."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import PACKAGES, ROOT, modules, place, tree

# They share what was parsed, so one process runs them all.
pytestmark = pytest.mark.xdist_group("house")

VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
PLATFORM = re.compile("telegram|discord|slack", re.IGNORECASE)

# Written in pieces, so that this file does not find itself. A path inside the tree (core, then work) is no
# machine path, hence the look-behind.
LEAKS = re.compile(r"(?<![\w.])/(?:work|root)/" + "|pypi" + r"\.org" + "|python" + "hosted")


def mentioning(word: str) -> Iterator[Path]:
    """Every module in which the word stands at all: to look for a name in the others takes seconds."""
    yield from (path for path in modules(*PACKAGES, "tests") if word in path.read_text(encoding="utf-8"))


def docstrings(module: ast.Module) -> set[int]:
    """The identity of each node that is a docstring."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, owners) and node.body and isinstance(node.body[0], ast.Expr)
    }


def identifiers(module: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every name that the module gives to something, with the node that gives it."""
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node, name
            case ast.arg(arg=name):
                yield node, name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node, name
            case _:
                continue


def imports(module: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every module or name that is imported, dotted."""
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                yield from ((node, alias.name) for alias in names)
            case ast.ImportFrom(module=source, names=names):
                yield from ((node, f"{source or ''}.{alias.name}") for alias in names)
            case _:
                continue


def files() -> list[Path]:
    """Every file that is in the repository or would be after `git add`."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git work tree")
    git = ["git", "-c", "safe.directory=*"]
    command = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def test_every_file_opens_with_a_sentence() -> None:
    def opens_well(path: Path) -> bool:
        opening = (ast.get_docstring(tree(path)) or "").split("\n\n")[0].strip()
        return opening[:1].isupper() and opening.endswith((".", "?", "!", ":"))

    assert [place(path) for path in modules(*PACKAGES) if not opens_well(path)] == []


def test_no_file_has_a_vague_name() -> None:
    paths = [path for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*")]
    assert [place(path) for path in paths if path.stem in VAGUE] == []


def test_nothing_in_core_is_called_metadata() -> None:
    found = [
        f"{place(path, node)} {name}"
        for path in modules("core")
        for node, name in identifiers(tree(path))
        if name.lower().replace("_", "").endswith("metadata")
    ]
    assert found == []


def test_core_names_no_platform() -> None:
    found = []
    for path in modules("core"):
        module = tree(path)
        told = docstrings(module)
        for node in ast.walk(module):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
                found += [f"{place(path, node)} {node.value!r}"] if PLATFORM.search(node.value) else []
        named = [*identifiers(module), *imports(module)]
        found += [f"{place(path, node)} {name}" for node, name in named if PLATFORM.search(name)]
    assert found == []


def test_ours_is_imported_by_one_name() -> None:
    """In a checkout `import core` would work too, and make a second module of each file."""
    found = [
        f"{place(path, node)} {name}"
        for path in modules(*PACKAGES, "tests")
        for node, name in imports(tree(path))
        if name.split(".")[0] in PACKAGES
    ]
    assert found == []


def test_no_error_is_swallowed() -> None:
    def is_silent(statement: ast.stmt) -> bool:
        return isinstance(statement, ast.Pass) or (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        )

    found = [
        place(path, node)
        for path in modules(*PACKAGES)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler) and all(map(is_silent, node.body))
    ]
    assert found == []


def test_threads_are_entered_with_the_session() -> None:
    """`run_in_executor` leaves the context behind; `asyncio.to_thread` takes it along."""
    found = [
        place(path, node)
        for path in mentioning("run_in_executor")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and node.attr == "run_in_executor"
    ]
    assert found == []


def test_nothing_is_mocked() -> None:
    found = [
        f"{place(path, node)} {name}"
        for path in mentioning("mock")
        for node, name in imports(tree(path))
        if name == "mock" or name.startswith(("mock.", "unittest.mock"))
    ]
    assert found == []


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in files():
        text = path.read_bytes().decode("utf-8", errors="replace")
        found += [f"{place(path)} {match.group()}" for match in LEAKS.finditer(text)]
    assert found == []
