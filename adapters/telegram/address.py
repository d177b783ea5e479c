"""Where an answer grows on Telegram: in a message that is edited, or in a draft that a message will follow (pure)."""

from __future__ import annotations

import msgspec

from tidings.core.types import View


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """The handle of a view: a message that is edited, or a draft that a message will follow."""

    chat: str
    thread: str = ""
    message: int = 0
    draft: int = 0

    def write(self) -> str:
        return msgspec.json.encode(self).decode()


def shown_of(view: View | None) -> Shown | None:
    return msgspec.json.decode(view.handle, type=Shown) if view else None
