"""Does what the Dockerfile says, in an empty folder and without an engine: `make image-check`.

It is built by one uid and run by another that has no name, as `docker run --user 1234 -v vol` does it; then what
is in the image is listed. Needs root for the uids; without it everything is done by one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.deploy import dockerfile
from tests.deploy.size import figures

ROOT = Path(__file__).resolve().parents[2]
BUILDER, RUNNER = 1111, 1234
INSIDE = re.compile(r"(?<![\w./-])/(src|opt/tidings|data)(?![\w-])")
START_SECONDS = 60.0


class Failed(Exception):
    pass


class Box:
    """A folder that stands for the root of the image."""

    def __init__(self, folder: Path, python: str) -> None:
        self.root = folder
        self.python = python
        self.environment: dict[str, str] = {}
        self.workdir = folder
        self._settings = _settings_of_pip(python)
        folder.chmod(0o755)
        for name in ("opt", "src", "tmp", "shims"):
            (folder / name).mkdir()
        (folder / "tmp").chmod(0o1777)
        (folder / "shims" / "python").symlink_to(python)
        pip = folder / "shims" / "pip"
        pip.write_text(f'#!/bin/sh\nexec {python} -m pip "$@"\n')
        pip.chmod(0o755)
        if os.geteuid() == 0:
            for name in ("", "opt", "src"):
                os.chown(folder / name, BUILDER, BUILDER)

    def inside(self, text: str) -> str:
        return INSIDE.sub(lambda match: f"{self.root}{match[0]}", text)

    def call(
        self,
        command: Sequence[str],
        uid: int,
        given: Mapping[str, str] | None = None,
        *,
        said: str = "",
        code: int = 0,
    ) -> str:
        ended = subprocess.run(
            command, input=said, capture_output=True, text=True, check=False, **self.as_uid(uid, given or {})
        )
        if ended.returncode != code:
            raise Failed(
                f"{' '.join(command)}\nended with {ended.returncode}, not {code}:\n{ended.stdout}{ended.stderr}"
            )
        return ended.stdout + ended.stderr

    def as_uid(self, uid: int, given: Mapping[str, str]) -> dict[str, Any]:
        environment = {"PATH": f"{self.root}/shims:/usr/bin:/bin", "HOME": str(self.root / "tmp"), "LANG": "C.UTF-8"}
        environment |= {name: self.inside(value).replace("$PATH", environment["PATH"]) for name, value in given.items()}
        # A path of the image that names no place of ours stays as it is.
        environment["HOME"] = str(self.root / "tmp")
        who = {"user": uid, "group": uid, "extra_groups": ()} if os.geteuid() == 0 else {}
        return {"env": environment, "cwd": self.workdir, "umask": 0o022, **who}

    def build(self, stage: dockerfile.Stage, uid: int) -> None:
        self.workdir = self.root
        fetched = {**self._settings, **{name: value for name, value in os.environ.items() if name.startswith("PIP_")}}
        for step in stage.steps:
            began = time.monotonic()
            if step.word == "WORKDIR":
                self.workdir = Path(self.inside(step.rest))
            elif step.word == "RUN":
                self.call(["/bin/sh", "-ec", self.inside(step.rest)], uid, {**fetched, **stage.environment})
            elif step.word == "COPY":
                self._copy(step, uid)
            else:
                continue
            print(f"  {step.word:<8} {step.rest[:90]:<90} {time.monotonic() - began:6.1f} s", flush=True)

    def _copy(self, step: dockerfile.Step, uid: int) -> None:
        *sources, target = step.words
        if sources[0].startswith("--from="):
            # The stages share one place here, since what is installed knows its own path: all else goes.
            if not Path(self.inside(sources[1])).is_dir() or sources[1] != target:
                raise Failed(f"line {step.line}: {sources[1]} was not built, or goes elsewhere")
            shutil.rmtree(self.root / "src")
            return
        for source in sources:
            into = self.workdir / target / ("" if len(sources) == 1 and target == source else Path(source).name)
            _copy_sent(source, into if target in (".", "./") else self.workdir / target)
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", f"{uid}:{uid}", str(self.workdir)], check=True)


def _copy_sent(source: str, into: Path) -> None:
    patterns = dockerfile.ignored(ROOT)
    files = [ROOT / source] if (ROOT / source).is_file() else [path for path in (ROOT / source).rglob("*")]
    for path in files:
        name = str(path.relative_to(ROOT))
        if path.is_file() and dockerfile.sent(name, patterns):
            there = into if path == ROOT / source else into / path.relative_to(ROOT / source)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, there)


def _settings_of_pip(python: str) -> dict[str, str]:
    """Where this machine fetches from: an unnamed uid cannot read the settings of whoever asks."""
    told = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False).stdout
    found = re.findall(r"^(?:global|install)\.([\w-]+)='(.*)'$", told, re.MULTILINE)
    return {f"PIP_{name.upper().replace('-', '_')}": value for name, value in found}


def _first_start(box: Box, stage: dockerfile.Stage) -> None:
    """What `docker run --user 1234 -v vol` does, its health check, one answer, its stop; and what root may not."""
    given = {**stage.environment, "TIDINGS_HTTP__PORT": "0"}
    entry, run = _words(stage, "ENTRYPOINT"), _words(stage, "CMD")
    health = re.findall(r'"([^"]+)"', (stage.last("HEALTHCHECK") or stage.steps[0]).rest)
    program = [str(box.root / "opt/tidings/bin" / entry[0])]
    print(f"  {box.call([*program, 'version'], RUNNER, given).strip()}")
    log = open(box.root / "tmp" / "log", "w+")  # noqa: SIM115
    gateway = subprocess.Popen([*program, *run], stderr=log, stdout=log, **box.as_uid(RUNNER, given))
    try:
        began = time.monotonic()
        checked = [str(box.root / "opt/tidings/bin" / health[0]), *health[1:]]
        while True:
            try:
                box.call(checked, RUNNER, given)
                break
            except Failed as error:
                if gateway.poll() is not None or time.monotonic() - began > START_SECONDS:
                    log.seek(0)
                    raise Failed(f"it does not get healthy:\n{log.read()}\n{error}") from error
                time.sleep(0.2)
        print(f"  healthy after {time.monotonic() - began:.1f} s")
        print(f"  it answers: {box.call([*program, 'chat'], RUNNER, given, said='hi').strip().splitlines()[-1][:80]}")
    finally:
        gateway.terminate()
        code = gateway.wait(30)
        log.close()
    if code:
        raise Failed(f"SIGTERM ended it with {code}")
    home = box.root / "data/home"
    foreign = [path for path in (home, *home.rglob("*")) if os.geteuid() == 0 and path.stat().st_uid != RUNNER]
    if foreign or home.stat().st_mode & 0o077:
        raise Failed(f"not everything in {home} is the runner's alone: {foreign}")
    if os.geteuid() == 0:
        refused = box.call([*program, "people", "admit", "telegram:1"], 0, given, code=78)
        print(f"  root is refused: {refused.strip()[:110]}…")


def _words(stage: dockerfile.Stage, word: str) -> list[str]:
    return re.findall(r'"([^"]+)"', next(step.rest for step in stage.steps if step.word == word))


def _list(box: Box) -> None:
    site = next((box.root / "opt/tidings/lib").glob("python3*/site-packages"))
    sources = [path for path in site.rglob("*.py") if "__pycache__" not in path.parts]
    bare = [path for path in sources if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))]
    # Some packages ship files that no Python of this version can read.
    if len(bare) > len(sources) // 100:
        raise Failed(f"{len(bare)} of {len(sources)} files are not compiled, such as {bare[:3]}")
    if (site / "tests").exists() or (site / "hatchling").exists():
        raise Failed("what only builds or tests is in the image")
    writable = [
        path for path in box.root.joinpath("opt").rglob("*") if path.lstat().st_mode & 0o002 and not path.is_symlink()
    ]
    if writable:
        raise Failed(f"anybody could write to the program: {writable[:3]}")
    found = figures(site)
    print(f"  {found.packages} packages, {found.megabytes:.0f} MB with bytecode; of the whole /opt/tidings:")
    for name, megabytes in found.heaviest[:8]:
        print(f"    {name:<24} {megabytes:6.1f} MB")
    print(f"  commands: {' '.join(sorted(path.name for path in (box.root / 'opt/tidings/bin').iterdir()))}")


def _usable(python: str) -> bool:
    """By somebody without a name, too."""
    who = {"user": RUNNER, "group": RUNNER, "extra_groups": ()} if os.geteuid() == 0 else {}
    test = "import ensurepip, pip, sys, venv; sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.run([python, "-c", test], capture_output=True, check=False, cwd="/", **who).returncode == 0
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", help="which Python stands for the image's")
    parser.add_argument("--keep", action="store_true", help="leave the folder there")
    arguments = parser.parse_args()
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    if wrong := dockerfile.faults(text, ROOT):
        sys.exit("\n".join(wrong))
    # The usual linter is no dependency of ours; where it is installed, it has its say.
    if linter := shutil.which("hadolint"):
        subprocess.run([linter, str(ROOT / "deploy" / "Dockerfile")], check=True)
        print("hadolint finds nothing wrong")
    candidates = [arguments.python] if arguments.python else [os.path.realpath(sys.executable), "/usr/bin/python3"]
    python = next((each for each in candidates if _usable(each)), None)
    if python is None:
        sys.exit(f"none of {', '.join(candidates)} has pip and venv and can be run by everybody: name one by --python")
    build, final = dockerfile.read(text)
    folder = Path(tempfile.mkdtemp(prefix="tidings-image-"))
    try:
        box = Box(folder, python)
        print(f"{build.image} ({build.name}), as uid {BUILDER if os.geteuid() == 0 else os.geteuid()}, by {python}")
        box.build(build, BUILDER)
        checked = ["-m", "pip", "--python", str(folder / "opt/tidings/bin/python"), "check"]
        print(f"  {box.call([python, *checked], BUILDER).strip()}")
        print(final.image)
        box.build(final, BUILDER)
        print(f"the first start, as uid {RUNNER if os.geteuid() == 0 else os.geteuid()}")
        box.workdir = folder / "data"
        _first_start(box, final)
        print("what is in it")
        _list(box)
    except Failed as error:
        sys.exit(f"failed: {error}")
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
