"""Rules for commands that run without asking: compared with the words of a command, never with its text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tidings.core.errors import ConfigError

# None of these characters means anything to a shell, so that splitting at spaces yields the words that a shell runs.
_PLAIN = re.compile(r"[A-Za-z0-9_./:=@%+, -]+")
ANYTHING = "*"
# A longer command is read by people.
COMMAND_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class Rule:
    words: tuple[str, ...]
    # Whether any plain words may follow.
    goes_on: bool = False

    def covers(self, words: tuple[str, ...]) -> bool:
        return words[: len(self.words)] == self.words if self.goes_on else words == self.words


def parse(written: Iterable[str]) -> tuple[Rule, ...]:
    """Raises ConfigError for a rule that could never match, or that would match every command."""
    return tuple(map(_rule, written))


def _rule(written: str) -> Rule:
    goes_on = written.split()[-1:] == [ANYTHING]
    words = plain_words(written.strip().removesuffix(ANYTHING) if goes_on else written)
    if words is None:
        fault = "must be plain words without quotes or shell syntax; * stands for more words, at the end alone"
        raise ConfigError(f'approvals: commands: "{written}" {fault}, such as "git status" or "ls *"')
    return Rule(words, goes_on)


def plain_words(command: str) -> tuple[str, ...] | None:
    """The words that a shell would run for this command, or None if anything in it means more than words."""
    if len(command) > COMMAND_CHARACTERS or not _PLAIN.fullmatch(command):
        return None
    words = tuple(filter(None, command.split(" ")))
    # An assignment in front changes how the program behind it works.
    return None if not words or "=" in words[0] else words


def is_covered(rules: Iterable[Rule], command: str) -> bool:
    words = plain_words(command)
    return words is not None and any(rule.covers(words) for rule in rules)
