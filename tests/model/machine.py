"""The state machine: rules are what people, platforms, agents, clocks and crashes do to the gateway."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.model.ground import (
    DRAFTS,
    EDITS,
    FINDS,
    LOST_AFTER,
    LOST_BEFORE,
    NONE,
    STALLS_AFTER,
    STALLS_BEFORE,
    VERDICTS,
    Ability,
)
from tests.model.life import Fuse
from tests.model.player import ENDS, SAY, STEPS, WAIT
from tests.model.scene import HERE, Scene
from tidings.core.types import Kind

# `make test` plays this many; a long run says how many by the environment.
EXAMPLES = int(os.environ.get("TIDINGS_MODEL_EXAMPLES", "0")) or 100
STEP_COUNT = int(os.environ.get("TIDINGS_MODEL_STEPS", "0")) or 25
DAY = 86_400.0

WHERE = st.integers(0, len(HERE) - 1)
# Most steps come to rest; some are cut short, so that the next one finds things under way.
TURNS = st.sampled_from((-1, -1, -1, 2, 6, 15))
PLANS = st.tuples(st.lists(st.sampled_from(STEPS), max_size=3), st.sampled_from(ENDS)).map(lambda p: [*p[0], p[1]])
ABILITIES = st.builds(
    Ability,
    keyed_for=st.sampled_from((0.0, 120.0)),
    readback=st.booleans(),
    streaming=st.sampled_from((NONE, EDITS, DRAFTS)),
)
FUSES = st.builds(Fuse, commits=st.integers(1, 4), after=st.booleans())
ADAPTERS = st.sampled_from(("alpha", "beta"))
COMMANDS = st.sampled_from(("status", "new", "whoami", "help", "stop", "nonsense"))
AMENDMENTS = (Kind.EDITED, Kind.EDITED, Kind.DELETED, Kind.DELETED, Kind.PRESSED)
# Doubts are what the machine is about.
TROUBLES = st.lists(st.sampled_from((*VERDICTS, LOST_AFTER, LOST_AFTER, LOST_BEFORE, STALLS_AFTER)), max_size=3)


def profile(examples: int = EXAMPLES, steps: int = STEP_COUNT, **others: Any) -> settings:
    """Always the same examples where nobody asks for a long run: a red one is never a matter of luck."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize="TIDINGS_MODEL_EXAMPLES" not in os.environ,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        **others,
    )


# For bugs that are seeded: it is enough that one example is red.
QUICK: dict[str, Any] = {"phases": (Phase.generate,), "report_multiple_bugs": False}


