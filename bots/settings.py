"""Reads the settings: tidings.toml, then the environment over it; every complaint names its place."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, Field, SecretStr, ValidationError, create_model
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from core.errors import ConfigError
from core.settings import Core, Section

PREFIX = "TIDINGS_"
# Read by others: the command line, the failpoints, and the children of a run.
NOT_SETTINGS = re.compile(r"TIDINGS_(HOME|CONFIG|FAILPOINT.*|SESSION_.*)", re.IGNORECASE)
SECRET = re.compile(r"(^|_)(tokens?|keys?|secrets?|password|passphrase|credentials?)$", re.IGNORECASE)


class Bot(Section):
    agent: str = Field(
        "demo", min_length=1, description='Who answers: demo, echo, or your own as "package.module:object".'
    )
    name: str = Field("", description="What the bot is called; empty is the agent's own name.")

    @property
    def called(self) -> str:
        """Never empty: the name, else the last word of where the agent lives."""
        return self.name or re.split(r"[.:]", self.agent.strip(".:"))[-1] or "bot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """`warnings` are sentences for the owner; `secrets` must never be shown."""

    core: Core
    bot: Bot
    platforms: Mapping[str, Section]
    file: Path
    warnings: tuple[str, ...]
    secrets: tuple[str, ...] = field(repr=False)


def load(
    sections: Mapping[str, type[Section]], home: Path, file: Path | None, environment: Mapping[str, str]
) -> Loaded:
    """A file that was named must exist; the one in the home need not. Raises ConfigError, one line."""
    path = file or home / "tidings.toml"
    written = _read(path, must_exist=file is not None)
    model = _model(sections, environment)
    try:
        settings = model(**written)
    except ValidationError as error:
        raise ConfigError(_complaint(error, path, environment)) from None
    warnings = [*_unknown_in_file(model, written, path), *_unknown_in_environment(model, environment)]
    return Loaded(
        core=Core(**{name: getattr(settings, name) for name in Core.model_fields}),
        bot=cast(Bot, getattr(settings, "bot")),  # noqa: B009 - The model is made at run time.
        platforms={name: getattr(settings, name) for name in sections},
        file=path,
        warnings=tuple(warnings),
        secrets=tuple(dict.fromkeys(_secrets(settings))),
    )


def known(sections: Mapping[str, type[Section]]) -> dict[str, type[BaseModel]]:
    """Every section with its model, as they stand in tidings.toml."""
    core = {name: cast(type[BaseModel], info.annotation) for name, info in Core.model_fields.items()}
    return {"bot": Bot, **core, **sections}


def _model(sections: Mapping[str, type[Section]], environment: Mapping[str, str]) -> type[BaseSettings]:
    class Environment(EnvSettingsSource):
        def _load_env_vars(self) -> Mapping[str, str | None]:
            return {name.lower(): value for name, value in environment.items()}

        def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:
            """A list may be plain words with commas; what is no JSON fails in validation, by name."""
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

    fields: dict[str, Any] = {name: (section, section()) for name, section in known(sections).items()}
    return create_model("Settings", __base__=Base, **fields)


def _read(path: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if not must_exist:
            return {}
        raise ConfigError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None


def _complaint(error: ValidationError, path: Path, environment: Mapping[str, str]) -> str:
    first, *others = error.errors(include_url=False)
    names = [str(name) for name in first["loc"]]
    more = f" (and {len(others)} more)" if others else ""
    return f"{_place(names, path, environment)}{_value(names, first)} {_allowed(first)}{more}"


def _place(names: list[str], path: Path, environment: Mapping[str, str]) -> str:
    for length in range(len(names), 0, -1):
        variable = _variable(names[:length])
        for name in environment:
            if name.upper() == variable:
                return name
    return f"{path}: [{'.'.join(names[:-1])}] {names[-1]}" if names[1:] else f"{path}: [{names[0]}]"


def _value(names: list[str], error: ErrorDetails) -> str:
    # The value of a section may hold secrets further down.
    if any(map(SECRET.search, names)) or isinstance(error["input"], (dict, list, tuple)):
        return ""
    text = repr(error["input"])
    return f" = {text if len(text) <= 60 else text[:57] + '...'}"


def _allowed(error: ErrorDetails) -> str:
    if error["type"] in ("model_type", "dict_type"):
        return "must be a table of settings"
    if error["type"] in ("tuple_type", "list_type"):
        return 'must be a list, such as ["one", "two"]'
    message = error["msg"].removeprefix("Value error, ").replace("\n", " ")
    return re.sub(r"^\w+ should", "must", message)


def _variable(names: list[str]) -> str:
    return PREFIX + "__".join(names).upper()


def _unknown_in_file(model: type[BaseModel], written: Mapping[str, Any], path: Path, table: str = "") -> Iterator[str]:
    for name, value in written.items():
        below = _below(model, name)
        if name not in model.model_fields:
            what = f"[{table}] has no key" if table else "there is no section"
            yield f"{path}: {what} {name!r}{_nearest(name, model.model_fields)}; it is ignored"
        elif isinstance(value, dict) and below is not None:
            inside = f"{table}.{name}" if table else name
            for key, rows in _tables(model, name, value):
                yield from _unknown_in_file(below, rows, path, f"{inside}.{key}" if key else inside)


def _tables(model: type[BaseModel], name: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """One table, or the tables by name where the names are free, such as accounts."""
    if get_origin(model.model_fields[name].annotation) is dict:
        yield from ((key, rows) for key, rows in value.items() if isinstance(rows, dict))
    else:
        yield "", value


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
    if get_origin(model.model_fields[first].annotation) is dict:
        rest = rest[1:]
    return not rest or (below is not None and _is_known(below, rest))


def _variables(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[str]:
    for name in model.model_fields:
        below = _below(model, name)
        if below is None:
            yield _variable([*above, name])
        else:
            yield from _variables(below, (*above, name))


def _nearest(name: str, names: Any) -> str:
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.75)
    return f", did you mean {near[0]}?" if near else ""


def _secrets(model: BaseModel) -> Iterator[str]:
    for name, value in model:
        yield from _secrets_of(name, value)


def _secrets_of(name: str, value: Any) -> Iterator[str]:
    match value:
        case SecretStr():
            yield value.get_secret_value()
        case BaseModel():
            yield from _secrets(value)
        case dict():
            for key, item in value.items():
                yield from _secrets_of(str(key), item)
        case list() | tuple():
            for item in value:
                yield from _secrets_of(name, item)
        case str() if value and SECRET.search(name):
            yield value
        case _:
            return
