"""Signs the metadata of each message that we send, so that reading back finds our message and no forged one."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any

from tidings.core.adapter import Notebook
from tidings.core.types import Part

EVENT = "tidings.delivery"
NOTE = "proof"
MAC_CHARACTERS = 32


class Seal:
    """Its secret is in the notebook: what was sent before a crash is ours after it."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self._secret = b""
        self._lock = asyncio.Lock()

    async def sign(self, part: Part, channel: str) -> dict[str, Any]:
        payload = {"k": part.key, "i": part.position, "n": part.count, "mac": await self._mac(part, channel)}
        return {"event_type": EVENT, "event_payload": payload}

    async def proves(self, message: Mapping[str, Any], part: Part, channel: str) -> bool:
        payload = payload_of(message)
        if payload.get("k") != part.key or payload.get("i") != part.position:
            return False
        return hmac.compare_digest(str(payload.get("mac")), await self._mac(part, channel))

    async def _mac(self, part: Part, channel: str) -> str:
        said = "\0".join((part.key, channel, part.target.thread, str(part.position), str(part.count)))
        return hmac.new(await self._known(), said.encode(), hashlib.sha256).hexdigest()[:MAC_CHARACTERS]

    async def _known(self) -> bytes:
        async with self._lock:
            if not self._secret:
                kept = await self._notebook.read(NOTE)
                if not kept:
                    kept = secrets.token_hex(32)
                    await self._notebook.write(NOTE, kept)
                self._secret = kept.encode()
            return self._secret


def payload_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of metadata that looks like ours; empty where there is none."""
    metadata = message.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("event_type") != EVENT:
        return {}
    payload = metadata.get("event_payload")
    return payload if isinstance(payload, Mapping) else {}
