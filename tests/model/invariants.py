"""The invariants of the guarantees, over the platforms' truth, the agent's record and a plain look at the database."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from sqlite3 import Row
from typing import TYPE_CHECKING

import msgspec

from tests.model.ground import EDITS, Ground, Post, all_posts
from tidings.core.outbound.outbox import EXPIRES_SECONDS, MARK
from tidings.core.outbound.resolver import KEY_MARGIN
from tidings.core.types import PartKind

if TYPE_CHECKING:
    from tests.model.scene import Scene

MARK_WORDS = set(MARK.split())
# An opening is only a view: what it was dropped for is nobody's loss.
VIEW = "opening"


class Memory:
    """What was seen before, to tell what must never change again."""

    def __init__(self) -> None:
        self.outcomes: dict[str, tuple[str, str]] = {}
        self.journals: dict[str, list[bytes]] = {}
        self.rows: set[str] = set()
        # The step in which a run was first seen cancelled, with nothing of it on its way.
        self.cancelled: dict[str, int] = {}


class Books:
    """The tables as they are committed now."""

    def __init__(self, scene: Scene) -> None:
        self.inbox = scene.rows("SELECT * FROM inbox ORDER BY seq")
        self.deliveries = scene.rows("SELECT * FROM deliveries ORDER BY seq")
        self.tasks = scene.rows("SELECT * FROM tasks")
        self.journals: dict[str, list[Row]] = defaultdict(list)
        for row in scene.rows("SELECT * FROM journal ORDER BY run, seq"):
            self.journals[row["run"]].append(row)
        self.finals: Counter[str] = Counter(row["run"] for row in self.deliveries if row["kind"] == "final")
        self.keys = {row["run"]: msgspec.json.decode(row["message"])["key"] for row in self.inbox}
        self.cursors = scene.rows("SELECT adapter, value FROM notebook WHERE name = 'cursor'")


def broken(scene: Scene) -> list[str]:
    books = Books(scene)
    found = [f"{name}: {told}" for name, check in ALWAYS.items() for told in check(scene, books)]
    for recorder in (scene, scene.player, *scene.grounds.values()):
        found += recorder.violations
    return found


def at_the_end(scene: Scene) -> list[str]:
    books = Books(scene)
    return [f"{name}: {told}" for name, check in AT_THE_END.items() for told in check(scene, books)]


def unsettled(scene: Scene) -> list[str]:
    """What still waits for something, by the platforms and by the database."""
    waiting = [key for ground in scene.grounds.values() for key in ground.unconfirmed]
    runs = scene.rows("SELECT key || ' ' || state FROM inbox WHERE state IN ('waiting', 'running')")
    owed = scene.rows("SELECT kind || id || ' ' || state FROM deliveries WHERE state NOT IN ('delivered', 'dead')")
    tasks = scene.rows("SELECT id || ' ' || state FROM tasks WHERE state IN ('waiting', 'running')")
    return [*waiting, *(row[0] for row in (*runs, *owed, *tasks))]


def acked(scene: Scene, books: Books) -> Iterator[str]:
    """Confirmed is stored, and the cursor that commits with a message never runs ahead of it."""
    stored = {(row["adapter"], books.keys[row["run"]]) for row in books.inbox}
    for name, ground in scene.grounds.items():
        yield from (f"{key} was confirmed and is not stored" for key in ground.confirmed if (name, key) not in stored)
    for row in books.cursors:
        if (row["adapter"], row["value"]) not in stored:
            yield f"the cursor of {row['adapter']} stands at {row['value']}, which is not stored"


def accepted_once(scene: Scene, books: Books) -> Iterator[str]:
    rows = Counter((row["adapter"], books.keys[row["run"]]) for row in books.inbox)
    yield from (f"{key} has {times} rows" for (_, key), times in rows.items() if times > 1)
    yield from (f"{key} was run as {runs}" for key, runs in scene.player.runs.items() if len(runs) > 1)
    missing = scene.memory.rows - set(books.keys)
    yield from (f"the row of {run} is gone" for run in missing)
    scene.memory.rows |= set(books.keys)


def one_outcome(scene: Scene, books: Books) -> Iterator[str]:
    seen = scene.memory.outcomes
    for row in books.inbox:
        if row["outcome"] is None and row["run"] not in seen:
            continue
        now = (row["outcome"], row["reason"])
        if seen.setdefault(row["run"], now) != now:
            yield f"{row['key']} ended as {seen[row['run']]} and then as {now}"


def one_transaction(scene: Scene, books: Books) -> Iterator[str]:
    """An outcome and what we owe for it are there together or not at all."""
    for row in books.inbox:
        finals = books.finals[row["run"]]
        if finals != (row["state"] == "done"):
            yield f"{row['key']} is {row['state']} and has {finals} finals"
    for task in books.tasks:
        told = sum(row["cause"] == task["id"] for row in books.deliveries)
        if told != (task["state"] not in ("waiting", "running")):
            yield f"task {task['id']} is {task['state']} and was told {told} times"


def duplicates(scene: Scene, books: Books) -> Iterator[str]:
    """Bounded and marked: no word stands there twice without a mark, and a mark has its doubt."""
    for row in books.deliveries:
        if row["kind"] == VIEW:
            continue
        ground = _ground(scene, row)
        owed = Counter(_text(row).split())
        copies = ground.copies(row["id"])
        for marked in (False, True):
            shown = Counter(word for post in copies if post.marked is marked for word in post.words)
            if marked:
                shown = Counter({word: times for word, times in shown.items() if word not in MARK_WORDS})
            if extra := shown - owed:
                yield f"{_name(row)} shows {dict(extra)} too often{' in marked copies' if marked else ' unmarked'}"
        yield from (f"{_name(row)}: {why}" for post in copies if post.marked for why in _unjustified(ground, row, post))


def _unjustified(ground: Ground, row: Row, post: Post) -> Iterator[str]:
    """Why nobody should have sent a second copy."""
    ability = ground.ability
    if not ground.doubts[row["id"]]:
        yield "a marked copy without a doubt"
    if ability.readback and row["id"] not in ground.unread:
        yield "a marked copy though the platform could be asked"
    if ability.keyed_for and not post.edited:
        heard = [at for key, at in ground.heard.items() if key.startswith(f"{row['id']}.")]
        tried = min(*heard, ground.doubted.get(row["id"], ground.heard[post.key]), ground.heard[post.key])
        if ground.heard[post.key] - tried < ability.keyed_for * KEY_MARGIN:
            yield "a marked copy though the key could be repeated"


def right_place(scene: Scene, books: Books) -> Iterator[str]:
    """Every text stands where its message was said, and says nothing of anybody else's."""
    for post in all_posts(scene.grounds):
        if post.reply_to not in scene.said:
            yield f"{post.id} answers nobody"
            continue
        if post.place != scene.place(post.reply_to):
            yield f"the answer to {post.reply_to} stands at {post.place}"
        ours = {post.reply_to, *scene.albums.get(scene.said[post.reply_to].group, ())}
        strange = {word.partition(".")[0] for word in post.words if "." in word} & scene.said.keys() - ours
        yield from (f"{post.id}, an answer to {post.reply_to}, says what {key} asked for" for key in strange)
    places = {scene.place(key) for key in scene.said}
    for ground in scene.grounds.values():
        yield from (f"a sign of life at {place}" for place in ground.signals - places)


