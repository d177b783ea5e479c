"""Every verb of the board can be spoken in a chat and on the command line."""

from tidings.bots.cli import board as command_line
from tidings.core.work.board import commands
from tidings.core.work.board.service import VERBS


def test_each_verb_has_a_line_in_the_help_of_the_chat() -> None:
    said = {words.split()[1] for words in commands.HELP.replace("(", "\n").splitlines() if "/board " in words}
    said |= {words.split("/board ")[-1].split()[0] for words in commands.HELP.split(",") if "/board " in words}
    assert set(VERBS) <= said | {"list"}


def test_each_verb_is_a_command_of_the_command_line() -> None:
    # One option takes a watcher off again.
    assert {each.name for each in command_line.app.registered_commands} == set(VERBS) - {"unwatch"}


def test_a_chat_reads_each_verb_as_that_order() -> None:
    for verb in VERBS:
        words = {"add": "Paint it", "list": "done", "link": "3 12", "attach": "12 https://example.org/plan"}
        read = commands.parse(
            f"{verb} {words.get(verb, '12 some words' if 'watch' not in verb else '12')}", tuple(VERBS)
        )
        assert not isinstance(read, str)
        assert read.verb == verb
