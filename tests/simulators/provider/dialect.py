"""What the dialects of the simulated provider have in common: frames of a stream, replies, and how content is read."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, Protocol

from tests.simulators.provider.errors import Refusal, Shape, invalid
from tests.simulators.provider.truth import Api, Line
from tests.simulators.provider.turns import Answer, count_tokens

# open: before all content; part: around it; delta: the content; finish: why it ended; usage: the numbers; done: the
# end that says so.
FrameKind = Literal["open", "part", "delta", "finish", "usage", "done"]

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Frame(NamedTuple):
    data: bytes
    kind: FrameKind
    # Seconds before it.
    wait: float = 0.0


class Reply(NamedTuple):
    """All that a dialect needs to put an answer into its words; `finish` says whether it tells why it ended."""

    number: int
    created: int
    model: str
    answer: Answer
    input_tokens: int
    body: dict[str, Any]
    finish: bool = True

    @property
    def output_tokens(self) -> int:
        return self.answer.tokens

    def id(self, prefix: str, position: int | None = None) -> str:
        return f"{prefix}{self.number:08}" + ("" if position is None else f"{position:04}")


class Dialect(Protocol):
    api: Api
    shape: Shape
    # What the id of a call begins with.
    call_prefix: str

    def check(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        """Raises `Refusal` as strictly as the provider."""

    def messages(self, body: dict[str, Any]) -> list[Any]: ...
    def lines(self, body: dict[str, Any]) -> tuple[Line, ...]: ...
    def tool_names(self, body: dict[str, Any]) -> tuple[str, ...]: ...
    def limit(self, body: dict[str, Any]) -> int | None:
        """The most tokens that the answer may have."""

    def frames(self, reply: Reply) -> list[Frame]: ...
    def whole(self, reply: Reply) -> dict[str, Any]: ...
    def error(self, reply: Reply, refusal: Refusal, failed: bool) -> bytes:
        """What a stream says that breaks."""

    def broken(self, reply: Reply, refusal: Refusal) -> dict[str, Any] | None:
        """What a 200 says that is none, where the answer is not streamed; nothing where such a thing is not done."""


def event(data: object, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {dump(data)}\n\n".encode()


def dump(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def count_input(lines: Iterable[Line], tools: list[Any]) -> int:
    """Three tokens for each message beside its words, and what describes the tools."""
    words = sum(
        3 + count_tokens(line.text) + sum(count_tokens(call.tool) + count_tokens(call.args) for call in line.calls)
        for line in lines
    )
    return words + sum(count_tokens(dump(tool)) for tool in tools)


def check_parts(content: list[Any], known: tuple[str, ...], place: str) -> None:
    """An array of typed parts, as OpenAI takes them."""
    if not content:
        raise invalid(
            f"Invalid '{place}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            place,
            "empty_array",
        )
    for position, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in known:
            listed = ", ".join(f"'{name}'" for name in known)
            raise invalid(
                f"Invalid value: '{kind}'. Supported values are: {listed}.",
                f"{place}[{position}].type",
                "invalid_value",
            )
        if kind in ("text", "input_text", "output_text") and not isinstance(part.get("text"), str):
            raise missing(f"{place}[{position}].text")


def check_schema(name: str, schema: object) -> None:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        found = schema.get("type") if isinstance(schema, dict) else None
        raise invalid(
            f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', "
            f"got 'type: \"{found}\"'.",
            "tools[0].function.parameters",
            "invalid_function_parameters",
        )


def check_name(name: object, place: str) -> str:
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise invalid(
            f"Invalid '{place}': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            place,
            "invalid_value",
        )
    return name


def missing(place: str) -> Refusal:
    return invalid(f"Missing required parameter: '{place}'.", place, "missing_required_parameter")


def read_content(content: object, read: Callable[[dict[str, Any]], str]) -> str:
    """The text of a content that may be words or parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(filter(None, (read(part) for part in parts if isinstance(part, dict))))


def listed(body: dict[str, Any], name: str) -> list[Any]:
    """Nothing where it is no list: whoever checks it will say so."""
    found = body.get(name)
    return found if isinstance(found, list) else []


def read_file(file: dict[str, Any]) -> str:
    """Its name and its words: both are somebody's text."""
    return "\n".join(filter(None, (str(file.get("filename") or ""), _read_data(file.get("file_data")))))


def _read_data(url: object) -> str:
    """The words in a data URL; a picture has none."""
    head, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not comma or not head.startswith("data:text/") or not head.endswith(";base64"):
        return ""
    return decode(data)


def decode(data: object) -> str:
    try:
        return base64.b64decode(str(data), validate=True).decode()
    except ValueError:
        return ""
