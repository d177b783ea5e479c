"""The rules of the board: every change of a card's state is one function here, inside a transaction.

No card is ever stranded: a running card has a lease, each attempt ends in a verdict, and the watchers are told. A
worker writes only with its own fence; a worker that has lost its card is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from tidings.core.desk.board import Block, CardFile, CardState, Ending, Hand, NewCard
from tidings.core.errors import Fenced, Overdrawn, Unkeepable
from tidings.core.redaction import one_line, plain
from tidings.core.store.store import Row, Transaction
from tidings.core.store.wakeups import BoardChanged
from tidings.core.types import File, encode
from tidings.core.work.board import card_news
from tidings.core.work.board import cards as card_rows
from tidings.core.work.board.cards import Moment

# Tells whether a person may change a card; if not, its watchers do not hear of the cards that person links to it.
MayChange = Callable[[Transaction, str, Hand], bool]

TITLE_CHARACTERS = 200
BODY_CHARACTERS = 100_000
HIGHEST_PRIORITY = 1000
# States without a worker, in which a person may change the card.
AT_REST = (CardState.TRIAGE, CardState.TODO, CardState.READY, CardState.BLOCKED, CardState.REVIEW)
LINKABLE = (CardState.TRIAGE, CardState.TODO, CardState.READY, CardState.BLOCKED)
# For these kinds, a second block counts as the same one even if the reason differs.
BY_KIND = (Block.PROTOCOL, Block.BUDGET, Block.PROVIDER, Block.INTERRUPTED, Block.HANG, Block.NOT_RUNNABLE)


class Hold(NamedTuple):
    """A worker's right to write on its card."""

    card: int
    attempt: int
    fence: int


class Claimed(NamedTuple):
    hold: Hold
    card: Row


def add(
    tx: Transaction,
    new: NewCard,
    hand: Hand,
    roster: Collection[str],
    open_cards: int,
    at: Moment,
    may_change: MayChange,
) -> Row:
    """Adds a card; refuses one without a possible worker. A cycle cannot arise, because the parents already exist."""
    if known := tx.one("SELECT * FROM cards WHERE key = ? AND key <> ''", new.key) if new.key else None:
        return known
    title = plain(" ".join(new.title.split()))
    if not title:
        raise Unkeepable("a card needs a title")
    if len(title) > TITLE_CHARACTERS or len(new.body) > BODY_CHARACTERS:
        raise Unkeepable(f"a title has {TITLE_CHARACTERS} characters at most, a body {BODY_CHARACTERS:,}")
    if new.assignee not in roster:
        raise Unkeepable(card_news.not_runnable(new.assignee, roster))
    if abs(new.priority) > HIGHEST_PRIORITY or new.budget < 0:
        raise Unkeepable(f"a priority is between -{HIGHEST_PRIORITY} and {HIGHEST_PRIORITY}, and no budget is negative")
    _check_folder(tx, new.workspace, hand)
    waiting = tx.one(
        "SELECT count(*) AS n FROM cards WHERE state IN ('triage', 'todo', 'ready', 'running', 'blocked', 'review')"
    )
    if waiting and waiting["n"] >= open_cards:
        raise Overdrawn(f"the board has {open_cards:,} open cards, which is the limit; finish or archive some")
    parents = [card_rows.find(tx, parent)["id"] for parent in new.parents]
    made = tx.one(
        "INSERT INTO cards (title, body, assignee, priority, workspace, budget, state, made_by, sender, key, created,"
        " changed, asker) VALUES (?, ?, ?, ?, ?, ?, 'triage', ?, ?, ?, ?, ?, ?) RETURNING id",
        title,
        plain(new.body).strip(),
        new.assignee,
        new.priority,
        new.workspace,
        new.budget,
        one_line(hand.name),
        encode(hand.sender) if hand.sender else None,
        new.key,
        at.now,
        at.now,
        encode(hand.asker) if hand.asker else None,
    )
    assert made is not None
    card: int = made["id"]
    for parent in dict.fromkeys(parents):
        tx.execute("INSERT INTO card_links (parent, child) VALUES (?, ?)", parent, card)
        if may_change(tx, str(parent), hand):
            card_rows.inherit(tx, parent, card)
    if hand.target is not None:
        card_rows.watch(tx, card, hand.target, hand.memory)
    card_rows.note(tx, card, "created", title, hand.name, at)
    if new.triage:
        tx.execute("UPDATE cards SET reason = 'it was not released yet' WHERE id = ?", card)
    else:
        _let_go(tx, card, at, _answered(hand))
    return card_rows.find(tx, str(card))


