"""What the stories about Telegram share: how somebody asks, what a person sees of us, and when we called."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.simulators.telegram.simulator import Call, Entity, Message, TelegramServer
from tests.simulators.telegram.texts import inside
from tests.worlds.dictated import Dictated
from tests.worlds.telegram import TelegramWorld
from tidings.core.desk.health import Alarm

__all__ = [
    "FORUM",
    "GROUP",
    "PERSON",
    "TEXTS",
    "Dictated",
    "alarms",
    "asks",
    "begins",
    "calls_to",
    "finished",
    "gaps",
    "marks",
    "shown",
    "texts",
    "times",
]

PERSON = "7"
GROUP = "-5"
FORUM = "-1000000000005"

# What we do in a chat; the rest is listening.
TEXTS = ("sendMessage", "sendRichMessage", "editMessageText", "sendMessageDraft")


def asks(world: TelegramWorld, text: str = "go on", *, chat: str = PERSON, thread: str = "") -> str:
    """In a group the bot is called by its name. Returns the name of the message."""
    words = text if chat == PERSON or not chat.startswith("-") else f"@tidings_bot {text}"
    return world.telegram.says(words, chat=chat, thread=thread or 0)


async def begins(world: TelegramWorld, agent: Dictated, *words: str, chat: str = PERSON, thread: str = "") -> str:
    """Somebody asks, and the first words are on the screen."""
    turns = len(agent.turns)
    name = asks(world, chat=chat, thread=thread)
    await world.until(lambda: len(agent.turns) > turns, limit=0.0)
    agent.say(*words)
    await world.until(lambda: shown(world.telegram, chat, thread) == "".join(words).strip(), limit=60.0)
    return name


def shown(telegram: TelegramServer, chat: str = PERSON, thread: str = "") -> str:
    """The newest thing that a person sees of the bot there."""
    visible = telegram.visible(chat, thread)
    return visible[-1].text if visible else ""


def texts(telegram: TelegramServer, chat: str = PERSON, thread: str = "") -> list[str]:
    """Everything of the bot that a person sees there at the end; no draft may be left."""
    visible = telegram.visible(chat, thread)
    assert not any(message.streaming for message in visible)
    return [message.text for message in visible]


def finished(world: TelegramWorld) -> Callable[[], bool]:
    """Every run has ended, and its answer has arrived."""

    def holds() -> bool:
        finals = world.rows("SELECT state FROM deliveries WHERE kind = 'final'")
        runs = world.runs()
        return bool(runs) and [row["state"] for row in finals] == ["delivered"] * len(runs)

    return holds


def calls_to(telegram: TelegramServer, chat: str = PERSON, *methods: str) -> list[Call]:
    """The calls that concern a chat, of these methods or of any."""
    return [call for call in telegram.calls() if call.chat == chat and (not methods or call.method in methods)]


def times(calls: Iterable[Call]) -> list[float]:
    return [call.now for call in calls]


def gaps(calls: Iterable[Call]) -> list[float]:
    """The seconds between each two of them."""
    at = times(calls)
    return [round(later - earlier, 6) for earlier, later in zip(at, at[1:], strict=False)]


def marks(message: Message, *types: str) -> list[tuple[Entity, str]]:
    """Each entity of these types with the words that it marks."""
    return [(entity, inside(message.text, entity)) for entity in message.entities if entity.type in types]


async def alarms(world: TelegramWorld) -> dict[str, Alarm]:
    return {alarm.name: alarm for alarm in (await world.health()).alarms}
