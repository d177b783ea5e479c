"""The contract of a part of the gateway: recover, start, sweep, pause and stop, in the same order for all parts."""

from __future__ import annotations


class Part:
    """A part overrides only the steps that it needs."""

    async def recover(self) -> None:
        """Decides about rows that a dead process left open, before anything starts."""

    async def start(self) -> None:
        """Starts the work on waiting rows."""

    async def sweep(self) -> None:
        """Finds due rows whose wake-up was missed; called every few seconds."""

    def pause(self) -> None:
        """Starts nothing new; work in progress may end."""

    @property
    def busy(self) -> bool:
        """Tells whether work is in progress that a stop would cut off, and that ends soon by itself."""
        return False

    async def stop(self, patience: float) -> None:
        """Ends the part; writes and sends under way get so many seconds."""
