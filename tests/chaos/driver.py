"""Plays a scenario against a real gateway that dies where it is told to, and starts it again until all is done."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from tests.chaos.child import Command, Spec
from tests.chaos.nursery import PATIENCE_SECONDS, Died, Nursery, Process
from tests.chaos.played import SHORT, START, Commit, Crash, Flight, Kill, Played, Seen, commit_of, parse, rows_of
from tests.chaos.scripted import Ledger
from tests.chaos.stage import WALL_AHEAD
from tests.chaos.steps import PERSON, Delete, Do, Edit, Press, Say, Scenario, Stop, Wait
from tests.simulators.paper.client import PaperSettings
from tests.simulators.paper.simulator import PaperServer
from tidings.core.clock import Clock, Timer

__all__ = ["SHORT", "Commit", "Crash", "Flight", "Kill", "Nursery", "Played", "Seen", "parse", "play", "rows_of"]

# Between a kill and the next start.
DOWN_SECONDS = 1.0
# How long a gateway that was stopped is left so.
STOPPED_SECONDS = 30.0
# Of real time; after so long without a confirmation only the clock can help, unless a kill is to come.
GLANCE_SECONDS = 0.3
CODE = re.compile(r"\b[0-9A-Z]{4}-[0-9A-Z]{4}\b")


class DriverClock(Clock):
    """The platforms' clock: it shows what the gateway was told."""

    def __init__(self) -> None:
        self.time = START
        self.confirmed = True

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time + WALL_AHEAD

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        raise NotImplementedError("a paper platform never waits")

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError("a paper platform never waits")


async def play(
    scenario: Scenario, kills: tuple[Kill, ...], folder: Path, nursery: Nursery, *, labels: bool = False
) -> Played:
    async with AsyncExitStack() as stack:
        clock = DriverClock()
        papers: dict[str, PaperServer] = {}
        for platform in scenario.platforms:
            server = PaperServer(platform.kind, limit=platform.limit, clock=clock)
            papers[platform.name] = await stack.enter_async_context(server)
        playing = Play(scenario, kills, folder, nursery, papers, clock, labels)
        await playing.run()
        return playing.told()


