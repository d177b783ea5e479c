"""The simulated Slack in a process of its own, so that a bench measures only the other side."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from tests.simulators.slack import SlackServer


async def serve(messages: int, rate: float) -> None:
    """Tells its address as one line of JSON, and what it saw as another after its input has ended.

    Once somebody listens, so many people say one thing each, so that every answer has a channel of its own.
    """
    async with SlackServer() as slack:
        people = [slack.person(f"person{number}") for number in range(messages)]
        print(json.dumps({"api_url": slack.api_url, "token": slack.token, "app_token": slack.app_token}))
        sys.stdout.flush()
        await slack.until(lambda _: slack.attached(), timeout=60.0)
        began = time.process_time()
        said = []
        for number, person in enumerate(people):
            said.append(person.says(person.direct, f"message {number}"))
            await asyncio.sleep(1 / rate)
        await asyncio.to_thread(sys.stdin.read)
        acks = {each.name: each.delay for each in reversed(slack.acks)}
        firsts = {each.channel: each.at for each in reversed(slack.sent)}
        seen = {
            "acks": [acks[each.id] for each in said if each.id in acks],
            "first_posts": [firsts[each.channel] - each.at for each in said if each.channel in firsts],
            "posts": len(slack.sent),
            "cpu": time.process_time() - began,
        }
        print(json.dumps(seen))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--rate", type=float, default=20.0, help="messages a second")
    options = parser.parse_args()
    asyncio.run(serve(options.messages, options.rate))
