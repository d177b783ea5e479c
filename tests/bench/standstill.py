"""A long answer that grows: for how long at most nothing else is done meanwhile, on each platform.

`python -m tests.bench.standstill [PLATFORM [CHARACTERS]]` prints one JSON object: in milliseconds, the longest
standstill of the gateway's loop and the sum of all that a person might notice, from the question to the first part of
the final answer. The simulated platform lives in the same loop, so what it costs counts too.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from tests.worlds.discord import DiscordWorld
from tests.worlds.fakes import FakeServer
from tests.worlds.slack import SlackWorld
from tests.worlds.telegram import TelegramWorld
from tests.worlds.world import opened
from tidings.adapters.console.adapter import ConsoleAdapter
from tidings.adapters.console.settings import ConsoleSettings
from tidings.adapters.local import socket
from tidings.adapters.local.socket import LocalServer, SocketLine
from tidings.core.adapter import Platform
from tidings.core.agent import Event, Finished, TextDelta, Turn
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.settings import Core, Limits

LENGTHS = (150_000, 400_000)
DELTA_CHARACTERS = 50
DELTA_SECONDS = 0.001
BEAT_SECONDS = 0.001
NOTICED_SECONDS = 0.05
LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 600.0
LIMITS = {"output_characters": 2 * max(LENGTHS), "run_seconds": PATIENCE_SECONDS}

Figures = dict[str, float]
HELLO = {"verb": "chat", "chat": "", "thread": ""}

# What costs a renderer most: tables, formulas, links, nested lists, code, marks inside of words.
HARD = """
## 7. What `x**2` costs, and [why](https://example.com/a/rather/long/address?with=a&query=string#and-more)

- **one** with `code`, _two_ and ~~three~~ of [them](https://example.com/%E2%9C%93), __init__ among them
  - nested *once*: $a^2 + b^2 = c^2$, and \\(e^{i\\pi}\\) too
    1. nested _twice_, **with *both* kinds** of marks and a <br> in it
> quoted, with a | bar and `a | b` in it

| name | what it does | costs |
|:-----|:------------:|------:|
| `read` | reads **all** of it | 1,024 |
| `write` | writes [it](https://example.com) | 2,048 |

```python
def shown(text: str) -> str:
    return "".join(f"{each!r}, " for each in text.split("\\n"))  # 漢字。 👩‍👩‍👧
```

<details><summary>More</summary>
Words that are folded away, with a footnote[^1] and an e-mail address, a@example.com.
</details>
"""


def hard(characters: int) -> str:
    return (HARD * (characters // len(HARD) + 1))[:characters]


class Talker:
    def __init__(self, characters: int) -> None:
        self._text = hard(characters)

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        for start in range(0, len(self._text), DELTA_CHARACTERS):
            yield TextDelta(self._text[start : start + DELTA_CHARACTERS])
            await asyncio.sleep(DELTA_SECONDS)
        yield Finished()


class Pulse:
    """How late the beats of the loop come."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.noticed = 0.0

    async def beat(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            now = time.perf_counter()
            late = now - last - BEAT_SECONDS
            self.longest = max(self.longest, late)
            self.noticed += late if late > NOTICED_SECONDS else 0.0
            last = now

    def figures(self) -> dict[str, float]:
        return {"longest_ms": round(self.longest * 1000, 1), "noticed_ms": round(self.noticed * 1000, 1)}


async def first_part_arrives(home: Path) -> None:
    query = "SELECT 1 FROM parts p JOIN deliveries d ON d.id = p.delivery WHERE d.kind = 'final' AND p.state = ?"
    with opened(home) as connection:

        async def arrived() -> bool:
            return bool(connection.execute(query, ("delivered",)).fetchall())

        await eventually(arrived)


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await holds():
        assert time.monotonic() < deadline, "never"
        await asyncio.sleep(LOOK_SECONDS)


async def measured(home: Path, ask: Callable[[], object]) -> Figures:
    pulse = Pulse()
    beating = asyncio.create_task(pulse.beat())
    ask()
    await first_part_arrives(home)
    beating.cancel()
    return pulse.figures()


async def on_telegram(home: Path, characters: int) -> Figures:
    async with TelegramWorld(home, Talker(characters), limits=LIMITS) as world:
        return await measured(home, lambda: world.telegram.says("go on"))


async def on_discord(home: Path, characters: int) -> Figures:
    async with DiscordWorld(home, Talker(characters), limits=LIMITS) as world:
        return await measured(home, lambda: world.ada.says(world.ada.private(), "go on"))


async def on_slack(home: Path, characters: int) -> Figures:
    async with SlackWorld(home, Talker(characters), limits=LIMITS) as world:
        return await measured(home, lambda: world.ada.says(world.ada.direct, "go on"))


async def on_console(home: Path, characters: int) -> Figures:
    server = LocalServer()
    console = Platform("console", "main", lambda host: ConsoleAdapter("main", ConsoleSettings(), host), nearby=True)
    settings = Core(limits=Limits(burst_seconds=0, drain_seconds=0, **LIMITS))
    gateway = Gateway(home, settings, [console], Team({"bot": Talker(characters)}, "bot"), server, FakeServer())
    async with server, gateway, server.serving(home):
        await eventually(lambda: is_attended(home))
        async with socket.connect(home) as line:
            await line.write(HELLO)
            await line.read()
            watching: list[asyncio.Task[None]] = []
            try:
                return await measured(home, lambda: watching.append(asyncio.create_task(watch(line))))
            finally:
                for task in watching:
                    task.cancel()
                await asyncio.gather(*watching, return_exceptions=True)


async def is_attended(home: Path) -> bool:
    async with socket.connect(home) as line:
        await line.write(HELLO)
        return "attached" in (await line.read() or {})


async def watch(line: SocketLine) -> None:
    await line.write({"say": "go on", "key": "k1"})
    while (message := await line.read()) is not None:
        if "part" in message:
            await line.write({"shown": message["part"]})


PLATFORMS: dict[str, Callable[[Path, int], Awaitable[Figures]]] = {
    "telegram": on_telegram,
    "discord": on_discord,
    "slack": on_slack,
    "console": on_console,
}


async def measure(platforms: list[str], lengths: list[int]) -> dict[str, dict[int, Figures]]:
    figures: dict[str, dict[int, Figures]] = {}
    for name in platforms:
        for characters in lengths:
            with tempfile.TemporaryDirectory() as home:
                figures.setdefault(name, {})[characters] = await PLATFORMS[name](Path(home), characters)
    return figures


def main(arguments: list[str]) -> None:
    lengths = [int(each) for each in arguments[1:]] or list(LENGTHS)
    print(json.dumps(asyncio.run(measure(arguments[:1] or list(PLATFORMS), lengths))))


if __name__ == "__main__":
    main(sys.argv[1:])
