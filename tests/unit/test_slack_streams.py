"""An answer that grows on Slack is whole at its end and there once, however its stream ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.simulators.slack.simulator import SlackServer, choices_of, text_of
from tests.worlds.builders import untaken
from tests.worlds.fakes import FakeClock
from tests.worlds.slack_desk import Desk, opened, shared
from tidings.core.errors import Doubtful, RateLimited, Unreachable, ViewLost
from tidings.core.types import Absent, Body, Choice, PartKind, Receipt


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    clock = FakeClock()
    async with SlackServer(clock=clock) as slack:
        made = Desk(slack, clock, tmp_path)
        yield made
        await made.adapter.close()


async def test_a_stream_grows_by_what_is_new_and_ends_with_the_answer(desk: Desk) -> None:
    target = desk.in_thread()
    view = await opened(desk, target, "search …")
    for text in ("Once", "Once upon\n\nsearch …", "Once upon a time", "Once upon a time <!chan"):
        await desk.adapter.show(view, text)
    (growing,) = desk.slack.sent
    assert (text_of(growing).strip(), growing.streaming) == ("Once upon a time", True)
    final = Body(text="Once upon a time <!channel>", choices=(Choice(id="c1", label="More"),))
    part = desk.part(target, "", what=final, view=view)
    assert (await desk.adapter.send(part)).ids == (growing.id,)
    (sent,) = desk.slack.sent
    assert (sent.stream, sent.pings, [each.id for each in choices_of(sent)]) == ("stopped", (), ["c1"])
    assert sent.text.replace("\u200b", "") == final.text
    assert isinstance(await desk.adapter.find(part, untaken), Receipt)
    assert {call.method for call in desk.slack.calls()} >= {"chat.startStream", "chat.appendStream", "chat.stopStream"}


@pytest.mark.parametrize("after", [False, True])
async def test_finishing_a_stream_twice_is_harmless(desk: Desk, after: bool) -> None:
    for text in ("Once upon a time", "x" * 5_000):
        target = desk.in_thread()
        view = await opened(desk, target, text[:4])
        part = desk.part(target, text, view=view)
        desk.slack.drop_next(after, "chat.stopStream")
        with pytest.raises(Doubtful):
            await desk.adapter.send(part)
        await desk.adapter.send(part)
        assert desk.slack.posts_in(desk.room, target.thread) == [text]


async def test_a_stream_is_ended_before_slack_does_and_goes_on_by_edits(desk: Desk) -> None:
    target = desk.in_thread()
    view = await opened(desk, target, "a")
    await desk.clock.advance(245.0)
    await desk.adapter.show(view, "a b")
    (sent,) = desk.slack.sent
    assert (sent.stream, text_of(sent)) == ("stopped", "a b")
    with pytest.raises(RateLimited):
        await desk.adapter.show(view, "a b c")
    await desk.clock.advance(3.0)
    await desk.adapter.show(view, "a b c")
    await desk.adapter.send(desk.part(target, "a b c d", view=view))
    assert desk.slack.posts_in(desk.room, target.thread) == ["a b c d"]


async def test_a_stream_that_says_too_much_is_ended_too(desk: Desk) -> None:
    target = desk.in_thread()
    view = await opened(desk, target, "a")
    long = "word " * 2_300
    await desk.adapter.show(view, long)
    (sent,) = desk.slack.sent
    assert sent.stream == "stopped"
    assert len(text_of(sent)) <= 4_000
    part = desk.part(target, long, view=view)
    with pytest.raises(ViewLost):
        await desk.adapter.send(part)
    assert desk.slack.sent == (), "nobody reads half of it beside the whole"


@pytest.mark.parametrize("text", ["a b c", "a" + " word" * 1_000])
async def test_a_stream_that_slack_has_ended_is_completed(desk: Desk, text: str) -> None:
    target = desk.in_thread()
    view = await opened(desk, target, "a")
    desk.slack.expire_streams()
    await desk.adapter.show(view, text[:5])
    assert desk.slack.posts_in(desk.room, target.thread) == [text[:5].strip()]
    part = desk.part(target, text, view=view)
    try:
        await desk.adapter.send(part)
    except ViewLost:
        await desk.adapter.send(desk.part(target, text, key=part.key))
    assert desk.slack.posts_in(desk.room, target.thread) == [text.strip()]


async def test_a_stream_that_a_crash_left_open_is_stopped_and_completed(desk: Desk) -> None:
    shown, finished = desk.in_thread(), desk.in_thread()
    views = [await opened(desk, target, "half an ans") for target in (shown, finished)]
    await desk.crash()
    await desk.adapter.show(views[0], "another text")
    await desk.adapter.send(desk.part(finished, "the answer", view=views[1]))
    assert desk.slack.posts_in(desk.room, shown.thread) == ["another text"]
    assert desk.slack.posts_in(desk.room, finished.thread) == ["the answer"]
    assert [message.stream for message in desk.slack.sent] == ["stopped", "stopped"]


@pytest.mark.parametrize("after", [False, True])
async def test_a_stream_of_whose_opening_nobody_heard_is_found_and_stopped(desk: Desk, after: bool) -> None:
    target = desk.in_thread()
    part = desk.part(target, "half", kind=PartKind.OPENING)
    desk.slack.drop_next(after, "chat.startStream")
    with pytest.raises(Doubtful):
        await desk.adapter.send(part)
    await desk.crash()
    if not after:
        assert await desk.adapter.find(part, untaken) == Absent()
        return
    desk.slack.drop_next(False, "chat.stopStream")
    with pytest.raises(Unreachable):
        await desk.adapter.find(part, untaken)
    found = await desk.adapter.find(part, untaken)
    assert isinstance(found, Receipt)
    assert not desk.slack.sent[0].streaming
    await desk.adapter.send(desk.part(target, "the answer", view=found.view))
    assert desk.slack.posts_in(desk.room, target.thread) == ["the answer"]


async def test_a_stream_that_is_another_runs_is_never_adopted_also_after_a_crash(desk: Desk) -> None:
    target = desk.in_thread()
    first = await desk.adapter.send(desk.part(target, "half", kind=PartKind.OPENING))
    await desk.crash()
    part = desk.part(target, "half", kind=PartKind.OPENING)
    desk.slack.drop_next(False, "chat.startStream")
    with pytest.raises(Doubtful):
        await desk.adapter.send(part)

    async def is_taken(id: str) -> bool:
        return id in first.ids

    assert await desk.adapter.find(part, is_taken) == Absent()


async def test_a_person_who_stops_a_stream_sees_it_grow_no_more_but_hears_the_end(desk: Desk) -> None:
    target = desk.in_thread()
    view = await opened(desk, target, "a")
    desk.ann.stops(desk.slack.sent[0])
    with pytest.raises(ViewLost):
        await desk.adapter.show(view, "a b")
    assert desk.slack.posts_in(desk.room, target.thread) == ["a"]
    await desk.adapter.send(desk.part(target, "a b\n\n(Stopped.)", view=view))
    assert desk.slack.posts_in(desk.room, target.thread) == ["a b\n\n(Stopped.)"]


@pytest.mark.parametrize("after", [False, True])
async def test_a_piece_in_doubt_is_never_there_twice(desk: Desk, after: bool) -> None:
    target = desk.in_thread()
    view = await opened(desk, target, "a")
    desk.slack.drop_next(after, "chat.appendStream")
    with pytest.raises(Doubtful):
        await desk.adapter.show(view, "a b")
    await desk.adapter.show(view, "a b c")
    await desk.adapter.send(desk.part(target, "a b c d", view=view))
    assert desk.slack.posts_in(desk.room, target.thread) == ["a b c d"]


@pytest.mark.parametrize("error", ["unknown_method", "team_not_found", "ratelimited"])
async def test_where_no_stream_may_begin_a_message_is_edited(desk: Desk, error: str) -> None:
    target = desk.in_thread()
    desk.slack.fail_next(error, "chat.startStream")
    view = await opened(desk, target, "a")
    await desk.clock.advance(3.0)
    await desk.adapter.show(view, "a b")
    assert desk.slack.posts_in(desk.room, target.thread) == ["a b"]
    part = desk.part(target, "a b c", view=view)
    await desk.adapter.send(part)
    await desk.adapter.send(part)
    assert desk.slack.posts_in(desk.room, target.thread) == ["a b c"]
    assert isinstance(await desk.adapter.find(part, untaken), Receipt)
    assert desk.slack.sent[0].stream == ""


async def test_an_opening_message_in_doubt_is_found(desk: Desk) -> None:
    part = desk.part(desk.in_direct(), "…", kind=PartKind.OPENING)
    desk.slack.drop_next(True, "chat.postMessage")
    with pytest.raises(Doubtful):
        await desk.adapter.send(part)
    found = await desk.adapter.find(part, untaken)
    assert isinstance(found, Receipt)
    await desk.adapter.send(desk.part(desk.in_direct(), "hello", view=found.view))
    assert desk.slack.posts == ["hello"]


async def test_a_view_that_somebody_removed_is_lost(desk: Desk) -> None:
    for native in (True, False):
        target = desk.in_thread() if native else desk.in_direct()
        view = await opened(desk, target, "a")
        if native:
            desk.slack.expire_streams()
        desk.slack.erase(desk.slack.sent[-1])
        with pytest.raises(ViewLost):
            await desk.adapter.send(desk.part(target, "a b", view=view))
        await desk.clock.advance(3.0)
        with pytest.raises(ViewLost):
            await desk.adapter.show(view, "a b")


async def test_a_file_takes_the_place_of_what_was_shown(desk: Desk, tmp_path: Path) -> None:
    target = desk.in_thread()
    view = await opened(desk, target, "…")
    part = await shared(desk, target, tmp_path / "a.txt")
    await desk.adapter.send(replace(part, view=view))
    (sent,) = desk.slack.visible(desk.room, target.thread)
    assert [file.name for file in sent.files] == ["a.txt"]
