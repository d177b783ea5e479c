"""Reads times as people write them, and finds the next instant in a time zone (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from cronsim import CronSim, CronSimError

from tidings.core.errors import Unkeepable
from tidings.core.work.schedules.zones import UNITS, brief, told, zone_of

# The shortest interval, the same as cron's.
SHORTEST_SECONDS = 60.0
LONGEST_SECONDS = 10 * 366 * 86_400.0
# No daylight saving change is larger.
CHANGE_SECONDS = 3 * 3600.0
# The most words that a time may have.
MOST_WORDS = 10
FIELDS = 5
HOURS = range(24)
EARLIEST, LATEST = 1900, 9000
TOO_FAR = "that is more than ten years ahead"

NAMED_UNITS = {
    name: UNITS[letter]
    for letter, names in {
        "s": "s sec secs second seconds",
        "m": "m min mins minute minutes",
        "h": "h hr hrs hour hours",
        "d": "d day days",
        "w": "w week weeks",
    }.items()
    for name in names.split()
}
DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
DAY_NUMBERS = {
    **{name: str(number) for number, name in enumerate(DAYS)},
    **{f"{name}s": str(number) for number, name in enumerate(DAYS)},
    **{name[:3]: str(number) for number, name in enumerate(DAYS)},
    "tues": "2",
    "thur": "4",
    "thurs": "4",
    "day": "*",
    "weekday": "1-5",
    "weekdays": "1-5",
    "workday": "1-5",
    "workdays": "1-5",
    "weekend": "6,0",
    "weekends": "6,0",
}
NICKNAMES = {
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "midnight": "0 0 * * *",
    "weekly": "0 0 * * 0",
    "monthly": "0 0 1 * *",
    "yearly": "0 0 1 1 *",
    "annually": "0 0 1 1 *",
}

_PIECE = re.compile(r"(\d{1,9})\s*([a-z]+)")
_CLOCK = re.compile(r"(\d{1,2})(?::(\d{2}))?\s*([ap]m)?")
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_CRON_FIELD = re.compile(r"[\d*/,\-#lw]+|(?:[a-z]{3}|[\d*/,\-#lw])+", re.IGNORECASE)


class When(NamedTuple):
    """When a schedule runs: a cron expression, an interval, or one moment."""

    # The stored form, which means the same whenever it is read.
    text: str
    # The name of a time zone; empty means the machine's.
    zone: str
    cron: str = ""
    seconds: float = 0.0
    moment: float | None = None
    # A relative time counts from when it was given, even if the wall clock jumps.
    relative: bool = False

    @property
    def once(self) -> bool:
        return self.moment is not None

    def after(self, instant: float) -> float | None:
        """The first instant after this one; an interval counts from it. None when there is none."""
        if self.moment is not None:
            return self.moment if self.moment > instant else None
        if self.seconds:
            return instant + self.seconds
        return next(_instants(self.cron, instant, zone_of(self.zone)), None)

    def newest(self, first: float, now: float) -> float:
        """The newest instant up to `now`; `first` is an earlier one."""
        if self.moment is not None:
            return first
        if self.seconds:
            return first + (now - first) // self.seconds * self.seconds
        zone, newest = zone_of(self.zone), first
        # Searches backwards for speed, then the last hours forwards, so that both directions agree.
        back = next(CronSim(self.cron, datetime.fromtimestamp(now, zone), reverse=True), None)
        start = max(first, back.timestamp() - CHANGE_SECONDS) if back else first
        for instant in _instants(self.cron, start, zone):
            if instant > now:
                break
            newest = instant
        return newest


def _instants(cron: str, after: float, zone: tzinfo) -> Iterator[float]:
    """Instants by cron's rules: a time skipped by daylight saving runs after the gap, a repeated one runs once."""
    last = after
    for local in CronSim(_spelled_out(cron), datetime.fromtimestamp(after, zone)):
        instant = local.timestamp()
        # In a repeated hour, CronSim begins with the first one.
        if instant > last:
            yield instant
            last = instant


