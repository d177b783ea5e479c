"""The systemd unit: the one text that deploy/tidings.service shows and `tidings service install` writes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tidings.core.errors import ConfigError

# Characters that systemd would misread within a value.
UNWRITABLE = re.compile(r"[\x00-\x1f\x7f]")
# The homes of people; a program that is installed there must stay visible.
HOMES = ("/home", "/root", "/run/user")
# Only the system's manager may do these things, a user's own may not.
SANDBOX = (
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectSystem=strict",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectProc=invisible",
    "RemoveIPC=yes",
    # A forbidden system call fails with EPERM instead of killing the gateway or its tools.
    "SystemCallFilter=@system-service",
    "SystemCallErrorNumber=EPERM",
)


class Unit(NamedTuple):
    """`user` is empty for a user's own unit, whose manager runs everything as that user."""

    command: tuple[str, ...]
    home: Path
    user: str = ""
    environment: Mapping[str, str] = {}

    def __str__(self) -> str:
        return "\n".join((*self._head(), "", *self._service(), "", *self._install(), ""))

    def _head(self) -> list[str]:
        return [
            "[Unit]",
            "Description=Tidings, a messaging gateway for bots",
            # Messages wait at the platforms meanwhile, so it is worth trying forever.
            "StartLimitIntervalSec=0",
            *(["Wants=network-online.target", "After=network-online.target"] if self.user else []),
        ]

    def _service(self) -> list[str]:
        given = {"TIDINGS_HOME": str(self.home), **self.environment}
        return [
            "[Service]",
            "# It says itself when it serves, and gives signs of life while its store answers.",
            "Type=notify",
            "NotifyAccess=main",
            "WatchdogSec=60",
            *([f"User={self.user}"] if self.user else []),
            *(f"Environment={quoted(f'{name}={value}')}" for name, value in given.items()),
            *(["# For tokens and keys, NAME=value to a line; root's alone: chmod 600."] if self.user else []),
            *(["EnvironmentFile=-/etc/tidings/tidings.env"] if self.user else []),
            f"ExecStart={' '.join(quoted(word).replace('$', '$$') for word in self.command)} run --no-chat",
            "ExecReload=/bin/kill -HUP $MAINPID",
            "# A wrong command line or setting does not mend itself; everything else may.",
            "Restart=always",
            "RestartSec=5",
            "RestartPreventExitStatus=64 78",
            "TimeoutStartSec=300",
            "# Longer than [limits] drain_seconds; what is not finished then is resumed at the next start.",
            "TimeoutStopSec=60",
            "# A command in the background outlives a restart: the next gateway finds it again.",
            "KillMode=process",
            "# A tool that takes all the memory ends, not the gateway.",
            "OOMPolicy=continue",
            "LimitNOFILE=16384",
            "UMask=0077",
            *self._places(),
            "NoNewPrivileges=yes",
            "LockPersonality=yes",
            "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
            "RestrictNamespaces=yes",
            "RestrictRealtime=yes",
            "RestrictSUIDSGID=yes",
            "SystemCallArchitectures=native",
            *(SANDBOX if self.user else ()),
        ]

    def _places(self) -> list[str]:
        """The folders that the service may write: systemd creates a home below /var/lib, any other must be opened."""
        if not self.user:
            return []
        places = (*map(Path, self.command), self.home)
        lives_there = any(place.is_relative_to(home) for place in places for home in HOMES)
        hidden = f"ProtectHome={'read-only' if lives_there else 'yes'}"
        if self.home.parent == Path("/var/lib"):
            return [f"StateDirectory={self.home.name}", "StateDirectoryMode=0700", hidden]
        return [f"ReadWritePaths={quoted(str(self.home))}", hidden]

    def _install(self) -> list[str]:
        return ["[Install]", f"WantedBy={'multi-user' if self.user else 'default'}.target"]


def quoted(word: str) -> str:
    """Quotes a word for systemd, which gives percent signs a meaning of their own."""
    if UNWRITABLE.search(word):
        raise ConfigError(f"{word!r} cannot stand in a unit of systemd: choose a path without such characters")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if escaped != word or shlex.quote(word) != word else word
