"""How settings and stored rows name people and chats: `platform:ID`, or `platform@account:ID` for one account."""

from __future__ import annotations

from tidings.core.types import Asker, Audience, Inbound, Sender, Target

# Before the id of a key, as the owner of a conversation.
KEY = "key"


def name_of(target: Target, sender: Sender) -> str:
    """The identity of a person on a platform, the same for every account."""
    return f"{target.adapter}:{sender.id}"


def key_name(key: str) -> str:
    """The owner of conversations that are held under a key, without the name of another person."""
    return f"{KEY}:{key}"


def owner_name(target: Target, sender: Sender) -> str:
    """The owner of a conversation in which this sender talks alone with the bot."""
    return key_name(sender.key) if sender.key and sender.id == sender.key else name_of(target, sender)


def without_account(identity: str) -> str:
    """An identity as `name_of` writes it."""
    platform, _, sender = identity.partition(":")
    return f"{platform.partition('@')[0]}:{sender}"


def own_names(said: Inbound | Asker) -> tuple[str, ...]:
    """The identities of a person: with the platform, or with platform and account."""
    return name_of(said.target, said.sender), f"{said.target.at}:{said.sender.id}"


def chat_names(said: Inbound | Asker) -> tuple[str, ...]:
    """The ids of the group in which somebody speaks; none in a private chat."""
    target = said.target
    if target.audience is Audience.PRIVATE:
        return ()
    # A moved group is still known by its first id.
    began = said.conversation.chat
    return (*names_of(target), f"{target.adapter}:{began}", f"{target.at}:{began}")


def is_chat_itself(said: Inbound | Asker) -> bool:
    """Tells whether somebody writes in the name of a group, as anonymous admins do."""
    in_group = said.target.audience is not Audience.PRIVATE
    return in_group and said.sender.id in (said.target.chat, said.conversation.chat)


def names_of(target: Target) -> tuple[str, ...]:
    """The ids of a chat; a private chat mostly has its person's id."""
    return f"{target.adapter}:{target.chat}", f"{target.adapter}@{target.account}:{target.chat}"


def is_identity(text: str) -> bool:
    """Tells whether a text has the shape of an identity; `key:` is the gateway's own way to name a key."""
    adapter, _, sender = text.partition(":")
    is_plain = text.isprintable() and " " not in text
    return bool(adapter and sender and is_plain and not text.startswith("@") and adapter != KEY)


def is_same(one: str, other: str) -> bool:
    """Tells whether both name the same id on the same platform, whatever the account."""
    return without_account(one) == without_account(other)
