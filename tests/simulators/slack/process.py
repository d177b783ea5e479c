"""The simulated Slack in a process of its own: many people write to the app in private."""

from __future__ import annotations

from typing import Any

from tests.simulators.shared.process import PlatformProcess, main
from tests.simulators.slack.simulator import SlackServer, text_of


class SlackProcess(PlatformProcess[SlackServer]):
    def furnish(self) -> dict[str, Any]:
        server = self.server
        self._people = [server.person(f"person{number}") for number in range(self.places)]
        tokens = {"token": server.token, "app_token": server.app_token}
        return {"api_url": server.api_url, **tokens, "people": [person.id for person in self._people]}

    def say(self, text: str, place: int) -> None:
        person = self._people[place]
        person.says(person.direct, text)

    def truth(self) -> dict[str, Any]:
        # Of several confirmations the first counts.
        acks = {each.name: each.delay for each in reversed(self.server.acks)}
        said = [message for message in self.server.truth.messages.values() if message.sender]
        return {
            "attached": self.server.attached(),
            "said": [(message.id, message.at, message.text) for message in said],
            "acks": [(message.text, acks[message.id]) for message in said if message.id in acks],
            "posted": [(message.id, message.at, text_of(message)) for message in self.server.sent],
        }


if __name__ == "__main__":
    main(SlackProcess, SlackServer)