def in_order(scene: Scene, books: Books) -> Iterator[str]:
    """In each lane as it was owed, parts together, except past what was in doubt, held or dead."""
    openings = {row["run"]: row["id"] for row in books.deliveries if row["kind"] == VIEW}
    last: dict[str, tuple[int, str]] = {}
    for row in books.deliveries:
        ground = _ground(scene, row)
        copies = ground.copies(row["id"])
        doubtful = ground.doubts[row["id"]] or ground.doubts[openings.get(row["run"], "")]
        if row["kind"] == VIEW or not copies:
            continue
        if not ground.doubts[row["id"]]:
            words = [word for post in copies for word in post.words]
            if words != _text(row).split()[: len(words)]:
                yield f"{_name(row)} stands there as {' '.join(words)!r}"
        edited = any(post.edited for post in copies)
        if doubtful or edited or row["id"] in ground.held or row["state"] == "dead":
            continue
        order, before = last.get(row["lane"], (0, ""))
        if copies[0].order < order:
            yield f"{_name(row)} appeared before {before} was complete"
        last[row["lane"]] = copies[-1].order, _name(row)


def one_writer(scene: Scene, books: Books) -> Iterator[str]:
    running = Counter(row["conversation"] for row in books.inbox if row["state"] == "running")
    yield from (f"{times} runs in {conversation}" for conversation, times in running.items() if times > 1)
    seqs = {books.keys[row["run"]]: row["seq"] for row in books.inbox}
    for conversation, keys in scene.player.turns.items():
        if [seqs[key] for key in keys] != sorted(seqs[key] for key in keys):
            yield f"{conversation} was played in the order {keys}"


