"""CONTRIBUTING.md, followed word for word, gives a platform that passes the contract suite."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import ROOT

COPIED = (
    "adapters",
    "bots",
    "core",
    "deploy",
    "tests",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "Makefile",
    "pyproject.toml",
)
SECONDS = 300
ALONE = ("-v", "-p", "no:cacheprovider", "-p", "no:xdist")

# What a person does who tries the new platform: start a gateway with it, and say something.
CHAT = """
import asyncio, os, sys
from tests.simulators.carrier.simulator import CarrierServer

async def chat(home):
    async with CarrierServer("a token") as server:
        settings = {"ACCESS__ALLOW": "carrier:7", "BOT__AGENT": "echo", "HTTP__ENABLED": "false"}
        settings |= {"CARRIER__TOKEN": "a token", "CARRIER__ADDRESS": server.address}
        environment = {**os.environ, **{f"TIDINGS_{name}": value for name, value in settings.items()}}
        command = (sys.executable, "-m", "tidings.bots.main", "--home", home, "run", "--no-chat")
        gateway = await asyncio.create_subprocess_exec(*command, env=environment)
        server.says("hi", "1")
        try:
            await server.until(lambda: server.posted, 60)
        finally:
            gateway.terminate()
            await gateway.wait()
        print(server.posted[0].text)

asyncio.run(chat(sys.argv[1]))
"""


def blocks(step: str) -> Iterator[tuple[str, str]]:
    """The code blocks of one step, each with the sentence before it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(rf"^### {step}\n(.+?)(?=^##)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no step {step}"
    yield from re.findall(r"([^\n]+)\n\n```\w*\n(.+?)```", found[1], re.DOTALL)


def block(step: str, words: str) -> str:
    found = [text for said, text in blocks(step) if words in said]
    assert len(found) == 1, f"{step}: {words}"
    return found[0]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree in which somebody has followed the first two steps."""
    copy = tmp_path_factory.mktemp("contributing")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "tidings", copy / "tidings", symlinks=True)
    register(copy)
    return copy


def register(copy: Path) -> None:
    assert "make platform NAME=carrier" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    run(copy, "-m", "tests.starter", "carrier")
    catalog = copy / "adapters" / "catalog.py"
    entry = block("2. Register it", "adapters/catalog.py")
    catalog.write_text(re.sub(r"(?<=\n)(?=}\n)", lambda _: entry, catalog.read_text(), count=1))
    project = copy / "pyproject.toml"
    platforms = re.search(r'^ +"console \|.+?(?=",$)', project.read_text(), re.MULTILINE)
    assert platforms is not None
    longer = platforms[0] + block("2. Register it", "pyproject.toml").rstrip("\n")
    project.write_text(project.read_text().replace(platforms[0], longer))
    example = copy / "deploy" / "tidings.example.toml"
    example.write_text(f"{example.read_text()}\n{block('2. Register it', 'tidings.example.toml')}")
    run(copy, "-m", "tests.tidy.map")


def run(folder: Path, *arguments: str) -> str:
    """Runs Python in the copy, where `tidings` is the copy's own."""
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_new_platform_passes_the_contract_suite(tree: Path) -> None:
    told = run(tree, "-m", "pytest", *ALONE, "tests/contract/test_carrier.py")
    passed = re.search(r"(\d+) passed, (\d+) skipped", told)
    assert passed is not None, told
    assert int(passed[1]) > 15 * int(passed[2]), "most of the contract is skipped"


def test_a_person_on_the_new_platform_is_answered(tree: Path, tmp_path: Path) -> None:
    assert run(tree, "-c", CHAT, str(tmp_path / "home")) == "you said: hi\n"


def test_the_new_platform_keeps_the_rules_of_the_house(tree: Path) -> None:
    tidy = ("test_map.py", "test_example_settings.py", "test_imports.py::test_the_contracts_hold")
    run(tree, "-m", "pytest", *ALONE, *(f"tests/tidy/{each}" for each in tidy))
    run(tree, "-m", "ruff", "check", ".")
    run(tree, "-m", "ruff", "format", "--check", ".")


def test_nothing_is_overwritten(tree: Path) -> None:
    again = subprocess.run(
        [sys.executable, "-m", "tests.starter", "carrier"], cwd=tree, capture_output=True, text=True, check=False
    )
    assert again.returncode == 1
    assert "exists already" in again.stderr
