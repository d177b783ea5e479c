"""What is wrong with a request, in a sentence that says where and what to do instead of a validator's own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

Place = tuple[int | str, ...]
# Takes the value that was given and the limits that it exceeds.
Say = Callable[[Any, Mapping[str, Any]], str]


class Fault(NamedTuple):
    place: str
    sentence: str


def fault_of(error: ValidationError, values: Any) -> Fault:
    """The first fault; where a value may have several shapes, the one that comes closest to being right."""
    found = [(_place(each, values), each) for each in error.errors(include_url=False)]
    first = found[0][0]
    same = [each for each in found if each[0][: len(first)] == first]
    place, details = max(same, key=lambda each: (len(each[0]), not each[1]["type"].endswith("_type")))
    return Fault(".".join(map(str, place)), _sentence(details))


def _place(details: ErrorDetails, values: Any) -> Place:
    """The place of a fault in the client's own terms, without the names of our union members."""
    place: list[int | str] = []
    for part in details["loc"]:
        known = range(len(values)) if isinstance(values, list) else values if isinstance(values, Mapping) else ()
        if part in known:
            values = values[part]
        elif details["type"] != "missing" or part != details["loc"][-1]:
            continue
        place.append(part)
    return tuple(place)


def _sentence(details: ErrorDetails) -> str:
    return _SENTENCES.get(details["type"], _UNKNOWN)(details["input"], details.get("ctx", {}))


def _too_long(given: Any, limits: Mapping[str, Any]) -> str:
    return (
        f"this text has {len(given):,} characters, more than the {limits['max_length']:,} allowed;"
        " shorten it, or send it in several messages"
    )


def _too_many(given: Any, limits: Mapping[str, Any]) -> str:
    return f"this list has {len(given):,} entries, more than the {limits['max_length']:,} allowed"


def _same(sentence: str) -> Say:
    return lambda given, limits: sentence


_UNKNOWN = _same("is not valid; see /openapi.json for what is allowed")
_TRUE_OR_FALSE = _same("must be true or false")
_A_NUMBER = _same("must be a number")
_AN_OBJECT = _same("must be a JSON object")
_SENTENCES: Mapping[str, Say] = {
    "missing": _same("is missing"),
    "string_too_long": _too_long,
    "too_long": _too_many,
    "string_too_short": lambda given, limits: f"must have {limits['min_length']} characters or more",
    "too_short": lambda given, limits: f"must have {limits['min_length']} entries or more",
    "string_type": _same("must be a string"),
    "string_unicode": _same("must be a string of valid characters"),
    "string_pattern_mismatch": _same("has characters that are not allowed here"),
    "list_type": _same("must be a list"),
    "bool_type": _TRUE_OR_FALSE,
    "bool_parsing": _TRUE_OR_FALSE,
    "int_type": _A_NUMBER,
    "int_parsing": _A_NUMBER,
    "int_parsing_size": _A_NUMBER,
    "int_from_float": _same("must be a whole number"),
    "finite_number": _A_NUMBER,
    "greater_than_equal": lambda given, limits: f"must be {limits['ge']} or more",
    "less_than_equal": lambda given, limits: f"must be {limits['le']} or less",
    "literal_error": lambda given, limits: f"must be one of {limits['expected']}",
    "model_type": _AN_OBJECT,
    "model_attributes_type": _AN_OBJECT,
    "dict_type": _AN_OBJECT,
    # Our own words.
    "value_error": lambda given, limits: str(limits["error"]),
}
