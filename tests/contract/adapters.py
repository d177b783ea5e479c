"""The contract of a platform: what every adapter must do, and what it must refuse because it does not declare it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import pytest
from msgspec.structs import replace

from tests.contract.agents import session_of
from tests.worlds.builders import part, untaken
from tests.worlds.fakes import FakeLocal, FakeServer, settle
from tidings.core.adapter import Adapter, Platform
from tidings.core.agent import Event, Turn
from tidings.core.context import Session
from tidings.core.errors import (
    Doubtful,
    Misconfigured,
    Moved,
    RateLimited,
    Rejected,
    SendError,
    TidingsError,
    Unfit,
    Unreachable,
    Unstored,
    Unsupported,
    ViewLost,
)
from tidings.core.gateway.gateway import Gateway
from tidings.core.gateway.options import Team
from tidings.core.settings import Core
from tidings.core.types import (
    Absent,
    Admission,
    Attachment,
    Body,
    Capabilities,
    Choice,
    Duplicate,
    File,
    Inbound,
    Kind,
    Note,
    Part,
    PartKind,
    Receipt,
    Refusal,
    Refused,
    Signal,
    Stored,
    Target,
    Unreadable,
    View,
)

T = TypeVar("T")

# Whatever takes longer does not happen at all; no test passes by waiting.
PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 30.0
ABILITIES = ("async_delivery", "streaming_edits", "threads", "reactions", "buttons", "files", "typing")
# What an adapter may answer when it is asked for something that it does not declare.
REFUSALS = (Rejected, Unsupported)


class Trouble(StrEnum):
    """What may befall the next call; the platform knows each by another name."""

    # Turned away for PAUSE_SECONDS.
    RATE_LIMITED = "rate limited"
    # Turned away for good: blocked, forbidden, gone.
    REFUSED = "refused"
    # Turned away because of our credentials.
    MISCONFIGURED = "misconfigured"
    # The chat `here` has become the chat `elsewhere`.
    MOVED = "moved"
    # There is no connection, so nothing can have left us.
    UNREACHABLE = "unreachable"
    # The call has left us; no answer comes back. Only the platform knows whether it happened.
    LOST_BEFORE = "lost before the effect"
    LOST_AFTER = "lost after the effect"


VERDICTS: Mapping[Trouble, type[SendError]] = {
    Trouble.RATE_LIMITED: RateLimited,
    Trouble.REFUSED: Rejected,
    Trouble.MISCONFIGURED: Misconfigured,
    Trouble.MOVED: Moved,
    Trouble.UNREACHABLE: Unreachable,
    Trouble.LOST_BEFORE: Doubtful,
    Trouble.LOST_AFTER: Doubtful,
}


class Seen(NamedTuple):
    """One message of the bot's as a person sees it now; what is only a draft has no id."""

    id: str
    text: str
    files: tuple[tuple[str, bytes], ...] = ()
    # The ids of its buttons.
    choices: tuple[str, ...] = ()


class Harness(Protocol):
    """What a platform's simulator must offer so that its adapter can be held to the contract.

    Everything here speaks of the platform and of the people on it, never of the adapter: it is the ground
    truth. A name is whatever the simulator calls a message that a person sent.
    """

    adapter: Adapter
    # A private chat, another one, and a thread of the first; where there are no threads, a thread that is not there.
    here: Target
    elsewhere: Target
    thread: Target
    # A message takes so many plain letters, and not one more.
    limit: int
    # What this platform cannot play, each with a reason: a Trouble, "amendments" (edits and deletions by people),
    # "attachments", "bodies" (a key bound to its body), "commands", "erasure", "limit", "lost files" or "sending",
    # which is refused then, whatever is sent. All else must work.
    exempt: Mapping[str, str]

    @property
    def can(self) -> Capabilities:
        """What the adapter declares for `here`."""
        ...

    async def says(self, text: str, *, at: Target | None = None, file: tuple[str, bytes] | None = None) -> str:
        """A person says something, here unless told otherwise; returns its name."""
        ...

    async def tells_again(self, name: str) -> None:
        """The platform announces the same message once more."""
        ...

    async def edits(self, name: str, text: str) -> None: ...
    async def deletes(self, name: str) -> None: ...

    async def presses(self, message: str, choice: str) -> None:
        """A person presses a button of one of the bot's messages."""
        ...

    @property
    def confirmed(self) -> list[str]:
        """The names of what the adapter has confirmed, in that order."""
        ...

    def visible(self, at: Target | None = None) -> list[Seen]:
        """What people see of the bot there, oldest first; without a place, on the whole platform."""
        ...

    @property
    def whispers(self) -> list[str]:
        """What only the person who pressed a button was told, oldest first."""
        ...

    @property
    def typings(self) -> int: ...
    @property
    def reactions(self) -> Sequence[str]:
        """Our reactions that stand under messages now."""
        ...

    async def trouble(self, trouble: Trouble) -> None:
        """Until `heal` at the latest; what is not an outage befalls one call."""
        ...

    async def heal(self) -> None: ...

    async def erase(self, message: str) -> None:
        """Somebody removes a message of the bot's, and nobody is told."""
        ...

    async def reborn(self) -> Adapter:
        """An adapter for the same account in a new process: it knows only what the platform and a notebook know."""
        ...

    async def until(self, holds: Callable[[], object]) -> None:
        """Waits for the platform to come to a state; looks again whenever something happens on it."""
        ...


