"""The echo bot on Discord beside discord.py's: `python -m tests.bench.discord` prints one JSON object."""

from __future__ import annotations

import json

from tests.bench.platform_bench import PlatformBench, Told


def settings(about: Told) -> dict[str, str]:
    return {
        "TIDINGS_ACCESS__ALLOW": ",".join(f"discord:{person}" for person in about["people"]),
        "TIDINGS_DISCORD__TOKEN": about["token"],
        "TIDINGS_DISCORD__API_URL": about["api_url"],
        "TIDINGS_DISCORD__GATEWAY_URL": about["gateway_url"],
    }


BENCH = PlatformBench(
    name="discord",
    pause=0.04,
    settings=settings,
    arguments=lambda about: (about["token"], about["api_url"], about["gateway_url"]),
)

if __name__ == "__main__":
    print(json.dumps(BENCH.measure()))
