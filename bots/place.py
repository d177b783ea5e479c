"""Where a command works: the home, its settings, and how to ask the gateway that runs there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Ask = Callable[[dict[str, Any]], dict[str, Any]]


class Place(NamedTuple):
    """The `obj` of every command; only the composition root knows who answers."""

    home: Path
    config: Path | None
    # Asks the running gateway one question. Raises NotRunning, or Declined with its words.
    ask: Ask
    # Where no gateway runs, the keys are looked up in the store.
    ask_keys: Ask
