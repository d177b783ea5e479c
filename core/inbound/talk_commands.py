"""The commands /sessions and /continue: a person finds an earlier talk of their own, and goes on with it here."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidings.core.clock import Clock
from tidings.core.inbound import inbox
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.inbound.continuing import Continuing
from tidings.core.memory import conversations, ownership, talks
from tidings.core.memory.handovers import Handover
from tidings.core.memory.talks import Talk
from tidings.core.roles import Permission
from tidings.core.store.store import Transaction
from tidings.core.types import Conversation, Inbound, Origin, asker

# How many talks are listed, and how many of the newest are searched.
LISTED = 10
SEARCHED = 2000
# The fewest characters of an id that name a talk.
ID_CHARACTERS = 4

BUSY = "I am still working on an answer. Send /stop first, or wait for it."
NO_TALKS = "There is no earlier talk of yours here."
NOT_FOUND = "There is no talk of yours like that. /sessions lists them."
NOTHING_BACK = "This chat is already in its own conversation."
HERE_ALREADY = "That is the talk you are in."
ENDED_THERE = "That talk was ended by /new in its own chat. Send /continue {id} there to go on with it."
BACK = "Back to this chat's own conversation."


class Here(NamedTuple):
    """The chat in which a command was given."""

    own: Conversation
    # The conversation that goes on here now, and its generation.
    now: Conversation
    generation: int

    def is_in(self, talk: Talk) -> bool:
        return (talk.conversation, talk.generation) == (self.now.id, self.generation)


class TalkCommands:
    def __init__(self, clock: Clock, continuing: Continuing) -> None:
        self._clock = clock
        self._continuing = continuing

    def commands(self) -> tuple[Command, ...]:
        return (
            Command("sessions", "your talks with me; /sessions WORDS finds one", self._sessions, Permission.WORK),
            Command("continue", "go on here with a talk from elsewhere, and back", self._continue, Permission.WORK),
        )

    def _sessions(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        found, here = self._own(tx, inbound), _here(tx, inbound)
        if words := inbound.argument:
            found = _with_words(found, words)
            if not found:
                return Obeyed(f"No talk of yours has “{talks.shortened(words, talks.TITLE_CHARACTERS)}” in its title.")
        if not found:
            return Obeyed(NO_TALKS)
        return Obeyed(self._listed(tx, found, here, "/continue ID goes on with one here."))

    def _continue(self, tx: Transaction, inbound: Inbound) -> Obeyed:
        here, wanted = _here(tx, inbound), inbound.argument
        if wanted.casefold() == "back":
            return Obeyed(self._go_back(tx, here))
        found = self._own(tx, inbound)
        others = [talk for talk in found if _can_continue(talk, here)]
        if not wanted:
            if not others:
                return Obeyed(NO_TALKS)
            how = "/continue NUMBER goes on with one here; /continue back returns."
            return Obeyed(self._listed(tx, others, here, how, numbered=True))
        named = _named(found, others, wanted)
        if len(named) > 1:
            return Obeyed(self._listed(tx, named, here, "Several fit. /continue ID goes on with one of them."))
        if not named:
            return Obeyed(NOT_FOUND)
        return Obeyed(self._go_on(tx, inbound, here, named[0]))

    def _own(self, tx: Transaction, inbound: Inbound) -> list[Talk]:
        """The talks that this person may see in this chat: in a group those of the group, else their own in private."""
        return talks.own(tx, ownership.owned_names(tx, inbound), talks.place_of(inbound), SEARCHED)

    def _go_back(self, tx: Transaction, here: Here) -> str:
        if _is_busy(tx, here):
            return BUSY
        return BACK if self._continuing.end(tx, here.own) else NOTHING_BACK

    def _go_on(self, tx: Transaction, inbound: Inbound, here: Here, talk: Talk) -> str:
        if here.is_in(talk):
            return HERE_ALREADY
        if _is_busy(tx, here):
            return BUSY
        began = asker(here.own, inbound.target, inbound.sender)
        handover = Handover(here.own.id, here.own, "", talk.owner, began)
        if talk.conversation != here.own.id:
            newest = _newest_message(tx, talk.conversation)
            if newest is None or not talk.is_current:
                return ENDED_THERE.format(id=talk.short) if newest else NOT_FOUND
            place = newest.place or newest.target.lasting()
            # A task's report has the bot of that time, which nobody asked for by name.
            bot = newest.bot if newest.origin is Origin.PERSON else ""
            handover = handover._replace(continues=newest.conversation, bot=bot, place=place)
        # From one hand-over to the next: `back` returns to the chat's own newest talk.
        self._continuing.end(tx, here.own)
        if talk.conversation == here.own.id:
            handover = handover._replace(before=conversations.generation_of(tx, here.own.id))
            if talk.generation == handover.before:
                return f"{BACK}\n{_told(tx, talk)}"
            conversations.return_to(tx, here.own.id, talk.generation)
        self._continuing.begin(tx, handover, self._clock.wall())
        return f"We go on with “{talks.title_of(tx, talk)}” here; /continue back returns.\n{_told(tx, talk)}"

    def _listed(self, tx: Transaction, found: list[Talk], here: Here, how: str, *, numbered: bool = False) -> str:
        lines = []
        for number, talk in enumerate(found[:LISTED], start=1):
            place = "this chat" if talk.conversation == here.own.id else talk.conversation
            now = ", now" if here.is_in(talk) else ""
            head = f"{number}." if numbered else "•"
            when = _ago(self._clock.wall() - talk.at)
            lines.append(f"{head} {talks.title_of(tx, talk)} ({talk.short}; {place}; {when}{now})")
            if last := talks.last_line(tx, talk):
                lines.append(f"   {last}")
        if len(found) > LISTED:
            lines.append("There are more; /sessions WORDS finds one by its title.")
        return "\n".join([*lines, how])


def _told(tx: Transaction, talk: Talk) -> str:
    last = talks.last_line(tx, talk)
    return f"Last line: {last}" if last else "Nothing was said there yet."


def _here(tx: Transaction, inbound: Inbound) -> Here:
    now = inbound.conversation
    return Here(inbound.began or now, now, conversations.generation_of(tx, now.id))


def _is_busy(tx: Transaction, here: Here) -> bool:
    return any(
        inbox.live_run(tx, each) is not None or inbox.waiting_in(tx, each) > 0 for each in {here.own.id, here.now.id}
    )


def _can_continue(talk: Talk, here: Here) -> bool:
    """What another conversation talked about before its last /new is continued there."""
    return not here.is_in(talk) and (talk.conversation == here.own.id or talk.is_current)


def _named(found: list[Talk], others: list[Talk], wanted: str) -> list[Talk]:
    """The talks that a number of the list, the beginning of an id, or words of the title mean."""
    listed = others[:LISTED]
    if wanted.isascii() and wanted.isdigit() and len(wanted) <= 2 and 0 < int(wanted) <= len(listed):
        return [listed[int(wanted) - 1]]
    id = wanted.casefold().removeprefix("talk_")
    if len(id) >= ID_CHARACTERS:
        by_id = [talk for talk in found if talk.id.partition("_")[2].startswith(id)]
        if by_id:
            return by_id
    # Words may also fit only what cannot be continued here, and the person is told why.
    return _with_words(others, wanted) or _with_words(found, wanted)


def _with_words(found: list[Talk], words: str) -> list[Talk]:
    wanted = words.casefold().split()
    return [talk for talk in found if all(word in talk.title.casefold() for word in wanted)]


def _newest_message(tx: Transaction, conversation: str) -> Inbound | None:
    row = tx.one(
        "SELECT message FROM inbox WHERE conversation = ? AND kind = 'message' ORDER BY seq DESC LIMIT 1", conversation
    )
    return msgspec.json.decode(row["message"], type=Inbound) if row else None


def _ago(seconds: float) -> str:
    for length, unit in ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if count != 1 else ''} ago"
    return "just now"
