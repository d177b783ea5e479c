"""The paper platform is an honest judge: it refuses, deduplicates, redelivers, and keeps its own truth."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulators.paper.adapter import PaperAdapter, settings_for
from tests.simulators.paper.pair import platform
from tests.simulators.paper.simulator import NASTY, Kind, PaperServer
from tests.worlds.builders import body, part, target
from tests.worlds.fakes import Door, FakeClock, FakeReports, host, listening
from tidings.core.errors import Doubtful, Misconfigured, Moved, RateLimited, Rejected, SendError, Unfit, Unreachable
from tidings.core.types import Attachment, Audience, File, Pace, PartKind, Signal

REFUSALS: list[tuple[str, Callable[[PaperServer], object], dict[str, Any], type[SendError]]] = [
    ("empty text", lambda paper: None, {"text": " "}, Rejected),
    ("unknown chat", lambda paper: None, {"chat": "9"}, Rejected),
    ("unknown thread", lambda paper: None, {"thread": "t"}, Rejected),
    ("deleted thread", lambda paper: gone(paper), {"thread": "t"}, Rejected),
    ("closed thread", lambda paper: closed(paper), {"thread": "t"}, Rejected),
    ("wrong token", lambda paper: paper.revoke("new"), {}, Misconfigured),
    ("blocked", lambda paper: paper.block("1"), {}, Rejected),
    ("moved", lambda paper: paper.move("1", "2"), {}, Moved),
    ("a 400", lambda paper: paper.fail_next(400), {}, Rejected),
    ("a 401", lambda paper: paper.fail_next(401), {}, Misconfigured),
    ("a 409", lambda paper: paper.fail_next(409), {}, Rejected),
    ("a 413", lambda paper: paper.fail_next(413), {}, Unfit),
    ("a 429", lambda paper: paper.fail_next(429), {}, RateLimited),
    ("a 503", lambda paper: paper.fail_next(503), {}, Unreachable),
    ("a 500 proves nothing", lambda paper: paper.fail_next(500), {}, Doubtful),
    ("reset before the effect", lambda paper: paper.drop_next(after_effect=False), {}, Doubtful),
]


def gone(paper: PaperServer) -> None:
    paper.open_chat("1", "t")
    paper.delete_thread("1", "t")


def closed(paper: PaperServer) -> None:
    paper.open_chat("1", "t")
    paper.close_thread("1", "t")


@pytest.mark.parametrize(("_name", "lever", "what", "error"), REFUSALS, ids=[row[0] for row in REFUSALS])
async def test_what_is_refused_has_no_effect_and_one_verdict(
    _name: str, lever: Callable[[PaperServer], object], what: dict[str, Any], error: type[SendError]
) -> None:
    async with platform() as (paper, adapter):
        lever(paper)
        with pytest.raises(error) as caught:
            await adapter.send(part(**what))
        assert type(caught.value) is error or error is Unfit
        assert paper.posts == []
        assert [call.verdict for call in paper.calls("post")] != ["ok"]


async def test_a_post_is_the_truth_at_its_place_only() -> None:
    async with platform() as (paper, adapter):
        paper.open_chat("1", "t")
        receipt = await adapter.send(part("hello", thread="t", to=target(thread="t", reply_to="m1"), key="k"))
        [message] = paper.sent
        assert receipt.ids == (message.id,)
        assert (message.chat, message.thread, message.text) == ("1", "t", "hello")
        assert (message.reply_to, message.key, message.order) == ("m1", "k", 1)
        assert (paper.posts_in("1", "t"), paper.posts_in("1", ""), paper.posts_in("2")) == (["hello"], [], [])
        assert [(call.ask.text, call.verdict) for call in paper.calls("post")] == [("hello", "ok")]


@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_silence_after_the_write_is_a_doubt(after_effect: bool) -> None:
    async with platform(call_seconds=0.2) as (paper, adapter):
        paper.hang_next(after_effect)
        paper.drop_next(after_effect)
        for _ in range(2):
            with pytest.raises(Doubtful):
                await adapter.send(part("hello"))
        assert paper.posts == (["hello", "hello"] if after_effect else [])
        lost = "lost after" if after_effect else "lost before"
        assert [call.verdict for call in paper.calls()] == [lost, lost]


async def test_half_an_answer_is_a_doubt() -> None:
    async with platform() as (paper, adapter):
        paper.garble_next()
        with pytest.raises(Doubtful):
            await adapter.send(part("hello"))
        assert paper.posts == ["hello"]


async def test_nobody_at_home_is_no_doubt_and_the_port_stays() -> None:
    async with platform() as (paper, adapter):
        address = paper.address
        await paper.outage(True)
        with pytest.raises(Unreachable):
            await adapter.send(part("hello"))
        with pytest.raises(Unreachable):
            await adapter.listen(Door())
        await paper.outage(False)
        await adapter.send(part("hello"))
        assert (paper.address, paper.posts) == (address, ["hello"])


async def test_a_key_gives_the_first_message_again_within_its_window() -> None:
    clock = FakeClock()
    async with platform(Kind(keyed_for=60), clock=clock) as (paper, adapter):
        first = await adapter.send(part("hello", key="k"))
        assert await adapter.send(part("hello", key="k")) == first
        with pytest.raises(Rejected, match="key_conflict"):
            await adapter.send(part("another", key="k"))
        assert paper.posts == ["hello"]
        await clock.advance(61)
        assert await adapter.send(part("hello", key="k")) != first
        paper.forget_keys()
        await adapter.send(part("hello", key="k"))
        assert len(paper.copies("k")) == 3


async def test_a_key_proves_nothing_where_none_is_declared() -> None:
    async with platform() as (paper, adapter):
        for _ in range(2):
            await adapter.send(part("hello", key="k"))
        assert paper.posts == ["hello", "hello"]


async def test_a_text_that_does_not_fit_teaches_the_limit() -> None:
    async with platform(limit=10) as (paper, _):
        adapter = PaperAdapter("main", settings_for(paper, limit=100), host())
        long = body("one two three four", choices=(("y", "Yes"),), files=(File(path="x", name="x"),))
        assert len(adapter.compose(target(), long)) == 2
        with pytest.raises(Unfit):
            await adapter.send(part(what=body(long.text)))
        parts = adapter.compose(target(), long)
        assert all(len(each.text) <= 10 for each in parts)
        assert [bool(each.choices) for each in parts] == [False] * (len(parts) - 2) + [True, False]
        assert parts[-1].files == long.files
        assert paper.posts == []


async def test_a_rate_limit_tells_how_long_and_whose_budget() -> None:
    clock = FakeClock()
    pace = (Pace(key="all", seconds=1, burst=9), Pace(key="chat {chat}", seconds=1, burst=9))
    async with platform(Kind(pace=pace), clock=clock) as (paper, adapter):
        paper.limit_rate("1", per_seconds=3, burst=1)
        await adapter.send(part())
        with pytest.raises(RateLimited) as caught:
            await adapter.signal(target(), Signal.TYPING)
        assert (caught.value.retry_after, caught.value.budget) == (3.0, "paper@main chat 1")
        assert caught.value.budget in {each.key for each in adapter.can(target()).pace}
        await clock.advance(3)
        await adapter.send(part())
        paper.limit_rate(None, per_seconds=1, burst=2)
        await clock.advance(10)
        paper.open_chat("2")
        await adapter.send(part())
        await adapter.send(part(chat="2"))
        with pytest.raises(RateLimited) as caught:
            await adapter.send(part(chat="2"))
        assert caught.value.budget == "paper@main all"


async def test_an_event_is_confirmed_only_after_it_was_received() -> None:
    clock = FakeClock()
    async with platform(clock=clock) as (paper, adapter):
        key = paper.says("hi")
        door = Door(unstored=1)
        async with listening(adapter, door):
            await door.knocked()
            for _ in range(3):
                # A confirmation that was sent too early would be here by now.
                await adapter.signal(target(), Signal.TYPING)
            assert (paper.confirmed, paper.unconfirmed) == ([], [key])
            await clock.advance(1)
            await paper.until(lambda paper: paper.confirmed == [key])
        assert [inbound.key for inbound in door.taken] == [key]


async def test_what_people_do_becomes_inbounds() -> None:
    async with platform() as (paper, adapter):
        message = paper.says("look", chat="2", thread="t", group="album", private=False, addressed=False, quotes="that")
        paper.edits(message, "look!")
        paper.deletes(message)
        paper.commands("stop", "now")
        sent = await adapter.send(part(what=body("sure?", choices=(("y", "Yes"),))))
        paper.presses(sent.ids[0], "y")
        door = Door()
        async with listening(adapter, door):
            await paper.until(lambda paper: not paper.unconfirmed)
        # Chats may overlap; each has its own order.
        looked, edited, deleted = (each for each in door.taken if each.conversation.chat == "2")
        stop, pressed = (each for each in door.taken if each.conversation.chat == "1")
        assert (looked.kind, looked.group, looked.addressed) == ("message", "album", False)
        assert (looked.target.thread, looked.target.audience) == ("t", Audience.GROUP)
        assert looked.quoted is not None
        assert (edited.kind, edited.about, edited.text) == ("edited", message, "look!")
        assert (deleted.kind, deleted.about) == ("deleted", message)
        assert (stop.kind, stop.command, stop.argument) == ("commanded", "stop", "now")
        assert (pressed.kind, pressed.about, pressed.choice) == ("pressed", sent.ids[0], "y")
        assert len({inbound.key for inbound in door.taken}) == 5


async def test_a_cut_is_unreachable_and_the_unconfirmed_comes_again() -> None:
    async with platform() as (paper, adapter):
        paper.says("one")
        listen = asyncio.create_task(adapter.listen(door := Door(unstored=1)))
        await door.knocked()
        paper.cut()
        with pytest.raises(Unreachable):
            await asyncio.wait_for(listen, 10)
        assert door.texts == []
        paper.says("two")
        async with listening(adapter, door):
            await paper.until(lambda paper: len(paper.confirmed) == 2)
        assert door.texts == ["one", "two"]


async def test_a_client_that_is_killed_loses_nothing() -> None:
    async with platform() as (paper, adapter):
        key = paper.says("hi")
        script = (
            "import socket, sys\n"
            "peer = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
            'peer.sendall(b\'{"id":"1","method":"attach","account":"main","token":"token"}\\n\')\n'
            "lines = peer.makefile()\n"
            "print(lines.readline(), lines.readline(), flush=True)\n"
            "sys.stdin.read()\n"
        )
        port = paper.address.rpartition(":")[2]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, port, stdin=pipe, stdout=pipe)
        assert process.stdout is not None
        async with asyncio.timeout(10):
            await process.stdout.readline()
            assert key.encode() in await process.stdout.readline()
        process.kill()
        await process.wait()
        await paper.until(lambda paper: not paper.attached())
        door = Door()
        async with listening(adapter, door):
            await paper.until(lambda paper: paper.confirmed == [key])
        assert door.texts == ["hi"]


async def test_the_newest_attachment_wins() -> None:
    async with platform() as (paper, adapter):
        older = asyncio.create_task(adapter.listen(Door()))
        await paper.until(lambda paper: paper.attached())
        door = Door()
        async with listening(PaperAdapter("main", settings_for(paper), host()), door):
            with pytest.raises(Unreachable):
                await asyncio.wait_for(older, 10)
            paper.says("hi")
            await paper.until(lambda paper: paper.confirmed)
        assert door.texts == ["hi"]


async def test_events_can_come_twice_and_in_another_order() -> None:
    async with platform() as (paper, adapter):
        door = Door()
        async with listening(adapter, door):
            paper.duplicate_next()
            key = paper.says("a")
            await paper.until(lambda paper: paper.confirmed == [key])
            paper.reorder_next(2)
            paper.says("b")
            paper.says("c")
            await paper.until(lambda paper: len(paper.confirmed) == 3)
            paper.redeliver(key)
            paper.says("d")
            await paper.until(lambda paper: len(paper.confirmed) == 4)
        assert door.texts == ["a", "a", "c", "b", "a", "d"]


async def test_one_chat_that_cannot_be_stored_delays_no_other() -> None:
    async with platform() as (paper, adapter):
        paper.says("stuck", chat="1")
        paper.says("behind it", chat="1")
        key = paper.says("free", chat="2")
        async with listening(adapter, door := Door(unstored=1)):
            await paper.until(lambda paper: paper.confirmed == [key])
            assert door.texts == ["free"]


async def test_listening_is_reported_and_a_bad_token_is_the_owners_to_mend() -> None:
    async with platform() as (paper, _):
        reports = FakeReports()
        adapter = PaperAdapter("main", settings_for(paper), replace(host(), reports=reports))
        async with listening(adapter, Door()):
            await paper.until(lambda paper: paper.attached())
            paper.says("hi")
            await paper.until(lambda paper: paper.confirmed)
        assert reports.reached == 1
        paper.revoke("new")
        with pytest.raises(Misconfigured):
            await adapter.listen(Door())


async def test_signals_are_seen_and_a_reaction_replaces_the_last() -> None:
    async with platform() as (paper, adapter):
        key = paper.says("hi")
        where = target(reply_to=key)
        for signal in (Signal.TYPING, Signal.SEEN, Signal.DONE):
            await adapter.signal(where, signal)
        assert paper.typing_times("1") == [paper.clock.wall()]
        assert paper.message(key).reaction == "✅"


async def test_files_go_both_ways(tmp_path: Path) -> None:
    async with platform(downloads=str(tmp_path)) as (paper, adapter):
        paper.says("take", files=[("a.txt", b"inside")])
        async with listening(adapter, door := Door()):
            await paper.until(lambda paper: paper.confirmed)
        [attachment] = door.taken[0].attachments
        path = await adapter.fetch(attachment)
        assert (attachment.name, attachment.size, path.read_bytes()) == ("a.txt", 6, b"inside")
        out = body("", files=(File(path=str(path), name="b.txt"),))
        await adapter.send(part(what=out))
        assert [(file.name, file.data) for file in paper.sent[0].files] == [("b.txt", b"inside")]
        path.unlink()
        with pytest.raises(Rejected):
            await adapter.send(part(what=out))
        with pytest.raises(Rejected):
            await adapter.fetch(Attachment(handle="none"))


async def test_what_the_kind_lacks_is_declared_and_refused() -> None:
    bare = Kind(streaming="none", threads=False, reactions=False, buttons=False, files=False, typing=False)
    async with platform(bare) as (paper, adapter):
        can = adapter.can(target())
        assert not any((can.streaming_edits, can.threads, can.reactions, can.buttons, can.files, can.typing))
        paper.open_chat("1", "t")
        for refused in (
            part(thread="t"),
            part(what=body(choices=(("y", "Yes"),))),
            part(kind=PartKind.OPENING),
        ):
            with pytest.raises(Rejected):
                await adapter.send(refused)
        await adapter.signal(target(reply_to="m1"), Signal.SEEN)
        assert paper.effects == ()


async def test_a_held_call_is_seen_before_it_has_an_effect() -> None:
    async with platform() as (paper, adapter):
        gate = paper.hold_next("post")
        sending = asyncio.create_task(adapter.send(part("hello")))
        await paper.until(lambda paper: paper.calls("post"))
        assert (paper.posts, paper.calls("post")[0].verdict) == ([], "")
        gate.set()
        await sending
        paper.delay_next(0.01)
        await adapter.send(part("later"))
        assert paper.posts == ["hello", "later"]
        with pytest.raises(TimeoutError, match="hello"):
            await paper.until(lambda paper: False, timeout=0.01)


async def test_a_long_line_arrives_whole() -> None:
    async with platform(limit=10**6) as (paper, adapter):
        paper.says("x" * 300_000)
        async with listening(adapter, door := Door()):
            await paper.until(lambda paper: paper.confirmed)
        await adapter.send(part(door.texts[0]))
        assert len(paper.posts[0]) == 300_000


async def test_a_seed_gives_the_same_faults_again() -> None:
    async def verdicts(seed: int) -> list[str]:
        async with platform(call_seconds=0.2) as (paper, adapter):
            paper.schedule(seed, NASTY)
            for _ in range(60):
                await asyncio.gather(adapter.send(part()), return_exceptions=True)
            paper.heal()
            await adapter.send(part("healed"))
            return [call.verdict for call in paper.calls()]

    first = await verdicts(7)
    assert first == await verdicts(7)
    assert first != await verdicts(8)
    assert len(set(first)) > 2
