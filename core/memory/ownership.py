"""Whose a continued conversation is, as the transaction sees it: an unlinked account must not reach it any more."""

from __future__ import annotations

from collections.abc import Iterable

from tidings.core.memory import talks
from tidings.core.people import names, rows
from tidings.core.roles import OWNER
from tidings.core.store.store import Transaction
from tidings.core.types import Asker, Audience, Inbound

# Why a message that waited in a continued conversation is not answered.
LOST = "the talk that went on here is no longer yours; send the message again to talk here"


def is_kept(tx: Transaction, said: Inbound | Asker) -> bool:
    """Tells whether a message or a piece of work still belongs to the conversation that went on in its chat."""
    if said.began is None:
        return True
    owner = talks.owner_of(tx, said.conversation.id)
    if said.target.audience is Audience.PRIVATE:
        return is_owner(tx, owner, said)
    there, here = said.conversation, said.began
    is_same_group = (there.adapter, there.account, there.chat) == (here.adapter, here.account, here.chat)
    return is_same_group and (not owner or is_owner(tx, owner, said))


def memory_of(tx: Transaction, asker: Asker | None, conversation: str) -> str:
    """The conversation that remembers a report to the one where work was asked for; the chat's own if that is lost."""
    if asker is None or asker.began is None or asker.conversation.id != conversation or is_kept(tx, asker):
        return conversation
    return asker.began.id


def is_owner(tx: Transaction, owner: str, said: Inbound | Asker) -> bool:
    """Tells whether the owner of a conversation is this person, under whatever identity or key."""
    return owner in owned_names(tx, said)


def owned_names(tx: Transaction, said: Inbound | Asker) -> frozenset[str]:
    """Everything that this person is called as the owner of a conversation: identities, and the keys they hold."""
    called = _called(tx, said)
    found = (rows.read_one(tx, name) for name in called) if _is_somebody(tx, said) else ()
    others = (name for person in found if person is not None for name in names_of(tx, person.id, person.identities))
    return frozenset((*called, *_keys_of(tx, called), *others))


def names_of(tx: Transaction, id: str, identities: tuple[str, ...]) -> tuple[str, ...]:
    """The same for a person who is known by id and identities."""
    own = (*identities, *map(names.without_account, identities), *_keys_of(tx, (id, *identities)))
    return tuple(dict.fromkeys(own))


def _keys_of(tx: Transaction, holders: Iterable[str]) -> list[str]:
    held = (row for holder in holders for row in tx.all("SELECT id FROM keys WHERE person = ?", holder))
    return [names.key_name(row["id"]) for row in held]


def _called(tx: Transaction, said: Inbound | Asker) -> tuple[str, ...]:
    """The names by which the sender is known; under a key without another name, those of the key and its holder."""
    sender = said.sender
    if not sender.key or sender.id != sender.key:
        own = (names.name_of(said.target, sender),) if sender.key else names.own_names(said)
        return (*own, OWNER.id, names.key_name(OWNER.id)) if sender.trusted else own
    if sender.key == OWNER.id:
        return OWNER.id, names.key_name(OWNER.id)
    key = rows.holder_of(tx, sender.key)
    return (names.key_name(sender.key), key) if key else ()


def _is_somebody(tx: Transaction, said: Inbound | Asker) -> bool:
    """False for one who writes in the name of a group, and for one whom only a revoked key has named."""
    key = said.sender.key
    return not names.is_chat_itself(said) and (key in ("", OWNER.id) or bool(rows.holder_of(tx, key)))
