"""OpenAI's chat completions, as the simulated provider takes and makes them."""

from __future__ import annotations

from typing import Any

from tests.simulators.provider.dialect import (
    Frame,
    Reply,
    check_name,
    check_parts,
    check_schema,
    dump,
    event,
    listed,
    missing,
    read_content,
    read_file,
)
from tests.simulators.provider.errors import Refusal, Shape, invalid
from tests.simulators.provider.truth import Api, Asked, Line
from tests.simulators.provider.turns import Part

ROLES = ("system", "assistant", "user", "function", "tool", "developer")
# What a message of each role may be made of.
PARTS = {
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "system": ("text",),
    "developer": ("text",),
    "tool": ("text",),
}
FINISH = {"stop": "stop", "tools": "tool_calls", "length": "length", "filter": "content_filter"}
ID_LENGTH = 40
DONE = b"data: [DONE]\n\n"


class Chat:
    api: Api = "chat"
    shape: Shape = "openai"
    call_prefix = "call_"

    def check(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise missing("messages")
        if not messages:
            raise invalid(
                "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array "
                "instead.",
                "messages",
                "empty_array",
            )
        if "stream_options" in body and not body.get("stream"):
            raise invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
        self._check_tools(body)
        open_ids: list[str] = []
        for position, message in enumerate(messages):
            open_ids = self._check_message(position, message, open_ids)
        _check_answered(open_ids, len(messages))

    def _check_tools(self, body: dict[str, Any]) -> None:
        tools = body.get("tools")
        if tools is None:
            if body.get("tool_choice") is not None:
                raise invalid(
                    "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
                    "tool_choice",
                )
            return
        if not isinstance(tools, list) or not tools:
            raise invalid(
                "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array "
                "instead.",
                "tools",
                "empty_array",
            )
        for position, tool in enumerate(tools):
            function = tool.get("function") if isinstance(tool, dict) else None
            if not isinstance(function, dict):
                raise missing(f"tools[{position}].function")
            name = check_name(function.get("name"), f"tools[{position}].function.name")
            if "parameters" in function:
                check_schema(name, function["parameters"])

    def _check_message(self, position: int, message: Any, open_ids: list[str]) -> list[str]:
        """Which calls are without an answer after this message."""
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES or role == "function":
            listed = ", ".join(f"'{name}'" for name in ROLES[:-1])
            raise invalid(
                f"Invalid value: '{role}'. Supported values are: {listed}, and '{ROLES[-1]}'.",
                f"messages[{position}].role",
                "invalid_value",
            )
        calls = message.get("tool_calls")
        if role == "tool":
            call = message.get("tool_call_id")
            if not isinstance(call, str):
                raise missing(f"messages[{position}].tool_call_id")
            if call not in open_ids:
                raise invalid(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    f"messages.[{position}].role",
                )
            open_ids = [each for each in open_ids if each != call]
        else:
            _check_answered(open_ids, position)
            open_ids = _check_calls(position, calls) if role == "assistant" and calls is not None else []
        self._check_content(position, role, message.get("content"), bool(calls))
        return open_ids

    def _check_content(self, position: int, role: str, content: object, has_calls: bool) -> None:
        place = f"messages.[{position}].content"
        if isinstance(content, list):
            check_parts(content, PARTS[role], f"messages[{position}].content")
        elif content is None and not has_calls:
            raise invalid("Invalid value for 'content': expected a string, got null.", place)
        elif content is not None and not isinstance(content, str):
            raise invalid("Invalid type for 'content': expected a string or an array of objects.", place)
        # A tool may have nothing to say.
        if role != "tool" and not has_calls and not _has_substance(content):
            raise invalid("Invalid value for 'content': expected a non-empty string.", place, "empty_string")

    def messages(self, body: dict[str, Any]) -> list[Any]:
        return listed(body, "messages")

    def lines(self, body: dict[str, Any]) -> tuple[Line, ...]:
        lines = []
        for message in body["messages"]:
            role = "system" if message["role"] == "developer" else message["role"]
            calls = tuple(
                Asked(call["function"]["name"], call["function"]["arguments"], call["id"])
                for call in message.get("tool_calls") or ()
            )
            text = read_content(message.get("content"), _read)
            lines.append(Line(role, text, calls, message.get("tool_call_id") or ""))
        return tuple(lines)

    def tool_names(self, body: dict[str, Any]) -> tuple[str, ...]:
        return tuple(tool["function"]["name"] for tool in body.get("tools") or ())

    def limit(self, body: dict[str, Any]) -> int | None:
        return body.get("max_completion_tokens") or body.get("max_tokens")

    def frames(self, reply: Reply) -> list[Frame]:
        wants_usage = bool((reply.body.get("stream_options") or {}).get("include_usage"))
        head = dump({**_head(reply, "chat.completion.chunk"), "system_fingerprint": "fp_simulated"})[:-1]
        tail = ',"usage":null}' if wants_usage else "}"

        def chunk(delta: str, finish: str = "null") -> bytes:
            choice = f'{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}'
            return f'data: {head},"choices":[{choice}]{tail}\n\n'.encode()

        frames = [Frame(chunk('{"role":"assistant","content":"","refusal":null}'), "open")]
        number = 0
        for part in reply.answer.parts:
            if part.kind != "call":
                field = "content" if part.kind == "text" else "reasoning_content"
                frames += [Frame(chunk(f'{{"{field}":{dump(piece)}}}'), "delta", part.wait) for piece in part.pieces]
                continue
            function = {"name": part.tool, "arguments": ""}
            opening = {"tool_calls": [{"index": number, "id": part.id, "type": "function", "function": function}]}
            frames.append(Frame(chunk(dump(opening)), "part"))
            for piece in part.pieces:
                more = {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}
                frames.append(Frame(chunk(dump(more)), "delta", part.wait))
            number += 1
        frames.append(Frame(chunk("{}", dump(FINISH[reply.answer.finish])), "finish"))
        if wants_usage:
            usage = dump({"choices": [], "usage": _usage(reply)})[1:]
            frames.append(Frame(f"data: {head},{usage}\n\n".encode(), "usage"))
        frames.append(Frame(DONE, "done"))
        return frames

    def whole(self, reply: Reply) -> dict[str, Any]:
        answer = reply.answer
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [_call(part) for part in answer.calls]
        finish = FINISH[answer.finish] if reply.finish else None
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def error(self, reply: Reply, refusal: Refusal, failed: bool) -> bytes:
        return event(refusal.told(self.shape, reply.id("req_")))

    def broken(self, reply: Reply, refusal: Refusal) -> dict[str, Any]:
        # As routers do that had sent their headers before they asked anybody.
        return refusal.told(self.shape, reply.id("req_"))


def _check_calls(position: int, calls: Any) -> list[str]:
    place = f"messages[{position}].tool_calls"
    if not isinstance(calls, list) or not calls:
        raise invalid(
            f"Invalid '{place}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            place,
            "empty_array",
        )
    for number, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
            raise missing(f"{place}[{number}].function.arguments")
        check_name(function.get("name"), f"{place}[{number}].function.name")
        name = call.get("id")
        if not isinstance(name, str):
            raise missing(f"{place}[{number}].id")
        if len(name) > ID_LENGTH:
            raise invalid(
                f"Invalid '{place}[{number}].id': string too long. Expected a string with maximum length {ID_LENGTH}, "
                f"but got a string with length {len(name)} instead.",
                f"{place}[{number}].id",
                "string_above_max_length",
            )
    return [call["id"] for call in calls]


def _check_answered(open_ids: list[str], position: int) -> None:
    if open_ids:
        raise invalid(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_ids)}",
            f"messages.[{position}].role",
        )


def _has_substance(content: object) -> bool:
    if isinstance(content, list):
        return any(part.get("type") != "text" or part["text"] for part in content)
    return bool(content)


def _read(part: dict[str, Any]) -> str:
    match part.get("type"):
        case "text":
            return str(part.get("text", ""))
        case "file":
            return read_file(part.get("file") or {})
        case _:
            return ""


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    return {"id": reply.id("chatcmpl-"), "object": kind, "created": reply.created, "model": reply.model}


def _call(part: Part) -> dict[str, Any]:
    return {"id": part.id, "type": "function", "function": {"name": part.tool, "arguments": part.text}}


def _usage(reply: Reply) -> dict[str, Any]:
    thought = sum(part.tokens for part in reply.answer.parts if part.kind == "reasoning")
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
