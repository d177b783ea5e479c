"""Copies the starter under a new name: `make platform NAME=carrier`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAME = re.compile(r"[a-z][a-z0-9]{1,30}")


def destinations(name: str) -> dict[str, str]:
    """Where each file of the starter goes, below the root of the tree."""
    modules = ("__init__", "adapter", "client", "parse", "settings")
    return {
        **{f"platform/{module}.py": f"adapters/{name}/{module}.py" for module in modules},
        **{f"simulator/{module}.py": f"tests/simulators/{name}/{module}.py" for module in ("__init__", "simulator")},
        "contract.py": f"tests/contract/test_{name}.py",
    }


def copy(name: str, root: Path) -> list[str]:
    """Writes every file with its new name in it, and returns their paths. Raises ValueError; nothing is overwritten."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for a platform: use small letters and digits, such as carrier")
    wanted = destinations(name)
    if taken := [path for path in wanted.values() if (root / path).exists()]:
        raise ValueError(f"{taken[0]} exists already; choose another name")
    for source, path in wanted.items():
        text = (HERE / source).read_text(encoding="utf-8")
        text = text.replace("starter", name).replace("Starter", name.capitalize())
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return list(wanted.values())


def main() -> None:
    try:
        made = copy(sys.argv[1] if len(sys.argv) > 1 else "", ROOT)
    except ValueError as error:
        sys.exit(str(error))
    sys.stdout.write("\n".join([*made, "Next: step 2 of CONTRIBUTING.md, which registers it", ""]))


if __name__ == "__main__":
    main()
