"""The paper platform passes the contract in each of its kinds, and the contract finds each lie it should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from tests.contract.adapters import AdapterContract, Harness, Trouble
from tests.contract.simulated import SimulatedHarness
from tests.simulators.paper.adapter import PaperAdapter, Place, settings_for
from tests.simulators.paper.simulator import Kind, PaperServer
from tests.simulators.paper.wire import Ask, Confirm, Event, Wire
from tests.worlds.builders import target
from tests.worlds.fakes import host
from tidings.core.adapter import Receive, Taken
from tidings.core.clock import SystemClock
from tidings.core.errors import Doubtful, RateLimited, TidingsError, Unreachable, Unstored
from tidings.core.types import (
    Absent,
    Admission,
    Body,
    Inbound,
    Note,
    Part,
    Receipt,
    Signal,
    Stored,
    Target,
    Unreadable,
    View,
)
from tidings.core.types import Kind as InboundKind

LIMIT = 200
# A lie that shows only as something that never happens costs this much.
PATIENCE_SECONDS = 1.0
KEYED, READBACK = 3600.0, True

KINDS = {
    "keyed, edits": Kind(keyed_for=KEYED),
    "readback, edits": Kind(readback=READBACK),
    "keyed and readback, edits": Kind(keyed_for=KEYED, readback=READBACK),
    "neither, edits": Kind(),
    "keyed, drafts": Kind(keyed_for=KEYED, streaming="drafts"),
    "neither, drafts": Kind(streaming="drafts"),
    "keyed, append": Kind(keyed_for=KEYED, streaming="append"),
    "readback, append": Kind(readback=READBACK, streaming="append"),
    "keyed, nothing grows": Kind(keyed_for=KEYED, streaming="none"),
    "no threads, no buttons": Kind(keyed_for=KEYED, threads=False, buttons=False),
    "no files, no signals": Kind(readback=READBACK, files=False, typing=False, reactions=False),
    "nothing at all": Kind(
        streaming="none",
        threads=False,
        buttons=False,
        files=False,
        typing=False,
        reactions=False,
        async_delivery=False,
    ),
}


class PaperHarness(SimulatedHarness[PaperServer]):
    limit = LIMIT
    exempt: Mapping[str, str] = {}
    here = target("1")
    elsewhere = target("2")
    thread = target("1", thread="t")

    def __init__(self, paper: PaperServer, downloads: Path, adapter: type[PaperAdapter] = PaperAdapter) -> None:
        self._paper = paper
        self._downloads = downloads
        self._class = adapter
        paper.open_chat("2")
        if paper.kind.threads:
            paper.open_chat("1", "t")
        super().__init__(paper)

    def _refuse(self, on: bool) -> None:
        self._paper.block("1", on=on)

    def _revoke(self, on: bool) -> None:
        if on or self._paper.token != self._token:
            self._paper.revoke("another" if on else self._token)

    def _move(self) -> None:
        self._paper.move("1", "2")

    @property
    def confirmed(self) -> list[str]:
        return self._paper.confirmed

    @property
    def reactions(self) -> list[str]:
        return [each.reaction for each in self._paper.truth.messages.values() if each.reaction]

    async def says(self, text: str, *, at: Target | None = None, file: tuple[str, bytes] | None = None) -> str:
        place = at or self.here
        return self._paper.says(text, chat=place.chat, thread=place.thread, files=[file] if file else [])

    async def edits(self, name: str, text: str) -> None:
        self._paper.edits(name, text)

    async def deletes(self, name: str) -> None:
        self._paper.deletes(name)

    async def presses(self, message: str, choice: str) -> None:
        self._paper.presses(message, choice)

    @property
    def whispers(self) -> list[str]:
        return [effect.text for effect in self._paper.effects if effect.act == "whisper"]

    @property
    def typings(self) -> int:
        return len(self._paper.typing_times())

    def _build(self) -> PaperAdapter:
        # What was not stored comes again at once, as far as a test can tell.
        settings = settings_for(self._paper, pause_seconds=0.01, token=self._token, downloads=str(self._downloads))
        return self._class("main", settings, host(SystemClock()))


@asynccontextmanager
async def paper_harness(
    kind: Kind, downloads: Path, adapter: type[PaperAdapter] = PaperAdapter
) -> AsyncIterator[PaperHarness]:
    async with PaperServer(kind, limit=LIMIT) as paper:
        yield PaperHarness(paper, downloads, adapter)


class TestPaper(AdapterContract):
    @pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
    async def platform(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
        async with paper_harness(request.param, tmp_path) as harness:
            yield harness


class ConfirmsFirst(PaperAdapter):
    async def _take(self, event: Event, receive: Receive, wire: Wire, before: asyncio.Task[None] | None) -> None:
        await wire.write(Confirm(confirm=(event.id,)))
        await super()._take(event, receive, wire, before)


class ConfirmsWhatWasNotStored(PaperAdapter):
    async def listen(self, receive: Receive) -> None:
        async def careless(inbound: Inbound, note: Note | None = None) -> Admission:
            with suppress(Unstored):
                return await receive(inbound, note)
            return Stored(run="")

        await super().listen(careless)


class Overtakes(PaperAdapter):
    async def _take(self, event: Event, receive: Receive, wire: Wire, before: asyncio.Task[None] | None) -> None:
        await asyncio.sleep(0.02 if event.text == "0" else 0)
        await super()._take(event, receive, wire, None)


class OneQueueForAll(PaperAdapter):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._turn = asyncio.Lock()

    async def _take(self, event: Event, receive: Receive, wire: Wire, before: asyncio.Task[None] | None) -> None:
        async with self._turn:
            await super()._take(event, receive, wire, before)


class NamesTheEventNotTheMessage(PaperAdapter):
    count = 0

    def _inbound(self, event: Event) -> Inbound:
        self.count += 1
        return replace(super()._inbound(event), key=f"{event.id}/{self.count}")


class NamesTheText(PaperAdapter):
    def _inbound(self, event: Event) -> Inbound:
        return replace(super()._inbound(event), key=event.text)


class ForgetsTheThread(PaperAdapter):
    def _inbound(self, event: Event) -> Inbound:
        return super()._inbound(replace(event, thread=""))


class AnswersInTheChat(PaperAdapter):
    async def _ask(self, part: Part) -> Ask:
        return replace(await super()._ask(part), thread="")


class KnowsNoCommands(PaperAdapter):
    def _inbound(self, event: Event) -> Inbound:
        return replace(super()._inbound(event), kind=InboundKind.MESSAGE, command="")


class CannotBeStopped(PaperAdapter):
    async def listen(self, receive: Receive) -> None:
        try:
            await super().listen(receive)
        except asyncio.CancelledError:
            return


class InventsIds(PaperAdapter):
    async def send(self, part: Part) -> Receipt:
        return replace(await super().send(part), ids=(part.key,))


class ForgetsTheKey(PaperAdapter):
    async def _ask(self, part: Part) -> Ask:
        return replace(await super()._ask(part), key="")


class RemembersReceipts(PaperAdapter):
    """Exactly once as long as it lives, and whatever the body says."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._receipts: dict[str, Receipt] = {}

    async def send(self, part: Part) -> Receipt:
        if part.key not in self._receipts:
            self._receipts[part.key] = await super().send(part)
        return self._receipts[part.key]


