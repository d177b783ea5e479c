"""Decides what becomes of a message while a run goes on in its conversation: it waits, joins, steers or interrupts."""

from __future__ import annotations

from msgspec.structs import replace

from tidings.core.busy import Busy
from tidings.core.inbound import inbox, joining
from tidings.core.inbound.bots import Bots
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.memory import preferences
from tidings.core.people.people import People
from tidings.core.roles import Permission
from tidings.core.runs import stops
from tidings.core.settings import Limits
from tidings.core.store import wakeups
from tidings.core.store.store import Transaction
from tidings.core.types import Audience, Inbound, Kind

PREFERENCE = "busy"
DEFAULT = "default"
# Each goes on after "When a message comes while I am busy,".
ABOUT = {
    Busy.QUEUE: "I answer it next, in order.",
    Busy.COLLECT: "I answer everything that came meanwhile together, when I am done.",
    Busy.STEER: "I take it into account at my next step, or answer it next.",
    Busy.INTERRUPT: "I stop, and answer it at once.",
}
NOTED = "I will take that into account."
WHICH = f"Choose one of {', '.join(Busy)}, or {DEFAULT}."


class BusyModes:
    """The modes of all conversations: chosen there by command, else by a rule, by the bot or by the limits."""

    def __init__(self, people: People, bots: Bots, limits: Limits) -> None:
        self.people = people
        self._bots = bots
        self._limits = limits

    def renew(self, limits: Limits) -> None:
        self._limits = limits

    def mode_of(self, tx: Transaction, inbound: Inbound) -> Busy:
        if inbound.busy is not None:
            return inbound.busy
        chosen = preferences.read(tx, inbound.conversation.id).get(PREFERENCE, "")
        return Busy(chosen) if chosen in set(Busy) else self._default_of(inbound)

    def _default_of(self, inbound: Inbound) -> Busy:
        return self._bots.busy_mode_of(inbound) or self._limits.busy

    def burst_of(self, inbound: Inbound) -> float:
        """For how many seconds a message waits for more of its sender before its run begins."""
        return self._limits.burst_seconds if joining.may_burst(inbound) else 0.0

    def let_wait(self, tx: Transaction, run: str, inbound: Inbound) -> None:
        """Decides about a message that was stored and not claimed, while another run is live in its conversation."""
        live = inbox.live_run(tx, inbound.conversation.id) or inbox.going_on(tx, inbound.conversation.id)
        if live is None or live == run or not (joining.is_joinable(inbound) or inbound.busy):
            return
        mode, first = self.mode_of(tx, inbound), inbox.message_of(tx, live)
        # What people say to each other must not stop an answer.
        if mode is Busy.INTERRUPT and not inbound.overheard and self._may_stop(first, inbound):
            inbox.ask_stop(tx, live, stops.NEXT_MESSAGE)
        if mode is Busy.STEER and self.may_steer(first, inbound):
            joining.choose_mode(tx, run, Busy.STEER)
            tx.announce(wakeups.MessageForRun(live))
        elif mode in (Busy.COLLECT, Busy.INTERRUPT) and not inbound.command:
            # What comes while an interrupted run ends is answered together.
            joining.choose_mode(tx, run, Busy.COLLECT)

    def may_collect(self, first: Inbound, other: Inbound) -> bool:
        """Tells whether one run may answer both: its bot and its tools must be open to both senders alike."""
        return self._rank(first) == self._rank(other) and self._is_for_same_bot(first, other)

    def may_steer(self, first: Inbound, other: Inbound) -> bool:
        """Tells whether a message may be handed to the run of another one.

        The run acts for its own person, so the words of somebody who may do less must not reach it.
        """
        if other.command or first.command or first.errand is not None:
            return False
        # A run that nobody waits for may stay silent, and somebody waits for the answer to this message.
        if first.overheard and not other.overheard:
            return False
        # The answer must be seen where the message was written.
        here, there = first.target, other.target
        if here.lane != there.lane or Audience.ONE in (here.audience, there.audience):
            return False
        return self._rank(other) >= self._rank(first) and self._is_for_same_bot(first, other)

    def _is_for_same_bot(self, first: Inbound, other: Inbound) -> bool:
        """Rules may give people in one chat different bots."""
        return self._bots.find(first) == self._bots.find(other)

    def _rank(self, message: Inbound) -> int:
        return self.people.find(message).role.rank

    def _may_stop(self, live: Inbound, inbound: Inbound) -> bool:
        """Tells whether the sender of a message may stop a run: their own, or as an admin any."""
        person = self.people.find(inbound)
        return self.people.may(person, Permission.OTHERS) or self.people.is_own(live.asker, person)

    # Commands.

    def commands(self) -> tuple[Command, ...]:
        return (
            Command("busy", "what I do with messages while I am busy", self._choose, Permission.WORK),
            Command("steer", "tell the running answer something", self._steer, Permission.BASICS, runs=True),
            Command("queue", "ask something that is answered next", self._queue, Permission.BASICS, runs=True),
        )

    def _choose(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        wanted = inbound.argument.casefold()
        conversation = inbound.conversation.id
        if wanted and wanted not in (*Busy, DEFAULT):
            return Obeyed(f"I don't know “{wanted[:40]}”. {WHICH}")
        if wanted:
            preferences.choose(tx, conversation, PREFERENCE, "" if wanted == DEFAULT else wanted)
        mode = self.mode_of(tx, inbound)
        is_chosen = bool(preferences.read(tx, conversation).get(PREFERENCE))
        origin = "chosen here" if is_chosen else "the default"
        told = f"The mode here is {mode} ({origin}). When a message comes while I am busy, {ABOUT[mode]}"
        return Obeyed(told if wanted else f"{told} {WHICH}")

    def _steer(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        if not inbound.argument:
            return Obeyed("What should I take into account? Write it after /steer.")
        said = _as_message(inbound, Busy.STEER)
        live = inbox.live_run(tx, inbound.conversation.id)
        if live is None or not inbound.target.handle or not self.may_steer(inbox.message_of(tx, live), said):
            return Obeyed(again=said)
        # A platform that gave a handle waits for a reply, and the answer that takes the message in is another one.
        return Obeyed(NOTED, again=replace(said, target=said.target.lasting()))

    def _queue(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        if not inbound.argument:
            return Obeyed("What should I answer next? Write it after /queue.")
        return Obeyed(again=_as_message(inbound, Busy.QUEUE))


def _as_message(command: Inbound, mode: Busy) -> Inbound:
    """The text after a command as a message with a mode; a repeated command makes one message."""
    key = f"said by {command.key}"
    return replace(command, key=key, kind=Kind.MESSAGE, text=command.argument, command="", busy=mode, whole=True)
