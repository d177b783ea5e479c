"""What the gateway knows of people is amended change by change, and always what a fresh look at the store would say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.worlds.builders import inbound
from tests.worlds.fakes import FakeClock
from tidings.core.desk.people import Key, Scope
from tidings.core.errors import TidingsError
from tidings.core.inbound.pairing import Pairing
from tidings.core.inbound.people_service import PeopleService
from tidings.core.inbound.settlement import Settlement
from tidings.core.people.people import People
from tidings.core.people.register import Register
from tidings.core.roles import GIVEN, OWNER, Role
from tidings.core.settings import Access
from tidings.core.store.sqlite import DATABASE, open_store
from tidings.core.store.store import Store, Transaction
from tidings.core.store.wakeups import Due, Wakeups

SEEDS = range(12)
STEPS = 80
IDS = [f"{platform}:{number}" for platform in ("paper", "paper@main", "other") for number in range(1, 5)]
KEYS = [f"key{number}" for number in range(4)]
# The settings name some of those who are stored, and some are in two lists.
SETTINGS = (
    Access(),
    Access(owners=("paper:1",), admins=("other:2",), allow=("paper:1", "paper:3", "paper@main:2")),
    Access(allow=("paper:2", "other:1")),
    Access(owners=("other:1",), allow=("paper:1", "paper:2"), settings_only=True),
)


class Deaf(Wakeups):
    """Loses wake-ups while it is told to."""

    is_deaf = False

    def publish(self, values: Iterable[Due]) -> None:
        if not self.is_deaf:
            super().publish(values)


class Bench(NamedTuple):
    store: Store
    wakeups: Deaf
    people: People
    register: Register
    service: PeopleService
    clock: FakeClock
    heard: list[object]


@asynccontextmanager
async def bench(home: Path, settings: Access = SETTINGS[0]) -> AsyncIterator[Bench]:
    wakeups, clock, heard = Deaf(), FakeClock(), list[object]()
    store = await open_store(home / DATABASE, wakeups=wakeups)
    people = People(store, settings)
    people.subscribe(lambda: heard.append(1))
    register = Register(people)
    pairing = Pairing(store, people, register, clock, None, lambda name: False)
    service = PeopleService(store, clock, people, register, pairing, Settlement(clock, lambda target: None, {}))
    await people.recover()
    try:
        yield Bench(store, wakeups, people, register, service, clock, heard)
    finally:
        await people.stop(0)
        await store.close()


def shown(people: People) -> object:
    """Everything that can be asked: the list, keys and their holders, and every id alone, in a group and as a group."""
    said = [
        inbound(sender=sender, chat=chat, private=is_private, adapter=platform, account=account)
        for platform in ("paper", "other")
        for account in ("main", "second")
        for sender in "12345"
        for chat, is_private in ((sender, True), ("3", False))
    ]
    return (
        people.all(),
        [*map(people.holder, people.keys())],
        people.keys(),
        [people.find(each) for each in said],
        [people.admits(each.target) for each in said],
        people.version,
    )


async def rebuilt(there: Bench) -> object:
    fresh = People(there.store, there.people.settings)
    await fresh.load()
    return shown(fresh)


Step = Callable[[Bench, random.Random], Awaitable[object]]


async def admit(there: Bench, chance: random.Random) -> None:
    await there.service.admit(OWNER, chance.choice(IDS), chance.choice((None, *GIVEN)), chance.choice(("", "Ada")))


async def remove(there: Bench, chance: random.Random) -> None:
    await there.service.remove(OWNER, chance.choice(IDS))


async def block(there: Bench, chance: random.Random) -> None:
    await there.service.block(OWNER, chance.choice(IDS))


async def give_role(there: Bench, chance: random.Random) -> None:
    await there.service.set_role(OWNER, chance.choice(IDS), chance.choice(GIVEN))


async def rename(there: Bench, chance: random.Random) -> None:
    await there.service.rename(OWNER, chance.choice(IDS), chance.choice(("Bea", "Cem")))


async def link(there: Bench, chance: random.Random) -> None:
    await there.service.link(OWNER, *chance.sample(IDS, 2))


async def unlink(there: Bench, chance: random.Random) -> None:
    await there.service.unlink(OWNER, chance.choice(IDS))


async def forget(there: Bench, chance: random.Random) -> None:
    await there.service.forget(OWNER, chance.choice(IDS))


async def add_key(there: Bench, chance: random.Random) -> None:
    name, who = chance.choice(KEYS), await there.service.get(chance.choice(IDS))
    key = Key(f"{name}{chance.random()}", name, "digest", (Scope.CHAT,), chance.random(), who.id)
    await there.service.add_key(OWNER, key)


async def revoke_key(there: Bench, chance: random.Random) -> None:
    await there.service.revoke_key(OWNER, chance.choice(KEYS))


async def change_two(there: Bench, chance: random.Random) -> None:
    """Two changes of one commit."""
    one, other = chance.sample(CHANGES, 2)
    await asyncio.gather(one(there, chance), other(there, chance), return_exceptions=True)


async def change_unheard(there: Bench, chance: random.Random) -> None:
    """Changes whose wake-ups are lost are found by the sweep."""
    there.wakeups.is_deaf = True
    for identity in chance.sample(IDS, 2):
        with suppress(TidingsError):
            await there.store.write(partial(there.register.block, by=OWNER, identity=identity, name="", wall=0.0))
    there.wakeups.is_deaf = False
    await there.people.sweep()


async def break_off(there: Bench, chance: random.Random) -> None:
    """A change that is undone is none."""
    before, identity = shown(there.people), chance.choice(IDS)

    def unit(tx: Transaction) -> None:
        there.register.block(tx, OWNER, identity, "", 0.0)
        raise TidingsError("undone")

    with pytest.raises(TidingsError, match="undone"):
        await there.store.write(unit)
    await there.people.load()
    assert shown(there.people) == before


async def reload(there: Bench, chance: random.Random) -> None:
    there.people.renew(chance.choice(SETTINGS))


async def prune(there: Bench, chance: random.Random) -> None:
    """Retention removes the trail, or its newest part where the clock had been wrong."""
    kept = chance.randint(0, 20)
    await there.store.write(lambda tx: tx.execute("DELETE FROM audit WHERE seq > ?", kept))
    await there.people.sweep()


CHANGES: tuple[Step, ...] = (admit, remove, block, give_role, rename, link, unlink, forget, add_key, revoke_key)
STEPS_TO_TAKE: tuple[Step, ...] = (*CHANGES, admit, admit, link, change_two, change_unheard, break_off, reload, prune)


@pytest.mark.parametrize("seed", SEEDS)
async def test_after_any_series_of_changes_the_gateway_knows_what_the_store_says(tmp_path: Path, seed: int) -> None:
    chance, done = random.Random(seed), list[str]()
    async with bench(tmp_path, SETTINGS[seed % len(SETTINGS)]) as there:
        for _ in range(STEPS):
            step = chance.choice(STEPS_TO_TAKE)
            before = shown(there.people)
            there.heard.clear()
            # What is not possible, such as to unlink one who is not linked, changes nothing.
            with suppress(TidingsError):
                await step(there, chance)
            done.append(step.__name__)
            now = shown(there.people)
            assert now == await rebuilt(there), done
            if step in CHANGES:
                assert bool(there.heard) == (without_version(now) != without_version(before)), done


def without_version(everything: object) -> object:
    assert isinstance(everything, tuple)
    return everything[:-1]


async def test_only_whom_a_change_names_is_read_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        for identity in IDS[:3]:
            await there.service.admit(OWNER, identity)
        line = await there.service.get(IDS[0])
        there.wakeups.is_deaf = True
        await there.store.write(lambda tx: there.register.set_role(tx, OWNER, line, Role.ADMIN, 0.0))
        changes = await there.store.read(there.people.read)
        assert (changes.persons.keys(), changes.is_whole) == ({line.id}, False)
