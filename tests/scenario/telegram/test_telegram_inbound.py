"""What comes in from Telegram: heard once and in order, and confirmed only when it is stored."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.contract.test_telegram import free_port
from tests.simulators.telegram.simulator import TelegramServer
from tests.worlds.process import PATIENCE_SECONDS
from tests.worlds.telegram import SECRET, TelegramWorld, process
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted, armed
from tidings.bots.demo.agent import DemoAgent
from tidings.core.agent import Event, Finished, TextDelta, Turn
from tidings.core.inbound.door import QUESTION_CLOSED
from tidings.core.store.sqlite import DATABASE
from tidings.core.types import Body, Choice, Quoted, Target

PERSON = {"id": 7, "is_bot": False, "first_name": "Ann"}
CHAT = {"id": 7, "type": "private", "first_name": "Ann"}
HEADER = "X-Telegram-Bot-Api-Secret-Token"

# By polling and by webhook alike.
both_ways = pytest.mark.parametrize("webhook", [False, True], ids=["polling", "webhook"])


def said(*texts: str) -> list[str]:
    return [f"you said: {text}" for text in texts]


async def confirmed(world: TelegramWorld, *names: str) -> None:
    await world.telegram.until(lambda telegram: set(names) <= set(telegram.confirmed))


class Fetcher:
    """Fetches what came along, and says what was in it."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.fetched: list[tuple[str, bytes]] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        for attachment in turn.message.attachments:
            path = await turn.desk.fetch(attachment)
            self.fetched.append((attachment.name, await asyncio.to_thread(path.read_bytes)))
        yield TextDelta(f"I have {len(turn.message.attachments)}")
        yield Finished()


# A private chat.


@both_ways
async def test_a_person_is_answered_in_their_private_chat(tmp_path: Path, webhook: bool) -> None:
    async with TelegramWorld(tmp_path, Echo(), webhook=webhook) as world:
        name = world.telegram.says("hi")
        await world.telegram.until(lambda telegram: telegram.posts_in(7) == said("hi"))
        await confirmed(world, name)


async def test_a_conversation_is_remembered(tmp_path: Path) -> None:
    agent = Scripted("noted")
    async with TelegramWorld(tmp_path, agent, clock=OwnedClock()) as world:
        world.telegram.says("my name is Ann")
        await world.until(lambda: len(world.telegram.posts) == 1)
        world.telegram.says("who am I?")
        await world.until(lambda: len(world.telegram.posts) == 2)
        assert [entry.text for entry in agent.turns[1].history] == ["my name is Ann", "noted"]


async def test_opening_the_chat_is_answered_with_the_list_of_commands(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo()) as world:
        world.telegram.says("/start")
        await world.telegram.until(lambda telegram: telegram.posts)
        assert "/stop" in world.telegram.posts[0]


async def test_a_topic_of_a_private_chat_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    agent = Scripted("here")
    async with TelegramWorld(tmp_path, agent, clock=OwnedClock()) as world:
        topic = world.telegram.open_topic(7, "Teas")
        world.telegram.says("in the topic", thread=topic)
        await world.until(lambda: world.telegram.posts_in(7, topic) == ["here"])
        world.telegram.says("outside")
        await world.until(lambda: world.telegram.posts_in(7, "") == ["here"])
        assert [turn.history for turn in agent.turns] == [(), ()]


# What was said while nobody was there.


@both_ways
async def test_what_was_said_while_it_was_down_is_answered_once_and_in_order(tmp_path: Path, webhook: bool) -> None:
    """A15."""
    echo = Echo()
    texts = ["one", "two", "three", "four", "five", "six"]
    async with TelegramWorld(tmp_path, echo, webhook=webhook, clock=OwnedClock()) as world:
        await world.end()
        for text in texts:
            world.telegram.says(text)
        await world.start()
        await world.until(lambda: len(world.telegram.posts) >= 6)
        await world.restart()
        await world.until(lambda: not world.telegram.unconfirmed)
        assert echo.heard == texts
        assert world.telegram.posts == said(*texts)


async def test_the_first_start_of_all_answers_what_waits_already(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path / "another", Echo()) as elsewhere:
        await elsewhere.end()
        elsewhere.telegram.says("anybody?")
        elsewhere.home = tmp_path
        await elsewhere.start()
        await elsewhere.telegram.until(lambda telegram: telegram.posts == said("anybody?"))


