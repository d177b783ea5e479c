"""What the simulated providers say when they refuse, in the words and shapes of the real ones."""

from __future__ import annotations

import json
from typing import Any, Literal

Shape = Literal["openai", "anthropic"]

HTML = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n"
    b"<hr><center>cloudflare</center>\r\n</body>\r\n</html>\r\n"
)

# By status: message, type and code.
OPENAI: dict[int, tuple[str, str, str | None]] = {
    400: ("Invalid request: armed by the test", "invalid_request_error", None),
    401: ("Incorrect API key provided", "invalid_request_error", "invalid_api_key"),
    402: ("Insufficient Balance", "insufficient_balance", "insufficient_balance"),
    403: ("Country, region, or territory not supported", "request_forbidden", "unsupported_country_region_territory"),
    404: ("The requested resource does not exist", "invalid_request_error", "not_found"),
    408: ("Request timed out", "timeout", "request_timeout"),
    409: ("The resource was updated by another process", "invalid_request_error", "conflict"),
    413: ("Request too large", "invalid_request_error", "request_too_large"),
    422: ("Unprocessable entity", "invalid_request_error", None),
    429: ("Rate limit reached for requests per min (RPM)", "requests", "rate_limit_exceeded"),
    500: ("The server had an error while processing your request. Sorry about that!", "server_error", None),
    503: ("The engine is currently overloaded, please try again later", "server_error", "service_unavailable"),
    504: ("Gateway timeout", "server_error", None),
    529: ("Overloaded", "server_error", "overloaded"),
}
# By status: type and message.
ANTHROPIC: dict[int, tuple[str, str]] = {
    400: ("invalid_request_error", "Invalid request: armed by the test"),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "Your credit balance is too low to access the Anthropic API."),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "The requested resource could not be found."),
    408: ("timeout_error", "Request timed out"),
    409: ("conflict_error", "The resource was updated by another process"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    500: ("api_error", "Internal server error"),
    503: ("api_error", "Service unavailable"),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}


class Refusal(Exception):
    """An answer with an error status; what is not said is said as the provider says it."""

    def __init__(
        self,
        status: int,
        message: str = "",
        *,
        param: str | None = None,
        code: str | None = None,
        type: str = "",
        retry_after: float | None = None,
        body: bytes | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.type = type
        self.retry_after = retry_after
        # Instead of JSON.
        self.body = HTML if body is None and status == 502 and not message else body

    def told(self, shape: Shape, request_id: str) -> dict[str, Any]:
        """The JSON of it."""
        if shape == "anthropic":
            kind, words = ANTHROPIC.get(self.status, ("api_error", "Error"))
            error = {"type": self.type or kind, "message": self.message or words}
            return {"type": "error", "error": error, "request_id": request_id}
        words, kind, code = OPENAI.get(self.status, ("Error", "server_error", None))
        # A message of one's own has no code that it does not name.
        code = self.code if self.message else self.code or code
        error = {"message": self.message or words, "type": self.type or kind, "param": self.param, "code": code}
        return {"error": error}

    def headers(self, shape: Shape, request_id: str) -> dict[str, str]:
        name = "request-id" if shape == "anthropic" else "x-request-id"
        waiting = {} if self.retry_after is None else {"retry-after": f"{self.retry_after:g}"}
        return {name: request_id, **waiting}

    def response(self, shape: Shape, request_id: str) -> tuple[bytes, str]:
        """Body and content type."""
        if self.body is not None:
            return self.body, "text/html" if self.body.lstrip()[:1] == b"<" else "text/plain"
        return json.dumps(self.told(shape, request_id)).encode(), "application/json"


def invalid(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    return Refusal(400, message, param=param, code=code, type="invalid_request_error")


def wrong_key(shape: Shape, key: str) -> Refusal:
    """OpenAI repeats part of the key, which is why logs must be careful with its words."""
    if shape == "anthropic":
        return Refusal(401)
    if not key:
        return Refusal(401, "You didn't provide an API key.", type="invalid_request_error")
    masked = key if len(key) < 12 else f"{key[:8]}{'*' * (len(key) - 12)}{key[-4:]}"
    message = f"Incorrect API key provided: {masked}. You can find your API key in your account."
    return Refusal(401, message, type="invalid_request_error", code="invalid_api_key")


def unknown_model(shape: Shape, model: str) -> Refusal:
    if shape == "anthropic":
        return Refusal(404, f"model: {model}")
    message = f"The model `{model}` does not exist or you do not have access to it."
    return Refusal(404, message, type="invalid_request_error", code="model_not_found")


def too_long(shape: Shape, tokens: int, window: int) -> Refusal:
    if shape == "anthropic":
        return invalid(f"prompt is too long: {tokens} tokens > {window} maximum")
    return invalid(
        f"This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} tokens. "
        "Please reduce the length of the messages.",
        "messages",
        "context_length_exceeded",
    )
