"""Where things are on Telegram: chats, topics, answered messages, and views that are edited or drafted (pure)."""

from __future__ import annotations

from typing import Any

import msgspec

from tidings.core.types import Receipt, Target, View


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


def is_group(target: Target) -> bool:
    """Groups and channels have negative ids or a public name."""
    return target.chat[:1] in ("-", "@")


def question_of(target: Target) -> int:
    """The number of the message that is answered; none where it stayed behind in another chat."""
    chat, _, number = target.reply_to.rpartition(":")
    return int(number) if chat == target.chat else 0


def place_of(target: Target) -> dict[str, Any]:
    return {"chat_id": target.chat, "message_thread_id": target.thread}


def receipt_of(posted: dict[str, Any], view: View | None = None) -> Receipt:
    """A chat may be addressed by its public name; it is remembered by its id."""
    return Receipt(ids=(str(posted["message_id"]),), view=view, chat=str(posted["chat"]["id"]))
