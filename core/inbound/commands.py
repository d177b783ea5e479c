"""Control commands: values with a handler that runs in the storing transaction, obeyed at once and once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidings.core.inbound import inbox, policy, undo
from tidings.core.memory import conversations, usage
from tidings.core.store.store import Transaction
from tidings.core.types import Inbound


class Obeyed(NamedTuple):
    """What a handler answers: a reply, or a run whose own outcome will be the reply."""

    reply: str = ""
    # A message that becomes a run in the same transaction.
    again: Inbound | None = None


Handler = Callable[[Transaction, Inbound], Obeyed]


class Command(NamedTuple):
    name: str
    help: str
    # Without one the bot obeys it, in a run like any other.
    handler: Handler | None
    # What it brings about is a run, now or later: its answer is for whoever reads that.
    runs: bool = False


class Commands:
    def __init__(self, commands: Iterable[Command], wall: Callable[[], float]) -> None:
        """`wall` tells what day it is."""
        self._wall = wall
        # Those of parts that live only as long as the gateway runs.
        self._of_parts: dict[str, Command] = {}
        self.renew(commands)

    def renew(self, commands: Iterable[Command]) -> None:
        """Those that the bots bring along are others from now on."""
        own = Command("usage", "tokens and money of this conversation", self._usage)
        theirs = (*commands, *self._of_parts.values())
        self._commands = {command.name: command for command in (*BUILT_IN, own, *theirs)}
        self._commands["help"] = Command("help", "this list", self._help)

    def add(self, commands: Iterable[Command]) -> None:
        """Those of parts that live only as long as the gateway runs."""
        self._of_parts |= {command.name: command for command in commands}
        self._commands.update(self._of_parts)

    def get(self, name: str) -> Command | None:
        # What platforms send when a person opens a chat with a bot.
        return self._commands.get("help" if name == "start" else name)

    def all(self) -> list[Command]:
        return sorted(self._commands.values())

    def _help(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        lines = [f"/{command.name} – {command.help}" for command in self.all()]
        return Obeyed("Write to me and I answer. I also obey:\n" + "\n".join(lines))

    def _usage(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        return Obeyed(usage.told(tx, inbound.conversation.id, self._wall()))


def _status(tx: Transaction, inbound: Inbound) -> Obeyed:
    conversation = inbound.conversation.id
    live = inbox.live_run(tx, conversation)
    waiting = inbox.waiting_in(tx, conversation)
    lost = tx.one(
        "SELECT count(*) AS n FROM deliveries WHERE lane = ? AND state <> 'delivered'"
        " AND state IN ('doubtful', 'dead', 'held') AND kind <> 'opening'",
        inbound.target.lane,
    )
    lines = [
        f"Working on your message ({live})." if live else "Nothing is running here.",
        f"{waiting} more waiting." if waiting else "Nothing is waiting.",
    ]
    if lost and lost["n"]:
        lines.append(f"{lost['n']} answers to this chat may not have arrived.")
    return Obeyed("\n".join(lines))


def _whoami(tx: Transaction, inbound: Inbound) -> Obeyed:
    name = f" ({inbound.sender.name})" if inbound.sender.name else ""
    return Obeyed(f"You are {policy.names(inbound)[0]}{name}.\nThis conversation is {inbound.conversation.id}.")


def _new(tx: Transaction, inbound: Inbound) -> Obeyed:
    conversations.begin_generation(tx, inbound.conversation.id)
    if inbox.live_run(tx, inbound.conversation.id):
        return Obeyed("A new conversation begins. The answer that is still running belongs to the old one.")
    return Obeyed("A new conversation begins; I no longer look at what was said before.")


def _stop(tx: Transaction, inbound: Inbound) -> Obeyed:
    """Has no reply of its own while something runs: the cancelled outcome is the answer."""
    live = inbox.live_run(tx, inbound.conversation.id)
    if inbound.about and (live is None or not inbox.is_shown_in(tx, live, inbound.about)):
        # A stop button that was pressed too late stops no other answer and gets no reply.
        return Obeyed()
    if live is None:
        waiting = inbox.waiting_in(tx, inbound.conversation.id)
        return Obeyed("Nothing is running." + (f" {waiting} messages still wait for their turn." if waiting else ""))
    inbox.ask_stop(tx, live, inbound.sender.name or inbound.sender.id)
    # A place of its own that waits for a reply gets one.
    return Obeyed("I stop the answer that is running." if inbound.target.handle else "")


def _undo(tx: Transaction, inbound: Inbound) -> Obeyed:
    return Obeyed(undo.take_back(tx, inbound.conversation.id, "take back").words)


def _retry(tx: Transaction, inbound: Inbound) -> Obeyed:
    """Has no reply of its own where something is tried again: the new outcome is the answer."""
    taken = undo.take_back(tx, inbound.conversation.id, "try again")
    if taken.message is None:
        return Obeyed(taken.words)
    return Obeyed(again=undo.again(taken.message, inbound))


BUILT_IN = (
    Command("status", "what I am doing here", _status),
    Command("whoami", "who you are to me", _whoami),
    Command("new", "begin a new conversation", _new),
    Command("stop", "stop the answer that is running", _stop),
    Command("undo", "take back your last message and its answer", _undo),
    Command("retry", "answer your last message again", _retry, runs=True),
)
