"""Texts, blocks and metadata as Slack takes them: measured, or refused, and whom they would ping."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.simulators.slack.truth import Button

TEXT_LIMIT = 40_000
UPDATE_LIMIT = 4_000
BLOCKS = 50
SECTION_LIMIT = 3_000
HEADER_LIMIT = 150
FIELD_LIMIT = 2_000
# Of one message: all its markdown blocks together, or its markdown_text.
MARKDOWN_LIMIT = 12_000
METADATA_BYTES = 16_000
ELEMENTS = 25
LABEL_LIMIT = 75
ACTION_LIMIT = 255
VALUE_LIMIT = 2_000

BLOCK_TYPES = {
    *("section", "markdown", "header", "divider", "context", "actions", "image", "rich_text", "table"),
    *("input", "file", "video", "call", "task_card", "plan", "context_actions", "data_table", "card", "alert"),
}
CHUNK_TYPES = {"markdown_text", "task_update", "plan_update", "blocks"}

_TS = re.compile(r"\d{10}\.\d{6}")
_SPECIAL = re.compile(r"<!(channel|here|everyone)(?:\|[^>]*)?>")
_USER = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^>]*)?>")
_GROUP = re.compile(r"<!subteam\^(S[A-Z0-9]+)(?:\|[^>]*)?>")
# Only with link_names, which makes mentions of bare words.
_BARE = re.compile(r"(?<![\w@<])@(channel|here|everyone|[a-z0-9][a-z0-9._-]*)")


class Refusal(Exception):
    """The platform's own word that it did nothing: `ok` is false, and most come with status 200."""

    def __init__(
        self, error: str, *, status: int = 200, retry_after: int | None = None, why: str = "", **fields: Any
    ) -> None:
        super().__init__(error)
        self.error = error
        self.status = status
        self.retry_after = retry_after
        self.fields = {**fields, **({"response_metadata": {"messages": [f"[ERROR] {why}"]}} if why else {})}


def missing(name: str) -> Refusal:
    return Refusal("invalid_arguments", why=f"missing required field: {name}")


# Arguments come as text in a form, and as what they are in JSON.


def word(params: dict[str, Any], name: str) -> str:
    value = params.get(name)
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        raise Refusal("invalid_arguments", why=f"must be a string [json-pointer:/{name}]")
    return str(value)


def need(params: dict[str, Any], name: str) -> str:
    if not (value := word(params, name)):
        raise missing(name)
    return value


def flag(params: dict[str, Any], name: str) -> bool | None:
    """None where nothing is said."""
    value = params.get(name)
    return None if value is None or value == "" else str(value).lower() in ("true", "1")


def whole(params: dict[str, Any], name: str, default: int) -> int:
    value = str(params.get(name, "") or default)
    if not re.fullmatch(r"-?\d{1,15}", value):
        raise Refusal("invalid_arguments", why=f"must be an integer [json-pointer:/{name}]")
    return int(value)


def parsed(params: dict[str, Any], name: str, error: str) -> Any:
    """A structure, whether it came as JSON or as JSON in a string; None where it is absent."""
    value = params.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise Refusal(error) from None


def is_ts(value: str) -> bool:
    return bool(_TS.fullmatch(value))


# What a message is made of.


def read_blocks(params: dict[str, Any]) -> tuple[dict[str, Any], ...] | None:
    blocks = parsed(params, "blocks", "invalid_blocks_format")
    return None if blocks is None else check_blocks(blocks)