class Play:
    def __init__(
        self,
        scenario: Scenario,
        kills: tuple[Kill, ...],
        folder: Path,
        nursery: Nursery,
        papers: dict[str, PaperServer],
        clock: DriverClock,
        labels: bool,
    ) -> None:
        self._scenario = scenario
        self._kills = kills
        self._folder = folder
        self._nursery = nursery
        self._papers = papers
        self._clock = clock
        # What is not a kill is known only by its label.
        self._labels = labels or any(kill.action != "kill" for kill in kills)
        self._steps = list(scenario.steps)
        # When the step that is being waited for ends.
        self._until = START
        self._next: float | None = None
        self._crashes: list[Crash] = []
        # Presses by people who may not: refused, and not stored.
        self._refused: set[str] = set()
        # What a person looked for and did not find.
        self._missed: list[str] = []
        self._faults: list[str] = []
        self._boots = 0
        self._is_to_die = False

    async def run(self) -> None:
        kills = list(self._kills)
        is_over = False
        while not is_over and not self._faults:
            is_over = await self._start(kills.pop(0) if kills else None)
        if not self._kills:
            # After a kill another call may meet it, or none; without one it would prove nothing.
            unmet = [(name, fault) for name, paper in self._papers.items() for fault in paper.faults.armed]
            self._faults += [f"nobody on {name} met the fault {fault}" for name, fault in unmet]

    async def _start(self, kill: Kill | None) -> bool:
        """One gateway from its start to its end; true when nothing is left to do for another."""
        self._boots += 1
        self._is_to_die = kill is not None and kill.action == "kill"
        process = await self._nursery.start(self._spec(kill))
        is_stopped = kill is not None and kill.action == "stop"
        waking = asyncio.create_task(self._wake(process)) if is_stopped else None
        try:
            await self._live(process)
            if kill is not None and (self._is_to_die or self._passed(self._boots).get(kill.label, 0) < kill.hit):
                self._faults.append(f"{kill} never came")
            return not self._steps
        except Died:
            status = await process.ended
            if not self._is_to_die or status != -signal.SIGKILL:
                self._faults.append(f"start {self._boots} died with status {status}: {self._last_words()}")
            else:
                self._crashes.append(await self._look())
                self._clock.time += DOWN_SECONDS
        except TimeoutError:
            self._faults.append(f"start {self._boots} hangs: {self._last_words()}")
        finally:
            if waking is not None:
                waking.cancel()
            await process.kill()
        return False

    async def _wake(self, process: Process) -> None:
        """Who was stopped goes on, and finds that time has passed."""
        await process.stopped()
        self._clock.time += STOPPED_SECONDS
        process.go_on()

    async def _live(self, process: Process) -> None:
        """Until the steps have ended, or the gateway as it was asked to."""
        self._next = (await process.rested()).next
        for platform in self._scenario.platforms:
            for account in platform.accounts:
                await self._tell(process, attach=f"{platform.name}@{account}")
            await self._confirmed(process, platform.name)
        while True:
            await self._pass_time(process)
            if not self._steps:
                return
            match self._steps.pop(0):
                case Wait(seconds=seconds):
                    self._until = self._clock.time + seconds
                case Do(platform=platform, lever=lever, arguments=arguments):
                    getattr(self._papers[platform], lever)(*arguments)
                case Stop():
                    await self._stop(process)
                    return
                case step:
                    self._happens(step)
                    await self._confirmed(process, step.platform)

    def _happens(self, step: Say | Edit | Delete | Press) -> None:
        paper = self._papers[step.platform]
        match step:
            case Press() as press:
                self._press(paper, press)
            case Say() as say:
                paper.says(
                    self._words(say),
                    key=say.key,
                    chat=say.chat,
                    thread=say.thread,
                    account=say.account,
                    sender=say.sender,
                    group=say.group,
                    files=((say.file, b"a picture"),) if say.file else (),
                    private=say.addressed,
                    addressed=say.addressed,
                )
            case Edit(about=about, text=text):
                paper.edits(about, text)
            case Delete(about=about):
                paper.deletes(about)

    def _words(self, say: Say) -> str:
        """With the code that stands in the chat where it was given."""
        if say.code is None:
            return say.text
        platform, chat = say.code
        codes = [code for post in self._papers[platform].posts_in(chat) for code in CODE.findall(post)]
        if not codes:
            self._missed.append(f"nobody was told a code in {chat} on {platform}")
            return say.text
        return say.text.format(code=codes[-1])

    def _press(self, paper: PaperServer, press: Press) -> None:
        for message in reversed(paper.visible(press.chat)):
            for choice in message.choices:
                if choice.label == press.label and press.about in message.text:
                    key = paper.presses(message.id, choice.id, sender=press.sender)
                    self._refused |= {key} if press.sender == PERSON else set()
                    return
        self._missed.append(f"there is no button to press about {press.about}")

    async def _confirmed(self, process: Process, platform: str) -> None:
        paper = self._papers[platform]
        while paper.unconfirmed:
            patience = PATIENCE_SECONDS if self._is_to_die or not self._kills else GLANCE_SECONDS
            try:
                await process.alive(paper.until(lambda paper: not paper.unconfirmed, patience))
            except TimeoutError:
                if patience == PATIENCE_SECONDS or self._clock.time > self._until + STOPPED_SECONDS:
                    raise
                # It waits for its own clock, after a fault that was made for it.
                await self._tell(process)
                await self._tick(process)
        await self._tell(process)

    async def _stop(self, process: Process) -> None:
        rested = await process.obey(Command(now=self._clock.time, stop=True))
        while not rested.ended:
            self._next = rested.next
            if self._next is not None:
                self._clock.time = max(self._clock.time, self._next)
            rested = await process.obey(Command(now=self._clock.time, tick=True))
        if (status := await process.ended) != 0:
            self._faults.append(f"start {self._boots} ended with status {status}: {self._last_words()}")
        self._clock.time += DOWN_SECONDS

    async def _tell(self, process: Process, *, attach: str = "", tick: bool = False) -> None:
        self._next = (await process.obey(Command(now=self._clock.time, attach=attach, tick=tick))).next

    async def _tick(self, process: Process) -> None:
        if self._next is not None:
            self._clock.time = max(self._clock.time, self._next)
            await self._tell(process, tick=True)

    async def _pass_time(self, process: Process) -> None:
        """From timer to timer, each with all that follows from it."""
        while self._next is not None and self._next <= max(self._until, self._clock.time):
            await self._tick(process)
        if self._until > self._clock.time:
            self._clock.time = self._until
            await self._tell(process)

    def _spec(self, kill: Kill | None) -> Spec:
        adapters = [
            (
                account,
                PaperSettings(
                    address=self._papers[platform.name].address,
                    name=platform.name,
                    kind=platform.kind,
                    limit=platform.limit,
                    call_seconds=PATIENCE_SECONDS,
                ),
            )
            for platform in self._scenario.platforms
            for account in platform.accounts
        ]
        return Spec(
            home=str(self._folder / "home"),
            boot=self._boots,
            now=self._clock.time,
            failpoint=kill.failpoint if kill else "",
            adapters=tuple(adapters),
            trace=str(self._trace(self._boots)),
            ledger=str(self._folder / "ledger"),
            log=str(self._folder / "log"),
            labels=str(self._passes(self._boots)) if self._labels else "",
            burst_seconds=self._scenario.burst_seconds,
        )

    def _trace(self, boot: int) -> Path:
        return self._folder / f"commits.{boot}"

    def _passes(self, boot: int) -> Path:
        return self._folder / f"labels.{boot}"

    def _passed(self, boot: int) -> Counter[str]:
        path = self._passes(boot)
        return Counter(path.read_text().split() if path.exists() else ())

    async def _look(self) -> Crash:
        """Looks at a copy: whoever opens the database itself would mend what the next start must mend."""
        for paper in self._papers.values():
            # When every connection has ended, everything that was said over it has been heard.
            await paper.until(lambda paper: not paper.connections, PATIENCE_SECONDS)
        copy = self._folder / f"killed.{self._boots}"
        copy.mkdir()
        for name in ("tidings.db", "tidings.db-wal"):
            if (self._folder / "home" / name).exists():
                shutil.copy(self._folder / "home" / name, copy / name)
        flights = rows_of(copy / "tidings.db", "SELECT delivery, position, kind FROM parts WHERE state = 'sending'")
        stored = set(rows_of(copy / "tidings.db", "SELECT adapter, key FROM inbox"))
        shutil.rmtree(copy)
        said = {step.key: step for step in self._scenario.steps if isinstance(step, Say)}
        confirmed = [
            (name, key)
            for name, paper in self._papers.items()
            for key in dict.fromkeys(paper.confirmed)
            if key not in self._refused and (key not in said or said[key].is_stored_at_once)
        ]
        return Crash(
            flights=tuple(Flight(*row) for row in flights),
            unstored=tuple(f"{key} on {name}" for name, key in confirmed if (name, key) not in stored),
        )

    def _last_words(self) -> str:
        log = self._folder / "log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return " | ".join(lines[-3:])

    def told(self) -> Played:
        return Played(
            scenario=self._scenario,
            kills=self._kills,
            seen={name: self._seen(name, paper) for name, paper in self._papers.items()},
            database=self._folder / "home" / "tidings.db",
            ledger=tuple(Ledger(self._folder / "ledger").read()),
            crashes=tuple(self._crashes),
            commits=tuple(self._commits(boot) for boot in range(1, self._boots + 1)),
            faults=tuple(self._faults),
            labels=tuple(dict(self._passed(boot)) for boot in range(1, self._boots + 1)),
            refused=frozenset(self._refused),
            missed=tuple(dict.fromkeys(self._missed)),
        )

    def _seen(self, name: str, paper: PaperServer) -> Seen:
        confirmed, unconfirmed = tuple(paper.confirmed), tuple(paper.unconfirmed)
        platform = self._scenario.platform(name)
        return Seen(platform, paper.effects, paper.sent, confirmed, unconfirmed, paper.calls())

    def _commits(self, boot: int) -> tuple[Commit, ...]:
        path = self._trace(boot)
        lines = path.read_bytes().splitlines() if path.exists() else []
        return tuple(commit_of(line) for line in lines)
