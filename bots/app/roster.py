"""The configured bots, `[bot]` and `[bots.NAME]`, with the keys and texts that their settings refer to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import Field, SecretStr

from tidings.bots.assistant.settings import Assistant, ModelChoice
from tidings.core.busy import Busy
from tidings.core.errors import ConfigError
from tidings.core.settings import Unset

PREFIX = "TIDINGS_"
DEMO, ASSISTANT = "demo", "assistant"

C = TypeVar("C", bound=ModelChoice)


class Bot(Assistant):
    agent: str = Field(
        "",
        description='Who answers: assistant, demo, echo, or your own as "package.module:object"; '
        "empty is the assistant where a model is set, else the demo.",
    )
    name: str = Field("", description="The bot's name; empty means the agent's name.")
    busy: Unset[Busy] = Field(
        None, description="What becomes of messages that come while this bot answers, if not as [limits] busy says."
    )

    @property
    def chosen_agent(self) -> str:
        return self.agent or (ASSISTANT if self.model else DEMO)

    @property
    def called(self) -> str:
        """The bot's name, or the last word of its agent; never empty."""
        return self.name or re.split(r"[.:]", self.chosen_agent.strip(".:"))[-1] or "bot"


class Source(NamedTuple):
    """Where settings come from: the file, `secrets.toml` beside it, and the environment, which overrides both."""

    file: Path
    environment: Mapping[str, str]
    secret: Mapping[str, Any] = {}

    def place(self, *names: str | int) -> str:
        """How an error names one setting: by its environment variable if set, else by file, table and key."""
        for length in range(len(names), 0, -1):
            wanted = variable(*names[:length])
            for name in self.environment:
                if name.upper() == wanted:
                    return name
        labels: list[str] = []
        for each in names:
            if isinstance(each, int) and labels:
                # People count from one.
                labels[-1] += f" #{each + 1}"
            else:
                labels.append(str(each))
        *above, last = labels
        return f"{self._files(names)}: [{'.'.join(above)}] {last}" if above else f"{self._files(names)}: [{last}]"

    def _files(self, names: tuple[str | int, ...]) -> str:
        found: Any = self.secret
        for name in names:
            if not isinstance(found, Mapping) or name not in found:
                return str(self.file)
            found = found[name]
        # Either file may hold the wrong half of a table.
        secrets = secrets_file(self.file)
        return f"{self.file} or {secrets.name}" if isinstance(found, Mapping) else str(secrets)


def secrets_file(file: Path) -> Path:
    """The file for secrets, beside the settings; only its owner may read it."""
    return file.with_name("secrets.toml")


def variable(*names: str | int) -> str:
    """The environment variable of a setting; it has no dashes."""
    return PREFIX + "__".join(map(str, names)).upper().replace("-", "_")


def assemble(one: Bot, several: Mapping[str, Bot], source: Source) -> dict[str, Bot]:
    """The bots by name, the default first, with keys and texts read in. Raises ConfigError."""
    named = {name: _complete(bot, ("bots", name), source) for name, bot in several.items()}
    roster = {name: bot.model_copy(update={"name": name}) for name, bot in named.items()}
    if "" in roster:
        raise ConfigError(f'{source.file}: [bots.""] has no name')
    # If there are `[bots.NAME]` tables, an untouched `[bot]` does not count as a bot.
    if roster and one == Bot():
        return roster
    if one.called in roster:
        raise ConfigError(f"{source.place('bot')} and [bots.{one.called}] have one name; give [bot] another name")
    return {one.called: _complete(one, ("bot",), source), **roster}


def busy_modes(bots: Mapping[str, Bot]) -> dict[str, Busy]:
    """The busy modes of the bots that have one of their own."""
    return {name: bot.busy for name, bot in bots.items() if bot.busy}


