"""ARCHITECTURE.md names every folder and every module of the three packages."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "adapters", "bots")


def names() -> dict[str, str]:
    """What the map must name, as it is written there (`inbound/`, `door.py`), with a place where it is."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            if not path.is_file() or "__pycache__" in path.parts:
                continue
            inside = path.relative_to(ROOT)
            for folder in list(inside.parents)[:-1]:
                found[f"{folder.name}/"] = str(folder)
            if path.suffix == ".py" and path.name != "__init__.py":
                found[path.name] = str(inside)
    return found


def test_the_map_names_every_folder_and_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")

    def is_named(name: str) -> bool:
        return re.search(rf"(?<![\w.-]){re.escape(name)}(?!\w)", text) is not None

    assert {name: place for name, place in sorted(names().items()) if not is_named(name)} == {}
