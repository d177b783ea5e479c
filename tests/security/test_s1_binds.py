"""S1: who can be reached from outside has a strong key, or does not even begin to listen."""

import os
import re
from pathlib import Path

import pytest

from tests.security.command_lines import ROOT, Shown, tidings
from tidings.adapters.api.keys import new_secret
from tidings.adapters.api.settings import HttpSettings, weakness

STRONG = "3f9a1c7be0d24586a1b9c3d7e5f60218"
OUTSIDE = ("0.0.0.0", "::", "", "0", "192.168.1.20", "203.0.113.9", "fe80::1", "example.org", "127.0.0.1.example.org")
INSIDE = ("127.0.0.1", "127.8.8.8", "::1", "localhost")
WEAK = {
    "short": "3f9a1c7be0d24586a1b9c3d7e5f6021",
    "placeholder": "changeme",
    "long placeholder": "changeme-changeme-changeme-changeme",
    "copied from an example": "sk-your-secret-key-goes-here-0123456789",
    "one letter": "a" * 64,
    "a pattern": "abcd1234" * 8,
    "digits only": "31415926535897932384626433832795",
    "password": "My-Very-Long-Password-Is-Not-Random-1!",
}


def run(home: Path, *rows: tuple[str, str]) -> list[Shown]:
    """What `tidings run` says and does with each host and key."""
    names = "TIDINGS_HTTP__HOST", "TIDINGS_HTTP__KEY"
    return tidings(home, *((["run"], dict(zip(names, row, strict=True))) for row in rows))


def test_s1_without_a_strong_key_nobody_outside_is_served_and_no_socket_is_opened(tmp_path: Path) -> None:
    rows = [(host, "") for host in OUTSIDE] + [("0.0.0.0", key) for key in WEAK.values()]
    for row, shown in zip(rows, run(tmp_path, *rows), strict=True):
        assert (shown.code, shown.bound) == (78, []), row
        assert shown.err.count("\n") == 1, shown
        assert "openssl rand -hex 32" in shown.err, shown
        assert not row[1] or row[1] not in shown.err, "the key itself is never shown"


def test_s1_a_weak_key_is_refused_on_loopback_too(tmp_path: Path) -> None:
    for shown in run(tmp_path, *(("127.0.0.1", key) for key in WEAK.values())):
        assert (shown.code, shown.bound) == (78, []), shown


def test_s1_with_a_strong_key_it_listens_anywhere_and_by_default_on_loopback_only(tmp_path: Path) -> None:
    """So the tables above prove something: the same child binds where it may."""
    rows = [("0.0.0.0", STRONG), ("127.0.0.1", "")]
    assert [shown.bound for shown in run(tmp_path, *rows)] == [["0.0.0.0"], ["127.0.0.1"]]
    assert HttpSettings().host == "127.0.0.1"


@pytest.mark.parametrize("host", OUTSIDE)
def test_s1_every_address_but_loopback_counts_as_outside(host: str) -> None:
    with pytest.raises(ValueError, match="can be reached from outside"):
        HttpSettings(host=host)
    assert HttpSettings(host=host, key=STRONG).host == host


@pytest.mark.parametrize("host", INSIDE)
def test_s1_loopback_needs_no_key_in_the_settings(host: str) -> None:
    assert HttpSettings(host=host).host == host


@pytest.mark.parametrize("name", WEAK)
def test_s1_weak_keys_are_told_apart(name: str) -> None:
    assert weakness(WEAK[name])


def test_s1_what_is_random_is_strong() -> None:
    made = [new_secret() for _ in range(200)] + [os.urandom(size).hex() for size in (16, 24, 32) for _ in range(200)]
    assert [secret for secret in made if weakness(secret)] == []


def test_s1_no_key_of_our_own_examples_is_taken() -> None:
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").iterdir()]
    found = [
        match
        for path in texts
        for match in re.findall(
            r'(?:HTTP__KEY=|^#? ?key = )"?([^"\s]+)', path.read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    # A command that makes one is welcome.
    assert [key for key in found if not key.startswith("$(") and not weakness(key)] == []
