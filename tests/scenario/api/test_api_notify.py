"""Notifications over HTTP: stored before they are answered, delivered or said to be dead, refused at once or never."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.simulators.paper.simulator import Kind
from tests.worlds.api import PATIENCE_SECONDS, ApiWorld
from tests.worlds.world import KEYED, Echo
from tidings.adapters.local import socket
from tidings.core.outbound.outbox import MARK
from tidings.core.roles import OWNER

PAPER = {"paper": KEYED}


async def notify(api: ApiWorld, target: str = "paper:7", text: str = "the backup is done", key: str = "") -> str:
    answer = await asked(api.http, target, text, key)
    assert answer.status_code == 202, answer.text
    assert set(answer.json()) >= {"delivery_id", "state"}
    return str(answer.json()["delivery_id"])


async def asked(http: httpx.AsyncClient, target: str, text: str = "hi", key: str = "") -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return await http.post("/v1/notify", json={"target": target, "text": text}, headers=headers)


async def look(api: ApiWorld, delivery: str) -> dict[str, Any]:
    answer = await api.http.get(f"/v1/deliveries/{delivery}")
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def becomes(api: ApiWorld, delivery: str, state: str) -> dict[str, Any]:
    """As a script does it that waits for its notice: it asks again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (told := await look(api, delivery))["state"] != state:
        assert time.monotonic() < deadline, told
        await asyncio.sleep(0.005)
    return told


def owed(api: ApiWorld) -> int:
    return len(api.rows("SELECT id FROM deliveries"))


# What arrives.


async def test_a_notice_arrives_and_its_delivery_names_the_platforms_message(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms=PAPER) as api:
        paper = api.papers["paper"]
        paper.open_chat("7")
        gate = paper.hold_next()
        answer = await asked(api.http, "paper:7", "the backup is done")
        assert (answer.status_code, answer.json()["state"]) == (202, "waiting")
        assert answer.json()["message_id"] is None
        delivery = answer.json()["delivery_id"]
        gate.set()
        told = await becomes(api, delivery, "delivered")
        (message,) = paper.sent
    assert (message.chat, message.text) == ("7", "the backup is done")
    assert (told["message_id"], told["message_ids"], told["target"]) == (message.id, [message.id], "paper:7")


async def test_a_notice_goes_to_the_thread_it_names_and_a_long_one_in_parts(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms=PAPER, limit=200) as api:
        paper = api.papers["paper"]
        paper.open_chat("7", "night shift")
        told = await becomes(api, await notify(api, "paper:7:night shift", "word " * 100), "delivered")
    assert [message.thread for message in paper.sent] == ["night shift"] * 3
    assert told["message_ids"] == [message.id for message in paper.sent]
    assert "".join(" ".join(paper.posts).split()) == "word" * 100


async def test_the_console_shows_a_notice_to_whoever_sits_down(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), console=True) as api:
        delivery = await notify(api, "console")
        assert (await look(api, delivery))["state"] == "waiting"
        async with socket.connect(tmp_path) as line, asyncio.timeout(PATIENCE_SECONDS):
            await line.write({"verb": "chat"})
            while True:
                heard = await line.read()
                assert heard is not None
                if "part" in heard:
                    break
            assert heard["text"] == "the backup is done"
            await line.write({"shown": heard["part"]})
            told = await becomes(api, delivery, "delivered")
    assert told["message_id"]


async def test_a_notice_that_was_taken_arrives_over_an_outage_and_a_crash(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms=PAPER) as api:
        paper = api.papers["paper"]
        paper.open_chat("7")
        await paper.outage(True)
        delivery = await notify(api)
        assert (await look(api, delivery))["state"] == "waiting"
        await api.crash()
        await paper.outage(False)
        await api.start()
        await becomes(api, delivery, "delivered")
    assert paper.posts == ["the backup is done"]


# What does not.


async def test_a_notice_that_the_platform_refuses_is_dead_and_says_why(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms=PAPER) as api:
        paper = api.papers["paper"]
        paper.open_chat("7")
        paper.block("7")
        told = await becomes(api, await notify(api), "dead")
    assert told["reason"]
    assert told["message_id"] is None
    assert paper.posts == []


async def test_a_notice_whose_receipt_was_lost_is_doubtful_until_it_is_settled(tmp_path: Path) -> None:
    """The platform cannot be asked, so it stays in doubt for a while; nobody calls it delivered meanwhile."""
    async with ApiWorld(tmp_path, Echo(), platforms={"paper": Kind()}) as api:
        paper = api.papers["paper"]
        paper.open_chat("7")
        paper.drop_next(after_effect=True)
        told = await becomes(api, await notify(api), "doubtful")
        assert told["message_id"] is None
        assert [text.removeprefix(MARK) for text in paper.posts] == ["the backup is done"]


