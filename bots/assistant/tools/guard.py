"""Judges web addresses: whether one is well-formed and on the public internet (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from yarl import URL

from tidings.bots.assistant.tools.tool import ToolError
from tidings.core.errors import ConfigError

PORTS = (80, 443)
URL_CHARACTERS = 4096

# `ipaddress.is_global` differs from release to release, and counts multicast as global.
NOT_PUBLIC = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            # Multicast, reserved and broadcast.
            "224.0.0.0/3",
            # Teredo and the other protocols of the IETF's, which may carry a private address.
            "2001::/23",
            "2001:db8::/32",
            # 6to4 carries any IPv4 address.
            "2002::/16",
            "3fff::/20",
        ),
    )
)
# Whatever is not inside it is private, mapped, translated (NAT64), multicast or not in use.
UNICAST = ip_network("2000::/3")

# Characters that one parser takes for a separator and another for part of a name.
_AMBIGUOUS = re.compile(r"[\s\\\x00-\x20\x7f-\x9f]")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", re.IGNORECASE)
# Resolvers read these as IPv4, in octal, in hexadecimal or with parts left out.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)


def is_public(address: str) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and (parsed.scope_id is not None or parsed not in UNICAST):
        return False
    return not any(parsed in network for network in NOT_PUBLIC if network.version == parsed.version)


def parse(text: str, base: URL | None = None) -> URL:
    """Parses an address once; the result itself is fetched, so no second parser can read it differently."""
    text = text.strip()
    if len(text) > URL_CHARACTERS:
        raise ToolError(f"the address is longer than {URL_CHARACTERS} characters.")
    if _AMBIGUOUS.search(text):
        raise ToolError(
            "the address has a space, a backslash or a control character in it; write those as %20 and so on."
        )
    try:
        url = URL(text) if base is None else base.join(URL(text))
        # An unpaired surrogate would be dropped without a word.
        text.encode()
    except ValueError as error:
        raise ToolError("this is not a proper web address.") from error
    return url


def judge(url: URL, allowed: frozenset[str]) -> None:
    """Raises ToolError for an address that may not be fetched, as far as that is clear without resolving the name."""
    if url.scheme not in ("http", "https"):
        raise ToolError("only addresses that begin with http:// or https:// can be fetched.")
    if url.raw_user is not None or url.raw_password is not None:
        raise ToolError("the address has a user name or a password in it; leave it out.")
    host = url.raw_host or ""
    if not _is_literal(host) and not _is_name(host):
        raise ToolError("the address does not name a proper host.")
    if is_allowed(url, allowed):
        return
    if url.port not in PORTS:
        raise ToolError(f"only the ports 80 and 443 can be fetched, not {url.port}.")
    if _is_literal(host) and not is_public(host):
        raise ToolError(f"{host} is not a public address, so I may not fetch it.")


def literal(url: URL) -> str | None:
    """The IP address in a URL that has one instead of a name."""
    host = url.raw_host or ""
    return host if _is_literal(host) else None


def is_allowed(url: URL, allowed: frozenset[str]) -> bool:
    host = _plain(url.raw_host or "")
    return host in allowed or f"{host} {url.port}" in allowed


def allowed_hosts(entries: Iterable[str], setting: str = "fetch_hosts") -> frozenset[str]:
    """The allowed hosts in the form that `is_allowed` compares; an entry may name the one port that it permits."""
    return frozenset(_allowed_host(entry, setting) for entry in entries)


def _allowed_host(entry: str, setting: str) -> str:
    entry = entry.strip()
    authority = f"[{entry}]" if entry.count(":") > 1 and not entry.startswith("[") else entry
    try:
        url = URL(f"http://{authority}")
    except ValueError as error:
        raise ConfigError(f"{setting}: {entry!r} is not a host; write it as example.com") from error
    host = url.raw_host or ""
    if (not _is_literal(host) and not _is_name(host)) or url.raw_path != "/" or "@" in entry:
        raise ConfigError(f"{setting}: {entry!r} is not a host; write it as example.com")
    return _plain(host) if url.explicit_port is None else f"{_plain(host)} {url.explicit_port}"


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")


def _is_literal(host: str) -> bool:
    try:
        return isinstance(ip_address(host), IPv4Address | IPv6Address)
    except ValueError:
        return False


def _is_name(host: str) -> bool:
    host = _plain(host)
    return bool(_NAME.fullmatch(host)) and not _NUMBER.fullmatch(host.rpartition(".")[2])
