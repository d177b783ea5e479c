"""An edit of a message, as every platform stores it."""

from __future__ import annotations

from tidings.core.types import Inbound, Kind


def edit_of(said: Inbound, key: str, *, was_addressed: bool = False) -> Inbound:
    """`said` is the message as it reads now; attachments and commands of an edit are not taken again.

    `was_addressed` means that the message as it read before named us.
    """
    return Inbound(
        key=key,
        kind=Kind.EDITED,
        about=said.key,
        conversation=said.conversation,
        target=said.target,
        sender=said.sender,
        text=said.text,
        quoted=said.quoted,
        addressed=said.addressed or was_addressed,
        overheard=said.overheard and not was_addressed,
    )
