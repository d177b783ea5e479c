"""Which commands a rule covers: exactly its plain words, and nothing that a shell would read as more than words."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tidings.bots.assistant.tools.command_rules import COMMAND_CHARACTERS, Rule, is_covered, parse, plain_words
from tidings.core.errors import ConfigError

RULES = parse(["git status", "ls *", "git log --format=%h", "ls"])

COVERED = [
    "git status",
    " git  status ",
    "ls",
    "ls -la",
    "ls docs/a.md ./b",
    "git log --format=%h",
]

# Whatever a stranger could think of behind the words of a rule.
HOSTILE = [
    "git status; rm -rf ~",
    "git status;rm -rf .",
    "git status && x",
    "git status || x",
    "git status & x",
    "git status &",
    "git status | sh",
    "git status |& sh",
    "git status $(x)",
    "git status `x`",
    "git status \nrm -rf .",
    "git status\nrm -rf .",
    "git status\n",
    "git status\r\nrm",
    "git status\x0brm",
    "git status \\\nrm",
    "git\tstatus",
    "git status # comment",
    "git status > file",
    "git status >> file",
    "git status 2>&1",
    "git status < file",
    "git status <(x)",
    "git status <<< x",
    "git status <<EOF",
    "ls > f",
    "ls -la|sh",
    "ls -la;sh",
    "ls *",
    "ls ?",
    "ls [a-z]",
    "ls {a,b}",
    "ls ~",
    "ls ~root",
    "ls $HOME",
    "ls ${HOME}",
    "ls $'a'",
    'ls $"a"',
    "ls !!",
    "ls !$",
    "ls ^a^b",
    "ls %(x)",
    "ls @(a|b)",
    "ls \\$x",
    "ls 'a b'",
    'ls "a b"',
    '"git" status',
    "git st''atus",
    "g\\it status",
    "'git' status",
    "A=b git status",
    "PATH=. git status",
    "git=x status",
    "=ls",
    "git\u00a0status",
    "git\u2003status",
    "git stat\u200bus",
    "git\u202estatus",
    "gi\u0442 status",
    "\uff47it status",
    "git statu\u017f",
    "git st\u0430tus",
    "git status\0",
    "git status\x1b[2K",
    "git status \ud800",
    "GIT status",
    "git statuss",
    "git status -s",
    "git",
    "lsof",
    "lsblk -a",
    "./ls",
    "/bin/ls",
    "git log --format=%h x",
    "(ls)",
    "{ ls; }",
    "! ls",
    "time ls",
    "exec ls",
    "env ls",
    "",
    " ",
    "ls " + "a" * COMMAND_CHARACTERS,
    "ls " + "a " * 5_000_000,
]


@pytest.mark.parametrize("command", COVERED)
def test_a_rule_covers_its_own_words(command: str) -> None:
    assert is_covered(RULES, command)


@pytest.mark.parametrize("command", HOSTILE, ids=lambda command: ascii(command)[:40])
def test_a_rule_covers_nothing_else(command: str) -> None:
    assert not is_covered(RULES, command)


def test_every_character_that_means_something_to_a_shell_is_left_to_people() -> None:
    odd = [chr(code) for code in range(0x3000) if not chr(code).isalnum() and chr(code) not in "_./:=@%+, -"]
    assert [each for each in odd if is_covered(RULES, f"ls a{each}b")] == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_shell_reads_plain_words_as_we_do() -> None:
    """Every plain character in every place: what bash hands to a program is what the rule was compared with."""
    letters = "aZ09_./:=@%+,-"
    commands = [f"printf {first}{second} {second}{first} x{first}" for first in letters for second in letters]
    script = "\n".join(command.replace("printf", "told", 1) for command in commands)
    shell = ["bash", "-c", f'told() {{ printf "%s\\n" "$#" "$@"; }}\n{script}']
    heard = subprocess.run(shell, capture_output=True, text=True, check=True, cwd="/").stdout.splitlines()
    wanted: list[str] = []
    for command in commands:
        words = plain_words(command)
        assert words is not None
        wanted += [str(len(words) - 1), *words[1:]]
    assert heard == wanted


@pytest.mark.parametrize("written", ["*", "", "git * status", "ls*", "echo 'a'", "a | b", "A=b ls *", "ls **", "~/x"])
def test_a_rule_that_means_more_than_words_is_refused(written: str) -> None:
    with pytest.raises(ConfigError, match="approvals: commands: .* must be plain words"):
        parse([written])


def test_a_rule_is_its_words() -> None:
    assert parse(["ls *", " git  status "]) == (Rule(("ls",), goes_on=True), Rule(("git", "status")))