class NeverFindsAnything(PaperAdapter):
    async def find(self, part: Part, is_taken: Taken) -> Receipt | Absent | Unreadable:
        return Absent()


class HasNoDoubts(PaperAdapter):
    async def send(self, part: Part) -> Receipt:
        try:
            return await super().send(part)
        except Doubtful as error:
            raise Unreachable(str(error)) from error


class TriesAgainByItself(PaperAdapter):
    async def send(self, part: Part) -> Receipt:
        try:
            return await super().send(part)
        except Doubtful:
            await super().send(part)
            raise


class DoubtsEverything(PaperAdapter):
    async def send(self, part: Part) -> Receipt:
        try:
            return await super().send(part)
        except Unreachable as error:
            raise Doubtful(str(error)) from error


class ForgetsThePause(PaperAdapter):
    async def send(self, part: Part) -> Receipt:
        try:
            return await super().send(part)
        except RateLimited as error:
            raise RateLimited(None) from error


class CutsOff(PaperAdapter):
    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        return tuple(replace(each, text=each.text[:100]) for each in super().compose(target, body))


class NeverCuts(PaperAdapter):
    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        return (body,)


class AnswersBelowTheView(PaperAdapter):
    async def _finish(self, part: Part, place: Place) -> Receipt:
        return await self._begin(replace(part, view=None))