async def test_a_message_that_comes_while_a_cut_off_answer_begins_anew_waits_its_turn(tmp_path: Path) -> None:
    """A17."""
    gate = Gate()
    echo = Echo({"one": gate})
    async with TelegramWorld(tmp_path, echo, clock=OwnedClock()) as world:
        first = world.telegram.says("one")
        await gate.reached()
        await confirmed(world, first)
        await world.crash()
        second = world.telegram.says("two")
        again = echo.gates["one"] = Gate()
        await world.start()
        await again.reached()
        await confirmed(world, second)
        assert [row["state"] for row in world.runs()] == ["running", "waiting"]
        again.open()
        await world.until(lambda: len(world.telegram.posts) >= 2)
        await world.settled()
        assert echo.heard == ["one", "one", "two"]
        assert world.telegram.posts == said("one", "two")


# Stored before it is confirmed.


async def test_nothing_is_confirmed_before_it_is_committed(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo()) as world:
        with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            names = [world.telegram.says(text, chat=7) for text in ("one", "two")]
            polls = len(world.telegram.calls("getUpdates"))
            # It looks again meanwhile, for others may have been stored, and confirms none.
            await world.telegram.until(lambda telegram: len(telegram.calls("getUpdates")) >= polls + 2)
            assert world.telegram.confirmed == []
            assert world.telegram.unconfirmed == names
            other.execute("COMMIT")
        await confirmed(world, *names)
        assert [row["key"] for row in world.runs()] == names


async def test_the_offset_moves_only_over_what_is_committed(tmp_path: Path) -> None:
    """The store fails for the second of three: the first is confirmed, and no more until the second is stored."""
    people = (7, 8, 9)
    allow = [f"telegram:{person}" for person in people]
    async with TelegramWorld(tmp_path, Echo(), allow=allow, grouped=False) as world:
        telegram = world.telegram
        # The first commit notes that we listen, the next three are the messages.
        with armed("store.pre_commit:3:enospc"):
            names = [telegram.says(f"from {person}", chat=person) for person in people]
            await confirmed(world, *names)
        ids = [update.id for update in telegram.chats.bot("main").queue.told]
        offsets = [int(call.params["offset"]) for call in telegram.calls("getUpdates") if "offset" in call.params]
        assert sorted(set(offsets)) == [ids[1], ids[2] + 1]
        assert telegram.confirmed == names
        await telegram.until(lambda telegram: len(telegram.posts) == 3)
        assert [telegram.posts_in(person) for person in people] == [said(f"from {person}") for person in people]


async def test_a_webhook_that_cannot_store_says_so_and_is_told_again(tmp_path: Path) -> None:
    echo = Echo()
    async with TelegramWorld(tmp_path, echo, webhook=True) as world:
        with armed(",".join(f"store.pre_commit:{hit}:enospc" for hit in range(1, 4))):
            name = world.telegram.says("hi")
            await confirmed(world, name)
        *failed, last = [status for _, status in world.telegram.webhook_attempts]
        assert (set(failed), last) == ({503}, 200)
        await world.telegram.until(lambda telegram: telegram.posts == said("hi"))
        assert echo.heard == ["hi"]


async def test_a_webhook_is_answered_only_when_the_message_is_committed(tmp_path: Path) -> None:
    """A16."""
    async with TelegramWorld(tmp_path, Echo(), webhook=True) as world:
        with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            name = world.telegram.says("hi")
            posted = asyncio.create_task(knock(world, {"update_id": 1}))
            # An update that is nobody's message is confirmed without the store, so the listener is awake.
            assert (await posted)[0] == 200
            assert (world.telegram.webhook_attempts, world.telegram.confirmed) == ([], [])
            other.execute("COMMIT")
        await confirmed(world, name)
        assert world.run(name)["state"] in ("running", "done")


# Real processes that die.


async def die(running: subprocess.Popen[bytes]) -> None:
    assert await asyncio.to_thread(running.wait, PATIENCE_SECONDS) == -signal.SIGKILL


@both_ways
async def test_killed_between_storing_and_confirming_it_answers_once(tmp_path: Path, webhook: bool) -> None:
    """A16. The platform tells it again, and it is known."""
    async with TelegramServer(webhook_pause=0.0) as telegram:
        port = free_port() if webhook else 0
        async with process(tmp_path, telegram, webhook_port=port, TIDINGS_FAILPOINT="in.pre_ack:1") as running:
            name = telegram.says("hi")
            await die(running)
        assert (telegram.confirmed, telegram.unconfirmed, telegram.posts) == ([], [name], [])
        async with process(tmp_path, telegram, webhook_port=port):
            telegram.says("bye")
            await telegram.until(lambda telegram: len(telegram.posts) >= 2)
            assert telegram.posts == said("hi", "bye")
            assert name in telegram.confirmed


