"""S3: no page that a browser shows can call us, by whatever name or form, unless its origin is configured."""

from pathlib import Path

import pytest

from tests.security.test_s2_keys_required import filled
from tests.security.wire import JSON, ask, bearer, connected, request
from tests.worlds.api import ApiWorld
from tests.worlds.world import Echo
from tidings.adapters.api.routes import ENDPOINTS
from tidings.adapters.api.settings import HttpSettings

PAGE = "https://chat.example.org"
MUTATING = [endpoint for endpoint in ENDPOINTS if endpoint.method != "GET"]
CHAT = b'{"messages": [{"role": "user", "content": "hi"}]}'


HOSTS = (
    "evil.example",
    "evil.example:8420",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil@localhost",
    "localhost@evil.example",
    "localhost/evil.example",
    "[",
    "[::1",
    "::1",
    "2130706433",
    "0.0.0.0",
    "",
)


async def test_s3_a_foreign_name_is_misdirected(tmp_path: Path) -> None:
    """A rebound name leads to us, but it is still the page's."""
    async with ApiWorld(tmp_path, Echo()) as api:
        for host in HOSTS:
            for path in ("/v1/models", "/health"):
                answer = await ask(api.url, "GET", path, bearer(api.key), host=host)
                assert (answer.status, answer.code) == (421, "unknown_host"), host


async def test_s3_no_name_at_all_is_misdirected_and_two_are_no_request(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for data, status in (
            (b"GET /health HTTP/1.0\r\n\r\n", 421),
            (b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
            (b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
        ):
            async with connected(api.url) as client:
                client.send(data)
                assert (await client.answer()).status == status, data


async def test_s3_our_own_names_and_the_configured_ones_are_welcome(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), settings={"hosts": ["bots.example.org"]}) as api:
        for host in ("localhost", "LocalHost:8420", "127.0.0.1", "127.0.0.1:8420", "[::1]:8420", "Bots.Example.org"):
            assert (await ask(api.url, "GET", "/v1/models", bearer(api.key), host=host)).status == 200, host


async def test_s3_a_foreign_page_is_turned_away_from_every_route(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), settings={"origins": [PAGE]}) as api:
        for origin in ("https://evil.example", "null", "http://localhost:8420", f"{PAGE}.evil.example", ""):
            for endpoint in ENDPOINTS:
                for more in ((), ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")):
                    headers = (bearer(api.key), f"Origin: {origin}", *more)
                    answer = await ask(api.url, endpoint.method, filled(endpoint.path), *headers)
                    assert (answer.status, answer.code) == (403, "unknown_origin"), (origin, endpoint)
                    assert not [name for name in answer.headers if name.startswith("access-control-")]


FORMS = (
    "Content-Type: text/plain",
    "Content-Type: text/plain;application/json",
    "Content-Type: application/x-www-form-urlencoded",
    "Content-Type: multipart/form-data; boundary=x",
    "Content-Type: application/json-but-not-quite",
    "Content-Type:",
    "X-No-Content-Type: at all",
)


async def test_s3_what_a_form_can_post_is_not_taken(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for header in FORMS:
            for endpoint in MUTATING:
                answer = await ask(api.url, endpoint.method, filled(endpoint.path), bearer(api.key), header, body=CHAT)
                assert (answer.status, answer.code) == (415, "unsupported_media_type"), (header, endpoint)
        assert api.rows("SELECT * FROM inbox") == []


async def test_s3_json_is_taken_however_it_is_spelt(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for header in (JSON, "content-type: Application/JSON; charset=utf-8"):
            answer = await ask(api.url, "POST", "/v1/chat/completions", bearer(api.key), header, body=CHAT)
            assert answer.status == 200, header


async def test_s3_nothing_is_shared_with_pages_unless_configured(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for endpoint in ENDPOINTS:
            asked = [f"Origin: {PAGE}", f"Access-Control-Request-Method: {endpoint.method}"]
            preflight = await ask(api.url, "OPTIONS", filled(endpoint.path), *asked)
            assert preflight.status == 405, endpoint
            answer = await ask(api.url, endpoint.method, filled(endpoint.path), bearer(api.key), JSON)
            for headers in (preflight.headers, answer.headers):
                assert not [name for name in headers if name.startswith("access-control-")], endpoint
                assert "set-cookie" not in headers


async def test_s3_a_configured_page_may_call_everything_as_a_browser_does(tmp_path: Path) -> None:
    # Written as a person copies it from the address bar.
    async with ApiWorld(tmp_path, Echo(), settings={"origins": [f"{PAGE}/"]}) as api:
        origin = f"Origin: {PAGE}"
        for endpoint in ENDPOINTS:
            wanted = "authorization,content-type,x-stainless-os,idempotency-key"
            asked = [f"Access-Control-Request-Method: {endpoint.method}", f"Access-Control-Request-Headers: {wanted}"]
            preflight = await ask(api.url, "OPTIONS", filled(endpoint.path), origin, *asked)
            assert preflight.status == 204
            assert preflight.headers["access-control-allow-origin"] == PAGE
            assert endpoint.method in preflight.headers["access-control-allow-methods"].split(", ")
            assert preflight.headers["access-control-allow-headers"] == wanted
            assert preflight.headers["access-control-max-age"] == "600"
            assert "access-control-allow-credentials" not in preflight.headers
            answer = await ask(api.url, endpoint.method, filled(endpoint.path), bearer(api.key), JSON, origin)
            assert answer.headers["access-control-allow-origin"] == PAGE, endpoint
            assert answer.headers["vary"] == "Origin"


async def test_s3_a_configured_page_may_read_errors_and_streams_too(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), settings={"origins": [PAGE]}) as api:
        origin, key = f"Origin: {PAGE}", bearer(api.key)
        no_key = await ask(api.url, "GET", "/v1/models", origin)
        assert (no_key.status, no_key.headers["access-control-allow-origin"]) == (401, PAGE)
        too_long = await ask(api.url, "POST", "/v1/runs", origin, key, JSON, "Content-Length: 99999999")
        assert (too_long.status, too_long.headers["access-control-allow-origin"]) == (413, PAGE)
        body = CHAT[:-1] + b', "stream": true}'
        async with connected(api.url) as client:
            client.send(request("POST", "/v1/chat/completions", origin, key, JSON, body=body))
            streamed = await client.answer()
        assert (streamed.status, streamed.headers["access-control-allow-origin"]) == (200, PAGE)
        assert "X-Tidings-Run" in streamed.headers["access-control-expose-headers"]
        # Who is no browser needs none of this.
        assert "access-control-allow-origin" not in (await ask(api.url, "GET", "/v1/models", key)).headers


@pytest.mark.parametrize("origin", ["*", "https://*.example.org", "chat.example.org", "https://chat.example.org/app"])
def test_s3_an_origin_that_is_none_is_a_wrong_setting(origin: str) -> None:
    with pytest.raises(ValueError, match="is no origin"):
        HttpSettings(origins=(origin,))
