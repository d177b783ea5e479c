"""One play as checkers see it: the database file by plain SQL, beside what stands on the platforms."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.chaos.played import Played, Seen
from tests.chaos.steps import Expected, Fate, Say, Told, expected
from tests.simulators.paper.simulator import Message
from tidings.core.outbound.outbox import MARK
from tidings.core.types import View

# What changes the text of a message.
TEXT_ACTS = {"post", "edit", "stream", "append", "stop"}
# Sent to be edited, where a copy that may be a second one must be marked.
PLACEHOLDER = "…"
# A file in doubt is never sent twice; a sentence takes its place.
_INSTEAD = re.compile(r"^I tried to send (.+), but the connection broke; it may not have arrived\.$", re.MULTILINE)

Row = dict[str, Any]


class Books:
    """The database file, read by plain SQL when no gateway runs any more."""

    def __init__(self, path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.row_factory = sqlite3.Row

        def rows(sql: str) -> list[Row]:
            return [dict(row) for row in connection.execute(sql)]

        try:
            self.integrity = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            self.inbox = rows("SELECT * FROM inbox ORDER BY seq")
            self.journal = rows("SELECT run, seq, kind, event FROM journal ORDER BY run, seq")
            self.deliveries = rows("SELECT * FROM deliveries ORDER BY seq")
            self.tasks = rows("SELECT * FROM tasks")
            self.views = rows("SELECT run, view FROM views")
            self.approvals = rows("SELECT * FROM approvals ORDER BY seq")
            self.audit = rows("SELECT actor, action, object, detail FROM audit ORDER BY seq")
            self.identities = rows(
                "SELECT identities.id, person, role FROM identities JOIN persons ON persons.id = person"
            )
        finally:
            connection.close()

        self._by_key: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
        for row in self.inbox:
            self._by_key[row["adapter"], row["account"], row["key"]].append(row)

    def of(self, say: Say) -> list[Row]:
        return self._by_key.get((say.platform, say.account, say.key), [])


class Copy(NamedTuple):
    """One message of the bot's on a platform; `order` is when its last text appeared."""

    place: tuple[str, str, str, str]
    message: Message
    order: int

    @property
    def text(self) -> str:
        return self.message.text.removeprefix(MARK).strip()

    @property
    def is_marked(self) -> bool:
        return self.message.text.startswith(MARK) or bool(_INSTEAD.search(self.message.text))

    @property
    def lines(self) -> list[str]:
        """A file counts as a line, and so does the sentence that takes the place of one in doubt."""
        return [_INSTEAD.sub(file_line(r"\1"), line) for line in lines_of(self.text)] + [
            file_line(file.name) for file in self.message.files
        ]


class Owed(NamedTuple):
    """One delivery that must arrive, with the copies of each of its lines: however it was cut, no line is lost."""

    row: Row
    reply_to: str
    lines: dict[str, list[Copy]]
    platform: str = ""
    chat: str = ""

    @property
    def has_grown(self) -> bool:
        """It finished what another delivery had opened."""
        copies = [copy for copies in self.lines.values() for copy in copies]
        return any(copy.message.key.partition(".")[0] != self.row["id"] for copy in copies)

    def __str__(self) -> str:
        return f"{self.row['kind']} {self.row['id']} to {self.reply_to}"