def check_blocks(blocks: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise Refusal("invalid_blocks_format")
    if len(blocks) > BLOCKS:
        raise _invalid(f"no more than {BLOCKS} items allowed [json-pointer:/blocks]")
    ids: set[str] = set()
    checked = []
    for place, block in enumerate(blocks):
        _check_block(block, f"/blocks/{place}")
        # Slack names those that have no name.
        block = {**block, "block_id": str(block.get("block_id") or f"b{place}")}
        if block["block_id"] in ids:
            raise _invalid(f"block_id {block['block_id']} already exists [json-pointer:/blocks/{place}/block_id]")
        ids.add(block["block_id"])
        checked.append(block)
    if sum(len(block.get("text", "")) for block in checked if block["type"] == "markdown") > MARKDOWN_LIMIT:
        raise Refusal("msg_blocks_too_long")
    return tuple(checked)


def _check_block(block: dict[str, Any], place: str) -> None:
    match block.get("type"):
        case "section":
            fields = block.get("fields") or []
            if not block.get("text") and not fields:
                raise _invalid(f"missing required field: text or fields [json-pointer:{place}]")
            if block.get("text"):
                _check_text(block["text"], SECTION_LIMIT, f"{place}/text")
            for number, text in enumerate(fields):
                _check_text(text, FIELD_LIMIT, f"{place}/fields/{number}")
            if block.get("accessory"):
                _check_element(block["accessory"], f"{place}/accessory")
        case "header":
            _check_text(block.get("text"), HEADER_LIMIT, f"{place}/text", kinds=("plain_text",))
        case "markdown":
            if not isinstance(block.get("text"), str) or not block["text"]:
                raise _invalid(f"missing required field: text [json-pointer:{place}]")
        case "context":
            for number, element in enumerate(block.get("elements") or []):
                if element.get("type") != "image":
                    _check_text(element, SECTION_LIMIT, f"{place}/elements/{number}")
        case "actions":
            elements = block.get("elements")
            if not isinstance(elements, list) or not 1 <= len(elements) <= ELEMENTS:
                raise _invalid(f"must have 1 to {ELEMENTS} items [json-pointer:{place}/elements]")
            for number, element in enumerate(elements):
                _check_element(element, f"{place}/elements/{number}")
            ids = [element.get("action_id") for element in elements if element.get("action_id")]
            if len(ids) != len(set(ids)):
                raise _invalid(f"`action_id` already exists for this block [json-pointer:{place}/elements]")
        case str() as type if type in BLOCK_TYPES:
            return
        case other:
            raise _invalid(f"unsupported type: {other} [json-pointer:{place}/type]")


def _check_text(text: Any, limit: int, place: str, kinds: tuple[str, ...] = ("plain_text", "mrkdwn")) -> None:
    if not isinstance(text, dict) or text.get("type") not in kinds or not isinstance(text.get("text"), str):
        raise _invalid(f"must be a text object [json-pointer:{place}]")
    if not text["text"]:
        raise _invalid(f"must be more than 0 characters [json-pointer:{place}/text]")
    if len(text["text"]) > limit:
        raise _invalid(f"must be less than {limit + 1} characters [json-pointer:{place}/text]")


def _check_element(element: Any, place: str) -> None:
    if not isinstance(element, dict) or not isinstance(element.get("type"), str):
        raise _invalid(f"must provide an object [json-pointer:{place}]")
    if element["type"] != "button":
        return
    _check_text(element.get("text"), LABEL_LIMIT, f"{place}/text", kinds=("plain_text",))
    for name, limit in (("action_id", ACTION_LIMIT), ("value", VALUE_LIMIT), ("url", SECTION_LIMIT)):
        if len(str(element.get(name, ""))) > limit:
            raise _invalid(f"must be less than {limit + 1} characters [json-pointer:{place}/{name}]")
    if element.get("style") not in (None, "primary", "danger"):
        raise _invalid(f"must be one of primary, danger [json-pointer:{place}/style]")


def _invalid(why: str) -> Refusal:
    return Refusal("invalid_blocks", why=why)


def read_metadata(params: dict[str, Any]) -> dict[str, Any] | None:
    """An empty object takes it away; None where nothing is said."""
    value = parsed(params, "metadata", "invalid_metadata_format")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Refusal("invalid_metadata_format")
    if not value:
        return {}
    if not isinstance(value.get("event_type"), str) or not value["event_type"]:
        raise Refusal("invalid_metadata_schema", why="missing required field: event_type [json-pointer:/metadata]")
    # Slack's own library sends null where an assistant's thread has no context.
    payload = {} if value.get("event_payload", "") is None else value.get("event_payload")
    if not isinstance(payload, dict):
        raise Refusal("invalid_metadata_schema", why="must be an object [json-pointer:/metadata/event_payload]")
    if len(json.dumps(value).encode()) > METADATA_BYTES:
        raise Refusal("metadata_too_large")
    return {"event_type": value["event_type"], "event_payload": payload}


def read_chunks(params: dict[str, Any]) -> tuple[str, tuple[dict[str, Any], ...]]:
    """The text that a call adds to a stream, and its chunks of other kinds."""
    text = word(params, "markdown_text")
    chunks = parsed(params, "chunks", "invalid_chunks")
    if chunks is None:
        chunks = []
    if not isinstance(chunks, list) or not all(isinstance(chunk, dict) for chunk in chunks):
        raise Refusal("invalid_chunks")
    if text and chunks:
        raise Refusal("invalid_arguments", why="only one of markdown_text and chunks may be given")
    if any(chunk.get("type") not in CHUNK_TYPES for chunk in chunks):
        raise Refusal("invalid_chunks")
    words = [chunk for chunk in chunks if chunk["type"] == "markdown_text"]
    if not all(isinstance(chunk.get("text"), str) for chunk in words):
        raise Refusal("invalid_chunks")
    others = tuple(chunk for chunk in chunks if chunk["type"] != "markdown_text")
    return text + "".join(chunk["text"] for chunk in words), others


# What a person sees of it, and who hears it ring.


def shown(blocks: tuple[dict[str, Any], ...]) -> str:
    return "\n".join(text for block in blocks if (text := _shown(block)))


def _shown(block: dict[str, Any]) -> str:
    match block["type"]:
        case "markdown":
            return str(block["text"])
        case "section" | "header":
            fields = [block.get("text"), *(block.get("fields") or [])]
            return "\n".join(str(text["text"]) for text in fields if text)
        case "context":
            return " ".join(str(each.get("text", "")) for each in block.get("elements", []) if "text" in each)
        case "rich_text" | "table":
            return "".join(str(node["text"]) for node in _nodes(block) if isinstance(node.get("text"), str))
        case _:
            return ""


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _nodes(inner)


def buttons(blocks: tuple[dict[str, Any], ...]) -> tuple[Button, ...]:
    return tuple(
        Button(
            id=str(node.get("action_id", "")),
            block=str(block["block_id"]),
            label=str(node["text"]["text"]),
            value=str(node.get("value", "")),
            url=str(node.get("url", "")),
        )
        for block in blocks
        for node in _nodes(block)
        if node.get("type") == "button"
    )


def pings(text: str, blocks: tuple[dict[str, Any], ...], names: dict[str, str] | None = None) -> tuple[str, ...]:
    """Whom a message calls: "channel", "here", "everyone", people's and groups' ids, in order and once.

    The text counts even where blocks stand in its place, since notifications are made of it. `names` are the
    ids by name, given when bare names count too.
    """
    sources = [text]
    found: list[str] = []
    for node in (node for block in blocks for node in _nodes(block)):
        match node.get("type"):
            case "mrkdwn" | "markdown" | "markdown_text":
                sources.append(str(node.get("text", "")))
            case "user":
                found.append(str(node.get("user_id", "")))
            case "usergroup":
                found.append(str(node.get("usergroup_id", "")))
            case "broadcast":
                found.append(str(node.get("range", "")))
            case _:
                continue
    for source in sources:
        for pattern in (_SPECIAL, _USER, _GROUP):
            found += pattern.findall(source)
        if names is not None:
            known = {"channel": "channel", "here": "here", "everyone": "everyone", **names}
            found += [known[name] for name in _BARE.findall(source) if name in known]
    return tuple(dict.fromkeys(each for each in found if each))
