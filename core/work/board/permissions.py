"""Who may change a card and which assignees it may get, depending on where the request comes from."""

from __future__ import annotations

from tidings.core.desk.board import Hand
from tidings.core.errors import Unkeepable
from tidings.core.inbound.bots import Bots
from tidings.core.people.people import People
from tidings.core.roles import Permission
from tidings.core.settings import Board
from tidings.core.store.store import Row, Transaction
from tidings.core.types import Origin
from tidings.core.work.board import cards as card_rows
from tidings.core.work.tasks import rows as task_rows


class Permissions:
    def __init__(self, settings: Board, bots: Bots) -> None:
        self._settings = settings
        self._bots = bots

    @property
    def roster(self) -> frozenset[str]:
        """Every bot and every worker that may be given a card."""
        return frozenset((*self._bots.agents, *self._settings.workers))

    def own_bot(self, hand: Hand) -> str:
        """The bot that gets a card without a named assignee."""
        return hand.bot or self._bots.default

    def check_assignee(self, assignee: str, hand: Hand) -> None:
        """Raises Unkeepable for an assignee that is not allowed from this chat, and names those that are."""
        if not self._may_go_to(assignee, hand):
            known = ", ".join(sorted(self._assignees(hand)))
            raise Unkeepable(f"a card from here cannot go to {assignee!r}; it can go to: {known}")

    def may_change(self, tx: Transaction, id: str, hand: Hand) -> bool:
        try:
            self.check(tx, id, hand)
        except Unkeepable:
            return False
        return True

    def check(self, tx: Transaction, id: str, hand: Hand) -> None:
        """Raises Unkeepable if this person may not change the card, because text on a card steers its bot."""
        row = card_rows.find(tx, id)
        if hand.is_owner or _has_made(row, hand) or _watches(tx, row["id"], hand):
            return
        if self._settings.people != "all":
            raise Unkeepable(f"#{row['id']} was made in another chat; only that chat or the owner may change it")
        if not self._may_go_to(row["assignee"], hand):
            words = "which gets no cards from here, so it cannot be changed here"
            raise Unkeepable(f"#{row['id']} belongs to {row['assignee']!r}, {words}")

    def _may_go_to(self, assignee: str, hand: Hand) -> bool:
        return hand.is_owner or assignee in self._assignees(hand)

    def _assignees(self, hand: Hand) -> set[str]:
        """The bot that answers in this chat, and the assignees that the settings allow there."""
        rule = self._bots.rule_for(hand.asker) if hand.asker else None
        listed = self._settings.assignees if rule is None or rule.assignees is None else rule.assignees
        return {self.own_bot(hand), *listed}


def check_stop(tx: Transaction, id: str, hand: Hand, people: People) -> None:
    """Raises Unkeepable if this person may not stop work on the card: only admins may stop what others asked for."""
    row = card_rows.find(tx, id)
    if hand.is_owner or _works_on(row, hand):
        return
    person = people.of_asker(hand.asker)
    if not people.is_own(task_rows.asker_of(row), person) and not people.may(person, Permission.OTHERS):
        raise Unkeepable(f"somebody else made #{row['id']}; they can stop it, and so can an owner or admin")


def _has_made(row: Row, hand: Hand) -> bool:
    if _works_on(row, hand):
        return True
    on_card = hand.conversation is not None and hand.conversation.adapter == Origin.CARD
    # The name of a person contains their id; a bot in a chat works for its person, so its name proves nothing.
    return bool(row["made_by"] == hand.name) and (hand.is_person or on_card)


def _works_on(row: Row, hand: Hand) -> bool:
    place = hand.conversation
    return place is not None and place.adapter == Origin.CARD and place.chat == str(row["id"])


def _watches(tx: Transaction, card: int, hand: Hand) -> bool:
    place = str(hand.target.lasting()) if hand.target else ""
    conversation = hand.conversation.id if hand.conversation else ""
    found = tx.one(
        "SELECT 1 FROM card_watchers WHERE card = ? AND (place = ? OR (conversation = ? AND conversation <> ''))",
        card,
        place,
        conversation,
    )
    return found is not None
