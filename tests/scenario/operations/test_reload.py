"""Settings that change while the gateway runs, and a process that is asked to end, twice."""

from __future__ import annotations

import asyncio
import logging
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from tests.worlds import reload_agents
from tests.worlds.process import ROOT, environment, gateway, say
from tests.worlds.reload_agents import CLOSED, GATES
from tests.worlds.world import Doorway, Echo, Gate, World
from tidings.adapters import catalog
from tidings.adapters.local import socket
from tidings.bots.app import agents, settings
from tidings.bots.app.reload import Reloading
from tidings.bots.app.settings import Loaded
from tidings.core.adapter import Receive
from tidings.core.errors import ConfigError, Misconfigured
from tidings.core.roles import Role
from tidings.core.store.sqlite import DATABASE

FIRST, SECOND = "tests.worlds.reload_agents:First", "tests.worlds.reload_agents:Second"
ALLOWED = '[access]\nallow = ["paper:7"]\n'


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)
    GATES.clear()
    CLOSED.clear()


class Running:
    """A gateway whose settings are in a file."""

    def __init__(self, world: World, reloading: Reloading, file: Path) -> None:
        self.world = world
        self.reloading = reloading
        self._file = file
        self.warnings: tuple[str, ...] = ()

    async def reload(self, text: str) -> tuple[list[str], list[str]]:
        self._file.write_text(text)
        change = await self.reloading.reload(self.world.gateway)
        self.warnings = change.warnings
        return sorted(change.changed), sorted(change.restart)

    async def answers(self, *posts: str) -> None:
        await self.world.paper.until(lambda paper: sorted(paper.posts) == sorted(posts))


@asynccontextmanager
async def running(home: Path, text: str, adapter: type[Doorway] = Doorway) -> AsyncIterator[Running]:
    file = home / "tidings.toml"
    file.write_text(text)

    def load() -> Loaded:
        return settings.load(catalog.sections(), home, file, {})

    loaded = load()
    staff = agents.build(loaded.bots)
    reloading = Reloading(loaded, staff, load, lambda loaded, staff: (), lambda loaded: None)
    world = World(home, {name: staff.agents[name] for name in staff.agents}, rules=loaded.core.rules, adapter=adapter)
    world.allow = list(loaded.core.access.allow)
    world.limits |= {"runs": loaded.core.limits.runs}
    async with reloading, world:
        # The one who made them closes them.
        world.agents = {}
        yield Running(world, reloading, file)


