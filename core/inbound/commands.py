"""Control commands such as /stop: each handler runs in the transaction that stores the command, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from tidings.core.inbound import inbox, members, undo
from tidings.core.inbound.stopping import Stopping
from tidings.core.memory import conversations, handovers
from tidings.core.people import names
from tidings.core.people.people import People
from tidings.core.people.register import a
from tidings.core.roles import Permission, Person
from tidings.core.store.store import Transaction
from tidings.core.types import Asker, Inbound

NOT_YOURS = "Somebody else asked for this answer. They can stop it, and so can an owner or admin."


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
    # What a person must be permitted to use the command.
    needs: Permission
    # The command leads to a run: its answer is meant for everyone who reads the chat.
    runs: bool = False
    # A stranger may use the command in a private chat: its own code decides.
    for_strangers: bool = False


class Commands:
    def __init__(
        self, of_bots: Iterable[Command], of_parts: Iterable[Command], people: People, stopping: Stopping
    ) -> None:
        self._people = people
        self._stopping = stopping
        self._of_parts = tuple(of_parts)
        self.renew(of_bots)

    def renew(self, of_bots: Iterable[Command]) -> None:
        """Replaces the commands that the bots provide."""
        own = (
            Command("whoami", "who you are to me", self._whoami, Permission.BASICS),
            Command("undo", "forget your last message and its answer", self._undo, Permission.WORK),
            Command("stop", "stop the answer that is running", self._stop, Permission.BASICS),
            Command("retry", "answer your last message again", self._retry, Permission.WORK, runs=True),
        )
        self._commands = {command.name: command for command in (*BUILT_IN, *own, *of_bots, *self._of_parts)}
        self._commands["help"] = Command("help", "this list", self._help, Permission.BASICS)

    def get(self, name: str) -> Command | None:
        # Platforms send /start when a person opens a chat with a bot.
        return self._commands.get("help" if name == "start" else name)

    def all(self) -> list[Command]:
        return sorted(self._commands.values(), key=lambda command: command.name)

    def refusal(self, command: Command, inbound: Inbound) -> str:
        """Why the sender may not use a command, in a sentence for them; empty if they may."""
        person = self._people.find(inbound)
        if self._people.may(person, command.needs):
            return ""
        return f"You can't use /{command.name}: you are {a(person.role)} here. An owner or admin can change that."

    def _help(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        person = self._people.find(inbound)
        usable = [command for command in self.all() if self._people.may(person, command.needs)]
        lines = [f"/{command.name} – {command.help}" for command in usable]
        return Obeyed("Write to me and I answer. I also know these commands:\n" + "\n".join(lines))

    def _whoami(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        person = self._people.find(inbound)
        name = f" ({inbound.sender.name})" if inbound.sender.name else ""
        own = names.name_of(inbound.target, inbound.sender)
        others = [each for each in person.identities if each != own]
        lines = [f"You are {own}{name}, {a(person.role)} here."]
        if others:
            lines.append(f"You are also {', '.join(others)}.")
        return Obeyed("\n".join([*lines, f"This conversation is {inbound.conversation.id}."]))

    def _stop(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        """Stops the running answer; its cancelled outcome is the reply."""
        live = inbox.live_run(tx, inbound.conversation.id) or inbox.going_on(tx, inbound.conversation.id)
        # Where each member has a conversation, the answers of others run in other conversations of the same chat.
        beside = [run for run in members.running(tx, inbound) if run != live]
        person = self._people.find(inbound)
        if inbound.about:
            shown = [run for run in (live, *beside) if run and inbox.is_shown_in(tx, run, inbound.about)]
            if not shown:
                # A late press of an answer's stop button must not stop another answer, and gets no reply.
                return Obeyed()
        else:
            shown = [live] if live else [run for run in beside if self._may_stop(tx, person, run)]
        if not shown:
            if self._stopping.stop_resting(tx, inbound, lambda run: self._may_stop(tx, person, run)):
                return Obeyed("Stopped." if inbound.target.handle else "")
            waiting = inbox.waiting_in(tx, inbound.conversation.id)
            several = f" {waiting} messages still wait for their turn."
            more = "" if not waiting else " One message still waits for its turn." if waiting == 1 else several
            return Obeyed(f"Nothing is running.{more}")
        if not all(self._may_stop(tx, person, run) for run in shown):
            return Obeyed(NOT_YOURS)
        for run in shown:
            inbox.ask_stop(tx, run, inbound.sender.name or inbound.sender.id)
        # A platform that gave a handle for the reply waits for one.
        return Obeyed("Stopping the answer." if inbound.target.handle else "")

    def _retry(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        """Answers the last message again; the new outcome is the reply."""
        taken = undo.take_back(tx, inbound.conversation.id, "try again")
        if taken.message is None:
            return Obeyed(taken.words)
        again, author = undo.again(taken.message, inbound), self._people.find(taken.message)
        if author.role.rank < self._people.find(inbound).role.rank:
            # A guest's words stay a guest's: the bot does no more for them because an owner has them answered again.
            again = replace(again, sender=taken.message.sender)
        return Obeyed(again=again)

    def _undo(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        return Obeyed(undo.take_back(tx, inbound.conversation.id, "undo", self._owner_check(inbound)).words)

    def _owner_check(self, inbound: Inbound) -> Callable[[Inbound], bool]:
        """Tells of a message whether the sender of a command may take it back: their own, or as an admin any."""
        person = self._people.find(inbound)
        return lambda message: self._people.may(person, Permission.OTHERS) or self._people.is_own(message.asker, person)

    def _may_stop(self, tx: Transaction, person: Person, run: str) -> bool:
        return self._people.may(person, Permission.OTHERS) or self._people.is_own(_asker(tx, run), person)


def _status(tx: Transaction, inbound: Inbound) -> Obeyed:
    conversation = inbound.conversation.id
    live = inbox.live_run(tx, conversation)
    waiting = inbox.waiting_in(tx, conversation)
    lost = tx.one(
        "SELECT count(*) AS n FROM deliveries WHERE lane = ? AND state <> 'delivered'"
        " AND state IN ('doubtful', 'dead', 'held') AND kind <> 'opening'",
        inbound.target.lane,
    )
    working = f"Working on your message ({live})." if live else "Nothing is running here."
    if inbox.question_of(tx, conversation):
        working = "Waiting for an answer to my question whether a tool may run."
    lines = [
        working,
        f"{waiting} more waiting." if waiting else "Nothing is waiting.",
    ]
    if lost and lost["n"]:
        lines.append(f"{lost['n']} answers to this chat may not have arrived.")
    return Obeyed("\n".join(lines))


def _new(tx: Transaction, inbound: Inbound) -> Obeyed:
    """Begins a new talk in the chat's own conversation, also where the chat goes on with another one."""
    own = inbound.began or inbound.conversation
    handovers.end(tx, own.id)
    conversations.begin_generation(tx, own.id)
    if inbox.live_run(tx, inbound.conversation.id):
        return Obeyed("This is a new conversation. The answer that is still running belongs to the old one.")
    return Obeyed("This is a new conversation. I have forgotten what was said before.")


def _asker(tx: Transaction, run: str) -> Asker | None:
    return inbox.message_of(tx, run).asker


BUILT_IN = (
    Command("status", "what I am doing here", _status, Permission.BASICS),
    Command("new", "begin a new conversation", _new, Permission.BASICS),
)
