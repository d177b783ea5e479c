"""The simulated Slack in a process of its own, so that a bench measures only the other side."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from tests.simulators.slack.simulator import SlackServer, text_of


async def serve(people: int, limited: bool) -> None:
    """Tells its address as one line of JSON, then obeys lines of JSON until its input ends.

    {"say": TEXT, "person": NUMBER} lets a person write to the app in private; {"tell": true} asks for the truth.
    """
    async with SlackServer() as slack:
        crowd = [slack.person(f"person{number}") for number in range(people)]
        slack.limit_rates(limited)
        _tell(
            {
                "api_url": slack.api_url,
                "token": slack.token,
                "app_token": slack.app_token,
                "people": [person.id for person in crowd],
            }
        )
        began = time.process_time()
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            if "say" in order:
                person = crowd[order.get("person", 0)]
                person.says(person.direct, order["say"])
            else:
                # Of several confirmations the first counts.
                acks = {each.name: each.delay for each in reversed(slack.acks)}
                said = [message for message in slack.truth.messages.values() if message.sender]
                _tell(
                    {
                        "attached": slack.attached(),
                        "said": [(message.id, message.at, message.text) for message in said],
                        "acks": [(message.text, acks[message.id]) for message in said if message.id in acks],
                        "posted": [(message.id, message.at, text_of(message)) for message in slack.sent],
                        "calls": len(slack.calls()),
                        "cpu": time.process_time() - began,
                    }
                )


def _tell(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=10)
    parser.add_argument("--limited", action="store_true", help="with the rate limits that are known")
    options = parser.parse_args()
    asyncio.run(serve(options.people, options.limited))
