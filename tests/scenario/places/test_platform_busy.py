"""Every busy mode on every real platform, with a kill at the commits of a short story: one outcome for each message.

`make busy` has a kill at every commit; the suite at every third, each story from another one on.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.scenario.spine.test_busy import Listener
from tests.worlds.stages import PLATFORMS, Stage, stage
from tests.worlds.world import Gate, armed
from tidings.core import failpoints
from tidings.core.busy import Busy
from tidings.core.outbound.outbox import MARK

TEXTS = ("one", "two", "three")
COMMIT = "store.pre_commit"
# More than any story has.
MOST_COMMITS = 100
EVERY = 1 if os.environ.get("TIDINGS_BUSY_KILLS") == "all" else 3
INTERRUPTED = "Interrupted by your next message."

# The messages of one story that are no runs when nothing is killed.
JOINED = {Busy.QUEUE: 0, Busy.COLLECT: 1, Busy.STEER: 2, Busy.INTERRUPT: 0}


class Story:
    """Ada says one thing, and two more while the bot works on it; goes on where a kill has ended it."""

    def __init__(self, there: Stage, agent: Listener) -> None:
        self._there = there
        self._agent = agent
        self._gate = Gate()
        self._rest = list(TEXTS)
        self.keys: dict[str, str] = {}

    async def begin(self) -> None:
        """Discord tells nobody of a private chat that is not known yet, so all begin in one that is."""
        key = self._there.says("ada", "hello")
        await self._there.until(lambda: self._there.world.rows("SELECT 1 FROM inbox WHERE key = ?", key))
        await self.end()
        self._agent.gates.append(self._gate)

    async def play(self) -> None:
        await self._say()
        await self._gate.reached()
        while self._rest:
            await self._say()
        self._gate.open()
        await self.end()

    async def go_on(self) -> None:
        """Without a gate: what was not said yet is said now."""
        self._agent.gates.clear()
        self._gate.open()
        while self._rest:
            await self._say()
        await self.end()

    async def end(self) -> None:
        await self._there.until(self._is_over)

    def _is_over(self) -> bool:
        rows = self._there.world.rows
        open_rows = rows(
            "SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')"
            " UNION ALL SELECT 1 FROM deliveries WHERE state IN ('waiting', 'doubtful')"
        )
        return not open_rows and all(rows("SELECT 1 FROM inbox WHERE key = ?", key) for key in self.keys.values())

    async def _say(self) -> None:
        text = self._rest.pop(0)
        key = self.keys[text] = self._there.says("ada", text)
        await self._there.world.eventually(
            lambda: self._there.world.rows("SELECT 1 FROM inbox WHERE key = ?", key), lambda: f"{text} was never stored"
        )

    def check(self) -> None:
        """Each message against what stands on the platform."""
        posts = self._there.told("ada")
        rows = {row["run"]: row for row in self._there.world.runs()}
        for text, key in self.keys.items():
            own = self._there.world.run(key)
            assert own["state"] in ("done", "joined"), (text, posts)
            assert not (own["joined"] and own["attempt"]), f"{text} joined and was run, too: {posts}"
            naming = [post for post in posts if text in _named(post)]
            plain = [post for post in naming if not post.startswith(MARK)]
            if rows[own["joined"] or own["run"]]["outcome"] == "completed":
                assert naming, f"{text} is nowhere: {posts}"
                assert len({post.removeprefix(MARK) for post in naming}) == 1, f"{text} has two answers: {posts}"
            assert len(plain) <= 1, f"{text} is answered twice: {posts}"
        cut_short = [row["reason"] for row in rows.values() if row["outcome"] != "completed"]
        assert set(cut_short) <= {"interrupted by your next message"}
        assert len([post for post in posts if post == INTERRUPTED]) <= len(cut_short)
        assert sum(INTERRUPTED in post for post in posts) >= len(cut_short)


def _named(post: str) -> list[str]:
    """What an answer speaks of."""
    _, _, texts = post.partition("answer to ")
    return texts.replace("+", "\n").split("\n")


async def _count(home: Path, platform: str, mode: Busy) -> int:
    """Plays the story without a kill; returns how many commits it has."""
    agent = Listener(hears=mode is Busy.STEER)
    async with stage(home, platform, agent, limits={"busy": mode}) as there:
        story = Story(there, agent)
        await story.begin()
        with armed(f"{COMMIT}:{10 * MOST_COMMITS}:raise"):
            await asyncio.wait_for(story.play(), 15)
            commits = failpoints._hits[COMMIT]
        story.check()
        joined = there.world.rows("SELECT 1 FROM inbox WHERE state = 'joined'")
        assert len(joined) == JOINED[mode], there.told("ada")
    return commits


async def _kill(home: Path, platform: str, mode: Busy, commit: int) -> None:
    """From this commit on nothing is stored any more, and then the process is gone."""
    agent = Listener(hears=mode is Busy.STEER)
    async with stage(home, platform, agent, limits={"busy": mode}) as there:
        story = Story(there, agent)
        await story.begin()
        with armed(",".join(f"{COMMIT}:{number}:raise" for number in range(commit, commit + MOST_COMMITS))):
            playing = asyncio.create_task(story.play())
            await there.world.eventually(lambda: failpoints._hits[COMMIT] >= commit or playing.done())
            playing.cancel()
            await asyncio.wait([playing])
            await there.world.crash()
        await there.world.start()
        await asyncio.wait_for(story.go_on(), 15)
        story.check()


@pytest.mark.parametrize("mode", Busy)
@pytest.mark.parametrize("platform", PLATFORMS)
async def test_every_message_has_one_outcome_whichever_commit_a_kill_hits(
    tmp_path: Path, platform: str, mode: Busy
) -> None:
    commits = await _count(tmp_path / "clean", platform, mode)
    assert 5 < commits < MOST_COMMITS
    first = 1 + (list(Busy).index(mode) * len(PLATFORMS) + PLATFORMS.index(platform)) % EVERY
    for commit in range(first, commits + 1, EVERY):
        home = tmp_path / str(commit)
        try:
            await _kill(home, platform, mode, commit)
        except Exception as error:
            raise AssertionError(f"killed at commit {commit} of {commits}: {error!r}") from error
