"""S4: what a proxy says of a client is not believed: anybody can say it."""

from pathlib import Path

from tests.security.wire import ask, bearer
from tests.worlds.api import ApiWorld
from tests.worlds.world import Echo
from tidings.adapters.api.guesses import FREE

LOCAL = (
    "X-Forwarded-For: 127.0.0.1",
    "X-Forwarded-Host: localhost",
    "X-Forwarded-Proto: https",
    "X-Forwarded-User: owner",
    "X-Real-IP: 127.0.0.1",
    "Forwarded: for=127.0.0.1;host=localhost;proto=https",
    "X-Original-URL: /health",
    "X-Rewrite-URL: /health",
    "X-HTTP-Method-Override: GET",
)


async def test_s4_no_proxy_header_takes_the_place_of_a_key(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for header in LOCAL:
            assert (await ask(api.url, "GET", "/v1/models", header)).status == 401, header
        assert (await ask(api.url, "GET", "/v1/models", *LOCAL)).status == 401
        assert (await ask(api.url, "GET", "/v1/models", bearer(api.key), *LOCAL)).status == 200


async def test_s4_no_proxy_header_makes_a_foreign_name_ours(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        answer = await ask(api.url, "GET", "/v1/models", bearer(api.key), *LOCAL, host="evil.example")
        assert answer.status == 421


async def test_s4_who_guesses_cannot_change_their_address_by_a_header(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for number in range(FREE):
            address = f"198.51.100.{number}"
            headers = (f"X-Forwarded-For: {address}", f"X-Real-IP: {address}", f"Forwarded: for={address}")
            assert (await ask(api.url, "GET", "/v1/models", bearer(f"guess {number}"), *headers)).status == 401
        assert api.adapter._guesses.delay("127.0.0.1") == 1.0
