"""Names for rows: 128 random bits behind a prefix that says what it names."""

import secrets


def new(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"