def _spelled_out(cron: str) -> str:
    """Writes `*/20 2` as minutes 0-59/20: CronSim treats a star as an interval, but these are times of day."""
    minute, hour, *rest = cron.split()
    if "*" in hour or len(CronSim(cron, datetime(2026, 1, 1)).hours) == len(HOURS):
        return cron
    return " ".join((minute.replace("*", "0-59"), hour, *rest))


def read(text: str, zone: str, now: float) -> When:
    """Reads a time; `now` is by the wall clock. Raises Unkeepable with a sentence for people."""
    words = text.replace("|", " ").split()
    found_zone, words = _take_zone(words, zone)
    if not words:
        raise Unkeepable("say when: for example every day at 9:00, every 30m, 18:30, tomorrow 9:00 or in 20m")
    when = _recurrent(words, found_zone, now) or _moment(words, found_zone, now)
    if when is None:
        raise Unkeepable(
            f"“{' '.join(words)[:100]}” is not a time that I understand; write for example every day at 9:00, "
            "every 30m, every monday at 8:30, 0 9 * * 1-5, 18:30, tomorrow 9:00, in 20m or 2026-03-01 09:00"
        )
    return _checked(when, now)


def known(text: str, zone: str) -> When:
    """Reads the stored form of a time, even one that has passed; raises Unkeepable."""
    # A time zone that was removed from this machine raises an error here.
    zone_of(zone)
    words = text.split()
    when = _recurrent(words, zone, 0.0) or _moment(words, zone, 0.0)
    if when is None:
        raise Unkeepable(f"“{text}” can no longer be read")
    return when


def split(text: str, zone: str, now: float, *, every: bool) -> tuple[When, str]:
    """Splits a sentence into the time at its beginning and the rest; raises Unkeepable."""
    head, bar, tail = text.partition("|")
    lead = "every " if every else ""
    if bar:
        return _demanded(lead + head, zone, now, every=every), tail.strip()
    words = text.split()
    # A time zone may follow the time.
    for count in range(min(len(words), MOST_WORDS), 0, -1):
        said = lead + " ".join(words[:count])
        if _is_read(said, zone, now, every=every):
            return _demanded(said, zone, now, every=every), _behind(text, count)
    return _demanded(lead + " ".join(words[:MOST_WORDS]), zone, now, every=every), ""


def _is_read(said: str, zone: str, now: float, *, every: bool) -> bool:
    words = said.split()
    try:
        found, words = _take_zone(words, zone)
    except Unkeepable:
        return False
    if not words:
        return False
    when = _recurrent(words, found, now) if every else _moment(words, found, now)
    return when is not None


def _demanded(said: str, zone: str, now: float, *, every: bool) -> When:
    when = read(said, zone, now)
    if every and when.once:
        raise Unkeepable("that is one moment; use /at")
    if not every and not when.once:
        raise Unkeepable("that repeats; use /every")
    return when


def _behind(text: str, count: int) -> str:
    words = text.split(maxsplit=count)
    return words[count] if len(words) > count else ""


def _take_zone(words: list[str], zone: str) -> tuple[str, list[str]]:
    """Takes a time zone that follows the time."""
    if len(words) > 1 and (words[-1].upper() == "UTC" or re.fullmatch(r"[A-Za-z_]+(/[A-Za-z0-9_+-]+)+", words[-1])):
        name = "UTC" if words[-1].upper() == "UTC" else words[-1]
        zone_of(name)
        return name, words[:-1]
    zone_of(zone)
    return zone, words


def _recurrent(words: list[str], zone: str, now: float) -> When | None:
    said = [word.lower() for word in words]
    if len(said) == 1 and said[0].startswith("@"):
        cron = NICKNAMES.get(said[0][1:])
        return When(said[0], zone, cron=cron) if cron else None
    if said[0] != "every":
        return _cron(words, zone)
    rest = said[1:]
    if len(rest) == 1 and (seconds := _duration(f"1 {rest[0]}")) and rest[0] != "day":
        return _interval(seconds, zone)
    if seconds := _duration(" ".join(rest)):
        return _interval(seconds, zone)
    return _on_days(rest, zone, now) or _cron(words[1:], zone)