@both_ways
async def test_killed_between_confirming_and_answering_it_answers_once(tmp_path: Path, webhook: bool) -> None:
    """A16, A17. The platform has forgotten it, and another message comes before the process is back."""
    words = " ".join(f"word{number}" for number in range(20))
    async with TelegramServer(webhook_pause=0.0, drafts=False) as telegram:
        port = free_port() if webhook else 0
        async with process(tmp_path, telegram, webhook_port=port, TIDINGS_BOT__AGENT="demo") as running:
            name = telegram.says(words)
            await telegram.until(lambda telegram: name in telegram.confirmed)
            running.kill()
            await die(running)
        assert f"You said: {words}" not in telegram.posts
        telegram.says("and this?")
        async with process(tmp_path, telegram, webhook_port=port, TIDINGS_BOT__AGENT="demo"):
            await telegram.until(lambda telegram: "You said: and this?" in telegram.posts)
            assert telegram.posts == [f"You said: {words}", "You said: and this?"]


# Who may knock at the webhook.


async def knock(world: TelegramWorld, update: Any, secret: str = SECRET) -> tuple[int, bytes]:
    body = msgspec.json.encode(update)
    return await knock_raw(world, f"{HEADER}: {secret}\r\nContent-Length: {len(body)}".encode(), body)


async def knock_raw(world: TelegramWorld, headers: bytes, body: bytes = b"") -> tuple[int, bytes]:
    host, port = world.webhook.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    path = world.address().removeprefix(world.webhook).encode()
    writer.write(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n\r\n" + body)
    try:
        async with asyncio.timeout(5):
            line = await reader.readline()
            return int(line.split()[1]), line + await reader.read(500)
    finally:
        writer.close()


def message(number: int, text: Any = "hi", **more: Any) -> dict[str, Any]:
    return {"message_id": number, "date": 1, "chat": CHAT, "from": PERSON, "text": text, **more}


@pytest.mark.parametrize(
    "header",
    [
        b"X-Nothing: here",
        f"{HEADER}: another-secret-of-some-length".encode(),
        f"{HEADER}: {SECRET[:-1]}".encode(),
        f"{HEADER}:".encode(),
        f"{HEADER}: ".encode() + b"\xff\xfe\xc3",
    ],
    ids=["none", "wrong", "short", "empty", "no text"],
)
async def test_whoever_does_not_know_the_secret_is_turned_away_unread(tmp_path: Path, header: bytes) -> None:
    """The body never comes, and the answer does."""
    async with TelegramWorld(tmp_path, Echo(), webhook=True) as world:
        status, _ = await knock_raw(world, header + b"\r\nContent-Length: 100000")
        assert status == 403
        whole = msgspec.json.encode({"update_id": 1, "message": message(1)})
        status, _ = await knock_raw(world, header + f"\r\nContent-Length: {len(whole)}".encode(), whole)
        assert status == 403
        assert world.rows("SELECT * FROM inbox") == []
        world.telegram.says("I know it")
        await world.telegram.until(lambda telegram: telegram.posts == said("I know it"))


async def test_the_webhook_takes_no_more_than_it_should(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), webhook=True) as world:
        known = f"{HEADER}: {SECRET}\r\nContent-Length: ".encode()
        assert (await knock_raw(world, known + b"100000000"))[0] == 413
        assert (await knock_raw(world, known + b"5", b"hello"))[0] == 400
        assert (await knock_raw(world, known + b"2", b"[]"))[0] == 400
        assert (await knock(world, {"update_id": 9, "message": message(9)}))[0] == 200
        await world.telegram.until(lambda telegram: telegram.posts == said("hi"))


# Odd updates.