def _check_folder(tx: Transaction, name: str, hand: Hand) -> None:
    """Raises Unkeepable for a folder of another conversation; the owner may name any."""
    if not (len(name) <= 100 and name.isascii() and all(letter.isalnum() or letter in "-_" for letter in name)):
        raise Unkeepable("a workspace is a folder name of letters, digits, - and _")
    if name and not hand.is_owner and not card_rows.may_share(tx, name, hand.asker):
        raise Unkeepable(f"the folder {name} belongs to another conversation; choose another name")


def link(tx: Transaction, parent: str, child: str, hand: Hand, at: Moment, may_change: MayChange) -> None:
    """Makes the child wait for the parent."""
    before, behind = card_rows.find(tx, parent), card_rows.find(tx, child)
    if behind["state"] not in LINKABLE:
        raise Unkeepable(f"#{behind['id']} is {behind['state']}: it no longer waits for anything")
    if tx.one("SELECT 1 FROM card_links WHERE parent = ? AND child = ?", before["id"], behind["id"]):
        return
    if card_rows.leads_to(tx, behind["id"], before["id"]):
        raise Unkeepable(f"#{before['id']} already waits for #{behind['id']}; they would wait for each other")
    tx.execute("INSERT INTO card_links (parent, child) VALUES (?, ?)", before["id"], behind["id"])
    if may_change(tx, parent, hand):
        card_rows.inherit(tx, before["id"], behind["id"])
    card_rows.note(tx, behind["id"], "linked", f"waits for #{before['id']}", hand.name, at)
    if behind["state"] in (CardState.TODO, CardState.READY) or behind["block"] == Block.DEPENDENCY:
        _let_go(tx, behind["id"], at, _answered(hand))


def _answered(hand: Hand) -> tuple[str, ...]:
    return (str(hand.target),) if hand.is_answered and hand.target else ()


def ready(tx: Transaction, count: int, at: Moment) -> list[Row]:
    """Ready cards, the most urgent first."""
    return tx.all(
        "SELECT * FROM cards WHERE state = 'ready' AND due <= ? ORDER BY priority DESC, id LIMIT ?", at.now, count
    )


def claim(tx: Transaction, count: int, lease: float, at: Moment) -> list[Claimed]:
    """Claims the most urgent ready cards; each gets a new fence, a lease and an attempt."""
    return [_claim(tx, row, lease, at) for row in ready(tx, count, at)]


def _claim(tx: Transaction, row: Row, lease: float, at: Moment) -> Claimed:
    card, fence = row["id"], row["fence"] + 1
    last = tx.one("SELECT coalesce(max(number), 0) AS last FROM card_attempts WHERE card = ?", card)
    hold = Hold(card, (last["last"] if last else 0) + 1, fence)
    tx.execute(
        "UPDATE cards SET state = 'running', fence = ?, lease = ?, tries = tries + 1, changed = ? WHERE id = ?",
        fence,
        at.now + lease,
        at.now,
        card,
    )
    tx.execute(
        "INSERT INTO card_attempts (card, number, fence, started) VALUES (?, ?, ?, ?)",
        card,
        hold.attempt,
        fence,
        at.now,
    )
    card_rows.note(tx, card, "claimed", f"attempt {hold.attempt}", row["assignee"], at)
    return Claimed(hold, card_rows.find(tx, str(card)))


def held(tx: Transaction, hold: Hold) -> Row:
    """The card, if this worker still holds it; raises Fenced otherwise."""
    row = tx.one("SELECT * FROM cards WHERE id = ? AND fence = ? AND state = 'running'", hold.card, hold.fence)
    if row is None:
        raise Fenced(f"#{hold.card} is no longer yours, because attempt {hold.attempt} was ended; stop working on it")
    return row


def renew(tx: Transaction, hold: Hold, lease: float, at: Moment) -> None:
    held(tx, hold)
    tx.execute("UPDATE cards SET lease = ? WHERE id = ?", at.now + lease, hold.card)


