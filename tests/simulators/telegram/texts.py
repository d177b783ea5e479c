"""Texts as Telegram takes them: parsed, cleaned, trimmed and measured, or refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.simulators.telegram.markup import Marked, MarkupError, check_link, parse_html, parse_markdown, units
from tests.simulators.telegram.truth import Entity

TEXT_LIMIT = 4096
CAPTION_LIMIT = 1024
RICH_LIMIT = 32768
RAW_BYTES = 32768
ENTITIES_SHOWN = 100
# What an offset or a length may be at most, however long the text is.
UNITS_LIMIT = 1_000_000

USER_TYPES = {
    "bold",
    "italic",
    "underline",
    "strikethrough",
    "spoiler",
    "code",
    "pre",
    "text_link",
    "text_mention",
    "custom_emoji",
    "blockquote",
    "expandable_blockquote",
    "date_time",
}
# The server finds these by itself and drops what a bot says of them.
FOUND_TYPES = {"mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bank_card_number"}

_COMMAND = re.compile(r"(?<![\w/<>])/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?(?![\w/<>@])")
_MENTION = re.compile(r"(?<!\w)@[A-Za-z0-9_]{2,32}(?!\w)")
_URL = re.compile(r"https?://[^\s<>\"]+")
# Direction marks and lines through text are taken out.
_REMOVED = re.compile("[\r\u2028-\u202e\u0333\u033f\u030a]")
_CONTROLS = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f]")


class Refusal(Exception):
    """The platform's own word that it did nothing."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


def bad(description: str) -> Refusal:
    return Refusal(400, f"Bad Request: {description}")


def whole(params: dict[str, str], name: str, default: int = 0) -> int:
    """A number among the parameters; nonsense counts as nothing, as on the server."""
    value = params.get(name, "").strip()
    return int(value) if re.fullmatch(r"-?\d{1,18}", value) else default


def truth_of(value: object) -> bool:
    return str(value).lower() in ("true", "yes", "1")


