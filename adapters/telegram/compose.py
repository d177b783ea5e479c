"""What a body becomes on Telegram: texts that fit, the ways to say them, and buttons (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidings.adapters.telegram import render
from tidings.adapters.telegram.render import Rendered
from tidings.core.types import Choice

TEXT_UNITS = 4096
RICH_UNITS = 32_000
SHORT_LABEL = 14


def cut(text: str, most: int = TEXT_UNITS, *, takes_rich: bool, units: int = RICH_UNITS) -> tuple[str, ...]:
    """A rich message holds far more, but by its source, while parts are cut by what they show: so perhaps again."""
    if not (takes_rich and render.wants_rich(text)) or units < most:
        return render.compose(text, most)
    if render.length(text) <= RICH_UNITS:
        return (text,)
    halves = render.compose(text, units // 2)
    return tuple(piece for half in halves for piece in cut(half, most, takes_rich=takes_rich, units=units // 2))


def wordings(
    method: str, text: str | Rendered, *, takes_rich: bool, previews: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The ways to say a text, the best first: rich, with entities, plain."""
    if isinstance(text, str):
        if takes_rich and render.wants_rich(text):
            rich = "sendRichMessage" if method == "sendMessage" else method
            yield rich, {"rich_message": {"markdown": text}}
        rendered = render.render(text)
    else:
        rendered = text
    # A preview fetches the link: text that a stranger tricks a model into putting there would leak.
    options = {} if previews else {"link_preview_options": {"is_disabled": True}}
    if rendered.entities:
        yield method, {"text": rendered.text, "entities": rendered.entities, **options}
    plain = render.plain(text) if isinstance(text, str) and rendered.entities else rendered.text
    yield method, {"text": plain, **options}


def tail(text: str, most: int = TEXT_UNITS) -> Rendered:
    """Past one message's length the end is what is being written."""
    rendered = render.render(text)
    if render.length(rendered.text) <= most:
        return rendered
    return render.tail(rendered, most)


def buttons(choices: tuple[Choice, ...]) -> dict[str, Any] | None:
    if not choices:
        return None
    buttons = [{"text": choice.label, "callback_data": choice.id} for choice in choices]
    in_one_row = len(buttons) <= 3 and all(len(choice.label) <= SHORT_LABEL for choice in choices)
    return {"inline_keyboard": [buttons] if in_one_row else [[button] for button in buttons]}
