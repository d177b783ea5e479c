"""Sets up logging: one line for each record, without secrets, with the run that it belongs to."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal, TextIO

from tidings.core import context, redaction

# Libraries that log addresses, and with them tokens, for every request.
QUIET = (
    "aiohttp.access",
    "aiohttp.client",
    "h2",
    "hpack",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "mcp",
    "openai",
    "urllib3",
    "websockets",
)

_OUR_PACKAGES = ("tidings.core.", "tidings.adapters.", "tidings.bots.")
# Characters that end a line, move the cursor, change the direction of writing, or cannot be encoded.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def configure(level: str, format: Literal["auto", "text", "json"], stream: TextIO) -> None:
    """May be called again: a second call replaces only the handler that the first one set."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    as_text = stream.isatty() if format == "auto" else format == "text"
    handler = _Handler(stream)
    handler.setFormatter(_TextFormatter() if as_text else _JsonFormatter())
    handler.addFilter(_name_the_run)

    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Handler)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(threshold)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))


def _name_the_run(record: logging.LogRecord) -> bool:
    """Adds run and conversation to a record; deliveries run outside sessions and add these names themselves."""
    if session := context.current_or_none():
        record.run, record.conversation = session.run, session.conversation.id
    return True


class _Handler(logging.StreamHandler[TextIO]):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except RecursionError:
            # The standard library does not handle this error, which a value that prints itself can cause.
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Reports a lost record in a line of our own, because the usual report would print its arguments unredacted."""
        kind = sys.exc_info()[0]
        about = f"a record could not be written ({kind.__name__ if kind else 'no error'})"
        if isinstance(record.msg, str):
            about += f": {ascii(redaction.clean(record.msg))}"
        substitute = logging.makeLogRecord(
            {"name": record.name, "levelno": record.levelno, "levelname": record.levelname, "msg": about}
        )
        # A stream that is closed or full cannot report its own failure.
        with suppress(OSError, ValueError):
            self.stream.write(self.format(substitute) + self.terminator)
            self.flush()


class _TextFormatter(logging.Formatter):
    """Formats for people: one line, then the traceback, indented so that it cannot pass for another record."""

    def format(self, record: logging.LogRecord) -> str:
        name = redaction.clean(record.name)
        for package in _OUR_PACKAGES:
            name = name.removeprefix(package)
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        line = f"{at}.{int(record.msecs):03} {record.levelname.lower():<8} {name}: {_message(record)}"
        run, conversation = _run(record)
        if run or conversation:
            line += f" run={run} conversation={conversation}"
        lines = [line, *(f"    {below}" for below in _error(self, record).splitlines())]
        return "\n".join(_escape(part) for part in lines)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        run, conversation = _run(record)
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": redaction.clean(record.name),
            "message": _message(record),
            "run": run,
            "conversation": conversation,
            "error": _error(self, record),
        }
        # Non-ASCII characters are escaped, so that none of them can do harm in a terminal.
        return json.dumps({name: value for name, value in fields.items() if value or name == "message"})


def _message(record: logging.LogRecord) -> str:
    return redaction.clean(record.getMessage())


def _run(record: logging.LogRecord) -> tuple[str, str]:
    return getattr(record, "run", ""), redaction.clean(getattr(record, "conversation", ""))


def _error(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    # The text that another handler has cached in the record may be incomplete, so it is formatted again.
    parts = [formatter.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
    if record.stack_info:
        parts.append(record.stack_info)
    return redaction.clean("\n".join(parts))


def _escape(line: str) -> str:
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), line)
