"""Finds the account for a workspace: an app may be in several, and each of its connections carries events of all."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tidings.core.errors import Unstored

log = logging.getLogger(__name__)

# What one account does about a payload, by the name of the listener in bolt.py. A listener returns words for the person
# who asked, or none, and raises Unstored when Slack must send the payload again.
Listeners = Mapping[str, Callable[[Mapping[str, Any]], Awaitable[str]]]
# Given ids of a workspace and its organisation: the listeners of the account for the first known id.
Find = Callable[[Sequence[str]], Listeners]
MOST_WARNINGS = 1000


class Workspaces:
    """Keyed by the app, which its token or secret identifies, and the id of the workspace or organisation."""

    def __init__(self) -> None:
        self._listening: dict[tuple[str, str], Listeners] = {}
        self._warned: set[str] = set()

    @contextmanager
    def listening(self, app: str, ids: Sequence[str], listeners: Listeners) -> Iterator[None]:
        mine = [(app, id) for id in ids if id]
        self._listening.update(dict.fromkeys(mine, listeners))
        try:
            yield
        finally:
            for key in mine:
                # An account that began to listen later keeps its entry.
                if self._listening.get(key) is listeners:
                    del self._listening[key]

    def find(self, app: str, ids: Sequence[str]) -> Listeners:
        """Raises Unstored for a workspace without an account: an account may listen for it soon."""
        for id in ids:
            if (found := self._listening.get((app, id))) is not None:
                return found
        name = " of ".join(dict.fromkeys(ids)) or "without a name"
        if name not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(name)
            log.warning("an event came from the workspace %s, for which no account listens", name)
        raise Unstored(f"no account listens for the workspace {name}")


# All accounts of the process.
WORKSPACES = Workspaces()


def ids_of(payload: Mapping[str, Any]) -> Iterator[str]:
    """The app's own workspace comes first: in a channel that workspaces share, an event may happen in another one."""
    for each in payload.get("authorizations") or ():
        yield str(each.get("team_id") or "")
        yield str(each.get("enterprise_id") or "")
    yield str(payload.get("team_id") or "")
    for name, key in (("team", "id"), ("user", "team_id")):
        part = payload.get(name)
        yield str(part.get(key) or "") if isinstance(part, Mapping) else ""
    yield str(payload.get("enterprise_id") or "")
    part = payload.get("enterprise")
    yield str(part.get("id") or "") if isinstance(part, Mapping) else ""
