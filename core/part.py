"""The contract of a part: what the gateway asks of each part that works by itself, in one order for all."""

from __future__ import annotations


class Part:
    """A part says only what it has to do; the rest stays as it is here."""

    async def recover(self) -> None:
        """Before anything begins: decides about the rows that a dead process left open."""

    async def start(self) -> None:
        """Takes up what waits."""

    async def sweep(self) -> None:
        """Finds what is due and was not heard of; called every few seconds."""

    def pause(self) -> None:
        """Begins nothing more by itself; what is at work may end."""

    @property
    def busy(self) -> bool:
        """Whether something is at work that a stop would cut off, and that ends soon by itself."""
        return False

    async def stop(self, patience: float) -> None:
        """Ends; what is being written or sent has so many seconds."""
