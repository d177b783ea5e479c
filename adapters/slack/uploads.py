"""Files on their way to Slack: put where it can share them, then shared in the thread."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tidings.adapters.shared import files
from tidings.adapters.slack import render
from tidings.adapters.slack.client import Client, Scopeless
from tidings.core.adapter import Notebook
from tidings.core.errors import Rejected
from tidings.core.types import Part, Receipt

LARGEST_FILE = 100 * files.MEGABYTE
NOTE = "uploads"
REMEMBERED = 50


class Uploads:
    """Nothing can be written on a shared file, so its id is noted before it is shared: by that it is found again."""

    def __init__(self, client: Client, notebook: Notebook) -> None:
        self._client = client
        self._notebook = notebook
        self._ids: dict[str, str] | None = None

    async def send(self, part: Part, channel: str) -> Receipt:
        file = part.body.files[0]
        data = await files.read(file, LARGEST_FILE, "Slack")
        name = re.sub(r"[\x00-\x1f/\\]+", " ", file.name).strip() or "file"
        try:
            id = await self._client.upload(name, data)
            await self._remember(part.key, id)
            await self._client.call(
                "files.completeUploadExternal",
                files=[{"id": id, "title": name}],
                channel_id=channel,
                thread_ts=part.target.thread or None,
                initial_comment=render.escape(render.tame(part.body.text))[: render.UPDATE_LIMIT] or None,
            )
        except Scopeless as error:
            # The text of the answer arrives without the file, and a notice says why the file is missing.
            raise Rejected(str(error)) from error
        return Receipt(ids=(id,), chat=channel)

    async def is_it(self, message: dict[str, Any], part: Part) -> bool:
        id = (await self._known()).get(part.key)
        return id is not None and any(file.get("id") == id for file in message.get("files") or ())

    async def id_of(self, part: Part) -> str:
        return (await self._known()).get(part.key, "")

    async def _remember(self, key: str, id: str) -> None:
        known = await self._known()
        known[key] = id
        while len(known) > REMEMBERED:
            known.pop(next(iter(known)))
        await self._notebook.write(NOTE, msgspec.json.encode(known).decode())

    async def _known(self) -> dict[str, str]:
        if self._ids is None:
            kept = await self._notebook.read(NOTE)
            self._ids = msgspec.json.decode(kept, type=dict[str, str]) if kept else {}
        return self._ids