def _interval(seconds: float, zone: str) -> When:
    return When(f"every {brief(seconds)}", zone, seconds=seconds, relative=True)


def _cron(words: list[str], zone: str) -> When | None:
    if len(words) != FIELDS or not all(_CRON_FIELD.fullmatch(word) for word in words):
        return None
    if not any(letter.isdigit() or letter == "*" for letter in "".join(words[:2])):
        return None
    cron = " ".join(words)
    try:
        CronSim(cron, datetime(2026, 1, 1))
    except CronSimError as error:
        raise Unkeepable(f"“{cron}” never happens or is not a cron expression: {str(error).lower()}") from None
    return When(cron, zone, cron=cron)


def _on_days(words: list[str], zone: str, now: float) -> When | None:
    """Reads "day at 9:00", "monday and friday at 8" or "weekday"; days of a month need a cron expression."""
    days: list[str] = []
    position = 0
    for word in words:
        parts = [part for part in word.split(",") if part]
        if word == "and" and days:
            position += 1
            continue
        if not parts or not all(part in DAY_NUMBERS for part in parts):
            break
        days += [DAY_NUMBERS[part] for part in parts]
        position += 1
    if not days:
        return None
    rest = words[position:]
    if rest[:1] == ["at"]:
        rest = rest[1:]
        if not rest:
            return None
    clock = _clock(" ".join(rest)) if rest else _clock_of(datetime.fromtimestamp(now, zone_of(zone)))
    if clock is None:
        return None
    named = "*" if "*" in days else ",".join(dict.fromkeys(days))
    cron = f"{clock[1]} {clock[0]} * * {named}"
    text = f"every {' '.join(words[:position])} at {clock[0]}:{clock[1]:02}"
    return When(text, zone, cron=cron)


def _moment(words: list[str], zone: str, now: float) -> When | None:
    said = " ".join(words).lower()
    bare = said.removeprefix("in ")
    if seconds := _duration(bare):
        return _at(now + seconds, zone, relative=True)
    said = said.removeprefix("on ").removeprefix("at ")
    day, _, rest = said.partition(" ")
    if "t" in day and _DATE.match(day):
        day, _, glued = day.partition("t")
        rest = f"{glued} {rest}".strip()
    local = datetime.fromtimestamp(now, zone_of(zone))
    if date := _date(day, local):
        rest = rest.removeprefix("at ")
        if offset := _offset(rest):
            return _at(_exact(date, rest.removesuffix(offset), offset), zone)
        clock = _clock(_without_seconds(rest))
        return _at(_existing(date, clock, zone_of(zone)), zone) if clock else None
    clock = _clock(said)
    if clock is None or (":" not in said and not said.endswith(("am", "pm", "noon", "midnight"))):
        return None
    today = _existing(local, clock, zone_of(zone))
    return _at(today if today > now else _existing(local + timedelta(days=1), clock, zone_of(zone)), zone)


def _at(instant: float, zone: str, *, relative: bool = False) -> When:
    try:
        exact = datetime.fromtimestamp(instant, zone_of(zone)).replace(microsecond=0)
    except (ValueError, OverflowError):
        raise Unkeepable(TOO_FAR) from None
    return When(exact.isoformat(), zone, moment=exact.timestamp(), relative=relative)


def _date(word: str, local: datetime) -> datetime | None:
    if word in ("today", "tomorrow"):
        return local + timedelta(days=int(word == "tomorrow"))
    if word in DAY_NUMBERS and DAY_NUMBERS[word].isdigit():
        ahead = (int(DAY_NUMBERS[word]) - local.isoweekday()) % 7
        return local + timedelta(days=ahead or 7)
    if match := _DATE.fullmatch(word):
        year, month, day = map(int, match.groups())
        if not EARLIEST <= year <= LATEST:
            # Time zones cannot be computed at the ends of the calendar.
            raise Unkeepable(TOO_FAR if year > LATEST else f"{word} has already passed")
        try:
            return datetime(year, month, day)
        except ValueError as error:
            raise Unkeepable(f"there is no {word}: {error}") from None
    return None


