"""Who a request is from: the holder of its key, or the person whom its client names, who is known under that key."""

from __future__ import annotations

from tidings.core.desk.people import Key
from tidings.core.types import Asker, Conversation, Sender, Target

ADAPTER = "api"


def sender(key: Key, user: str) -> Sender:
    """A person whom a client names is known under the client's key only: under another key, the name is another's."""
    return Sender(id=f"{key.id}/{user}" if user else key.id, name=key.name, key=key.id)


def asker(account: str, key: Key, user: str) -> Asker:
    """The person for whom this request's work is done."""
    return Asker(
        conversation=Conversation(adapter=ADAPTER, account=account, chat=key.id, member=user),
        target=Target(adapter=ADAPTER, account=account, chat=key.id),
        sender=sender(key, user),
    )
