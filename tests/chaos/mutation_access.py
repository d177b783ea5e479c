"""Seeded bugs in who may do what: at the door, with the home, at the board, and long after it was asked for."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from tests.chaos.mutation_seams import swap
from tidings.adapters.api.settings import HttpSettings
from tidings.bots import main
from tidings.core.desk.board import Hand
from tidings.core.inbound import policy
from tidings.core.inbound.access import Access
from tidings.core.inbound.policy import Judgement
from tidings.core.redaction import remember
from tidings.core.store.store import Transaction
from tidings.core.types import Asker, Inbound
from tidings.core.work.board import cards as card_rows
from tidings.core.work.board.permissions import Permissions


def empty_list_admits_everybody() -> None:
    """Whoever has not said who may speak seems to have said that all may."""
    real = policy.judge

    def judge(inbound: Inbound, allowed: Set[str]) -> Judgement:
        return real(inbound, allowed) if allowed else Judgement.ADMIT

    swap(policy, "judge", judge)


def removed_people_go_on() -> None:
    """Admission is looked at when somebody speaks, and not when what they have planned begins."""

    def lapsed(self: Access, asker: Asker | None) -> str:
        return ""

    swap(Access, "lapsed", lapsed)


def lists_merge() -> None:
    """Whom the settings name is stored too, and stays when the settings no longer name them."""

    def is_in_settings(self: Access, id: str) -> bool:
        return False

    swap(Access, "is_in_settings", is_in_settings)


def anybody_takes_the_home() -> None:
    """Whoever may speak may have the news of the gateway sent to themselves."""

    def is_owner(self: Access, inbound: Inbound) -> bool:
        return True

    swap(Access, "is_owner", is_owner)


def owner_by_group() -> None:
    """Whoever speaks in a group that the owners' list names is an owner."""

    def is_owner(self: Access, inbound: Inbound) -> bool:
        return not set(self._settings.owners).isdisjoint(policy.names(inbound))

    swap(Access, "is_owner", is_owner)


def card_for_anybody() -> None:
    """A card from a chat goes to whatever bot it names."""

    def check_assignee(self: Permissions, assignee: str, hand: Hand) -> None:
        return

    swap(Permissions, "check_assignee", check_assignee)


def folder_of_others() -> None:
    """Whoever knows the name of a folder works in it."""

    def may_share(tx: Transaction, folder: str, asker: Asker | None) -> bool:
        return True

    swap(card_rows, "may_share", may_share)


def key_in_the_journal() -> None:
    """The owner's key is told to whatever reads along."""
    real = main._with_key

    def with_key(home: Path, http: HttpSettings) -> tuple[HttpSettings, str]:
        settings, _ = real(home, http)
        remember(settings.key.get_secret_value())
        return settings, f"the key of the HTTP API is {settings.key.get_secret_value()}"

    swap(main, "_with_key", with_key)
