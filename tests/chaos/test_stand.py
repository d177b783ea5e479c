"""What the stands of real platforms share: the dye of a call, and which call has posted which message."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.chaos.crowd import STANDS
from tests.chaos.stand import Dye, Dyed, Ground, dyed, posted
from tests.chaos.telegram_stand import Telegram
from tests.simulators.shared.truth import Call, Effect
from tests.worlds import builders
from tidings.core.types import Part, Receipt


class Postman:
    """Notes the arguments of the call that each send makes."""

    def __init__(self) -> None:
        self.calls: list[dict[str, object]] = []

    async def send(self, part: Part) -> Receipt:
        self.calls.append(dyed({"text": part.body.text}))
        if part.body.text == "fail":
            raise ConnectionError
        return Receipt(ids=("1",))


class DyedPostman(Dyed, Postman):
    pass


async def test_a_call_bears_the_part_that_it_is_made_for_and_what_that_answers() -> None:
    postman = DyedPostman()
    part = builders.part("hello", to=builders.target("5", reply_to="5:1"))
    await postman.send(part)
    [call] = postman.calls
    assert Dye.read(call["dye"]) == Dye(part.key, "5:1")


async def test_a_call_outside_of_any_send_bears_no_dye_also_after_a_send_that_failed() -> None:
    postman = DyedPostman()
    with pytest.raises(ConnectionError):
        await postman.send(builders.part("fail"))
    assert dyed({"text": "typing"}) == {"text": "typing"}
    assert Dye.read(None) == Dye("", "")


def effect(at: float, message: str) -> Effect:
    return Effect(order=1, at=at, act="post", account="main", message=message)


def call(at: float, name: str) -> Call:
    return Call(order=1, at=at, method=name, account="main")


def test_a_message_was_posted_by_the_last_call_to_its_place_that_had_arrived() -> None:
    calls = [(call(1.0, "first"), "a"), (call(2.0, "other"), "b"), (call(3.0, "second"), "a"), (call(9.0, "late"), "a")]
    posts = [(effect(1.5, "a1"), "a"), (effect(3.0, "a2"), "a"), (effect(4.0, "b1"), "b")]
    assert {message: by.method for message, by in posted(posts, calls)} == {
        "a1": "first",
        "a2": "second",
        "b1": "other",
    }


@pytest.fixture
async def ground() -> AsyncIterator[Telegram]:
    async with Telegram() as ground:
        yield ground


async def test_a_ground_is_furnished_listens_and_waits_for_its_clients(ground: Telegram) -> None:
    assert isinstance(ground, Ground)
    assert not ground.attached("main")
    name = ground.says("hello", key="", chat="101", thread="", account="main")
    assert name in ground.unconfirmed
    with pytest.raises(TimeoutError):
        await ground.until(lambda ground: ground.attached("main"), 0.02)


def test_every_stand_has_places_in_which_its_people_may_speak() -> None:
    for name, stand in STANDS.items():
        assert stand.people, name
        assert len(set(stand.places)) > 1, name
