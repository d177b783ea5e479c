"""Several accounts in one section: what each takes from the section, and how they may be called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ACCOUNT_NAME = re.compile(r"[A-Za-z0-9_-]+")


def inherit(values: Any, *own: str) -> Any:
    """An account takes what it leaves out from the section; never what is `own`, such as the token."""
    if not isinstance(values, Mapping) or not isinstance(values.get("accounts"), Mapping):
        return values
    shared = {name: value for name, value in values.items() if name not in ("accounts", *own)}
    accounts = {
        name: {**shared, **account} if isinstance(account, Mapping) else account
        for name, account in values["accounts"].items()
    }
    return {**values, "accounts": accounts}


def check(main: str, tokens: Mapping[str, str], token: str = "token") -> None:
    """`main` is the section's own token, `tokens` those of the accounts; raises ValueError."""
    for name, value in tokens.items():
        if not ACCOUNT_NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name an account: use letters, digits, _ and - only")
        if not value:
            raise ValueError(f"accounts.{name} has no {token}")
    if main and "main" in tokens:
        raise ValueError(f"the {token} of this section is the account main already; name the other one otherwise")
    known = [value for value in (main, *tokens.values()) if value]
    if len(set(known)) < len(known):
        raise ValueError(f"two accounts have the same {token}")
