"""What people do on Telegram: they write, correct, press buttons, and move, block and kick."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from tests.simulators.telegram.calls import PRESS_SECONDS, Calls, Press
from tests.simulators.telegram.chats import PERSON, Bot, Chat, Chats, Id
from tests.simulators.telegram.files import Shelf
from tests.simulators.telegram.shapes import bot_of, chat_of, message_of, user_of
from tests.simulators.telegram.texts import find_entities, inside
from tests.simulators.telegram.truth import File, Message, Truth
from tidings.core.clock import Clock


class People:
    """The verbs of people; the server is one of these."""

    clock: Clock
    truth: Truth
    chats: Chats
    shelf: Shelf
    _calls: Calls

    def says(
        self,
        text: str = "",
        *,
        chat: Id = PERSON,
        user: Id | None = None,
        thread: Id = 0,
        reply_to: Id = "",
        quote: str = "",
        files: Iterable[tuple[str, bytes]] = (),
        photo: bytes | None = None,
        voice: bytes | None = None,
        album: str = "",
        caption: str = "",
        account: str = "main",
    ) -> str:
        """Returns "CHAT:MESSAGE_ID". Speaking in a chat or a topic makes it exist; several files are an album."""
        place = self.chats.open(account, chat)
        if place.moved_to:
            raise LookupError(f"chat {chat} has become {place.moved_to}")
        who = int(user) if user is not None else (place.id if place.kind == "private" else PERSON)
        if topic := int(thread or 0):
            self._need_topic(place, topic, who)
        media = [("document", name, data) for name, data in files]
        media += [("photo", "photo.jpg", photo)] if photo is not None else []
        media += [("voice", "voice.ogg", voice)] if voice is not None else []
        if len(media) > 1 and not album:
            album = f"album{len(self.truth.messages)}"
        replied = self._named(place, reply_to) if reply_to else None
        words = text or caption
        first = ""
        sent: list[tuple[str, tuple[File, ...]]] = [
            (kind, (self.shelf.put(name, data, kind),)) for kind, name, data in media
        ]
        for kind, kept in sent or [("text", ())]:
            message = self._write(
                place,
                str(who),
                words,
                thread=str(topic or (replied.thread if replied else "") or ""),
                kind=kind,
                files=kept,
                reply_to=replied.id if replied else "",
                quote=quote,
                album=album,
            )
            # The caption stands at the first.
            words = ""
            first = first or message.id
            self._announce("message", place, message)
        return first

    def edits(self, name: str, text: str, *, account: str = "main") -> str:
        place, message = self._find(name, account)
        message = self.chats.keep(
            place,
            replace(
                message,
                text=text,
                entities=find_entities(text),
                edited=message.edited + 1,
                edited_at=self.clock.wall(),
            ),
        )
        self._announce("edited_message", place, message)
        return name

    def presses(
        self,
        message: Id,
        choice: str,
        chat: Id = "",
        *,
        user: Id | None = None,
        account: str = "main",
        forged: bool = False,
    ) -> str:
        """Presses the button with this data; returns the id of the callback query.

        A client of one's own sends any data that one likes, also for buttons that are gone.
        """
        name = str(message) if ":" in str(message) else f"{chat or PERSON}:{message}"
        place, pressed = self._find(name, account)
        if not forged and choice not in {button.id for button in pressed.choices}:
            raise LookupError(f"message {name} has no button {choice!r}")
        who = int(user) if user is not None else (place.id if place.kind == "private" else PERSON)
        id = f"{4_000_000_000 + len(self._calls.presses)}"
        self._calls.presses[id] = Press(pressed.account, self.clock.now() + PRESS_SECONDS)
        query = {
            "id": id,
            "from": user_of(self.chats, who),
            "message": message_of(self.chats, place, pressed),
            "chat_instance": f"{abs(place.id) * 31}",
            "data": choice,
        }
        self.chats.bot(pressed.account).queue.put("callback_query", {"callback_query": query}, id, place.name)
        return id

    def stops(self, chat: Id = PERSON, thread: Id = "", *, draft: Id = "", account: str = "main") -> str:
        """Presses the button below the draft that is shown there, or one that was shown before; returns its id."""
        place = self.chats.get(account, chat)
        shown = self.truth.drafts.get((place.key, str(thread)))
        if not draft and (shown is None or not shown.can_stop or shown.until <= self.clock.now()):
            raise LookupError(f"no draft with a button to stop it is shown in {chat}")
        id = str(draft) or (shown.id if shown else "")
        self._calls.stopped.add((place.name, id))
        if shown and shown.id == id and not shown.stays:
            del self.truth.drafts[place.key, str(thread)]
        stopped: dict[str, Any] = {"chat": chat_of(self.chats, place), "draft_id": int(id)}
        if thread:
            stopped["message_thread_id"] = int(thread)
        body = {"stopped_message_generation": stopped}
        self.chats.bot(account).queue.put("stopped_message_generation", body, f"stopped:{id}", place.name)
        return id

    def answered(self, query: str) -> str | None:
        """What the person was shown after a press; None while nobody answered."""
        return self._calls.presses[query].answer

    def redeliver(self, name: str, *, account: str = "main") -> None:
        """Tells the same again by an update with a new id, confirmed or not."""
        queue = self.chats.bot(account).queue
        # Each thing that was told once, however often it was told.
        told = {id(update.body): update for update in queue.told if update.name == name}
        for update in told.values():
            queue.add(update.type, update.body, update.name, update.lane)

    def odd(self, update: dict[str, Any], *, account: str = "main") -> str:
        """An update of a shape that nobody expects; returns the name under which it is confirmed."""
        body = {name: value for name, value in update.items() if name != "update_id"}
        return self.chats.bot(account).queue.add("odd", body, "", "odd").name

    def jump_ids(self, to: int | None = None, *, account: str = "main") -> int:
        """Update ids go on from here, by default from a random lower value."""
        return self.chats.bot(account).queue.jump(to)

    def erase(self, message: Id, chat: Id = "", *, account: str = "main") -> None:
        """Somebody removes a message, and no bot is told."""
        name = str(message) if ":" in str(message) else f"{chat or PERSON}:{message}"
        place, gone = self._find(name, account)
        del self.truth.messages[place.key, gone.message_id]
        self.truth.tell("erase", gone)

    # Chats.

    def introduce(self, user: Id, first: str, last: str = "", username: str = "") -> None:
        self.chats.people[int(user)] = (first, last, username)

    def open_chat(self, chat: Id, *, title: str = "", forum: bool = False, account: str = "main") -> None:
        place = self.chats.open(account, chat, title=title)
        place.is_forum = place.is_forum or forum

    def open_topic(self, chat: Id, name: str = "Topic", *, user: Id = PERSON, account: str = "main") -> str:
        """Returns the thread; bots hear of it by a service message, which has that id."""
        place = self.chats.open(account, chat)
        number = self.chats.number(place)
        self.chats.open_topic(place, number, name)
        message = self._open_topic(place, number, str(user), name)
        self._announce("message", place, message)
        return str(number)

    def delete_topic(self, chat: Id, thread: Id, *, account: str = "main") -> None:
        place = self.chats.get(account, chat)
        del place.topics[int(thread)]
        for key, message in list(self.truth.messages.items()):
            if key[0] == place.key and message.thread == str(thread):
                del self.truth.messages[key]
        self.truth.drafts.pop((place.key, str(thread)), None)
        self.truth.wake()

    def close_topic(self, chat: Id, thread: Id, *, on: bool = True, account: str = "main") -> None:
        self.chats.get(account, chat).topics[int(thread)].is_open = not on

    def promote(self, chat: Id, on: bool = True, *, account: str = "main") -> None:
        """An administrator sees every message of a group."""
        self.chats.get(account, chat).bots[account] = "administrator" if on else "member"

    def block(self, chat: Id, on: bool = True, *, account: str = "main") -> None:
        """A person blocks the bot, or lets it in again."""
        self._change(chat, "blocked" if on else "member", account)

    def kick(self, chat: Id, on: bool = True, *, account: str = "main") -> None:
        self._change(chat, "kicked" if on else "member", account)

    def leave(self, chat: Id, on: bool = True, *, account: str = "main") -> None:
        """Somebody takes the bot out of a group, without banning it."""
        self._change(chat, "left" if on else "member", account)

    def forbid_reactions(self, chat: Id, on: bool = True, *, account: str = "main") -> None:
        self.chats.get(account, chat).reactions = not on

    def forbid_drafts(self, chat: Id, on: bool = True, *, account: str = "main") -> None:
        self.chats.get(account, chat).drafts = not on

    def migrate(self, old: Id, new: Id, *, account: str = "main") -> None:
        """A group becomes a supergroup: another id, other message ids, and both say so."""
        group = self.chats.get(account, old)
        if group.kind != "group" or self.chats.kind_of(int(new)) != "supergroup":
            raise ValueError("only a group becomes a supergroup")
        for member, status in group.bots.items():
            self.chats.open(member, new, title=group.title).bots[member] = status
        leaving = self._serve(group, {"migrate_to_chat_id": int(new)})
        group.moved_to = int(new)
        self._announce("message", group, leaving)
        supergroup = self.chats.get(account, new)
        self._announce("message", supergroup, self._serve(supergroup, {"migrate_from_chat_id": int(old)}))

    # How it is done.

    def _change(self, chat: Id, status: str, account: str) -> None:
        place, bot = self.chats.get(account, chat), self.chats.bot(account)
        before, place.bots[account] = place.bots[account], status

        def member(status: str) -> dict[str, Any]:
            told = "kicked" if status == "blocked" else status
            return {"user": bot_of(bot), "status": told} | ({"until_date": 0} if told == "kicked" else {})

        changed = {
            "chat": chat_of(self.chats, place),
            "from": user_of(self.chats, place.id if place.kind == "private" else PERSON),
            "date": int(self.clock.wall() + self.chats.skew),
            "old_chat_member": member(before),
            "new_chat_member": member(status),
        }
        bot.queue.put("my_chat_member", {"my_chat_member": changed}, f"{place.id} {status}", place.name)

    def _find(self, name: str, account: str) -> tuple[Chat, Message]:
        chat, _, number = name.partition(":")
        place = self.chats.get(account, chat)
        return place, self._named(place, number)

    def _named(self, place: Chat, name: Id) -> Message:
        message = self.chats.message(place, int(str(name).rpartition(":")[2]))
        if message is None:
            raise LookupError(f"there is no message {name} in chat {place.id}")
        return message

    def _need_topic(self, place: Chat, topic: int, who: int) -> None:
        if topic in place.topics:
            return
        self.chats.open_topic(place, topic)
        if self.chats.message(place, topic) is None:
            self._open_topic(place, topic, str(who), place.topics[topic].name)
        self.chats.skip_to(place, topic)

    def _open_topic(self, place: Chat, number: int, sender: str, name: str) -> Message:
        service = {"forum_topic_created": {"name": name, "icon_color": 7322096}}
        return self._write(
            place, sender, "", number=number, thread=str(number), kind="service", service=json.dumps(service)
        )

    def _serve(self, place: Chat, service: dict[str, Any]) -> Message:
        return self._write(place, str(PERSON), "", kind="service", service=json.dumps(service))

    def _write(
        self,
        place: Chat,
        sender: str,
        text: str,
        *,
        number: int = 0,
        thread: str = "",
        kind: str = "text",
        files: tuple[File, ...] = (),
        reply_to: str = "",
        quote: str = "",
        album: str = "",
        service: str = "",
    ) -> Message:
        number = number or self.chats.number(place)
        return self.chats.keep(
            place,
            Message(
                id=f"{place.id}:{number}",
                message_id=number,
                account=next(iter(place.bots)),
                chat=place.name,
                thread=thread,
                text=text,
                entities=find_entities(text),
                at=self.clock.wall(),
                order=len(self.truth.effects) + 1,
                kind=kind,
                files=files,
                reply_to=reply_to,
                quote=quote,
                album=album,
                sender=sender,
                service=service,
            ),
        )

    def _announce(self, type: str, place: Chat, message: Message) -> None:
        body = {type: message_of(self.chats, place, message)}
        for account in place.bots:
            bot = self.chats.bot(account)
            if self._hears(bot, place, message):
                bot.queue.put(type, body, message.id, place.name)
        self.truth.wake()

    def _hears(self, bot: Bot, place: Chat, message: Message) -> bool:
        """Privacy mode: a bot is told what is said to it, and what changes the chat."""
        status = place.bots[bot.account]
        if status in ("blocked", "kicked", "left"):
            return False
        if place.kind == "private" or bot.reads_all or status == "administrator" or message.kind == "service":
            return True
        me = f"@{bot.username}".lower()
        for entity in message.entities:
            words = inside(message.text, entity).lower()
            if entity.type == "mention" and words == me:
                return True
            if entity.type == "bot_command":
                is_mine = "@" not in words and place.last_bot in ("", bot.account)
                if is_mine or words.endswith(me):
                    return True
        replied = self.chats.message(place, int(message.reply_to.rpartition(":")[2])) if message.reply_to else None
        return replied is not None and not replied.sender and replied.account == bot.account
