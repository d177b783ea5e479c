"""No secret leaves the process, however a stream is cut; anything else passes as it is, and at once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.core import redaction
from tidings.core.redaction import REDACTED, Stream

TELEGRAM = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw-"
DISCORD = "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
EXACT = "s3cret/with space"
PREFIXED = "s3cret/with space and more"


@pytest.fixture(autouse=True)
def _secrets() -> Iterator[None]:
    redaction.remember(EXACT, PREFIXED, "hunter2hunter2", "canary-ZqQZ")
    yield
    redaction.forget_all()


def check(text: str, expected: str) -> None:
    assert redaction.clean(text) == expected
    # The same by letters, as a stream.
    assert streamed(list(text)) == expected


def streamed(deltas: list[str]) -> str:
    stream = Stream()
    return "".join([*(stream.feed(delta) for delta in deltas), stream.flush()])


def check_deltas(deltas: list[str], shown: list[str]) -> None:
    """What each delta shows, and last what the flush does."""
    stream = Stream()
    assert [*(stream.feed(delta) for delta in deltas), stream.flush()] == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"it is {EXACT}!", "it is [redacted]!"),
        (f"{PREFIXED} and {EXACT} an", "[redacted] and [redacted] an"),
        ("?key=s3cret%2Fwith%20space&x", "?key=[redacted]&x"),
        ("?key=s3cret/with%20space&x", "?key=[redacted]&x"),
        ("key=s3cret%2Fwith+space", "key=[redacted]"),
        ("s3cret%2Fwith%20space%20and%20more", "[redacted]"),
        ("hunter2hunter2hunter2", "[redacted]"),
    ],
)
def test_configured_values_are_redacted_also_when_quoted(text: str, shown: str) -> None:
    check(text, shown)


def test_a_value_read_from_a_file_counts_without_its_line_end_and_in_json() -> None:
    redaction.remember('multi\n"line"\n')
    check('multi\n"line" and multi\\n\\"line\\"', "[redacted] and [redacted]")


def test_a_short_value_is_ignored_and_all_can_be_forgotten() -> None:
    redaction.remember("short", "", "   ab   ")
    check("short ab", "short ab")
    redaction.forget_all()
    check(EXACT, EXACT)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"token {TELEGRAM}, ok", "token [redacted], ok"),
        (f"https://api.telegram.org/bot{TELEGRAM}/getMe", "https://api.telegram.org/bot[redacted]/getMe"),
        ("xoxb-123456789012-abcDEF and xapp-1-A0-12-ab", "[redacted] and [redacted]"),
        *((f"({start}-1234567890ab)", "([redacted])") for start in ("xoxa", "xoxp", "xoxo", "xoxs", "xoxr")),
        (f"Bot {DISCORD}.", "Bot [redacted]."),
        ("sk-abcdefghij0123456789", "[redacted]"),
        ("'sk-proj-abc_def-ghi_jkl-mno'", "'[redacted]'"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[redacted]"),
        ("github_pat_11ABCDEFG0abcdefghijkl_mnop", "[redacted]"),
        ("key AKIAIOSFODNN7EXAMPLE", "key [redacted]"),
        ("ASIAIOSFODNN7EXAMPLE", "[redacted]"),
        (f"Bearer {JWT}", "Bearer [redacted]"),
        ("curl -H 'authorization: bearer abc123def456'", "curl -H 'authorization: bearer [redacted]'"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic [redacted]"),
        ('{"Authorization": "Token letmeinplease"}', '{"Authorization": "Token [redacted]"}'),
        ("(b'authorization', b'abcdefghijklmnopqrstuvwx')", "(b'authorization', b'[redacted]')"),
        ("Authorization: babcdefghijklmnopqrs", "Authorization: [redacted]"),
        ("Proxy-Authorization: abc123def456", "Proxy-Authorization: [redacted]"),
        ("postgres://bob:pa:ss?word@db:5432/x", "postgres://bob:[redacted]@db:5432/x"),
        ("redis://:letmein@cache", "redis://:[redacted]@cache"),
        (f"two {TELEGRAM}:{'B' * 30}", "two [redacted]:" + "B" * 30),
        (f"123456:{'A' * 30}-123456:{'B' * 30}", "[redacted]"),
        (f"https://a:sk-{'x' * 20}@host", "https://a:[redacted]@host"),
    ],
)
def test_known_shapes_are_redacted(text: str, shown: str) -> None:
    check(text, shown)


@pytest.mark.parametrize(
    "text",
    [
        "It is 10:30, call 0123456789 about task-force-meeting-in-the-morning.",
        "The bearer of bad news brought authorization: required, basic understanding and bearer certificates.",
        "https://example.com:8080/path?x=1 and mail me@example.com or ssh://git@host:22/x",
        "risk-averse-strategies-for-everyone-here sk-learn ghp_short AKIA xoxb-",
        "Most. Nice.Things.Happen MTk4 None.of.these",
        "def f(x: int) -> str: return x_y + 'z'",
        "",
    ],
)
def test_harmless_text_stays_as_it_is(text: str) -> None:
    check(text, text)


def test_cleaning_twice_is_cleaning_once() -> None:
    once = redaction.clean(f"Authorization: Bearer {JWT} {TELEGRAM} https://u:pass@h {EXACT}")
    check(once, once)


def test_a_harmless_stream_is_passed_on_at_once() -> None:
    redaction.forget_all()
    redaction.remember("Zq81-canary")
    stream = Stream()
    for delta in (
        "Here",
        " you",
        " are:",
        " three",
        " words",
        ", and",
        " https://",
        "example.com",
        "/path",
        ".\n",
        " Bye",
    ):
        assert stream.feed(delta) == delta
    assert stream.flush() == ""


@pytest.mark.parametrize(
    ("deltas", "shown"),
    [
        (["it is s3c", "ret"], ["it is ", "", "s3cret"]),
        (["it is s3c", "urity"], ["it is ", "s3curity", ""]),
        (["s3cret/with space", "!"], ["", "[redacted]!", ""]),
        (["it is canary-ZqQZ", "!"], ["it is [redacted]", "!", ""]),
    ],
)
def test_only_a_tail_that_may_become_a_configured_value_is_held_back(deltas: list[str], shown: list[str]) -> None:
    check_deltas(deltas, shown)


@pytest.mark.parametrize(
    ("deltas", "shown"),
    [
        (["in 20", "24 it"], ["in ", "2024 it", ""]),
        (["call 123456", ":AAA", "A" * 30, " now"], ["call ", "", "", "[redacted] now", ""]),
        (["the ris", "k-free"], ["the ris", "k-free", ""]),
        (["Bearer ", "abc123def456", " then"], ["Bearer ", "", "[redacted] then", ""]),
        (["http://u:", "pw", "@h"], ["http://u:", "", "[redacted]@h", ""]),
        (["http://u:", "80", "/h"], ["http://u:", "", "80/h", ""]),
    ],
)
def test_only_a_tail_that_starts_like_a_shape_is_held_back(deltas: list[str], shown: list[str]) -> None:
    redaction.forget_all()
    check_deltas(deltas, shown)


def test_a_stream_is_as_new_after_its_flush() -> None:
    stream = Stream()
    assert stream.feed("as") + stream.flush() == "as"
    # Behind a letter this would be no key.
    assert stream.feed("sk-abcdefghij0123456789 ") == REDACTED + " "


PIECES = st.sampled_from(
    [EXACT, PREFIXED, "hunter2hunter2", "s3cret%2Fwith%20space", TELEGRAM, DISCORD, JWT, "xoxb-1234567890",
     "sk-abcdefghij0123456789", "ghp_abcdefghijklmnopqrstuvwxyz", "AKIAIOSFODNN7EXAMPLE", "Bearer ", "bearer  ",
     "Authorization: ", "authorization='", "Basic ", "token\t", "://", "user", ":", "@", "/", "-", "_", "=", ".", " ",
     "\n", "a", "1", "s", "sk-", "123456", "MT", "hunter2", "x" * 25, "\u00e4", "b'"]
)  # fmt: skip


@settings(derandomize=True, max_examples=200, deadline=None, database=None)
@given(
    pieces=st.lists(PIECES, max_size=12),
    cut=st.lists(st.tuples(st.integers(0, 14), st.integers(0, 60)), max_size=12),
    data=st.data(),
)
def test_wherever_a_stream_is_cut_it_shows_the_same(
    pieces: list[str], cut: list[tuple[int, int]], data: st.DataObject
) -> None:
    # Some pieces are shortened, so that secrets also break off.
    for index, length in cut:
        if index < len(pieces):
            pieces[index] = pieces[index][:length]
    text = "".join(pieces)
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    deltas = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    assert streamed(deltas) == redaction.clean(text) == streamed(list(text))
    assert not any(secret in redaction.clean(text) for secret in (EXACT, "hunter2hunter2"))


WORST = [
    "1", "1:", "123456:", "sk-", "a-", "xoxb-", "://", "://a:", "MT", "MTaaaaaaaaaaaaaaaaaaaa.", "bearer ", "bearer\t",
    "authorization: ", "/authorization=", "hunter2hunter", "ghp_", "github_pat_", "AKIA", " ", "x", "a1",
    "123456:" + "a" * 29 + " ", "s3cret/with ", "'authorization', b'", "://a:" + "b" * 500 + " ",
]  # fmt: skip


@pytest.mark.parametrize("unit", WORST)
def test_the_worst_text_of_a_hundred_kilobytes_takes_linear_time(unit: str) -> None:
    text = (unit * 100_000)[:100_000]
    began = time.process_time()
    redaction.clean(text)
    # The aim is 50 ms on a quiet machine; quadratic work would take many seconds.
    assert time.process_time() - began < 0.5
    stream = Stream()
    stream.feed(text)
    stream.flush()
    assert time.process_time() - began < 2


def test_an_endless_word_fed_by_letters_does_not_cost_its_square() -> None:
    began = time.process_time()
    assert streamed(["sk-", *("a" * 100_000)]) == REDACTED
    assert time.process_time() - began < 2