class Model(RuleBasedStateMachine):
    scene_class: type[Scene] = Scene

    def __init__(self) -> None:
        super().__init__()
        self.scene: Scene | None = None
        # False while a step is not over: then it has failed, and the end proves nothing more.
        self.whole = False

    @initialize(alpha=ABILITIES, beta=ABILITIES, hops=st.integers(0, 3))
    def begin(self, alpha: Ability, beta: Ability, hops: int) -> None:
        self.scene = self.scene_class({"alpha": alpha, "beta": beta}, hops)
        self.whole = True

    @property
    def _scene(self) -> Scene:
        assert self.scene is not None
        self.whole = False
        return self.scene

    def _is_up(self) -> bool:
        return self.scene is not None and self.scene.alive

    def _is_down(self) -> bool:
        return self.scene is not None and not self.scene.alive

    def _has_messages(self) -> bool:
        return self.scene is not None and bool(self.scene.said)

    # People.

    @rule(where=WHERE, plan=PLANS, verdicts=TROUBLES, turns=TURNS)
    def deliver(self, where: int, plan: list[str], verdicts: list[str], turns: int) -> None:
        """A message, and what the platform will say to the next sends."""
        scene = self._scene
        scene.grounds[HERE[where].adapter].verdicts.extend(verdicts)
        scene.says(scene.inbound(where, " ".join(("KEY", *plan))))
        scene.live(turns)

    @precondition(_is_up)
    @rule(where=WHERE, plans=st.lists(PLANS, min_size=2, max_size=4), turns=TURNS)
    def deliver_burst(self, where: int, plans: list[list[str]], turns: int) -> None:
        scene = self._scene
        for plan in plans:
            scene.says(scene.inbound(where, " ".join(("KEY", *plan))))
        scene.live(turns)

    @precondition(_is_up)
    @rule(where=WHERE, steps=st.lists(st.sampled_from(STEPS), max_size=2), verdicts=TROUBLES)
    def deliver_waiting(self, where: int, steps: list[str], verdicts: list[str]) -> None:
        """A message whose run waits in the end: to be told to go on, stopped, or caught by a crash."""
        self.deliver(where, [*steps, WAIT, SAY], verdicts, -1)

    @precondition(_has_messages)
    @rule(which=st.integers(0, 99), turns=TURNS)
    def deliver_again(self, which: int, turns: int) -> None:
        """The platform repeats what it has brought before, confirmed or not."""
        scene = self._scene
        scene.says(list(scene.said.values())[which % len(scene.said)])
        scene.live(turns)

    @precondition(_is_up)
    @rule(where=WHERE, group=st.sampled_from("xy"), plans=st.lists(PLANS, min_size=1, max_size=3), turns=TURNS)
    def album(self, where: int, group: str, plans: list[list[str]], turns: int) -> None:
        scene = self._scene
        for plan in plans:
            scene.says(scene.inbound(where, " ".join(("KEY", *plan)), group=f"{where}{group}"))
        scene.live(turns)

    @precondition(_is_up)
    @rule(where=WHERE, name=COMMANDS, turns=TURNS)
    def command(self, where: int, name: str, turns: int) -> None:
        scene = self._scene
        scene.says(scene.inbound(where, f"/{name}", Kind.COMMANDED, command=name))
        scene.live(turns)

    @precondition(lambda self: self._is_up() and self._has_messages())
    @rule(which=st.integers(0, 99), plan=PLANS, kind=st.sampled_from(AMENDMENTS), turns=TURNS)
    def amend(self, which: int, plan: list[str], kind: Kind, turns: int) -> None:
        """A person corrects or deletes a message, which may still wait, or presses a button that it never had."""
        scene = self._scene
        about = list(scene.said.values())[which % len(scene.said)]
        text = " ".join((about.key, *plan)) if kind is Kind.EDITED else ""
        scene.says(scene.inbound(HERE.index(about.conversation), text, kind, about=about.key))
        scene.live(turns)

    @precondition(lambda self: self.scene is not None and any(g.views() for g in self.scene.grounds.values()))
    @rule(which=st.integers(0, 99))
    def delete_view(self, which: int) -> None:
        """Somebody deletes what a growing answer is shown in."""
        views = [post for ground in self._scene.grounds.values() for post in ground.views()]
        views[which % len(views)].deleted = True

    # The agent.

    @precondition(lambda self: self._is_up() and self.scene.player.waits)
    @rule(which=st.integers(0, 9), turns=TURNS)
    def agent_goes_on(self, which: int, turns: int) -> None:
        scene = self._scene
        scene.player.let_go(which)
        scene.live(turns)

    @precondition(lambda self: self._is_up() and self.scene.player.waits)
    @rule(which=st.integers(0, 9), turns=TURNS)
    def user_stop(self, which: int, turns: int) -> None:
        """A person stops a run that goes on; stopping where nothing runs is only a command."""
        scene = self._scene
        running = scene.player.waits
        where = HERE.index(running[which % len(running)])
        scene.says(scene.inbound(where, "/stop", Kind.COMMANDED, command="stop"))
        scene.live(turns)

    # The platforms.

    @precondition(_is_up)
    @rule(name=ADAPTERS, verdicts=TROUBLES, answers=st.lists(st.sampled_from(FINDS), max_size=3))
    def next_calls(self, name: str, verdicts: list[str], answers: list[str]) -> None:
        ground = self._scene.grounds[name]
        ground.verdicts.extend(verdicts)
        ground.finds.extend(answers)

    @precondition(lambda self: self.scene is not None and any(g.stalls for g in self.scene.grounds.values()))
    @rule(turns=TURNS)
    def stalled_sends_go_on(self, turns: int) -> None:
        scene = self._scene
        for ground in scene.grounds.values():
            ground.release()
        scene.live(turns)

    @precondition(_is_up)
    @rule(name=st.none() | ADAPTERS, commits=st.integers(1, 3))
    def hiccup(self, name: str | None, commits: int) -> None:
        """The disk is full for a moment, or a platform hangs up."""
        scene = self._scene
        assert scene.life is not None
        if name is None:
            scene.life.full = commits
        elif name in scene.adapters:
            scene.adapters[name].disconnect()
        scene.live()

    # Time.

    @precondition(_is_up)
    @rule(seconds=st.sampled_from((0.1, 0.6, 1.5, 4.0, 11.0)), days=st.sampled_from((0, 0, 0, -1, 1)))
    def advance_a_little(self, seconds: float, days: int) -> None:
        """The wall clock may jump meanwhile."""
        scene = self._scene
        scene.clock.jump(days * DAY)
        scene.advance(seconds)

    @precondition(_is_up)
    @rule(seconds=st.sampled_from((45.0, 130.0, 400.0)))
    def advance_far(self, seconds: float) -> None:
        self._scene.advance(seconds)

    # The process.

    @precondition(_is_up)
    @rule(fuse=FUSES)
    def crash_at_a_commit(self, fuse: Fuse) -> None:
        scene = self._scene
        assert scene.life is not None
        scene.life.fuse = fuse

    @precondition(_is_up)
    @rule(where=WHERE, plan=PLANS, fuse=FUSES)
    def crash_during(self, where: int, plan: list[str], fuse: Fuse) -> None:
        """The process dies of what it stores for the very next message."""
        self.crash_at_a_commit(fuse)
        self.deliver(where, plan, [], -1)

    @precondition(_is_up)
    @rule(where=WHERE, verdict=st.sampled_from((STALLS_BEFORE, STALLS_AFTER)))
    def crash_while_sending(self, where: int, verdict: str) -> None:
        """Nobody has heard what became of the send."""
        self.deliver(where, [SAY], [verdict], -1)
        self._scene.kill()

    @precondition(_is_down)
    @rule(hours=st.sampled_from((0, 0, 0, 1, 80)))
    def restart(self, hours: int) -> None:
        """Perhaps after so long that nobody waits for an answer any more."""
        scene = self._scene
        scene.advance(hours * 3600.0)
        scene.start()

    @precondition(_is_down)
    @rule(fuse=FUSES, absent=st.sets(ADAPTERS, max_size=1))
    def restart_in_vain(self, fuse: Fuse, absent: set[str]) -> None:
        """It dies again while it recovers or soon after; perhaps it also lacks an adapter."""
        scene = self._scene
        scene.absent = set(absent)
        scene.start(fuse)

    @precondition(_is_up)
    @rule(clean=st.booleans(), absent=st.sets(ADAPTERS, max_size=1))
    def reconfigure(self, clean: bool, absent: set[str]) -> None:
        """Ended in order or killed, and started again with other adapters."""
        scene = self._scene
        scene.stop() if clean else scene.kill()
        scene.absent = set(absent)
        scene.start()

    @invariant()
    def holds(self) -> None:
        if self.scene is not None:
            self.whole = False
            self.scene.check()
            self.scene.order.step += 1
            self.whole = True

    def teardown(self) -> None:
        if self.scene is None:
            return
        try:
            if self.whole:
                self.scene.come_to_rest()
        finally:
            self.scene.close()
