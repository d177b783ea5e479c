"""Which account is for which workspace: one app may be in several, and whichever hears of something passes it on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidings.adapters.slack.socket import Take


class Teams:
    """By the app, which its token or secret names, and the id of the workspace or organisation."""

    def __init__(self) -> None:
        self._takes: dict[tuple[str, str], Take] = {}

    @contextmanager
    def listening(self, app: str, ids: tuple[str, ...], take: Take) -> Iterator[None]:
        mine = {(app, id): take for id in ids if id}
        self._takes.update(mine)
        try:
            yield
        finally:
            for place, own in mine.items():
                # Whoever came after us stays.
                if self._takes.get(place) is own:
                    del self._takes[place]

    def find(self, app: str, payload: Mapping[str, Any]) -> Take | None:
        """None for a workspace that no account listens for, or not yet."""
        for id in _ids_of(payload):
            if (take := self._takes.get((app, id))) is not None:
                return take
        return None


# All accounts of the process.
TEAMS = Teams()


def _ids_of(payload: Mapping[str, Any]) -> Iterator[str]:
    """Whose app is told comes first: in a channel that workspaces share, something may happen in another one."""
    for each in payload.get("authorizations") or ():
        yield str(each.get("team_id") or "")
        yield str(each.get("enterprise_id") or "")
    team = payload.get("team")
    enterprise = payload.get("enterprise")
    yield str(payload.get("team_id") or "")
    yield str(team.get("id") or "") if isinstance(team, Mapping) else ""
    yield str((payload.get("user") or {}).get("team_id") or "") if isinstance(payload.get("user"), Mapping) else ""
    yield str(payload.get("enterprise_id") or "")
    yield str(enterprise.get("id") or "") if isinstance(enterprise, Mapping) else ""
