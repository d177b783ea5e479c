"""What allowances cost: how many statements one turn takes more, counted at the store's connection."""

from pathlib import Path
from typing import Any

from tests.scenario.spine.test_allowances import Costly, ask
from tests.worlds.world import OwnedClock, World
from tidings.core.store.store import Transaction

# The same turn took one statement for the usage of its conversation before there were allowances.
BEFORE = 1
# So many characters tell one statement from the next, before any value that differs.
BEGINNING = 40
ALL = {
    "zone": "UTC",
    "gateway": {"messages": 60, "runs": 100, "tokens": 100_000, "money": 10.0},
    "roles": {"member": {"messages": 60, "runs": 100, "tokens": 100_000, "money": 10.0}},
    "chats": {"paper:1": {"messages": 60, "runs": 100, "tokens": 100_000, "money": 10.0}},
    "bots": {"bot": {"messages": 60, "runs": 100, "tokens": 100_000, "money": 10.0}},
}


async def statements_of_a_turn(home: Path, **settings: Any) -> tuple[set[str], list[str]]:
    """How the statements of a turn begin, and the verbs of those about spending."""
    heard: list[str] = []

    def listen(tx: Transaction) -> None:
        tx._connection.set_trace_callback(heard.append)  # type: ignore[attr-defined]

    async with World(home, Costly(cost=0.01), clock=OwnedClock(), **settings) as world:
        await ask(world)
        await ask(world)
        await world.gateway._store.write(listen)
        heard.clear()
        assert await ask(world) == "fine"
        others = {each[:BEGINNING] for each in heard if "spending" not in each}
        return others, [each.split()[0] for each in heard if "spending" in each]


async def test_a_turn_takes_at_most_three_statements_more(tmp_path: Path) -> None:
    plain, settling = await statements_of_a_turn(tmp_path / "plain")
    limited, all_of_them = await statements_of_a_turn(tmp_path / "limited", allowances=ALL)
    assert settling == ["INSERT"]
    assert all_of_them == ["INSERT", "SELECT", "INSERT", "INSERT"], "heard, weighed, reserved, settled"
    assert len(all_of_them) - BEFORE <= 3
    assert limited - plain == set(), "nothing else is asked of the store"
