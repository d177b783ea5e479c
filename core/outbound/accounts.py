"""The adapters of all configured accounts, by the name of the platform and the account."""

from __future__ import annotations

from tidings.core.adapter import Adapter
from tidings.core.types import Body, Capabilities, Target


class Accounts(dict[tuple[str, str], Adapter]):
    """The gateway adds every adapter here before any part starts."""

    def of(self, target: Target) -> Adapter | None:
        return self.get((target.adapter, target.account))

    def can(self, target: Target) -> Capabilities | None:
        """None for an account that is not configured."""
        adapter = self.of(target)
        return adapter.can(target) if adapter else None

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        adapter = self.of(target)
        return adapter.compose(target, body) if adapter else (body,)
