"""Discord's objects as JSON: users, guilds, channels, messages and interactions, as one bot is shown them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from tests.simulators.discord.places import GRANTED, PRIVATE, Bot, Channel, Guild, Places, User
from tests.simulators.discord.truth import EPHEMERAL, File, Interaction, Message, Truth

HAS_THREAD = 1 << 5
UPLOAD_BYTES = 10 * 2**20


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def emoji_of(emoji: str) -> dict[str, Any]:
    name, _, id = emoji.partition(":")
    return {"id": id or None, "name": name}


class Shapes:
    """`base` is where this server listens: every address that it hands out is on it."""

    def __init__(self, places: Places, truth: Truth, base: str) -> None:
        self._places = places
        self._truth = truth
        self._base = base

    def user(self, user: User) -> dict[str, Any]:
        return {
            "id": user.id,
            "username": user.name,
            "discriminator": "0000" if user.is_webhook else "0",
            "global_name": None if user.is_bot or user.is_webhook else user.name.title(),
            "avatar": None,
            "bot": user.is_bot or user.is_webhook,
            "public_flags": 0,
        }

    def user_by(self, id: str) -> dict[str, Any]:
        user = self._places.user(id)
        assert user is not None
        return self.user(user)

    def me(self, bot: Bot) -> dict[str, Any]:
        return self.user_by(bot.id) | {"verified": True, "mfa_enabled": False, "email": None, "flags": 0}

    def application(self, bot: Bot) -> dict[str, Any]:
        return {
            "id": bot.id,
            "name": bot.name,
            "icon": None,
            "description": "",
            "rpc_origins": [],
            "bot_public": False,
            "bot_require_code_grant": False,
            "verify_key": "0" * 64,
            "owner": self.user(User("1000", "owner")),
            "team": None,
            "summary": "",
            "flags": self.flags(bot),
            "bot": self.user_by(bot.id),
        }

    def flags(self, bot: Bot) -> int:
        """Which privileged intents a small bot may ask for, as its application tells."""
        return sum(flag for bit, flag in ((8, 1 << 13), (1, 1 << 15), (15, 1 << 19)) if bot.portal & 1 << bit)

    def member(self, guild: Guild, user: str) -> dict[str, Any]:
        return {
            "nick": None,
            "avatar": None,
            "roles": guild.roles_of(user),
            "joined_at": iso(guild.joined_at),
            "premium_since": None,
            "deaf": False,
            "mute": False,
            "pending": False,
            "flags": 0,
        }

    def whole_member(self, guild: Guild, user: str) -> dict[str, Any]:
        return self.member(guild, user) | {"user": self.user_by(user)}

    def channel(self, channel: Channel, bot: Bot) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "id": channel.id,
            "type": channel.kind,
            "last_message_id": channel.last_message or None,
            "flags": 0,
        }
        if channel.kind == PRIVATE:
            return shown | {"recipients": [self.user_by(channel.person)]}
        shown |= {"guild_id": channel.guild, "name": channel.name, "rate_limit_per_user": 0}
        if not channel.is_thread:
            denied = channel.denied.get(bot.account, 0)
            overwrites = [{"id": bot.id, "type": 1, "allow": "0", "deny": str(denied)}] if denied else []
            kept = {"position": 0, "parent_id": None, "topic": None, "nsfw": False}
            return shown | kept | {"permission_overwrites": overwrites}
        shown |= {
            "parent_id": channel.parent,
            "owner_id": channel.owner,
            "message_count": channel.messages,
            "total_message_sent": channel.messages,
            "member_count": 1,
            "thread_metadata": {
                "archived": channel.is_archived,
                "auto_archive_duration": channel.archive_minutes,
                "archive_timestamp": iso(channel.created_at),
                "locked": channel.is_locked,
                "create_timestamp": iso(channel.created_at),
            },
        }
        if bot.account in channel.joined:
            shown["member"] = {
                "id": channel.id,
                "user_id": bot.id,
                "join_timestamp": iso(channel.created_at),
                "flags": 0,
            }
        return shown

    def guild(self, guild: Guild, bot: Bot) -> dict[str, Any]:
        """As GUILD_CREATE tells it: with channels, open threads and the bot itself."""
        channels = [each for each in self._places.channels.values() if each.guild == guild.id]
        role = {"color": 0, "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None}}
        role |= {"hoist": False, "managed": False, "mentionable": True, "flags": 0, "icon": None}
        everyone = {"id": guild.id, "name": "@everyone", "position": 0, "permissions": str(GRANTED)}
        named = [
            {"id": id, "name": name, "position": place, "permissions": "0"}
            for place, (id, name) in enumerate(guild.roles.items(), 1)
        ]
        return {
            "id": guild.id,
            "name": guild.name,
            "icon": None,
            "owner_id": "1000",
            "afk_timeout": 300,
            "verification_level": 0,
            "default_message_notifications": 0,
            "explicit_content_filter": 0,
            "mfa_level": 0,
            "nsfw_level": 0,
            "premium_tier": 0,
            "preferred_locale": "en-US",
            "features": [],
            "emojis": [],
            "stickers": [],
            "roles": [role | each for each in (everyone, *named)],
            "joined_at": iso(guild.joined_at),
            "large": False,
            "unavailable": False,
            "member_count": len(guild.members) + len(guild.bots),
            "voice_states": [],
            "members": [self.whole_member(guild, bot.id)],
            "presences": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "soundboard_sounds": [],
            "channels": [self.channel(each, bot) for each in channels if not each.is_thread],
            "threads": [
                self.channel(each, bot)
                for each in channels
                if each.is_thread and not each.is_archived and self._places.sees(bot, each)
            ],
        }

    def file(self, channel: str, file: File) -> dict[str, Any]:
        # Signed by nobody, but it ends as the platform's do.
        address = f"{self._base}/attachments/{channel}/{file.id}/{quote(file.name)}"
        address += f"?ex={int(file.until):x}&is={int(file.until) - 86400:x}&hm={hash_of(file):x}&"
        shown: dict[str, Any] = {
            "id": file.id,
            "filename": file.name,
            "size": len(file.data),
            "url": address,
            "proxy_url": address,
            "content_type": file.type,
        }
        shown |= {"description": file.description} if file.description else {}
        return shown | ({"duration_secs": file.seconds, "waveform": file.waveform} if file.seconds else {})

    def message(
        self, message: Message, bot: Bot, *, reads_content: bool, event: bool = False, nested: bool = False
    ) -> dict[str, Any]:
        """Without the content intent a bot reads only what is written to it, by it, or in private."""
        channel = self._places.channels[message.channel]
        guild = self._places.guilds.get(channel.guild)
        open = reads_content or guild is None or message.author == bot.id or bot.id in message.mentions
        author = self._places.user(message.author)
        assert author is not None
        shown: dict[str, Any] = {
            "id": message.id,
            "type": message.kind,
            "channel_id": message.channel,
            "author": self.user(author),
            "content": message.text if open else "",
            "timestamp": iso(message.at),
            "edited_timestamp": iso(message.edits[-1].at) if message.edits else None,
            "tts": False,
            "mention_everyone": message.everyone,
            "mentions": [self._mentioned(guild if event else None, each) for each in message.mentions],
            "mention_roles": list(message.roles),
            "attachments": [self.file(message.channel, file) for file in message.files] if open else [],
            "embeds": list(message.embeds) if open else [],
            "components": list(message.components) if open else [],
            "pinned": False,
            "flags": message.flags,
        }
        if message.id in self._places.channels:
            thread = self._places.channels[message.id]
            shown["flags"] |= HAS_THREAD
            shown["thread"] = self.channel(thread, bot)
        if message.reactions and not event:
            shown["reactions"] = self._reactions(message, bot)
        if message.nonce and event:
            shown["nonce"] = message.nonce
        if message.webhook:
            shown["webhook_id"] = message.webhook
        if message.account and message.interaction:
            shown |= {"application_id": bot.id, "webhook_id": bot.id} | self._asked(message.interaction)
        if message.reply_to and not nested:
            shown |= self._replied(message, bot, reads_content)
        # What only one person sees comes as if it were private.
        if event and guild is not None and not message.only_for:
            shown["guild_id"] = guild.id
            if not author.is_webhook:
                shown["member"] = self.member(guild, author.id)
        return shown

    def _mentioned(self, guild: Guild | None, user: str) -> dict[str, Any]:
        shown = self.user_by(user)
        return shown | {"member": self.member(guild, user)} if guild is not None else shown

    def _reactions(self, message: Message, bot: Bot) -> list[dict[str, Any]]:
        counts = Counter(emoji for emoji, _ in message.reactions)
        return [
            {
                "emoji": emoji_of(emoji),
                "count": count,
                "count_details": {"burst": 0, "normal": count},
                "me": (emoji, bot.id) in message.reactions,
                "me_burst": False,
                "burst_colors": [],
            }
            for emoji, count in counts.items()
        ]

    def _replied(self, message: Message, bot: Bot, reads_content: bool) -> dict[str, Any]:
        replied = self._truth.messages[message.reply_to]
        at = self._places.channels.get(replied.channel)
        reference = {"type": 0, "message_id": replied.id, "channel_id": replied.channel}
        reference |= {"guild_id": at.guild} if at is not None and at.guild else {}
        if replied.deleted_at or at is None:
            return {"message_reference": reference, "referenced_message": None}
        shown = self.message(replied, bot, reads_content=reads_content, nested=True)
        return {"message_reference": reference, "referenced_message": shown}

    def _asked(self, id: str) -> dict[str, Any]:
        asked = self._truth.interactions[id]
        kind = 2 if asked.kind == "command" else 3
        user = self.user_by(asked.user)
        owners = {"1": asked.user} if asked.is_user_installed else {"0": "0"}
        shown = {"id": id, "type": kind, "user": user, "authorizing_integration_owners": owners}
        old = {"interaction": {"id": id, "type": kind, "name": asked.name, "user": user}} if kind == 2 else {}
        return {"interaction_metadata": shown, **old}

    def interaction(self, asked: Interaction, bot: Bot) -> dict[str, Any]:
        channel = self._places.channels[asked.channel]
        guild = self._places.guilds.get(channel.guild)
        owner = {"1": asked.user} if asked.is_user_installed else {"0": channel.guild or "0"}
        shown: dict[str, Any] = {
            "id": asked.id,
            "application_id": bot.id,
            "type": 2 if asked.kind == "command" else 3,
            "token": asked.token,
            "version": 1,
            "channel_id": channel.id,
            "channel": self.channel(channel, bot) | {"permissions": str(GRANTED)},
            "app_permissions": str(GRANTED),
            "locale": "en-US",
            "entitlements": [],
            "authorizing_integration_owners": owner,
            "context": 0 if guild is not None else 1,
            "attachment_size_limit": UPLOAD_BYTES,
        }
        if guild is None:
            shown["user"] = self.user_by(asked.user)
        else:
            member = self.whole_member(guild, asked.user) | {"permissions": str(GRANTED)}
            about = {"id": guild.id, "locale": "en-US", "features": []}
            shown |= {"guild_id": guild.id, "guild": about, "guild_locale": "en-US", "member": member}
        if asked.kind == "command":
            scopes = (bot.commands.get(channel.guild, []), bot.commands.get("", []))
            command = next(each for scope in scopes for each in scope if each["name"] == asked.name)
            kinds = {each["name"]: each["type"] for each in command.get("options") or ()}
            options = [{"name": name, "type": kinds[name], "value": value} for name, value in asked.options.items()]
            return shown | {"data": {"id": command["id"], "name": asked.name, "type": 1, "options": options}}
        pressed = self._truth.messages[asked.message]
        message = self.message(pressed, bot, reads_content=True)
        if pressed.only_for:
            message["flags"] |= EPHEMERAL
        return shown | {"message": message, "data": {"custom_id": asked.name, "component_type": 2}}


def hash_of(file: File) -> int:
    return int(file.id) * 2_654_435_761 % 2**64
