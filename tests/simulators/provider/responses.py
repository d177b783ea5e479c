"""OpenAI's Responses, as the simulated provider takes and makes them."""

from __future__ import annotations

from typing import Any

from tests.simulators.provider.dialect import (
    Frame,
    FrameKind,
    Reply,
    check_name,
    check_parts,
    check_schema,
    dump,
    event,
    missing,
    read_content,
    read_file,
)
from tests.simulators.provider.errors import Refusal, Shape, invalid
from tests.simulators.provider.truth import Api, Asked, Line
from tests.simulators.provider.turns import Part

ROLES = ("assistant", "system", "developer", "user")
INPUTS = ("input_text", "input_image", "input_file")
OUTPUTS = ("output_text", "refusal")
# What an id must begin with, by the type of the item.
PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
# Of a part: the event with its pieces, and the one with all of them.
DELTAS = {
    "text": ("response.output_text.delta", "response.output_text.done", "text"),
    "reasoning": ("response.reasoning_summary_text.delta", "response.reasoning_summary_text.done", "text"),
    "call": ("response.function_call_arguments.delta", "response.function_call_arguments.done", "arguments"),
}
# Why an answer is incomplete.
REASONS = {"length": "max_output_tokens", "filter": "content_filter"}


class Responses:
    api: Api = "responses"
    shape: Shape = "openai"
    call_prefix = "call_"

    def check(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        given = body.get("input")
        for name in ("previous_response_id", "conversation", "prompt"):
            if body.get(name) is not None:
                raise invalid(f"the simulator keeps no responses: {name}", name, "unsimulated")
        if not given or not isinstance(given, str | list):
            raise missing("input")
        self._check_tools(body)
        if isinstance(given, str):
            return
        asked: list[str] = []
        answered: list[str] = []
        for position, item in enumerate(given):
            match self._check_item(f"input[{position}]", item):
                case "function_call":
                    asked.append(item["call_id"])
                case "function_call_output":
                    answered.append(item["call_id"])
                    if item["call_id"] not in asked:
                        raise invalid(
                            f"No tool call found for function call output with call_id {item['call_id']}.", "input"
                        )
                case _:
                    continue
        for call in asked:
            if call not in answered:
                raise invalid(f"No tool output found for function call {call}.", "input")

    def _check_tools(self, body: dict[str, Any]) -> None:
        for position, tool in enumerate(body.get("tools") or []):
            if not isinstance(tool, dict) or tool.get("type") != "function":
                raise invalid("the simulator has function tools only", f"tools[{position}].type", "unsimulated")
            name = check_name(tool.get("name"), f"tools[{position}].name")
            if tool.get("parameters") is not None:
                check_schema(name, tool["parameters"])

    def _check_item(self, place: str, item: Any) -> str:
        """Its type."""
        if not isinstance(item, dict):
            raise invalid(f"Invalid type for '{place}': expected an object.", place, "invalid_type")
        kind = str(item.get("type") or "message")
        name = item.get("id")
        if name is not None and not str(name).startswith(PREFIXES.get(kind, "")):
            raise invalid(
                f"Invalid '{place}.id': '{name}'. Expected an ID that begins with '{PREFIXES[kind]}'.",
                f"{place}.id",
                "invalid_value",
            )
        match kind:
            case "message":
                self._check_message(place, item)
            case "function_call":
                check_name(item.get("name"), f"{place}.name")
                _check_strings(place, item, "call_id", "arguments")
            case "function_call_output":
                _check_strings(place, item, "call_id")
                if not isinstance(item.get("output"), str | list):
                    raise missing(f"{place}.output")
            case "reasoning":
                if not isinstance(item.get("summary"), list):
                    raise missing(f"{place}.summary")
            case _:
                raise invalid(
                    f"Invalid value: '{kind}'. Supported values are: 'message', 'function_call', "
                    "'function_call_output', and 'reasoning'.",
                    place,
                    "invalid_value",
                )
        return kind

    def _check_message(self, place: str, item: dict[str, Any]) -> None:
        role, content = item.get("role"), item.get("content")
        if role not in ROLES:
            listed = ", ".join(f"'{name}'" for name in ROLES[:-1])
            raise invalid(
                f"Invalid value: '{role}'. Supported values are: {listed}, and '{ROLES[-1]}'.",
                f"{place}.role",
                "invalid_value",
            )
        if isinstance(content, list):
            check_parts(content, OUTPUTS if role == "assistant" else INPUTS, f"{place}.content")
        elif not isinstance(content, str):
            raise missing(f"{place}.content")
        parts = content if isinstance(content, list) else [{"text": content}]
        if not any(part.get("text") or "text" not in part for part in parts):
            raise invalid(
                "Invalid value for 'content': expected a non-empty string.", f"{place}.content", "empty_string"
            )

    def messages(self, body: dict[str, Any]) -> list[Any]:
        given = body.get("input")
        return given if isinstance(given, list) else [given]

    def lines(self, body: dict[str, Any]) -> tuple[Line, ...]:
        lines = [Line("system", body["instructions"])] if body.get("instructions") else []
        for item in self.messages(body):
            match item if isinstance(item, str) else item.get("type", "message"):
                case "function_call":
                    lines.append(Line("assistant", "", (Asked(item["name"], item["arguments"], item["call_id"]),)))
                case "function_call_output":
                    lines.append(Line("tool", read_content(item["output"], _read), id=item["call_id"]))
                case "reasoning":
                    continue
                case "message":
                    role = "system" if item["role"] == "developer" else item["role"]
                    lines.append(Line(role, read_content(item["content"], _read)))
                case _:
                    lines.append(Line("user", item))
        return tuple(lines)

    def tool_names(self, body: dict[str, Any]) -> tuple[str, ...]:
        return tuple(tool["name"] for tool in body.get("tools") or ())

    def limit(self, body: dict[str, Any]) -> int | None:
        return body.get("max_output_tokens")

    def frames(self, reply: Reply) -> list[Frame]:
        stream = _Stream()
        begun = _response(reply, "in_progress", [])
        stream.add("open", "response.created", response=begun)
        stream.add("open", "response.in_progress", response=begun)
        for index, part in enumerate(reply.answer.parts):
            _stream_part(stream, reply, index, part)
        whole = self.whole(reply._replace(finish=True))
        stream.add("finish", f"response.{whole['status']}", response=whole)
        return stream.frames

    def whole(self, reply: Reply) -> dict[str, Any]:
        output = [_item(reply, index, part) for index, part in enumerate(reply.answer.parts)]
        reason = REASONS.get(reply.answer.finish)
        whole = _response(reply, "incomplete" if reason else "completed", output)
        whole["incomplete_details"] = {"reason": reason} if reason else None
        if not reply.finish:
            whole |= {"status": None, "incomplete_details": None}
        thought = sum(part.tokens for part in reply.answer.parts if part.kind == "reasoning")
        whole["usage"] = {
            "input_tokens": reply.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": reply.output_tokens,
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": reply.input_tokens + reply.output_tokens,
        }
        return whole

    def error(self, reply: Reply, refusal: Refusal, failed: bool) -> bytes:
        error = refusal.told(self.shape, reply.id("req_"))["error"]
        if failed:
            told = {"type": "response.failed", "response": self.broken(reply, refusal), "sequence_number": 999}
            return event(told, "response.failed")
        told = {"type": "error", "code": error["code"] or error["type"], "message": error["message"], "param": None}
        return event({**told, "sequence_number": 999}, "error")

    def broken(self, reply: Reply, refusal: Refusal) -> dict[str, Any]:
        error = refusal.told(self.shape, reply.id("req_"))["error"]
        told = {"code": error["code"] or error["type"], "message": error["message"]}
        return {**_response(reply, "failed", []), "error": told}


class _Stream:
    """Events with their numbers."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def add(self, kind: FrameKind, type: str, **more: Any) -> None:
        data = {"type": type, "sequence_number": len(self.frames), **more}
        self.frames.append(Frame(event(data, type), kind))

    def add_pieces(self, name: str, place: dict[str, Any], part: Part) -> None:
        head = f"event: {name}\ndata: " + dump({"type": name, **place})[:-1]
        for piece in part.pieces:
            data = f'{head},"sequence_number":{len(self.frames)},"delta":{dump(piece)}}}\n\n'
            self.frames.append(Frame(data.encode(), "delta", part.wait))


def _stream_part(stream: _Stream, reply: Reply, index: int, part: Part) -> None:
    item = _item(reply, index, part)
    delta, done, field = DELTAS[part.kind]
    place: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    match part.kind:
        case "call":
            empty: dict[str, Any] = {"arguments": ""}
            inner, around = {}, ""
        case "text":
            empty = {"content": []}
            inner, around = {"content_index": 0}, "response.content_part"
        case _:
            empty = {"summary": []}
            inner, around = {"summary_index": 0}, "response.reasoning_summary_part"
    opened = {**item, **empty}
    if "status" in item:
        opened["status"] = "in_progress"
    stream.add("part", "response.output_item.added", output_index=index, item=opened)
    made = (item.get("content") or item.get("summary") or [{}])[0]
    if around:
        stream.add("part", f"{around}.added", **place, **inner, part={**made, "text": ""})
    logprobs = {"logprobs": []} if part.kind == "text" else {}
    stream.add_pieces(delta, {**place, **inner, **logprobs}, part)
    name = {"name": part.tool} if part.kind == "call" else {}
    stream.add("part", done, **place, **inner, **logprobs, **name, **{field: part.text})
    if around:
        stream.add("part", f"{around}.done", **place, **inner, part=made)
    stream.add("part", "response.output_item.done", output_index=index, item=item)


def _item(reply: Reply, index: int, part: Part) -> dict[str, Any]:
    match part.kind:
        case "text":
            content = [{"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}]
            head = {"id": reply.id("msg_", index), "type": "message", "status": "completed", "role": "assistant"}
            return {**head, "content": content}
        case "reasoning":
            summary = [{"type": "summary_text", "text": part.text}]
            return {"id": reply.id("rs_", index), "type": "reasoning", "summary": summary}
        case _:
            head = {"id": reply.id("fc_", index), "type": "function_call", "status": "completed"}
            return {**head, "call_id": part.id, "name": part.tool, "arguments": part.text}


def _response(reply: Reply, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": reply.id("resp_"),
        "object": "response",
        "created_at": reply.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": reply.body.get("instructions"),
        "metadata": {},
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": reply.body.get("tools") or [],
        "top_p": 1.0,
        "usage": None,
    }


def _check_strings(place: str, item: dict[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(item.get(name), str):
            raise missing(f"{place}.{name}")


def _read(part: dict[str, Any]) -> str:
    return read_file(part) if part.get("type") == "input_file" else str(part.get("text", ""))