class Door:
    """Takes what comes, as the gateway's own does; holds it while the gate is shut, or refuses it."""

    def __init__(self, unstored: int = 0, refusal: Refusal | None = None) -> None:
        # In order of the calls; what raised Unstored is in here each time.
        self.calls: list[Inbound] = []
        self.taken: list[Inbound] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._unstored = unstored
        self._refusal = refusal
        self._news = asyncio.Event()

    async def __call__(self, inbound: Inbound, note: Note | None = None) -> Admission:
        self.calls.append(inbound)
        self._tell()
        await self.gate.wait()
        if self._unstored:
            self._unstored -= 1
            raise Unstored("the disk is full")
        known = any(inbound.key == other.key for other in self.taken)
        self.taken.append(inbound)
        self._tell()
        if self._refusal is not None:
            return Refused(reason=self._refusal)
        run = f"run_{inbound.key}"
        return Duplicate(run=run) if known else Stored(run=run)

    async def has_taken(self, count: int) -> list[Inbound]:
        await self.until(lambda: len(self.taken) >= count)
        return self.taken

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await self._news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


@asynccontextmanager
async def listening(platform: Harness, door: Door) -> AsyncIterator[asyncio.Task[None]]:
    """Keeps the adapter listening as the supervisor does: whoever cannot go on says why, and begins again."""

    async def keep() -> None:
        while True:
            try:
                await platform.adapter.listen(door)
            except (SendError, Unstored):
                await asyncio.sleep(0.01)
            else:
                raise AssertionError("listen ended by itself")

    task = asyncio.create_task(keep())
    await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