ODD: dict[str, dict[str, Any]] = {
    "nothing": {},
    "unheard of": {"telepathy": {"text": "hi"}},
    "no object": {"message": "hi"},
    "none": {"message": None},
    "a list": {"message": [1, 2]},
    "empty": {"message": {}},
    "no sender": {"message": {key: value for key, value in message(1).items() if key != "from"}},
    "no chat": {"message": {key: value for key, value in message(1).items() if key != "chat"}},
    "a chat of no kind": {"message": message(1, chat={"id": 7})},
    "a number for a text": {"message": message(1, text=5)},
    "a list for a text": {"message": message(1, text=["hi"])},
    "entities from nowhere": {"message": message(1, entities=5)},
    "an entity of no kind": {"message": message(1, entities=[{"offset": 0}])},
    "an entity out of bounds": {
        "message": message(1, "hi", entities=[{"type": "mention", "offset": -9, "length": 99}])
    },
    "an empty photo": {"message": message(1, text="", photo=[])},
    "a file without an id": {"message": message(1, document={"file_name": "x"})},
    "a file with a strange size": {"message": message(1, document={"file_id": "x", "file_size": "big"})},
    "a file with a strange name": {"message": message(1, document={"file_id": "x", "file_name": {"a": 1}})},
    "an album with a strange name": {"message": message(1, document={"file_id": "x"}, media_group_id={"a": 1})},
    "a person with a strange name": {"message": message(1) | {"from": {"id": 7, "first_name": ["Ann"]}}},
    "a reply to nobody": {"message": message(1, reply_to_message={"message_id": 3})},
    "a quotation of nothing": {"message": message(1, reply_to_message=message(3), quote=7)},
    "a press on nothing": {"callback_query": {"id": "1", "from": PERSON, "data": "x"}},
    "a press by nobody": {"callback_query": {"id": "1", "message": message(3), "data": "x"}},
    "a press of no words": {"callback_query": {"id": "1", "from": PERSON, "message": message(3), "data": 5}},
    "an edit of nothing": {"edited_message": {"text": "hi"}},
    "a move from nowhere": {"message": {"migrate_to_chat_id": -100, "chat": None}},
    "zero": {"message": message(1, "a\0b")},
}


