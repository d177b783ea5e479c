"""What every simulator is built on: faults before and after the effect, the record of calls, levers and outages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from aiohttp import web

from tests.simulators.shared import faults, switchboard, truth
from tests.simulators.shared.faults import ANY, NASTY, Hand, Odds
from tests.simulators.shared.levers import HttpLevers
from tests.simulators.shared.server import SimulatedPlatform
from tests.simulators.shared.switchboard import Answer, Told
from tidings.core.clock import Clock, SystemClock

BODY = json.dumps({"done": "x" * 200}).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(faults.Fault):
    room: str | None = ANY

    @property
    def told(self) -> str:
        return "500"


class Faults(faults.Faults[Fault]):
    fault = Fault

    def take(self, method: str, room: str) -> Fault | None:
        fits = lambda fault: fault.method in (ANY, method) and fault.room in (ANY, room)  # noqa: E731
        return self._met(fits) or self._drawn(method, room)

    def _failures(self, odds: Odds) -> Hand[Fault]:
        yield odds.fail_before, Fault(action="fail")


class Call(truth.Call, frozen=True, kw_only=True):
    status: int = 0


class Truth(truth.Truth[truth.Effect, Call, truth.Effect]):
    effect, call = truth.Effect, Call

    def sent(self) -> tuple[truth.Effect, ...]:
        return tuple(effect for effect in self.effects if effect.act == "post")


class Switchboard(switchboard.Switchboard[Fault]):
    """POST /METHOD/ROOM posts; /refuse/ROOM is refused; /break/ROOM breaks the simulator itself."""

    request_bytes = 2**20

    def __init__(self, faults: Faults, truth: Truth) -> None:
        super().__init__(truth)
        self._faults = faults

    async def _take(self, request: web.Request) -> web.StreamResponse:
        _, method, room = request.path.split("/")
        call = self._truth.arrived(method, "main")

        async def perform() -> Told:
            if method == "break":
                raise ZeroDivisionError("the simulator is broken")
            if method == "refuse":
                return Told("403", Answer(403, b"{}"))
            self._truth.log("post", "main", text=room)
            return Told("ok", Answer(200, BODY))

        return await self._answer(request, call, self._faults.take(method, room), perform)

    def _record(self, answer: Answer) -> dict[str, Any]:
        return {"status": answer.status}

    def _failure(self, fault: Fault) -> Answer:
        return Answer(500, b"{}")


class Toy(HttpLevers, SimulatedPlatform[truth.Effect, Call, truth.Effect]):
    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self.truth = Truth(self.clock)
        self.faults = Faults()
        self._switchboard = Switchboard(self.faults, self.truth)

    async def ask(self, method: str = "say", room: str = "hall") -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as client:
            return await client.post(f"http://{self.address}/{method}/{room}")

    @property
    def last(self) -> Call:
        return self.truth.calls[-1]


@pytest.fixture
async def toy() -> AsyncIterator[Toy]:
    async with Toy() as toy:
        yield toy


async def test_a_call_has_its_effect_and_is_recorded_with_its_verdict(toy: Toy) -> None:
    assert (await toy.ask()).content == BODY
    assert (toy.posts, toy.last.verdict, toy.last.status) == (["hall"], "ok", 200)
    assert toy.last.now <= toy.clock.now()


async def test_a_refused_call_has_no_effect_and_meets_no_fault_after_it(toy: Toy) -> None:
    toy.drop_next(after_effect=True)
    assert (await toy.ask("refuse")).status_code == 403
    assert (toy.posts, toy.last.verdict) == ([], "403")


@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_failure_before_the_effect_prevents_it_and_one_after_it_lies(toy: Toy, after_effect: bool) -> None:
    toy.faults.arm(Fault(action="fail", after_effect=after_effect))
    assert (await toy.ask()).status_code == 500
    assert toy.posts == (["hall"] if after_effect else [])
    assert toy.last.verdict == ("ok, told 500" if after_effect else "500")


@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_dropped_connection_leaves_only_the_record_to_tell_what_happened(toy: Toy, after_effect: bool) -> None:
    toy.drop_next(after_effect)
    with pytest.raises(httpx.TransportError):
        await toy.ask()
    assert toy.posts == (["hall"] if after_effect else [])
    assert toy.last.verdict == ("lost after" if after_effect else "lost before")


async def test_a_call_that_hangs_ends_with_its_caller(toy: Toy) -> None:
    toy.hang_next(after_effect=False)
    asking = asyncio.create_task(toy.ask())
    await toy.until(lambda toy: toy.truth.calls and toy.last.verdict == "lost before")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert toy.posts == []


async def test_a_caller_that_leaves_first_is_recorded_as_gone(toy: Toy) -> None:
    gate = toy.hold_next()
    asking = asyncio.create_task(toy.ask())
    await toy.until(lambda toy: toy.truth.calls)
    asking.cancel()
    await toy.until(lambda toy: toy.last.verdict == "gone")
    gate.set()
    assert toy.posts == []


async def test_a_held_call_waits_for_its_gate(toy: Toy) -> None:
    gate = toy.hold_next(after_effect=True)
    asking = asyncio.create_task(toy.ask())
    await toy.until(lambda toy: toy.posts == ["hall"])
    assert toy.truth.is_open(toy.last)
    gate.set()
    assert (await asking).status_code == 200


async def test_a_garbled_answer_looks_whole_and_a_truncated_one_does_not(toy: Toy) -> None:
    toy.garble_next()
    assert (await toy.ask()).content == BODY[: len(BODY) // 2]
    toy.truncate_next()
    with pytest.raises(httpx.RemoteProtocolError):
        await toy.ask()
    assert [call.verdict for call in toy.calls()] == ["lost after", "lost after"]


async def test_a_slow_body_comes_in_bits_and_arrives(toy: Toy) -> None:
    toy.dribble_next(0.01)
    assert (await toy.ask()).content == BODY
    await toy.until(lambda toy: toy.last.verdict == "ok")


async def test_a_fault_befalls_the_call_that_it_names(toy: Toy) -> None:
    toy.drop_next(False, room="cellar")
    assert (await toy.ask()).status_code == 200
    assert len(toy.faults.armed) == 1
    with pytest.raises(httpx.TransportError):
        await toy.ask(room="cellar")
    assert toy.faults.armed == ()


async def test_a_lever_refuses_a_place_that_the_platform_does_not_know(toy: Toy) -> None:
    with pytest.raises(TypeError):
        toy.drop_next(False, cellar="room")


async def test_an_outage_refuses_connections_and_the_same_port_answers_after_it(toy: Toy) -> None:
    address = toy.address
    await toy.outage(True)
    with pytest.raises(httpx.ConnectError):
        await toy.ask()
    await toy.outage(False)
    assert toy.address == address
    assert (await toy.ask()).status_code == 200


async def test_a_cut_resets_open_calls_and_new_ones_are_welcome(toy: Toy) -> None:
    toy.hold_next()
    asking = asyncio.create_task(toy.ask())
    await toy.until(lambda toy: toy.truth.calls)
    toy.cut()
    with pytest.raises(httpx.TransportError):
        await asking
    assert (await toy.ask()).status_code == 200


async def test_a_fault_of_the_simulator_itself_is_raised_at_its_end() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Toy() as toy:
            assert (await toy.ask("break")).status_code == 500


async def test_who_waits_in_vain_is_told_what_was_there(toy: Toy) -> None:
    await toy.ask(room="attic")
    with pytest.raises(TimeoutError, match=r"posts \['attic'\].*last calls \[\('say', 'ok'\)\]"):
        await toy.until(lambda toy: False, timeout=0.01)


def draws(seed: int, rooms: list[str]) -> list[str]:
    dealt = Faults()
    dealt.schedule(seed, NASTY)
    taken = [(room, dealt.take("say", room)) for room in rooms]
    return [f"{room} {fault.action} {fault.after_effect}" for room, fault in taken if fault is not None]


def test_a_seed_deals_the_same_faults_to_a_lane_however_lanes_interleave() -> None:
    one, other = ["a"] * 300, ["b"] * 300
    apart = draws(1, one + other)
    mixed = draws(1, [room for pair in zip(one, other, strict=True) for room in pair])
    assert apart
    assert sorted(apart) == sorted(mixed)
    assert draws(2, one + other) != apart


def test_every_kind_of_fault_is_dealt_about_as_often_as_the_odds_say() -> None:
    dealt = Faults()
    dealt.schedule(1, Odds(fail_before=0.1, drop_before=0.1, drop_after=0.1, hang_after=0.1, garble_after=0.2))
    taken = [dealt.take("say", "a") for _ in range(2000)]
    counts = {(fault.action, fault.after_effect): 0 for fault in taken if fault is not None}
    for fault in taken:
        if fault is not None:
            counts[fault.action, fault.after_effect] += 1
    expected = [("drop", False), ("drop", True), ("fail", False), ("garble", True), ("hang", True), ("truncate", True)]
    assert sorted(counts) == expected
    assert all(150 <= count <= 250 for count in counts.values()), counts


async def test_healing_disarms_and_ends_the_seed(toy: Toy) -> None:
    toy.drop_next(False)
    toy.schedule(1, Odds(drop_before=1.0))
    assert toy.faults.befalls("cut", "a") is False
    toy.heal()
    assert toy.faults.take("say", "a") is None


def test_effects_and_calls_are_numbered_in_order() -> None:
    record = Truth(SystemClock())
    assert [record.log("post", "main", text="a"), record.log("typing", "main")] == [1, 2]
    first, second = record.arrived("say", "main"), record.arrived("say", "main")
    record.decided(first, "ok", status=200)
    assert [call.verdict for call in record.calls] == ["ok", ""]
    assert record.is_open(second)
