"""Seeded bugs in the Discord adapter: cursors, nonces, mentions, gaps, private answers and its own words.

The adapter is imported by who becomes one of these, and by nobody else: its library takes half a second.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from tests.chaos.mutation_seams import swap
from tidings.core.adapter import Taken
from tidings.core.types import Absent, Body, Inbound, Part, Receipt, Target, Unreadable


def cursor_before_the_message() -> None:
    """Whoever dies in between has passed over a message that is nowhere."""
    from tidings.adapters.discord.directory import Place
    from tidings.adapters.discord.listen import Intake

    real = Intake._take

    async def take(self: Intake, message: dict[str, Any], place: Place) -> None:
        await self._cursors.write(place.channel, int(message["id"]))
        await real(self, message, place)

    swap(Intake, "_take", take)


def nonce_by_lot() -> None:
    """As the library draws it: a second try is a second message."""
    from tidings.adapters.discord import compose

    def nonce_of(part: Part) -> str:
        return secrets.token_hex(12)

    swap(compose, "nonce_of", nonce_of)


def mentions_as_the_library_has_them() -> None:
    """Whoever leaves them out allows them all."""
    from tidings.adapters.discord import compose
    from tidings.adapters.discord.compose import Words

    real = compose.message

    def message(
        body: Body, words: Words, uploads: tuple[tuple[str, bytes], ...], *, previews: bool = False
    ) -> dict[str, Any]:
        said = real(body, words, uploads, previews=previews)
        return {name: value for name, value in said.items() if name != "allowed_mentions"}

    swap(compose, "message", message)


def key_of_the_event() -> None:
    """What the history tells again is taken for something new."""
    from tidings.adapters.discord.directory import Place
    from tidings.adapters.discord.parse import Reader

    real = Reader.said

    def said(self: Reader, message: Mapping[str, Any], place: Place) -> Inbound | None:
        inbound = real(self, message, place)
        return inbound and msgspec.structs.replace(inbound, key=f"{inbound.key}:{secrets.token_hex(4)}")

    swap(Reader, "said", said)


def private_answer_said_to_all() -> None:
    """What comes too late for one person is told to the whole channel."""
    from tidings.adapters.discord.adapter import DiscordAdapter

    async def post_late(self: DiscordAdapter, part: Part) -> Receipt:
        return await self._post(part)

    swap(DiscordAdapter, "_post_late", post_late)


def own_words_heard() -> None:
    """What it says itself, and what other bots say, comes back to it as a message."""
    from tidings.adapters.discord.parse import Reader

    def is_nobodys(self: Reader, message: Mapping[str, Any]) -> bool:
        return False

    swap(Reader, "_is_nobodys", is_nobodys)


def places_kept_over_each_other() -> None:
    """Who writes first at the same moment as others is forgotten."""
    from tidings.adapters.discord.cursors import Kept
    from tidings.adapters.discord.directory import Place

    async def keep(self: Kept, place: Place) -> None:
        kept = self._places | {place.channel: place}
        if self._places.get(place.channel) != place:
            await self._host.notebook.write("places", msgspec.json.encode(list(kept.values())).decode())
        self._places = kept

    swap(Kept, "keep", keep)


def gap_between_two_sessions() -> None:
    """As the library: a session that is not resumed begins with nothing."""
    from tidings.adapters.discord.directory import Sight
    from tidings.adapters.discord.listen import Intake

    def catch_up(self: Intake, sight: Sight) -> None:
        self._caught_up.add(sight.place.channel)

    swap(Intake, "_catch_up", catch_up)


def discord_window_by_our_clock() -> None:
    """What was sent by a clock that is behind ours lies before the window, and counts as absent."""
    from tidings.adapters.discord.adapter import DiscordAdapter
    from tidings.adapters.discord.address import snowflake_at
    from tidings.adapters.discord.readback import MARGIN_SECONDS, Reading

    async def look_at(
        self: DiscordAdapter, place: str, part: Part, words: Any, is_taken: Taken
    ) -> dict[str, Any] | Absent | Unreadable:
        async def beginning(reading: Reading) -> str:
            return snowflake_at(self._host.clock.wall() - reading.part.age - MARGIN_SECONDS)

        self._readback._beginning = beginning  # type: ignore[method-assign]
        return await self._readback.find(Reading(part, words, place, ""), is_taken)

    swap(DiscordAdapter, "_look_at", look_at)


def reactions_at_any_time() -> None:
    """The reactions on different messages are thought to be counted apart."""
    from tidings.adapters.discord.signals import Signals

    def take_turns(self: Signals, channel: str, count: int, longest: float) -> float | None:
        return self._clock.now() if count else None

    swap(Signals, "_take_turns", take_turns)


def a_thread_or_nothing() -> None:
    """Where no thread may be opened, the person who asked sees nothing."""
    from tidings.adapters.discord.client import Refused
    from tidings.adapters.discord.detours import Detours

    def use_channel(self: Detours, target: Target, error: Refused) -> str:
        raise error

    swap(Detours, "use_channel", use_channel)
