"""The way out to a platform: direct, by a proxy of its own, or by the one that the environment names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from tidings.core.adapter import Adapter, Host, Receive, Taken
from tidings.core.errors import Misconfigured, Unreachable
from tidings.core.settings import Section
from tidings.core.types import Absent, Attachment, Body, Capabilities, Part, Receipt, Signal, Target, Unreadable, View

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
    # curl takes a name without a scheme, so the variable may hold one.
    return Way(named if "://" in named else f"http://{named}", f"{scheme.upper()}_PROXY")


def way_of(section: Section) -> Way | None:
    """None where the section's platform is on this machine."""
    if not hasattr(section, "proxy") or not hasattr(section, "api_url"):
        return None
    return way(section.proxy, section.api_url)


def trouble(way: Way | None) -> str:
    """A sentence where the environment names a kind of proxy that nothing here can speak to; else empty."""
    if way is None or not way.by or PROXY.fullmatch(way.by):
        return ""
    return (
        f"{way.named} names {shown(way.by)}, and only http:// and https:// proxies can be used:"
        f' change it, or set proxy = "{DIRECT}" or another one in the section of the platform'
    )


def stranded(build: Callable[[Host], Adapter], why: str) -> Callable[[Host], Adapter]:
    """Builds a stand-in for an adapter that has no way out, so that the other adapters serve."""
    return lambda host: Stranded(build(host), why)


class Stranded:
    """Hears nothing and sends nothing, and says why; what is owed there waits."""

    def __init__(self, adapter: Adapter, why: str) -> None:
        self.name = adapter.name
        self.account = adapter.account
        self._adapter = adapter
        self._why = why

    def can(self, target: Target) -> Capabilities:
        return self._adapter.can(target)

    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        return self._adapter.compose(target, body)

    async def listen(self, receive: Receive) -> None:
        raise Misconfigured(self._why)

    async def send(self, part: Part) -> Receipt:
        raise Misconfigured(self._why)

    async def show(self, view: View, text: str) -> View:
        raise Misconfigured(self._why)

    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        # It can be asked when there is a way again; until then the doubt stays one.
        raise Unreachable(self._why)

    async def signal(self, target: Target, signal: Signal) -> None:
        """Nothing is shown: there is no way out."""

    async def fetch(self, attachment: Attachment) -> Path:
        raise Misconfigured(self._why)

    async def close(self) -> None:
        await self._adapter.close()


def shown(url: str) -> str:
    """Without the password."""
    server = urlsplit(url)
    if "@" not in server.netloc:
        return url.rstrip("/")
    who, _, where = server.netloc.rpartition("@")
    name = who.partition(":")[0]
    return f"{server.scheme}://{name}:***@{where}"
