"""The same story on Telegram, Discord and Slack: an owner, strangers, a private chat for each of them, and a room.

    async with stage(tmp_path, "discord", Echo()) as there:
        there.says("bob", "hi")
        await there.until(lambda: there.told("bob"))

stage(home, name, agent, ...)  the owner is ada, and nobody else is known; carol is a member where members=("carol",)
there.world               the world of that platform; `there.server` is the id of the room's server, if there is one
there.says(who, text)     in private; `room=True` says it in the room, and to the bot unless `to_bot` is off
there.forwards(who, text) passes on in private what somebody else wrote
there.slash(who, name, argument)  in private or in the room; on Telegram a command is what one says
there.told(who)           what the bot wrote to this person in private; `there.heard` is what all in the room can read
there.whispered(who)      what only this person can read: answers to presses, and to slash commands where they are such
there.question()          the last message with buttons in the room; `question("bob")` is one in bob's private chat
there.presses(who, label) presses one of its buttons; asked=... is a question that was found before
there.forges(who, asked, choice)  a press on a message that no button of it stands for: late, or made up
there.now(asked)          how the message of a question looks now; None where it is gone
there.erases(asked)       somebody removes the message of a question
there.home                the room as a target; `there.private(who)` is a private chat as one
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulators.slack.simulator import choices_of, text_of
from tests.worlds.discord import DiscordWorld
from tests.worlds.platform import PlatformWorld
from tests.worlds.slack import SlackWorld
from tests.worlds.telegram import TelegramWorld
from tests.worlds.world import OwnedClock
from tidings.core.agent import Agent
from tidings.core.types import Audience, Target

PLATFORMS = ("telegram", "discord", "slack")
GROUP = -5


class Asked(NamedTuple):
    """A message of the bot's with buttons."""

    message: Any
    text: str
    # The id of each button, by its label.
    buttons: Mapping[str, str]


class Stage(ABC):
    world: PlatformWorld[Any]
    server: str = ""

    @abstractmethod
    def identity(self, who: str) -> str: ...

    @abstractmethod
    def says(self, who: str, text: str, *, room: bool = False, to_bot: bool = True) -> str:
        """Returns the key under which the message is stored."""

    @abstractmethod
    def forwards(self, who: str, text: str) -> str: ...

    @abstractmethod
    def slash(self, who: str, name: str, argument: str = "", *, room: bool = False) -> None: ...

    @abstractmethod
    def told(self, who: str) -> list[str]: ...

    @property
    @abstractmethod
    def heard(self) -> list[str]: ...

    @abstractmethod
    def whispered(self, who: str) -> list[str]: ...

    def question(self, who: str = "") -> Asked:
        return [each for each in self._said_in(who) if each.buttons][-1]

    @abstractmethod
    def _said_in(self, who: str) -> list[Asked]:
        """All that the bot has said in somebody's private chat, or in the room for an empty name."""

    @abstractmethod
    def now(self, asked: Asked) -> Asked | None: ...

    def presses(self, who: str, label: str, asked: Asked | None = None) -> None:
        asked = asked or self.question()
        self._press(who, asked, asked.buttons[label], forged=False)

    def forges(self, who: str, asked: Asked, choice: str) -> None:
        self._press(who, asked, choice, forged=True)

    @abstractmethod
    def _press(self, who: str, asked: Asked, choice: str, *, forged: bool) -> None: ...

    @abstractmethod
    def erases(self, asked: Asked) -> None: ...

    @abstractmethod
    def private(self, who: str) -> Target: ...

    @property
    @abstractmethod
    def home(self) -> Target: ...

    @abstractmethod
    def taken(self, key: str) -> bool:
        """Whether the platform knows that the gateway has seen this message."""

    @abstractmethod
    async def ready(self) -> None:
        """Returns when the platform takes the gateway's commands."""

    async def until(self, holds: Callable[[], object]) -> None:
        await self.world.until(holds)

    async def passed_over(self, key: str) -> None:
        """The gateway has seen the message, and stored nothing."""
        await self.until(lambda: self.taken(key))
        await self.world.settled()
        assert self.world.rows("SELECT 1 FROM inbox WHERE key = ?", key) == []


