"""Installs the lock into an empty folder and says how big that is: `make size`."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MOST_MEGABYTES, MOST_PACKAGES = 150, 60
# They put the project into an environment and are gone from the image.
BUILDS = {"hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers"}


class Figures(NamedTuple):
    packages: int
    megabytes: float
    # Without bytecode, which is as big as the program once more.
    written: float
    heaviest: list[tuple[str, float]]


def figures(site: Path) -> Figures:
    by_name: dict[str, float] = {}
    total = compiled = 0.0
    for path in site.rglob("*"):
        if path.is_file() and not path.is_symlink():
            size = path.stat().st_size / 1_000_000
            total += size
            compiled += size if path.suffix == ".pyc" else 0.0
            name = path.relative_to(site).parts[0]
            by_name[name] = by_name.get(name, 0.0) + size
    packages = {path.name.split("-")[0].replace("_", "-").lower() for path in site.glob("*.dist-info")}
    heaviest = sorted(by_name.items(), key=lambda item: -item[1])
    return Figures(len(packages - BUILDS - {"tidings"}), total, total - compiled, heaviest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lock", default=str(ROOT / "requirements.lock"))
    arguments = parser.parse_args()
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    folder = Path(tempfile.mkdtemp(prefix="tidings-size-"))
    try:
        order = [uv, "pip", "install", "--quiet", "--target", str(folder), "--require-hashes", "--compile-bytecode"]
        subprocess.run([*order, "--python", sys.executable, "-r", arguments.lock], check=True)
        found = figures(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{found.packages} packages (goal: {MOST_PACKAGES} at most), without the {len(BUILDS)} that only build")
    print(f"{found.megabytes:.0f} MB with bytecode, {found.written:.0f} MB without (goal: {MOST_MEGABYTES} at most)")
    for name, megabytes in found.heaviest[:12]:
        print(f"  {name:<24} {megabytes:6.1f} MB")


if __name__ == "__main__":
    main()