@both_ways
async def test_no_odd_update_blocks_the_ones_behind_it(tmp_path: Path, webhook: bool) -> None:
    async with TelegramWorld(tmp_path, Echo(), webhook=webhook, clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.says("before", chat=7)
        odd = {kind: telegram.odd(update) for kind, update in ODD.items()}
        telegram.says("behind", chat=7)
        await world.until(lambda: said("behind")[0] in telegram.posts)
        await confirmed(world, *odd.values())
        await world.settled()
        assert (await world.listener()).restarts == 0
        # And after a restart nothing of it is in the way either.
        await world.restart()
        telegram.says("later", chat=7)
        await world.until(lambda: said("later")[0] in telegram.posts)


HALF = {"update_id": 1, "message": message(1, "half: \ud83d")}


async def test_half_a_character_does_not_cost_the_whole_batch(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        telegram = world.telegram
        batch = {"ok": True, "result": [HALF, {"update_id": 2, "message": message(2, "behind")}]}
        telegram.fail_next(200, method="getUpdates", body=json.dumps(batch).encode())
        telegram.chats.bot("main").queue.wake()
        await world.until(lambda: telegram.posts == said("half: \ufffd", "behind"))


async def test_half_a_character_comes_through_the_webhook(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), webhook=True) as world:
        body = json.dumps(HALF).encode()
        status, _ = await knock_raw(world, f"{HEADER}: {SECRET}\r\nContent-Length: {len(body)}".encode(), body)
        assert status == 200
        await world.telegram.until(lambda telegram: telegram.posts == said("half: \ufffd"))


# Told twice.


@both_ways
async def test_a_message_told_twice_is_answered_once(tmp_path: Path, webhook: bool) -> None:
    """The name is that of the message: the second update has another id."""
    echo = Echo()
    async with TelegramWorld(tmp_path, echo, webhook=webhook, clock=OwnedClock()) as world:
        name = world.telegram.says("one")
        world.telegram.redeliver(name)
        await world.until(lambda: world.telegram.posts == said("one"))
        await world.restart()
        world.telegram.redeliver(name)
        world.telegram.says("one")
        await world.until(lambda: len(world.telegram.posts) >= 2)
        assert echo.heard == ["one", "one"]
        assert len(world.runs()) == 2


async def test_messages_with_the_same_number_in_two_chats_are_two(tmp_path: Path) -> None:
    echo = Echo()
    async with TelegramWorld(tmp_path, echo, settings={"groups": "all"}, server={"reads_all": True}) as world:
        names = [world.telegram.says(f"in {chat}", chat=chat, user=7) for chat in (-5, -6)]
        await world.telegram.until(lambda telegram: len(telegram.posts) == 2)
        assert [name.partition(":")[2] for name in names] == ["1", "1"]
        assert sorted(echo.heard) == ["in -5", "in -6"]


async def test_ids_that_begin_anew_lower_down_are_heard(tmp_path: Path) -> None:
    """After a quiet week Telegram chooses update ids at random, and they may be lower than the last."""
    echo = Echo()
    async with TelegramWorld(tmp_path, echo, clock=OwnedClock()) as world:
        telegram = world.telegram
        name = telegram.says("before")
        await world.until(lambda: telegram.posts == said("before"))
        await confirmed(world, name)
        await telegram.until(lambda telegram: telegram.attached())
        last = telegram.chats.bot("main").queue.next_id
        # A poll ends with nothing, and before the next one comes somebody speaks, under a lower id.
        gate, polls = telegram.hold_next("getUpdates"), len(telegram.calls("getUpdates"))
        telegram.chats.bot("main").queue.wake()
        await telegram.until(lambda telegram: len(telegram.calls("getUpdates")) > polls)
        telegram.jump_ids(last - 5)
        names = [telegram.says(text) for text in ("a week later", "and then")]
        gate.set()
        await world.until(lambda: telegram.posts == said("before", "a week later", "and then"))
        await confirmed(world, *names)
        # Also across a restart, which remembers no id.
        await world.stop()
        telegram.jump_ids(10)
        telegram.says("lower still")
        await world.start()
        await world.until(lambda: telegram.posts[3:] == said("lower still"))
        assert echo.heard == ["before", "a week later", "and then", "lower still"]


# Corrections.


async def test_an_edit_corrects_what_still_waits(tmp_path: Path) -> None:
    gate = Gate()
    echo = Echo({"one": gate})
    async with TelegramWorld(tmp_path, echo, clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.says("one")
        await gate.reached()
        waiting = telegram.says("tow")
        telegram.edits(waiting, "tw")
        telegram.edits(waiting, "two")
        await confirmed(world, waiting)
        await telegram.until(lambda telegram: not telegram.unconfirmed)
        gate.open()
        await world.until(lambda: len(telegram.posts) == 2)
        assert telegram.posts == said("one", "two")


async def test_an_edit_that_is_told_twice_is_known_by_its_update(tmp_path: Path) -> None:
    """Told again after a newer one, it must not bring the old words back."""
    gate = Gate()
    async with TelegramWorld(tmp_path, Echo({"one": gate}), webhook=True, clock=OwnedClock()) as world:
        updates = [
            {"update_id": 1, "message": message(1, "one")},
            {"update_id": 2, "message": message(2, "tow")},
            {"update_id": 3, "edited_message": message(2, "tw")},
            {"update_id": 4, "edited_message": message(2, "two")},
        ]
        for update in (*updates, updates[2]):
            assert (await knock(world, update))[0] == 200
        gate.open()
        await world.until(lambda: world.telegram.posts == said("one", "two"))


async def test_an_edit_of_what_was_answered_is_not_another_question(tmp_path: Path) -> None:
    echo = Echo()
    async with TelegramWorld(tmp_path, echo, clock=OwnedClock()) as world:
        telegram = world.telegram
        name = telegram.says("one")
        await world.until(lambda: telegram.posts == said("one"))
        telegram.edits(name, "won")
        telegram.says("next")
        await world.until(lambda: len(telegram.posts) >= 2)
        assert echo.heard == ["one", "next"]
        assert telegram.posts == said("one", "next")


# Files, albums and what is quoted.


async def test_photos_documents_and_voice_notes_come_in_and_can_be_fetched(tmp_path: Path) -> None:
    agent = Fetcher()
    async with TelegramWorld(tmp_path, agent, clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.says(photo=b"\xff\xd8 a photo", caption="look")
        telegram.says("read this", files=[("rapport é.pdf", b"%PDF" + bytes(range(256)))])
        telegram.says(voice=b"OggS a voice")
        await world.until(lambda: len(telegram.posts) == 3)
        assert [turn.message.text for turn in agent.turns] == ["look", "read this", ""]
        assert agent.fetched == [
            ("photo.jpg", b"\xff\xd8 a photo"),
            ("rapport é.pdf", b"%PDF" + bytes(range(256))),
            ("voice.ogg", b"OggS a voice"),
        ]
        told = [(file.media_type, file.size) for turn in agent.turns for file in turn.message.attachments]
        assert told == [("image/jpeg", 10), ("application/pdf", 260), ("audio/ogg", 12)]
        kept = tmp_path / "attachments" / "telegram@main"
        assert len(list(kept.iterdir())) == 3
        # What came along stays part of the talk.
        assert "(Attached: rapport é.pdf)" in agent.turns[2].history[2].text


async def test_of_a_photo_the_largest_size_is_fetched(tmp_path: Path) -> None:
    agent = Fetcher()
    async with TelegramWorld(tmp_path, agent) as world:
        shelf = world.telegram.shelf
        sizes = [shelf.put("photo.jpg", data, "photo").id for data in (b"small", b"middle", b"large")]
        photo = [{"file_id": size, "width": 90 * number} for number, size in enumerate(sizes, 1)]
        world.telegram.odd({"message": message(1, text="", photo=photo)})
        await world.telegram.until(lambda telegram: telegram.posts == ["I have 1"])
        assert agent.fetched == [("photo.jpg", b"large")]


async def test_a_file_that_cannot_be_fetched_is_named_with_the_reason(tmp_path: Path) -> None:
    """A35."""
    async with TelegramWorld(tmp_path, DemoAgent(), clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.fail_next(400, method="getFile", description="Bad Request: file is too big")
        telegram.says(files=[("big.iso", b"123")])
        await world.until(lambda: telegram.posts)
        assert telegram.posts == ["You sent me big.iso, but I could not fetch it: File is too big."]


async def test_the_name_of_a_file_leads_nowhere_else(tmp_path: Path) -> None:
    agent = Fetcher()
    async with TelegramWorld(tmp_path, agent) as world:
        handle = world.telegram.shelf.put("x", b"data", "document").id
        file = {"file_id": handle, "file_name": "../../../evil\0\n.txt", "file_size": 4}
        world.telegram.odd({"message": message(1, text="", document=file)})
        await world.telegram.until(lambda telegram: telegram.posts == ["I have 1"])
        (kept,) = (tmp_path / "attachments" / "telegram@main").iterdir()
        assert kept.read_bytes() == b"data"


async def test_an_album_is_one_message(tmp_path: Path) -> None:
    agent = Fetcher()
    async with TelegramWorld(tmp_path, agent, clock=OwnedClock()) as world:
        files = [(f"{number}.txt", str(number).encode()) for number in range(3)]
        world.telegram.says(files=files, caption="all of these")
        await world.until(lambda: world.telegram.posts == ["I have 3"])
        world.telegram.says("and now?")
        await world.until(lambda: len(world.telegram.posts) == 2)
        assert agent.fetched == files
        assert [turn.message.text for turn in agent.turns] == ["all of these", "and now?"]


async def test_an_album_stays_one_when_the_process_dies_between_its_members(tmp_path: Path) -> None:
    agent = Fetcher()
    async with TelegramWorld(tmp_path, agent, clock=OwnedClock()) as world:
        telegram = world.telegram
        first = telegram.says(files=[("1.txt", b"1")], album="holiday", caption="look")
        await confirmed(world, first)
        await world.crash()
        telegram.says(files=[("2.txt", b"2")], album="holiday")
        telegram.says(files=[("3.txt", b"3")], album="holiday")
        await world.start()
        await world.until(lambda: telegram.posts)
        await world.settled()
        assert telegram.posts == ["I have 3"]
        assert (agent.turns[0].message.text, len(agent.turns)) == ("look", 1)
        assert [data for _, data in agent.fetched] == [b"1", b"2", b"3"]


async def test_replies_and_quotations_are_context_that_says_so(tmp_path: Path) -> None:
    agent = Scripted("Earl Grey or Assam.")
    async with TelegramWorld(tmp_path, agent, clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.introduce(7, "Ann", "Lee")
        mine = telegram.says("which teas are there?")
        await world.until(lambda: len(telegram.posts) == 1)
        telegram.says("that one, please", reply_to=telegram.sent[0].id, quote="Assam")
        await world.until(lambda: len(telegram.posts) == 2)
        telegram.says("I meant this", reply_to=mine)
        await world.until(lambda: len(telegram.posts) == 3)
        quoted = [turn.message.quoted for turn in agent.turns]
        assert quoted == [
            None,
            Quoted(text="Assam", sender="main"),
            Quoted(text="which teas are there?", sender="Ann Lee"),
        ]
        assert [turn.message.text for turn in agent.turns][1:] == ["that one, please", "I meant this"]
        assert agent.turns[2].history[2].text == "(In reply to main: “Assam”)\nthat one, please"


async def test_a_reply_to_a_rich_answer_quotes_it(tmp_path: Path) -> None:
    table = "| tea | price |\n|---|---|\n| Assam | 3 |"
    agent = Scripted(table)
    async with TelegramWorld(tmp_path, agent, clock=OwnedClock()) as world:
        world.telegram.says("which teas are there?")
        await world.until(lambda: len(world.telegram.posts) == 1)
        assert world.telegram.sent[0].kind == "rich"
        world.telegram.says("the first, please", reply_to=world.telegram.sent[0].id)
        await world.until(lambda: len(world.telegram.posts) == 2)
        assert agent.turns[1].message.quoted == Quoted(text=table, sender="main")


async def test_words_quoted_from_elsewhere_come_along(tmp_path: Path) -> None:
    """What is answered stands in another chat, and only the chosen words of it are told."""
    agent = Scripted("indeed")
    async with TelegramWorld(tmp_path, agent) as world:
        origin = {"type": "hidden_user", "sender_user_name": "Bob", "date": 1}
        elsewhere = {"quote": {"text": "tea is dear", "position": 0}, "external_reply": {"origin": origin}}
        world.telegram.odd({"message": message(1, "is that so?", **elsewhere)})
        await world.telegram.until(lambda telegram: telegram.posts == ["indeed"])
        assert agent.turns[0].message.quoted == Quoted(text="tea is dear")


async def test_a_reply_to_a_picture_names_it(tmp_path: Path) -> None:
    agent = Scripted("nice")
    async with TelegramWorld(tmp_path, agent, clock=OwnedClock()) as world:
        picture = world.telegram.says(photo=b"jpeg")
        await world.until(lambda: len(world.telegram.posts) == 1)
        world.telegram.says("who is this?", reply_to=picture)
        await world.until(lambda: len(world.telegram.posts) == 2)
        assert agent.turns[1].message.quoted == Quoted(text="photo.jpg", sender="Person 7")


@pytest.mark.parametrize(
    ("sent", "heard"),
    [
        ({"location": {"latitude": 52.5, "longitude": 13.4}}, "(a location: 52.5, 13.4)"),
        ({"contact": {"first_name": "Bob", "phone_number": "+49"}}, "(a contact: Bob +49)"),
        ({"poll": {"question": "Tea?"}}, "(a poll: Tea?)"),
        ({"dice": {"emoji": "🎲", "value": 6}}, "(a 🎲: 6)"),
        ({"story": {"id": 1}}, "(story: I cannot read this)"),
    ],
)
async def test_what_is_neither_text_nor_file_is_said_in_words(tmp_path: Path, sent: dict[str, Any], heard: str) -> None:
    async with TelegramWorld(tmp_path, Echo()) as world:
        world.telegram.odd({"message": message(1, text="", **sent)})
        await world.telegram.until(lambda telegram: telegram.posts == said(heard))


async def test_what_merely_happened_in_a_chat_is_nobodys_message(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo()) as world:
        name = world.telegram.odd({"message": message(1, text="", pinned_message=message(2))})
        await confirmed(world, name)
        await world.settled()
        assert (world.runs(), world.telegram.posts) == ([], [])


# Strangers.


async def test_a_stranger_is_told_once_how_to_be_admitted(tmp_path: Path) -> None:
    """D7: with `strangers = "tell"`; tests/scenario/places shows the code."""
    clock, access = OwnedClock(), {"strangers": "tell"}
    async with TelegramWorld(tmp_path, Echo(), allow=["telegram:7654321"], access=access, clock=clock) as world:
        telegram = world.telegram
        telegram.says("hi", chat=8)
        await world.until(lambda: telegram.posts_in(8))
        names = [telegram.says(text, chat=8) for text in ("hello?", "/help", "/start")]
        await confirmed(world, *names)
        await clock.advance(3000)
        await world.settled()
        (told,) = telegram.posts_in(8)
        assert "tidings people admit telegram:8" in told
        assert "7654321" not in told
        assert world.rows("SELECT * FROM inbox") == []
        # Also not after a restart.
        await world.restart()
        await confirmed(world, telegram.says("still?", chat=8))
        await world.settled()
        assert len(telegram.posts_in(8)) == 1
        await world.admit("telegram:8")
        telegram.says("and now?", chat=8)
        await world.until(lambda: telegram.posts_in(8)[1:] == said("and now?"))


async def test_strangers_need_not_be_told(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), access={"strangers": "ignore"}) as world:
        await confirmed(world, world.telegram.says("hi", chat=8))
        world.telegram.says("hi")
        await world.telegram.until(lambda telegram: telegram.posts == said("hi"))
        await world.settled()
        assert world.telegram.posts_in(8) == []
        assert [call.chat for call in world.telegram.calls() if call.chat == "8"] == []


# Buttons.


def choices(world: TelegramWorld) -> dict[str, str]:
    """The buttons below the last message with any, by their words."""
    asking = [message for message in world.telegram.sent if message.choices][-1]
    return {button.label: button.id for button in asking.choices}


def question(world: TelegramWorld) -> str:
    return [message for message in world.telegram.sent if message.choices][-1].id


@both_ways
async def test_a_press_is_the_next_message_and_counts_once(tmp_path: Path, webhook: bool) -> None:
    async with TelegramWorld(tmp_path, DemoAgent(), webhook=webhook, clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.says("tea")
        await world.until(lambda: telegram.posts == ["How do you take your tea?"])
        buttons = choices(world)
        assert list(buttons) == ["With milk", "With lemon", "I prefer coffee"]
        pressed = telegram.presses(question(world), buttons["With lemon"])
        await world.until(lambda: telegram.posts[1:] == ["You said: With lemon"])
        await world.until(lambda: telegram.answered(pressed) is not None)
        assert telegram.answered(pressed) == ""
        # Whoever presses again is told that it was answered, here and after a restart.
        for button in ("With milk", "With lemon"):
            again = telegram.presses(question(world), buttons[button])
            await world.until(lambda: telegram.answered(again) is not None)  # noqa: B023
            assert telegram.answered(again) == "This was answered already."
            await world.restart()
        assert len(telegram.posts) == 2
        assert [row["text"] for row in world.rows("SELECT text FROM history ORDER BY seq")] == [
            "tea",
            "How do you take your tea?",
            "With lemon",
            "You said: With lemon",
        ]


async def test_a_press_after_a_restart_still_counts(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, DemoAgent(), clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.says("tea")
        await world.until(lambda: telegram.posts == ["How do you take your tea?"])
        await world.stop()
        pressed = telegram.presses(question(world), choices(world)["With milk"])
        await world.start()
        await world.until(lambda: telegram.posts[1:] == ["You said: With milk"])
        await world.until(lambda: telegram.answered(pressed) is not None)


async def test_a_press_that_is_told_twice_counts_once(tmp_path: Path) -> None:
    """Known by the question it answers; one that answers none by its update."""
    async with TelegramWorld(tmp_path, DemoAgent(), clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.says("tea")
        await world.until(lambda: telegram.posts == ["How do you take your tea?"])
        pressed = telegram.presses(question(world), choices(world)["With milk"])
        telegram.redeliver(pressed)
        await world.until(lambda: telegram.posts[1:] == ["You said: With milk"])
        await telegram.until(lambda telegram: not telegram.unconfirmed)
        await world.settled()
        assert len(world.runs()) == 2


async def test_a_press_on_something_unknown_gets_one_notice(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), clock=OwnedClock()) as world:
        telegram = world.telegram
        body = Body(text="Well?", choices=(Choice(id="of-somebody-else", label="Yes"),))
        await world.gateway.desk.owe(Target(adapter="telegram", chat="7"), body, "a test")
        await world.until(lambda: telegram.posts == ["Well?"])
        pressed = telegram.presses(question(world), "of-somebody-else")
        await world.until(lambda: telegram.posts[1:] == [QUESTION_CLOSED])
        await world.until(lambda: telegram.answered(pressed) is not None)
        await world.restart()
        telegram.says("hi")
        await world.until(lambda: telegram.posts[2:] == said("hi"))


async def test_a_press_on_something_unknown_is_known_by_its_update(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, Echo(), webhook=True, clock=OwnedClock()) as world:
        press = {"id": "1", "from": PERSON, "message": message(1), "data": "of-somebody-else"}
        for _ in range(2):
            assert (await knock(world, {"update_id": 5, "callback_query": press}))[0] == 200
        await world.until(lambda: world.telegram.posts)
        await world.settled()
        assert world.telegram.posts == [QUESTION_CLOSED]


async def test_a_stranger_may_not_answer_for_others(tmp_path: Path) -> None:
    async with TelegramWorld(tmp_path, DemoAgent(), clock=OwnedClock()) as world:
        telegram = world.telegram
        telegram.says("@tidings_bot tea", chat=-5)
        await world.until(lambda: telegram.posts == ["How do you take your tea?"])
        pressed = telegram.presses(question(world), choices(world)["With milk"], user=8)
        await world.until(lambda: telegram.answered(pressed) is not None)
        telegram.presses(question(world), choices(world)["With lemon"], user=7)
        await world.until(lambda: telegram.posts[1:] == ["You said: With lemon"])
