"""The import contracts of pyproject.toml hold, and each of them bites when it is broken."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "adapters", "bots")


def lint(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    # A process of its own: the linter looks for the packages on the import path, which here is ours.
    script = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    arguments = ["--no-logo", "--no-cache", "--config", str(folder / "pyproject.toml"), *options]
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", copy)
    shutil.copytree(ROOT / "tidings", copy / "tidings", symlinks=True)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_the_contracts_hold() -> None:
    verdict = lint(ROOT)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


@pytest.mark.parametrize(
    ("contract", "path", "line"),
    [
        pytest.param("stages", "core/helpers.py", "", id="a new module in core without a place"),
        pytest.param("stages", "core/store/__init__.py", "import tidings.core.runs", id="a stage that looks back"),
        pytest.param("draft", "core/outbound/draft.py", "import tidings.core.runs", id="a draft that knows runs"),
        pytest.param("core", "core/types.py", "import tidings.adapters", id="core that knows a platform"),
        pytest.param("network", "core/clock.py", "import socket", id="core that opens a socket"),
        pytest.param(
            "adapters", "adapters/console/__init__.py", "import tidings.bots", id="an adapter that knows a bot"
        ),
        pytest.param(
            "platforms",
            "adapters/shared/__init__.py",
            "import tidings.adapters.console",
            id="shared code that is not",
        ),
        pytest.param(
            "handlers",
            "adapters/api/service.py",
            "import tidings.adapters.api.routes",
            id="a service that knows its routes",
        ),
        pytest.param(
            "independent_handlers",
            "adapters/api/handlers/chat.py",
            "import tidings.adapters.api.handlers.runs",
            id="a handler that knows another",
        ),
        pytest.param("bots", "bots/__init__.py", "import tidings.adapters", id="a bot that knows a platform"),
        pytest.param("work", "core/work/helpers.py", "", id="a new module in work without a place"),
        pytest.param(
            "work", "core/work/tasks/__init__.py", "import tidings.core.work.board", id="tasks that know cards"
        ),
        pytest.param("inbound", "core/inbound/inbox.py", "import tidings.core.inbound.door", id="an inbox looks back"),
        pytest.param(
            "outbound", "core/outbound/outbox.py", "import tidings.core.outbound.courier", id="an outbox does"
        ),
        pytest.param("rooms", "bots/app/__init__.py", "import tidings.bots.cli", id="an app knows commands"),
        pytest.param("root", "bots/__init__.py", "import tidings.bots.main", id="a bot that goes round by the root"),
    ],
)
def test_a_trespass_is_found(untouched: Path, contract: str, path: str, line: str) -> None:
    trespasser = untouched / path
    before = trespasser.read_text() if trespasser.exists() else None
    trespasser.write_text(f"{before or ''}\n{line}\n")
    verdict = lint(untouched, "--contract", contract)
    if before is None:
        trespasser.unlink()
    else:
        trespasser.write_text(before)
    assert "Contracts: 0 kept, 1 broken." in verdict.stdout, verdict.stdout + verdict.stderr
