"""What a gateway costs while no platform can be reached: `python -m tests.bench.offline [SECONDS] [CHATS]`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from tests.worlds.process import gateway, status
from tidings.adapters.local import socket

# Nobody listens there: every connection is refused.
NOWHERE = "http://127.0.0.1:9"
SETTLING_SECONDS = 20.0


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(home: Path, seconds: float, chats: int) -> dict[str, float]:
    """Three platforms that cannot be reached, and something owed in so many chats of one of them."""
    platforms = {
        "TIDINGS_TELEGRAM__TOKEN": "1:a",
        "TIDINGS_TELEGRAM__API_URL": NOWHERE,
        "TIDINGS_DISCORD__TOKEN": "a.b.c",
        "TIDINGS_DISCORD__API_URL": f"{NOWHERE}/api/v10",
        "TIDINGS_DISCORD__GATEWAY_URL": "ws://127.0.0.1:9",
        "TIDINGS_SLACK__BOT_TOKEN": "xoxb-1",
        "TIDINGS_SLACK__APP_TOKEN": "xapp-1",
        "TIDINGS_SLACK__API_URL": f"{NOWHERE}/api/",
    }
    async with gateway(home, TIDINGS_BOT__AGENT="echo", **platforms) as process:
        for chat in range(1, chats + 1):
            await socket.call(home, {"verb": "notify", "target": f"telegram:{chat}", "text": "hello"})
        await asyncio.sleep(SETTLING_SECONDS)
        before = processor_seconds(process.pid)
        await asyncio.sleep(seconds)
        spent = processor_seconds(process.pid) - before
        health = await status(home)
    states = {part["name"]: part["state"] for part in health["parts"]}
    assert all(states[f"{name}@main"] == "degraded" for name in ("telegram", "discord", "slack")), states
    assert health["deliveries"]["waiting"] == chats, health["deliveries"]
    return {"cpu_seconds_per_minute": spent / seconds * 60, "percent": spent / seconds * 100, "chats": chats}


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    chats = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    with tempfile.TemporaryDirectory() as home:
        print(json.dumps(asyncio.run(measure(Path(home), seconds, chats))))


if __name__ == "__main__":
    main()
