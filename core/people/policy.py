"""Answers "may this person do this?": one table of the role that each permission requires, and one function."""

from __future__ import annotations

from collections.abc import Mapping

from tidings.core.roles import Permission, Role

# The lowest role for each permission, unless the settings say otherwise.
REQUIRED: Mapping[Permission, Role] = {
    Permission.TALK: Role.GUEST,
    Permission.BASICS: Role.GUEST,
    Permission.WORK: Role.MEMBER,
    Permission.APPROVE: Role.ADMIN,
    Permission.APPROVE_OTHERS: Role.ADMIN,
    Permission.OTHERS: Role.ADMIN,
    Permission.HOME: Role.ADMIN,
    Permission.PEOPLE: Role.ADMIN,
    Permission.OPERATE: Role.OWNER,
}


def may(role: Role, permission: Permission, required: Mapping[Permission, Role] = REQUIRED) -> bool:
    """An owner may do everything; people without a role, and blocked people, may do nothing."""
    if not role.includes(Role.GUEST):
        return False
    return role is Role.OWNER or role.includes(required[permission])


def may_change(by: Role, before: Role, after: Role) -> bool:
    """Tells whether somebody may change a person's role: admins only below their own, owners always."""
    if by is Role.OWNER:
        return True
    return by.rank > before.rank and by.rank > after.rank
