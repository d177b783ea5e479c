"""What the adapter says on Discord: once, in the right place, to the right people, and pinging nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace
from pydantic import SecretStr

from tests.simulators.discord.simulator import Channel, DiscordServer, Person
from tests.worlds.builders import part, untaken
from tests.worlds.fakes import FakeClock, host, settle
from tidings.adapters.discord.adapter import TOO_LATE, DiscordAdapter
from tidings.adapters.discord.address import TOKEN_SECONDS, Handle
from tidings.adapters.discord.compose import ANSWER_FILE
from tidings.adapters.discord.settings import DiscordAccount
from tidings.adapters.discord.signals import REACTION_PAUSE, SIGNAL_SECONDS
from tidings.core.adapter import Taken
from tidings.core.errors import Doubtful, RateLimited, Rejected, Unreachable, ViewLost
from tidings.core.types import (
    Absent,
    Attachment,
    Audience,
    Body,
    Choice,
    File,
    PartKind,
    Receipt,
    Signal,
    Target,
    Unreadable,
)

LONG = "many words " * 2000


class Stand(NamedTuple):
    discord: DiscordServer
    adapter: DiscordAdapter
    clock: FakeClock
    ada: Person
    room: Channel

    def at(self, channel: Channel, **fields: str) -> Target:
        audience = Audience.PRIVATE if channel.is_private else Audience.GROUP
        chat = channel.parent if channel.is_thread else channel.id
        thread = channel.id if channel.is_thread else ""
        return replace(Target(adapter="discord", chat=chat, thread=thread, audience=audience), **fields)

    async def commanded(self, *, ephemeral: bool = False, defers: bool = True) -> Target:
        """Ada has used a command in the room; the intake has told Discord that an answer will come."""
        await self._call("PUT", f"/applications/{self.discord.bot.id}/commands", [{"name": "x", "description": "x"}])
        asked = self.discord.interaction(self.ada.commands("x", self.room))
        if defers:
            await self.defers(asked.id, ephemeral=ephemeral)
        handle = Handle(application=self.discord.bot.id, token=asked.token, at=self.clock.wall(), ephemeral=ephemeral)
        audience = Audience.ONE if ephemeral else Audience.GROUP
        return replace(self.at(self.room), handle=handle.write(), audience=audience)

    async def defers(self, interaction: str, *, ephemeral: bool) -> None:
        answer = {"type": 5, "data": {"flags": 64 if ephemeral else 0}}
        token = self.discord.interaction(interaction).token
        await self._call("POST", f"/interactions/{interaction}/{token}/callback", answer)

    async def _call(self, method: str, path: str, said: object) -> None:
        await self.adapter._client.call(method, path, said)


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    clock = FakeClock()
    async with DiscordServer(clock=clock) as discord:
        settings = DiscordAccount(token=SecretStr(discord.token), api_url=discord.api_url)
        adapter = DiscordAdapter("main", settings, host(clock, attachments=tmp_path / "in"))
        yield Stand(discord, adapter, clock, discord.person("ada"), discord.channel("room"))
        await adapter.close()


# Messages.


async def test_nobody_is_ever_pinged(stand: Stand) -> None:
    asked = stand.ada.says(stand.room, "ping me")
    text = f"@everyone @here {stand.ada.mention} <@&{stand.room.guild}>"
    target = stand.at(stand.room, reply_to=asked)
    await stand.adapter.send(part(text, to=target))
    opened = await stand.adapter.send(part("…", to=target, kind=PartKind.OPENING))
    assert opened.view
    await stand.adapter.show(opened.view, text)
    await stand.adapter.send(part(text, to=target, view=opened.view))
    answered = await stand.commanded()
    for number in (1, 2):
        await stand.adapter.send(part(text, to=answered, position=number, count=2))
    assert stand.discord.posts == [text] * 4
    assert stand.discord.pings == []


async def test_a_repeated_key_is_the_first_message_in_another_process_too(stand: Stand) -> None:
    said = part("hi", to=stand.at(stand.room))
    stand.discord.drop_next(after_effect=True)
    with pytest.raises(Doubtful):
        await stand.adapter.send(said)
    (posted,) = stand.discord.sent
    assert (await stand.adapter.send(said)).ids == (posted.id,)
    other = await stand.adapter.send(replace(said, body=Body(text="ho")))
    assert other.ids != (posted.id,)
    assert stand.discord.posts == ["hi", "ho"]


async def test_in_a_channel_the_first_part_stands_below_what_it_answers(stand: Stand) -> None:
    asked = stand.ada.says(stand.room, "question")
    target = stand.at(stand.room, reply_to=asked)
    for number in (1, 2):
        await stand.adapter.send(part(f"part {number}", to=target, position=number, count=2))
    private = stand.ada.private()
    await stand.adapter.send(part("hi", to=stand.at(private, reply_to=stand.ada.says(private, "hello"))))
    assert [message.reply_to for message in stand.discord.sent] == [asked, "", ""]


async def test_a_question_that_is_gone_or_cannot_be_quoted_costs_no_answer(stand: Stand) -> None:
    asked = stand.ada.says(stand.room, "question")
    stand.ada.deletes(asked)
    await stand.adapter.send(part("one", to=stand.at(stand.room, reply_to=asked)))
    asked = stand.ada.says(stand.room, "another")
    stand.discord.forbid(stand.room, "read_message_history")
    await stand.adapter.send(part("two", to=stand.at(stand.room, reply_to=asked)))
    assert [(message.text, message.reply_to) for message in stand.discord.sent] == [("one", ""), ("two", "")]


async def test_buttons_stand_in_rows_of_five(stand: Stand) -> None:
    choices = tuple(Choice(id=f"c{number}", label="x" * (100 if number else 0)) for number in range(7))
    await stand.adapter.send(part(to=stand.at(stand.room), what=Body(text="Which?", choices=choices)))
    (sent,) = stand.discord.sent
    assert [button.id for button in sent.choices] == [choice.id for choice in choices]
    assert [len(row["components"]) for row in sent.components] == [5, 2]


async def test_a_text_past_five_messages_is_a_file_and_so_it_is_where_a_view_ends(stand: Stand) -> None:
    target = stand.at(stand.room)
    (body,) = stand.adapter.compose(target, Body(text=LONG))
    await stand.adapter.send(part(to=target, what=body))
    opened = await stand.adapter.send(part("…", to=target, kind=PartKind.OPENING))
    final = part(to=target, what=body, view=opened.view)
    assert await stand.adapter.send(final) == await stand.adapter.send(final)
    assert len(stand.discord.sent) == 2
    for sent in stand.discord.sent:
        assert sent.text.startswith("many words")
        assert [(file.name, file.data.decode()) for file in sent.files] == [(ANSWER_FILE, LONG)]


async def test_a_file_that_is_too_big_is_refused_with_the_reason(stand: Stand, tmp_path: Path) -> None:
    (tmp_path / "big.bin").write_bytes(b"x" * (10 * 1024 * 1024 + 1))
    body = Body(text="Here.", files=(File(path=str(tmp_path / "big.bin"), name="big.bin"),))
    text, file = stand.adapter.compose(stand.at(stand.room), body)
    assert (text, file) == (Body(text="Here."), Body(files=body.files))
    with pytest.raises(Rejected, match="10 MB"):
        await stand.adapter.send(part(to=stand.at(stand.room), what=file))
    assert stand.discord.calls("send") == ()


async def test_one_slow_channel_does_not_delay_another(stand: Stand) -> None:
    gate = stand.discord.hold_next("send", channel=stand.room)
    slow = asyncio.create_task(stand.adapter.send(part("slow", to=stand.at(stand.room))))
    await stand.discord.until(lambda discord: discord.calls("send"))
    await stand.adapter.send(part("quick", to=stand.at(stand.discord.channel("other"))))
    assert stand.discord.posts == ["quick"]
    gate.set()
    await slow


# Threads.


async def test_a_thread_opens_when_something_is_first_said_in_it(stand: Stand) -> None:
    asked = stand.ada.says(stand.room, "how do I bake bread?", mention=True)
    target = replace(stand.at(stand.room), thread=asked, reply_to=asked, handle=Handle(opens=True).write())
    await stand.adapter.signal(target, Signal.TYPING)
    assert stand.discord.typing_times(stand.room)
    await stand.adapter.send(part("with flour", to=target))
    await stand.adapter.send(part("and water", to=target))
    assert stand.discord.posts_in(asked) == ["with flour", "and water"]
    assert stand.discord.posts_in(stand.room) == []
    assert stand.discord.places.channels[asked].name == "how do I bake bread?"
    assert len(stand.discord.calls("thread_from")) == 1


async def test_a_thread_that_is_there_already_is_as_good(stand: Stand) -> None:
    asked = stand.ada.says(stand.room, "hello", mention=True)
    target = replace(stand.at(stand.room), thread=asked, handle=Handle(opens=True).write())
    stand.discord.drop_next(after_effect=True, method="thread_from")
    said = part("hi", to=target)
    with pytest.raises(Unreachable):
        await stand.adapter.send(said)
    await stand.adapter.send(said)
    assert stand.discord.posts_in(asked) == ["hi"]


async def test_what_cannot_be_said_in_a_thread_is_said_nowhere_else(stand: Stand) -> None:
    asked = stand.ada.says(stand.room, "hello", mention=True)
    thread = stand.ada.opens_thread(asked)
    gone = stand.at(thread)
    stand.discord.remove_channel(thread)
    with pytest.raises(Rejected, match="gone"):
        await stand.adapter.send(part("hi", to=gone))
    locked = stand.ada.opens_thread(stand.room)
    stand.discord.archive(locked, locked=True)
    with pytest.raises(Rejected):
        await stand.adapter.send(part("hi", to=stand.at(locked)))
    assert stand.discord.posts == []


async def test_a_view_in_a_thread_that_was_archived_is_said_anew(stand: Stand) -> None:
    thread = stand.ada.opens_thread(stand.room)
    opened = await stand.adapter.send(part("…", to=stand.at(thread), kind=PartKind.OPENING))
    stand.discord.archive(thread)
    with pytest.raises(ViewLost):
        await stand.adapter.send(part("done", to=stand.at(thread), view=opened.view))
    await stand.adapter.send(part("done", to=stand.at(thread)))
    assert stand.discord.posts_in(thread) == ["…", "done"]


# Views.


async def test_a_limit_on_edits_closes_only_what_is_shown(stand: Stand) -> None:
    target = stand.at(stand.room)
    opened = await stand.adapter.send(part("…", to=target, kind=PartKind.OPENING))
    assert opened.view
    stand.discord.fail_next(429, retry_after=3.0, method="edit")
    with pytest.raises(RateLimited) as limited:
        await stand.adapter.show(opened.view, "so far")
    assert limited.value.budget == stand.adapter.can(target).show_pace[0].key
    stand.discord.fail_next(429, retry_after=3.0, method="typing")
    with pytest.raises(RateLimited) as limited:
        await stand.adapter.signal(target, Signal.TYPING)
    assert limited.value.budget == stand.adapter.can(target).signal_pace[0].key


async def test_what_grows_past_a_message_shows_its_end(stand: Stand) -> None:
    opened = await stand.adapter.send(part("…", to=stand.at(stand.room), kind=PartKind.OPENING))
    assert opened.view
    await stand.adapter.show(opened.view, LONG + "the end")
    assert stand.discord.posts[0].endswith("the end")
    assert len(stand.discord.sent) == 1


# Reading back.


def only_taken(*ids: str) -> Taken:
    async def is_taken(id: str) -> bool:
        return id in ids

    return is_taken


@pytest.mark.parametrize("age", [0.0, 1800.0])
async def test_where_discord_does_not_tell_the_time_its_newest_message_does(stand: Stand, age: float) -> None:
    stand.discord.hide_date()
    stand.discord.skew = 7200.0
    said = part("hi", to=stand.at(stand.room))
    stand.discord.drop_next(True, method="send")
    with pytest.raises(Doubtful):
        await stand.adapter.send(said)
    (sent,) = stand.discord.sent
    await stand.clock.advance(age)
    for number in range(150):
        stand.ada.says(stand.room, f"chatter {number}")
    found = await stand.adapter.find(replace(said, age=age), untaken)
    assert isinstance(found, Receipt)
    assert found.ids == (sent.id,)
    assert await stand.adapter.find(replace(said, age=age), only_taken(sent.id)) == Absent()


async def test_an_empty_channel_proves_absence_where_it_may_be_read(stand: Stand) -> None:
    stand.discord.hide_date()
    private = stand.at(stand.ada.private())
    assert await stand.adapter.find(part("hi", to=private), untaken) == Absent()
    room = stand.at(stand.discord.channel("empty"))
    assert isinstance(await stand.adapter.find(part("hi", to=room), untaken), Unreadable)


async def test_a_doubt_is_settled_by_the_channels_history(stand: Stand) -> None:
    early = part("same", to=stand.at(stand.room))
    await stand.adapter.send(early)
    for number in range(130):
        stand.ada.says(stand.room, f"chatter {number}")
    late = part("same", to=stand.at(stand.room))
    assert await stand.adapter.find(late, untaken) == Absent(), "the same words of another delivery are not this one"
    stand.discord.fail_next(502, after_effect=True)
    with pytest.raises(Doubtful):
        await stand.adapter.send(late)
    found = await stand.adapter.find(late, untaken)
    assert isinstance(found, Receipt)
    assert found.ids == (stand.discord.sent[1].id,)
    assert len(stand.discord.calls("history")) == 4


async def test_an_empty_history_proves_nothing_where_it_may_not_be_read(stand: Stand) -> None:
    said = part("hi", to=stand.at(stand.room))
    await stand.adapter.send(said)
    stand.discord.forbid(stand.room, "read_message_history")
    assert isinstance(await stand.adapter.find(said, untaken), Unreadable)
    stand.discord.forbid(stand.room, "view_channel")
    assert isinstance(await stand.adapter.find(said, untaken), Unreadable)
    private = part("hi", to=stand.at(stand.ada.private()))
    assert await stand.adapter.find(private, untaken) == Absent()


async def test_too_much_to_read_is_no_proof(stand: Stand) -> None:
    said = part("hi", to=stand.at(stand.room))
    for number in range(1001):
        stand.ada.says(stand.room, f"chatter {number}")
    assert isinstance(await stand.adapter.find(said, untaken), Unreadable)


async def test_a_reading_that_fails_is_asked_again_and_decides_nothing(stand: Stand) -> None:
    said = part("hi", to=stand.at(stand.room))
    stand.discord.fail_next(503, method="history")
    with pytest.raises(Unreachable):
        await stand.adapter.find(said, untaken)


async def test_a_file_in_doubt_is_found_by_its_name(stand: Stand, tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_bytes(b"abc")
    body = Body(files=(File(path=str(tmp_path / "a b.txt"), name="a b.txt"),))
    said = part(to=stand.at(stand.room), what=body)
    assert await stand.adapter.send(said) == await stand.adapter.find(said, untaken)


# Answers to commands.


async def test_a_command_is_answered_where_it_was_thinking(stand: Stand) -> None:
    target = await stand.commanded()
    said = part("one", to=target)
    assert await stand.adapter.find(said, untaken) == Absent()
    receipt = await stand.adapter.send(said)
    assert await stand.adapter.find(said, untaken) == receipt
    (sent,) = stand.discord.visible(stand.room)
    assert (sent.text, sent.is_thinking) == ("one", False)
    assert receipt.ids == (sent.id,)


async def test_an_answer_that_is_ready_too_soon_waits_for_its_place(stand: Stand) -> None:
    """A quick answer overtakes the call that says that there will be one."""
    target = await stand.commanded(ephemeral=True, defers=False)
    (asked,) = stand.discord.truth.interactions.values()
    with stand.adapter._deferrals.under_way(asked.token):
        sending = asyncio.create_task(stand.adapter.send(part("secret", to=target)))
        await settle()
        await stand.defers(asked.id, ephemeral=True)
    await sending
    (sent,) = stand.discord.sent
    assert (sent.text, sent.only_for) == ("secret", stand.ada.id)


async def test_a_second_answer_to_a_command_does_not_overwrite_the_first(stand: Stand) -> None:
    target = await stand.commanded()
    second = part("second", to=target)
    await stand.adapter.send(part("first", to=target))
    stand.discord.drop_next(after_effect=True, method="follow_up")
    with pytest.raises(Doubtful):
        await stand.adapter.send(second)
    found = await stand.adapter.find(second, untaken)
    assert isinstance(found, Receipt)
    assert found.ids == (stand.discord.sent[1].id,)
    assert stand.discord.posts == ["first", "second"]


async def test_an_equal_answer_to_the_same_command_is_not_taken_for_another(stand: Stand) -> None:
    target = await stand.commanded()
    first = await stand.adapter.send(part("same", to=target))
    assert await stand.adapter.find(part("same", to=target), only_taken(*first.ids)) == Absent()


async def test_the_answer_to_a_command_grows_and_ends_after_its_token_has(stand: Stand) -> None:
    target = await stand.commanded()
    opening = part("…", to=target, kind=PartKind.OPENING)
    opened = await stand.adapter.send(opening)
    assert await stand.adapter.find(opening, untaken) == opened
    assert opened.view
    await stand.adapter.show(opened.view, "so far")
    assert stand.discord.posts == ["so far"]
    await stand.clock.advance(TOKEN_SECONDS + 120)
    final = part("done", to=target, view=opened.view)
    await stand.adapter.send(final)
    assert isinstance(await stand.adapter.find(final, untaken), Receipt)
    assert stand.discord.posts == ["done"]


async def test_a_public_answer_that_comes_late_is_said_in_the_channel(stand: Stand) -> None:
    target = await stand.commanded()
    await stand.clock.advance(TOKEN_SECONDS + 1)
    said = part("late", to=target)
    receipt = await stand.adapter.send(said)
    assert await stand.adapter.find(said, untaken) == receipt
    never_deferred = await stand.commanded(defers=False)
    await stand.adapter.send(part("also here", to=never_deferred))
    assert stand.discord.posts_in(stand.room) == ["late", "also here"]


async def test_a_private_answer_is_never_seen_by_others(stand: Stand) -> None:
    target = await stand.commanded(ephemeral=True)
    view = (await stand.adapter.send(part("…", to=target, kind=PartKind.OPENING))).view
    assert view
    await stand.adapter.show(view, "secret")
    await stand.adapter.send(part("secret", to=target, view=view))
    follow_up = part("more", to=target, position=2, count=2)
    await stand.adapter.send(follow_up)
    assert isinstance(await stand.adapter.find(follow_up, untaken), Unreadable)
    (whole,) = stand.adapter.compose(target, Body(text=LONG))
    await stand.adapter.send(part(to=target, what=whole))
    for signal in Signal:
        await stand.adapter.signal(target, signal)
    assert [message.only_for for message in stand.discord.sent] == [stand.ada.id] * 3
    assert not stand.discord.is_typing(stand.room)


async def test_a_private_answer_that_comes_late_is_refused_with_the_reason(stand: Stand) -> None:
    target = await stand.commanded(ephemeral=True)
    view = (await stand.adapter.send(part("…", to=target, kind=PartKind.OPENING))).view
    assert view
    await stand.clock.advance(TOKEN_SECONDS + 1)
    for said in (part("secret", to=target), part("secret", to=target, view=view)):
        with pytest.raises(Rejected, match=TOO_LATE):
            await stand.adapter.send(said)
    with pytest.raises(ViewLost):
        await stand.adapter.show(view, "secret")
    never_deferred = await stand.commanded(ephemeral=True, defers=False)
    with pytest.raises(Rejected, match=TOO_LATE):
        await stand.adapter.send(part("secret", to=never_deferred))
    without = replace(stand.at(stand.room), audience=Audience.ONE)
    with pytest.raises(Rejected, match=TOO_LATE):
        await stand.adapter.send(part("secret", to=without))
    assert stand.discord.posts == ["…"]


# Signals and files.


async def test_reactions_show_how_it_stands_and_the_first_goes_when_the_last_comes(stand: Stand) -> None:
    asked = stand.ada.says(stand.room, "question")
    target = stand.at(stand.room, reply_to=asked)
    await stand.adapter.signal(target, Signal.SEEN)
    assert stand.discord.reactions == {asked: ["👀"]}
    await stand.adapter.signal(target, Signal.DONE)
    await stand.clock.advance_until(lambda: stand.discord.reactions == {asked: ["✅"]})


async def test_reactions_of_one_channel_keep_their_distance_and_those_of_another_do_not_wait(stand: Stand) -> None:
    stand.discord.limit_rates()
    places = [stand.room] * 4 + [stand.discord.channel("other")]
    targets = [stand.at(place, reply_to=stand.ada.says(place, "question")) for place in places]
    began = stand.clock.now()
    for target in targets:
        await stand.adapter.signal(target, Signal.SEEN)
    await stand.clock.advance_until(lambda: len(stand.discord.calls("react")) == len(targets))

    assert {call.verdict for call in stand.discord.calls("react")} == {"ok"}
    waited = {call.channel: round(call.now - began, 3) for call in stand.discord.calls("react")}
    assert waited == {stand.room.id: pytest.approx(0.9), places[-1].id: 0.0}


async def test_a_reaction_that_would_come_too_late_is_left_out(stand: Stand) -> None:
    targets = [stand.at(stand.room, reply_to=stand.ada.says(stand.room, "question")) for _ in range(20)]
    for target in targets:
        await stand.adapter.signal(target, Signal.SEEN)
    await stand.clock.advance_until(lambda: not stand.adapter._signals._later_calls)
    assert 9 < len(stand.discord.calls("react")) <= 1 + SIGNAL_SECONDS / REACTION_PAUSE


async def test_a_channel_that_allows_no_reactions_is_asked_once(stand: Stand) -> None:
    stand.discord.forbid(stand.room, "add_reactions")
    target = stand.at(stand.room, reply_to=stand.ada.says(stand.room, "question"))
    with pytest.raises(Rejected):
        await stand.adapter.signal(target, Signal.SEEN)
    await stand.adapter.signal(target, Signal.SEEN)
    assert len(stand.discord.calls("react")) == 1


async def test_the_first_message_of_a_thread_is_reacted_to_in_its_channel(stand: Stand) -> None:
    asked = stand.ada.says(stand.room, "question", mention=True)
    target = replace(stand.at(stand.room), thread=asked, reply_to=asked, handle=Handle(opens=True).write())
    await stand.adapter.signal(target, Signal.SEEN)
    assert stand.discord.reactions == {asked: ["👀"]}


async def test_a_file_whose_address_has_expired_is_fetched_by_a_new_one(stand: Stand) -> None:
    said = stand.ada.says(stand.room, files=[("notes.txt", b"abc")])
    file = stand.discord.message(said).files[0]
    attachment = Attachment(
        handle=f'{{"url": "{await url_of(stand, said)}", "channel": "{stand.room.id}",'
        f' "message": "{said}", "id": "{file.id}"}}',
        name="notes.txt",
    )
    path = await stand.adapter.fetch(attachment)
    assert path.read_bytes() == b"abc"
    stale = replace(attachment, handle=attachment.handle.replace("hm=", "hm=0"))
    assert (await stand.adapter.fetch(stale)).read_bytes() == b"abc"
    stand.ada.deletes(said)
    with pytest.raises(Rejected):
        await stand.adapter.fetch(stale)
    with pytest.raises(Rejected):
        await stand.adapter.fetch(Attachment(handle="nonsense"))


async def url_of(stand: Stand, message: str) -> str:
    found = await stand.adapter._client.call("GET", f"/channels/{stand.room.id}/messages/{message}")
    return str(found["attachments"][0]["url"])
