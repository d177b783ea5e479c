"""The simulated Discord in a process of its own, so that a bench measures only the other side."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from tests.simulators.discord.simulator import DiscordServer


async def serve(channels: int, limited: bool) -> None:
    """Tells its address as one line of JSON, then obeys lines of JSON until its input ends.

    {"say": TEXT, "channel": NUMBER} lets a person mention the bot there; {"tell": true} asks for the truth.
    """
    async with DiscordServer() as discord:
        places = [discord.channel(f"channel-{number}") for number in range(channels)]
        discord.limit_rates(limited)
        ada = discord.person("ada")
        _tell({"api": discord.api_url, "gateway": discord.gateway_url, "token": discord.token, "person": ada.id})
        began = time.process_time()
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            if "say" in order:
                ada.says(places[order.get("channel", 0)], order["say"], mention=True)
            else:
                said = [message for message in discord.truth.messages.values() if not message.account]
                _tell(
                    {
                        "attached": discord.attached(),
                        "said": [(message.channel, message.at, message.text) for message in said],
                        "posted": [(message.channel, message.at, message.text) for message in discord.sent],
                        "calls": len(discord.calls()),
                        "cpu": time.process_time() - began,
                    }
                )


def _tell(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channels", type=int, default=10)
    parser.add_argument("--limited", action="store_true", help="with the rate limits that are known")
    options = parser.parse_args()
    asyncio.run(serve(options.channels, options.limited))
