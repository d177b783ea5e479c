"""Writes the map of files in ARCHITECTURE.md from the opening sentence of each file: `make map`."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.sources import PACKAGES, ROOT

BEGIN = "<!-- The map is written by `make map`. -->"
END = "<!-- The map ends here. -->"
COLUMNS = 120
SENTENCE = re.compile(r".+?[.?!](?=\s|$)", re.DOTALL)
# What is not Python has no docstring, so its sentence stands here.
OTHER_FILES = {
    "bots/assistant/prompt.md": "The instructions that every assistant gets.",
    "core/store/migrations": "The schema as numbered SQL files, applied in order.",
}


def write(text: str, root: Path = ROOT) -> str:
    """The document with its map as the tree is now; everything outside the two markers stays."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("ARCHITECTURE.md has lost the two markers of the map")
    return f"{before}{BEGIN}\n\n```\n{drawn(root)}\n```\n\n{END}{after}"


def drawn(root: Path) -> str:
    """One line for each file and folder: indented by room, with the sentence that it opens with."""
    lines = [line for package in PACKAGES for line in _folder(root / package, root, depth=0)]
    width = max(len(name) for name, _ in lines) + 2
    return "\n".join(f"{name:<{width}}{_cut(sentence, COLUMNS - width)}".rstrip() for name, sentence in lines)


def _folder(folder: Path, root: Path, depth: int) -> Iterator[tuple[str, str]]:
    indent = "  " * depth
    yield f"{indent}{folder.name}/", _opening(folder / "__init__.py")
    inside = sorted(path for path in folder.iterdir() if path.name not in ("__init__.py", "__pycache__"))
    for path in inside:
        other = OTHER_FILES.get(path.relative_to(root).as_posix())
        if other is not None:
            yield f"{indent}  {path.name}{'/' if path.is_dir() else ''}", other
        elif path.suffix == ".py":
            yield f"{indent}  {path.name}", _opening(path)
    for path in inside:
        if (path / "__init__.py").is_file():
            yield from _folder(path, root, depth + 1)


def _opening(path: Path) -> str:
    """The first sentence of a file's docstring, on one line."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    found = SENTENCE.match(docstring.strip())
    return " ".join((found[0] if found else docstring).split())


def _cut(sentence: str, room: int) -> str:
    """The sentence, or its beginning up to the last word that fits."""
    if len(sentence) <= room:
        return sentence
    return sentence[: room - 1].rpartition(" ")[0].rstrip(",;:") + "…"


def main() -> None:
    path = ROOT / "ARCHITECTURE.md"
    before = path.read_text(encoding="utf-8")
    after = write(before)
    path.write_text(after, encoding="utf-8")
    sys.stdout.write("ARCHITECTURE.md: the map is new\n" if after != before else "ARCHITECTURE.md: nothing to change\n")


if __name__ == "__main__":
    main()