async def test_a_doubt_that_the_platform_can_settle_ends_as_delivered_once(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms=PAPER) as api:
        paper = api.papers["paper"]
        paper.open_chat("7")
        paper.drop_next(after_effect=True)
        told = await becomes(api, await notify(api), "delivered")
        (message,) = paper.sent
    assert told["message_id"] == message.id


async def test_a_notice_waits_with_a_reason_while_the_owner_has_something_to_mend(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms=PAPER) as api:
        api.papers["paper"].open_chat("7")
        api.papers["paper"].revoke("another token")
        delivery = await notify(api)
        await api.eventually(lambda: api.rows("SELECT 1 FROM deliveries WHERE state = 'held'"))
        told = await look(api, delivery)
    assert told["state"] == "waiting"
    assert told["reason"]


# What is refused.


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("paper:8", 403, "target_not_permitted"),
        ("paper:8:night shift", 403, "target_not_permitted"),
        ("paper@other:7", 404, "target_not_found"),
        ("carrier-pigeon:7", 403, "target_not_permitted"),
        ("carrier-pigeon", 404, "target_not_found"),
        ("paper", 404, "target_not_found"),
        ("api", 404, "target_not_found"),
        ("a:b:c:d", 404, "target_not_found"),
        (":", 404, "target_not_found"),
        ("", 400, "invalid_request"),
    ],
)
async def test_what_may_not_or_cannot_be_sent_is_refused_at_once(
    tmp_path: Path, target: str, status: int, code: str
) -> None:
    """Never accepted and dropped."""
    async with ApiWorld(tmp_path, Echo(), platforms=PAPER) as api:
        answer = await asked(api.http, target)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert answer.json()["error"]["param"] == "target"
        assert owed(api) == 0


async def test_a_client_cannot_be_notified_although_it_has_spoken_here(tmp_path: Path) -> None:
    """A14: its conversation is known, and nothing can be pushed there."""
    async with ApiWorld(tmp_path, Echo()) as api:
        await api.http.post("/v1/responses", json={"input": "hi", "conversation": "home"})
        answer = await asked(api.http, "api:owner:home")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "target_not_found")
        assert owed(api) == 0


async def test_nothing_to_say_is_refused(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms=PAPER) as api:
        for text in ("", "  \n"):
            assert (await asked(api.http, "paper:7", text)).status_code == 400
        assert owed(api) == 0


async def test_whom_the_owner_admits_and_where_somebody_spoke_may_be_notified(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms=PAPER) as api:
        paper = api.papers["paper"]
        for chat in ("8", "9"):
            paper.open_chat(chat)
            assert (await asked(api.http, f"paper:{chat}")).status_code == 403
        await api.gateway.desk.people.admit(OWNER, "paper:8")
        await becomes(api, await notify(api, "paper:8", "admitted"), "delivered")
        # Person 7 may speak, in whatever chat; then that chat is known.
        paper.says("hi", chat="9", sender="7")
        await paper.until(lambda paper: paper.posts_in("9") == ["you said: hi"])
        await becomes(api, await notify(api, "paper:9", "known"), "delivered")
    assert (paper.posts_in("8"), paper.posts_in("9")[1:]) == (["admitted"], ["known"])


# Asking twice, and asking about another's.


async def test_a_key_owes_one_notice_however_often_and_whenever_it_is_used(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms=PAPER) as api:
        paper = api.papers["paper"]
        paper.open_chat("7")
        many = await asyncio.gather(*(notify(api, key="k1") for _ in range(5)))
        assert len(set(many)) == 1
        await becomes(api, many[0], "delivered")
        await api.crash()
        await api.start()
        again = await asked(api.http, "paper:7", "the backup is done", "k1")
        assert (again.json()["delivery_id"], again.json()["state"]) == (many[0], "delivered")
        other = await asked(api.http, "paper:7", "the backup has failed", "k1")
        assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_conflict")
        # Without a key, each is another.
        for _ in range(2):
            await becomes(api, await notify(api), "delivered")
    assert paper.posts == ["the backup is done"] * 3


async def test_a_delivery_is_its_askers_and_the_admins(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), platforms=PAPER) as api:
        api.papers["paper"].open_chat("7")
        async with (
            api.client(await api.new_key("ci", "notify")) as ci,
            api.client(await api.new_key("cron", "notify")) as cron,
        ):
            delivery = (await asked(ci, "paper:7", key="k1")).json()["delivery_id"]
            # The same key in another's hand is another key.
            assert (await asked(cron, "paper:7", "else", key="k1")).json()["delivery_id"] != delivery
            for http, status in ((ci, 200), (api.http, 200), (cron, 404)):
                assert (await http.get(f"/v1/deliveries/{delivery}")).status_code == status
            assert (await ci.get("/v1/deliveries/dlv_0")).json()["error"]["code"] == "delivery_not_found"
        async with api.client(await api.new_key("chatter", "chat", "runs")) as chatter:
            assert (await asked(chatter, "paper:7")).status_code == 403
