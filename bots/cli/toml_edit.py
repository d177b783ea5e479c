"""Changes single settings in a TOML file and leaves everything else as it is written."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidings.bots.app.last_good import write
from tidings.bots.app.settings import merged, parse
from tidings.core.errors import ConfigError

# By table and key.
Changes = Mapping[tuple[str, str], Any]


def save(path: Path, changes: Changes) -> Path | None:
    """Writes what differs, and names the copy of what was there before; a new file is for the owner's eyes alone.

    Raises ConfigError for a file in which a line of ours would mean something else.
    """
    try:
        # As it is: whoever ends lines in another way goes on to.
        before = path.read_bytes().decode("utf-8") if path.exists() else ""
        after = amend(before, changes, path)
        if after == before:
            return None
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = _copy(path) if before else None
        known = path.stat() if before else None
        write(path, after, known.st_mode & 0o777 if known else 0o600)
        if known and (known.st_uid, known.st_gid) != (path.stat().st_uid, path.stat().st_gid):
            os.chown(path, known.st_uid, known.st_gid)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    return copy


def amend(text: str, changes: Changes, path: Path) -> str:
    """Comments, order and keys that nobody knows stay."""
    wanted = parse(path, text)
    for (table, key), value in changes.items():
        nested: Any = {key: value}
        for name in reversed(table.split(".")):
            nested = {name: nested}
        if merged(wanted, nested) == wanted:
            continue
        wanted = merged(wanted, nested)
        text = _set(text, table, key, f"{key} = {_value(value)}")
        # Multi-line values and inline tables are beyond us, and must not be guessed at.
        if not _says(text, wanted):
            raise ConfigError(f"{path}: write it yourself, since the file is laid out unusually: [{table}] {key} = …")
    return text


def _says(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _set(text: str, table: str, key: str, line: str) -> str:
    lines = text.removesuffix("\n").split("\n") if text else []
    header = re.compile(rf"\s*\[\s*{re.escape(table)}\s*\]\s*(#.*)?")
    start = next((number for number, each in enumerate(lines) if header.fullmatch(each)), None)
    if start is None:
        gap = [""] if lines and lines[-1].strip() else []
        return "\n".join([*lines, *gap, f"[{table}]", line]) + "\n"
    end = next((n for n in range(start + 1, len(lines)) if lines[n].lstrip().startswith("[")), len(lines))
    spelt = re.compile(rf"\s*{re.escape(key)}\s*=")
    known = next((number for number in range(start + 1, end) if spelt.match(lines[number])), None)
    if known is None:
        lines.insert(start + 1, line)
    else:
        lines[known] = line + _comment(lines[known])
    return "\n".join(lines) + "\n"


def _comment(line: str) -> str:
    """The comment after a value, with the space before it; a # inside a string does not begin one."""
    unquoted = max(line.rfind('"'), line.rfind("'")) + 1
    start = line.find("#", unquoted)
    while start > 0 and not line[start - 1].isspace():
        start = line.find("#", start + 1)
    return line[len(line[:start].rstrip()) :] if start > 0 else ""


def _value(value: Any) -> str:
    """Whatever JSON writes, TOML reads, of the kinds that are asked for."""
    return json.dumps(value, ensure_ascii=False)


def _copy(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    copy = path.with_name(f"{path.name}.{stamp}.bak")
    number = 1
    while copy.exists():
        number += 1
        copy = path.with_name(f"{path.name}.{stamp}-{number}.bak")
    write(copy, "")
    shutil.copyfile(path, copy)
    return copy
