"""What is sent to Slack stands in its place, is found again when nobody heard, and is seen by whom it is for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import json

from tests.simulators.slack.simulator import SlackServer
from tests.worlds import builders
from tests.worlds.builders import untaken
from tests.worlds.fakes import FakeClock
from tests.worlds.slack_desk import Desk, opened, shared
from tidings.adapters.slack.address import Handle
from tidings.core.errors import Doubtful, RateLimited, Rejected, SendError, Unreachable
from tidings.core.types import Absent, Attachment, Audience, Body, File, Receipt, Target, Unreadable


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    clock = FakeClock()
    async with SlackServer(clock=clock) as slack:
        made = Desk(slack, clock, tmp_path)
        yield made
        await made.adapter.close()


async def test_a_message_stands_in_its_thread_with_metadata_and_unfolds_nothing(desk: Desk) -> None:
    target = desk.in_thread()
    receipt = await desk.adapter.send(desk.part(target, "see https://example.com"))
    (sent,) = desk.slack.sent
    assert (sent.thread, sent.id) == (target.thread, receipt.ids[0])
    assert (sent.unfurl_links, sent.unfurl_media, sent.pings) == (False, False, ())
    assert sent.metadata is not None
    assert sent.metadata["event_type"] == "tidings.delivery"


async def test_a_person_is_written_to_in_their_direct_messages(desk: Desk) -> None:
    target = builders.target(desk.ann.id, adapter="slack")
    part = desk.part(target)
    await desk.adapter.send(part)
    assert desk.slack.posts_in(desk.ann.direct) == ["hello"]
    assert isinstance(await desk.adapter.find(part, untaken), Receipt)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("grown", [False, True])
async def test_what_slack_cannot_draw_is_said_more_plainly(desk: Desk, times: int, grown: bool) -> None:
    table = "| a | b |\n|---|---|\n| 1 | <2> |"
    view = await opened(desk, desk.in_direct()) if grown else None
    desk.slack.fail_next("invalid_blocks", "chat.update" if grown else "chat.postMessage", count=times)
    await desk.adapter.send(desk.part(desk.in_direct(), table, view=view))
    boxed = "```\na | b\n--+----\n1 | <2>\n```"
    assert desk.slack.posts == [boxed if times == 1 else boxed.replace("<2>", "&lt;2&gt;")]


# Read-back.


async def test_a_lost_message_is_found_by_its_metadata_also_after_a_crash(desk: Desk) -> None:
    for target in (desk.in_thread(), desk.in_direct()):
        part = desk.part(target)
        assert await desk.adapter.find(part, untaken) == Absent()
        desk.slack.drop_next(True, "chat.postMessage")
        with pytest.raises(Doubtful):
            await desk.adapter.send(part)
        await desk.crash()
        found = await desk.adapter.find(part, untaken)
        assert isinstance(found, Receipt)
        assert found.ids == (desk.slack.sent[-1].id,)
        assert await desk.adapter.find(desk.part(target, key="another"), untaken) == Absent()


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
async def test_where_slack_does_not_tell_the_time_all_that_it_shows_is_read(desk: Desk, skew: float) -> None:
    desk.slack.hide_date()
    desk.slack.skew = skew
    part = desk.part(desk.in_thread())
    desk.slack.drop_next(True, "chat.postMessage")
    with pytest.raises(Doubtful):
        await desk.adapter.send(part)
    assert isinstance(await desk.adapter.find(part, untaken), Receipt)


async def test_metadata_that_another_app_has_forged_proves_nothing(desk: Desk) -> None:
    target = desk.in_thread()
    part = desk.part(target)
    other = desk.slack.main.person("other", is_bot=True)
    payload = {"k": part.key, "i": part.position, "n": part.count}
    for mac in ("", "0" * 32):
        forged = {"event_type": "tidings.delivery", "event_payload": {**payload, "mac": mac}}
        desk.slack.board.post(
            desk.slack.main, desk.room, other.id, "hello", thread=target.thread, metadata=forged, silent=True
        )
    assert await desk.adapter.find(part, untaken) == Absent()


async def test_what_was_proved_elsewhere_proves_nothing_here(desk: Desk) -> None:
    first, second = desk.in_thread(), desk.in_thread()
    await desk.adapter.send(desk.part(first, key="k"))
    copied = desk.slack.sent[0].metadata
    other = desk.slack.main.person("other", is_bot=True)
    desk.slack.board.post(
        desk.slack.main, desk.room, other.id, "hello", thread=second.thread, metadata=copied, silent=True
    )
    assert await desk.adapter.find(desk.part(second, key="k"), untaken) == Absent()


async def test_who_may_not_read_says_which_scope_is_missing(desk: Desk) -> None:
    desk.slack.drop_scope(desk.slack.main, "channels:history")
    found = await desk.adapter.find(desk.part(desk.in_thread()), untaken)
    assert isinstance(found, Unreadable)
    assert "channels:history" in found.reason


async def test_a_reading_that_is_turned_away_goes_on_where_it_was(desk: Desk) -> None:
    target = desk.in_thread()
    part = desk.part(target)
    for number in range(40):
        desk.ann.says(desk.room, f"chat {number}", thread=target.thread)
    desk.slack.drop_next(True, "chat.postMessage")
    with pytest.raises(Doubtful):
        await desk.adapter.send(part)
    desk.slack.limit_history()
    for _ in range(2):
        with pytest.raises(RateLimited) as limited:
            await desk.adapter.find(part, untaken)
        desk.clock.jump(0)
        await desk.clock.advance(limited.value.retry_after or 0)
    assert isinstance(await desk.adapter.find(part, untaken), Receipt)


# Files out.


async def test_a_file_is_shared_in_the_thread(desk: Desk, tmp_path: Path) -> None:
    target = desk.in_thread()
    await desk.adapter.send(await shared(desk, target, tmp_path / "report.txt"))
    (sent,) = desk.slack.visible(desk.room, target.thread)
    assert [(file.name, file.data) for file in sent.files] == [("report.txt", b"all is well")]


@pytest.mark.parametrize("after", [False, True])
async def test_a_file_in_doubt_is_found_by_its_id_also_after_a_crash(desk: Desk, tmp_path: Path, after: bool) -> None:
    part = await shared(desk, desk.in_thread(), tmp_path / "report.txt")
    desk.slack.drop_next(after, "files.completeUploadExternal")
    with pytest.raises(Doubtful):
        await desk.adapter.send(part)
    await desk.crash()
    assert isinstance(await desk.adapter.find(part, untaken), Receipt if after else Absent)


@pytest.mark.parametrize("step", ["files.getUploadURLExternal", "upload"])
async def test_a_file_that_nobody_was_shown_was_not_sent(desk: Desk, tmp_path: Path, step: str) -> None:
    part = await shared(desk, desk.in_thread(), tmp_path / "report.txt")
    desk.slack.drop_next(True, step)
    with pytest.raises(Unreachable):
        await desk.adapter.send(part)
    assert desk.slack.sent == ()


async def test_an_unfit_file_is_named_with_a_reason(desk: Desk, tmp_path: Path) -> None:
    target = desk.in_thread()
    empty = tmp_path / "empty.txt"
    empty.touch()
    part = desk.part(target, "", what=Body(files=(File(path=str(empty), name="empty.txt"),)))
    with pytest.raises(Rejected, match="empty"):
        await desk.adapter.send(part)
    desk.slack.drop_scope(desk.slack.main, "files:write")
    with pytest.raises(Rejected, match="files:write"):
        await desk.adapter.send(await shared(desk, target, tmp_path / "report.txt"))


async def test_a_file_that_somebody_sent_is_fetched(desk: Desk, tmp_path: Path) -> None:
    said = desk.ann.says(desk.room, "look", files=[("a.txt", b"all is well")])
    file = said.files[0]
    url = f"{desk.slack.origin}/files-pri/{desk.slack.main.id}-{file.id}/{file.name}"
    handle = json.encode({"url": url, "id": file.id}).decode()
    path = await desk.adapter.fetch(Attachment(handle=handle, name="../a.txt", media_type="text/plain"))
    assert (path.read_bytes(), path.parent) == (b"all is well", tmp_path)
    moved = json.encode({"url": f"{url}.old", "id": file.id}).decode()
    path = await desk.adapter.fetch(Attachment(handle=moved, name="a.txt"))
    assert path.read_bytes() == b"all is well"
    for broken in ("", "{}", '{"url": "https://evil.example/x"}'):
        with pytest.raises(Rejected):
            await desk.adapter.fetch(Attachment(handle=broken, name="a"))


# Answers for one alone.


def whispered(desk: Desk) -> Target:
    happening = desk.ann.commands("/tidings", "status", desk.room)
    handle = Handle(response_url=happening.payload["response_url"], at=desk.clock.wall())
    return builders.target(desk.room.id, adapter="slack", audience=Audience.ONE, handle=handle.write())


async def test_the_answer_to_a_command_is_seen_by_one_and_never_by_all(desk: Desk) -> None:
    target = whispered(desk)
    can = desk.adapter.can(target)
    assert (can.files, can.streaming_edits, can.send_proof.readback) == (False, False, False)
    await desk.adapter.send(desk.part(target, "all <!channel> is well"))
    (whisper,) = desk.slack.whispers
    assert (whisper.whispered_to, whisper.pings) == (desk.ann.id, ())
    await desk.clock.advance(29 * 60.0)
    with pytest.raises(Rejected, match="over"):
        await desk.adapter.send(desk.part(target))
    assert desk.slack.posts == []


async def test_a_command_that_was_answered_too_often_is_answered_no_more(desk: Desk) -> None:
    target = whispered(desk)
    bodies = desk.adapter.compose(target, Body(text="word " * 20_000))
    assert len(bodies) == 4
    for body in bodies:
        await desk.adapter.send(desk.part(target, "", what=body))
    await desk.adapter.send(desk.part(target))
    with pytest.raises(Rejected, match="as often"):
        await desk.adapter.send(desk.part(target))
    assert len(desk.slack.whispers) == 5
    assert desk.slack.posts == []


@pytest.mark.parametrize(("trouble", "verdict"), [(503, Doubtful), (429, RateLimited)])
async def test_a_whisper_that_fails_has_a_verdict_too(desk: Desk, trouble: int, verdict: type[SendError]) -> None:
    target = whispered(desk)
    desk.slack.fail_next(trouble, "response_url")
    with pytest.raises(verdict):
        await desk.adapter.send(desk.part(target))
    assert isinstance(await desk.adapter.find(desk.part(target), untaken), Unreadable)