class AdapterContract:
    """Every adapter passes this, or it is not an adapter. Subclasses give `platform`."""

    @pytest.fixture
    def platform(self) -> Harness:
        raise NotImplementedError

    # What comes in.

    async def test_a_message_is_confirmed_only_after_it_was_received(self, platform: Harness) -> None:
        door = Door()
        door.gate.clear()
        async with listening(platform, door):
            name = await platform.says("hi")
            await door.until(lambda: door.calls)
            await settle(0.05)
            assert platform.confirmed == []
            door.gate.set()
            await platform.until(lambda: platform.confirmed == [name])
        assert [said.text for said in door.taken] == ["hi"]

    async def test_what_could_not_be_stored_is_not_confirmed_and_comes_again(self, platform: Harness) -> None:
        door = Door(unstored=2)
        async with listening(platform, door):
            name = await platform.says("hi")
            await door.until(lambda: len(door.calls) >= 2)
            assert platform.confirmed == []
            await door.has_taken(1)
            await platform.until(lambda: platform.confirmed == [name])
        assert len({said.key for said in door.calls}) == 1, "it came again as another message"

    async def test_messages_are_handed_over_in_the_order_they_were_said(self, platform: Harness) -> None:
        door = Door()
        door.gate.clear()
        texts = [f"{number}" for number in range(20)]
        async with listening(platform, door):
            names = [await platform.says(text) for text in texts]
            await door.until(lambda: door.calls)
            door.gate.set()
            await door.has_taken(20)
            await platform.until(lambda: sorted(platform.confirmed) == sorted(names))
        assert [said.text for said in door.calls] == texts

    async def test_one_chat_that_waits_does_not_keep_another_waiting(self, platform: Harness) -> None:
        door = Door()
        door.gate.clear()
        async with listening(platform, door):
            await platform.says("here")
            await door.until(lambda: door.calls)
            await platform.says("elsewhere", at=platform.elsewhere)
            await door.until(lambda: len(door.calls) == 2)
            door.gate.set()
            await door.has_taken(2)
        assert [said.text for said in door.calls] == ["here", "elsewhere"]

    async def test_a_message_that_is_told_twice_has_the_same_key(self, platform: Harness) -> None:
        door = Door()
        async with listening(platform, door):
            name = await platform.says("hi")
            await door.has_taken(1)
            await platform.tells_again(name)
            first, second = await door.has_taken(2)
        assert first == second

    async def test_messages_with_the_same_text_have_keys_of_their_own(self, platform: Harness) -> None:
        door = Door()
        async with listening(platform, door):
            await platform.says("hi")
            await platform.says("hi")
            await platform.says("hi", at=platform.elsewhere)
            taken = await door.has_taken(3)
        assert len({said.key for said in taken}) == 3

    async def test_a_message_knows_where_it_was_said_and_by_whom(self, platform: Harness) -> None:
        door = Door()
        places = [platform.here, platform.elsewhere, *([platform.thread] if platform.can.threads else [])]
        async with listening(platform, door):
            for count, place in enumerate(places, 1):
                await platform.says(f"at {place}", at=place)
                said = (await door.has_taken(count))[-1]
                assert (said.kind, said.text) == (Kind.MESSAGE, f"at {place}")
                for noun in (said.conversation, said.target):
                    assert (noun.adapter, noun.account) == (platform.adapter.name, platform.adapter.account)
                    assert (noun.chat, noun.thread) == (place.chat, place.thread)
                assert said.sender.id
                assert not said.sender.is_bot
        assert len({said.conversation.id for said in door.taken}) == len(places)

    async def test_an_answer_appears_where_the_message_was_said_and_nowhere_else(self, platform: Harness) -> None:
        """I7."""
        if await never_sends(platform):
            return
        door = Door()
        places = [platform.here, platform.elsewhere, *([platform.thread] if platform.can.threads else [])]
        async with listening(platform, door):
            for count, place in enumerate(places, 1):
                await platform.says("hi", at=place)
                said = (await door.has_taken(count))[-1]
                await platform.adapter.send(part(f"to {place}", to=said.target))
        for place in places:
            assert texts(platform, place) == [f"to {place}"]
        assert len(texts(platform)) == len(places)

    async def test_a_command_is_told_as_one(self, platform: Harness) -> None:
        excused(platform, "commands")
        door = Door()
        async with listening(platform, door):
            await platform.says("/whoami right now")
            said = only(await door.has_taken(1))
        assert (said.kind, said.command, said.argument) == (Kind.COMMANDED, "whoami", "right now")

    async def test_an_edit_and_a_deletion_name_the_message_and_have_keys_of_their_own(self, platform: Harness) -> None:
        excused(platform, "amendments")
        door = Door()
        async with listening(platform, door):
            name = await platform.says("helo")
            message = only(await door.has_taken(1))
            await platform.edits(name, "hello")
            edited = (await door.has_taken(2))[-1]
            await platform.deletes(name)
            deleted = (await door.has_taken(3))[-1]
        assert (edited.kind, edited.about, edited.text) == (Kind.EDITED, message.key, "hello")
        assert (deleted.kind, deleted.about) == (Kind.DELETED, message.key)
        assert len({message.key, edited.key, deleted.key}) == 3

    async def test_an_attachment_can_be_fetched(self, platform: Harness) -> None:
        if "attachments" in platform.exempt:
            with pytest.raises(TidingsError):
                await platform.adapter.fetch(Attachment(handle="anything"))
            return
        door, data = Door(), bytes(range(256)) * 40
        async with listening(platform, door):
            await platform.says("look", file=("photo.png", data))
            said = only(await door.has_taken(1))
        attachment = only(said.attachments)
        assert (attachment.name, attachment.size) == ("photo.png", len(data))
        path = await platform.adapter.fetch(attachment)
        assert path.read_bytes() == data
        path.unlink()

    async def test_an_attachment_that_is_not_there_is_a_typed_error(self, platform: Harness) -> None:
        with pytest.raises(TidingsError):
            await platform.adapter.fetch(Attachment(handle="nothing"))

    async def test_cancelling_listen_stops_it_at_once(self, platform: Harness) -> None:
        """Idle or in the middle of a message, which is then not confirmed and comes again next time."""
        door = Door()
        await stopped(asyncio.create_task(platform.adapter.listen(door)))
        door.gate.clear()
        task = asyncio.create_task(platform.adapter.listen(door))
        await asyncio.sleep(0)
        name = await platform.says("hi")
        await door.until(lambda: door.calls)
        await stopped(task)
        calls = len(door.calls)
        await settle(0.05)
        assert len(door.calls) == calls
        assert platform.confirmed == []
        door.gate.set()
        async with listening(platform, door):
            await platform.until(lambda: name in platform.confirmed)
        assert len({said.key for said in door.calls}) == 1

    async def test_what_was_said_during_an_outage_comes_afterwards(self, platform: Harness) -> None:
        excused(platform, Trouble.UNREACHABLE)
        door = Door()
        async with listening(platform, door):
            await platform.trouble(Trouble.UNREACHABLE)
            name = await platform.says("hi")
            await platform.heal()
            await door.has_taken(1)
            await platform.until(lambda: platform.confirmed == [name])

    async def test_wrong_credentials_end_listen_with_misconfigured(self, platform: Harness) -> None:
        """I23."""
        excused(platform, Trouble.MISCONFIGURED)
        await platform.trouble(Trouble.MISCONFIGURED)
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(Misconfigured):
                await platform.adapter.listen(Door())

    # What goes out.

    async def test_a_receipt_carries_the_platforms_own_ids(self, platform: Harness) -> None:
        if await never_sends(platform):
            return
        for text in ("one", "two"):
            receipt = await platform.adapter.send(part(text, to=platform.here))
            sent = only([seen for seen in platform.visible(platform.here) if seen.text == text])
            assert isinstance(receipt, Receipt)
            assert (receipt.ids, receipt.view) == ((sent.id,), None)
        assert texts(platform) == ["one", "two"]

    async def test_a_key_is_posted_once_where_keys_are_declared(self, platform: Harness) -> None:
        if await never_sends(platform):
            return
        repeated = part("hi", to=platform.here)
        first = await platform.adapter.send(repeated)
        second = await platform.adapter.send(repeated)
        if platform.can.send_proof.keyed_for:
            assert texts(platform) == ["hi"]
            assert first == second
        else:
            assert texts(platform) == ["hi", "hi"]
            assert first.ids != second.ids

    async def test_a_key_holds_in_a_new_process_too(self, platform: Harness) -> None:
        if not platform.can.send_proof.keyed_for:
            # Nothing is promised, and the test above shows that nothing is pretended.
            return
        repeated = part("hi", to=platform.here)
        first = await platform.adapter.send(repeated)
        assert await (await platform.reborn()).send(repeated) == first
        assert texts(platform) == ["hi"]

    async def test_another_body_under_a_known_key_is_never_taken_for_the_first(self, platform: Harness) -> None:
        """I24."""
        excused(platform, "bodies")
        known = part("hi", to=platform.here)
        await platform.adapter.send(known)
        try:
            await platform.adapter.send(replace(known, body=Body(text="something else")))
        except Rejected:
            assert texts(platform) == ["hi"]
        else:
            assert texts(platform) == ["hi", "something else"]

    async def test_reading_back_finds_what_arrived_and_nothing_else(self, platform: Harness) -> None:
        if await never_sends(platform):
            return
        arrived = part("hi", to=platform.here)
        receipt = await platform.adapter.send(arrived)
        missing = replace(arrived, key="another key", body=Body(text="never sent"))
        found = [await platform.adapter.find(asked, untaken) for asked in (arrived, missing)]
        if platform.can.send_proof.readback:
            assert found == [receipt, Absent()]
        else:
            # Above all not Absent, which would be repeated without a mark.
            assert [type(each) for each in found] == [Unreadable, Unreadable]

    async def test_reading_back_finds_a_view_and_how_to_go_on_with_it(self, platform: Harness) -> None:
        if not (platform.can.send_proof.readback and platform.can.streaming_edits):
            return
        anchor = part("…", to=platform.here, kind=PartKind.ANCHOR)
        await platform.adapter.send(anchor)
        found = await (await platform.reborn()).find(anchor, untaken)
        assert isinstance(found, Receipt)
        assert found.view is not None
        final = part("done", to=platform.here, view=found.view)
        assert isinstance(await platform.adapter.find(final, untaken), Absent)
        await platform.adapter.send(final)
        assert isinstance(await platform.adapter.find(final, untaken), Receipt)
        assert texts(platform) == ["done"]

    @pytest.mark.parametrize("trouble", Trouble)
    async def test_an_error_is_the_right_verdict(self, platform: Harness, trouble: Trouble) -> None:
        excused(platform, trouble)
        await platform.trouble(trouble)
        with pytest.raises(SendError) as verdict:
            await platform.adapter.send(part("hi", to=platform.here))
        assert isinstance(verdict.value, VERDICTS[trouble])
        assert texts(platform) == (["hi"] if trouble is Trouble.LOST_AFTER else [])
        match verdict.value:
            case RateLimited(retry_after=seconds, budget=budget):
                assert seconds == pytest.approx(PAUSE_SECONDS, abs=1)
                assert budget in ("", *(pace.key for pace in platform.can.pace))
            case Moved(chat=chat):
                assert chat == platform.elsewhere.chat
            case error:
                assert str(error), "an error says why"

    @pytest.mark.parametrize("trouble", [Trouble.RATE_LIMITED, Trouble.UNREACHABLE, Trouble.MISCONFIGURED])
    async def test_what_was_not_sent_can_be_sent_when_the_trouble_is_over(
        self, platform: Harness, trouble: Trouble
    ) -> None:
        excused(platform, trouble)
        unsent = part("hi", to=platform.here)
        await platform.trouble(trouble)
        with pytest.raises(VERDICTS[trouble]):
            await platform.adapter.send(unsent)
        await platform.heal()
        receipt = await platform.adapter.send(unsent)
        assert [seen.id for seen in platform.visible()] == list(receipt.ids)

    async def test_what_has_moved_arrives_where_it_moved_to(self, platform: Harness) -> None:
        excused(platform, Trouble.MOVED)
        await platform.trouble(Trouble.MOVED)
        with pytest.raises(Moved) as moved:
            await platform.adapter.send(part("hi", to=platform.here))
        await platform.adapter.send(part("hi", to=replace(platform.here, chat=moved.value.chat)))
        assert texts(platform, platform.elsewhere) == ["hi"]

    @pytest.mark.parametrize("trouble", [Trouble.LOST_BEFORE, Trouble.LOST_AFTER])
    async def test_a_doubt_is_settled_by_the_proof_that_is_declared(self, platform: Harness, trouble: Trouble) -> None:
        """I6: one copy, whatever became of the first attempt."""
        excused(platform, trouble)
        doubtful = part("hi", to=platform.here)
        await platform.trouble(trouble)
        with pytest.raises(Doubtful):
            await platform.adapter.send(doubtful)
        await platform.heal()
        proof = platform.can.send_proof
        if proof.keyed_for:
            receipt = await platform.adapter.send(doubtful)
            assert [seen.id for seen in platform.visible()] == list(receipt.ids)
        found = await platform.adapter.find(doubtful, untaken)
        if proof.readback:
            there = [seen.id for seen in platform.visible()]
            assert isinstance(found, Receipt if there else Absent)
            assert not isinstance(found, Receipt) or (found.ids, found.view) == (tuple(there), None)
        else:
            assert isinstance(found, Unreadable)

    async def test_a_call_in_doubt_is_not_repeated_by_the_adapter(self, platform: Harness) -> None:
        excused(platform, Trouble.LOST_AFTER)
        await platform.trouble(Trouble.LOST_AFTER)
        with pytest.raises(Doubtful):
            await platform.adapter.send(part("hi", to=platform.here))
        await platform.heal()
        await settle(0.05)
        assert texts(platform) == ["hi"]

    async def test_what_is_too_long_is_unfit_and_composes_to_what_fits(self, platform: Harness) -> None:
        excused(platform, "limit")
        fits, too_long = "x" * platform.limit, "x" * (platform.limit + 1)
        await platform.adapter.send(part(fits, to=platform.here))
        with pytest.raises(Unfit):
            await platform.adapter.send(part(too_long, to=platform.here))
        assert texts(platform) == [fits]
        bodies = platform.adapter.compose(platform.here, Body(text=too_long))
        assert len(bodies) > 1
        await send_all(platform, bodies)
        assert "".join(texts(platform)[1:]) == too_long

    @pytest.mark.parametrize("kind_of_text", ["words", "one word", "lines", "signs", "code"])
    async def test_a_long_text_is_cut_into_what_fits_and_loses_nothing(
        self, platform: Harness, kind_of_text: str
    ) -> None:
        if await never_sends(platform):
            return
        limit = platform.limit
        text = {
            "words": " ".join(f"word{number}" for number in range(limit // 3)),
            "one word": "x" * (2 * limit + 1),
            "lines": "\n".join(f"Line {number}." for number in range(limit // 4)),
            "signs": "naïve 😀 漢字 👩‍👩‍👧 " * (limit // 8),
            "code": "Look:\n\n```python\n" + "\n".join(f"print({n})" for n in range(limit // 5)) + "\n```\n\nDone.",
        }[kind_of_text]
        bodies = platform.adapter.compose(platform.here, Body(text=text))
        assert len(bodies) > 1
        await send_all(platform, bodies)
        assert ink("\n".join(texts(platform, platform.here))) == ink(text)
        assert all(seen.count("```") % 2 == 0 for seen in texts(platform)), "a box is left open"

    async def test_what_is_short_stays_as_it_is(self, platform: Harness) -> None:
        for text in ("hi", "two\n\nparagraphs", "…"):
            assert platform.adapter.compose(platform.here, Body(text=text)) == (Body(text=text),)

    # What grows.

    async def test_a_view_grows_and_the_final_finishes_it_in_place(self, platform: Harness) -> None:
        opening = part("…", to=platform.here, kind=PartKind.OPENING)
        if not platform.can.streaming_edits:
            with pytest.raises(REFUSALS):
                await platform.adapter.send(opening)
            assert texts(platform) == []
            return
        view = await opened(platform, opening)
        assert texts(platform, platform.here) == ["…"]
        for text in ("I", "I think", "I think therefore", "I am"):
            view = await platform.adapter.show(view, text)
            await appears(platform, [text], platform.here)
        receipt = await platform.adapter.send(part("I am.", to=platform.here, view=view))
        seen = only(platform.visible())
        assert (seen.text, (seen.id,)) == ("I am.", receipt.ids)

    async def test_a_final_repeated_on_an_anchored_view_is_harmless(self, platform: Harness) -> None:
        anchor = part("…", to=platform.here, kind=PartKind.ANCHOR)
        if not platform.can.streaming_edits:
            with pytest.raises(REFUSALS):
                await platform.adapter.send(anchor)
            assert texts(platform) == []
            return
        view = await opened(platform, anchor)
        assert view.anchored, "an anchor must be a message"
        assert platform.visible(platform.here)[0].id
        final = part("done", to=platform.here, view=view)
        first = await platform.adapter.send(final)
        assert await platform.adapter.send(final) == first
        assert await (await platform.reborn()).send(final) == first
        assert [(seen.id, seen.text) for seen in platform.visible()] == [(first.ids[0], "done")]

    async def test_an_opening_that_is_anchored_keeps_that_promise(self, platform: Harness) -> None:
        """Also when the answer to the first attempt was lost on the way."""
        if not platform.can.streaming_edits:
            return
        view = await opened(platform, part("…", to=platform.here, kind=PartKind.OPENING))
        if not view.anchored:
            return
        view = await platform.adapter.show(view, "almost")
        final = part("done", to=platform.here, view=view)
        if Trouble.LOST_AFTER not in platform.exempt:
            await platform.trouble(Trouble.LOST_AFTER)
            with pytest.raises(Doubtful):
                await platform.adapter.send(final)
            await platform.heal()
        for _ in range(2):
            await platform.adapter.send(final)
        assert texts(platform) == ["done"]

    async def test_a_view_outlives_the_process_that_opened_it(self, platform: Harness) -> None:
        if not platform.can.streaming_edits:
            return
        view = await opened(platform, part("…", to=platform.here, kind=PartKind.OPENING))
        view = await platform.adapter.show(view, "so far")
        another = await platform.reborn()
        view = await another.show(view, "so far so good")
        await appears(platform, ["so far so good"])
        await another.send(part("and done", to=platform.here, view=view))
        assert texts(platform) == ["and done"]

    async def test_a_view_in_a_thread_stays_in_it(self, platform: Harness) -> None:
        if not (platform.can.streaming_edits and platform.can.threads):
            return
        view = await opened(platform, part("…", to=platform.thread, kind=PartKind.OPENING))
        view = await platform.adapter.show(view, "so far")
        await appears(platform, ["so far"], platform.thread)
        await platform.adapter.send(part("done", to=platform.thread, view=view))
        assert texts(platform, platform.thread) == ["done"]
        assert texts(platform) == ["done"]

    async def test_showing_or_finishing_what_stands_there_already_is_harmless(self, platform: Harness) -> None:
        if not platform.can.streaming_edits:
            return
        view = await opened(platform, part("hello", to=platform.here, kind=PartKind.OPENING))
        for _ in range(2):
            view = await platform.adapter.show(view, "hello")
        await platform.adapter.send(part("hello", to=platform.here, view=view))
        assert texts(platform) == ["hello"]

    async def test_the_end_of_a_long_answer_can_be_shown_and_its_parts_follow_the_view(self, platform: Harness) -> None:
        if not platform.can.streaming_edits:
            return
        text = " ".join(f"word{number}" for number in range(platform.limit // 3))
        bodies = platform.adapter.compose(platform.here, Body(text=text))
        view = await opened(platform, part("…", to=platform.here, kind=PartKind.OPENING))
        view = await platform.adapter.show(view, bodies[-1].text)
        await appears(platform, [bodies[-1].text])
        await send_all(platform, bodies, view)
        assert texts(platform, platform.here) == [body.text for body in bodies]

    async def test_an_opening_repeated_under_its_key_opens_one_view(self, platform: Harness) -> None:
        if not (platform.can.streaming_edits and platform.can.send_proof.keyed_for):
            return
        opening = part("…", to=platform.here, kind=PartKind.OPENING)
        first, second = await opened(platform, opening), await opened(platform, opening)
        assert first == second
        assert texts(platform) == ["…"]

    async def test_a_view_that_somebody_removed_is_lost(self, platform: Harness) -> None:
        if not platform.can.streaming_edits:
            return
        excused(platform, "erasure")
        anchor = part("…", to=platform.here, kind=PartKind.ANCHOR)
        view = await opened(platform, anchor)
        await platform.erase(platform.visible()[0].id)
        with pytest.raises(ViewLost):
            await platform.adapter.show(view, "hello?")
        with pytest.raises(ViewLost):
            await platform.adapter.send(part("hello?", to=platform.here, view=view))
        assert texts(platform) == []

    async def test_a_show_that_is_turned_away_says_for_how_long(self, platform: Harness) -> None:
        if not platform.can.streaming_edits:
            return
        excused(platform, Trouble.RATE_LIMITED)
        view = await opened(platform, part("…", to=platform.here, kind=PartKind.OPENING))
        await platform.trouble(Trouble.RATE_LIMITED)
        with pytest.raises(RateLimited) as limited:
            await platform.adapter.show(view, "hello")
        assert limited.value.retry_after == pytest.approx(PAUSE_SECONDS, abs=1)
        await platform.heal()
        await platform.adapter.send(part("hello", to=platform.here, view=view))
        assert texts(platform) == ["hello"]

    # What is declared works, and what is not is refused.

    async def test_what_it_can_do_is_a_plain_fact(self, platform: Harness) -> None:
        for place in (platform.here, platform.elsewhere, platform.thread):
            can = platform.adapter.can(place)
            assert can == platform.adapter.can(place)
            assert can.send_proof.keyed_for >= 0
            assert all(pace.key and pace.seconds >= 0 and pace.burst >= 1 for pace in can.pace)

    async def test_core_refuses_what_is_not_declared(self, platform: Harness) -> None:
        session: Session = replace(session_of("run_1"), can=platform.can, target=platform.here)
        for ability in ABILITIES:
            if getattr(platform.can, ability):
                session.require(ability)
            else:
                with pytest.raises(Unsupported) as refusal:
                    session.require(ability)
                assert refusal.value.ability == ability

    async def test_a_message_arrives_without_any_turn_where_async_delivery_is_declared(
        self, platform: Harness, tmp_path: Path
    ) -> None:
        """I13: where it is not, nobody may promise it."""
        if platform.can.async_delivery:
            unasked = replace(platform.here, reply_to="", handle="")
            await platform.adapter.send(part("by the way", to=unasked))
            assert texts(platform, platform.here) == ["by the way"]
            return
        await self.is_refused_by_the_desk(platform, tmp_path, "async_delivery", Body(text="by the way"))

    async def test_buttons_are_shown_and_can_be_pressed(self, platform: Harness, tmp_path: Path) -> None:
        asked = Body(text="Shall I?", choices=(Choice(id="y", label="Yes"), Choice(id="n", label="No")))
        bodies = platform.adapter.compose(platform.here, asked)
        if not platform.can.buttons:
            await self.is_refused(platform, bodies, lambda body: bool(body.choices))
            assert [seen for seen in platform.visible() if seen.choices] == []
            await self.is_refused_by_the_desk(platform, tmp_path, "buttons", asked)
            return
        await send_all(platform, bodies)
        seen = only(platform.visible())
        assert (seen.text, seen.choices) == ("Shall I?", ("y", "n"))
        door = Door()
        async with listening(platform, door):
            await platform.presses(seen.id, "n")
            pressed = only(await door.has_taken(1))
        assert (pressed.kind, pressed.about, pressed.choice) == (Kind.PRESSED, seen.id, "n")
        assert pressed.key != seen.id
        assert (pressed.target.chat, pressed.target.thread) == (platform.here.chat, platform.here.thread)

    async def test_a_press_that_is_refused_is_answered_to_that_person_alone(self, platform: Harness) -> None:
        """D5: the question stays as it is."""
        if not platform.can.buttons:
            return
        asked = Body(text="Shall I?", choices=(Choice(id="y", label="Yes"),))
        await send_all(platform, platform.adapter.compose(platform.here, asked))
        question = only(platform.visible())
        door = Door(refusal=Refusal.NOT_PERMITTED)
        async with listening(platform, door):
            await platform.presses(question.id, "y")
            await platform.until(lambda: platform.whispers)
        words = only(platform.whispers)
        assert "owner or admin" in words
        assert [seen for seen in platform.visible() if seen.text != words] == [question]

    async def test_an_anchored_question_can_be_finished_without_its_buttons(self, platform: Harness) -> None:
        """F2: once it is answered, the message says how it ended, and nothing on it can be pressed any more."""
        if not (platform.can.buttons and platform.can.streaming_edits):
            # The answer is then a message of its own; the buttons stay, and whoever presses them is told.
            return
        choices = (Choice(id="y", label="Yes"), Choice(id="n", label="No"))
        asked = replace(part("", to=platform.here, kind=PartKind.ANCHOR), body=Body(text="Shall I?", choices=choices))
        receipt = await platform.adapter.send(asked)
        assert [(seen.text, seen.choices) for seen in platform.visible()] == [("Shall I?", ("y", "n"))]
        assert receipt.view is not None
        ended = part("Denied.", to=platform.here, view=receipt.view)
        for sender in (platform.adapter, await platform.reborn()):
            # Twice, because the first may be in doubt: by another process, too.
            await sender.send(ended)
            assert [(seen.text, seen.choices) for seen in platform.visible()] == [("Denied.", ())]
        excused(platform, "erasure")
        await platform.erase(only(platform.visible()).id)
        with pytest.raises(ViewLost):
            await platform.adapter.send(replace(ended, body=Body(text="Approved.")))

    async def test_buttons_stand_below_a_notice_too(self, platform: Harness, tmp_path: Path) -> None:
        """Nobody has asked for it, so there is no message to answer and no run."""
        if not (platform.can.buttons and platform.can.async_delivery):
            return
        asked = Body(text="Shall I?", choices=(Choice(id="y", label="Yes"), Choice(id="n", label="No")))
        async with self.gateway(platform, tmp_path) as gateway:
            await gateway.desk.owe(replace(platform.here, reply_to="", handle=""), asked, "test")
            await platform.until(lambda: [seen for seen in platform.visible() if seen.choices])
        question = only(platform.visible(platform.here))
        assert (question.text, question.choices) == ("Shall I?", ("y", "n"))
        # The gateway has closed its adapter.
        platform.adapter = await platform.reborn()
        door = Door()
        async with listening(platform, door):
            await platform.presses(question.id, "y")
            pressed = only(await door.has_taken(1))
        assert (pressed.kind, pressed.about, pressed.choice) == (Kind.PRESSED, question.id, "y")
        assert pressed.target.chat == platform.here.chat

    async def test_buttons_stand_once_below_a_long_question(self, platform: Harness) -> None:
        if not platform.can.buttons:
            return
        asked = Body(text="Shall I? " * (platform.limit // 4), choices=(Choice(id="y", label="Yes"),))
        await send_all(platform, platform.adapter.compose(platform.here, asked))
        assert [seen.choices for seen in platform.visible()][-1] == ("y",)
        assert len([seen for seen in platform.visible() if seen.choices]) == 1

    async def test_files_arrive_once_each_with_their_text(self, platform: Harness, tmp_path: Path) -> None:
        files = {"report.txt": b"all is well\n" * 100, "photo.png": bytes(range(256))}
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        body = Body(text="Here you are.", files=tuple(File(path=str(tmp_path / name), name=name) for name in files))
        bodies = platform.adapter.compose(platform.here, body)
        if not platform.can.files:
            await self.is_refused(platform, bodies, lambda body: bool(body.files))
            assert [seen for seen in platform.visible() if seen.files] == []
            await self.is_refused_by_the_desk(platform, tmp_path, "files", body)
            return
        await send_all(platform, bodies)
        assert [file for seen in platform.visible() for file in seen.files] == list(files.items())
        assert "".join(texts(platform)).strip() == "Here you are."

    async def test_a_file_that_is_gone_is_no_doubt(self, platform: Harness, tmp_path: Path) -> None:
        if not platform.can.files:
            return
        excused(platform, "lost files")
        body = Body(files=(File(path=str(tmp_path / "gone.txt"), name="gone.txt"),))
        composed = only(platform.adapter.compose(platform.here, body))
        with pytest.raises(Rejected):
            await platform.adapter.send(part(to=platform.here, what=composed))
        assert platform.visible() == []

    async def test_reactions_and_typing_are_shown_where_they_are_declared(self, platform: Harness) -> None:
        door = Door()
        async with listening(platform, door):
            await platform.says("hi")
            said = only(await door.has_taken(1))
        await platform.adapter.signal(said.target, Signal.SEEN)
        await platform.adapter.signal(said.target, Signal.TYPING)
        if platform.can.typing:
            await platform.until(lambda: platform.typings)
        if platform.can.reactions:
            await platform.until(lambda: platform.reactions)
        await settle(0.02)
        assert (platform.typings > 0, len(platform.reactions) > 0) == (platform.can.typing, platform.can.reactions)
        assert platform.visible() == [], "a signal is not a message"

    @pytest.mark.parametrize("end", [Signal.DONE, Signal.FAILED, Signal.NONE])
    @pytest.mark.parametrize("restarted", [False, True], ids=["", "by the next process"])
    async def test_each_sign_takes_the_place_of_the_one_before(
        self, platform: Harness, end: Signal, restarted: bool
    ) -> None:
        door = Door()
        async with listening(platform, door):
            await platform.says("hi")
            said = only(await door.has_taken(1))
        adapter, shown = platform.adapter, list[str]()
        for signal in (Signal.SEEN, Signal.WAITING, Signal.WORKING):
            await adapter.signal(said.target, signal)
            if platform.can.reactions:
                await platform.until(lambda: len(platform.reactions) == 1 and platform.reactions[0] not in shown)
                shown.extend(platform.reactions)
        await (await platform.reborn() if restarted else adapter).signal(said.target, end)
        if platform.can.reactions:
            left = int(end is not Signal.NONE)
            await platform.until(lambda: len(platform.reactions) == left and not set(platform.reactions) & set(shown))
        assert platform.visible() == [], "a sign is not a message"

    @pytest.mark.parametrize("trouble", [Trouble.UNREACHABLE, Trouble.LOST_AFTER, Trouble.REFUSED])
    async def test_a_signal_that_is_lost_is_a_typed_error_or_nothing(self, platform: Harness, trouble: Trouble) -> None:
        excused(platform, trouble)
        await platform.trouble(trouble)
        for signal in Signal:
            with suppress(SendError):
                await platform.adapter.signal(replace(platform.here, reply_to="1"), signal)
        await platform.heal()
        assert platform.visible() == []

    async def test_a_thread_that_is_not_there_is_never_mistaken_for_its_chat(self, platform: Harness) -> None:
        """I7."""
        if platform.can.threads:
            await platform.adapter.send(part("in the thread", to=platform.thread))
            assert texts(platform, platform.thread) == ["in the thread"]
            assert texts(platform, platform.here) == []
            return
        with pytest.raises((*REFUSALS, Unreachable)):
            await platform.adapter.send(part("in the thread", to=platform.thread))
        assert texts(platform) == []

    async def is_refused(
        self, platform: Harness, bodies: tuple[Body, ...], is_undeclared: Callable[[Body], bool]
    ) -> None:
        """Either compose leaves it out, since core has told the person already, or send turns it away."""
        for body in filter(is_undeclared, bodies):
            with pytest.raises(REFUSALS):
                await platform.adapter.send(part(to=platform.here, what=body))

    async def is_refused_by_the_desk(self, platform: Harness, home: Path, ability: str, body: Body) -> None:
        """Up front, before anything is stored that could never arrive."""
        async with self.gateway(platform, home) as gateway:
            desk = gateway.desk
            with pytest.raises(Unsupported) as refusal:
                await desk.owe(platform.here, body, "test")
            owed = (await desk.health()).deliveries
        missing = "async_delivery" if not platform.can.async_delivery else ability
        assert refusal.value.ability == missing
        assert sum(owed.values()) == 0

    def gateway(self, platform: Harness, home: Path) -> Gateway:
        adapter = platform.adapter
        platforms = [Platform(adapter.name, adapter.account, lambda host: adapter)]
        team = Team({"bot": _Silent()}, "bot")
        return Gateway(home / "home", Core(), platforms, team, FakeLocal(), FakeServer())


class _Silent:
    def run(self, turn: Turn) -> AsyncIterator[Event]:
        raise NotImplementedError


def excused(platform: Harness, what: str) -> None:
    if what in platform.exempt:
        pytest.skip(platform.exempt[what])


async def never_sends(platform: Harness) -> bool:
    """Whoever is excused from sending promises nothing that would need it, and refuses to be handed anything."""
    if "sending" not in platform.exempt:
        return False
    can = platform.can
    assert [ability for ability in ABILITIES if getattr(can, ability)] == [], "declared, and yet nothing can be sent"
    assert (can.send_proof.keyed_for, can.send_proof.readback) == (0, False)
    refused = part("hi", to=platform.here)
    with pytest.raises(REFUSALS):
        await platform.adapter.send(refused)
    assert platform.visible() == []
    # Above all not Absent, which would be repeated.
    assert isinstance(await platform.adapter.find(refused, untaken), Unreadable)
    return True


def texts(platform: Harness, at: Target | None = None) -> list[str]:
    return [seen.text for seen in platform.visible(at)]


async def appears(platform: Harness, expected: list[str], at: Target | None = None) -> None:
    """What is shown is droppable, so no adapter waits until it is seen."""
    with suppress(TimeoutError):
        await platform.until(lambda: texts(platform, at) == expected)
    assert texts(platform, at) == expected


def only(things: Sequence[T]) -> T:
    assert len(things) == 1, things
    return things[0]


def ink(text: str) -> str:
    """What may not be lost: everything but white space and the fences that are closed and opened again."""
    return "".join(re.sub(r"^```\w*$", "", text, flags=re.MULTILINE).split())


async def opened(platform: Harness, opening: Part) -> View:
    view = (await platform.adapter.send(opening)).view
    assert view is not None, "what opens a view has one"
    return view


async def send_all(platform: Harness, bodies: tuple[Body, ...], view: View | None = None) -> None:
    for position, body in enumerate(bodies, 1):
        finishing = view if position == 1 else None
        await platform.adapter.send(
            part(to=platform.here, what=body, position=position, count=len(bodies), view=finishing)
        )


async def stopped(task: asyncio.Task[None]) -> None:
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.wait([task])
    assert task.cancelled()