def whole_journals(scene: Scene, books: Books) -> Iterator[str]:
    for row in books.inbox:
        entries = books.journals.get(row["run"], [])
        if [entry["seq"] for entry in entries] != list(range(1, len(entries) + 1)):
            yield f"the journal of {row['key']} has gaps"
        events = [bytes(entry["event"]) for entry in entries]
        known = scene.memory.journals.get(row["run"], [])
        if events[: len(known)] != known:
            yield f"the journal of {row['key']} was rewritten"
        scene.memory.journals[row["run"]] = events
        ends = [number for number, entry in enumerate(entries, start=1) if entry["kind"] == "ended"]
        if ends != ([len(entries)] if row["state"] == "done" else []):
            yield f"{row['key']} is {row['state']}, and of its {len(entries)} events those at {ends} are terminal"
        elif ends and msgspec.json.decode(events[-1])["kind"] != row["outcome"]:
            yield f"{row['key']} is {row['outcome']}, its terminal event says otherwise"


def effects(scene: Scene, books: Books) -> Iterator[str]:
    """At most once, and never before the journal says that it starts."""
    times = Counter((done.run, done.call) for done in scene.player.effects)
    yield from (f"{call} took effect {n} times" for (_, call), n in times.items() if n > 1)
    for run, call in times:
        started = [msgspec.json.decode(entry["event"]) for entry in books.journals[run]]
        if not any(event["type"] == "tool_started" and event["call"] == call for event in started):
            yield f"{call} took effect unknown to the journal"


def cancelled_for_good(scene: Scene, books: Books) -> Iterator[str]:
    """Nothing of a run that was seen cancelled is begun any more, but for the notice itself."""
    runs = {row["id"]: row["run"] for row in books.deliveries if row["kind"] == VIEW}
    since = scene.memory.cancelled
    for ground in scene.grounds.values():
        for call in ground.calls:
            opened = call.key or (ground.posts[call.post].key if call.post else "")
            run = runs.get(opened.partition(".")[0])
            if run in since and call.step > since[run]:
                yield f"a view of {run} was still worked on after it was cancelled"
    for done in scene.player.effects:
        if done.run in since and done.step > since[done.run]:
            yield f"{done.call} took effect after its run was cancelled"
    busy = {row["run"] for row in books.deliveries if row["kind"] == VIEW and row["state"] not in ("delivered", "dead")}
    for row in books.inbox:
        if row["outcome"] == "cancelled" and row["run"] not in busy:
            since.setdefault(row["run"], scene.order.step)


def whole_answers(scene: Scene, books: Books) -> Iterator[str]:
    """What a completed run owes is what its agent said in the last attempt, word by word."""
    owed = {row["run"]: row for row in books.deliveries if row["kind"] == "final"}
    for row in books.inbox:
        if row["outcome"] == "completed" and row["run"] in owed:
            said = scene.player.said[row["run"], row["attempt"]]
            if (words := _text(owed[row["run"]]).split()) != said:
                yield f"{row['key']} was answered {' '.join(said)!r}, and {' '.join(words)!r} is owed"


