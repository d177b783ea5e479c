"""The simulated provider in a process of its own, so that a bench measures only the other side."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from tests.simulators.provider.simulator import ProviderServer, Say


async def serve(tokens: int, rate: float) -> None:
    """Tells its address as one line of JSON, serves until its input ends, and tells what it saw as another."""
    text = " ".join(["word"] * tokens)
    async with ProviderServer() as provider:
        provider.script(then=Say(text, rate=rate))
        print(json.dumps({"openai": provider.openai_url, "anthropic": provider.anthropic_url, "key": provider.key}))
        sys.stdout.flush()
        began = time.process_time()
        await asyncio.to_thread(sys.stdin.read)
        seen = {
            "requests": len(provider.requests),
            "read": sum(each.read for each in provider.requests),
            "streams": provider.most_streams,
            "cpu": time.process_time() - began,
        }
        print(json.dumps(seen))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=500, help="of each answer")
    parser.add_argument("--rate", type=float, default=50.0, help="tokens per second of each stream; 0 is all at once")
    options = parser.parse_args()
    asyncio.run(serve(options.tokens, options.rate))
