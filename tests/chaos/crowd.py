"""The crowd of a chaos run: which platforms stand side by side, who says what there, and who answers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from itertools import product

import msgspec

from tests.chaos.discord_stand import Discord, ToldOnce, discord
from tests.chaos.scripted import ScriptedAgent
from tests.chaos.slack_stand import Slack, slack
from tests.chaos.stand import Stand
from tests.chaos.steps import PERSON, Platform, Say
from tests.chaos.telegram_stand import Telegram, telegram
from tests.simulators.paper.adapter import PaperAdapter
from tests.simulators.paper.client import PaperSettings
from tests.simulators.paper.simulator import NASTY, Kind, PaperServer
from tidings.core.adapter import Adapter, Host
from tidings.core.agent import Event, Finished, Turn
from tidings.core.clock import SystemClock

CHATS = tuple(map(str, range(1, 9)))
THREADS = ("", "", "t", "u")
# A call that hangs is given up after this; one that only waits for a busy machine should not be.
CALL_SECONDS = 2.0
# The scripts' pauses are made for a clock that costs nothing; here they are real.
SWIFT = 0.5
# A slow answer ends by itself after so many pieces, in case nobody stops it.
SLOW_PIECES = 8


Simulator = PaperServer | Telegram | Discord | Slack


class PaperStand(Stand):
    @property
    def people(self) -> tuple[str, ...]:
        return (PERSON,)

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        return tuple(product(CHATS, THREADS))

    def serve(self) -> PaperServer:
        return PaperServer(self.platform.kind, limit=self.platform.limit)

    def build(self, account: str, address: str, host: Host) -> Adapter:
        platform = self.platform
        settings = PaperSettings(
            address=address, name=platform.name, kind=platform.kind, limit=platform.limit, call_seconds=CALL_SECONDS
        )
        return PaperAdapter(account, settings, host)


def _paper(name: str, kind: Kind, retry_after: float, accounts: tuple[str, ...] = ("main",)) -> Stand:
    return PaperStand(Platform(name, kind, accounts), msgspec.structs.replace(NASTY, retry_after=retry_after))


# Every platform of the run; a new adapter joins with its simulator by one more line. First letters differ: they
# begin the keys of what is said there.
STANDS: dict[str, Stand] = {
    stand.platform.name: stand
    for stand in (
        # Outlives the run: a doubt that a key settles must never become a marked copy.
        _paper("keyed", Kind(keyed_for=3600.0, streaming="edits"), 0.3, ("main", "other")),
        _paper("readback", Kind(readback=True, streaming="append", reactions=False), 1.0),
        _paper("quiet", Kind(readback=True, streaming="none", typing=False), 0.5),
        _paper("neither", Kind(streaming="edits"), 2.0),
        _paper("fleeting", Kind(streaming="drafts"), 0.2),
        _paper("mute", Kind(streaming="none", reactions=False), 0.3),
        telegram(NASTY),
        discord(NASTY),
        slack(NASTY),
    )
}


async def introduce(platform: Simulator) -> list[Say]:
    """What must have been said there before anything goes wrong."""
    return await platform.introduce() if isinstance(platform, Discord) else []


def told_once(platform: Simulator) -> Mapping[str, ToldOnce]:
    """What is lost there without anybody's fault, if the gateway dies just then; by its key."""
    return platform.told_once if isinstance(platform, Discord) else {}


# How often what is said.
WORDS = {
    "plain": 25,
    "stream": 14,
    "bold": 4,
    "table": 4,
    "long": 10,
    "tale": 6,
    "think": 4,
    "pure": 5,
    "put": 4,
    "effect": 8,
    "file": 4,
    "halt": 2,
    "fail": 5,
    "task": 5,
    "frail": 2,
    "slow": 3,
    "/status": 4,
    "/whoami": 2,
    "/new": 2,
}
# So many messages lie between a slow one and the word that stops it.
STOP_AFTER = 12


def say_all(seed: int, count: int) -> Iterator[Say]:
    """Everything that is said in one run, in order; a platform may give a message another key."""
    lots = random.Random(f"{seed}/crowd")
    stops: dict[int, Say] = {}
    for number in range(1, count + 1):
        if (slow := stops.pop(number, None)) is not None:
            yield slow._replace(key=f"{slow.key[0]}{number}", text="/stop")
            continue
        stand = lots.choice(list(STANDS.values()))
        platform = stand.platform
        where = f"{platform.name}@{lots.choice(platform.accounts)}"
        chat, thread = lots.choice(stand.places)
        (text,) = lots.choices(list(WORDS), list(WORDS.values()))
        say = Say(f"{platform.name[0]}{number}", where, text, chat, thread)
        if text == "slow":
            stops[number + STOP_AFTER] = say
        yield say


class SwiftClock(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds * SWIFT)


class CrowdAgent(ScriptedAgent):
    """The scripts of the sweep in real time."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        async with aclosing(super().run(turn)) as events:
            pieces = 0
            async for event in events:
                yield event
                pieces += 1
                if turn.message.text == "slow" and pieces == SLOW_PIECES:
                    yield Finished()
                    return