def complete(tx: Transaction, hold: Hold, summary: str, files: tuple[CardFile, ...], at: Moment) -> None:
    row = held(tx, hold)
    if not summary.strip():
        raise Unkeepable("the summary must say what was done; the cards that wait for it see nothing else")
    for file in files:
        card_rows.attach(tx, hold.card, file)
    _end(tx, hold, Ending.COMPLETE, "", "", summary, at)
    _finish(tx, row, summary, row["assignee"], at)


def block(tx: Transaction, hold: Hold, kind: Block, reason: str, notes: str, at: Moment) -> None:
    """Blocks a card by the verdict of its worker or of the supervisor."""
    row, reason = held(tx, hold), card_rows.line(reason)
    if not reason:
        raise Unkeepable("say why it is blocked and what would help")
    _end(tx, hold, Ending.BLOCKED, kind, reason, notes, at)
    _block(tx, row, kind, reason, row["assignee"], at, notes)


def review(tx: Transaction, hold: Hold, summary: str, at: Moment) -> None:
    row = held(tx, hold)
    if not summary.strip():
        raise Unkeepable("the summary must say what to review")
    _end(tx, hold, Ending.REVIEW, "", "", summary, at)
    _move(tx, hold.card, CardState.REVIEW, "", "", at)
    tx.execute("UPDATE cards SET summary = ? WHERE id = ?", card_rows.words(summary), hold.card)
    event = card_rows.note(tx, hold.card, "review", summary, row["assignee"], at)
    card_rows.tell(tx, hold.card, event, card_news.review(row, summary), at)


def put_back(tx: Transaction, hold: Hold, kind: Block, reason: str, notes: str, due: float, at: Moment) -> None:
    """Ends an attempt without a verdict and makes the card ready again, without a notice."""
    row = held(tx, hold)
    _end(tx, hold, Ending.RETRY, kind, reason, notes, at)
    _move(tx, hold.card, CardState.READY, "", "", at)
    tx.execute("UPDATE cards SET due = ? WHERE id = ?", due, hold.card)
    card_rows.note(tx, hold.card, "retried", f"{kind}: {reason}", row["assignee"], at)


def unblock(tx: Transaction, id: str, comment: str, hand: Hand, at: Moment) -> None:
    row = card_rows.find(tx, id)
    if row["state"] not in (CardState.BLOCKED, CardState.TRIAGE, CardState.REVIEW):
        raise Unkeepable(f"#{row['id']} is {row['state']}: there is nothing to unblock")
    _check_gate(row, hand)
    if row["block"] == Block.DEPENDENCY and not _gives_up_waiting(tx, row["id"], hand):
        raise Unkeepable(f"#{row['id']} {row['reason']}; it continues by itself when that is done")
    if comment.strip():
        card_rows.remark(tx, row["id"], hand.name, comment, at)
    card_rows.note(tx, row["id"], "unblocked", comment, hand.name, at)
    tx.execute("UPDATE cards SET tries = 0, due = ? WHERE id = ?", at.now, row["id"])
    _let_go(tx, row["id"], at, _answered(hand))
    for child in card_rows.children(tx, row["id"]):
        if child["block"] == Block.DEPENDENCY:
            _let_go(tx, child["id"], at)


def _check_gate(row: Row, hand: Hand) -> None:
    if row["state"] in (CardState.TRIAGE, CardState.REVIEW) and not hand.is_person:
        raise Unkeepable(f"#{row['id']} waits for a person: {row['reason'] or 'a review is needed'}")


def _gives_up_waiting(tx: Transaction, card: int, hand: Hand) -> bool:
    """Tells whether a person lets a card continue without its archived parents, which will never be done."""
    waits = card_rows.waits_for(tx, card)
    if not hand.is_person or any(parent["state"] != CardState.ARCHIVED for parent in waits):
        return False
    for parent in waits:
        tx.execute("DELETE FROM card_links WHERE parent = ? AND child = ?", parent["id"], card)
    return True


def finish(tx: Transaction, id: str, summary: str, hand: Hand, at: Moment) -> None:
    """Marks a card as done on the word of someone other than its worker."""
    row = _at_rest(tx, id, hand)
    _finish(tx, row, summary.strip() or row["summary"] or f"{hand.name} says that it is done.", hand.name, at)