def excused(scene: Scene, books: Books) -> Iterator[str]:
    """Given up only for a reason that the platform's truth knows too, and then the chat hears of it."""
    for row in books.deliveries:
        ground = _ground(scene, row)
        if row["state"] != "dead" or row["kind"] == VIEW:
            continue
        reason = row["reason"]
        rejected = row["id"] in ground.rejected and "not allowed" in reason
        expired = "expired" in reason and scene.clock.now() - row["created"] > EXPIRES_SECONDS
        unconfirmed = "unconfirmed" in reason and ground.doubts[row["id"]] > 0
        if not (rejected or expired or unconfirmed):
            yield f"{_name(row)} was given up: {reason!r}"
        if unconfirmed and ground.ability.readback and row["id"] not in ground.unread:
            yield f"{_name(row)} counts as unconfirmed, and nobody looked"
        later = [each for each in books.deliveries if each["cause"] == "lost" and each["lane"] == row["lane"]]
        if not row["untold"] and not any(each["seq"] > row["seq"] for each in later):
            yield f"{_name(row)} was given up, and nobody will hear of it"


def seen(scene: Scene, books: Books) -> Iterator[str]:
    """No silent loss: people saw every word of whatever counts as delivered."""
    for row in books.deliveries:
        if row["kind"] == VIEW or row["state"] != "delivered":
            continue
        copies = _ground(scene, row).copies(row["id"])
        missing = Counter(_text(row).split()) - Counter(word for post in copies for word in post.words)
        if missing:
            yield f"{_name(row)} counts as delivered, and nobody saw {dict(missing)}"


def answered(scene: Scene, books: Books) -> Iterator[str]:
    """Everything that was ever said has its row, and every message its outcome and its answer."""
    rows = {books.keys[row["run"]]: row for row in books.inbox}
    for key in scene.said:
        if key not in rows:
            yield f"{key} is lost"
        elif rows[key]["state"] not in ("done", "closed", "joined"):
            yield f"{key} is still {rows[key]['state']}"
        elif rows[key]["state"] == "joined" and rows[key]["joined"] not in books.finals:
            yield f"{key} joined a run that owes nothing"


def orphans(scene: Scene, books: Books) -> Iterator[str]:
    """A view is left behind only by a doubt about what opened it, or where its final could not be given."""
    dead = {row["run"] for row in books.deliveries if row["kind"] == "final" and row["state"] == "dead"}
    runs = {row["id"]: row["run"] for row in books.deliveries}
    for ground in scene.grounds.values():
        for post in ground.views() if ground.ability.streaming == EDITS else ():
            delivery = post.key.partition(".")[0]
            opened = post.kind is PartKind.OPENING and not ground.doubts[delivery]
            if opened and runs.get(delivery) not in dead:
                yield f"the view {post.id} of {post.reply_to} was left behind"


ALWAYS = {
    "I1": acked,
    "I2": accepted_once,
    "I3": one_outcome,
    "I4": one_transaction,
    "I5": seen,
    "I5 excuses": excused,
    "I6": duplicates,
    "I7": right_place,
    "I8": in_order,
    "I9": one_writer,
    "I10": whole_journals,
    "I11": effects,
    "I15": cancelled_for_good,
    "I5 answers": whole_answers,
}
AT_THE_END = {"I3": answered, "H12": orphans}


def _ground(scene: Scene, delivery: Row) -> Ground:
    return scene.grounds[delivery["lane"].partition(":")[0]]


def _text(delivery: Row) -> str:
    text: str = msgspec.json.decode(delivery["body"])["text"]
    return text


def _name(delivery: Row) -> str:
    return f"{delivery['kind']} to {msgspec.json.decode(delivery['target'])['reply_to']}"
