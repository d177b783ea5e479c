"""The echo bot on Telegram beside python-telegram-bot's: `python -m tests.bench.telegram` prints one JSON object."""

from __future__ import annotations

import json

from tests.bench.platform_bench import PlatformBench, Told


def settings(about: Told) -> dict[str, str]:
    return {
        "TIDINGS_ACCESS__ALLOW": ",".join(f"telegram:{person}" for person in about["people"]),
        "TIDINGS_TELEGRAM__TOKEN": about["token"],
        "TIDINGS_TELEGRAM__API_URL": about["api_url"],
    }


BENCH = PlatformBench(
    name="telegram",
    pause=0.04,
    settings=settings,
    arguments=lambda about: (about["token"], about["api_url"]),
)

if __name__ == "__main__":
    print(json.dumps(BENCH.measure()))
