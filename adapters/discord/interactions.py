"""Commands and presses, which Discord tells once: stored and answered for at the same time, within three seconds."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.adapters.discord import client
from tidings.adapters.discord.address import Handle
from tidings.adapters.discord.client import Client
from tidings.adapters.discord.deferrals import Deferrals
from tidings.adapters.discord.directory import Me, Place
from tidings.adapters.discord.parse import COMMAND, COMPONENT, EPHEMERAL, Reader
from tidings.adapters.shared.replies import SILENT, reply_to
from tidings.core.adapter import Host, MenuItem, Receive
from tidings.core.errors import Doubtful, RateLimited, SendError, Unreachable, Unstored
from tidings.core.types import Admission, Ignored, Inbound

log = logging.getLogger(__name__)

# Discord gives three seconds; what comes later is refused.
ANSWER_SECONDS = 2.8
PAUSE_SECONDS = 0.1
TELL_SECONDS = 10.0
THINKING, SILENCE = 5, 6
ANSWERED_BEFORE = 40060
SYNC_PAUSES = (5.0, 30.0, 300.0)
HELP_CHARACTERS = 100
OPTION = {"type": 3, "name": "text", "description": "what to say with it", "required": False}


class Interactions:
    def __init__(self, client: Client, host: Host, deferrals: Deferrals) -> None:
        self._client = client
        self._deferrals = deferrals
        self._host = host
        self._runs = {item.name for item in host.menu if item.runs}
        self._known = {item.name for item in host.menu}

    async def take(self, asked: Mapping[str, Any], place: Place, reader: Reader, receive: Receive) -> None:
        """Raises what a strange shape raises, before anything is done."""
        handle = self._handle(asked, place)
        if asked["type"] == COMMAND:
            inbound = reader.commanded(asked, place, handle)
            answer: dict[str, Any] = {"type": THINKING, "data": {"flags": EPHEMERAL if handle.ephemeral else 0}}
        else:
            # A press is answered in the channel; only what one person alone sees stays with them.
            inbound = reader.pressed(asked, place, handle if handle.ephemeral else Handle())
            answer = {"type": SILENCE}
        is_silent = not place.is_private and reader.rule(place) == "never"
        storing = self._store(inbound, receive, is_silent=is_silent)
        # The reply may be stored and on its way before Discord has heard that we heard.
        with self._deferrals.under_way(handle.token):
            admission, deferred = await asyncio.gather(storing, self._defer(asked, answer))
        words = SILENT if is_silent else reply_to(admission, inbound)
        if words and deferred:
            await self._tell(asked, words)

    def _handle(self, asked: Mapping[str, Any], place: Place) -> Handle:
        if asked["type"] == COMMAND:
            name = asked["data"]["name"]
            is_quick = name in self._known and name not in self._runs
            ephemeral = is_quick and not place.is_private
        else:
            ephemeral = bool(int(asked["message"].get("flags") or 0) & EPHEMERAL)
        return Handle(
            application=str(asked["application_id"]),
            token=str(asked["token"]),
            at=self._host.clock.wall(),
            ephemeral=ephemeral,
        )

    async def _store(self, inbound: Inbound, receive: Receive, *, is_silent: bool) -> Admission | None:
        """None when it could not be stored."""
        if is_silent:
            return Ignored()
        try:
            return await receive(inbound)
        except Unstored as error:
            log.warning("%s could not be stored: %s", inbound.key, error)
            return None

    async def _defer(self, asked: Mapping[str, Any], answer: dict[str, Any]) -> bool:
        """Whether the person was told that we have heard; a second call does no harm."""
        path = f"/interactions/{asked['id']}/{asked['token']}/callback"
        has_tried = False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                while True:
                    try:
                        await self._client.call("POST", path, answer, seconds=ANSWER_SECONDS)
                        return True
                    except (Unreachable, Doubtful, RateLimited) as error:
                        log.debug("interaction %s: %s", asked["id"], error)
                        has_tried = True
                        await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            log.warning("interaction %s was not answered for in time", asked["id"])
        except SendError as error:
            if has_tried and isinstance(error, client.Refused) and error.code == ANSWERED_BEFORE:
                # By a call of ours whose answer was lost.
                return True
            log.info("interaction %s was not answered for: %s", asked["id"], error)
        return False

    async def _tell(self, asked: Mapping[str, Any], words: str) -> None:
        """Nothing depends on it: the person tries again, or asks."""
        hook = f"/webhooks/{asked['application_id']}/{asked['token']}"
        body: dict[str, Any] = {"content": words, "allowed_mentions": {"parse": []}}
        try:
            if asked["type"] == COMMAND:
                await self._client.call("PATCH", f"{hook}/messages/@original", body, seconds=TELL_SECONDS)
            else:
                await self._client.call("POST", hook, body | {"flags": EPHEMERAL}, seconds=TELL_SECONDS)
        except SendError as error:
            log.info("interaction %s: the person could not be told %r: %s", asked["id"], words, error)

    async def publish(self, me: Me) -> None:
        """Publishes the commands that Discord shows after a slash, only when they have changed."""
        menu = [_command(item) for item in self._host.menu]
        digest = hashlib.sha256(msgspec.json.encode([me.application, menu])).hexdigest()
        if not menu or await self._host.notebook.read("commands") == digest:
            return
        for pause in SYNC_PAUSES:
            try:
                await self._client.call("PUT", f"/applications/{me.application}/commands", menu)
            except (Unreachable, Doubtful, RateLimited) as error:
                log.info("the list of commands was not taken yet: %s", error)
                await self._host.clock.sleep(getattr(error, "retry_after", None) or pause)
            except SendError as error:
                log.warning("Discord does not take the list of commands: %s", error)
                return
            else:
                await self._host.notebook.write("commands", digest)
                return


def is_known(asked: Mapping[str, Any]) -> bool:
    return asked.get("type") in (COMMAND, COMPONENT)


def _command(item: MenuItem) -> dict[str, Any]:
    return {"name": item.name.lower(), "description": item.help[:HELP_CHARACTERS], "type": 1, "options": [OPTION]}
