"""The board as tools: a worker says how its card ends; a bot with the tool `board` can use the whole board."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from msgspec import Meta

from tidings.bots.assistant.tools import workspace
from tidings.bots.assistant.tools.tool import A, Arguments, Occasion, Result, Tool, ToolError, define
from tidings.core import context
from tidings.core.agent import Effect
from tidings.core.desk.board import (
    BY_WORKER,
    Block,
    Board,
    Card,
    CardFile,
    CardState,
    Hand,
    NewCard,
    Order,
    is_link,
    link_to,
)
from tidings.core.errors import Fenced, Overdrawn, Unkeepable, Unknown, Unstored, Unsupported
from tidings.core.roles import Permission
from tidings.core.types import Origin

KINDS = ", ".join(BY_WORKER)
MOST_LISTED = 100
SAID = "what was done, what came of it and where it is, for those who wait for it"
CardId = Annotated[str, Meta(description="The number of a card; empty is the one that you work on.")]


class Showing(Arguments, frozen=True):
    card: CardId = ""


class Listing(Arguments, frozen=True):
    state: Annotated[str, Meta(description=f"One of {', '.join(CardState)}; empty is all but the archived.")] = ""
    assignee: str = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 50


class Creation(Arguments, frozen=True):
    title: str
    body: Annotated[str, Meta(description="All that the worker must know: it sees nothing of this chat.")] = ""
    assignee: Annotated[str, Meta(description="The bot to do it; empty means yourself.")] = ""
    parents: Annotated[tuple[str, ...], Meta(description="Cards that must be done before.")] = ()
    priority: Annotated[int, Meta(description="The higher, the sooner.")] = 0
    budget: Annotated[int, Meta(description="Requests to the model in one attempt; 0 is the bot's own limit.")] = 0
    workspace: Annotated[str, Meta(description="A folder that several cards share, by its name.")] = ""


class Linking(Arguments, frozen=True):
    parent: Annotated[str, Meta(description="The card that must be done first.")]
    child: Annotated[str, Meta(description="The card that waits for it.")]


class Commenting(Arguments, frozen=True):
    text: str
    card: CardId = ""


class Attaching(Arguments, frozen=True):
    place: Annotated[str, Meta(description="A file in the workspace, or an address that begins with https://.")]
    card: CardId = ""


class Beating(Arguments, frozen=True):
    note: Annotated[str, Meta(description="What you are doing, in a few words.")] = ""


class Completing(Arguments, frozen=True):
    summary: Annotated[str, Meta(description=f"In full sentences: {SAID}.")]
    artifacts: Annotated[tuple[str, ...], Meta(description="Files in the workspace that are the result.")] = ()
    card: CardId = ""


class Blocking(Arguments, frozen=True):
    kind: Annotated[str, Meta(description=f"One of {KINDS}.")]
    reason: Annotated[str, Meta(description="In a sentence: what is missing, and who has to do what about it.")]
    notes: Annotated[str, Meta(description="What is done and what is open, for the next worker.")] = ""
    card: CardId = ""


class Reviewing(Arguments, frozen=True):
    summary: Annotated[str, Meta(description=f"In full sentences: {SAID}, and what to look at.")]


class Unblocking(Arguments, frozen=True):
    card: str
    comment: Annotated[str, Meta(description="What the worker should know now.")] = ""


class Archiving(Arguments, frozen=True):
    card: str


Act = Callable[[A, Occasion], Awaitable[Result]]


def tools(*, everything: bool) -> tuple[Tool, ...]:
    """The tools of the board; without `everything`, only those for the card that the run works on."""
    writing = _Writing(everything=everything)
    own = (
        _made(
            "board_show",
            "Shows a card: text, comments, results, attempts.",
            Showing,
            Effect.PURE,
            writing.show,
            untrusted=True,
        ),
        _said("board_comment", "Writes a comment on a card.", Commenting, writing.comment),
        _said("board_attach", "Attaches a file or an address to a card.", Attaching, writing.attach),
        _said("board_heartbeat", "Says that you still work on your card, and on what.", Beating, _beat),
        _said(
            "board_complete", "Says that a card is done; the last thing you do for it.", Completing, writing.complete
        ),
        _said("board_block", "Says that a card cannot go on, and why; then stop.", Blocking, writing.block),
        _said("board_request_review", "Has a person look at your work before it is done.", Reviewing, _review),
    )
    return (*own, *_for_orchestrators()) if everything else own


def _for_orchestrators() -> tuple[Tool, ...]:
    return (
        _made("board_list", "Lists cards of the board.", Listing, Effect.PURE, _list, untrusted=True),
        _said("board_create", "Puts a card on the board for a bot; this talk is told how it ends.", Creation, _create),
        _said("board_link", "Makes one card wait for another.", Linking, _link),
        _said("board_unblock", "Lets a blocked card go on.", Unblocking, _unblock),
        _said("board_archive", "Archives a card for good; a worker that is on it is stopped.", Archiving, _archive),
    )


class _Writing:
    """The tools that change a card: the run's own card, or any card with `everything`."""

    def __init__(self, *, everything: bool) -> None:
        self._everything = everything

    async def show(self, asked: Showing, occasion: Occasion) -> Result:
        card = await occasion.desk.board.get(_own_or(asked.card))
        near = {line.id for line in (*card.parents, *card.children)}
        if not self._everything and _own() not in (card.id, *near):
            raise ToolError("You may look at your own card, and at those before and behind it.")
        return Result(_told(card))

    async def comment(self, asked: Commenting, occasion: Occasion) -> Result:
        id = self._allowed(asked.card)
        await _obey(occasion, Order("comment", id=id, text=asked.text, key=occasion.key))
        return Result(f"Written on #{id.lstrip('#')}.")

    async def attach(self, asked: Attaching, occasion: Occasion) -> Result:
        id = self._allowed(asked.card)
        await _obey(occasion, Order("attach", id=id, file=await _file(asked.place, occasion)))
        return Result(f"Attached to #{id.lstrip('#')}.")

    async def complete(self, asked: Completing, occasion: Occasion) -> Result:
        id = self._allowed(asked.card)
        files = tuple([await _file(place, occasion) for place in asked.artifacts])
        if id == _own():
            return _moved(await occasion.desk.board.complete(asked.summary, files))
        for file in files:
            await _obey(occasion, Order("attach", id=id, file=file))
        return _moved(await _obey(occasion, Order("done", id=id, text=asked.summary)))

    async def block(self, asked: Blocking, occasion: Occasion) -> Result:
        id = self._allowed(asked.card)
        if asked.kind not in BY_WORKER:
            raise ToolError(f"{asked.kind!r} is no kind of block; there are: {KINDS}.")
        kind = Block(asked.kind)
        if id == _own():
            return _moved(await occasion.desk.board.block(kind, asked.reason, asked.notes))
        return _moved(await _obey(occasion, Order("block", id=id, text=asked.reason, kind=kind)))

    def _allowed(self, card: str) -> str:
        id = _own_or(card)
        if not self._everything and id != _own():
            raise ToolError(f"You may write on your own card alone, and #{id} is another.")
        return id


