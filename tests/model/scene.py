"""The world around the core: platforms, people, an agent and a clock that outlive each life of the gateway."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from tests.model import invariants
from tests.model.ground import Ability, Ground, GroundAdapter, Order, Place
from tests.model.life import Fuse, Life, ModelClock, MortalGateway
from tests.model.player import Player
from tests.worlds import builders
from tests.worlds.fakes import FakeLocal, FakeServer
from tidings.core.adapter import Host, Platform
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Options, Team
from tidings.core.settings import Access, Core, Limits
from tidings.core.store.connection import connect
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Conversation, Inbound, Kind

# Where everybody speaks; two members of the group have a memory of their own each, and share a lane.
HERE = (
    Conversation(adapter="alpha", account="main", chat="1"),
    Conversation(adapter="alpha", account="main", chat="1", thread="t"),
    Conversation(adapter="alpha", account="main", chat="g", member="a"),
    Conversation(adapter="alpha", account="main", chat="g", member="b"),
    Conversation(adapter="beta", account="main", chat="9"),
)
# A file system in memory where there is one: its fsync costs nothing, and no machine dies here.
MEMORY = Path("/dev/shm")
# What is still open so long after the last fault stays open for ever.
QUIET_SECONDS = 7200.0
QUIET_STEP_SECONDS = 20.0
LIMITS = Limits(burst_seconds=0, runs=3, queued_per_conversation=4, run_seconds=300, drain_seconds=0)


class Scene:
    adapter_class: type[GroundAdapter] = GroundAdapter
    gateway_class: type[MortalGateway] = MortalGateway

    def __init__(self, abilities: dict[str, Ability], hops: int) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="model", dir=MEMORY if MEMORY.is_dir() else None))
        (self.home / DATABASE).write_bytes(_blank())
        self.clock = ModelClock()
        self.order = Order()
        self.grounds = {name: Ground(name, each, self.clock, self.order) for name, each in abilities.items()}
        self.player = Player(self.clock, self.order)
        self.adapters: dict[str, GroundAdapter] = {}
        self.violations: list[str] = []
        # Every message that anybody sent, with its place; the rows of an album by their group.
        self.said: dict[str, Inbound] = {}
        self.albums: dict[str, set[str]] = defaultdict(set)
        self.absent: set[str] = set()
        self.life: Life | None = None
        # The outcomes and journals that were ever seen, and when a run was first seen cancelled.
        self.memory = invariants.Memory()
        self._hops = hops
        self._reader: sqlite3.Connection | None = None
        self.start()

    # What people do.

    def inbound(self, here: int, text: str, kind: Kind = Kind.MESSAGE, **fields: str) -> Inbound:
        conversation = HERE[here % len(HERE)]
        key = f"{conversation.adapter[0]}{len(self.said) + 1}"
        spoken = builders.inbound(
            text.replace("KEY", key),
            chat=conversation.chat,
            thread=conversation.thread,
            adapter=conversation.adapter,
            key=key,
            kind=kind,
        )
        return replace(spoken, conversation=conversation, **fields)

    def says(self, inbound: Inbound) -> None:
        """The platform keeps it until it is confirmed, whether anybody listens or not."""
        self.said.setdefault(inbound.key, inbound)
        if inbound.group:
            self.albums[inbound.group].add(inbound.key)
        ground = self.grounds[inbound.target.adapter]
        ground.unconfirmed[inbound.key] = inbound
        if self.alive and inbound.target.adapter in self.adapters:
            self.adapters[inbound.target.adapter].arrives(inbound)

    def place(self, key: str) -> Place:
        target = self.said[key].target
        return Place(target.adapter, target.chat, target.thread)

    # What befalls the process.

    @property
    def alive(self) -> bool:
        return self.life is not None

    def start(self, fuse: Fuse | None = None) -> None:
        life = Life(self.violations.append, fuse)
        self.life = life
        self.adapters.clear()
        self.player.begin(life)
        gateway = self.gateway_class(
            self.home,
            Core(access=Access(allow=("alpha:7", "beta:7")), limits=LIMITS),
            [Platform(name, "main", self._builder(name, life)) for name in self.grounds if name not in self.absent],
            Team({"player": self.player}, "player", self.player.kinds()),
            FakeLocal(),
            FakeServer(),
            Options(clock=self.clock, grouped=False),
        )
        gateway.life, gateway.model_clock, gateway.hops = life, self.clock, self._hops
        life.gateway = gateway
        life.drive(_enter(gateway))
        self.bury_the_dead()

    def live(self, turns: int = -1) -> None:
        if self.life is not None:
            self.life.drive(turns=turns)
            self.bury_the_dead()

    def advance(self, seconds: float) -> None:
        if self.life is None:
            self.clock.pass_by(seconds)
            return
        self.life.loop.run_until_complete(self.clock.advance_with(self.life, seconds))
        self.bury_the_dead()

    def kill(self) -> None:
        if self.life is not None:
            self.life.dead = True
            self.bury_the_dead()

    def stop(self) -> None:
        """A clean end; what it cuts off is resumed at the next start."""
        if self.life is not None:
            assert self.life.gateway is not None
            self.life.drive(_leave(self.life.gateway))
            self.kill()

    def bury_the_dead(self) -> None:
        """What was being sent when the process ended is in doubt from now on, whatever the core makes of it."""
        if self.life is None or not self.life.dead:
            return
        self.life.bury()
        self.life = None
        self.adapters.clear()
        self.clock.forget()
        for ground in self.grounds.values():
            ground.forget()
        for row in self.rows(
            "SELECT delivery, p.key, lane FROM parts p JOIN deliveries d ON d.id = p.delivery WHERE p.state = 'sending'"
        ):
            self.grounds[row["lane"].partition(":")[0]].cut_off(row["delivery"], row["key"])

    # What the model looks at.

    def rows(self, sql: str) -> list[sqlite3.Row]:
        """A plain look at what is committed, past the core."""
        if self._reader is None:
            self._reader = sqlite3.connect(self.home / DATABASE, isolation_level=None)
            self._reader.row_factory = sqlite3.Row
        return self._reader.execute(sql).fetchall()

    def check(self) -> None:
        found = invariants.broken(self)
        assert not found, "\n".join(found)

    def heal(self) -> None:
        """No fault from now on, and nobody waits for a person: everything must come to its end."""
        for ground in self.grounds.values():
            ground.heal()
        self.player.generous = True
        if self.life is not None:
            self.life.fuse, self.life.full = None, 0
        if self.absent:
            self.stop()
            self.absent.clear()
        if self.life is None:
            self.start()
        for ground in self.grounds.values():
            ground.release()
        self.player.let_go()
        for row in self.rows("SELECT DISTINCT lane FROM deliveries WHERE state = 'held'"):
            # The owner has mended it: the adapter comes back.
            self.adapters[row["lane"].partition(":")[0]].disconnect()

    def come_to_rest(self) -> None:
        self.heal()
        end = self.clock.now() + QUIET_SECONDS
        while invariants.unsettled(self):
            if self.clock.now() > end:
                raise AssertionError("L1: these never end: " + ", ".join(invariants.unsettled(self)))
            self.advance(QUIET_STEP_SECONDS)
            assert self.alive, "nobody was to die any more"
        found = [*invariants.broken(self), *invariants.at_the_end(self)]
        assert not found, "\n".join(found)

    def close(self) -> None:
        self.kill()
        if self._reader is not None:
            self._reader.close()
        shutil.rmtree(self.home)

    def _builder(self, name: str, life: Life) -> Callable[[Host], GroundAdapter]:
        def build(host: Host) -> GroundAdapter:
            adapter = self.adapter_class(self.grounds[name], life, host)
            self.adapters[name] = adapter
            return adapter

        return build


@cache
def _blank() -> bytes:
    """A fresh database; making one anew for each example would take a third of the time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / DATABASE
        connect(path).close()
        return path.read_bytes()


async def _enter(gateway: MortalGateway) -> None:
    await gateway.__aenter__()


async def _leave(gateway: Gateway) -> None:
    await gateway.__aexit__(None, None, None)
