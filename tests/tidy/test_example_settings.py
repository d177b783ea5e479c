"""The example settings name every setting, tell its true default and say in a sentence what it does."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from tidings.adapters import catalog
from tidings.bots.app.settings import known, load

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "deploy" / "tidings.example.toml"
SETTING = re.compile(r"# (\w+ = .*)")
# TOML has no word for a value that is not there.
UNSET = re.compile(r"# \(unset\) (\w+) = ")
# Longer examples stand further in and stay comments.
LONGER = re.compile(r"#   (.*)")


def example() -> str:
    """The file with every setting switched on."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    return "\n".join(line if LONGER.match(line) else SETTING.sub(r"\1", line) for line in lines)


def longer_examples() -> str:
    found = map(LONGER.match, EXAMPLE.read_text(encoding="utf-8").splitlines())
    return "\n".join(match[1] for match in found if match)


def sections() -> dict[str, type[BaseModel]]:
    return {name: kind for name, kind in known(catalog.sections()).items() if isinstance(kind, type)}


def differences(model: type[BaseModel], written: Mapping[str, Any], table: str) -> Iterator[str]:
    """Where the example says another default than the code, or none."""
    for name, value in model():
        info = model.model_fields[name]
        if value is None:
            if name not in UNSET.findall(EXAMPLE.read_text(encoding="utf-8")):
                yield f"[{table}] {name} is missing"
        elif name not in written:
            yield f"[{table}] {name} is missing"
        elif isinstance(value, BaseModel) and isinstance(written[name], dict):
            yield from differences(type(value), written[name], f"{table}.{name}")
        elif model(**{name: written[name]}) != model():
            yield f"[{table}] {name} = {written[name]!r} is not the default {info.default!r}"
    yield from (f"[{table}] {name} is no setting" for name in written if name not in model.model_fields)


def sentences(kind: Any, table: str) -> Iterator[tuple[str, str]]:
    """Of each setting, also of those in tables whose names are free; a pair such as a rail is no table."""
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        for inner in get_args(kind):
            yield from sentences(inner, table)
        return
    for name, info in kind.model_fields.items():
        if kind.__name__ != "Rail":
            yield f"[{table}] {name}", info.description or "(none)"
            yield from sentences(info.annotation, f"{table}.{name}")


def test_every_setting_is_there_with_its_default() -> None:
    written = tomllib.loads(example())
    assert list(written) == list(sections())
    found = [each for name, model in sections().items() for each in differences(model, written[name], name)]
    assert found == []


def test_every_setting_has_the_sentence_of_its_field_before_it() -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    text = " ".join(re.sub("^[# ]+", "", line) for line in lines)
    told = [each for name, kind in known(catalog.sections()).items() for each in sentences(kind, name)]
    assert [name for name, sentence in told if sentence not in text] == []


def test_the_example_changes_nothing_and_raises_no_warning(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text(example(), encoding="utf-8")
    plain = load(catalog.sections(), tmp_path, None, {})
    for file in (EXAMPLE, tmp_path / "all.toml"):
        loaded = load(catalog.sections(), tmp_path, file, {})
        assert loaded.warnings == ()
        assert (loaded.core, loaded.bots, loaded.platforms) == (plain.core, plain.bots, plain.platforms)


def test_the_longer_examples_work_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text(longer_examples(), encoding="utf-8")
    (tmp_path / "rosa.md").write_text("You are Rosa.")
    loaded = load(catalog.sections(), tmp_path, tmp_path / "more.toml", {"ROSA_API_KEY": "sk-rosa"})
    assert loaded.warnings == ()
    assert list(loaded.bots) == ["demo", "rosa"]
    assert list(loaded.bot.mcp) == ["issues", "wiki"]
    assert [rule.bot for rule in loaded.core.rules] == ["rosa"]
    shown = tomllib.loads(longer_examples())
    for model, written in (
        (type(loaded.core.rules[0]), shown["rules"][0]),
        (type(loaded.bot.mcp["wiki"]), {**shown["bot"]["mcp"]["issues"], **shown["bot"]["mcp"]["wiki"]}),
    ):
        assert set(written) == set(model.model_fields), "each key is shown"
