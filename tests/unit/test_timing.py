"""When something shall happen, as people write it: every form, both changes of the clocks, and what never happens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidings.core.errors import Unkeepable
from tidings.core.work.schedules import when as schedule_when
from tidings.core.work.schedules import zones

BERLIN, SANTIAGO, SYDNEY = "Europe/Berlin", "America/Santiago", "Australia/Sydney"
# A Saturday; the clocks change in the night that follows.
NOW = datetime(2026, 3, 28, 10, 15, tzinfo=ZoneInfo(BERLIN)).timestamp()


def at(text: str, zone: str = BERLIN, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def local(instant: float | None, zone: str = BERLIN) -> str:
    assert instant is not None
    return datetime.fromtimestamp(instant, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M%z")


def instants(when: str, zone: str, start: str, count: int) -> list[str]:
    read, instant, found = schedule_when.read(when, zone, at(start, zone)), at(start, zone), []
    for _ in range(count):
        following = read.after(instant)
        assert following is not None
        found.append(local(following, zone))
        instant = following
    return found


@pytest.mark.parametrize(
    ("text", "kept", "first"),
    [
        ("every day at 9:00", "every day at 9:00", "2026-03-29 09:00+0200"),
        ("every day at 9 pm", "every day at 21:00", "2026-03-28 21:00+0100"),
        ("every day", "every day at 10:15", "2026-03-29 10:15+0200"),
        ("every 30m", "every 30m", "2026-03-28 10:45+0100"),
        ("every 1 hour and 30 minutes", "every 1h30m", "2026-03-28 11:45+0100"),
        ("every hour", "every 1h", "2026-03-28 11:15+0100"),
        ("Every Monday at 8:30", "every monday at 8:30", "2026-03-30 08:30+0200"),
        ("every mon,fri at 9am", "every mon,fri at 9:00", "2026-03-30 09:00+0200"),
        ("every monday and sunday at noon", "every monday and sunday at 12:00", "2026-03-29 12:00+0200"),
        ("every weekday at 8", "every weekday at 8:00", "2026-03-30 08:00+0200"),
        ("0 9 * * 1-5", "0 9 * * 1-5", "2026-03-30 09:00+0200"),
        ("every 0 9 * * MON-FRI", "0 9 * * MON-FRI", "2026-03-30 09:00+0200"),
        ("*/15 * * * *", "*/15 * * * *", "2026-03-28 10:30+0100"),
        ("@daily", "@daily", "2026-03-29 00:00+0100"),
        ("in 20m", "2026-03-28T10:35:00+01:00", "2026-03-28 10:35+0100"),
        ("in half an hour", "2026-03-28T10:45:00+01:00", "2026-03-28 10:45+0100"),
        ("2 days", "2026-03-30T11:15:00+02:00", "2026-03-30 11:15+0200"),
        ("18:30", "2026-03-28T18:30:00+01:00", "2026-03-28 18:30+0100"),
        ("9:00", "2026-03-29T09:00:00+02:00", "2026-03-29 09:00+0200"),
        ("at noon", "2026-03-28T12:00:00+01:00", "2026-03-28 12:00+0100"),
        ("tomorrow at 9", "2026-03-29T09:00:00+02:00", "2026-03-29 09:00+0200"),
        ("on saturday at 8 pm", "2026-04-04T20:00:00+02:00", "2026-04-04 20:00+0200"),
        ("2026-04-01 09:00", "2026-04-01T09:00:00+02:00", "2026-04-01 09:00+0200"),
        ("2026-04-01T09:00:00Z", "2026-04-01T11:00:00+02:00", "2026-04-01 11:00+0200"),
        ("2026-04-01 9:00 UTC", "2026-04-01T09:00:00+00:00", "2026-04-01 11:00+0200"),
        ("every day at 9:00 America/New_York", "every day at 9:00", "2026-03-28 14:00+0100"),
    ],
)
def test_a_time_is_read_as_it_was_meant_and_means_the_same_when_it_is_read_again(
    text: str, kept: str, first: str
) -> None:
    when = schedule_when.read(text, BERLIN, NOW)
    assert (when.text, local(when.after(NOW))) == (kept, first)
    again = schedule_when.known(when.text, when.zone)
    assert again._replace(relative=when.relative) == when


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "say when"),
        ("someday", "“someday” is not a time that I understand"),
        ("every banana", "not a time that I understand"),
        ("every day at 25:00", "not a time that I understand"),
        ("tomorrow", "not a time that I understand"),
        ("18", "not a time that I understand"),
        ("* * * * * *", "not a time that I understand"),
        ("0 0 30 2 *", "never happens"),
        ("0 25 * * *", "bad hour"),
        ("0 0 29 2 2#5", ""),
        ("every 5s", "the shortest interval is one minute"),
        ("every 9000 weeks", "more than ten years ahead"),
        ("in 999999999w", "more than ten years ahead"),
        ("9999-12-31 23:59-12:00", "more than ten years ahead"),
        ("2027-01-01T09:00+99:00", "“09:00+99:00” is not a time of day"),
        ("0001-01-01 00:00z", "0001-01-01 has already passed"),
        ("9999-12-31 23:59 Pacific/Niue", "more than ten years ahead"),
        ("9:00 " + "x/" * 3000 + "y", "there is no time zone"),
        ("in 9000 weeks", "more than ten years ahead"),
        ("2020-01-01 09:00", "Wednesday, 1 January 2020 at 09:00 (Europe/Berlin) has already passed"),
        ("2026-02-30 09:00", "there is no 2026-02-30"),
        ("every day at 9:00 Mars/Olympus", "there is no time zone 'Mars/Olympus'"),
    ],
)
def test_what_never_happens_is_refused_with_a_sentence(text: str, words: str) -> None:
    if not words:
        # A fifth Tuesday that is a 29th of February comes, though not soon.
        assert schedule_when.read(text, BERLIN, NOW).after(NOW) is not None
        return
    with pytest.raises(Unkeepable) as refused:
        schedule_when.read(text, BERLIN, NOW)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("every", "text", "when", "rest"),
    [
        (True, "day at 9:00 Europe/Berlin tell me the weather", "every day at 9:00", "tell me the weather"),
        (True, "30m check the queue", "every 30m", "check the queue"),
        (True, "0 9 * * 1-5 go on", "0 9 * * 1-5", "go on"),
        (True, "day at 9 5 things to know", "every day at 9:00", "5 things to know"),
        (True, "day at 9:00 | at last", "every day at 9:00", "at last"),
        (False, "18:30 call mum", "2026-03-28T18:30:00+01:00", "call mum"),
        (False, "in 20m\ntake it out\nof the oven", "2026-03-28T10:35:00+01:00", "take it out\nof the oven"),
        (False, "tomorrow 9:00", "2026-03-29T09:00:00+02:00", ""),
    ],
)
def test_the_time_at_the_beginning_of_a_sentence_is_told_from_the_rest(
    every: bool, text: str, when: str, rest: str
) -> None:
    read, found = schedule_when.split(text, BERLIN, NOW, every=every)
    assert (read.text, found) == (when, rest)


@pytest.mark.parametrize(("every", "text"), [(True, "| hi"), (False, "every day at 9:00 | hi"), (True, "tell me")])
def test_a_sentence_without_its_time_is_refused(every: bool, text: str) -> None:
    with pytest.raises(Unkeepable):
        schedule_when.split(text, BERLIN, NOW, every=every)


@pytest.mark.parametrize(
    ("zone", "start", "expected"),
    [
        # Spring: 2:30 is skipped, and comes when the change is over.
        (BERLIN, "2026-03-28 12:00", ["2026-03-29 03:00+0200", "2026-03-30 02:30+0200"]),
        (SYDNEY, "2026-10-03 12:00", ["2026-10-04 03:00+1100", "2026-10-05 02:30+1100"]),
        # Autumn: 2:30 comes twice, and only the first counts.
        (BERLIN, "2026-10-24 12:00", ["2026-10-25 02:30+0200", "2026-10-26 02:30+0100"]),
        (SYDNEY, "2026-04-04 12:00", ["2026-04-05 02:30+1100", "2026-04-06 02:30+1000"]),
    ],
)
def test_a_daily_time_comes_once_a_day_at_both_changes_of_the_clocks(
    zone: str, start: str, expected: list[str]
) -> None:
    assert instants("every day at 2:30", zone, start, 2) == expected


def test_within_the_hour_that_comes_twice_nothing_is_found_that_has_passed() -> None:
    second = at("2026-10-25 02:10", fold=1)
    assert local(schedule_when.read("30 2 * * *", BERLIN, second).after(second)) == "2026-10-26 02:30+0100"


@pytest.mark.parametrize("text", ["*/20 2 * * *", "*/20,40 2 * * *", "0,20,40 2 * * *"])
def test_minutes_of_a_named_hour_are_neither_skipped_nor_doubled(text: str) -> None:
    expected = ["2026-03-29 03:00+0200", "2026-03-30 02:00+0200", "2026-03-30 02:20+0200"]
    assert instants(text, BERLIN, "2026-03-28 12:00", 3) == expected
    expected = [f"2026-10-25 02:{minute}+0200" for minute in ("00", "20", "40")]
    assert instants(text, BERLIN, "2026-10-24 12:00", 4) == [*expected, "2026-10-26 02:00+0100"]


@pytest.mark.parametrize("hours", ["*", "0-23"])
def test_what_comes_in_every_hour_comes_in_each_that_is_there(hours: str) -> None:
    expected = ["2026-10-25 02:00+0200", "2026-10-25 02:30+0200", "2026-10-25 02:00+0100", "2026-10-25 02:30+0100"]
    assert instants(f"*/30 {hours} * * *", BERLIN, "2026-10-25 01:45", 4) == expected


def test_hours_are_real_hours_at_both_changes() -> None:
    expected = ["2026-03-29 01:00+0100", "2026-03-29 03:00+0200"]
    assert instants("0 * * * *", BERLIN, "2026-03-29 00:30", 2) == expected
    expected = ["2026-10-25 02:00+0200", "2026-10-25 02:00+0100", "2026-10-25 03:00+0100"]
    assert instants("0 * * * *", BERLIN, "2026-10-25 01:30", 3) == expected


def test_a_midnight_that_a_change_skips_comes_when_the_change_is_over() -> None:
    assert instants("0 0 * * *", SANTIAGO, "2026-09-05 12:00", 2) == ["2026-09-06 01:00-0300", "2026-09-07 00:00-0300"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2026-03-29 02:30", "2026-03-29 03:00+0200"), ("2026-10-25 02:30", "2026-10-25 02:30+0200")],
)
def test_one_moment_that_is_skipped_or_doubled_comes_once(text: str, expected: str) -> None:
    assert local(schedule_when.read(text, BERLIN, NOW).moment) == expected


def test_a_leap_day_comes_in_leap_years() -> None:
    expected = ["2028-02-29 09:00+0100", "2032-02-29 09:00+0100"]
    assert instants("0 9 29 2 *", BERLIN, "2026-01-01 00:00", 2) == expected


FIELDS = st.tuples(
    st.sampled_from(["0", "30", "*/15", "59", "1-5", "*"]),
    st.sampled_from(["0", "2", "3", "*/6", "9-17", "23", "*"]),
    st.sampled_from(["*", "1", "15", "29", "31", "L"]),
    st.sampled_from(["*", "1", "2", "3,9,10", "*/3"]),
    st.sampled_from(["*", "0", "7", "1-5", "MON#1", "5L"]),
)
ZONES = st.sampled_from([BERLIN, SYDNEY, SANTIAGO, "UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])


@given(FIELDS, ZONES, st.floats(1.7e9, 2.0e9))
@example(("30", "2", "*", "*", "*"), BERLIN, at("2026-10-25 02:10", fold=1))
@example(("*", "0", "*", "*", "*"), SANTIAGO, at("2026-09-05 23:59", SANTIAGO))
def test_the_next_instant_is_always_later_and_is_one_of_the_pattern(
    fields: tuple[str, ...], zone: str, now: float
) -> None:
    try:
        when = schedule_when.read(" ".join(fields), zone, now)
    except Unkeepable:
        return
    first = when.after(now)
    assert first is not None
    assert first > now
    # Nothing of the pattern lies between, and what is found by going back is the same instant.
    assert when.newest(first, first) == first
    second = when.after(first)
    assert second is None or second > first
    assert second is None or when.newest(first, second - 1) == first
    shown = datetime.fromtimestamp(first, ZoneInfo(zone))
    before = datetime.fromtimestamp(first - 3 * 3600, ZoneInfo(zone))
    if shown.utcoffset() == before.utcoffset():
        minutes = _matching(fields[0], 60)
        assert shown.minute in minutes
        assert shown.hour in _matching(fields[1], 24)


def _matching(field: str, size: int) -> set[int]:
    if field.startswith("*"):
        return set(range(0, size, int(field.partition("/")[2] or 1)))
    first, _, last = field.partition("-")
    return set(range(int(first), int(last or first) + 1))


@given(st.floats(1.7e9, 2.0e9), st.integers(1, 10_000), st.floats(0, 1e6))
def test_an_interval_goes_on_by_itself_however_long_nobody_looked(start: float, minutes: int, away: float) -> None:
    when = schedule_when.read(f"every {minutes}m", "UTC", start)
    newest = when.newest(start, start + away)
    assert start + away - when.seconds < newest + 0.001
    assert newest <= start + away
    following = when.after(newest)
    assert following is not None
    assert following > newest


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (timedelta(hours=1), "today at 11:15 (Europe/Berlin)"),
        (timedelta(days=1), "tomorrow at 11:15 (Europe/Berlin)"),
        (timedelta(days=-1), "yesterday at 10:15 (Europe/Berlin)"),
        (timedelta(days=3), "on Tuesday, 31 March 2026 at 11:15 (Europe/Berlin)"),
    ],
)
def test_an_instant_is_told_as_a_person_would(ahead: timedelta, words: str) -> None:
    assert zones.told(NOW + ahead.total_seconds(), BERLIN, NOW) == words


def test_the_machines_zone_is_found_with_its_rules(tmp_path: Path) -> None:
    link = tmp_path / "localtime"
    link.symlink_to(Path("/usr/share/zoneinfo/Europe/Berlin"))
    assert str(zones.find_zone({"TZ": "Asia/Kolkata"}, link)) == "Asia/Kolkata"
    assert str(zones.find_zone({}, link)) == BERLIN
    assert zones.find_zone({}, tmp_path / "none") is UTC
    assert zones.find_zone({"TZ": "Mars/Olympus"}, link) is UTC
