"""Holds back the beginning of an answer while it may turn out to be nothing but a sign of silence."""

from __future__ import annotations

# What models are known to write when they think that they need not answer.
SIGNS = ("[SILENT]", "[NO_REPLY]", "NO_REPLY", "HEARTBEAT_OK")


def is_sign(text: str) -> bool:
    return text.strip().upper() in SIGNS


class Quiet:
    def __init__(self) -> None:
        self._held = ""
        self._open = False

    def feed(self, text: str) -> str:
        """What may be shown now."""
        if self._open:
            return text
        self._held += text
        begun = self._held.strip().upper()
        if any(sign.startswith(begun) for sign in SIGNS):
            return ""
        self._open = True
        return self.rest()

    @property
    def silent(self) -> bool:
        return is_sign(self._held)

    def rest(self) -> str:
        held, self._held = self._held, ""
        return held
