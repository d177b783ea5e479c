"""Makes ids for rows: 128 random bits behind a prefix that tells what kind of row it is."""

import secrets


def new(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"