class KeepsViewsInMemory(PaperAdapter):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._views: dict[str, Place] = {}

    def _view(self, mode: Literal["message", "draft", "stream"], target: Target, id: str) -> View:
        view = super()._view(mode, target, id)
        self._views[id] = super()._place(view)
        return replace(view, handle=id)

    def _place(self, view: View) -> Place:
        return self._views[view.handle]


class TypesAMessage(PaperAdapter):
    async def signal(self, target: Target, signal: Signal) -> None:
        await self._client.call("post", Ask(chat=target.chat, thread=target.thread, text=signal.value))


class LeavesItsSign(PaperAdapter):
    """Does not know that a sign can be taken away."""

    async def signal(self, target: Target, signal: Signal) -> None:
        if signal is not Signal.NONE:
            await super().signal(target, signal)


class DropsButtons(PaperAdapter):
    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        return tuple(replace(each, choices=()) for each in super().compose(target, body))


class AnswersAPressForAll(PaperAdapter):
    async def _whisper(self, press: Inbound, words: str) -> None:
        await self._client.call("post", Ask(chat=press.target.chat, text=words))


class LeavesNoticesWithoutButtons(PaperAdapter):
    async def _ask(self, part: Part) -> Ask:
        asked = await super()._ask(part)
        return replace(asked, choices=()) if part.key.startswith("dlv") else asked


class SendsTheFirstFile(PaperAdapter):
    def compose(self, target: Target, body: Body) -> tuple[Body, ...]:
        return super().compose(target, replace(body, files=body.files[:1]))


class LetsTheFileRaise(PaperAdapter):
    async def _ask(self, part: Part) -> Ask:
        for file in part.body.files:
            Path(file.path).read_bytes()
        return await super()._ask(part)


