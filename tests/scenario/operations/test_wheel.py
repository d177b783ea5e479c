"""Tidings is imported by one name, from a checkout and from a wheel, whatever else is called core, adapters or bots."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.sources import PACKAGES, ROOT, modules
from tests.worlds.process import PATIENCE_SECONDS, environment, until_it_answers

# The tests share one build and one environment.
pytestmark = pytest.mark.xdist_group("wheel")


def run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that was built from an unpacked sdist, as a package index would have it."""
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"
    listing = run("git", "-c", "safe.directory=*", "ls-files", "-z", cwd=ROOT).stdout
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_symlink() or (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name, follow_symlinks=False)
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=source)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=unpacked)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and its dependencies, and without this checkout."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    (site,) = (folder / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # A .pth file of a folder that is named here is not read, so the editable install stays outside.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with packages of the user's own that bear the names of our folders and cannot be imported."""
    folder = tmp_path_factory.mktemp("hostile")
    for package in PACKAGES:
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text(f"raise RuntimeError('{package} of the user was imported')\n")
    return folder


def test_a_wheel_from_the_sdist_holds_every_module_below_one_name(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in held} == {"tidings"}
    ours = {f"tidings/{path.relative_to(ROOT)}" for path in modules(*PACKAGES)}
    migrations = {f"tidings/{path.relative_to(ROOT)}" for path in (ROOT / "core/store/migrations").glob("*.sql")}
    assert migrations
    assert held >= {*ours, *migrations, "tidings/__init__.py", "tidings/py.typed", "tidings/bots/assistant/prompt.md"}


def test_a_checkout_is_not_disturbed_by_packages_of_the_same_names(hostile: Path) -> None:
    script = "import tidings.bots.main, tidings.core.types; print(tidings.core.types.__file__)"
    done = run(sys.executable, "-c", script, cwd=hostile, PYTHONPATH=str(hostile))
    assert Path(done.stdout.strip()).resolve() == ROOT / "core" / "types.py"


async def test_a_gateway_from_the_wheel_answers_beside_packages_of_the_same_names(
    python: Path, hostile: Path, tmp_path: Path
) -> None:
    variables = environment(tmp_path, PYTHONPATH=str(hostile))
    command = [str(python), "-m", "tidings.bots.main"]
    with (
        (tmp_path / "stderr.log").open("ab") as errors,
        subprocess.Popen(
            [*command, "run"], cwd=hostile, env=variables, stdin=subprocess.DEVNULL, stderr=errors
        ) as process,
    ):
        try:
            await until_it_answers(tmp_path, process)
            said = await asyncio.to_thread(
                subprocess.run,
                [*command, "chat", "--timeout", str(PATIENCE_SECONDS)],
                input=b"hi\n",
                capture_output=True,
                cwd=hostile,
                env=variables,
                timeout=2 * PATIENCE_SECONDS,
            )
        finally:
            process.kill()
    assert said.returncode == 0, said.stderr
    assert said.stdout.strip()


def test_the_program_of_a_background_command_finds_the_package_from_the_wheel(python: Path, hostile: Path) -> None:
    script = "from tidings.core.work.processes import folder; print(folder.__file__)"
    where = Path(run(python, "-c", script, cwd=hostile, PYTHONPATH=str(hostile)).stdout.strip())
    program = where.with_name("process_main.py")
    told = subprocess.run(
        [python, "-I", "-S", program, str(hostile / "absent")], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    # Without a task's folder the program has nothing to run, and says so after its imports.
    assert "FileNotFoundError" in told.stderr, told.stderr
