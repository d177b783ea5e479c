"""A log line tells which run it is about, is one line, and never tells a secret."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tidings.core import context, redaction
from tidings.core.context import Session
from tidings.core.roles import OWNER
from tidings.core.telemetry import logs
from tidings.core.types import Capabilities, Conversation, Sender, SendProof, Target

SECRET = "canary-5f3a9c"
log = logging.getLogger("tidings.core.outbound.courier")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError(f"no words, only {SECRET}")


class Endless:
    def __str__(self) -> str:
        return str(self)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    redaction.remember(SECRET)
    yield
    redaction.forget_all()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in logs.QUIET:
        logging.getLogger(name).setLevel(logging.NOTSET)


def configured(format: Literal["auto", "text", "json"] = "json", level: str = "info") -> io.StringIO:
    # The handlers of pytest itself raise when a record is bad.
    logging.getLogger().handlers.clear()
    stream = io.StringIO()
    logs.configure(level, format, stream)
    return stream


def session() -> Session:
    target = Target(adapter="paper", chat="42")
    can = Capabilities(
        async_delivery=True,
        streaming_edits=True,
        send_proof=SendProof(keyed_for=0, readback=False),
        threads=False,
        reactions=False,
        buttons=False,
        files=False,
        typing=False,
        hears_all=True,
        pace=(),
        show_pace=(),
        signal_pace=(),
    )
    return Session(
        run="r1",
        conversation=Conversation(adapter="paper", account="main", chat="42"),
        sender=Sender(id="1"),
        bot="demo",
        target=target,
        can=can,
        workspace=Path("/nowhere"),
        person=OWNER,
        permissions=frozenset(),
    )


def check(stream: io.StringIO, **expected: str) -> None:
    """The stream holds exactly one JSON record, with these fields."""
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert {name: record.get(name) for name in expected} == expected


def test_a_json_record_is_one_object_on_one_line() -> None:
    stream = configured()
    log.warning("delivered %s\nto %s", "d1", "paper")
    check(stream, level="warning", logger="tidings.core.outbound.courier", message="delivered d1\nto paper")
    assert json.loads(stream.getvalue())["at"].endswith("+00:00")


def test_a_record_names_its_run_and_conversation_only_inside_a_run() -> None:
    stream = configured()
    with context.bind(session()):
        log.info("inside")
    check(stream, run="r1", conversation="paper:main:42")
    text = configured("text")
    with context.bind(session()):
        log.info("inside")
    log.info("outside")
    inside, outside = text.getvalue().splitlines()
    assert inside.endswith("info     outbound.courier: inside run=r1 conversation=paper:main:42")
    assert outside.endswith("info     outbound.courier: outside")


@pytest.mark.parametrize("format", ["text", "json"])
def test_no_secret_is_logged_wherever_it_hides(format: Literal["text", "json"]) -> None:
    stream = configured(format)
    log.info("token %s", SECRET)
    log.info(f"template {SECRET}")  # noqa: G004
    log.info("shape 123456789:%s", "A" * 35)
    log.info("stack", stack_info=True)
    logging.getLogger(SECRET).info("name")
    try:
        try:
            raise ValueError(SECRET)
        except ValueError as error:
            raise LookupError(f"https://user:{SECRET}@host/") from error
    except LookupError:
        log.exception("it failed")
    shown = stream.getvalue()
    assert "LookupError" in shown
    assert shown.count(redaction.REDACTED) >= 6
    assert SECRET not in shown
    assert "A" * 35 not in shown


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("evil", ["\n", "\r", "\x1b[2K", "\x85", "\u2028", "\u202e", "\x9b", "\ud800", "\x00", "\x0b"])
def test_a_message_cannot_forge_another_record(format: Literal["text", "json"], evil: str) -> None:
    stream = configured(format)
    log.info("hello%s2026-01-01 00:00:00.000 info     core: forged", evil)
    assert len(stream.getvalue().splitlines()) == 1
    assert evil not in stream.getvalue().rstrip("\n")
    stream.getvalue().encode()


def test_the_text_of_an_error_stays_indented_below_its_record() -> None:
    stream = configured("text")
    try:
        raise ValueError("first\n2026-01-01 00:00:00.000 info     core: forged\x1b[2K")
    except ValueError:
        log.exception("it failed")
    first, *below = stream.getvalue().splitlines()
    assert first.endswith("error    outbound.courier: it failed")
    assert [line for line in below if not line.startswith("    ")] == []
    assert r"core: forged\x1b[2K" in below[-1]


def test_auto_is_text_in_a_terminal_and_json_otherwise() -> None:
    terminal = Terminal()
    logs.configure("info", "auto", terminal)
    log.info("hello")
    assert terminal.getvalue().endswith("outbound.courier: hello\n")
    stream = configured("auto")
    log.info("hello")
    check(stream, message="hello")


def test_setting_up_twice_writes_each_record_once_and_spares_other_handlers() -> None:
    first, second, other = configured(), io.StringIO(), logging.NullHandler()
    logging.getLogger().addHandler(other)
    logs.configure("info", "json", second)
    log.info("hello")
    assert first.getvalue() == ""
    check(second, message="hello")
    assert other in logging.getLogger().handlers


@pytest.mark.parametrize(
    ("level", "name", "at", "written"),
    [
        ("info", "tidings.core.x", logging.DEBUG, False),
        ("debug", "tidings.core.x", logging.DEBUG, True),
        ("info", "httpx", logging.INFO, False),
        ("debug", "aiohttp.access", logging.INFO, False),
        ("debug", "httpcore.connection", logging.WARNING, True),
        ("error", "httpx", logging.WARNING, False),
    ],
)
def test_levels_hold_and_chatty_libraries_are_quiet(level: str, name: str, at: int, written: bool) -> None:
    stream = configured(level=level)
    logging.getLogger(name).log(at, "hello")
    assert bool(stream.getvalue()) is written


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize(
    ("template", "argument"),
    [("%s and %s", "one"), ("%d", "no number"), ("%s", Unprintable()), ("%s", Endless()), (Unprintable(), None)],
)
def test_a_bad_record_is_reported_and_raises_nothing(
    format: Literal["text", "json"], template: object, argument: object, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = configured(format)
    log.info(template, argument)
    (line,) = stream.getvalue().splitlines()
    assert "could not be written" in line
    assert SECRET not in line + capsys.readouterr().err


def test_a_closed_stream_raises_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    configured().close()
    log.info("token %s", SECRET)
    assert SECRET not in capsys.readouterr().err