class TelegramStage(Stage):
    IDS: Mapping[str, int] = {"ada": 7, "bob": 8, "carol": 9, "dora": 10}

    def __init__(self, world: TelegramWorld) -> None:
        self.world = world
        self._telegram = world.telegram
        # What each press was answered with, by the person.
        self._presses: list[tuple[str, str]] = []
        for name, id in self.IDS.items():
            self._telegram.introduce(id, name)
        self._telegram.open_chat(GROUP)

    def identity(self, who: str) -> str:
        return f"telegram:{self.IDS[who]}"

    def says(self, who: str, text: str, *, room: bool = False, to_bot: bool = True) -> str:
        if not room:
            return self._telegram.says(text, chat=self.IDS[who])
        words = text if text.startswith("/") or not to_bot else f"@tidings_bot {text}"
        return self._telegram.says(words, chat=GROUP, user=self.IDS[who])

    def forwards(self, who: str, text: str) -> str:
        id = self.IDS[who]
        length = len(text.split()[0])
        message = {
            "message_id": 900 + len(self._telegram.chats.bot("main").queue.told),
            "date": 1,
            "chat": {"id": id, "type": "private", "first_name": who},
            "from": {"id": id, "is_bot": False, "first_name": who},
            "forward_origin": {"type": "hidden_user", "sender_user_name": "Mallory", "date": 1},
            "text": text,
            "entities": [{"type": "bot_command", "offset": 0, "length": length}] if text.startswith("/") else [],
        }
        self._telegram.open_chat(id)
        self._telegram.odd({"message": message})
        return f"{id}:{message['message_id']}"

    async def ready(self) -> None:
        await self.until(lambda: self._telegram.menu)

    def slash(self, who: str, name: str, argument: str = "", *, room: bool = False) -> None:
        self.says(who, f"/{name} {argument}".rstrip(), room=room)

    def told(self, who: str) -> list[str]:
        return self._telegram.posts_in(self.IDS[who])

    @property
    def heard(self) -> list[str]:
        return self._telegram.posts_in(GROUP)

    def whispered(self, who: str) -> list[str]:
        answers = [self._telegram.answered(press) for name, press in self._presses if name == who]
        return [answer for answer in answers if answer]

    def _said_in(self, who: str) -> list[Asked]:
        messages = self._telegram.visible(self.IDS[who] if who else GROUP)
        return [Asked(each.id, each.text, {choice.label: choice.id for choice in each.choices}) for each in messages]

    def now(self, asked: Asked) -> Asked | None:
        chats = ["", *self.IDS]
        return next((each for who in chats for each in self._said_in(who) if each.message == asked.message), None)

    def _press(self, who: str, asked: Asked, choice: str, *, forged: bool) -> None:
        press = self._telegram.presses(asked.message, choice, user=self.IDS[who], forged=forged)
        self._presses.append((who, press))

    def erases(self, asked: Asked) -> None:
        self._telegram.erase(asked.message)

    def private(self, who: str) -> Target:
        return Target(adapter="telegram", chat=str(self.IDS[who]))

    @property
    def home(self) -> Target:
        return Target(adapter="telegram", chat=str(GROUP), audience=Audience.GROUP)

    def taken(self, key: str) -> bool:
        return key in self._telegram.confirmed


class DiscordStage(Stage):
    def __init__(self, world: DiscordWorld) -> None:
        self.world = world
        self._discord = world.discord
        self._room = world.room
        self.server = world.room.guild

    def identity(self, who: str) -> str:
        return f"discord:{self._discord.person(who).id}"

    async def ready(self) -> None:
        await self.until(lambda: self._discord.commands())

    def says(self, who: str, text: str, *, room: bool = False, to_bot: bool = True) -> str:
        person = self._discord.person(who)
        place = self._room if room else person.private()
        return f"{place.id}:{person.says(place, text, mention=room and to_bot)}"

    def forwards(self, who: str, text: str) -> str:
        person = self._discord.person(who)
        place, id = person.private(), self._discord.places.new_id()
        copy = {"type": 0, "content": text, "attachments": [], "embeds": [], "mentions": [], "flags": 0}
        message = {
            "id": id,
            "channel_id": place.id,
            "type": 0,
            "author": {"id": person.id, "username": who},
            "content": "",
            "message_reference": {"type": 1, "channel_id": "1", "message_id": "2"},
            "message_snapshots": [{"message": copy}],
        }
        self._discord.odd("MESSAGE_CREATE", message)
        return f"{place.id}:{id}"

    def slash(self, who: str, name: str, argument: str = "", *, room: bool = False) -> None:
        person = self._discord.person(who)
        words = {"text": argument} if argument else {}
        person.commands(f"/{name}", self._room if room else person.private(), **words)

    def told(self, who: str) -> list[str]:
        return self._discord.posts_in(self._discord.person(who).private())

    @property
    def heard(self) -> list[str]:
        return [each.text for each in self._discord.visible(self._room) if not each.only_for and each.account]

    def whispered(self, who: str) -> list[str]:
        id = self._discord.person(who).id
        return [each.text for each in self._discord.visible(self._room) if each.only_for == id]

    def _said_in(self, who: str) -> list[Asked]:
        place = self._discord.person(who).private() if who else self._room
        messages = [each for each in self._discord.visible(place) if each.account]
        return [Asked(each.id, each.text, {choice.label: choice.id for choice in each.choices}) for each in messages]

    def now(self, asked: Asked) -> Asked | None:
        places = ["", "ada", "bob", "carol", "dora"]
        return next((each for who in places for each in self._said_in(who) if each.message == asked.message), None)

    def _press(self, who: str, asked: Asked, choice: str, *, forged: bool) -> None:
        self._discord.person(who).presses(asked.message, choice, forged=forged)

    def erases(self, asked: Asked) -> None:
        self._discord.erase(asked.message)

    def private(self, who: str) -> Target:
        return Target(adapter="discord", chat=self._discord.person(who).private().id)

    @property
    def home(self) -> Target:
        return Target(adapter="discord", chat=self._room.id, audience=Audience.GROUP)

    def taken(self, key: str) -> bool:
        channel, _, id = key.partition(":")
        cursor = self.world.note(f"cursor/{channel}")
        return cursor is not None and int(cursor) >= int(id)


