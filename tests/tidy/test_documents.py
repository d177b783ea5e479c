"""The documents are true to the tree: links lead somewhere, pictures are as their scripts draw them."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import ROOT

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)
README_LINES = 130
# A file of the tree as a document names it; `carrier` and `helpers` are examples of files that are not there.
NAMED = re.compile(r"`((?:core|adapters|bots|tests|deploy|docs)/(?!.*(?:carrier|helpers))[\w./-]+\.\w+)`")
DECISION = re.compile(r"^\*\*(\d+)\.\*\* \((\d{4}-\d\d-\d\d), ([^)]+)\) \*\*")
STATUS = re.compile(r"in force|(?:in force, )?(?:extended|narrowed|replaced|rewritten) (?:by|on) [\d-]+")


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])


def anchors(text: str) -> set[str]:
    """The names of a document's headings, as a link to one spells them."""
    headings = HEADING.findall(FENCED.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path: Path) -> Iterator[str]:
    """Every link to a file or a heading that is not there."""
    for link in LINK.findall(FENCED.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        found = (path.parent / file).resolve() if file else path
        if not found.exists():
            yield f"{path.name}: {link}"
        elif anchor and anchor not in anchors(found.read_text(encoding="utf-8")):
            yield f"{path.name}: {link} names no heading"


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    assert list(broken_links(path)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A heading, here\n\n```\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text("[a](there.md#a-heading-here) [b](gone.md) [c](there.md#no-heading) [d](https://example.com/x)")
    assert list(broken_links(page)) == ["page.md: gone.md", "page.md: there.md#no-heading names no heading"]


def test_every_page_is_reached_from_the_readme() -> None:
    linked = set(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    assert [path.name for path in sorted((ROOT / "docs").glob("*.md")) if f"docs/{path.name}" not in linked] == []


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


@pytest.mark.parametrize("script", sorted((ROOT / "docs" / "pictures").glob("*.py")), ids=lambda path: path.name)
def test_a_picture_is_as_its_script_draws_it(script: Path) -> None:
    drawn = runpy.run_path(str(script))["picture"]()
    assert script.with_suffix(".svg").read_text(encoding="utf-8") == drawn, f"run: python {script.relative_to(ROOT)}"


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_every_file_that_a_document_names_exists(path: Path) -> None:
    if path.name == "CHANGELOG.md":
        pytest.skip("it tells of files that have gone")
    named = NAMED.findall(path.read_text(encoding="utf-8"))
    assert [file for file in named if not (ROOT / file).exists()] == []


def test_every_decision_has_a_number_of_its_own_a_date_and_a_status() -> None:
    text = (ROOT / "DECISIONS.md").read_text(encoding="utf-8")
    entries = [paragraph for paragraph in text.split("\n\n") if not paragraph.startswith("#")][1:]
    found = [DECISION.match(entry) for entry in entries]
    assert [entry[:60] for entry, match in zip(entries, found, strict=True) if match is None] == []
    numbers = [int(match[1]) for match in found if match]
    assert len(set(numbers)) == len(numbers)
    assert [match[0] for match in found if match and not STATUS.fullmatch(match[3])] == []
