"""Anthropic's messages, as the simulated provider takes and makes them."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from tests.simulators.provider.dialect import Frame, Reply, decode, dump, event, listed, read_content
from tests.simulators.provider.errors import Refusal, Shape, invalid
from tests.simulators.provider.truth import Api, Asked, Line
from tests.simulators.provider.turns import Part

BLOCKS = {
    "user": ("text", "image", "document", "tool_result", "search_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
}
STOP = {"stop": "end_turn", "tools": "tool_use", "length": "max_tokens", "filter": "refusal"}
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
# Of a part: the block that opens it, the delta, and the delta's field.
DELTAS = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}


class Messages:
    """Two messages of one role in a row are refused unless `alternating` is off: the API did so for long, and joins
    them today."""

    api: Api = "messages"
    shape: Shape = "anthropic"
    call_prefix = "toolu_"

    def __init__(self) -> None:
        self.alternating = True

    def check(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        if "anthropic-version" not in headers:
            raise invalid("anthropic-version: header is required")
        limit = body.get("max_tokens")
        if limit is None:
            raise invalid("max_tokens: Field required")
        if not isinstance(limit, int) or limit < 1:
            raise invalid("max_tokens: Input should be greater than or equal to 1")
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise invalid("messages: Field required")
        if not messages:
            raise invalid("messages: at least one message is required")
        self._check_system(body.get("system"))
        self._check_tools(body)
        self._check_roles(messages)
        for position, message in enumerate(messages):
            self._check_content(position, message, is_last=position == len(messages) - 1)
        self._check_pairs(messages)

    def _check_system(self, system: object) -> None:
        if isinstance(system, list):
            for position, block in enumerate(system):
                if not isinstance(block, dict) or block.get("type") != "text" or not block.get("text"):
                    raise invalid(f"system.{position}: text content blocks must be non-empty")
        elif system is not None and not isinstance(system, str):
            raise invalid("system: Input should be a valid string")

    def _check_tools(self, body: dict[str, Any]) -> None:
        names = []
        for position, tool in enumerate(body.get("tools") or []):
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
                raise invalid(f"tools.{position}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
            schema = tool.get("input_schema")
            if not isinstance(schema, dict):
                raise invalid(f"tools.{position}.custom.input_schema: Field required")
            if schema.get("type") != "object":
                raise invalid(f"tools.{position}.custom.input_schema.type: Input should be 'object'")
            names.append(name)
        if len(set(names)) < len(names):
            raise invalid("tools: Tool names must be unique.")
        if body.get("tool_choice") is not None and not names:
            raise invalid("tool_choice: may only be specified while providing tools")

    def _check_roles(self, messages: list[Any]) -> None:
        previous = ""
        for position, message in enumerate(messages):
            role = message.get("role") if isinstance(message, dict) else None
            if role == "system":
                raise invalid(
                    'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not '
                    '"system" as an input message role.'
                )
            if role not in BLOCKS:
                raise invalid(f"messages.{position}.role: Input should be 'user' or 'assistant'")
            if position == 0 and role != "user":
                raise invalid('messages: first message must use the "user" role')
            if self.alternating and role == previous:
                raise invalid(
                    'messages: roles must alternate between "user" and "assistant", but found multiple '
                    f'"{role}" roles in a row'
                )
            previous = role

    def _check_content(self, position: int, message: dict[str, Any], *, is_last: bool) -> None:
        role, content = message["role"], message.get("content")
        if not isinstance(content, str | list):
            raise invalid(f"messages.{position}.content: Field required")
        if not content and not (is_last and role == "assistant"):
            raise invalid(
                f"messages.{position}: all messages must have non-empty content except for the optional final "
                "assistant message"
            )
        for number, block in enumerate(_blocks(content)):
            _check_block(f"messages.{position}.content.{number}", role, block)
        if is_last and role == "assistant" and _said(content) != _said(content).rstrip():
            raise invalid("messages: final assistant content cannot end with trailing whitespace")

    def _check_pairs(self, messages: list[Any]) -> None:
        """Results stand at the beginning of the very next message, one for each call."""
        asked: list[str] = []
        for position, message in enumerate(messages):
            blocks = _blocks(message["content"])
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            for number, block in enumerate(blocks):
                if block["type"] == "tool_result" and block["tool_use_id"] not in asked:
                    raise invalid(
                        f"messages.{position}.content.{number}: unexpected `tool_use_id` found in `tool_result` "
                        f"blocks: {block['tool_use_id']}. Each `tool_result` block must have a corresponding "
                        "`tool_use` block in the previous message."
                    )
            if len(set(results)) < len(results):
                raise invalid(f"messages.{position}: each tool_use must have a single result.")
            begun = [block["tool_use_id"] for block in blocks[: len(results)] if block["type"] == "tool_result"]
            _check_results(position - 1, [each for each in asked if each not in begun])
            asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        _check_results(len(messages) - 1, asked)

    def messages(self, body: dict[str, Any]) -> list[Any]:
        return listed(body, "messages")

    def lines(self, body: dict[str, Any]) -> tuple[Line, ...]:
        lines = []
        if system := read_content(body.get("system"), _read):
            lines.append(Line("system", system))
        for message in body["messages"]:
            blocks = _blocks(message["content"])
            lines += [
                Line("tool", read_content(block.get("content"), _read), id=block["tool_use_id"])
                for block in blocks
                if block["type"] == "tool_result"
            ]
            calls = tuple(
                Asked(block["name"], json.dumps(block["input"], ensure_ascii=False), block["id"])
                for block in blocks
                if block["type"] == "tool_use"
            )
            text = read_content(blocks, _read)
            if text or calls or not any(block["type"] == "tool_result" for block in blocks):
                lines.append(Line(message["role"], text, calls))
        return tuple(lines)

    def tool_names(self, body: dict[str, Any]) -> tuple[str, ...]:
        return tuple(tool["name"] for tool in body.get("tools") or ())

    def limit(self, body: dict[str, Any]) -> int | None:
        limit: int = body["max_tokens"]
        return limit

    def frames(self, reply: Reply) -> list[Frame]:
        opening = {**_head(reply), "content": [], "stop_reason": None, "stop_sequence": None}
        opening["usage"] = {"input_tokens": reply.input_tokens, "output_tokens": 1}
        frames = [
            Frame(_event("message_start", message=opening), "open"),
            Frame(_event("ping"), "open"),
        ]
        for index, part in enumerate(reply.answer.parts):
            kind, field = DELTAS[part.kind]
            frames.append(Frame(_event("content_block_start", index=index, content_block=_opening(part)), "part"))
            head = f'event: content_block_delta\ndata: {{"type":"content_block_delta","index":{index},"delta":{{'
            head += f'"type":"{kind}","{field}":'
            frames += [Frame(f"{head}{dump(piece)}}}}}\n\n".encode(), "delta", part.wait) for piece in part.pieces]
            if part.kind == "reasoning":
                signed = {"type": "signature_delta", "signature": sign(part.text)}
                frames.append(Frame(_event("content_block_delta", index=index, delta=signed), "part"))
            frames.append(Frame(_event("content_block_stop", index=index), "part"))
        ending = {"stop_reason": STOP[reply.answer.finish], "stop_sequence": None}
        usage = {"output_tokens": reply.output_tokens}
        frames.append(Frame(_event("message_delta", delta=ending, usage=usage), "finish"))
        frames.append(Frame(_event("message_stop"), "done"))
        return frames

    def whole(self, reply: Reply) -> dict[str, Any]:
        return {
            **_head(reply),
            "content": [_block(part) for part in reply.answer.parts],
            "stop_reason": STOP[reply.answer.finish] if reply.finish else None,
            "stop_sequence": None,
            "usage": {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens},
        }

    def error(self, reply: Reply, refusal: Refusal, failed: bool) -> bytes:
        return event(refusal.told(self.shape, reply.id("req_")), "error")

    def broken(self, reply: Reply, refusal: Refusal) -> None:
        """There is no such thing: its errors have a status."""


def sign(thought: str) -> str:
    """Only what carries this was thought here."""
    return "sig" + hashlib.sha256(thought.encode()).hexdigest()


def _check_block(place: str, role: str, block: object) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or kind not in BLOCKS[role]:
        listed = ", ".join(f"'{name}'" for name in BLOCKS[role])
        raise invalid(
            f"{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {listed}"
        )
    match kind:
        case "text":
            if not isinstance(block.get("text"), str):
                raise invalid(f"{place}.text.text: Field required")
            if not block["text"]:
                raise invalid(f"{place}: text content blocks must be non-empty")
            if not block["text"].strip():
                raise invalid(f"{place}: text content blocks must contain non-whitespace text")
        case "tool_use":
            if not TOOL_ID.fullmatch(str(block.get("id") or "")):
                raise invalid(f"{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
            if not TOOL_NAME.fullmatch(str(block.get("name") or "")):
                raise invalid(f"{place}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
            if not isinstance(block.get("input"), dict):
                raise invalid(f"{place}.tool_use.input: Input should be a valid dictionary")
        case "tool_result":
            if not TOOL_ID.fullmatch(str(block.get("tool_use_id") or "")):
                raise invalid(f"{place}.tool_result.tool_use_id: Field required")
            content = block.get("content")
            # A result may be without content, but not with an empty one.
            if content == "" or any(part.get("type") == "text" and not part.get("text") for part in content or ()):
                raise invalid(f"{place}: text content blocks must be non-empty")
        case "thinking":
            if block.get("signature") != sign(str(block.get("thinking"))):
                raise invalid(f"{place}: Invalid `signature` in `thinking` block")
        case _:
            if kind != "redacted_thinking" and not isinstance(block.get("source"), str | dict):
                raise invalid(f"{place}.{kind}.source: Field required")


def _check_results(position: int, unanswered: list[str]) -> None:
    if unanswered:
        raise invalid(
            f"messages.{position}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(unanswered)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content)


def _said(content: Any) -> str:
    last = (_blocks(content) or [{}])[-1]
    return str(last.get("text", "")) if isinstance(last, dict) else ""


def _read(block: dict[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "document" | "search_result":
            source = block.get("source")
            told = "\n".join(str(block[name]) for name in ("title", "context") if block.get(name))
            return "\n".join(filter(None, (told, _read_source(source), read_content(block.get("content"), _read))))
        case _:
            return ""


def _read_source(source: object) -> str:
    match source:
        case {"type": "text", "data": data}:
            return str(data)
        case {"type": "content", "content": content}:
            return read_content(content, _read)
        case {"type": "base64", "media_type": str(kind), "data": data} if kind.startswith("text/"):
            return decode(data)
        case _:
            return ""


def _event(name: str, **more: Any) -> bytes:
    return event({"type": name, **more}, name)


def _head(reply: Reply) -> dict[str, Any]:
    return {"id": reply.id("msg_"), "type": "message", "role": "assistant", "model": reply.model}


def _opening(part: Part) -> dict[str, Any]:
    """As it stands before its first delta."""
    match part.kind:
        case "text":
            return {"type": "text", "text": ""}
        case "reasoning":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case _:
            return {"type": "tool_use", "id": part.id, "name": part.tool, "input": {}}


def _block(part: Part) -> dict[str, Any]:
    match part.kind:
        case "text":
            return {"type": "text", "text": part.text}
        case "reasoning":
            return {"type": "thinking", "thinking": part.text, "signature": sign(part.text)}
        case _:
            return {**_opening(part), "input": _arguments(part.text)}


def _arguments(text: str) -> Any:
    """What is no JSON can only be streamed; here it becomes an object, as the provider makes one."""
    try:
        return json.loads(text)
    except ValueError:
        return {"INVALID_JSON": text}
