"""On paper an answer grows by edits, drafts or a stream, and a doubt about it can be settled."""

from __future__ import annotations

import pytest

from tests.simulators.paper.adapter import PaperAdapter, settings_for
from tests.simulators.paper.client import PaperClient
from tests.simulators.paper.pair import platform
from tests.simulators.paper.simulator import Kind
from tests.simulators.paper.wire import Ask
from tests.worlds.builders import part, untaken
from tests.worlds.fakes import host
from tidings.core.errors import Doubtful, Moved, Rejected, Unreachable, ViewLost
from tidings.core.types import Absent, PartKind, Receipt, Unreadable, View


async def opened(adapter: PaperAdapter, text: str = "…", kind: PartKind = PartKind.OPENING) -> View:
    view = (await adapter.send(part(text, kind=kind))).view
    assert view is not None
    return view


async def test_a_moved_chat_names_the_new_one() -> None:
    async with platform() as (paper, adapter):
        view = await opened(adapter)
        paper.move("1", "-100")
        with pytest.raises(Moved) as caught:
            await adapter.send(part(view=view))
        assert caught.value.chat == "-100"
        with pytest.raises(ViewLost):
            await adapter.send(part(chat="-100", view=view))
        await adapter.send(part("hello", chat="-100"))
        assert paper.posts_in("-100") == ["hello"]


async def test_a_message_grows_by_edits_and_is_finished_in_place() -> None:
    async with platform() as (paper, adapter):
        view = await opened(adapter)
        assert view.anchored
        assert await adapter.show(view, "hel") == view
        for _ in range(2):
            # The second time the platform says "not modified", which is as good as done.
            await adapter.send(part("hello", view=view))
        assert [(message.text, message.edited) for message in paper.visible()] == [("hello", 2)]
        paper.erase(paper.sent[0].id)
        with pytest.raises(ViewLost):
            await adapter.send(part("hello again", view=view))


async def test_a_draft_is_seen_until_the_final_is_posted() -> None:
    async with platform(Kind(streaming="drafts")) as (paper, adapter):
        view = await opened(adapter, "he")
        assert not view.anchored
        await adapter.show(view, "hel")
        assert [(message.id, message.text) for message in paper.visible()] == [("", "hel")]
        assert paper.posts == []
        await adapter.send(part("hello", view=view))
        assert [message.text for message in paper.visible()] == ["hello"]
        anchor = await opened(adapter, kind=PartKind.ANCHOR)
        assert anchor.anchored
        await adapter.send(part("by anchor", view=anchor))
        assert paper.posts == ["hello", "by anchor"]


async def test_a_stream_only_grows_and_ends_with_the_rest() -> None:
    async with platform(Kind(streaming="append")) as (paper, adapter):
        view = await opened(adapter, "he")
        assert await adapter.show(view, "hell") == view
        assert [call.ask.text for call in paper.calls("append")] == ["ll"]
        await adapter.send(part("hello", view=view))
        assert [(message.text, message.streaming) for message in paper.visible()] == [("hello", False)]
        assert [call.method for call in paper.calls()] == ["stream_start", "append", "stop"]


async def test_a_stream_whose_text_changed_or_ended_goes_on_by_edits() -> None:
    async with platform(Kind(streaming="append")) as (paper, adapter):
        view = await opened(adapter, "draft one")
        shown = await adapter.show(view, "something else")
        assert shown != view
        assert paper.posts == ["something else"]
        await adapter.send(part("final", view=shown))
        second = await opened(adapter, "two")
        paper.end_stream(paper.sent[1].id)
        await adapter.send(part("two and more", view=second))
        assert paper.posts == ["final", "two and more"]


async def test_a_stream_in_doubt_is_never_appended_to() -> None:
    """The append happened and its answer was lost; a second append would say it twice."""
    async with platform(Kind(streaming="append")) as (paper, adapter):
        view = await opened(adapter, "a")
        paper.drop_next(after_effect=True, method="append")
        with pytest.raises(Doubtful):
            await adapter.show(view, "ab")
        await adapter.send(part("abc", view=view))
        assert paper.posts == ["abc"]


async def test_finishing_a_stream_may_be_repeated_also_by_the_next_process() -> None:
    async with platform(Kind(streaming="append")) as (paper, adapter):
        view = await opened(adapter, "a")
        paper.drop_next(after_effect=True, method="stop")
        with pytest.raises(Doubtful):
            await adapter.send(part("abc", view=view))
        fresh = PaperAdapter("main", settings_for(paper), host())
        for again in (adapter, fresh):
            await again.send(part("abc", view=view))
            assert paper.posts == ["abc"]


async def test_a_stream_takes_no_edits_and_after_its_end_no_appends() -> None:
    async with platform(Kind(streaming="append")) as (paper, adapter):
        await opened(adapter, "a")
        client = PaperClient("main", settings_for(paper))
        ask = Ask(chat="1", message_id=paper.sent[0].id, text="b")
        with pytest.raises(Rejected, match="streaming"):
            await client.call("edit", ask)
        await client.call("stop", ask)
        for method in ("append", "stop"):
            with pytest.raises(ViewLost, match="not_streaming"):
                await client.call(method, ask)
        assert paper.posts == ["ab"]


async def test_reading_back_settles_a_doubt() -> None:
    async with platform(Kind(readback=True)) as (paper, adapter):
        paper.drop_next(after_effect=True)
        lost = part("hello", key="k")
        with pytest.raises(Doubtful):
            await adapter.send(lost)
        assert await adapter.find(lost, untaken) == Receipt(ids=(paper.sent[0].id,))
        assert await adapter.find(part("hello", key="other"), untaken) == Absent()
        view = await opened(adapter)
        assert await adapter.find(part("final", view=view), untaken) == Absent()
        await adapter.send(part("final", view=view))
        assert isinstance(await adapter.find(part("final", view=view), untaken), Receipt)
        paper.drop_next(after_effect=False)
        with pytest.raises(Unreachable):
            await adapter.find(lost, untaken)
    async with platform() as (_, adapter):
        assert isinstance(await adapter.find(lost, untaken), Unreadable)
