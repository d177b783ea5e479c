"""What Discord says when it refuses: a status, a code of its own, and for a bad form which field is why."""

from __future__ import annotations

from typing import Any, NamedTuple


class Upload(NamedTuple):
    name: str
    data: bytes
    type: str = ""


class Refusal(Exception):
    def __init__(self, status: int, code: int, message: str, errors: dict[str, Any] | None = None) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.errors = errors

    @property
    def body(self) -> dict[str, Any]:
        return {"message": self.message, "code": self.code} | ({"errors": self.errors} if self.errors else {})


def invalid(field: str, code: str, message: str) -> Refusal:
    """A bad form; a field inside another is named with dots."""
    errors: dict[str, Any] = {"_errors": [{"code": code, "message": message}]}
    for name in reversed(field.split(".") if field else []):
        errors = {name: errors}
    return Refusal(400, 50035, "Invalid Form Body", errors)


def too_long(field: str, limit: int) -> Refusal:
    return invalid(field, "BASE_TYPE_MAX_LENGTH", f"Must be {limit} or fewer in length.")


def required(field: str) -> Refusal:
    return invalid(field, "BASE_TYPE_REQUIRED", "This field is required")


def unauthorized() -> Refusal:
    return Refusal(401, 0, "401: Unauthorized")


def unknown_channel() -> Refusal:
    return Refusal(404, 10003, "Unknown Channel")


def unknown_message() -> Refusal:
    return Refusal(404, 10008, "Unknown Message")


def no_access() -> Refusal:
    return Refusal(403, 50001, "Missing Access")


def no_permission() -> Refusal:
    return Refusal(403, 50013, "Missing Permissions")


def archived() -> Refusal:
    return Refusal(400, 50083, "Thread is archived")


def unsimulated(what: str) -> Refusal:
    """Loudly, lest somebody takes it for the platform's word."""
    return Refusal(501, 0, f"the simulator has no {what}")
