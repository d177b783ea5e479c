"""Reads the settings: tidings.toml, secrets.toml, then the environment; an error names the place."""

from __future__ import annotations

import difflib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError, create_model
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from tidings.bots.app import roster
from tidings.bots.app.roster import PREFIX, Bot, Source, secrets_file, variable
from tidings.core.errors import ConfigError
from tidings.core.settings import Core, Section

KEYLESS = ("demo", "echo")
# The variables in which providers' libraries look for keys; our own variables are known as secrets anyway.
KEY_VARIABLE = re.compile(rf"(?!{PREFIX}).*_((API|INFERENCE|ACCESS)_KEY|TOKEN(_BEDROCK)?)")
# Variables that are no settings: they belong to the command line, the failpoints and the children of a run.
NOT_SETTINGS = re.compile(r"TIDINGS_(HOME|CONFIG|FAILPOINT.*|SESSION_.*)", re.IGNORECASE)
SECRET = re.compile(r"(^|_)(tokens?|keys?|secrets?|password|passphrase|credentials?)$", re.IGNORECASE)


class Texts(NamedTuple):
    """The text of the two files; None for a missing file."""

    tidings: str | None = None
    secrets: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """`warnings` are sentences for the owner; `secrets` must never be shown."""

    core: Core
    # The bots by name, the default first; there is always one.
    bots: Mapping[str, Bot]
    platforms: Mapping[str, Section]
    file: Path
    warnings: tuple[str, ...]
    secrets: tuple[str, ...] = field(repr=False)
    texts: Texts = field(repr=False, default=Texts())
    # The error in the file, if the last good settings are used instead.
    broken: str = ""

    @property
    def bot(self) -> Bot:
        """The default bot."""
        return next(iter(self.bots.values()))


def load(
    sections: Mapping[str, type[Section]],
    home: Path,
    file: Path | None,
    environment: Mapping[str, str],
    *,
    texts: Texts | None = None,
    beside: Mapping[str, Any] | None = None,
) -> Loaded:
    """A file that was named must exist; the one in the home need not. Raises ConfigError, one line.

    `texts` replaces the content of the files; `beside` overrides the files, and the environment overrides `beside`.
    """
    path = file or home / "tidings.toml"
    texts = texts or read(path, must_exist=file is not None)
    plain, secret = parse(path, texts.tidings), parse(secrets_file(path), texts.secrets)
    source = Source(path, environment, secret)
    written = merged(merged(plain, secret), beside or {})
    model = _model(sections, environment, written)
    try:
        settings = model(**written)
    except ValidationError as error:
        raise ConfigError(_complaint(error, source)) from None
    values = {name: getattr(settings, name) for name in model.model_fields}
    one, several = values.pop("bot"), values.pop("bots")
    bots = roster.assemble(one, several, source)
    core = Core(**{name: values[name] for name in Core.model_fields})
    _check_rules(core, bots, source)
    unknown = (
        _unknown_in_file(model, plain, path),
        _unknown_in_file(model, secret, secrets_file(path)),
        _unknown_in_environment(model, environment),
    )
    secrets = [*_secrets(values), *_secrets(settings.model_extra or {}), *_secrets(bots)]
    # The key of a model may come from the environment alone.
    if any(bot.chosen_agent not in KEYLESS for bot in bots.values()):
        secrets += [value for name, value in environment.items() if KEY_VARIABLE.fullmatch(name.upper())]
    return Loaded(
        core=core,
        bots=bots,
        platforms={name: values[name] for name in sections},
        file=source.file,
        warnings=(*chain(*unknown), *roster.advise(one, several, source), *_advise_allowances(core, bots, source)),
        secrets=tuple(dict.fromkeys(filter(None, secrets))),
        texts=texts,
    )


def known(sections: Mapping[str, type[Section]]) -> dict[str, Any]:
    """Every section of tidings.toml with its type: a model, or a dict or tuple of models."""
    core = {name: info.annotation for name, info in Core.model_fields.items()}
    return {"bot": Bot, "bots": dict[str, Bot], **core, **sections}


