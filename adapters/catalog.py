"""Which platforms there are: a name leads to its settings and its adapter, imported only when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple, Protocol, Self, cast

from core.adapter import Adapter, Host
from core.settings import Section


class PlatformSettings(Protocol):
    """A platform's section; each account brings the settings that its adapter is built with."""

    def accounts(self) -> Mapping[str, Self]: ...


class Entry(NamedTuple):
    """Where the two classes live, as `module:Class`. The settings' module imports nothing heavy."""

    settings: str
    adapter: str

    def load_settings(self) -> type[Section]:
        return cast(type[Section], _load(self.settings))

    def load_adapter(self) -> Callable[[str, Section, Host], Adapter]:
        return cast(Callable[[str, Section, Host], Adapter], _load(self.adapter))


PLATFORMS: dict[str, Entry] = {
    "console": Entry("adapters.console.settings:ConsoleSettings", "adapters.console.adapter:ConsoleAdapter"),
}


def sections() -> dict[str, type[Section]]:
    return {name: entry.load_settings() for name, entry in PLATFORMS.items()}


def configured(settings: Mapping[str, Section]) -> Iterator[tuple[str, str, Section]]:
    """Each account that is to run, as platform, account and its settings."""
    for name in PLATFORMS:
        accounts = cast(PlatformSettings, settings[name]).accounts()
        for account, section in accounts.items():
            yield name, account, cast(Section, section)


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
