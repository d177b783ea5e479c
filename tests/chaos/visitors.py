"""People who come and go during a chaos run: strangers who pair, and the owner who admits, removes, blocks and links.

Each visitor waits for what they see before the next step, as a person does; everything else goes on meanwhile, and
the gateway is killed in between. What a step leads to is certain, except for what a visitor says while they are being
removed or blocked: the command and the message come on two platforms, and either may be heard first.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

from tests.chaos.case import PLACEHOLDER
from tests.chaos.steps import OWNER, Fate, Say, Told
from tests.simulators.paper.simulator import Message, PaperServer

# Where the owner is at home, and where visitors may come: on platforms of paper, in chats of their own.
DESK = "keyed"
HOME = "home"
PLACES = ("keyed", "readback", "quiet", "neither", "fleeting", "mute")
# A link code must be read, so it is asked for where nothing that was sent is ever given up.
SURE = ("keyed", "readback", "quiet")
# Whoever is removed has read an answer first; where a doubt cannot be settled by an edit either, it may never be there.
READ = (*SURE, "neither", "fleeting")
WHERE = {"stays": PLACES, "removed": READ, "returns": READ, "blocked": READ, "links": SURE, "asks": SURE}
STORIES = tuple(WHERE)
# One visitor to so many messages, but at least one for each story.
MESSAGES_EACH = 16
# What needs so long never comes.
PATIENCE_SECONDS = 75.0
LOOK_SECONDS = 0.25
QUIET_LOOKS = 12
CODE = re.compile(r"\b[0-9A-Z]{4}-[0-9A-Z]{4}\b")


class Visit(NamedTuple):
    number: int
    platform: str
    story: str
    # Not before so many messages were said by others.
    after: int
    # Admitted by a button, which is pressed twice, or by id.
    by_button: bool

    @property
    def who(self) -> str:
        return f"p{self.number}"

    @property
    def identity(self) -> str:
        return f"{self.platform}:{self.who}"


def plan_visits(seed: int, messages: int) -> Iterator[Visit]:
    lots = random.Random(f"{seed}/visitors")
    number = max(messages // MESSAGES_EACH, len(STORIES))
    for each, after in enumerate(sorted(lots.randint(1, messages) for _ in range(number)), start=1):
        story = STORIES[each % len(STORIES)]
        yield Visit(each, lots.choice(WHERE[story]), story, after, lots.random() < 0.5)


class Seen(NamedTuple):
    """What the visits must have led to."""

    told: tuple[Told, ...]
    decisions: tuple[tuple[str, str], ...]
    roles: tuple[tuple[str, str], ...]
    linked: tuple[tuple[str, ...], ...]
    presses: frozenset[str]
    asked: tuple[tuple[str, str], ...]


class Visitors:
    def __init__(self, visits: tuple[Visit, ...], reached: Callable[[int], asyncio.Event]) -> None:
        self._visits = visits
        self._reached = reached
        self._papers: dict[str, PaperServer] = {}
        self._numbers = count(1)
        self._told: dict[tuple[str, str, str], int] = defaultdict(int)
        self._decisions: list[tuple[str, str]] = []
        self._roles: dict[str, str] = {}
        self._linked: list[tuple[str, ...]] = []
        self._presses: set[str] = set()
        # How the question of each message that asks must end.
        self._asked_about: list[tuple[str, str]] = []
        self.said: list[Say] = []
        self.faults: list[str] = []
        self._running: asyncio.Task[None] | None = None

    def settle_in(self, papers: Mapping[str, Any]) -> None:
        """The owner takes the home, before anything goes wrong."""
        self._papers = {name: papers[name] for name in PLACES}
        self._says(DESK, HOME, OWNER, "/sethome", Fate.TAKEN)

    async def run(self) -> None:
        """One after the other on each platform: an account has room for few strangers at a time."""
        self._running = asyncio.current_task()
        async with asyncio.TaskGroup() as group:
            for platform in PLACES:
                group.create_task(self._receive([visit for visit in self._visits if visit.platform == platform]))

    async def leave(self, is_owed: Callable[[], object]) -> None:
        """Returns when the last visit is over; if nothing is owed to anybody for a while, nothing will ever come."""
        assert self._running is not None
        quiet = 0
        while not self._running.done() and quiet < QUIET_LOOKS:
            await asyncio.wait({self._running}, timeout=LOOK_SECONDS)
            quiet = 0 if is_owed() else quiet + 1
        self._running.cancel()

    async def _receive(self, visits: list[Visit]) -> None:
        for visit in visits:
            await self._reached(visit.after).wait()
            try:
                await self._play(visit)
            except TimeoutError as error:
                self.faults.append(f"{visit.identity} ({visit.story}) waited in vain: {error}")
                return
            except asyncio.CancelledError:
                self.faults.append(f"{visit.identity} ({visit.story}) waited in vain, and nothing was owed any more")
                raise

    async def _play(self, visit: Visit) -> None:
        await self._come_in(visit)
        match visit.story:
            case "stays":
                self._speak(visit, "plain", Fate.TAKEN)
                self._speak(visit, "stream", Fate.TAKEN)
            case "removed":
                self._speak(visit, "hold", Fate.OPEN)
                removing = self._order(f"/people remove {visit.identity}", "removed", visit.identity)
                self._speak(visit, "plain", Fate.OPEN)
                await self._obeyed(removing, f"{visit.identity} may no longer talk")
                del self._roles[visit.identity]
                # A stranger again: asked about, ignored, and not answered.
                self._speak(visit, "plain", Fate.UNHEARD)
                await self._press(visit, 2, "Ignore", f"{visit.identity} is ignored")
            case "returns":
                key = self._speak(visit, "hold", Fate.OPEN)
                await self._papers[visit.platform].until(lambda paper: key in paper.confirmed, PATIENCE_SECONDS)
                removing = self._order(f"/people remove {visit.identity}", "removed", visit.identity)
                await self._obeyed(removing, f"{visit.identity} may no longer talk")
                await self._come_in(visit, 2)
                self._speak(visit, "stream", Fate.TAKEN)
            case "blocked":
                self._speak(visit, "hold", Fate.OPEN)
                blocking = self._order(f"/people block {visit.identity}", "blocked", visit.identity)
                self._speak(visit, "plain", Fate.OPEN)
                await self._obeyed(blocking, f"{visit.identity} is blocked.")
                self._roles[visit.identity] = "blocked"
                self._speak(visit, "plain", Fate.UNHEARD)
            case "links":
                self._speak(visit, "plain", Fate.TAKEN)
                await self._link(visit)
            case "asks":
                for text, label, ends in (("ask", "Once", "granted"), ("beg", "Deny", "denied")):
                    await self._answer(visit, text, label, ends)

    async def _come_in(self, visit: Visit, time: int = 1) -> None:
        """A stranger writes, the owner is asked and admits them, and what they wrote is answered."""
        key = self._speak(visit, "plain", Fate.LATER)
        self._told[visit.platform, visit.who, "You're in."] += 1
        self._decisions.append(("admitted", f"{visit.identity} member"))
        if visit.by_button:
            await self._press(visit, time, "Admit", f"{visit.identity} is admitted as a member.", twice=True)
        else:
            await self._asked(visit, time)
            admitting = self._order(f"/people admit {visit.identity}")
            await self._obeyed(admitting, f"{visit.identity} may talk to the bot now")
        self._roles[visit.identity] = "member"
        if visit.platform in READ:
            # A run that three kills have hit is given up, which is an answer too.
            ends = (f"[{key}]", "I could not finish this")
            await self._papers[visit.platform].until(
                lambda paper: any(end in post for post in paper.posts_in(visit.who) for end in ends), PATIENCE_SECONDS
            )

    async def _link(self, visit: Visit) -> None:
        """From a second account on another platform, where the visitor was a stranger; a third one comes too late."""
        asked = self._says(visit.platform, visit.who, visit.who, "/link", Fate.TAKEN)
        code = CODE.findall((await self._replied(visit.platform, visit.who, asked)).text)[0]
        platform = SURE[SURE.index(visit.platform) - 1]
        other, late = f"{visit.who}l", f"{visit.who}x"
        self._decisions.append(("linked", f"{platform}:{other}"))
        self._told[visit.platform, visit.who, f"{platform}:{other} is now linked with you."] += 1
        linking = self._says(platform, other, other, f"/link {code}", Fate.TAKEN)
        await self._obeyed(linking, "Done: this is now also you", platform, other)
        self._roles[f"{platform}:{other}"] = "member"
        self._linked.append((visit.identity, f"{platform}:{other}"))
        too_late = self._says(platform, late, late, f"/link {code}", Fate.TAKEN)
        self._says(platform, other, other, "plain", Fate.TAKEN)
        await self._obeyed(too_late, "This code is wrong", platform, late)

    async def _answer(self, visit: Visit, text: str, label: str, ends: str) -> None:
        """A visitor's run asks before it pays, and the owner answers at home; a run may be given up before it asks."""
        key, desk, visited = self._speak(visit, text, Fate.TAKEN), self._papers[DESK], self._papers[visit.platform]

        def found() -> list[Message]:
            return [each for each in desk.visible(HOME) if f"pay for {key}\n" in each.text and each.choices]

        def is_given_up() -> bool:
            posts = [each.text for each in visited.visible(visit.who) if each.reply_to == key]
            return any("I could not finish this" in post for post in posts)

        async with asyncio.timeout(PATIENCE_SECONDS):
            while not found() and not is_given_up():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)
        if not found():
            return
        question = found()[-1]
        choice = next(choice.id for choice in question.choices if choice.label == label)
        self._presses.add(desk.presses(question.id, choice, sender=OWNER))
        self._asked_about.append((key, ends))
        begins = "Approved once by" if ends == "granted" else "Denied by"
        self._told[DESK, HOME, begins] += 1
        await desk.until(lambda paper: not paper.message(question.id).choices, PATIENCE_SECONDS)

    def _speak(self, visit: Visit, text: str, fate: Fate) -> str:
        return self._says(visit.platform, visit.who, visit.who, text, fate)

    def _says(self, platform: str, chat: str, sender: str, text: str, fate: Fate) -> str:
        key = f"v{next(self._numbers)}"
        # Not heard is not answered, but a stranger is told a code.
        reply = "I don't know you yet." if fate in (Fate.LATER, Fate.UNHEARD) else ""
        self.said.append(Say(key, f"{platform}@main", text, chat, sender=sender, fate=fate, reply=reply))
        self._papers[platform].says(text, key=key, chat=chat, sender=sender)
        return key

    def _order(self, text: str, *decision: str) -> str:
        """The owner's word; what it decides is decided once, whatever is killed meanwhile."""
        if decision:
            self._decisions.append((decision[0], decision[1]))
        return self._says(DESK, HOME, OWNER, text, Fate.TAKEN)

    async def _obeyed(self, key: str, begins: str, platform: str = DESK, chat: str = HOME) -> None:
        reply = await self._replied(platform, chat, key)
        if not reply.text.startswith(begins):
            self.faults.append(f"{key} was answered by {reply.text!r}, not by {begins!r}")

    async def _replied(self, platform: str, chat: str, key: str) -> Message:
        def found(paper: PaperServer) -> list[Message]:
            return [each for each in paper.visible(chat) if each.reply_to == key and each.text != PLACEHOLDER]

        await self._papers[platform].until(found, PATIENCE_SECONDS)
        return found(self._papers[platform])[-1]

    async def _asked(self, visit: Visit, time: int) -> Message:
        """What the owner is asked about a stranger, for the n-th time."""
        begins = f"{visit.identity} would like to talk to the bot."
        self._told[DESK, HOME, begins] += 1

        def found(paper: PaperServer) -> list[Message]:
            return [each for each in paper.visible(HOME) if each.text.startswith(begins) and each.choices]

        await self._papers[DESK].until(lambda paper: len(found(paper)) >= time, PATIENCE_SECONDS)
        return found(self._papers[DESK])[-1]

    async def _press(self, visit: Visit, time: int, label: str, begins: str, *, twice: bool = False) -> None:
        question, desk = await self._asked(visit, time), self._papers[DESK]
        choice = next(choice.id for choice in question.choices if choice.label == label)
        self._presses |= {desk.presses(question.id, choice, sender=OWNER) for _ in range(1 + twice)}
        self._told[DESK, HOME, begins] += 1
        if twice:
            self._told[DESK, HOME, "This request has already been answered"] += 1
        await desk.until(
            lambda paper: any(
                each.reply_to == question.id and each.text.startswith(begins) for each in paper.visible(HOME)
            ),
            PATIENCE_SECONDS,
        )

    def seen(self) -> Seen:
        return Seen(
            told=tuple(Told(*place, times) for place, times in self._told.items()),
            decisions=tuple(self._decisions),
            roles=tuple(self._roles.items()),
            linked=tuple(self._linked),
            presses=frozenset(self._presses),
            asked=tuple(self._asked_about),
        )