def _said(name: str, words: str, arguments: type[A], act: Act[A]) -> Tool:
    """A tool that has the same effect when it is called twice."""
    return _made(name, words, arguments, Effect.IDEMPOTENT, act)


def _made(name: str, words: str, arguments: type[A], effect: Effect, act: Act[A], *, untrusted: bool = False) -> Tool:
    # People and other agents write on cards.
    source = (lambda _: "cards of the board") if untrusted else None
    return define(name, words, arguments, effect, Permission.WORK, _speaking(act), untrusted=untrusted, source=source)


def _speaking(act: Act[A]) -> Act[A]:
    """Turns a refusal of the board into an error for the model, in the board's own words."""

    async def acting(asked: A, occasion: Occasion) -> Result:
        try:
            return await act(asked, occasion)
        except (Fenced, Overdrawn, Unkeepable, Unknown, Unstored, Unsupported) as error:
            raise ToolError(f"Nothing was changed: {error}.") from error

    return acting


async def _beat(asked: Beating, occasion: Occasion) -> Result:
    await occasion.desk.board.heartbeat(asked.note)
    return Result("Noted; go on.")


async def _review(asked: Reviewing, occasion: Occasion) -> Result:
    return _moved(await occasion.desk.board.request_review(asked.summary))


async def _list(asked: Listing, occasion: Occasion) -> Result:
    if asked.state and asked.state not in list(CardState):
        raise ToolError(f"{asked.state!r} is no state; there are: {', '.join(CardState)}.")
    states = (CardState(asked.state),) if asked.state else ()
    return Result(_listed(await occasion.desk.board.all(states, asked.limit, assignee=asked.assignee)))


