"""Every package that is imported is declared, and every package that is declared is imported or has a reason here."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("core", "adapters", "bots")
OURS = {"tidings", "tests"}
# Programs that run in an environment of their own, with packages that are not installed here.
CLIENTS = ROOT / "tests" / "clients"
CLIENT_PACKAGES = {"agents": "openai-agents"}

# What is declared and never imported, and what for.
NOT_IMPORTED = {
    "tzdata": "zoneinfo reads it where the system has no time zones",
    "openai": "pydantic_ai.models.openai imports it",
    "hatchling": "the build backend",
    "import-linter": "a command of make check",
    "mypy": "a command of make check",
    "pytest-asyncio": "a plugin of pytest: asyncio_mode",
    "pytest-xdist": "a plugin of pytest: -n",
    "ruff": "a command of make check",
    "uv": "a command of the Makefile",
    "pydantic-ai-slim": "in the environment of the clients it is only installed beside them",
}


@cache
def project() -> dict[str, list[str]]:
    """The names that pyproject.toml declares, by where."""
    read = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = read["project"]["optional-dependencies"]
    lists = {"product": read["project"]["dependencies"], **extras, "clients": read["dependency-groups"]["clients"]}
    return {name: [declared(each) for each in requirements] for name, requirements in lists.items()}


def declared(requirement: str) -> str:
    return canonical(re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0])


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(source: str) -> Iterator[str]:
    """Top-level names of packages that are neither Python's own nor ours."""
    for node in ast.walk(ast.parse(source)):
        names: Iterable[str] = ()
        if isinstance(node, ast.Import):
            names = (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = (node.module,)
        for name in names:
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in OURS:
                yield top


@cache
def distributions() -> Mapping[str, list[str]]:
    """By imported name. Reading what is installed takes a moment, so it is done once."""
    return packages_distributions()


def packages(files: Iterable[Path]) -> dict[str, Path]:
    """What the files import, by the name under which it is installed, with one file that does."""
    known = distributions()
    found: dict[str, Path] = {}
    for file in files:
        for name in imported(file.read_text(encoding="utf-8")):
            for package in known.get(name, [CLIENT_PACKAGES.get(name, name)]):
                found.setdefault(canonical(package), file.relative_to(ROOT))
    return found


@cache
def by_product() -> dict[str, Path]:
    return packages(file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py"))


@cache
def by_tests() -> dict[str, Path]:
    return packages(file for file in (ROOT / "tests").rglob("*.py") if CLIENTS not in file.parents)


@cache
def by_clients() -> dict[str, Path]:
    return packages(CLIENTS.glob("*_python.py"))


def test_what_the_product_imports_is_declared() -> None:
    undeclared = {name: file for name, file in by_product().items() if name not in project()["product"]}
    assert undeclared == {}


def test_what_the_tests_import_is_declared() -> None:
    lists = project()
    undeclared = {name: file for name, file in by_tests().items() if name not in (*lists["product"], *lists["dev"])}
    assert undeclared == {}


def test_what_the_client_programs_import_is_declared() -> None:
    undeclared = {name: file for name, file in by_clients().items() if name not in project()["clients"]}
    assert undeclared == {}


@pytest.mark.parametrize(
    ("where", "users"), [("product", by_product), ("build", by_tests), ("dev", by_tests), ("clients", by_clients)]
)
def test_what_is_declared_is_imported(where: str, users: object) -> None:
    assert callable(users)
    unused = {name for name in project()[where] if name not in users() and name not in NOT_IMPORTED}
    assert unused == set()


def test_no_reason_is_given_for_what_needs_none() -> None:
    lists = project()
    stale = {name for name in NOT_IMPORTED if not any(name in names for names in lists.values())}
    stale |= {name for name in NOT_IMPORTED if name in lists["product"] and name in by_product()} - {"pydantic-ai-slim"}
    stale |= {name for name in NOT_IMPORTED if name in lists["dev"] and name in by_tests()}
    assert stale == set()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import wcwidth", ["wcwidth"]),
        ("from google.genai import types", ["google"]),
        ("def late():\n    import yaml.nodes", ["yaml"]),
        ("from . import near\nfrom tidings.core import clock\nimport os.path", []),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, names: list[str]) -> None:
    assert list(imported(source)) == names


def test_a_requirement_is_known_by_its_name_alone() -> None:
    written = ("pydantic-ai-slim[anthropic,google]>=2.66,<3", "PyYAML>=6", "discord.py>=2.7,<3", "uv")
    assert [declared(each) for each in written] == ["pydantic-ai-slim", "pyyaml", "discord-py", "uv"]
