"""Control commands such as /stop: each handler runs in the transaction that stores the command, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidings.core.inbound import inbox, policy, undo
from tidings.core.memory import conversations, usage
from tidings.core.store.store import Transaction
from tidings.core.types import Inbound


class Obeyed(NamedTuple):
    """A handler's result: a reply, or a message whose run gives the answer."""

    reply: str = ""
    # A message that becomes a run in the same transaction.
    again: Inbound | None = None


Handler = Callable[[Transaction, Inbound], Obeyed]


class Command(NamedTuple):
    name: str
    help: str
    # None for a command that the bot itself handles, in a run like any other.
    handler: Handler | None
    # The command leads to a run: its answer is meant for everyone who reads the chat.
    runs: bool = False


class Commands:
    def __init__(self, of_bots: Iterable[Command], of_parts: Iterable[Command], wall: Callable[[], float]) -> None:
        """`wall` is the wall clock, for dates."""
        self._wall = wall
        self._of_parts = tuple(of_parts)
        self.renew(of_bots)

    def renew(self, of_bots: Iterable[Command]) -> None:
        """Replaces the commands that the bots provide."""
        own = Command("usage", "tokens and money of this conversation", self._usage)
        self._commands = {command.name: command for command in (*BUILT_IN, own, *of_bots, *self._of_parts)}
        self._commands["help"] = Command("help", "this list", self._help)

    def get(self, name: str) -> Command | None:
        # Platforms send /start when a person opens a chat with a bot.
        return self._commands.get("help" if name == "start" else name)

    def all(self) -> list[Command]:
        return sorted(self._commands.values())

    def _help(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        lines = [f"/{command.name} – {command.help}" for command in self.all()]
        return Obeyed("Write to me and I answer. I also know these commands:\n" + "\n".join(lines))

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
        return Obeyed("This is a new conversation. The answer that is still running belongs to the old one.")
    return Obeyed("This is a new conversation. I have forgotten what was said before.")


def _stop(tx: Transaction, inbound: Inbound) -> Obeyed:
    """Stops the running answer; its cancelled outcome is the reply."""
    live = inbox.live_run(tx, inbound.conversation.id)
    if inbound.about and (live is None or not inbox.is_shown_in(tx, live, inbound.about)):
        # A late press of an answer's stop button must not stop another answer, and gets no reply.
        return Obeyed()
    if live is None:
        waiting = inbox.waiting_in(tx, inbound.conversation.id)
        return Obeyed("Nothing is running." + (f" {waiting} messages still wait for their turn." if waiting else ""))
    inbox.ask_stop(tx, live, inbound.sender.name or inbound.sender.id)
    # A platform that gave a handle for the reply waits for one.
    return Obeyed("Stopping the answer." if inbound.target.handle else "")


def _undo(tx: Transaction, inbound: Inbound) -> Obeyed:
    return Obeyed(undo.take_back(tx, inbound.conversation.id, "undo").words)


def _retry(tx: Transaction, inbound: Inbound) -> Obeyed:
    """Answers the last message again; the new outcome is the reply."""
    taken = undo.take_back(tx, inbound.conversation.id, "try again")
    if taken.message is None:
        return Obeyed(taken.words)
    return Obeyed(again=undo.again(taken.message, inbound))


BUILT_IN = (
    Command("status", "what I am doing here", _status),
    Command("whoami", "who you are to me", _whoami),
    Command("new", "begin a new conversation", _new),
    Command("stop", "stop the answer that is running", _stop),
    Command("undo", "forget your last message and its answer", _undo),
    Command("retry", "answer your last message again", _retry, runs=True),
)
