"""The example settings name every setting, tell its true default and say in a sentence what it does."""

import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from adapters import catalog
from bots.settings import known, load

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "deploy" / "tidings.example.toml"
SETTING = re.compile(r"# (\w+ = .*)")


def example() -> str:
    """The file with every setting switched on."""
    return SETTING.sub(r"\1", EXAMPLE.read_text(encoding="utf-8"))


def defaults(model: type[BaseModel]) -> dict[str, Any]:
    return model().model_dump(mode="json")


def test_every_setting_is_there_with_its_default() -> None:
    expected = {name: defaults(section) for name, section in known(catalog.sections()).items()}
    assert tomllib.loads(example()) == expected


def test_every_setting_has_the_sentence_of_its_field_before_it() -> None:
    text = " ".join(line.removeprefix("# ") for line in EXAMPLE.read_text(encoding="utf-8").splitlines())
    missing = [
        f"[{section}] {name}"
        for section, model in known(catalog.sections()).items()
        for name, field in model.model_fields.items()
        if not field.description or field.description not in text
    ]
    assert missing == []


def test_the_example_changes_nothing_and_raises_no_warning(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text(example(), encoding="utf-8")
    plain = load(catalog.sections(), tmp_path, None, {})
    for file in (EXAMPLE, tmp_path / "all.toml"):
        loaded = load(catalog.sections(), tmp_path, file, {})
        assert loaded.warnings == ()
        assert (loaded.core, loaded.bot, loaded.platforms) == (plain.core, plain.bot, plain.platforms)