ABLE, NEITHER = Kind(keyed_for=KEYED, readback=READBACK), Kind()
TOLD_TWICE = "a_message_that_is_told_twice_has_the_same_key"
WHERE_SAID = "an_answer_appears_where_the_message_was_said_and_nowhere_else"
VERDICT = "an_error_is_the_right_verdict"
LIARS: list[tuple[type[PaperAdapter], str, dict[str, Any]]] = [
    (ConfirmsFirst, "a_message_is_confirmed_only_after_it_was_received", {}),
    (ConfirmsWhatWasNotStored, "what_could_not_be_stored_is_not_confirmed_and_comes_again", {}),
    (Overtakes, "messages_are_handed_over_in_the_order_they_were_said", {}),
    (OneQueueForAll, "one_chat_that_waits_does_not_keep_another_waiting", {}),
    (NamesTheEventNotTheMessage, TOLD_TWICE, {}),
    (NamesTheText, "messages_with_the_same_text_have_keys_of_their_own", {}),
    (ForgetsTheThread, "a_message_knows_where_it_was_said_and_by_whom", {}),
    (ForgetsTheThread, WHERE_SAID, {}),
    (AnswersInTheChat, WHERE_SAID, {}),
    (AnswersInTheChat, "a_thread_that_is_not_there_is_never_mistaken_for_its_chat", {}),
    (AnswersInTheChat, "a_view_in_a_thread_stays_in_it", {}),
    (KnowsNoCommands, "a_command_is_told_as_one", {}),
    (CannotBeStopped, "cancelling_listen_stops_it_at_once", {}),
    (InventsIds, "a_receipt_carries_the_platforms_own_ids", {}),
    (ForgetsTheKey, "a_key_is_posted_once_where_keys_are_declared", {}),
    (ForgetsTheKey, "a_doubt_is_settled_by_the_proof_that_is_declared", {"trouble": Trouble.LOST_AFTER}),
    (RemembersReceipts, "another_body_under_a_known_key_is_never_taken_for_the_first", {}),
    (RemembersReceipts, "a_key_is_posted_once_where_keys_are_declared", {"kind": NEITHER}),
    (NeverFindsAnything, "reading_back_finds_what_arrived_and_nothing_else", {}),
    (NeverFindsAnything, "reading_back_finds_what_arrived_and_nothing_else", {"kind": NEITHER}),
    (NeverFindsAnything, "reading_back_finds_a_view_and_how_to_go_on_with_it", {}),
    (HasNoDoubts, VERDICT, {"trouble": Trouble.LOST_AFTER}),
    (TriesAgainByItself, "a_call_in_doubt_is_not_repeated_by_the_adapter", {"kind": NEITHER}),
    (DoubtsEverything, VERDICT, {"trouble": Trouble.UNREACHABLE}),
    (ForgetsThePause, VERDICT, {"trouble": Trouble.RATE_LIMITED}),
    (CutsOff, "a_long_text_is_cut_into_what_fits_and_loses_nothing", {"kind_of_text": "words"}),
    (NeverCuts, "what_is_too_long_is_unfit_and_composes_to_what_fits", {}),
    (AnswersBelowTheView, "a_view_grows_and_the_final_finishes_it_in_place", {}),
    (AnswersBelowTheView, "a_final_repeated_on_an_anchored_view_is_harmless", {}),
    (KeepsViewsInMemory, "a_view_outlives_the_process_that_opened_it", {}),
    (TypesAMessage, "reactions_and_typing_are_shown_where_they_are_declared", {}),
    (LeavesItsSign, "each_sign_takes_the_place_of_the_one_before", {"end": Signal.NONE, "restarted": False}),
    (DropsButtons, "buttons_are_shown_and_can_be_pressed", {"tmp_path": True}),
    (AnswersAPressForAll, "a_press_that_is_refused_is_answered_to_that_person_alone", {}),
    (LeavesNoticesWithoutButtons, "buttons_stand_below_a_notice_too", {"tmp_path": True}),
    (SendsTheFirstFile, "files_arrive_once_each_with_their_text", {"tmp_path": True}),
    (LetsTheFileRaise, "a_file_that_is_gone_is_no_doubt", {"tmp_path": True}),
]


@pytest.mark.parametrize(("liar", "finder", "given"), LIARS, ids=lambda each: getattr(each, "__name__", ""))
async def test_a_lying_adapter_is_found_out(
    tmp_path: Path, liar: type[PaperAdapter], finder: str, given: dict[str, Any]
) -> None:
    given = dict(given)
    kind = given.pop("kind", ABLE)
    if "tmp_path" in given:
        given["tmp_path"] = tmp_path
    test = getattr(AdapterContract(), f"test_{finder}")
    async with paper_harness(kind, tmp_path) as honest:
        await test(honest, **given)
    async with paper_harness(kind, tmp_path, liar) as lying:
        # A lie may show as a wrong state, as an error of another type, or as something that never happens.
        with pytest.raises((AssertionError, pytest.fail.Exception, LookupError, OSError, TidingsError)):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await test(lying, **given)