async def _create(asked: Creation, occasion: Occasion) -> Result:
    new = NewCard(
        title=asked.title,
        body=asked.body,
        assignee=asked.assignee,
        parents=asked.parents,
        priority=asked.priority,
        budget=asked.budget,
        workspace=asked.workspace,
        key=occasion.key,
    )
    card = await _obey(occasion, Order("add", new=new))
    told = "" if card.watchers else " No one here can be notified when it ends: look at it with board_show."
    return Result(f"Card #{card.id} for {card.assignee} is {card.state}{_why(card)}.{told}")


async def _link(asked: Linking, occasion: Occasion) -> Result:
    return _moved(await _obey(occasion, Order("link", id=asked.parent, other=asked.child)))


async def _unblock(asked: Unblocking, occasion: Occasion) -> Result:
    return _moved(await _obey(occasion, Order("unblock", id=asked.card, text=asked.comment)))


async def _archive(asked: Archiving, occasion: Occasion) -> Result:
    card = await occasion.desk.board.get(asked.card)
    # Archiving a card twice is harmless.
    if card.state is not CardState.ARCHIVED:
        card = await _obey(occasion, Order("archive", id=asked.card))
    return _moved(card)


async def _obey(occasion: Occasion, order: Order) -> Card:
    card = (await occasion.desk.board.obey(order, _hand())).card
    assert card is not None
    return card


def _own() -> str:
    """The card that this run works on; empty for a run that works on none."""
    session = context.current()
    return session.errand.id if session.errand and session.conversation.adapter == Origin.CARD else ""


def _own_or(card: str) -> str:
    id = card.strip().removeprefix("#") or _own()
    if not id:
        raise ToolError("Say which card, by its number.")
    return id


def _hand() -> Hand:
    """The bot as the author of a change; the chat that it works for watches the cards that it makes."""
    session = context.current()
    target = session.target if session.can.async_delivery else None
    place = (target, session.conversation, session.sender)
    return Hand(session.bot, *place, is_person=False, bot=session.bot, asker=session.asker)


async def _file(place: str, occasion: Occasion) -> CardFile:
    by = context.current().bot
    if is_link(place):
        return link_to(place, by=by)
    file = await occasion.desk.adopt(str(workspace.locate(place)))
    return CardFile(file.name, file.path, by)


def _why(card: Card) -> str:
    return f" ({card.block}: {card.reason})" if card.block else ""


def _moved(card: Card) -> Result:
    return Result(f"#{card.id} is {card.state} now{_why(card)}.")


def _listed(board: Board) -> str:
    lines = [
        f"#{line.id} [{line.state}] {line.title} – {line.assignee}"
        + (f" ({line.block}: {line.reason})" if line.block else "")
        for line in board.cards
    ]
    counted = ", ".join(f"{count} {state}" for state, count in board.counts.items())
    return "\n".join([f"On the board: {counted or 'nothing'}.", *lines])


def _told(card: Card) -> str:
    parts = [f"#{card.id} {card.title}\n{card.state}{_why(card)}; for {card.assignee}, by {card.by}", card.body]
    if card.summary:
        parts.append(f"Result: {card.summary}")
    parts += [f"Before it: #{line.id} {line.title} ({line.state})" for line in card.parents]
    parts += [f"Behind it: #{line.id} {line.title} ({line.state})" for line in card.children]
    parts += [f"File: {file.name} at {file.place}" for file in card.files]
    parts += [f"Attempt {each.number}: {each.ending or 'goes on'} {each.reason} {each.notes}" for each in card.attempts]
    parts += [f"{remark.by}: {remark.text}" for remark in card.remarks]
    return "\n\n".join(filter(None, parts))