class Case:
    """One play with everything that checkers ask for more than once."""

    def __init__(self, played: Played) -> None:
        self.played = played
        self.books = Books(played.database)
        self.said = played.scenario.said()
        self.moves = played.scenario.moves()
        self.blocked = played.scenario.blocked()
        self.copies = [copy for seen in played.seen.values() for copy in _copies(seen)]
        self.owed = list(self._owed())
        # What opened a view and was never finished.
        self.orphans = list(self._match())
        self._set_lone_apart()
        # By delivery: how often a kill left a part of it in doubt.
        self.flights = Counter(flight.delivery for crash in played.crashes for flight in crash.flights)
        self.placeholders = sum(
            flight.kind in ("opening", "anchor") for crash in played.crashes for flight in crash.flights
        )
        # The same, and how often a platform left a call for it without an answer.
        self.doubts = Counter(self.flights)
        # Messages of which nobody knew for a while what they said.
        self.blurred: set[tuple[str, str]] = set()
        # What a platform has turned away in its own words.
        self.refused: set[str] = set()
        self._hear_calls()

    def _set_lone_apart(self) -> None:
        """What opened a view is part of the answer only where the run kept it; its text may look complete."""
        openings = {row["id"]: row["run"] for row in self.books.deliveries if row["kind"] == "opening"}
        views = {row["run"]: _view_id(row["view"]) for row in self.books.views}
        runs = {copy: openings.get(copy.message.key.partition(".")[0]) for copy in self.copies}
        lone = {copy for copy, run in runs.items() if run is not None and views.get(run) != copy.message.id}
        known = set(self.orphans)
        self.orphans = [copy for copy in self.copies if copy in lone or copy in known]
        for owed in self.owed:
            for copies in owed.lines.values():
                copies[:] = [copy for copy in copies if copy not in lone]

    def _hear_calls(self) -> None:
        openings = {row["id"] for row in self.books.deliveries if row["kind"] == "opening"}
        for name, seen in self.played.seen.items():
            for call in seen.calls:
                delivery, _, part = call.ask.key.partition(".")
                if call.verdict.startswith("lost"):
                    self.doubts[delivery] += 1
                    self.blurred.add((name, call.ask.message_id))
                    self.placeholders += bool(delivery) and (delivery in openings or part.startswith("0"))
                elif call.verdict in ("400", "403", "404"):
                    self.refused.add(delivery)

    def settles(self, owed: Owed) -> bool:
        return self.played.scenario.platform(owed.platform).settles_doubts

    def was_doubted(self, owed: Owed) -> bool:
        """Itself, the view that it was to finish, or the message that it was to replace."""
        copies = (copy for copies in owed.lines.values() for copy in copies)
        blurred = any((copy.place[0], copy.message.id) in self.blurred for copy in copies)
        run = [row["id"] for row in self.books.deliveries if row["run"] == owed.row["run"] and row["run"]]
        return blurred or any(self.doubts[id] for id in (*run, owed.row["id"], owed.row["replaces"]))

    def is_excused(self, owed: Owed) -> bool:
        """Never shown, for a reason that the chat hears: turned away, or twice in doubt where nothing settles it.

        Once is never enough: what may be missing is sent again, marked.
        """
        if owed.row["state"] != "dead" or not self.is_told(owed.row):
            return False
        turned_away = (owed.platform, owed.chat) in self.blocked and owed.row["id"] in self.refused
        return turned_away or (not self.settles(owed) and self.doubts[owed.row["id"]] > 1)

    def answers(self, say: Say) -> list[Copy]:
        found = [copy for copy in self.copies if copy.message.reply_to == say.key]
        return [*found, *self.answers_later(say)]

    def answers_later(self, say: Say) -> list[Copy]:
        """What answers a stranger who was admitted: in their chat, below no message."""
        return [copy for copy in self.loose if say.becomes is Fate.LATER and self.admitted(copy) == say]

    def admitted(self, copy: Copy) -> Say | None:
        """What a stranger had said, and is answered by this since they were admitted."""
        say = self.said_for.get(self._runs.get(copy.message.key.partition(".")[0]) or "")
        return say if say is not None and say.becomes is Fate.LATER else None

    def is_placeholder(self, copy: Copy) -> bool:
        """A bubble without words, where the delivery that it was sent for belongs; how many may stay is counted."""
        rows = (row for row in self.books.deliveries if row["id"] == copy.message.key.partition(".")[0])
        targets = (msgspec.json.decode(row["target"]) for row in rows)
        names = ("adapter", "account", "chat", "thread")
        return copy.text == PLACEHOLDER and any(copy.place == tuple(each[name] for name in names) for each in targets)

    @cached_property
    def _runs(self) -> dict[str, str | None]:
        """By delivery."""
        return {row["id"]: row["run"] for row in self.books.deliveries}

    @cached_property
    def _replaced(self) -> dict[str, str]:
        """By delivery: the one that replaces its message."""
        return {row["replaces"]: row["id"] for row in self.books.deliveries if row["replaces"]}

    @cached_property
    def loose(self) -> list[Copy]:
        """What answers nothing that was said: news, questions, and the answers to buttons."""
        return [copy for copy in self.copies if copy.message.reply_to not in self.said]

    def told(self, place: tuple[str, str, str, str], text: str) -> list[Told]:
        """What of this kind the bot may say there without being asked."""
        platform, _, chat, _ = place
        return [
            each
            for each in self.played.scenario.told
            if (each.platform, each.chat) == (platform, chat) and text.startswith(each.begins)
        ]

    @cached_property
    def said_for(self) -> dict[str, Say]:
        """By run."""
        return {row["run"]: say for say in self.said.values() for row in self.books.of(say)}

    def messages(self) -> Iterator[tuple[Say, Expected]]:
        """What was said and must be answered by a run."""
        for say in self.said.values():
            if say.is_stored and not say.text.startswith("/") and say.becomes is not Fate.SHARED:
                yield say, expected(say)

    def is_joined(self, say: Say) -> bool:
        """The run of its album's first row answers for it."""
        return bool(say.group) and any(row["state"] == "joined" for row in self.books.of(say))

    def finals(self, run: str) -> list[Row]:
        return [row for row in self.books.deliveries if row["run"] == run and row["kind"] == "final"]

    def is_told(self, dead: Row) -> bool:
        """The chat knows that something may be missing, or will know at the next contact."""
        notices = [row for row in self.books.deliveries if row["lane"] == dead["lane"] and row["cause"] == "lost"]
        return bool(dead["untold"]) or any(notice["seq"] > dead["seq"] for notice in notices)

    def _owed(self) -> Iterator[Owed]:
        # A target need not name what it answers as it was stored.
        targets = [(row["key"], msgspec.json.decode(row["message"])["target"]) for row in self.books.inbox]
        answered = {
            _address(target): key
            for key, target in targets
            if key in self.said
            and self.said[key].platform == target["adapter"]
            and self.said[key].becomes is not Fate.LATER
        }
        for row in self.books.deliveries:
            # What was replaced stood there before; whatever is left of it was left behind.
            if row["kind"] != "opening" and row["id"] not in self._replaced:
                target, body = msgspec.json.decode(row["target"]), msgspec.json.decode(row["body"])
                names = [file_line(file["name"]) for file in body.get("files", ())]
                lines: dict[str, list[Copy]] = {line: [] for line in (*lines_of(body["text"]), *names)}
                reply_to = answered.get(_address(target), target["reply_to"])
                yield Owed(row, reply_to, lines, target["adapter"], target["chat"])

    def _match(self) -> Iterator[Copy]:
        """Gives each copy to the deliveries whose lines it shows; yields what shows anything else."""
        for copy in self.copies:
            owed = [each for each in self.owed if each.reply_to == copy.message.reply_to]
            if copy.message.reply_to not in self.said:
                # The same may be told twice there; each is known by its delivery, or by the run that it ends.
                delivery = copy.message.key.partition(".")[0]
                run = self._runs.get(delivery)
                own = (delivery, self._replaced.get(delivery))
                owed = [each for each in owed if each.row["id"] in own or (run and each.row["run"] == run)]
            if all(any(line in each.lines for each in owed) for line in copy.lines):
                for each in owed:
                    for line in each.lines.keys() & set(copy.lines):
                        each.lines[line].append(copy)
            else:
                yield copy


def _address(target: Row) -> tuple[str, ...]:
    return tuple(str(target.get(name, "")) for name in ("adapter", "account", "chat", "thread", "reply_to", "handle"))


def file_line(name: str) -> str:
    return f"(the file {name})"


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _view_id(data: bytes) -> str:
    """The message that is the view; where messages are numbered by chat, the handle names both."""
    handle: dict[str, Any] = msgspec.json.decode(msgspec.json.decode(data, type=View).handle)
    if "id" in handle:
        return str(handle["id"])
    if "ts" in handle:
        return f"{handle['channel']}:{handle['ts']}"
    return f"{handle['chat']}:{handle.get('message', '')}" if "chat" in handle else str(handle["message"])


def _copies(seen: Seen) -> Iterator[Copy]:
    last = {effect.message: effect.order for effect in seen.effects if effect.act in TEXT_ACTS}
    for message in seen.messages:
        place = (seen.platform.name, message.account, message.chat, message.thread)
        yield Copy(place, message, last[message.id])
