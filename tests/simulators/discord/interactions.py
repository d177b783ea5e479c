"""Discord's calls about interactions: the first answer within its time, the original, and what follows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from tests.simulators.discord.messages import SENDABLE, Messages
from tests.simulators.discord.places import Bot, Places
from tests.simulators.discord.refusals import Refusal, Upload, invalid, unknown_message, unsimulated
from tests.simulators.discord.routes import Ask, Handler, Reply
from tests.simulators.discord.shapes import Shapes
from tests.simulators.discord.truth import EPHEMERAL, THINKING, Interaction, Message, Truth

ANSWER_SECONDS = 3.0
TOKEN_SECONDS = 900.0
# For who has installed the bot alone, in a place where it is not.
FOLLOW_UPS = 5
MESSAGE, THINK, SILENCE, UPDATE = 4, 5, 6, 7
NAMES = {MESSAGE: "message", THINK: "thinking", SILENCE: "silence", UPDATE: "update"}
COMMAND_ANSWER = 20


class Interactions:
    def __init__(self, places: Places, shapes: Shapes, messages: Messages) -> None:
        self._places = places
        self._shapes = shapes
        self._messages = messages
        self._truth: Truth = places.truth

    @property
    def handlers(self) -> dict[str, Handler]:
        return {
            "callback": self.callback,
            "follow_up": self.follow_up,
            "original": self.original,
            "edit_original": self.edit_original,
            "delete_original": self.delete_original,
            "read_follow_up": self.read_follow_up,
            "edit_follow_up": self.edit_follow_up,
            "delete_follow_up": self.delete_follow_up,
        }

    def callback(self, ask: Ask) -> Reply:
        asked = self._truth.interactions.get(ask.at["interaction"])
        age = self._places.clock.now() - asked.now if asked is not None else 0.0
        if asked is None or asked.token != ask.at["token"] or (age >= ANSWER_SECONDS and not asked.answer):
            raise Refusal(404, 10062, "Unknown interaction")
        if asked.answer:
            raise Refusal(400, 40060, "Interaction has already been acknowledged.")
        kind, data = ask.form.get("type"), ask.form.get("data") or {}
        if kind not in NAMES:
            if kind in (1, 8, 9, 10, 12):
                raise unsimulated(f"answers of type {kind}")
            raise invalid("type", "BASE_TYPE_CHOICES", "Value must be one of {1, 4, 5, 6, 7, 8, 9, 10, 12}.")
        if kind in (SILENCE, UPDATE) and asked.kind != "button":
            raise invalid("type", "INTERACTION_APPLICATION_COMMAND_INVALID_TYPE", "Only a button can be updated")
        bot = self._places.bot(asked.account)
        is_ephemeral = bool(int(data.get("flags") or 0) & EPHEMERAL)
        original = self._answer(asked, bot, kind, data, ask.uploads, is_ephemeral)
        asked = replace(
            asked,
            answer=NAMES[kind],
            answered_at=self._places.wall(),
            is_ephemeral=is_ephemeral,
            original=original.id,
        )
        self._truth.interactions[asked.id] = asked
        self._truth.log("defer", bot.account, channel=asked.channel, message=asked.original, text=asked.answer)
        if ask.query.get("with_response", "0").lower() not in ("1", "true"):
            return Reply(204)
        return Reply(200, self._told(asked, bot, kind, original))

    def _told(self, asked: Interaction, bot: Bot, kind: int, original: Message) -> dict[str, Any]:
        about: dict[str, Any] = {"id": asked.id, "type": 2 if asked.kind == "command" else 3}
        if kind == SILENCE:
            return {"interaction": about}
        about |= {
            "response_message_id": original.id,
            "response_message_loading": kind == THINK,
            "response_message_ephemeral": asked.is_ephemeral,
        }
        return {"interaction": about, "resource": {"type": kind, "message": self._shown(original, bot)}}

    def _answer(
        self,
        asked: Interaction,
        bot: Bot,
        kind: int,
        data: Mapping[str, Any],
        uploads: Mapping[str, Upload],
        is_ephemeral: bool,
    ) -> Message:
        if kind == SILENCE:
            return self._truth.messages[asked.message]
        if kind == UPDATE:
            return self._messages.change(self._truth.messages[asked.message], data, uploads)
        words = data if kind == MESSAGE else {}
        draft = self._draft(asked, bot, words, uploads, is_ephemeral, may_be_empty=kind == THINK)
        if kind == THINK:
            return self._messages.post(replace(draft, flags=draft.flags | THINKING), "think")
        return self._messages.post(draft)

    def _draft(
        self,
        asked: Interaction,
        bot: Bot,
        data: Mapping[str, Any],
        uploads: Mapping[str, Upload],
        is_ephemeral: bool,
        *,
        may_be_empty: bool = False,
    ) -> Message:
        channel = self._places.channels.get(asked.channel)
        if channel is None:
            raise Refusal(404, 10003, "Unknown Channel")
        kind = COMMAND_ANSWER if asked.kind == "command" else 0
        draft = self._messages.draft(bot, channel, data, uploads, kind=kind, may_be_empty=may_be_empty, flags=SENDABLE)
        draft = replace(draft, interaction=asked.id, flags=draft.flags | (EPHEMERAL if is_ephemeral else 0))
        # What one person sees rings nobody else.
        own = tuple(user for user in draft.pings if user == asked.user)
        return replace(draft, only_for=asked.user, pings=own) if is_ephemeral else draft

    # Afterwards.

    def follow_up(self, ask: Ask) -> Reply:
        """After a deferral the first fills the message that was thinking, as ephemeral or public as that was."""
        asked, bot = self._open(ask)
        body, uploads = ask.form, ask.uploads
        original = self._truth.messages[asked.original]
        if original.is_thinking and not original.deleted_at:
            return Reply(200, self._shown(self._messages.change(original, body, uploads), bot))
        if asked.is_user_installed and len(asked.follow_ups) >= FOLLOW_UPS:
            raise Refusal(400, 40094, "This interaction has reached its maximum number of follow-up messages.")
        is_ephemeral = bool(int(body.get("flags") or 0) & EPHEMERAL)
        message = self._messages.post(self._draft(asked, bot, body, uploads, is_ephemeral))
        asked = self._truth.interactions[asked.id]
        self._truth.interactions[asked.id] = replace(asked, follow_ups=(*asked.follow_ups, message.id))
        return Reply(200, self._shown(message, bot))

    def original(self, ask: Ask) -> Reply:
        asked, bot = self._open(ask)
        return Reply(200, self._shown(self._standing(asked.original), bot))

    def edit_original(self, ask: Ask) -> Reply:
        asked, bot = self._open(ask)
        message = self._messages.change(self._standing(asked.original), ask.form, ask.uploads)
        return Reply(200, self._shown(message, bot))

    def delete_original(self, ask: Ask) -> Reply:
        asked, _ = self._open(ask)
        self._messages.remove(self._standing(asked.original))
        return Reply(204)

    def read_follow_up(self, ask: Ask) -> Reply:
        message, bot = self._followed(ask)
        return Reply(200, self._shown(message, bot))

    def edit_follow_up(self, ask: Ask) -> Reply:
        message, bot = self._followed(ask)
        return Reply(200, self._shown(self._messages.change(message, ask.form, ask.uploads), bot))

    def delete_follow_up(self, ask: Ask) -> Reply:
        message, _ = self._followed(ask)
        self._messages.remove(message)
        return Reply(204)

    def _open(self, ask: Ask) -> tuple[Interaction, Bot]:
        asked = next((each for each in self._truth.interactions.values() if each.token == ask.at["token"]), None)
        bot = self._places.bot_by_id(ask.at["application"])
        if asked is not None and self._places.clock.now() - asked.now >= TOKEN_SECONDS:
            raise Refusal(401, 50027, "Invalid Webhook Token")
        if asked is None or bot is None or asked.account != bot.account or not asked.answer:
            raise Refusal(404, 10015, "Unknown Webhook")
        return asked, bot

    def _followed(self, ask: Ask) -> tuple[Message, Bot]:
        asked, bot = self._open(ask)
        id = ask.at["message"]
        if id not in (asked.original, *asked.follow_ups):
            raise unknown_message()
        return self._standing(id), bot

    def _standing(self, id: str) -> Message:
        message = self._truth.messages.get(id)
        if message is None or message.deleted_at:
            raise unknown_message()
        return message

    def _shown(self, message: Message, bot: Bot) -> dict[str, Any]:
        return self._shapes.message(message, bot, reads_content=True)