def _offset(clock: str) -> str:
    """The offset from UTC that follows a time of day."""
    match = re.search(r"(?:z|[+-]\d{2}:?\d{2})$", clock)
    return match.group() if match and ":" in clock[: match.start()] else ""


def _exact(date: datetime, clock: str, offset: str) -> float:
    try:
        local = datetime.fromisoformat(f"{date.date().isoformat()}T{_padded(clock)}")
        return local.replace(tzinfo=datetime.strptime(offset.upper(), "%z").tzinfo).timestamp()
    except ValueError:
        raise Unkeepable(f"“{clock}{offset}” is not a time of day") from None


def _padded(clock: str) -> str:
    pieces = clock.strip().split(":")
    if not 2 <= len(pieces) <= 3 or not all(piece.split(".")[0].isdigit() for piece in pieces):
        raise Unkeepable(f"“{clock}” is not a time of day")
    whole = [int(piece.split(".")[0]) for piece in pieces]
    if whole[0] > 23 or whole[1] > 59 or whole[-1] > 59:
        raise Unkeepable(f"“{clock}” is not a time of day")
    return ":".join(f"{number:02}" for number in whole)


def _without_seconds(clock: str) -> str:
    match = re.fullmatch(r"(\d{1,2}:\d{2}):\d{2}(?:\.\d+)?", clock)
    return match.group(1) if match else clock


def _clock(said: str) -> tuple[int, int] | None:
    if said in ("noon", "midnight"):
        return (12, 0) if said == "noon" else (0, 0)
    match = _CLOCK.fullmatch(said.strip())
    if match is None:
        return None
    hour, minute, half = int(match[1]), int(match[2] or 0), match[3]
    if half and not 1 <= hour <= 12:
        return None
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    return (hour, minute) if hour < 24 and minute < 60 else None


def _clock_of(local: datetime) -> tuple[int, int]:
    return local.hour, local.minute


def _existing(day: datetime, clock: tuple[int, int], zone: tzinfo) -> float:
    """The instant of a local time: right after the gap if daylight saving skips it, the first one if it repeats."""
    local = datetime(day.year, day.month, day.day, *clock, tzinfo=zone)
    while local.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None):
        local += timedelta(minutes=1)
    return local.timestamp()


def _duration(said: str) -> float | None:
    rest = said.strip().lower().replace(",", " ").replace(" and ", " ")
    if rest in ("an hour", "half an hour", "a minute", "a day", "a week"):
        return 1800.0 if rest.startswith("half") else NAMED_UNITS[rest.split()[1]]
    total, position = 0.0, 0
    while position < len(rest):
        match = _PIECE.match(rest, position)
        if match is None or match[2] not in NAMED_UNITS:
            return None
        total += int(match[1]) * NAMED_UNITS[match[2]]
        position = match.end()
        while position < len(rest) and rest[position] == " ":
            position += 1
    return total or None


def _checked(when: When, now: float) -> When:
    if when.seconds and not SHORTEST_SECONDS <= when.seconds <= LONGEST_SECONDS:
        few = when.seconds < SHORTEST_SECONDS
        raise Unkeepable("the shortest interval is one minute" if few else TOO_FAR)
    if when.moment is not None and when.moment - now > LONGEST_SECONDS:
        raise Unkeepable(TOO_FAR)
    if when.after(now) is None:
        passed = "has already passed" if when.once else "never happens"
        words = told(when.moment, when.zone, now) if when.moment is not None else f"“{when.text}”"
        raise Unkeepable(f"{words.removeprefix('on ')} {passed}")
    return when
