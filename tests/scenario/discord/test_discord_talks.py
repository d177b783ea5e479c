"""Talks on Discord: which places of a server share what /sessions and /continue find."""

from __future__ import annotations

from pathlib import Path

from tests.scenario.discord.test_discord_groups import DiscordWorld
from tests.scenario.spine.test_talks import Remembering
from tests.simulators.discord.people import Person
from tests.simulators.discord.places import PRIVATE_THREAD, Channel
from tests.worlds.world import OwnedClock
from tidings.core.inbound.talk_commands import NO_TALKS, NOT_FOUND


async def test_a_private_thread_shares_no_talk_with_its_channel(tmp_path: Path) -> None:
    """Not everybody in the channel sees the thread, so neither lists or continues what was said in the other."""
    async with DiscordWorld(tmp_path, Remembering(), clock=OwnedClock()) as world:
        ada, bob = world.ada, world.discord.person("bob")
        await world.admit(f"discord:{bob.id}")
        room = world.discord.places.channel(world.room)
        private = world.discord.threads.open(room, "staff", ada.id, kind=PRIVATE_THREAD)
        public = world.discord.threads.open(room, "garden", ada.id)
        private.joined.add("main")
        await said(world, ada, private, "salaries")
        await said(world, ada, public, "tulips")
        assert "tulips" in await said(world, bob, room, "/sessions")
        assert "salaries" not in await said(world, bob, room, "/sessions")
        assert "salaries" not in await said(world, bob, public, "/sessions")
        assert await said(world, bob, room, "/continue salaries") == NOT_FOUND
        assert "tulips" not in await said(world, ada, private, "/sessions")
        assert "salaries" in await said(world, ada, private, "/sessions")
        assert await said(world, ada, private, "/continue tulips") == NOT_FOUND
        assert await said(world, ada, private, "/continue") == NO_TALKS


async def said(world: DiscordWorld, person: Person, place: Channel, text: str) -> str:
    """What the bot answers there."""
    before = len(world.discord.posts_in(place))
    person.says(place, text, mention=True)
    await world.until(lambda: len(world.discord.posts_in(place)) > before)
    return str(world.discord.posts_in(place)[-1])
