"""The simulated Discord in a process of its own: a person mentions the bot in many channels."""

from __future__ import annotations

from typing import Any

from tests.simulators.discord.simulator import DiscordServer
from tests.simulators.shared.process import PlatformProcess, main


class DiscordProcess(PlatformProcess[DiscordServer]):
    def furnish(self) -> dict[str, Any]:
        server = self.server
        self._channels = [server.channel(f"channel-{number}") for number in range(self.places)]
        self._ada = server.person("ada")
        urls = {"api_url": server.api_url, "gateway_url": server.gateway_url}
        return {**urls, "token": server.token, "people": [self._ada.id]}

    def say(self, text: str, place: int) -> None:
        self._ada.says(self._channels[place], text, mention=True)

    def truth(self) -> dict[str, Any]:
        said = [message for message in self.server.truth.messages.values() if not message.account]
        return {
            "attached": self.server.attached(),
            "said": [(message.channel, message.at, message.text) for message in said],
            "posted": [(message.channel, message.at, message.text) for message in self.server.sent],
        }


if __name__ == "__main__":
    main(DiscordProcess, DiscordServer)
