"""Files on Slack: uploaded in three steps, shared where the app says, and fetched only with a token."""

from __future__ import annotations

import mimetypes
from typing import Any, NamedTuple

from tests.simulators.slack.board import Board
from tests.simulators.slack.messages import Method
from tests.simulators.slack.places import Team
from tests.simulators.slack.shapes import file_of
from tests.simulators.slack.texts import Refusal, need, parsed, whole, word
from tests.simulators.slack.truth import File, Truth

LOGIN_PAGE = (
    b"<!DOCTYPE html><html lang='en-US'><head><title>Slack</title></head>"
    b"<body><form id='signin_form'>Sign in to your workspace</form></body></html>"
)


class Slot(NamedTuple):
    """Where bytes may be put, once."""

    team: Team
    file: str
    name: str
    length: int


class Shelf:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._truth: Truth = board.truth
        self.files: dict[str, File] = {}
        self._owners: dict[str, Team] = {}
        # By path.
        self._slots: dict[str, Slot] = {}
        self._uploaded: dict[str, bytes] = {}
        self.methods: dict[str, Method] = {
            "files.getUploadURLExternal": self._get_url,
            "files.completeUploadExternal": self._complete,
            "files.info": self._info,
        }

    def put(self, team: Team, name: str, data: bytes, title: str = "", id: str = "") -> File:
        type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        file = File(id=id or team.ids.next("F"), name=name, title=title or name, type=type, data=data)
        self.files[file.id] = file
        self._owners[file.id] = team
        return file

    def _get_url(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        team.need("files:write")
        name, length = need(params, "filename"), whole(params, "length", 0)
        if length <= 0:
            raise Refusal("invalid_arguments", why="must be greater than 0 [json-pointer:/length]")
        id = team.ids.next("F")
        path = f"/upload/v1/{id}"
        self._slots[path] = Slot(team, id, name, length)
        return {"upload_url": f"{team.app.url_of_files}{path}", "file_id": id}

    def receive(self, path: str, data: bytes) -> None:
        slot = self._slots.get(path)
        if slot is None:
            raise Refusal("not_found", status=404)
        if len(data) != slot.length:
            raise Refusal("length_mismatch", status=400)
        self._uploaded[slot.file] = data
        self._truth.log("upload", slot.team.name, text=slot.name)

    def _complete(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        team.need("files:write")
        wanted = parsed(params, "files", "invalid_arguments")
        if not isinstance(wanted, list) or not wanted or not all(isinstance(each, dict) for each in wanted):
            raise Refusal("invalid_arguments", why="missing required field: files")
        slots = {slot.file: slot for slot in self._slots.values()}
        for each in wanted:
            slot = slots.get(str(each.get("id")))
            if slot is None or slot.team is not team or slot.file not in self._uploaded or slot.file in self.files:
                raise Refusal("file_not_found")
        named = word(params, "channel_id") or word(params, "channels")
        channel = team.open_to_posts(team.enter(named)) if named else None
        thread = team.thread(channel, word(params, "thread_ts")) if channel else ""
        files = tuple(
            self.put(team, slots[each["id"]].name, self._uploaded.pop(each["id"]), each.get("title") or "", each["id"])
            for each in wanted
        )
        if channel is not None:
            text = word(params, "initial_comment")
            self._board.post(team, channel, team.bot.id, text, thread=thread, files=files)
        # Who asks is not told under which ts it was shared.
        return {"files": [file_of(self._truth, team, file) for file in files]}

    def _info(self, team: Team, params: dict[str, Any]) -> dict[str, Any]:
        team.need("files:read")
        file = self.files.get(need(params, "file"))
        if file is None or self._owners[file.id] is not team:
            raise Refusal("file_not_found")
        shares: dict[str, dict[str, list[dict[str, str]]]] = {}
        for message in self._truth.messages.values():
            if any(each.id == file.id for each in message.files):
                kind = "public" if team.channels[message.channel].kind == "channel" else "private"
                place = {"ts": message.ts, **({"thread_ts": message.thread} if message.thread else {})}
                shares.setdefault(kind, {}).setdefault(message.channel, []).append(place)
        return {"file": file_of(self._truth, team, file) | {"shares": shares}}

    def fetch(self, team: Team | None, path: str) -> File | None:
        """None is the login page, which comes with status 200."""
        owner, _, rest = path.removeprefix("/files-pri/").partition("/")
        file = self.files.get(owner.partition("-")[2])
        if team is None or file is None or "files:read" not in team.scopes or self._owners[file.id] is not team:
            return None
        return file if rest.rpartition("/")[2] == file.name else None