def set_aside(tx: Transaction, id: str, kind: Block, reason: str, hand: Hand, at: Moment) -> None:
    """Blocks a card on the word of someone other than its worker."""
    row, reason = _at_rest(tx, id, hand), card_rows.line(reason)
    if not reason:
        raise Unkeepable("say why it is blocked and what would help")
    if row["state"] == CardState.BLOCKED:
        raise Unkeepable(f"#{row['id']} is already blocked: {row['reason']}")
    _block(tx, row, kind, reason, hand.name, at, "")


def _at_rest(tx: Transaction, id: str, hand: Hand) -> Row:
    row = card_rows.find(tx, id)
    _check_gate(row, hand)
    if row["state"] == CardState.RUNNING:
        raise Unkeepable(f"{row['assignee']} is working on #{row['id']}; wait for it, or archive the card")
    if row["state"] not in AT_REST:
        raise Unkeepable(f"#{row['id']} is already {row['state']}")
    return row


def archive(tx: Transaction, id: str, hand: Hand, at: Moment) -> None:
    """Archives a card in any state; its worker may write nothing more, and the supervisor ends it."""
    row = card_rows.find(tx, id)
    if row["state"] == CardState.ARCHIVED:
        raise Unkeepable(f"#{row['id']} is already archived")
    attempt = open_attempt(tx, row["id"])
    if attempt:
        hold = Hold(row["id"], attempt["number"], attempt["fence"])
        _end(tx, hold, Ending.ARCHIVED, "", f"archived by {hand.name}", "", at)
    _move(tx, row["id"], CardState.ARCHIVED, "", "", at)
    card_rows.note(tx, row["id"], "archived", row["title"], hand.name, at)
    if row["finished"] is None:
        # Children blocked by this card no longer continue by themselves, so they are blocked again with a new reason.
        for child in card_rows.children(tx, row["id"]):
            if child["block"] == Block.DEPENDENCY:
                _move(tx, child["id"], CardState.TODO, "", "", at)
        _hold_back(tx, row["id"], f"waits for #{row['id']}, which was archived", at, ())


def open_attempt(tx: Transaction, card: int) -> Row | None:
    return tx.one("SELECT * FROM card_attempts WHERE card = ? AND ended IS NULL", card)


def _end(tx: Transaction, hold: Hold, ending: Ending, kind: str, reason: str, notes: str, at: Moment) -> None:
    tx.execute(
        "UPDATE card_attempts SET ended = ?, ending = ?, kind = ?, reason = ?, notes = ?"
        " WHERE card = ? AND number = ? AND ended IS NULL",
        at.now,
        ending,
        kind,
        card_rows.line(reason),
        card_rows.words(notes),
        hold.card,
        hold.attempt,
    )


def _move(tx: Transaction, card: int, state: CardState, block: str, reason: str, at: Moment) -> None:
    """Changes the state of a card; a card that stops running loses its lease and its fence."""
    tx.execute(
        "UPDATE cards SET state = ?, block = ?, reason = ?, lease = NULL, changed = ?,"
        " fence = CASE WHEN state = 'running' THEN fence + 1 ELSE fence END WHERE id = ?",
        state,
        block,
        reason,
        at.now,
        card,
    )
    tx.announce(BoardChanged())


def _finish(tx: Transaction, row: Row, summary: str, by: str, at: Moment) -> None:
    card, said = row["id"], card_rows.words(summary)
    tx.execute("UPDATE cards SET summary = ?, finished = ?, blocked_before = '' WHERE id = ?", said, at.now, card)
    _move(tx, card, CardState.DONE, "", "", at)
    event = card_rows.note(tx, card, "completed", said, by, at)
    # The notice contains the files of workers; files from people are already theirs.
    files = tx.all(
        "SELECT * FROM card_files WHERE card = ? AND place LIKE '/%' AND (by IN (?, ?) OR by LIKE 'attempt %')"
        " ORDER BY place",
        card,
        row["assignee"],
        by,
    )
    sent = tuple(File(path=file["place"], name=file["name"]) for file in files)
    card_rows.tell(tx, card, event, card_news.done(row, said), at, sent)
    for child in card_rows.children(tx, card):
        if child["state"] == CardState.TODO or child["block"] == Block.DEPENDENCY:
            _let_go(tx, child["id"], at)


