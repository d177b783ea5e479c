"""The echo bot on Slack beside Bolt's: `python -m tests.bench.slack` prints one JSON object.

How soon an event is confirmed is measured too, since Slack tells again what is not confirmed in time.
"""

from __future__ import annotations

import json

from tests.bench.platform_bench import PlatformBench, Told


def settings(about: Told) -> dict[str, str]:
    return {
        "TIDINGS_ACCESS__ALLOW": ",".join(f"slack:{person}" for person in about["people"]),
        "TIDINGS_SLACK__BOT_TOKEN": about["token"],
        "TIDINGS_SLACK__APP_TOKEN": about["app_token"],
        "TIDINGS_SLACK__API_URL": about["api_url"],
    }


BENCH = PlatformBench(
    name="slack",
    # Below the twenty messages a second that the adapter allows itself.
    pause=0.06,
    settings=settings,
    arguments=lambda about: (about["api_url"], about["token"], about["app_token"]),
)

if __name__ == "__main__":
    print(json.dumps(BENCH.measure()))
