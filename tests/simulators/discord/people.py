"""What people do on Discord: they write, correct, react, use commands, press buttons, and change places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from tests.simulators.discord.arguments import FILE_SECONDS, VOICE, WAVEFORM, named_in
from tests.simulators.discord.gateway import Gateway
from tests.simulators.discord.messages import Messages, emoji_in
from tests.simulators.discord.news import News
from tests.simulators.discord.places import PERMISSIONS, TEXT, Channel, Guild, Id, Places, User, Where
from tests.simulators.discord.threads import Threads
from tests.simulators.discord.truth import Edit, File, Interaction, Message, Truth

COMMAND_ANSWER = 20


class Person:
    """One who speaks: a person, another bot, or a webhook. Messages are named by their ids."""

    def __init__(self, world: People, user: User) -> None:
        self._world = world
        self._user = user
        self.id = user.id
        self.name = user.name

    @property
    def mention(self) -> str:
        return f"<@{self.id}>"

    def private(self, account: str = "main") -> Channel:
        """The private channel with a bot of ours."""
        return self._world.places.private(account, self.id)

    def says(
        self,
        channel: Where,
        text: str = "",
        *,
        reply_to: Id = "",
        ping: bool = True,
        mention: bool | str | Person = False,
        roles: Iterable[str] = (),
        files: Iterable[tuple[str, bytes]] = (),
        voice: bytes | None = None,
        embeds: Iterable[dict[str, Any]] = (),
        nonce: str = "",
    ) -> str:
        """`mention` names our bot, the bot of another account, or a person; a reply rings unless `ping` is off."""
        world, places = self._world, self._world.places
        place = places.channel(channel)
        named = [f"<@{places.bot('main').id}>"] if mention is True else []
        named += [f"<@{places.bot(mention).id}>"] if isinstance(mention, str) else []
        named += [mention.mention] if isinstance(mention, Person) else []
        words = " ".join([*named, *(f"<@&{role}>" for role in roles), *([text] if text else [])])
        guild = places.guilds.get(place.guild)
        if guild is not None and not self._user.is_webhook:
            guild.members.add(self.id)
        replied = places.message(reply_to) if reply_to else None
        found = named_in(words, guild.roles if guild else (), None, replied.author if replied and ping else "")
        kept = tuple(_file(places, name, data) for name, data in files)
        if voice is not None:
            kept = (
                replace(_file(places, "voice-message.ogg", voice), type="audio/ogg", seconds=1.5, waveform=WAVEFORM),
            )
        if place.is_archived and not place.is_locked:
            world.threads.set_state(place, archived=False, locked=False)
        message = Message(
            id=places.new_id(),
            channel=place.id,
            author=self.id,
            text=words,
            at=places.wall(),
            order=len(world.truth.effects) + 1,
            kind=19 if replied else 0,
            nonce=nonce,
            flags=VOICE if voice is not None else 0,
            files=kept,
            embeds=tuple({"type": "rich", **embed} for embed in embeds),
            reply_to=replied.id if replied else "",
            mentions=tuple(user for user in found.users if places.user(user) is not None),
            roles=found.roles,
            everyone=found.everyone,
            pings=found.pings,
            webhook=self.id if self._user.is_webhook else "",
        )
        world.truth.keep(message)
        world.news.created(message)
        world.truth.wake()
        return message.id

    def edits(self, message: Id, text: str) -> None:
        world = self._world
        found = world.places.message(message)
        guild = world.places.guilds.get(world.places.channels[found.channel].guild)
        named = named_in(text, guild.roles if guild else ())
        edit = Edit(at=world.places.wall(), text=text)
        changed = replace(found, text=text, edits=(*found.edits, edit), mentions=named.users, roles=named.roles)
        world.news.updated(world.truth.keep(changed))

    def deletes(self, message: Id) -> None:
        self._world.messages.remove(self._world.places.message(message))

    def reacts(self, message: Id, emoji: str, on: bool = True) -> None:
        self._world.messages.set_reaction(self._world.places.message(message), emoji_in(emoji), self.id, on=on)

    def types(self, channel: Where) -> None:
        self._world.news.typing(self._world.places.channel(channel), self.id)

    def opens_thread(self, at: Where, name: str = "Thread") -> Channel:
        """From a message when `at` is one's id, else in a channel."""
        places, message = self._world.places, None
        if not isinstance(at, Channel) and str(at) in self._world.truth.messages:
            message = places.message(at)
            at = message.channel
        return self._world.threads.open(places.channel(at), name, self.id, message=message)

    def blocks(self, on: bool = True, *, account: str = "main") -> None:
        """Takes no private messages of the bot's any more."""
        (self._user.blocked.add if on else self._user.blocked.discard)(account)

    def commands(
        self, name: str, channel: Where, *, user_installed: bool = False, account: str = "main", **options: Any
    ) -> str:
        """Uses a command that the bot has registered; returns the interaction's id."""
        place, bot = self._world.places.channel(channel), self._world.places.bot(account)
        guild = self._world.places.guilds.get(place.guild)
        if guild is not None and account not in guild.bots and not user_installed:
            raise LookupError(f"{bot.name} is not in {guild.name}")
        known = [*bot.commands.get(place.guild, []), *bot.commands.get("", [])]
        if name.removeprefix("/") not in [each["name"] for each in known]:
            raise LookupError(f"{bot.name} offers no command {name}, only {[each['name'] for each in known]}")
        return self._asks(
            place,
            account,
            kind="command",
            name=name.removeprefix("/"),
            options=options,
            is_user_installed=user_installed,
        )

    def presses(self, message: Id, button: str, *, forged: bool = False) -> str:
        """Presses the button with this id; returns the interaction's id.

        A forged press names what is no button of the message, or no longer.
        """
        pressed = self._world.places.message(message)
        if not forged and button not in {each.id for each in pressed.choices}:
            raise LookupError(f"message {message} has no button {button!r}")
        if pressed.only_for not in ("", self.id):
            raise LookupError(f"{self.name} does not see message {message}")
        place = self._world.places.channel(pressed.channel)
        return self._asks(place, pressed.account, kind="button", name=button, message=pressed.id)

    def _asks(self, place: Channel, account: str, **about: Any) -> str:
        world = self._world
        if place.guild:
            world.places.guilds[place.guild].members.add(self.id)
        id = world.places.new_id()
        asked = Interaction(
            id=id,
            token=f"token-of-{id}",
            account=account,
            user=self.id,
            channel=place.id,
            at=world.places.wall(),
            now=world.clock_now(),
            **about,
        )
        world.truth.interactions[id] = asked
        told = world.news.asked(asked)
        world.truth.interactions[id] = replace(asked, told=told)
        world.truth.wake()
        return id


