"""Which platforms there are: a name leads to its settings and its adapter, imported only when needed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple, Protocol, Self, cast

from tidings.adapters.shared.checks import Finding
from tidings.core.adapter import Adapter, Host
from tidings.core.errors import Unknown
from tidings.core.settings import Section


class PlatformSettings(Protocol):
    """A platform's section; each account brings the settings that its adapter is built with."""

    def by_account(self) -> Mapping[str, Self]: ...


Examine = Callable[[str, Section], Awaitable[list[Finding]]]


class Entry(NamedTuple):
    """Where things live, as `module:name`. The settings' module imports nothing heavy."""

    settings: str
    adapter: str
    # Asks the platform whether the settings are right, for `tidings doctor`; empty where there is nothing to ask.
    examine: str = ""
    # The name of its section where that is not the platform's own.
    section: str = ""
    # On this machine: many quick starts burden no foreign server.
    nearby: bool = False
    # The shape of its ids, as a pattern and in words; empty where nobody is admitted by an id.
    ids: str = ""
    ids_in_words: str = ""
    # How an id begins that is surely a group's and no person's.
    groups: tuple[str, ...] = ()

    def load_settings(self) -> type[Section]:
        return cast(type[Section], _load(self.settings))

    def load_adapter(self) -> Callable[[str, Section, Host], Adapter]:
        return cast(Callable[[str, Section, Host], Adapter], _load(self.adapter))

    def load_examine(self) -> Examine | None:
        return cast(Examine, _load(self.examine)) if self.examine else None


PLATFORMS: dict[str, Entry] = {
    "console": Entry(
        "tidings.adapters.console.settings:ConsoleSettings",
        "tidings.adapters.console.adapter:ConsoleAdapter",
        nearby=True,
    ),
    "telegram": Entry(
        "tidings.adapters.telegram.settings:TelegramSettings",
        "tidings.adapters.telegram.adapter:TelegramAdapter",
        "tidings.adapters.telegram.checks:examine",
        ids=r"-?[0-9]{1,19}",
        ids_in_words="a number, such as telegram:123456789",
        groups=("-",),
    ),
    "discord": Entry(
        "tidings.adapters.discord.settings:DiscordSettings",
        "tidings.adapters.discord.adapter:DiscordAdapter",
        "tidings.adapters.discord.checks:examine",
        ids=r"[0-9]{15,20}",
        ids_in_words="a number of 15 digits or more, such as discord:123456789012345678",
    ),
    "slack": Entry(
        "tidings.adapters.slack.settings:SlackSettings",
        "tidings.adapters.slack.adapter:SlackAdapter",
        "tidings.adapters.slack.checks:examine",
        ids=r"[UWCG][0-9A-Z]{2,20}",
        ids_in_words="capital letters and digits after U or W (a person), C or G (a channel), such as slack:U012AB3CD",
        groups=("C", "G"),
    ),
    # Its section is the listener's, on which other platforms have their routes, too.
    "api": Entry(
        "tidings.adapters.api.settings:HttpSettings",
        "tidings.adapters.api.adapter:ApiAdapter",
        section="http",
        nearby=True,
    ),
}


def check_id(id: str) -> None:
    """Raises Unknown, with one line that says why, for an id that can name nobody."""
    where, colon, own = id.partition(":")
    if not colon:
        raise Unknown(f"{id!r} is not an id; write platform:ID, such as telegram:123456789")
    name, at, account = where.partition("@")
    if name not in PLATFORMS:
        known = ", ".join(name for name, entry in PLATFORMS.items() if entry.ids)
        raise Unknown(f"there is no platform {name!r}; there are: {known}")
    entry = PLATFORMS[name]
    if not entry.ids:
        raise Unknown(f"{name} needs no admission: its users are identified in another way")
    if bool(at) != bool(account) or not re.fullmatch(entry.ids, own):
        raise Unknown(f"{id!r} is not an id of {name}: it must be {entry.ids_in_words}")


def is_group(id: str) -> bool:
    """Tells whether this is surely the id of a group; many platforms do not show that in their ids."""
    where, _, own = id.partition(":")
    entry = PLATFORMS.get(where.partition("@")[0])
    return entry is not None and own.startswith(entry.groups)


def sections() -> dict[str, type[Section]]:
    return {entry.section or name: entry.load_settings() for name, entry in PLATFORMS.items()}


def configured(settings: Mapping[str, Section]) -> Iterator[tuple[str, str, Section]]:
    """Each account that is to run, as platform, account and its settings."""
    for name, entry in PLATFORMS.items():
        accounts = cast(PlatformSettings, settings[entry.section or name]).by_account()
        for account, section in accounts.items():
            yield name, account, cast(Section, section)


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
