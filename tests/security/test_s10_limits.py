"""S10: what is too long, too deep, too many or packed is refused before anybody tries to understand it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.security.test_s2_keys_required import filled
from tests.security.wire import JSON, Answer, ask, bearer, connected, request
from tests.worlds.api import ApiWorld
from tests.worlds.world import Echo
from tidings.adapters.api.guard import BODY_BYTES, DEEPEST, MOST_VALUES, depth, skeleton
from tidings.adapters.api.models import MESSAGES
from tidings.adapters.api.routes import ENDPOINTS
from tidings.adapters.shared.http_request import HEADER_BYTES

WITH_BODY = [endpoint for endpoint in ENDPOINTS if endpoint.body is not None]
CHAT = "/v1/chat/completions"


async def post(api: ApiWorld, body: bytes | dict[str, Any], *headers: str, path: str = "/v1/runs") -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await ask(api.url, "POST", path, bearer(api.key), JSON, *headers, body=data)


def padded(size: int) -> bytes:
    frame = b'{"input": "hi", "pad": ""}'
    return frame[:-2] + b"x" * (size - len(frame)) + frame[-2:]


async def test_s10_headers_are_taken_up_to_their_limit(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        key = bearer(api.key)
        fits = [f"X-Pad-{number}: {'x' * 1000}" for number in range(HEADER_BYTES // 1100)]
        assert (await ask(api.url, "GET", "/v1/models", key, *fits)).status == 200
        for headers in ([*fits, *fits], [f"X-Pad: {'x' * HEADER_BYTES}"], [f"X-{n}: y" for n in range(1000)]):
            assert (await ask(api.url, "GET", "/v1/models", key, *headers)).status in (400, 431)
        assert (await ask(api.url, "GET", f"/v1/models?{'x' * HEADER_BYTES}", key)).status in (400, 431)


async def test_s10_a_body_is_taken_up_to_its_limit_and_refused_before_it_has_come(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        assert (await post(api, padded(BODY_BYTES))).status == 202
        for endpoint in WITH_BODY:
            # Nothing of the body is ever sent, so whoever answers has not read it.
            for extra in ((), ("Expect: 100-continue",)):
                headers = (bearer(api.key), JSON, f"Content-Length: {BODY_BYTES + 1}", *extra)
                assert (await ask(api.url, endpoint.method, endpoint.path, *headers)).status == 413, endpoint
        assert (await ask(api.url, "POST", CHAT, JSON, f"Content-Length: {BODY_BYTES}")).status == 401


async def test_s10_a_body_without_a_length_ends_at_the_limit_too(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api, connected(api.url) as client:
        client.send(request("POST", "/v1/runs", bearer(api.key), JSON, "Transfer-Encoding: chunked"))
        piece = b"%x\r\n%b\r\n" % (1 << 20, b"x" * (1 << 20))
        # Its end is never sent.
        for _ in range(BODY_BYTES // (1 << 20) + 1):
            client.send(piece)
        assert (await client.answer()).status == 413


LENGTHS = (
    "Content-Length: -1",
    "Content-Length: +5",
    "Content-Length: 0x10",
    "Content-Length: 5, 6",
    "Content-Length: 1e3",
    "Content-Length: five",
    "Content-Length: 99999999999999999999",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
)


async def test_s10_a_length_that_is_none_is_no_request(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for length in LENGTHS:
            answer = await ask(api.url, "POST", "/v1/runs", bearer(api.key), JSON, length, body=b'{"input": "hi"}')
            assert answer.status in (400, 413), length
        assert api.runs() == []


async def test_s10_what_is_packed_is_never_unpacked(tmp_path: Path) -> None:
    bomb = gzip.compress(b" " * (1 << 27))
    async with ApiWorld(tmp_path, Echo()) as api:
        for encoding in ("gzip", "GZIP", "deflate", "br", "zstd", "identity, gzip", "x-unheard-of"):
            for endpoint in ENDPOINTS:
                if endpoint.method != "GET":
                    headers = (bearer(api.key), JSON, f"Content-Encoding: {encoding}")
                    answer = await ask(api.url, endpoint.method, filled(endpoint.path), *headers, body=bomb)
                    assert (answer.status, answer.code) == (415, "unsupported_encoding"), endpoint
        assert (await post(api, {"input": "hi"}, "Content-Encoding: identity")).status == 202


async def test_s10_a_body_is_nested_up_to_its_limit(tmp_path: Path) -> None:
    def nested(levels: int) -> bytes:
        return b'{"input": "hi", "pad": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    async with ApiWorld(tmp_path, Echo()) as api:
        assert (await post(api, nested(DEEPEST))).status == 202
        for body in (nested(DEEPEST + 1), b"[" * 200_000, b'{"a":' * 200_000, nested(100_000)):
            answer = await post(api, body)
            assert (answer.status, answer.code) == (400, "too_deep")
        # What only looks like nesting is text.
        assert (await post(api, {"input": 'a "quoted" \\ ' + "[{" * 1000 + '\\"'})).status == 202


async def test_s10_a_body_has_so_many_values_and_no_more(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for body in (
            b'{"input": "hi", "pad": [' + b"0," * MOST_VALUES + b"0]}",
            b'{"input": "hi", "pad": [' + b"[]," * MOST_VALUES + b"0]}",
            b"{" + b'"a":0,' * MOST_VALUES + b'"input": "hi"}',
        ):
            answer = await post(api, body)
            assert (answer.status, answer.code) == (400, "too_many_values")
        message = {"role": "user", "content": "hi"}
        assert (await post(api, {"messages": [message] * MESSAGES}, path=CHAT)).status == 200
        assert (await post(api, {"messages": [message] * (MESSAGES + 1)}, path=CHAT)).status == 400
        parts = [{"type": "text", "text": "hi"}] * 1001
        assert (await post(api, {"messages": [{"role": "user", "content": parts}]}, path=CHAT)).status == 400


IMPROPER = (
    # Each sign may begin a string that never ends: a pattern with a way back would try them all.
    b'"' + b'\\"' * 2_000_000,
    b'"\\\n' * 2_000_000,
    b'{"input": ' + b"9" * 2_000_000 + b"}",
    b'{"input": -' + b"0" * 2_000_000 + b"}",
    b'{"input": "' + b"\\u0000" * 300_000 + b'"}',
    b'{"input": "\\ud800"}',
    b'{"input": "\xff\xfe"}',
    b'\xef\xbb\xbf{"input": "hi"}',
    '{"input": "hi"}'.encode("utf-16"),
    b'{"input": NaN}',
    b"",
    b"null",
    b"[]",
    b'"input"',
)


async def test_s10_what_is_no_proper_body_is_told_so(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for number, body in enumerate(IMPROPER):
            answer = await post(api, body)
            assert answer.status == 400, (number, answer.body[:200])
        assert api.runs() == []


VALUES = st.recursive(
    st.none() | st.integers() | st.text('a"\\[]{},:\n\x7fß', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('"\\[{,'), inner, max_size=4),
    max_leaves=30,
)


@given(VALUES, st.booleans())
@settings(max_examples=150, derandomize=True, deadline=None)
def test_s10_depth_and_count_are_what_a_parser_would_find(value: Any, ascii_only: bool) -> None:
    bones = skeleton(json.dumps(value, ensure_ascii=ascii_only).encode())
    assert depth(bones) == levels(value)
    assert bones.count(b"[") + bones.count(b"{") == containers(value)


def levels(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(levels, inside), default=0)


def containers(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + sum(map(containers, inside))