def _let_go(tx: Transaction, card: int, at: Moment, told: Collection[str] = ()) -> None:
    """Makes a card ready if all parents are done; otherwise it waits, or is blocked if a parent is stuck."""
    waits = card_rows.waits_for(tx, card)
    stuck = [parent for parent in waits if parent["state"] in card_news.HELD_UP]
    row = card_rows.find(tx, str(card))
    if not waits:
        _move(tx, card, CardState.READY, "", "", at)
        card_rows.note(tx, card, "promoted", "", "", at)
        return
    if not stuck and row["block"] != Block.DEPENDENCY:
        _move(tx, card, CardState.TODO, "", "", at)
        return
    if row["block"] == Block.DEPENDENCY and row["state"] == CardState.BLOCKED:
        # The watchers were told when the card was first blocked; only its reason may change now.
        _move(tx, card, CardState.BLOCKED, Block.DEPENDENCY, card_news.waits_for((stuck or waits)[0]), at)
        return
    _block(tx, row, Block.DEPENDENCY, card_news.waits_for((stuck or waits)[0]), "", at, "", told)


def _block(
    tx: Transaction,
    row: Row,
    kind: Block,
    reason: str,
    by: str,
    at: Moment,
    notes: str,
    told: Collection[str] = (),
) -> None:
    """Blocks a card; if the same block happens again, a person is asked to look."""
    card = row["id"]
    mark = kind.value if kind in BY_KIND else f"{kind}: {reason}"
    again = kind is not Block.DEPENDENCY and mark == row["blocked_before"]
    _move(tx, card, CardState.TRIAGE if again else CardState.BLOCKED, kind, reason, at)
    if kind is not Block.DEPENDENCY:
        tx.execute("UPDATE cards SET blocked_before = ? WHERE id = ?", mark, card)
    event = card_rows.note(tx, card, "asked a person" if again else "blocked", f"{kind}: {reason}", by, at)
    stuck = "blocked" if not again else "waiting for a person"
    places = card_rows.watchers(tx, card)
    behind = _hold_back(tx, card, f"waits for #{card}, which is {stuck} ({kind.phrase})", at, places)
    said = card_news.blocked(row, kind, reason, notes, behind, again=again)
    card_rows.tell(tx, card, event, said, at, told=told)


def _hold_back(tx: Transaction, card: int, reason: str, at: Moment, told: Collection[str]) -> list[int]:
    """Blocks all cards that wait for this one, directly or indirectly; each watcher is told once."""
    behind, news = list[int](), list[tuple[Row, str]]()
    waiting = [(child, card, reason) for child in card_rows.children(tx, card)]
    while waiting:
        child, before, why = waiting.pop(0)
        own: int = child["id"]
        is_held = child["state"] == CardState.BLOCKED and child["block"] == Block.DEPENDENCY
        if own in behind or not (is_held or child["state"] in (CardState.TODO, CardState.READY)):
            continue
        behind.append(own)
        # A card that is already waiting for another blocked parent keeps its reason; its watchers were told before.
        if not (is_held and (before != card or _is_held_by_another(tx, own, card))):
            _move(tx, own, CardState.BLOCKED, Block.DEPENDENCY, why, at)
            news.append((child, why))
        further = f"waits for #{own}, which is blocked ({Block.DEPENDENCY.phrase})"
        waiting += [(each, own, further) for each in card_rows.children(tx, own)]
    heard = set(told)
    for number, (child, why) in enumerate(news):
        event = card_rows.note(tx, child["id"], "blocked", f"{Block.DEPENDENCY}: {why}", "", at)
        said = card_news.held_back(child, why, [later["id"] for later, _ in news[number + 1 :]])
        card_rows.tell(tx, child["id"], event, said, at, told=heard)
        heard.update(card_rows.watchers(tx, child["id"]))
    return behind


def _is_held_by_another(tx: Transaction, card: int, cause: int) -> bool:
    waits = (parent for parent in card_rows.waits_for(tx, card) if parent["id"] != cause)
    return any(parent["state"] in card_news.HELD_UP for parent in waits)
