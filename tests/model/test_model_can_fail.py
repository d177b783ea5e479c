"""A model that cannot fail proves nothing: each of these seeded bugs must turn it red, by the invariant it breaks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from tests.model.ground import LIMITED_LONG, Ability, GroundAdapter
from tests.model.life import MortalGateway, MortalStore
from tests.model.machine import QUICK, Model, profile
from tests.model.scene import Scene
from tidings.core.adapter import Receive
from tidings.core.errors import Doubtful
from tidings.core.gateway.gateway import Gateway, _Phases
from tidings.core.outbound.outbox import MARK
from tidings.core.store.store import Row, Step, T, Transaction, Unit
from tidings.core.store.wakeups import Due
from tidings.core.types import Body, Inbound, Note, Part, Receipt

# Most are found within the first dozen.
EXAMPLES = 150


class Hasty(GroundAdapter):
    """Acknowledges before the commit."""

    async def take(self, inbound: Inbound, receive: Receive) -> None:
        self.confirm(inbound)
        await receive(inbound, Note(name="cursor", value=inbound.key))


class Dropping(GroundAdapter):
    """Drops when in doubt: what may have arrived counts as arrived."""

    async def send(self, part: Part) -> Receipt:
        try:
            return await super().send(part)
        except Doubtful:
            return Receipt(ids=("nobody knows",))


class Unmarking(GroundAdapter):
    """Sends a second copy as if it were the first."""

    async def send(self, part: Part) -> Receipt:
        return await super().send(replace(part, body=Body(text=part.body.text.removeprefix(MARK))))


class Threadless(GroundAdapter):
    """Answers in the channel what was asked in a thread."""

    async def send(self, part: Part) -> Receipt:
        return await super().send(replace(part, target=replace(part.target, thread="")))


class Meddling(MortalGateway):
    """Does something to the rows that a dead process left, before recovery sees them."""

    statements: tuple[str, ...] = ()

    async def _start(self, phases: _Phases) -> None:
        def unit(tx: Transaction) -> None:
            for statement in self.statements:
                tx.execute(statement)

        await self._store.insist(unit)
        await super()._start(phases)


class Blind(Meddling):
    """Resends what was in flight as if it had never left: what counts as tried, the courier itself would doubt."""

    statements = ("UPDATE parts SET state = 'waiting', tried = NULL WHERE state = 'sending'",)


class Dismissive(Meddling):
    """Gives up what was in flight, and tells nobody."""

    statements = (
        "UPDATE deliveries SET state = 'dead', reason = 'dropped' WHERE kind <> 'opening'"
        " AND id IN (SELECT delivery FROM parts WHERE state = 'sending')",
        "UPDATE parts SET state = 'dead' WHERE state = 'sending'",
    )


class Forgetful(Meddling):
    """Knows only in memory what it has taken already."""

    statements = ("UPDATE inbox SET key = key || ' before ' || (SELECT max(seq) FROM inbox)",)


class Impatient(Meddling):
    """Forgets at a restart how long it was told to wait."""

    statements = ("DELETE FROM pauses", "UPDATE parts SET not_before = 0")


class Repeating(Meddling):
    """Runs again whatever was open, also what has taken effect already."""

    statements = ("UPDATE inbox SET state = 'waiting', fence = fence + 1 WHERE state = 'running'",)


class LateTransaction:
    """Keeps the final back for a transaction of its own."""

    def __init__(self, real: Transaction) -> None:
        self._real = real
        self.late: list[tuple[str, tuple[object, ...]]] = []

    def execute(self, sql: str, *parameters: object) -> None:
        if sql.startswith("INSERT INTO deliveries") and "final" in parameters:
            self.late.append((sql, parameters))
        else:
            self._real.execute(sql, *parameters)

    def count(self, sql: str, *parameters: object) -> int:
        return self._real.count(sql, *parameters)

    def one(self, sql: str, *parameters: object) -> Row | None:
        return self._real.one(sql, *parameters)

    def all(self, sql: str, *parameters: object) -> list[Row]:
        return self._real.all(sql, *parameters)

    def announce(self, due: Due) -> None:
        self._real.announce(due)

    def step(self) -> AbstractContextManager[Step]:
        return self._real.step()


class TwoStepStore(MortalStore):
    def write(self, unit: Unit[T]) -> Any:
        def first(tx: Transaction) -> T:
            late = LateTransaction(tx)
            value = unit(late)
            for sql, parameters in late.late:
                self._second(sql, parameters)
            return value

        return super().write(first)

    read = write

    def _second(self, sql: str, parameters: tuple[object, ...]) -> None:
        super().write(lambda tx: tx.execute(sql, *parameters))


class TwoStep(MortalGateway):
    """Writes the final in a second transaction."""

    def open(self, path: Path) -> MortalStore:
        return TwoStepStore(path, self.life, self.model_clock, self.hops)


# A platform on which nothing can be proved, where the bugs about doubts show soonest.
UNPROVED = {"alpha": Ability(), "beta": Ability()}
DOUBTS = (Blind, Unmarking, Dismissive, Dropping)
# What a platform says to one send for each message, where the bug is about that.
USUAL: dict[type, str] = {Impatient: LIMITED_LONG}

BUGS: dict[type[GroundAdapter] | type[Gateway], str] = {
    Hasty: "I1",
    Forgetful: "I2",
    TwoStep: "I4",
    Dropping: "I5",
    Dismissive: "I5",
    Blind: "I6",
    Unmarking: "I6",
    Threadless: "I7",
    Repeating: "I11",
    Impatient: "I18",
}


def machine_with(bug: type[GroundAdapter] | type[Gateway]) -> type[Model]:
    class Bugged(Scene):
        adapter_class = bug if issubclass(bug, GroundAdapter) else GroundAdapter
        gateway_class = bug if issubclass(bug, MortalGateway) else MortalGateway

        def __init__(self, abilities: dict[str, Ability], hops: int) -> None:
            super().__init__(UNPROVED if bug in DOUBTS else abilities, hops)

        def says(self, inbound: Inbound) -> None:
            if bug in USUAL:
                self.grounds[inbound.target.adapter].verdicts.append(USUAL[bug])
            super().says(inbound)

    class BuggedModel(Model):
        scene_class = Bugged

    return BuggedModel


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_model_finds_a_seeded_bug(bug: type[GroundAdapter] | type[Gateway]) -> None:
    with pytest.raises(AssertionError, match=rf"(?m)^{BUGS[bug]}\b"):
        run_state_machine_as_test(machine_with(bug), settings=profile(EXAMPLES, **QUICK))