def parse(text: str, mode: str, entities: str) -> Marked:
    """What the server does before it looks at the chat."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise bad("strings must be encoded in UTF-8") from None
    if size > RAW_BYTES:
        raise bad("text is too long")
    mode = mode.lower()
    if not text or mode in ("", "none"):
        return Marked(text, tuple(_read(entities)))
    if mode == "markdown":
        # Loudly: the platform has it, the simulator has not.
        raise Refusal(501, "the simulator has no legacy Markdown")
    parser = {"html": parse_html, "markdownv2": parse_markdown}.get(mode)
    if parser is None:
        raise bad("unsupported parse_mode")
    try:
        return parser(text)
    except MarkupError as error:
        raise bad(f"can't parse entities: {error}") from None


def _read(entities: str) -> Iterator[Entity]:
    """Entities as a bot sends them; what is no JSON at all is as good as none."""
    try:
        values = json.loads(entities or "[]")
    except ValueError:
        return
    for value in values if isinstance(values, list) else ():
        if not isinstance(value, dict):
            raise bad("can't parse MessageEntity: expected an Object")
        for name in ("offset", "length"):
            if not isinstance(value.get(name), int):
                raise bad(f"can't parse MessageEntity: can't find field \"{name}\"")
        type = value.get("type", "")
        if type in FOUND_TYPES:
            continue
        if type not in USER_TYPES:
            raise bad("can't parse MessageEntity: Unsupported type specified")
        yield _entity(type, value)


def _entity(type: str, value: dict[str, Any]) -> Entity:
    url = str(value.get("url", ""))
    if type == "text_link" and "url" not in value:
        raise bad("can't parse MessageEntity: can't find field \"url\"")
    if type == "text_mention" and not isinstance(value.get("user"), dict):
        raise bad("can't parse MessageEntity: can't find field \"user\"")
    return Entity(
        type=type,
        offset=value["offset"],
        length=value["length"],
        url=url,
        language=str(value.get("language") or ""),
        user=int(value.get("user", {}).get("id", 0)),
        custom_emoji=str(value.get("custom_emoji_id", "")),
    )


def fit(
    marked: Marked,
    *,
    limit: int = TEXT_LIMIT,
    too_long: str = "message is too long",
    may_be_empty: bool = False,
) -> Marked:
    """What the server does last: checks entities against the text, cleans, trims and measures it."""
    spans = list(_spans(marked))
    # By position in the old text: how much of the new one stands before it.
    before = [0]
    cleaned = []
    for character in marked.text:
        kept = "" if _REMOVED.match(character) else _CONTROLS.sub(" ", character)
        cleaned.append(kept)
        before.append(before[-1] + len(kept))
    text = "".join(cleaned)
    lead = len(text) - len(text.lstrip(" \n"))
    text = text.strip(" \n")
    if not text:
        if may_be_empty:
            return Marked("", ())
        raise bad("text must be non-empty")
    if len(text) > limit:
        raise bad(too_long)
    entities = []
    for entity, begin, end in spans:
        begin = min(max(before[begin] - lead, 0), len(text))
        end = min(max(before[end] - lead, 0), len(text))
        inside = text[begin:end]
        if inside.strip(" \n"):
            begin += len(inside) - len(inside.lstrip(" \n"))
            fields = {"offset": units(text[:begin]), "length": units(text[begin:end])}
            entities.append(Entity(**{**_fields(entity), **fields}))
    entities.sort(key=lambda each: (each.offset, -each.length))
    return Marked(text, tuple(entities[:ENTITIES_SHOWN]))


def _fields(entity: Entity) -> dict[str, Any]:
    return {name: getattr(entity, name) for name in entity.__struct_fields__}


def _spans(marked: Marked) -> Iterator[tuple[Entity, int, int]]:
    """Each entity with where it begins and ends in characters."""
    # By UTF-16 offset.
    starts: dict[int, int] = {}
    total = 0
    for position, character in enumerate(marked.text):
        starts[total] = position
        total += 2 if ord(character) > 0xFFFF else 1
    starts[total] = len(marked.text)
    for entity in sorted(marked.entities, key=lambda each: (each.offset, -each.length)):
        if not 0 <= entity.offset <= UNITS_LIMIT:
            raise bad(f"receive an entity with incorrect offset {entity.offset}")
        if not 0 <= entity.length <= UNITS_LIMIT:
            raise bad(f"receive an entity with incorrect length {entity.length}")
        if entity.type == "text_link" and (wrong := check_link(entity.url)):
            raise bad(f"entity URL '{entity.url}' is invalid: {wrong}")
        if not entity.length:
            continue
        end = entity.offset + entity.length
        if entity.offset > total:
            raise bad(f"entity begins after the end of the text at UTF-16 offset {entity.offset}")
        if entity.offset not in starts:
            raise bad(f"entity begins in a middle of a UTF-16 symbol at byte offset {_byte(marked, entity.offset)}")
        named = f"entity beginning at UTF-16 offset {entity.offset}"
        if end > total:
            raise bad(f"{named} ends after the end of the text at UTF-16 offset {end}")
        if end not in starts:
            raise bad(f"{named} ends in a middle of a UTF-16 symbol at byte offset {_byte(marked, end)}")
        yield entity, starts[entity.offset], starts[end]


def _byte(marked: Marked, offset: int) -> int:
    """Where the character after a split one begins."""
    head = marked.text.encode("utf-16-le")[: 2 * (offset + 1)]
    return len(head.decode("utf-16-le").encode())


def find_entities(text: str) -> tuple[Entity, ...]:
    """What a person's app marks by itself."""
    found = [
        ("url", _URL, text),
        ("bot_command", _COMMAND, _URL.sub(_blank, text)),
        ("mention", _MENTION, _COMMAND.sub(_blank, _URL.sub(_blank, text))),
    ]
    entities = [
        Entity(type=type, offset=units(text[: match.start()]), length=units(match[0]))
        for type, pattern, searched in found
        for match in pattern.finditer(searched)
    ]
    return tuple(sorted(entities, key=lambda each: each.offset))


def _blank(match: re.Match[str]) -> str:
    return "\n" * len(match[0])


def inside(text: str, entity: Entity) -> str:
    """The text that an entity marks."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    return encoded[2 * entity.offset : 2 * (entity.offset + entity.length)].decode("utf-16-le", "surrogatepass")


def read_rich(value: str, *, is_draft: bool = False) -> tuple[str, str]:
    """The kind of a rich message's source and the source, which is measured and kept, not parsed."""
    try:
        rich = json.loads(value)
    except ValueError:
        raise bad("can't parse rich message JSON object") from None
    kinds = [kind for kind in ("markdown", "html") if isinstance(rich, dict) and rich.get(kind) is not None]
    if len(kinds) != 1 or not isinstance(rich[kinds[0]], str):
        raise bad("exactly one of the fields html and markdown must be specified in the rich message")
    source = rich[kinds[0]].strip(" \n")
    if not source and not is_draft:
        raise bad("message text is empty")
    if len(source) > RICH_LIMIT:
        raise bad("message is too long")
    if "<tg-thinking" in source and not is_draft:
        raise bad('tag "tg-thinking" is allowed only in drafts')
    return kinds[0], source
