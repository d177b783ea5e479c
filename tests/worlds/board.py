"""A board in a box: hands for it, agents that give verdicts, and workers that are processes and misbehave.

async with World(tmp_path, Verdict("done")) as world:
    card = await added(world.gateway.desk.board, NewCard("paint the fence"), HAND)
    await until(world, card.id, CardState.DONE)
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.worlds.world import OwnedClock, World
from tidings.core.agent import Event, Finished, TextDelta, ToolFinished, ToolStarted, Turn
from tidings.core.desk.board import Block, BoardDesk, Card, CardState, Hand, NewCard, Order
from tidings.core.store.store import Transaction
from tidings.core.types import Conversation, Sender, Target

CHAT = Target(adapter="paper", chat="1")
HAND = Hand("Ada", CHAT, Conversation(adapter="paper", account="main", chat="1"), Sender(id="7", name="Ada"))
# Nobody watches what this one makes.
NOBODY = Hand("nobody")


async def obeyed(board: BoardDesk, order: Order, hand: Hand) -> Card:
    """The card as an order has left it."""
    card = (await board.obey(order, hand)).card
    assert card is not None
    return card


async def added(board: BoardDesk, new: NewCard, hand: Hand) -> Card:
    return await obeyed(board, Order("add", new=new), hand)


def anybody(tx: Transaction, id: str, hand: Hand) -> bool:
    """May change any card, for tests of the board's law alone."""
    return True


# How a process speaks: one line of JSON to hear of its card, one for each thing that it has to say.
WORKER = """
import json, os, sys, time
brief = json.loads(sys.stdin.readline())
def say(**words):
    print(json.dumps(words), flush=True)
    return json.loads(sys.stdin.readline())
"""


def process(script: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", WORKER + script)


class Verdict:
    """Ends its card in each attempt as the next of these says; the last one goes on for ever."""

    def __init__(self, *verdicts: str | Block | Callable[[Turn], Any] | BaseException) -> None:
        self.verdicts = verdicts
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        verdict = self.verdicts[min(len(self.turns), len(self.verdicts) - 1)]
        self.turns.append(turn)
        if isinstance(verdict, BaseException):
            raise verdict
        if callable(verdict):
            async for event in verdict(turn):
                yield event
            return
        yield TextDelta("I have done what I could.")
        yield ToolStarted("1", "board_complete")
        if isinstance(verdict, Block):
            await turn.desk.board.block(verdict, "which colour?", "the posts are done")
        else:
            await turn.desk.board.complete(verdict, ())
        yield ToolFinished("1", "ok")
        yield Finished()

    @property
    def texts(self) -> list[str]:
        return [turn.message.text for turn in self.turns]


async def card(world: World, id: str) -> Card:
    return await world.gateway.desk.board.get(id)


def state_of(world: World, id: str) -> str:
    found = world.rows("SELECT state FROM cards WHERE id = ?", int(id))
    return str(found[0]["state"]) if found else ""


async def until(world: World, id: str, *states: CardState) -> Card:
    """Waits for the card to be in one of these, moving an owned clock."""
    if isinstance(world.clock, OwnedClock):
        await world.until(lambda: state_of(world, id) in states, real_limit=20.0)
    else:
        await world.eventually(lambda: state_of(world, id) in states, lambda: f"#{id} is {state_of(world, id)}")
    return await card(world, id)
