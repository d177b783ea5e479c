"""An edit of a message, as every platform stores it."""

from __future__ import annotations

from tidings.core.types import Inbound, Kind


def edit_of(said: Inbound, key: str, *, addressed: bool | None = None) -> Inbound:
    """`said` is the message as it reads now; attachments and commands of an edit are not taken again."""
    return Inbound(
        key=key,
        kind=Kind.EDITED,
        about=said.key,
        conversation=said.conversation,
        target=said.target,
        sender=said.sender,
        text=said.text,
        quoted=said.quoted,
        addressed=said.addressed if addressed is None else addressed,
    )