def advise(one: Bot, several: Mapping[str, Bot], source: Source) -> Iterator[str]:
    """Warnings about settings that are valid but hardly intended."""
    for names, bot in ((("bot",), one), *((("bots", name), bot) for name, bot in several.items())):
        if bot.chosen_agent == DEMO and (bot.base_url or bot.api_key.get_secret_value() or bot.fallbacks):
            yield f"{source.place(*names, 'model')} is not set, so the demo answers and asks no model"
        if names[1:] and bot.name not in ("", names[1]):
            yield f"{source.place(*names, 'name')} is ignored: the bot is called {names[1]}"


def _complete(bot: Bot, names: tuple[str, ...], source: Source) -> Bot:
    if bot.chosen_agent == ASSISTANT and not bot.model:
        place = source.place(*names, "agent")
        raise ConfigError(f'{place} = "assistant" needs a model, such as model = "openai:gpt-5-mini"')
    fallbacks = []
    for number, choice in enumerate(bot.fallbacks):
        place = source.place(*names, "fallbacks", number, "model")
        if not choice.model:
            raise ConfigError(f"{place} is empty")
        # A fallback with a bare name is asked at the bot's own address if the bot's model is a bare name too.
        _check_name(choice.model, choice.base_url or ("" if ":" in bot.model else bot.base_url), place)
        fallbacks.append(_with_key(choice, source.place(*names, "fallbacks", number, "api_key"), source))
    _check_name(bot.model, bot.base_url, source.place(*names, "model"))
    persona = _persona(bot.persona, source.place(*names, "persona"), source.file.parent)
    bot = _with_key(bot, source.place(*names, "api_key"), source)
    return bot.model_copy(update={"persona": persona, "fallbacks": tuple(fallbacks)})


def _check_name(model: str, base_url: str, place: str) -> None:
    provider, colon, name = model.partition(":")
    if model and not base_url and not (provider and colon and name):
        right = 'write "provider:name", such as "openai:gpt-5-mini"; a bare name needs a base_url'
        raise ConfigError(f'{place} = "{model}" is not whole: {right}')


def _with_key(choice: C, place: str, source: Source) -> C:
    written = choice.api_key.get_secret_value().strip()
    kind, colon, name = written.partition(":")
    if not colon or kind not in ("env", "file"):
        return choice
    if kind == "env":
        found = source.environment.get(name, "").strip()
        trouble = f"names the variable {name}, which is not set; set it, or write file:PATH"
    else:
        found = _read(name, source.file.parent, place).strip()
        trouble = f"names the file {name}, which is empty; write the key into it"
    if not found:
        raise ConfigError(f"{place} {trouble}")
    return choice.model_copy(update={"api_key": SecretStr(found)})


def _persona(written: str, place: str, folder: Path) -> str:
    written = written.strip()
    if not _is_path(written):
        return written
    text = _read(written, folder, place).strip()
    if not text:
        raise ConfigError(f"{place} names the file {written}, which is empty; write into it who the bot is")
    return text


def _is_path(persona: str) -> bool:
    return persona.endswith(".md") and "\n" not in persona


def files_named(written: Mapping[str, Any]) -> Iterator[str]:
    """The files with personas and keys that a start with these settings needs."""
    several = written.get("bots")
    for bot in (written.get("bot"), *(several.values() if isinstance(several, dict) else ())):
        if not isinstance(bot, dict):
            continue
        if _is_path(persona := str(bot.get("persona", "")).strip()):
            yield persona
        fallbacks = bot.get("fallbacks")
        for choice in (bot, *(fallbacks if isinstance(fallbacks, list) else ())):
            key = str(choice.get("api_key", "")) if isinstance(choice, dict) else ""
            if key.strip().startswith("file:"):
                yield key.strip().removeprefix("file:")


def _read(name: str, folder: Path, place: str) -> str:
    try:
        return (folder / Path(name).expanduser()).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{place} names the file {name}, which is not UTF-8 text") from None
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{place} names the file {name}, which cannot be read: {reason}") from error
