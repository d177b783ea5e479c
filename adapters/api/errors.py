"""What went wrong, in the shape that clients of the OpenAI API read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from tidings.core.agent import Outcome
from tidings.core.errors import TidingsError, Unstored


class Error(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    error: Error


class PlainErrorBody(BaseModel):
    """An error as clients of jobs read it."""

    error: Error | str


class Problem(TidingsError):
    """Answered as this status; `code` is a word that a program may look at."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = headers

    @property
    def body(self) -> dict[str, Any]:
        return {"error": error_of(str(self), kind_of(self.status), self.code, self.param)}


def error_of(message: str, kind: str, code: str, param: str | None = None) -> dict[str, Any]:
    return Error(message=message, type=kind, param=param, code=code).model_dump()


def kind_of(status: int) -> str:
    kinds = {401: "authentication_error", 403: "permission_error", 424: "server_error", 429: "rate_limit_error"}
    return kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")


def not_found(what: str) -> Problem:
    """The same answer for an object that never was and for one of another client."""
    return Problem(404, f"there is no such {what}", f"{what}_not_found")


def unstored(error: Unstored) -> Problem:
    return Problem(503, f"nothing can be stored now: {error}", "unstored", headers={"Retry-After": "1"})


FINAL = {"X-Should-Retry": "false"}
CONFLICT = "this Idempotency-Key was used for another body"


def status_of_failure(outcome: Outcome) -> tuple[int, Mapping[str, str] | None]:
    """502 only if a retry may succeed and repeats no effect, else 424.

    SDKs retry every 5xx, and not all of them obey a header that tells them not to.
    """
    return (502, None) if outcome.passing else (424, FINAL)


def stopping() -> Problem:
    return Problem(503, "the gateway stopped before this was answered; try again", "stopping")


def failed(outcome: Outcome) -> Problem:
    status, headers = status_of_failure(outcome)
    return Problem(
        status, outcome.reason or "the agent could not answer", f"agent_{outcome.kind.value}", headers=headers
    )