class SlackStage(Stage):
    def __init__(self, world: SlackWorld) -> None:
        self.world = world
        self._slack = world.slack
        self._room = world.room
        self.server = world.slack.main.id

    def identity(self, who: str) -> str:
        return f"slack:{self._slack.person(who).id}"

    def says(self, who: str, text: str, *, room: bool = False, to_bot: bool = True) -> str:
        person = self._slack.person(who)
        # In threads and in private Slack keeps a slash for itself.
        words = f"!{text[1:]}" if text.startswith("/") else text
        return person.says(self._room if room else person.direct, words, mention=room and to_bot).id

    def forwards(self, who: str, text: str) -> str:
        person = self._slack.person(who)
        ts = self._slack.truth.next_ts()
        share = {"is_share": True, "author_name": "Mallory", "text": text, "fallback": text}
        event = {
            "type": "message",
            "channel": person.direct.id,
            "channel_type": "im",
            "user": person.id,
            "text": "",
            "ts": ts,
            "event_ts": ts,
            "attachments": [share],
        }
        self._slack.tells(event)
        return f"{person.direct.id}:{ts}"

    async def ready(self) -> None:
        await self.until(self._slack.attached)

    def slash(self, who: str, name: str, argument: str = "", *, room: bool = False) -> None:
        person = self._slack.person(who)
        person.commands("/tidings", f"{name} {argument}".rstrip(), self._room if room else person.direct)

    def told(self, who: str) -> list[str]:
        return self._slack.posts_in(self._slack.person(who).direct)

    @property
    def heard(self) -> list[str]:
        return self._slack.posts_in(self._room)

    def whispered(self, who: str) -> list[str]:
        id = self._slack.person(who).id
        return [text_of(each) for each in self._slack.whispers if each.whispered_to == id]

    def _said_in(self, who: str) -> list[Asked]:
        messages = self._slack.visible(self._slack.person(who).direct if who else self._room, None)
        return [
            Asked(each, text_of(each), {choice.label: choice.id for choice in choices_of(each)}) for each in messages
        ]

    def now(self, asked: Asked) -> Asked | None:
        places = ["", "ada", "bob", "carol", "dora"]
        said = (each for who in places for each in self._said_in(who))
        return next((each for each in said if each.message.id == asked.message.id), None)

    def _press(self, who: str, asked: Asked, choice: str, *, forged: bool) -> None:
        self._slack.person(who).presses(asked.message, choice, forged=forged)

    def erases(self, asked: Asked) -> None:
        self._slack.erase(asked.message)

    def private(self, who: str) -> Target:
        return Target(adapter="slack", chat=self._slack.person(who).direct.id)

    @property
    def home(self) -> Target:
        return Target(adapter="slack", chat=self._room.id, audience=Audience.GROUP)

    def taken(self, key: str) -> bool:
        return key in self._slack.confirmed


@asynccontextmanager
async def stage(
    home: Path,
    platform: str,
    agent: Agent | Mapping[str, Agent],
    *,
    members: Iterable[str] = (),
    guests: bool = False,
    hears_all: bool = False,
    **more: Any,
) -> AsyncIterator[Stage]:
    """`guests` admits everybody in the room; `hears_all` lets the bot read all that is said there."""
    more = {"clock": OwnedClock(), "allow": (), **more}
    settings = {"groups" if platform == "telegram" else "channels": "all"} if hears_all else {}
    there: Stage
    match platform:
        case "telegram":
            there = TelegramStage(TelegramWorld(home, agent, settings=settings, server={"reads_all": True}, **more))
        case "discord":
            there = DiscordStage(DiscordWorld(home, agent, settings=settings, **more))
        case _:
            there = SlackStage(SlackWorld(home, agent, settings=settings, **more))
    world = there.world
    world.owners.append(there.identity("ada"))
    world.allow += [there.identity(name) for name in members]
    if guests:
        world.allow.append(f"{platform}:{there.home.chat}")
    async with world:
        yield there
