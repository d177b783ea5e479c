"""Draws the life of one message, docs/pictures/message.svg: `python docs/pictures/message.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 920, 456
LEFT, BOX, GAP = 150, 134, 48
ROW, TALL = 140, 58
TOP = 72

STYLE = """
  text { font-family: "DejaVu Sans", Verdana, sans-serif; font-size: 14px; fill: #1f2933; }
  .small { font-size: 11.5px; fill: #52606d; }
  .title { font-size: 12.5px; font-weight: bold; fill: #52606d; }
  .paper { fill: #ffffff; stroke: #d5dbe1; }
  .box { fill: #eef2f6; stroke: #9aa5b1; }
  .store { fill: #d9f0e3; stroke: #2f8f5b; stroke-width: 2; }
  .outside { fill: #fdf0d5; stroke: #c08a1e; }
  .line { stroke: #52606d; stroke-width: 1.6; fill: none; }
  .wake { stroke-dasharray: 5 4; }
  .head { fill: #52606d; }
  .kill { fill: #a61b1b; font-size: 12px; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small, .title { fill: #a8b3bf; }
    .paper { fill: #161b22; stroke: #30363d; }
    .box { fill: #242b34; stroke: #6b7785; }
    .store { fill: #123524; stroke: #3fb37a; }
    .outside { fill: #3a2d10; stroke: #d9a441; }
    .line { stroke: #a8b3bf; }
    .head { fill: #a8b3bf; }
    .kill { fill: #ff9b8f; }
  }
"""


class Box(NamedTuple):
    name: str
    does: str
    kind: str = "box"


class Row(NamedTuple):
    title: tuple[str, str]
    boxes: tuple[Box, ...]
    killed: str


ROWS = (
    Row(
        ("A message", "comes in"),
        (
            Box("platform", "a person writes", "outside"),
            Box("adapter", "listens, parses"),
            Box("door", "admits or refuses"),
            Box("inbox", "stored, confirmed", "store"),
        ),
        "kill -9 before the commit: nothing was confirmed, so the platform sends it again.",
    ),
    Row(
        ("A bot", "answers"),
        (
            Box("dispatcher", "binds the session"),
            Box("runner", "drives the agent"),
            Box("journal", "stores each event"),
            Box("settlement", "answer into outbox", "store"),
        ),
        "kill -9 here: the run starts again, unless a tool already had an effect; then the chat is told so.",
    ),
    Row(
        ("The answer", "goes out"),
        (
            Box("courier", "marks it sending", "store"),
            Box("adapter", "sends it once"),
            Box("platform", "the person reads", "outside"),
            Box("receipt", "stored", "store"),
        ),
        "kill -9 here: the send is in doubt, and is settled by what the platform can prove.",
    ),
)


def picture() -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
            ' role="img" aria-label="The life of one message: stored, answered, delivered">',
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
            ' orient="auto"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
            f'<rect class="paper" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="10"/>',
            _text(24, 34, "The life of one message", "title"),
            *_key(),
            *(line for number, row in enumerate(ROWS) for line in _row(row, TOP + number * ROW)),
            *(_wake(TOP + number * ROW) for number in range(len(ROWS) - 1)),
            "</svg>\n",
        ]
    )


def _row(row: Row, top: int) -> Iterator[str]:
    yield _text(24, top + 26, row.title[0], "title")
    yield _text(24, top + 43, row.title[1], "title")
    for number, box in enumerate(row.boxes):
        left = _left(number)
        yield f'<rect class="{box.kind}" x="{left}" y="{top}" width="{BOX}" height="{TALL}" rx="7"/>'
        yield _text(left + BOX / 2, top + 25, box.name, anchor="middle")
        yield _text(left + BOX / 2, top + 44, box.does, "small", "middle")
        if number:
            yield _arrow(f"M{_left(number - 1) + BOX} {top + TALL / 2} H{left - 2}")
    yield _text(LEFT, top + TALL + 24, row.killed, "kill")


def _wake(top: int) -> str:
    """The wake-up that follows a commit: from the last box of a row to the first of the next."""
    right, middle = _left(3) + BOX, top + TALL / 2
    down = top + TALL + 41
    path = f"M{right} {middle} H{right + 26} V{down} H{LEFT - 22} V{middle + ROW} H{LEFT - 2}"
    return _arrow(path, "line wake")


def _key() -> Iterator[str]:
    left = 486
    yield f'<rect class="store" x="{left}" y="22" width="16" height="16" rx="3"/>'
    yield _text(left + 24, 35, "ends in a commit", "small")
    yield _arrow(f"M{left + 150} 30 H{left + 186}", "line wake")
    yield _text(left + 194, 35, "wakes the next part, after the commit", "small")


def _left(number: int) -> int:
    return LEFT + number * (BOX + GAP)


def _arrow(path: str, kind: str = "line") -> str:
    return f'<path class="{kind}" d="{path}" marker-end="url(#head)"/>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture(), encoding="utf-8")
