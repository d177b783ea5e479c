"""The images of a talk: the memory holds the path of each, and only the newest few are shown to the model again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    UserContent,
    UserPromptPart,
)

SCHEME = "attachment:"
SHOWN_IMAGES = 4


def has_image(message: ModelMessage) -> bool:
    return count_images([message]) > 0


def count_images(messages: Iterable[ModelMessage]) -> int:
    prompts = (part for message in messages for part in message.parts if isinstance(part, UserPromptPart))
    return sum(len(_images(part.content)) for part in prompts)


def _images(content: str | Sequence[UserContent]) -> list[ImageUrl]:
    if isinstance(content, str):
        return []
    return [each for each in content if isinstance(each, ImageUrl) and each.url.startswith(SCHEME)]


def load_images(messages: Sequence[ModelMessage], most: int) -> list[ModelMessage]:
    """Loads images from the newest on, because people mostly talk about the last ones."""
    left = most
    shown: list[ModelMessage] = []
    for message in reversed(messages):
        if not isinstance(message, ModelRequest) or not has_image(message):
            shown.append(message)
            continue
        parts: list[ModelRequestPart] = []
        for part in reversed(message.parts):
            if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
                content: list[UserContent] = []
                for each in reversed(part.content):
                    content.append(_load(each, left > 0))
                    left -= len(_images([each]))
                part = UserPromptPart(content[::-1])
            parts.append(part)
        shown.append(ModelRequest(parts=parts[::-1]))
    return shown[::-1]


def _load(content: UserContent, wanted: bool) -> UserContent:
    if not isinstance(content, ImageUrl) or not content.url.startswith(SCHEME):
        return content
    if not wanted:
        return "(An image that is not shown again.)"
    try:
        data = Path(content.url.removeprefix(SCHEME)).read_bytes()
    except OSError:
        return "(An image that is no longer kept.)"
    return BinaryContent(data, media_type=content.media_type)
