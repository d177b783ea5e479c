"""The signs by which an agent says that it stays silent; an answer that may be only a sign is held back."""

from __future__ import annotations

# The signs that models write when they decide not to answer.
SIGNS = ("[SILENT]", "[NO_REPLY]", "NO_REPLY", "HEARTBEAT_OK")


def is_sign(text: str) -> bool:
    return text.strip().upper() in SIGNS


class Quiet:
    """Holds back the beginning of an answer while the answer may be only a sign."""

    def __init__(self) -> None:
        self._held: list[str] = []
        # The text that is held back, without surplus whitespace; never longer than one sign and one delta.
        self._begun = ""
        self._open = False

    def feed(self, text: str) -> str:
        """Takes the next delta and returns the text that may be shown now."""
        if self._open:
            return text
        self._held.append(text)
        begun = (self._begun + text).lstrip()
        words = begun.rstrip()
        self._begun = begun[: len(words) + 1]
        if any(sign.startswith(words.upper()) for sign in SIGNS):
            return ""
        self._open = True
        return self.rest()

    @property
    def silent(self) -> bool:
        return is_sign(self._begun)

    def rest(self) -> str:
        held, self._held, self._begun = "".join(self._held), [], ""
        return held
