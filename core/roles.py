"""Roles, permissions and persons: the values that every door uses to decide what somebody may do."""

from __future__ import annotations

from enum import StrEnum

from tidings.core.types import Value


class Role(StrEnum):
    """What somebody is to the gateway, from the lowest to the highest."""

    # Blocked people get no answer at all.
    BLOCKED = "blocked"
    STRANGER = "stranger"
    GUEST = "guest"
    MEMBER = "member"
    ADMIN = "admin"
    OWNER = "owner"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def includes(self, other: Role) -> bool:
        """Tells whether this role may do everything that the other one may."""
        return self.rank >= other.rank


_RANKS = {role: rank for rank, role in enumerate(Role)}
# The roles that a person can be given.
GIVEN = (Role.GUEST, Role.MEMBER, Role.ADMIN, Role.OWNER)


class Permission(StrEnum):
    """What a command, button, tool, route or word of the command line asks of a person."""

    # Talk to a bot, and let it use tools that change nothing outside of the conversation.
    TALK = "talk"
    # See and control the own conversation: /help, /status, /whoami, /new, /stop, /usage.
    BASICS = "basics"
    # Change how a bot answers, plan work, use the board, and let a bot use tools with effects.
    WORK = "work"
    # Approve tool calls of the own runs.
    APPROVE = "approve"
    # Approve tool calls of other people's runs.
    APPROVE_OTHERS = "approve_others"
    # Stop or cancel what other people began, and see what they use.
    OTHERS = "others"
    # Choose the chat that gets gateway alerts.
    HOME = "home"
    # Admit, remove, block and link people, and change roles below the own one.
    PEOPLE = "people"
    # Operate the gateway itself: keys, settings, backups, every conversation.
    OPERATE = "operate"


NAME_CHARACTERS = 60
# Removed from names, because only the gateway writes an id in parentheses after a name.
BRACKETS = str.maketrans("", "", "()")


def plain_name(name: str) -> str:
    """A name that somebody chose, on one line, short, and without characters that hide or turn what stands near."""
    visible = "".join(each for each in name if each.isprintable() or each.isspace())
    return " ".join(visible.translate(BRACKETS).split())[:NAME_CHARACTERS].strip()


def described(name: str, identity: str) -> str:
    """A name that somebody chose, with the identity that cannot be chosen."""
    shown = plain_name(name)
    return f"{shown} ({identity})" if shown else identity


class Person(Value, frozen=True, kw_only=True):
    """Somebody who writes to the gateway, with the role that applies right now.

    `id` is a stored person's id; a person whom only the settings name, and a stranger, has their identity as id.
    """

    id: str
    role: Role
    name: str = ""
    # As adapter:sender, or adapter@account:sender.
    identities: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name with an identity behind it, because anybody can choose any name."""
        if self.id == "owner" and not self.identities:
            return self.name
        return described(self.name, self.identities[0] if self.identities else self.id)


# Whoever sits at the machine: the console, the local socket, and the key in the gateway's home.
OWNER = Person(id="owner", role=Role.OWNER, name="the owner")
