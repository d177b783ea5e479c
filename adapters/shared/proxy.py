"""The way out to a platform: direct, by a proxy of its own, or by the one that the environment names."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from core.errors import ConfigError

DIRECT = "none"
# What aiohttp can speak to.
PROXY = re.compile(r"https?://(?:[^\s@/]*@)?[^\s@/?#]+/?", re.IGNORECASE)
ABOUT = (
    'By which proxy to go out, such as "http://proxy:3128"; empty is the one of the environment (HTTPS_PROXY), '
    '"none" is direct.'
)


class Way(NamedTuple):
    """`by` is None for the direct way; `named` says who has named it."""

    by: str | None
    named: str = ""

    def __str__(self) -> str:
        return f"by {shown(self.by)} ({self.named})" if self.by else "direct"

    @property
    def password(self) -> str:
        return (urlsplit(self.by).password if self.by else "") or ""


def check(setting: str) -> None:
    """Raises ValueError, without the value: it may hold a password."""
    if setting not in ("", DIRECT) and not PROXY.fullmatch(setting):
        raise ValueError(
            f'proxy must be "{DIRECT}", or an address such as "http://proxy:3128"; no other kind is spoken'
        )


def way(setting: str, url: str) -> Way:
    """How to reach `url`, be it for requests or for a WebSocket."""
    if setting:
        return Way(None) if setting == DIRECT else Way(setting, "its own setting")
    server = urlsplit(url)
    scheme = {"wss": "https", "ws": "http"}.get(server.scheme, server.scheme)
    named = getproxies().get(scheme)
    if not named or proxy_bypass(server.hostname or ""):
        return Way(None)
    # curl takes a name without a scheme, and so does whoever has set the variable for it.
    return Way(named if "://" in named else f"http://{named}", f"{scheme.upper()}_PROXY")


def usable(way: Way) -> Way:
    """Raises ConfigError where the environment names a kind of proxy that nothing here can speak to."""
    if way.by and not PROXY.fullmatch(way.by):
        raise ConfigError(
            f"{way.named} names {shown(way.by)}, and only http:// and https:// proxies can be used:"
            f' change it, or set proxy = "{DIRECT}" or another one in the section of the platform'
        )
    return way


def shown(url: str) -> str:
    """Without the password."""
    server = urlsplit(url)
    if "@" not in server.netloc:
        return url.rstrip("/")
    who, _, where = server.netloc.rpartition("@")
    name = who.partition(":")[0]
    return f"{server.scheme}://{name}:***@{where}"
