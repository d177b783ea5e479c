"""What a body becomes on Slack: a markdown block, buttons below it, and a plain text for notifications (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidings.adapters.slack import render
from tidings.core.types import Body, Choice

BUTTONS_IN_ROW, MOST_ROWS = 25, 4
LABEL_CHARACTERS = 75
# A command is answered at most five times, and one is left for a notice.
SECRET_PARTS = 4
NO_ROOM = "\u2026 (There is more, but Slack does not let me say it to you alone. Ask me in a direct message.)"


def cut(text: str, *, secret: bool, limit: int = render.LIMIT) -> tuple[str, ...]:
    parts = render.compose(text, limit)
    if not secret or len(parts) <= SECRET_PARTS:
        return parts
    last = render.compose(parts[SECRET_PARTS - 1], limit - len(NO_ROOM) - 8)[0]
    return (*parts[: SECRET_PARTS - 1], f"{last}\n\n{NO_ROOM}")


def message(body: Body, *, mentions: bool, boxed: bool = False) -> dict[str, Any]:
    """The same fields for a new message and for one that replaces what stands there."""
    shown = (render.stream if boxed else render.block)(body.text, mentions=mentions)
    return {
        "text": render.fallback(body.text or ", ".join(choice.label for choice in body.choices)),
        "blocks": [*_markdown(shown), *buttons(body.choices)],
    }


def wordings(body: Body, *, mentions: bool) -> Iterator[dict[str, Any]]:
    """The best first; where Slack turns it down as something that it cannot draw, the next: at last plain text."""
    best = message(body, mentions=mentions)
    yield best
    boxed = message(body, mentions=mentions, boxed=True)
    if boxed != best:
        yield boxed
    lines = [render.stream(body.text), *(f"\u2022 {choice.label}" for choice in body.choices)]
    yield {"text": render.escape("\n".join(filter(None, lines))), "blocks": []}


def growing(text: str, *, mentions: bool, limit: int = render.LIMIT) -> dict[str, Any]:
    return {
        "text": render.fallback(text),
        "blocks": _markdown(render.tail(render.block(text, mentions=mentions), limit) or render.MARK),
    }


def buttons(choices: tuple[Choice, ...]) -> list[dict[str, Any]]:
    elements = [
        {
            "type": "button",
            "action_id": choice.id,
            "text": {"type": "plain_text", "text": choice.label[:LABEL_CHARACTERS] or render.MARK, "emoji": True},
        }
        for choice in choices[: BUTTONS_IN_ROW * MOST_ROWS]
    ]
    return [
        {"type": "actions", "elements": elements[start : start + BUTTONS_IN_ROW]}
        for start in range(0, len(elements), BUTTONS_IN_ROW)
    ]


def _markdown(shown: str) -> list[dict[str, Any]]:
    return [{"type": "markdown", "text": shown}] if shown else []
