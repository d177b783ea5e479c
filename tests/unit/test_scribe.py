"""Single settings are changed in a file, and nothing else in it."""

import tomllib
from pathlib import Path

import pytest

from tidings.bots.cli.toml_edit import amend, save
from tidings.core.errors import ConfigError

FILE = Path("tidings.toml")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[bot]\nname = "rosa"\n'),
        ("# only a word\n", '# only a word\n\n[bot]\nname = "rosa"\n'),
        ('[log]\nlevel = "info"', '[log]\nlevel = "info"\n\n[bot]\nname = "rosa"\n'),
        ("[bot]\n", '[bot]\nname = "rosa"\n'),
        ("[ bot ] # mine\nmodel = 1\n", '[ bot ] # mine\nname = "rosa"\nmodel = 1\n'),
        ('[bot]\nname = "tom"\n[log]\nname = 1\n', '[bot]\nname = "rosa"\n[log]\nname = 1\n'),
        ('[bot]\n  name="tom"  # my uncle\n', '[bot]\nname = "rosa"  # my uncle\n'),
        ('[bot]\nname = "to # m"\n', '[bot]\nname = "rosa"\n'),
        ('[bot]\nname = "rosa" # as it is\n', '[bot]\nname = "rosa" # as it is\n'),
        ("[bot.limits]\ntokens = 1\n", '[bot.limits]\ntokens = 1\n\n[bot]\nname = "rosa"\n'),
        ("[bot]\r\nmodel = 1\r\n", '[bot]\r\nname = "rosa"\nmodel = 1\r\n'),
        ("[log]\nx = [\n1]\n[bot]\ny = 2\n", '[log]\nx = [\n1]\n[bot]\nname = "rosa"\ny = 2\n'),
    ],
)
def test_one_line_changes_and_the_others_stay(before: str, after: str) -> None:
    assert amend(before, {("bot", "name"): "rosa"}, FILE) == after


@pytest.mark.parametrize(
    "text",
    [
        'bot = { name = "tom" }\n',
        '[bot]\nname = """\ntom\n"""\n',
        'text = """\n[bot]\n"""\n',
    ],
)
def test_what_is_laid_out_unusually_is_left_to_its_owner(text: str) -> None:
    with pytest.raises(ConfigError, match="write it yourself"):
        amend(text, {("bot", "name"): "rosa"}, FILE)


@pytest.mark.parametrize("value", ['quo"te', "back\\slash", "ünï\u2028cøde", "new\nline", True, 7, 0.5, ["a", "b"]])
def test_whatever_is_written_is_read_again(value: object) -> None:
    assert tomllib.loads(amend("", {("a.b", "c"): value}, FILE)) == {"a": {"b": {"c": value}}}


def test_each_change_leaves_a_copy_and_no_change_leaves_none(tmp_path: Path) -> None:
    file = tmp_path / "real.toml"
    file.write_text("[bot]\n")
    file.chmod(0o640)
    link = tmp_path / "tidings.toml"
    link.symlink_to(file)
    copies = [save(link, {("bot", "name"): name}) for name in ("rosa", "rosa", "lena")]
    assert copies[1] is None
    assert [copy.read_text() for copy in copies if copy] == ["[bot]\n", '[bot]\nname = "rosa"\n']
    assert link.is_symlink()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ('[bot]\nname = "lena"\n', 0o640)
