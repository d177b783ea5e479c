"""S13 for Slack: a request is believed with a fresh signature of its own app over the very bytes, and only once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from tests.simulators.slack.requests import headers_for, sign
from tests.worlds.fakes import FakeClock
from tests.worlds.slack import SlackWorld
from tests.worlds.world import Echo, OwnedClock
from tidings.adapters.slack.http_events import REMEMBERED, Signatures

FORM = "application/x-www-form-urlencoded"


def message(world: SlackWorld, text: str = "hi", number: int = 1, **more: Any) -> bytes:
    event = {
        "type": "message",
        "channel": world.ada.direct.id,
        "channel_type": "im",
        "user": world.ada.id,
        "text": text,
        "ts": f"1750000000.{number:06d}",
    }
    payload = {"type": "event_callback", "team_id": world.slack.main.id, "event_id": f"Ev{number}", "event": event}
    return json.dumps(payload | more).encode()


async def post(world: SlackWorld, body: bytes, headers: dict[str, str], account: str = "main") -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
        return await http.post(f"{world.url}{world.path(account)}", content=body, headers=headers)


async def nothing(request: web.BaseRequest, names: Mapping[str, str]) -> web.Response:
    return web.Response()


def heard(world: SlackWorld) -> list[str]:
    return [row["key"] for row in world.rows("SELECT key FROM inbox ORDER BY seq")]


async def test_a_signed_request_is_taken_and_one_with_any_bit_changed_is_not(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), mode="http") as world:
        body = message(world)
        good = world.slack.sign(body)
        refused = []
        for place in range(0, len(body) * 8, 97):
            changed = bytearray(body)
            changed[place // 8] ^= 1 << place % 8
            refused.append(await post(world, bytes(changed), good))
        for place in range(3, len(good["X-Slack-Signature"]), 7):
            letters = list(good["X-Slack-Signature"])
            letters[place] = "0" if letters[place] != "0" else "1"
            refused.append(await post(world, body, good | {"X-Slack-Signature": "".join(letters)}))
        later = str(int(good["X-Slack-Request-Timestamp"]) + 1)
        refused.append(await post(world, body, good | {"X-Slack-Request-Timestamp": later}))

        # Not a word about what was wrong.
        assert {(answer.status_code, answer.content) for answer in refused} == {(401, b"")}
        assert heard(world) == []
        assert (await post(world, body, good)).status_code == 200
        assert len(heard(world)) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Slack-Signature": ""},
        {"X-Slack-Signature": "v0="},
        {"X-Slack-Signature": "v0=" + "\u0660" * 64},
        {"X-Slack-Signature": "v1=" + "0" * 64},
        {"X-Slack-Request-Timestamp": ""},
        {"X-Slack-Request-Timestamp": "soon"},
        {"X-Slack-Request-Timestamp": "1e9"},
        {"X-Slack-Request-Timestamp": "-1"},
        {"X-Slack-Request-Timestamp": "\u0661" * 10},
        {"X-Slack-Request-Timestamp": "9" * 4000},
        {"X-Slack-Request-Timestamp": "nan"},
    ],
)
async def test_a_request_without_a_proper_signature_or_time_is_refused_before_its_body_is_read(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with SlackWorld(tmp_path, Echo(), mode="http") as world:
        body = message(world) + b" " * (8 * 1024 * 1024)
        given = world.slack.sign(body) | headers if headers else {}
        raw = {name: value.encode() for name, value in given.items()}
        async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
            answer = await http.post(f"{world.url}{world.path()}", content=body, headers=raw)  # type: ignore[arg-type]

        # A body that was read would be too long.
        assert answer.status_code == 401
        assert heard(world) == []


async def test_five_minutes_are_tolerated_and_no_more(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), mode="http", clock=OwnedClock()) as world:
        now = world.slack.truth.wall()
        for number, seconds, status in [(1, -301, 401), (2, 301, 401), (3, -299, 200), (4, 299, 200)]:
            body = message(world, number=number)
            assert (await post(world, body, world.slack.sign(body, at=now + seconds))).status_code == status

        assert [key.rpartition(".")[2] for key in heard(world)] == ["000003", "000004"]


async def test_a_replayed_request_is_refused_and_a_repetition_of_slacks_own_is_not(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with SlackWorld(tmp_path, Echo(), mode="http", clock=clock) as world:
        body = message(world)
        headers = world.slack.sign(body)
        command = b"command=%2Ftidings&text=status&channel_id=C1&user_id=U1&response_url=http%3A%2F%2Fx&team_id=" + (
            world.slack.main.id.encode()
        )
        asked = world.slack.sign(command, type=FORM)
        assert [(await post(world, body, headers)).status_code for _ in range(3)] == [200, 401, 401]
        assert [(await post(world, command, asked)).status_code for _ in range(2)] == [200, 401]
        await clock.advance(1)
        again = world.slack.sign(body) | {"X-Slack-Retry-Num": "1"}
        assert (await post(world, body, again)).status_code == 200
        await world.settled()

        assert world.posts == ["you said: hi"]


async def test_what_could_not_be_taken_may_be_said_again_in_the_same_second(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), mode="http") as world:
        body = message(world, team_id="T-of-nobody")
        headers = world.slack.sign(body)

        assert [(await post(world, body, headers)).status_code for _ in range(2)] == [503, 503]


async def test_the_signature_of_another_app_opens_no_other_account(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), mode="http", accounts={"other": {}}, own_apps=True) as world:
        other = world.workspace("other").app
        body = message(world)
        now = int(world.slack.truth.wall())
        theirs = headers_for(other.secret, body, now)

        assert (await post(world, body, theirs, "main")).status_code == 401
        assert (await post(world, body, world.slack.sign(body), "other")).status_code == 401
        # Signed for its own route, but about a workspace of another app's: nobody there is for it.
        assert (await post(world, body, theirs, "other")).status_code == 503
        assert heard(world) == []


async def test_the_challenge_is_said_back_only_to_who_has_signed_it(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), mode="http") as world:
        body = json.dumps({"type": "url_verification", "challenge": "<script>"}).encode()

        assert (await post(world, body, {})).status_code == 401
        answer = await post(world, body, world.slack.sign(body))
        assert (answer.status_code, answer.json()) == (200, {"challenge": "<script>"})
        assert answer.headers["Content-Type"].startswith("application/json")


async def test_who_hears_by_sockets_takes_no_requests(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo()) as world, world._listening.route("GET", "/elsewhere", nothing):
        body = message(world)

        assert (await post(world, body, world.slack.sign(body))).status_code == 404


@pytest.mark.parametrize(
    ("body", "type"),
    [
        (b"", "application/json"),
        (b"[]", "application/json"),
        (b"{", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"payload=%7B", FORM),
        (b"payload=[]", FORM),
        (b"&".join(b"a=1" for _ in range(200)), FORM),
    ],
)
async def test_what_is_signed_and_senseless_is_refused_for_good(tmp_path: Path, body: bytes, type: str) -> None:
    async with SlackWorld(tmp_path, Echo(), mode="http") as world:
        answer = await post(world, body, world.slack.sign(body, type=type))

        assert answer.status_code == 400
        assert answer.headers["X-Slack-No-Retry"] == "1"
        assert (await world.listener()).restarts == 0


async def test_half_a_character_is_passed_over_and_breaks_nothing(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), mode="http") as world:
        body = message(world, "\ud800")

        assert (await post(world, body, world.slack.sign(body))).status_code == 200
        assert heard(world) == []
        assert (await world.listener()).restarts == 0


async def test_bytes_that_are_no_text_are_refused_although_they_are_signed(tmp_path: Path) -> None:
    """Slack signs text, and its library checks the signature of text only."""
    async with SlackWorld(tmp_path, Echo(), mode="http") as world:
        answer = await post(world, b"\xff\xfe", world.slack.sign(b"\xff\xfe", type=FORM))

        assert (answer.status_code, answer.content) == (401, b"")


@pytest.mark.parametrize("body", [b"[" * 100_000, b"{", b"[]", b"ssl_check=1", b"\xff\xfe"])
async def test_a_body_without_a_good_signature_is_not_even_parsed(tmp_path: Path, body: bytes) -> None:
    """Bolt parses first: each of these makes it fail, or answer, before it looks at the signature."""
    async with SlackWorld(tmp_path, Echo(), mode="http") as world:
        theirs = headers_for("a secret of another app", body, int(world.slack.truth.wall()), FORM)
        answer = await post(world, body, theirs)

        assert (answer.status_code, answer.content) == (401, b"")


@pytest.mark.parametrize(
    "header", [{"X-Slack-Bolt-Lazy-Only": "1"}, {"X-Slack-Bolt-Lazy-Function-Name": "listen"}], ids=["only", "name"]
)
async def test_a_header_that_nobody_has_signed_keeps_no_message_from_being_stored(
    tmp_path: Path, header: dict[str, str]
) -> None:
    async with SlackWorld(tmp_path, Echo(), mode="http") as world:
        body = message(world)

        assert (await post(world, body, world.slack.sign(body) | header)).status_code == 200
        assert len(heard(world)) == 1


async def test_a_body_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async with SlackWorld(tmp_path, Echo(), mode="http") as world:
        body = message(world) + b" " * (1024 * 1024)

        assert (await post(world, body, world.slack.sign(body))).status_code == 413


def test_what_is_remembered_of_taken_requests_is_bounded_and_forgotten_when_it_is_stale() -> None:
    clock = FakeClock()
    signatures = Signatures("secret", clock)
    now = int(clock.wall())
    first = sign("secret", b"body", now)
    signatures.take(first)
    assert not signatures.is_good(str(now), first, b"body")
    for number in range(REMEMBERED + 10):
        signatures.take(f"v0={number:064x}")
    assert len(signatures._taken) == REMEMBERED
    clock.jump(601)
    signatures.take("v0=" + "f" * 64)
    assert len(signatures._taken) == 1


def test_the_simulator_signs_as_slack_documents_it() -> None:
    """The example of Slack's own documentation."""
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    expected = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"

    assert sign("8f742231b10e8888abcd99yyyzzz85a5", body, 1531420618) == expected
    clock = FakeClock(wall=1531420618.0)
    assert Signatures("8f742231b10e8888abcd99yyyzzz85a5", clock).is_good("1531420618", expected, body)