def _check_rules(core: Core, bots: Mapping[str, Bot], source: Source) -> None:
    for number, rule in enumerate(core.rules):
        if rule.bot and rule.bot not in bots:
            place = source.place("rules", number, "bot")
            raise ConfigError(f"{place} = {rule.bot!r} is no bot; there are: {', '.join(bots)}")
    lists = [("board", core.board.assignees)]
    lists += [(f"rules #{number}", rule.assignees or ()) for number, rule in enumerate(core.rules, start=1)]
    for section, assignees in lists:
        for name in assignees:
            if name not in bots and name not in core.board.workers:
                known = ", ".join((*bots, *core.board.workers))
                place = source.place(section, "assignees")
                raise ConfigError(f"{place}: there is no bot or worker named {name!r}; there are: {known}")


def _advise_allowances(core: Core, bots: Mapping[str, Bot], source: Source) -> Iterator[str]:
    """Warnings about allowances that limit nothing, because their name is nobody's."""
    allowances = core.allowances
    for name in allowances.bots:
        if name not in bots:
            place = source.place("allowances", "bots", name)
            yield f"{place} limits nothing: there is no such bot, only {', '.join(bots)}"
    for table, named in (("people", allowances.people), ("chats", allowances.chats)):
        for name in named:
            if ":" not in name and not name.startswith("psn_"):
                place = source.place("allowances", table, name)
                yield f"{place} limits nothing: write platform:ID, such as telegram:123"