class Slow(Echo):
    """Takes as long to get ready as the test wants."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    async def prepare(self) -> None:
        await self._gate.wait()


def bot(agent: str, more: str = "") -> str:
    return f'[bot]\nagent = "{agent}"\nname = "helper"\n{more}{ALLOWED}'


async def test_a_running_answer_ends_as_it_began_and_the_next_one_is_the_new_agent_s(tmp_path: Path) -> None:
    gate = GATES["slow"] = Gate()
    async with running(tmp_path, bot(FIRST)) as now:
        paper = now.world.paper
        paper.says("slow", chat="1")
        await gate.reached()
        assert await now.reload(bot(SECOND)) == (["the bot helper"], [])
        paper.says("hi", chat="2")
        await now.answers("second: hi")
        assert CLOSED == [], "it is still at work"
        gate.open()
        await now.answers("second: hi", "first: slow")
        await now.world.eventually(lambda: CLOSED == ["first"])
    assert CLOSED == ["first", "second"]


async def test_a_message_that_waits_while_the_settings_change_is_answered_by_the_new_agent(tmp_path: Path) -> None:
    gate = GATES["slow"] = Gate()
    async with running(tmp_path, bot(FIRST)) as now:
        now.world.paper.says("slow")
        await gate.reached()
        now.world.paper.says("behind it")
        await now.world.eventually(lambda: len(now.world.runs()) == 2)
        await now.reload(bot(SECOND))
        gate.open()
        await now.answers("first: slow", "second: behind it")


async def test_a_bot_that_has_not_changed_keeps_its_agent_and_others_come_and_go(tmp_path: Path) -> None:
    def bots(*lines: str) -> str:
        return f"{''.join(lines)}{ALLOWED}"

    cook = f'[bots.cook]\nagent = "{FIRST}"\n'
    clerk = f'[bots.clerk]\nagent = "{SECOND}"\n'
    rule = '[[rules]]\nchat = "2"\nbot = "clerk"\n'
    async with running(tmp_path, bots(cook)) as now:
        before = now.world.gateway._parts.bots.agents["cook"]
        assert await now.reload(bots(cook, clerk, rule)) == (["[rules]", "the bot clerk is new"], [])
        assert now.world.gateway.desk.bots() == ("cook", "clerk")
        now.world.paper.says("one", chat="1")
        now.world.paper.says("two", chat="2")
        await now.answers("first: one", "second: two")
        assert await now.reload(bots(cook)) == (["[rules]", "the bot clerk has gone"], [])
        now.world.paper.says("three", chat="2")
        await now.answers("first: one", "second: two", "first: three")
        await now.world.eventually(lambda: CLOSED == ["second"])
        assert now.world.gateway._parts.bots.agents["cook"] is before


async def test_an_agent_that_is_one_object_for_ever_is_not_closed_when_its_settings_change(tmp_path: Path) -> None:
    only = "tests.worlds.reload_agents:ONLY"
    async with running(tmp_path, bot(only)) as now:
        assert await now.reload(bot(only, 'persona = "kind"\n')) == (["the bot helper"], [])
        now.world.paper.says("hi")
        await now.answers("second: hi")
        assert now.world.gateway._parts.bots.agents["helper"] is reload_agents.ONLY
        assert CLOSED == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[bot\n", "is not valid TOML"),
        (bot("no.such:Agent"), "cannot be loaded: No module named 'no'"),
        (bot("tests.worlds.reload_agents:Unmakeable"), "cannot be loaded: no oven"),
        (bot(SECOND) + '[[rules]]\nbot = "nobody"\n', "is no bot; there are: helper"),
        (bot(SECOND) + "[limits]\nruns = 0\n", "[limits] runs = 0 must be greater than or equal to 1"),
    ],
)
async def test_wrong_settings_change_nothing_and_say_why(tmp_path: Path, text: str, words: str) -> None:
    async with running(tmp_path, bot(FIRST)) as now:
        with pytest.raises(ConfigError) as error:
            await now.reload(text)
        assert words in str(error.value)
        now.world.paper.says("hi")
        await now.answers("first: hi")
        assert CLOSED == []
        # The next try begins where the last good settings are.
        assert await now.reload(bot(SECOND)) == (["the bot helper"], [])


async def test_whoever_is_taken_off_the_settings_is_out_at_once_and_whoever_a_command_admits_too_is_named(
    tmp_path: Path,
) -> None:
    gate = GATES.setdefault("long", Gate())
    both = bot(FIRST).replace('"paper:7"', '"paper:7", "paper:9"')
    async with running(tmp_path, bot(FIRST)) as now:
        paper = now.world.paper
        await now.world.admit("paper:9")
        assert await now.reload(both) == (["[access] allow"], [])
        asked = paper.says("long", sender="7")
        await gate.reached()
        assert await now.reload(bot(FIRST).replace("paper:7", "paper:8")) == (["[access] allow"], [])
        assert now.warnings == (
            "paper:9 was removed from the settings but is still a member; to remove: tidings people remove paper:9",
        )
        assert (await now.world.outcome(asked)).kind == "cancelled"
        now.world.ignored.add(paper.says("one", sender="7", chat="7"))
        paper.says("two", sender="8")
        paper.says("three", sender="9", chat="9")
        await paper.until(lambda paper: {"first: two", "first: three"} <= set(paper.posts))
        await now.world.remove("paper:9")
        now.world.ignored.add(paper.says("four", sender="9", chat="9"))
        await paper.until(lambda paper: len(paper.posts_in("9")) == 2)
        assert not {"first: one", "first: four"} & set(paper.posts)


async def test_whose_role_the_settings_lower_is_named_where_the_store_still_gives_the_higher_one(
    tmp_path: Path,
) -> None:
    """D4."""
    owners = bot(FIRST) + 'owners = ["paper:8", "paper:9"]\n'
    async with running(tmp_path, bot(FIRST)) as now:
        await now.world.admit("paper:8", Role.ADMIN)
        await now.world.admit("paper:9", Role.GUEST)
        await now.reload(owners)
        await now.reload(bot(FIRST).replace('"paper:7"', '"paper:7", "paper:8"'))
        assert now.warnings == (
            "paper:8 is a member in the settings now but still an admin by the store; to change that: tidings people"
            " role paper:8 member",
            "paper:9 was removed from the settings but is still a guest; to remove: tidings people remove paper:9",
        )
        # What only the settings say needs no warning, and what they forbid is over.
        await now.reload(owners)
        await now.reload(bot(FIRST) + "settings_only = true\n")
        assert now.warnings == ()
        known = {line.identities[0]: line.role for line in await now.world.gateway.desk.people.all()}
        assert known == {"paper:7": Role.MEMBER, "paper:8": Role.STRANGER, "paper:9": Role.STRANGER}


async def test_a_reload_that_changes_something_is_in_the_audit_trail_by_name_and_never_by_value(tmp_path: Path) -> None:
    async with running(tmp_path, bot(FIRST)) as now:
        await now.reload(bot(FIRST) + "[limits]\nruns = 7\n")
        await now.reload(bot(FIRST) + "[limits]\nruns = 7\n")
        with pytest.raises(ConfigError):
            await now.reload("[bot\n")
        [line] = await now.world.gateway.desk.people.audit(10)
    assert (line.actor, line.action, line.object, line.detail) == ("owner", "settings", "reload", "[limits] runs")


class Misled(Doorway):
    """Cannot go on once `wrong` is set, until the owner has changed something elsewhere."""

    wrong: asyncio.Event

    async def listen(self, receive: Receive) -> None:
        if self.wrong.is_set():
            raise Misconfigured("the port is wrong")
        listening = asyncio.ensure_future(super().listen(receive))
        try:
            await self.wrong.wait()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        raise Misconfigured("the port is wrong")


async def test_a_reload_tries_at_once_what_was_misconfigured(tmp_path: Path) -> None:
    Misled.wrong = asyncio.Event()
    async with running(tmp_path, bot(FIRST), adapter=Misled) as here:
        Misled.wrong.set()
        await here.world.eventually(lambda: not here.world.paper.attached())
        here.world.paper.says("hi")
        Misled.wrong.clear()
        change = await here.reloading.reload(here.world.gateway)
        assert change.tried == ("paper@main",)
        assert str(change).endswith("trying again now: paper@main")
        await here.answers("first: hi")


async def test_more_runs_at_once_are_begun_as_soon_as_they_are_allowed(tmp_path: Path) -> None:
    gates = [GATES.setdefault(text, Gate()) for text in ("one", "two")]
    async with running(tmp_path, bot(FIRST) + "[limits]\nruns = 1\n") as now:
        now.world.paper.says("one", chat="1")
        await gates[0].reached()
        now.world.paper.says("two", chat="2")
        await now.world.eventually(lambda: len(now.world.runs()) == 2)
        assert not gates[1].entered.is_set()
        assert await now.reload(bot(FIRST) + "[limits]\nruns = 3\n") == (["[limits] runs"], [])
        await gates[1].reached()
        assert await now.reload(bot(FIRST) + "[limits]\nruns = 1\n") == (["[limits] runs"], [])
        now.world.paper.says("three", chat="3")
        for gate in gates:
            gate.open()
        await now.answers("first: one", "first: two", "first: three")


async def test_what_needs_a_restart_is_named_and_the_rest_holds_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, bot(FIRST)) as now:
        more = (
            '[telegram]\ntoken = "1:a"\ngroups = "all"\n[telegram.accounts.other]\ntoken = "2:b"\n'
            '[http]\nport = 4711\n[log]\nlevel = "debug"\nformat = "json"\n'
        )
        changed, restart = await now.reload(bot(SECOND) + more)
        assert changed == ["[log] level", "the bot helper"]
        assert restart == [
            "[http] port",
            "[log] format",
            "[telegram.accounts.other]",
            "[telegram] groups",
            "[telegram] token",
        ]
        # It is still so, however often one asks.
        assert await now.reload(bot(SECOND) + more) == ([], restart)
        assert await now.reload(bot(SECOND)) == (["[log] level"], [])


async def test_agents_are_closed_also_when_the_gateway_has_failed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the store is gone"):
        async with running(tmp_path, bot(FIRST)):
            raise RuntimeError("the store is gone")
    assert CLOSED == ["first"]


# As a process.


def tidings(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidings.bots.main", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment(home), timeout=60, check=False
    )


async def ask(home: Path, text: str) -> str:
    async with socket.connect(home) as line:
        await line.write({"verb": "chat"})
        await line.write({"say": text, "key": text})
        return await answer_on(line, text)


async def answer_on(line: socket.SocketLine, words: str) -> str:
    """The finished answer that has these words."""
    async with asyncio.timeout(60):
        while (heard := await line.read()) is not None:
            if "part" in heard:
                await line.write({"shown": heard["part"]})
            if heard.get("kind") == "plain" and words in heard["text"]:
                return str(heard["text"])
    raise AssertionError("it left without an answer")


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_process_takes_over_what_has_changed_and_goes_on_when_that_is_wrong(tmp_path: Path) -> None:
    file, log = tmp_path / "tidings.toml", tmp_path / "stderr.log"
    file.write_text(bot("echo"))
    async with gateway(tmp_path) as process:
        assert await ask(tmp_path, "one") == "you said: one"
        file.write_text(bot(SECOND))
        told = await asyncio.to_thread(tidings, tmp_path, "reload")
        assert (told.returncode, told.stdout) == (0, "changed: the bot helper\n")
        assert await ask(tmp_path, "two") == "second: two"

        file.write_text("[bot\n")
        told = await asyncio.to_thread(tidings, tmp_path, "reload")
        assert (told.returncode, told.stdout) == (1, "")
        assert "is not valid TOML" in told.stderr
        process.send_signal(signal.SIGHUP)
        await until(lambda: "the settings are wrong, so all stays as it was" in log.read_text())

        file.write_text(bot(FIRST) + "[console]\nenabled = false\n")
        process.send_signal(signal.SIGHUP)
        told_of = "changed: the bot helper; needs a restart: [console] enabled"
        await until(lambda: told_of in log.read_text())
        assert await ask(tmp_path, "three") == "first: three"


async def test_a_reload_that_fails_in_an_unknown_way_is_logged_and_the_next_is_heard(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trouble: list[Exception] = [OSError("the disk is gone")]

    def load() -> Loaded:
        if trouble:
            raise trouble.pop()
        return settings.load(catalog.sections(), tmp_path, None, {})

    loaded, heard = settings.load(catalog.sections(), tmp_path, None, {}), asyncio.Event()
    reloading = Reloading(loaded, agents.build(loaded.bots), load, lambda *_: (), lambda _: heard.set())
    async with World(tmp_path, Echo()) as world, reloading:
        asked = asyncio.Event()
        listening = asyncio.create_task(reloading.listen(asked, world.gateway))
        asked.set()
        await until(lambda: "the disk is gone" in caplog.text)
        asked.set()
        async with asyncio.timeout(10):
            await heard.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def test_whoever_asks_twice_to_end_is_not_kept_waiting_and_nothing_is_lost(tmp_path: Path) -> None:
    slow = "word " * 60
    async with gateway(tmp_path, TIDINGS_LIMITS__DRAIN_SECONDS="300") as process:
        await say(tmp_path, slow, "k1")
        process.send_signal(signal.SIGTERM)
        # Draining has begun: new words are not taken any more.
        await until(lambda: not (tmp_path / "tidings.sock").exists())
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 30) == -signal.SIGTERM
    with closing(sqlite3.connect(tmp_path / DATABASE)) as store:
        assert store.execute("SELECT state FROM inbox").fetchall() == [("running",)]
    async with gateway(tmp_path), socket.connect(tmp_path) as line:
        await line.write({"verb": "chat"})
        assert (await answer_on(line, "You said: word word")).count("word") == 60


async def test_what_was_brought_in_is_frozen_once_and_only_when_every_bot_is_ready(tmp_path: Path) -> None:
    gate, frozen = Gate(), asyncio.Event()
    froze: list[str] = []

    def freeze() -> None:
        froze.append("now")
        frozen.set()

    file = tmp_path / "tidings.toml"
    file.write_text(bot(FIRST))

    def load() -> Loaded:
        return settings.load(catalog.sections(), tmp_path, file, {})

    loaded = load()
    staff = agents.build(loaded.bots)
    staff = staff._replace(agents={**staff.agents, "slow": Slow(gate)})
    world = World(tmp_path, dict(staff.agents))
    reloading = Reloading(loaded, staff, load, lambda loaded, staff: (), lambda loaded: None, freeze)
    async with reloading, world:
        world.agents = {}
        reloading.prepare()
        await gate.reached()
        assert froze == [], "somebody is still on the way"
        gate.open()
        async with asyncio.timeout(10):
            await frozen.wait()
        file.write_text(bot(SECOND))
        await reloading.reload(world.gateway)
        world.paper.says("hi")
        await world.paper.until(lambda paper: paper.posts == ["second: hi"])
    # What is new by a reload may go by the next one.
    assert froze == ["now"]
