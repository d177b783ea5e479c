"""Whose a continued conversation is, as the transaction sees it: an unlinked account must not reach it any more."""

from __future__ import annotations

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
    called = _called(tx, said)
    if owner in called:
        return True
    persons = [person for name in called if (person := rows.read_one(tx, name)) is not None]
    identities = {each for person in persons for each in person.identities}
    if owner in identities or owner in map(names.without_account, identities):
        return True
    holders = {*called, *identities, *(person.id for person in persons)}
    held = [row["id"] for each in holders for row in tx.all("SELECT id FROM keys WHERE person = ?", each)]
    return owner in map(names.key_name, held)


def _called(tx: Transaction, said: Inbound | Asker) -> tuple[str, ...]:
    """The names by which the sender is known; under a key without another name, those of the key and its holder."""
    sender = said.sender
    if not sender.key or sender.id != sender.key:
        own = (names.name_of(said.target, sender),) if sender.key else names.own_names(said)
        return (*own, OWNER.id, names.key_name(OWNER.id)) if sender.trusted else own
    if sender.key == OWNER.id:
        return OWNER.id, names.key_name(OWNER.id)
    key = tx.one("SELECT person FROM keys WHERE id = ?", sender.key)
    return (names.key_name(sender.key), key["person"]) if key else ()
