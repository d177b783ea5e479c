"""The simulated Telegram in a process of its own: many people write to the bot in private."""

from __future__ import annotations

from typing import Any

from tests.simulators.shared.process import PlatformProcess, main
from tests.simulators.telegram.simulator import TelegramServer

FIRST = 1001


class TelegramProcess(PlatformProcess[TelegramServer]):
    def furnish(self) -> dict[str, Any]:
        people = [str(FIRST + number) for number in range(self.places)]
        return {"api_url": f"http://{self.server.address}", "token": self.server.token, "people": people}

    def say(self, text: str, place: int) -> None:
        self.server.says(text, chat=FIRST + place)

    def truth(self) -> dict[str, Any]:
        said = [message for message in self.server.truth.messages.values() if message.sender]
        return {
            "attached": self.server.attached(),
            "said": [(message.id, message.at, message.text) for message in said],
            "posted": [(message.id, message.at, message.text) for message in self.server.sent],
        }


if __name__ == "__main__":
    main(TelegramProcess, TelegramServer)
