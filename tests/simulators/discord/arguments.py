"""What Discord makes of a message before it takes it: lengths, embeds, components, mentions and files."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.simulators.discord.refusals import Refusal, Upload, invalid, required, too_long
from tests.simulators.discord.shapes import UPLOAD_BYTES
from tests.simulators.discord.truth import File

CONTENT_LENGTH = 2000
EMBEDS, EMBED_TOTAL = 10, 6000
FILES = 10
NONCE_LENGTH = 25
CUSTOM_ID_LENGTH, LABEL_LENGTH = 100, 80
ROWS, BUTTONS = 5, 5
COMPONENTS, COMPONENT_TEXT = 40, 4000
VOICE, RICH = 1 << 13, 1 << 15
FILE_SECONDS = 24 * 3600.0
WAVEFORM = "AAAA"

_USER, _ROLE = re.compile(r"<@!?(\d+)>"), re.compile(r"<@&(\d+)>")
_EVERYONE = re.compile(r"(?<![\w`])@(?:everyone|here)\b")
_EMBED_LENGTHS = {"title": 256, "description": 4096}
# Rows, buttons, the five kinds of select, and what only a rich message may hold.
_OLD_COMPONENTS = {1, 2, 3, 5, 6, 7, 8}


class Named(NamedTuple):
    """Whom a text mentions with effect."""

    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    everyone: bool = False

    @property
    def pings(self) -> tuple[str, ...]:
        return (*self.users, *(f"&{role}" for role in self.roles), *(("@everyone",) if self.everyone else ()))


def content_of(body: Mapping[str, Any]) -> str:
    """Without the blanks around it, which nobody is shown."""
    content = body.get("content")
    if content is None:
        return ""
    if not isinstance(content, str):
        raise invalid("content", "BASE_TYPE_STRING", "Could not interpret as string.")
    if len(content) > CONTENT_LENGTH:
        raise too_long("content", CONTENT_LENGTH)
    return content.strip()


def nonce_of(body: Mapping[str, Any]) -> str:
    nonce = body.get("nonce")
    if nonce is None:
        return ""
    if isinstance(nonce, bool) or not isinstance(nonce, (str, int)):
        raise invalid("nonce", "NONCE_TYPE_INVALID", "Nonce must be a string or an integer.")
    if len(str(nonce)) > NONCE_LENGTH:
        raise too_long("nonce", NONCE_LENGTH)
    return str(nonce)


def embeds_of(body: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    embeds = body.get("embeds") or []
    if len(embeds) > EMBEDS:
        raise too_long("embeds", EMBEDS)
    total = 0
    for place, embed in enumerate(embeds):
        parts: list[tuple[str, str, int]] = [
            (name, str(embed.get(name) or ""), limit) for name, limit in _EMBED_LENGTHS.items()
        ]
        parts.append(("footer.text", str((embed.get("footer") or {}).get("text") or ""), 2048))
        parts.append(("author.name", str((embed.get("author") or {}).get("name") or ""), 256))
        fields = embed.get("fields") or []
        if len(fields) > 25:
            raise too_long(f"embeds.{place}.fields", 25)
        for number, field in enumerate(fields):
            for name, limit in (("name", 256), ("value", 1024)):
                if not field.get(name):
                    raise required(f"embeds.{place}.fields.{number}.{name}")
                parts.append((f"fields.{number}.{name}", str(field[name]), limit))
        for name, text, limit in parts:
            if len(text) > limit:
                raise too_long(f"embeds.{place}.{name}", limit)
            total += len(text)
    if total > EMBED_TOTAL:
        raise invalid("embeds", "MAX_EMBED_SIZE_EXCEEDED", f"Embed size exceeds maximum size of {EMBED_TOTAL}")
    return tuple({"type": "rich", **embed} for embed in embeds)


def components_of(body: Mapping[str, Any], flags: int) -> tuple[dict[str, Any], ...]:
    components = body.get("components") or []
    inside = list(_inside(components))
    if flags & RICH:
        _check_rich(body, inside)
    else:
        _check_rows(components, inside)
    seen: set[str] = set()
    for path, each in inside:
        if each.get("type") == 2:
            _check_button(path, each)
        if not (id := each.get("custom_id")):
            continue
        if id in seen:
            raise invalid(path, "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated")
        seen.add(id)
    return tuple(components)


def _check_rich(body: Mapping[str, Any], inside: list[tuple[str, dict[str, Any]]]) -> None:
    for name in ("content", "embeds"):
        if body.get(name):
            raise invalid(
                name,
                "MESSAGE_CANNOT_USE_LEGACY_FIELDS_WITH_COMPONENTS_V2",
                f"The '{name}' field cannot be used when using MessageFlags.IS_COMPONENTS_V2",
            )
    if len(inside) > COMPONENTS:
        raise invalid("components", "BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {COMPONENTS} in length.")
    if sum(len(str(each.get("content") or "")) for _, each in inside if each.get("type") == 10) > COMPONENT_TEXT:
        raise invalid(
            "components",
            "COMPONENT_DISPLAYABLE_TEXT_SIZE_EXCEEDED",
            f"Total displayable text size exceeds maximum size of {COMPONENT_TEXT}",
        )


def _check_rows(components: list[dict[str, Any]], inside: list[tuple[str, dict[str, Any]]]) -> None:
    if len(components) > ROWS:
        raise invalid("components", "BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {ROWS} in length.")
    for place, row in enumerate(components):
        if row.get("type") != 1:
            raise invalid(f"components.{place}", "UNION_TYPE_CHOICES", 'Value of field "type" must be one of (1,).')
        if not 1 <= len(row.get("components") or ()) <= BUTTONS:
            message = f"Must be between 1 and {BUTTONS} in length."
            raise invalid(f"components.{place}.components", "BASE_TYPE_BAD_LENGTH", message)
    for path, each in inside:
        if each.get("type") not in _OLD_COMPONENTS:
            raise invalid(path, "UNION_TYPE_CHOICES", 'Value of field "type" must be one of (2, 3, 5, 6, 7, 8).')


def _check_button(path: str, button: Mapping[str, Any]) -> None:
    style = button.get("style")
    if style not in (1, 2, 3, 4, 5, 6):
        raise invalid(f"{path}.style", "BASE_TYPE_CHOICES", "Value must be one of {1, 2, 3, 4, 5, 6}.")
    if style == 5:
        if not button.get("url") or button.get("custom_id"):
            raise invalid(path, "BUTTON_COMPONENT_INVALID_URL", "A link button must have a url and no custom id")
    elif style != 6 and not button.get("custom_id"):
        raise invalid(path, "BUTTON_COMPONENT_CUSTOM_ID_REQUIRED", "A custom id is required")
    if len(str(button.get("custom_id") or "")) > CUSTOM_ID_LENGTH:
        raise too_long(f"{path}.custom_id", CUSTOM_ID_LENGTH)
    if len(str(button.get("label") or "")) > LABEL_LENGTH:
        raise too_long(f"{path}.label", LABEL_LENGTH)
    if not button.get("label") and not button.get("emoji") and style != 6:
        raise invalid(path, "BUTTON_COMPONENT_LABEL_REQUIRED", "A label or emoji is required")


def _inside(components: Iterable[dict[str, Any]], path: str = "components") -> Iterable[tuple[str, dict[str, Any]]]:
    for place, each in enumerate(components):
        here = f"{path}.{place}"
        yield here, each
        yield from _inside(each.get("components") or (), f"{here}.components")
        if isinstance(each.get("accessory"), dict):
            yield f"{here}.accessory", each["accessory"]


def named_in(text: str, roles: Iterable[str], body: Mapping[str, Any] | None = None, replied: str = "") -> Named:
    """People may name anybody; a call may say whom it allows, and whoever says nothing allows all."""
    users, named = _unique(_USER.findall(text)), [role for role in _unique(_ROLE.findall(text)) if role in set(roles)]
    everyone = _EVERYONE.search(text) is not None
    allowed = (body or {}).get("allowed_mentions")
    if allowed is None:
        return Named(_unique([*users, *([replied] if replied else [])]), tuple(named), everyone)
    parse = allowed.get("parse") or []
    if unknown := set(parse) - {"users", "roles", "everyone"}:
        raise invalid("allowed_mentions.parse", "BASE_TYPE_CHOICES", f"Value must not be {sorted(unknown)}")
    for kind in ("users", "roles"):
        if kind in parse and allowed.get(kind):
            raise invalid(
                "allowed_mentions",
                "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE",
                f'parse:["{kind}"] and {kind}: [ids...] are mutually exclusive.',
            )
    wanted = {kind: {str(id) for id in allowed.get(kind) or ()} for kind in ("users", "roles")}
    kept = [id for id in users if "users" in parse or id in wanted["users"]]
    kept += [replied] if replied and allowed.get("replied_user") else []
    return Named(
        _unique(kept),
        tuple(id for id in named if "roles" in parse or id in wanted["roles"]),
        everyone and "everyone" in parse,
    )


def _unique(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))


def files_of(
    body: Mapping[str, Any], uploads: Mapping[str, Upload], new_id: Any, until: float, kept: Iterable[File] = ()
) -> tuple[File, ...]:
    """Those that came along, and of those that stood there the ones that the list still names."""
    listed = body.get("attachments")
    by_index = {name.removeprefix("files[").removesuffix("]"): upload for name, upload in uploads.items()}
    if listed is None:
        listed = [{"id": file.id} for file in kept] + [{"id": index} for index in by_index]
    if len(listed) > FILES:
        raise too_long("attachments", FILES)
    standing = {file.id: file for file in kept}
    files = []
    for place, about in enumerate(listed):
        id = str(about.get("id", ""))
        if id in standing:
            files.append(standing[id])
            continue
        if id not in by_index:
            raise invalid(f"attachments.{place}.id", "ATTACHMENT_NOT_FOUND", "The uploaded file was not found")
        files.append(_file(by_index[id], about, new_id(), until))
    return tuple(files)


def _file(upload: Upload, about: Mapping[str, Any], id: str, until: float) -> File:
    if len(upload.data) > UPLOAD_BYTES:
        raise Refusal(413, 40005, "Request entity too large")
    name = re.sub(r"[^\w.\-]", "_", str(about.get("filename") or upload.name)) or "file"
    return File(
        id=id,
        name=name,
        data=upload.data,
        type=mimetypes.guess_type(name)[0] or "application/octet-stream",
        description=str(about.get("description") or ""),
        seconds=float(about.get("duration_secs") or 0.0),
        waveform=str(about.get("waveform") or ""),
        until=until,
    )


def check_voice(text: str, embeds: tuple[Any, ...], files: tuple[File, ...]) -> None:
    if text or embeds:
        raise Refusal(400, 50159, "Voice messages do not support additional content.")
    if len(files) != 1:
        raise Refusal(400, 50160, "Voice messages must have a single audio attachment.")
    if not files[0].seconds or not files[0].waveform:
        raise Refusal(400, 50161, "Voice messages must have supporting metadata.")