class People:
    """Who and what is there; the server is one of these."""

    truth: Truth
    places: Places
    gateway: Gateway
    news: News
    messages: Messages
    threads: Threads
    _named: dict[str, Person]

    def clock_now(self) -> float:
        return self.places.clock.now()

    def person(self, name: str = "ada", *, bot: bool = False) -> Person:
        """The same name is the same person; `bot` makes it another bot, not ours."""
        if name not in self._named:
            user = User(self.places.new_id(), name, is_bot=bot)
            self.places.users[user.id] = user
            self._named[name] = Person(self, user)
        return self._named[name]

    def webhook(self, name: str = "hook") -> Person:
        """A webhook speaks under its own id in any channel."""
        user = User(self.places.new_id(), name, is_webhook=True)
        self.places.users[user.id] = user
        return Person(self, user)

    def guild(self, name: str = "Workshop", *, accounts: Iterable[str] = ("main",)) -> Guild:
        guild = Guild(self.places.new_id(), name, joined_at=self.places.wall())
        self.places.guilds[guild.id] = guild
        for account in accounts:
            self.invite(guild, account=account)
        return guild

    def channel(self, name: str = "general", guild: Guild | None = None) -> Channel:
        """In the newest guild unless told otherwise; the first makes one."""
        home = guild or (list(self.places.guilds.values())[-1] if self.places.guilds else self.guild())
        channel = self.places.add(Channel(self.places.new_id(), TEXT, name, home.id))
        self.news.channel_made(channel)
        return channel

    def role(self, name: str, guild: Guild, *holders: str) -> str:
        """Returns the role's id; holders are ids of users and bots. Sessions that are open are not told."""
        id = self.places.new_id()
        guild.roles[id], guild.holders[id] = name, set(holders)
        return id

    # Changes that somebody with power makes.

    def invite(self, guild: Guild, *, account: str = "main") -> None:
        guild.bots.add(account)
        self.news.joined(guild, self.places.bot(account))

    def remove_bot(self, guild: Guild, *, account: str = "main") -> None:
        self.news.left(guild, self.places.bot(account))
        guild.bots.discard(account)
        self.truth.wake()

    def guild_outage(self, guild: Guild, on: bool = True) -> None:
        """Discord itself has lost the guild for a while; bots stay in it."""
        for account in guild.bots:
            bot = self.places.bot(account)
            if on:
                self.news.left(guild, bot, is_outage=True)
            else:
                self.news.joined(guild, bot, is_new=False)

    def permit(self, channel: Where, *names: str, on: bool = True, account: str = "main") -> None:
        """Gives or takes permissions in a channel and its threads, by their names in the client."""
        place = self.places.channel(channel)
        bits = sum(PERMISSIONS[name] for name in names)
        denied = place.denied.get(account, 0)
        place.denied[account] = denied & ~bits if on else denied | bits
        self.news.channel_changed(place)

    def forbid(self, channel: Where, *names: str, account: str = "main") -> None:
        self.permit(channel, *names, on=False, account=account)

    def archive(self, thread: Where, on: bool = True, *, locked: bool = False) -> None:
        self.threads.set_state(self.places.channel(thread), archived=on, locked=locked)

    def remove_channel(self, channel: Where) -> None:
        """A channel goes with its threads."""
        self.threads.remove(self.places.channel(channel))

    def erase(self, message: Id) -> None:
        """Somebody removes a message, and nobody is told."""
        self.messages.remove(self.places.message(message), "erase", quietly=True)

    def purge(self, channel: Where, messages: Iterable[Id]) -> None:
        place = self.places.channel(channel)
        gone = [self.places.message(id) for id in messages]
        for message in gone:
            self.messages.remove(message, quietly=True)
        self.news.purged(place, gone)

    def redeliver(self, message: Id) -> None:
        """Tells of the same message by another event."""
        self.news.told_again(self.places.message(message))
        self.truth.wake()

    def odd(self, name: str, data: Any, *, account: str = "main") -> None:
        """An event of a shape that nobody expects."""
        self.news.odd(account, name, data)


def _file(places: Places, name: str, data: bytes) -> File:
    ending = name.rpartition(".")[2]
    kinds = {"txt": "text/plain; charset=utf-8", "png": "image/png", "ogg": "audio/ogg", "pdf": "application/pdf"}
    return File(
        id=places.new_id(),
        name=name,
        data=data,
        type=kinds.get(ending, "application/octet-stream"),
        until=places.wall() + FILE_SECONDS,
    )
