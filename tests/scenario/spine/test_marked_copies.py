"""A second copy that does not fit into one message is as safe in each of its pieces as in the first."""

from pathlib import Path

import pytest

from tests.simulators.paper.simulator import Kind
from tests.worlds.builders import body, target
from tests.worlds.world import Echo, OwnedClock, World
from tidings.core.outbound.outbox import MARK

LIMIT = 500
# Fits, and no longer with a mark.
LINES = [f"Line {number}: {'x' * 50}" for number in range(8)]
TEXT = "\n\n".join(LINES)


@pytest.mark.parametrize("streaming", ["edits", "drafts"])
@pytest.mark.parametrize("arrived", [True, False])
async def test_no_piece_of_a_marked_copy_is_lost_by_one_more_doubt(
    tmp_path: Path, streaming: str, arrived: bool
) -> None:
    clock = OwnedClock()
    async with World(tmp_path, Echo(), kind=Kind(streaming=streaming), clock=clock, limit=LIMIT) as world:
        world.paper.drop_next(after_effect=False, method="post")
        # The placeholder for the first piece gets through, what is posted next does not.
        world.paper.delay_next(0.0, method="post")
        world.paper.drop_next(after_effect=arrived, method="post")
        id = await world.gateway.desk.owe(target(), body(TEXT), "test")
        await world.until(lambda: world.rows("SELECT 1 FROM deliveries WHERE state <> 'waiting' AND closed > 0"))
        assert (await world.gateway.desk.delivery(id)).state == "delivered"
        shown = [text for text in world.posts if text != "…"]
        assert [line for text in shown for line in text.split("\n") if line.startswith("Line")] == LINES
        assert all(text.startswith(MARK.strip()) for text in shown)
        assert world.posts.count("…") == int(arrived)
