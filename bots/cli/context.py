"""What every command is given: the home, its settings, and how to ask the running gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from tidings.bots.app.settings import Loaded

Ask = Callable[[dict[str, Any]], dict[str, Any]]


# What a platform reports about an account: a sentence, whether it is an error, and whether it is a warning.
Findings = Iterable[tuple[str, bool, bool]]


class Guide(Protocol):
    """How a person gets an account on a platform."""

    @property
    def title(self) -> str: ...
    @property
    def steps(self) -> tuple[str, ...]: ...
    @property
    def needs(self) -> Iterable[tuple[str, str]]:
        """What to ask the person for: the key of each setting, and a question."""
        ...

    @property
    def greeting(self) -> str: ...


class Load(Protocol):
    def __call__(self, beside: Mapping[str, Any], *, is_new: bool = False) -> Loaded:
        """Reads the settings, overridden by `beside`; with `is_new`, a missing file counts as empty.

        Raises ConfigError.
        """
        ...


class Serve(Protocol):
    def __call__(self, place: Place, *, chats: bool) -> None: ...


class Place(NamedTuple):
    """The `obj` of every command; only the composition root knows the adapters behind it."""

    home: Path
    config: Path | None
    # Asks the running gateway one question. Raises NotRunning, or Declined with its words.
    ask: Ask
    # Where no gateway runs, the keys are looked up in the store.
    ask_keys: Ask
    # Where no gateway runs, people and the audit trail are looked up and changed in the store.
    ask_people: Ask
    # One line for people, in which nothing can move the cursor.
    say: Callable[[str], None]
    load: Load
    # Whether a gateway could be built of them. Raises ConfigError.
    check: Callable[[Loaded], object]
    # Checks the id of a person or group. Raises Unknown, which says what an id of that platform looks like.
    check_id: Callable[[str], None]
    # Whether an id is surely a group's.
    is_group: Callable[[str], bool]
    # Asks a platform, or all for an empty name: platform, account and what was found.
    examine: Callable[[Loaded, str], list[tuple[str, str, Findings]]]
    # By platform, for those that a person can set up.
    guides: Callable[[], Mapping[str, Guide]]
    # Runs a gateway until it is stopped; with `chats`, in a terminal where one can talk to it.
    serve: Serve
    # Talks to the running gateway in a thread; with patience from a pipe, and then says whether all was answered.
    talk: Callable[[str, float | None], bool]
