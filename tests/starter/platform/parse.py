"""Makes an Inbound of what starter announces: who said what, and where (pure)."""

from __future__ import annotations

from typing import Any

from tidings.core.types import Conversation, Inbound, Kind, Sender, Target


def inbound(event: dict[str, Any], account: str) -> Inbound:
    """The key is the message's own id, so that a message that is announced twice is stored once."""
    chat, text = str(event["chat"]), str(event["text"])
    is_command = text.startswith("/") and text[1:2].isalpha()
    return Inbound(
        key=str(event["id"]),
        conversation=Conversation(adapter="starter", account=account, chat=chat),
        target=Target(adapter="starter", account=account, chat=chat, reply_to=str(event["id"])),
        sender=Sender(id=str(event["from"])),
        kind=Kind.COMMANDED if is_command else Kind.MESSAGE,
        text=text,
        command=text[1:].split(maxsplit=1)[0].lower() if is_command else "",
    )