def _model(
    sections: Mapping[str, type[Section]], environment: Mapping[str, str], written: Mapping[str, Any]
) -> type[BaseSettings]:
    class Environment(EnvSettingsSource):
        def _load_env_vars(self) -> Mapping[str, str | None]:
            return {name.lower(): value for name, value in environment.items()}

        def __call__(self) -> dict[str, Any]:
            return _respell(super().__call__(), written)

        def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:
            """Reads JSON, or words with commas for a list; the validation judges other text and names the setting."""
            annotation = getattr(field, "annotation", None)
            if get_origin(annotation) in (tuple, list) and not value.lstrip().startswith("["):
                return [item.strip() for item in value.split(",") if item.strip()]
            try:
                return json.loads(value)
            except ValueError:
                return value

    class Base(BaseSettings):
        model_config = SettingsConfigDict(
            env_prefix=PREFIX, env_nested_delimiter="__", extra="allow", frozen=True, validate_default=False
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return Environment(settings_cls), init_settings

    fields: dict[str, Any] = {name: (kind, (get_origin(kind) or kind)()) for name, kind in known(sections).items()}
    return create_model("Settings", __base__=Base, **fields)


def _respell(values: dict[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Spells names from the environment as the file does, because variables have neither small letters nor dashes."""
    spelling = {name.lower().replace("-", "_"): name for name in written}
    respelt = {}
    for name, value in values.items():
        name = spelling.get(name, name)
        below = written.get(name)
        respelt[name] = _respell(value, below) if isinstance(value, dict) and isinstance(below, dict) else value
    return respelt


def read(path: Path, *, must_exist: bool) -> Texts:
    """Reads both files. Raises ConfigError, also if other users may read the secrets."""
    try:
        return Texts(_text(path, must_exist=must_exist), _text(secrets_file(path), closed=True))
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _text(path: Path, *, must_exist: bool = False, closed: bool = False) -> str | None:
    try:
        with path.open("rb") as file:
            if closed and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise ConfigError(f"{path}: others may read these secrets; close it with: chmod 600 {path}")
            return file.read().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if not must_exist:
            return None
        raise ConfigError(f"{path}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from None


def parse(path: Path, text: str | None) -> dict[str, Any]:
    """Parses TOML. Raises ConfigError with the place of the error."""
    try:
        return tomllib.loads(text or "")
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merges two tables; a value that is not a table is replaced."""
    result = dict(below)
    for name, value in above.items():
        under = result.get(name)
        result[name] = merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return result


def _complaint(error: ValidationError, source: Source) -> str:
    first, *others = error.errors(include_url=False)
    names = [str(name) for name in first["loc"]]
    more = f" (and {len(others)} more)" if others else ""
    return f"{source.place(*first['loc'])}{_value(names, first)} {_allowed(first)}{more}"


def _value(names: list[str], error: ErrorDetails) -> str:
    # A section may contain secrets, so its value is not shown.
    if any(map(SECRET.search, names)) or isinstance(error["input"], (dict, list, tuple)):
        return ""
    text = repr(error["input"])
    return f" = {text if len(text) <= 60 else text[:57] + '...'}"


def _allowed(error: ErrorDetails) -> str:
    if error["type"] == "missing":
        return "is missing"
    if error["type"] in ("model_type", "dict_type"):
        return "must be a table of settings"
    if error["type"] in ("tuple_type", "list_type"):
        return 'must be a list, such as ["one", "two"]'
    message = error["msg"].removeprefix("Value error, ").replace("\n", " ")
    return re.sub(r"^\w+ should", "must", message)


def _unknown_in_file(model: type[BaseModel], written: Mapping[str, Any], path: Path, table: str = "") -> Iterator[str]:
    for name, value in written.items():
        below = _below(model, name)
        if name not in model.model_fields:
            what = f"[{table}] has no key" if table else "there is no section"
            yield f"{path}: {what} {name!r}{_nearest(name, model.model_fields)}; it is ignored"
        elif below is not None:
            inside = f"{table}.{name}" if table else name
            for key, rows in _tables(model, name, value):
                yield from _unknown_in_file(below, rows, path, f"{inside}{key}")


def _tables(model: type[BaseModel], name: str, value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables below a key: one, several by name such as accounts, or a list such as rules."""
    rows = {"": value}
    if isinstance(value, list):
        rows = {f" #{number}": row for number, row in enumerate(value, 1)}
    elif isinstance(value, dict) and get_origin(model.model_fields[name].annotation) is dict:
        rows = {f".{key}": row for key, row in value.items()}
    yield from ((key, row) for key, row in rows.items() if isinstance(row, dict))


def _below(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    info = model.model_fields.get(name)
    if info is None:
        return None
    for candidate in (info.annotation, *get_args(info.annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _unknown_in_environment(model: type[BaseModel], environment: Mapping[str, str]) -> Iterator[str]:
    for name in environment:
        if not name.upper().startswith(PREFIX) or NOT_SETTINGS.fullmatch(name):
            continue
        if not _is_known(model, name.lower().removeprefix(PREFIX.lower()).split("__")):
            yield f"{name} sets nothing{_nearest(name.upper(), _variables(model))}; it is ignored"


def _is_known(model: type[BaseModel], names: list[str]) -> bool:
    first, *rest = names
    if first not in model.model_fields:
        return False
    below = _below(model, first)
    container = get_origin(model.model_fields[first].annotation)
    if container is tuple:
        return not rest
    if container is dict:
        rest = rest[1:]
    return not rest or (below is not None and _is_known(below, rest))


def _variables(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[str]:
    for name, info in model.model_fields.items():
        below = _below(model, name)
        container = get_origin(info.annotation)
        if above or below is None:
            yield variable(*above, name)
        if below is not None and container is not tuple:
            yield from _variables(below, (*above, name, "NAME") if container is dict else (*above, name))


def _nearest(name: str, names: Any) -> str:
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.75)
    return f", did you mean {near[0]}?" if near else ""


def _secrets(values: Iterable[tuple[str, Any]] | Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items() if isinstance(values, Mapping) else values:
        yield from _secrets_of(name, value)


def _secrets_of(name: str, value: Any) -> Iterator[str]:
    match value:
        case SecretStr():
            yield value.get_secret_value()
        case BaseModel() | dict():
            yield from _secrets(value)
        case list() | tuple():
            for item in value:
                yield from _secrets_of(name, item)
        case str() if value and SECRET.search(name):
            yield value
        case _:
            return
