"""The fence by its arguments: what the settings say becomes what is started, and what is missing is said."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from pydantic import ValidationError

from tidings.core.desk.fence import Wall
from tidings.core.errors import Unfenced
from tidings.core.settings import Terminal
from tidings.core.work.processes import container, launcher, remote, sandbox, syscalls, wall
from tidings.core.work.processes.container import Container
from tidings.core.work.processes.enclosed import fields
from tidings.core.work.processes.fence import Local, choose
from tidings.core.work.processes.remote import Remote
from tidings.core.work.processes.sandbox import Sandbox

SSH = {"backend": "ssh", "host": "far.example.com", "user": "visitor"}


def test_the_sandbox_is_what_one_gets_without_choosing(tmp_path: Path) -> None:
    assert isinstance(choose(Terminal(), tmp_path), Sandbox)
    assert isinstance(choose(Terminal(backend="local"), tmp_path), Local)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"backend": "container"}, 'backend = "container" needs image'),
        ({"backend": "ssh", "host": "far"}, 'backend = "ssh" needs user'),
        ({**SSH}, 'backend = "ssh" needs known_hosts'),
        ({"backend": "ssh", "host": "-oProxyCommand=sh"}, "without a dash at its start"),
        ({"backend": "local", "network": ["example.com"]}, 'network by list is for backend = "sandbox"'),
        ({"network": "on"}, "Input should be 'off'"),
    ],
)  # fmt: skip
def test_settings_that_cannot_hold_say_what_is_missing(written: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Terminal.model_validate(written)


def test_a_container_sees_one_folder_and_has_no_network_and_no_rights(tmp_path: Path) -> None:
    settings = Terminal(backend="container", engine="docker", image="debian:12", processes=9, memory_bytes=1000)
    words = {"HOME": "/w", "PATH": "/x", "TIDINGS_SESSION_RUN": "run_1"}
    built = container.arguments(settings, "/usr/bin/docker", "tidings-one", Path("/w"), words)
    pairs = list(zip(built, built[1:], strict=False))
    for pair in (
        ("--network", "none"),
        ("--cap-drop", "ALL"),
        ("--security-opt", "no-new-privileges"),
        ("--pids-limit", "9"),
        ("--memory", "1000"),
        ("--mount", "type=bind,source=/w,target=/w"),
        ("--workdir", "/w"),
        ("--name", "tidings-one"),
        ("--env", "TIDINGS_SESSION_RUN=run_1"),
    ):
        assert pair in pairs
    assert {"run", "--rm", "--init", "--read-only"} <= set(built)
    assert built[-1] == "debian:12"
    assert built.count("--mount") == 1
    assert not {"--privileged", "--volume", "-v", "--publish", "PATH=/x"} & set(built)


async def test_a_container_is_removed_whatever_becomes_of_its_command(tmp_path: Path) -> None:
    engine = tmp_path / "podman"
    engine.write_text("#!/bin/sh\n")
    settings = Terminal(backend="container", image="debian:12")
    engine.chmod(0o755)
    with pytest.raises(Unfenced, match="is missing: install it, or choose another"):
        await Container(settings, str(tmp_path / "none")).describe()
    enclosed = await Container(settings, str(engine)).around(("/bin/bash", "-c", "true"), tmp_path, {})
    assert enclosed.wall is not None
    assert enclosed.wall.afterwards[1:3] == ("rm", "--force")
    assert enclosed.wall.afterwards[-1] in enclosed.command
    assert enclosed.command[-3:] == ["sh", "-c", "true"]


def test_ssh_trusts_no_unknown_host_and_forwards_nothing() -> None:
    settings = Terminal(**SSH, known_hosts="/keys/known", identity_file="/keys/own", port=2222)
    built = remote.options(settings)
    for option in (
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        "UserKnownHostsFile=/keys/known",
        "GlobalKnownHostsFile=/dev/null",
        "ForwardAgent=no",
        "ClearAllForwardings=yes",
        "PermitLocalCommand=no",
        "IdentitiesOnly=yes",
    ):
        assert option in built
    assert built[:2] == ["-F", "/dev/null"]
    assert built[-1] == "visitor@far.example.com"


async def test_ssh_without_known_hosts_says_how_to_make_them(tmp_path: Path) -> None:
    settings = Terminal(**SSH, known_hosts=str(tmp_path / "known"))
    with pytest.raises(Unfenced, match="make it with: ssh-keyscan far.example.com|ssh is missing"):
        await Remote(settings).around(("sh", "-c", "true"), tmp_path, {})


def test_a_wall_is_read_as_it_was_written() -> None:
    around = Wall(
        folder="/a b/ü\n", user=7, disk=9, filter="00ff", readable=("/usr", "/x'y"), texts=("a\nb", ""), waits=True
    )
    known = fields(around)
    assert wall.read(wall.written(known)) == {
        name: list(value) if isinstance(value, tuple) else value for name, value in known.items()
    }


def test_the_filter_knows_the_processor_or_there_is_none() -> None:
    for machine in syscalls.ARCHITECTURES:
        steps = bytes.fromhex(syscalls.program((1, 2), machine))
        assert len(steps) % 8 == 0
        assert len(steps) // 8 < 4096
        # An old Landlock knows nothing of truncating, so the filter refuses it.
        assert len(syscalls.program((), machine, truncates=False)) == len(syscalls.program((), machine)) + 2 * 16
    assert syscalls.program((1, 2), "pdp11") == ""
    assert bool(syscalls.program(())) is (platform.machine() in syscalls.ARCHITECTURES)


def test_only_folders_of_the_system_and_the_workspace_are_in_the_sandbox(tmp_path: Path) -> None:
    fence = Sandbox(Terminal(readable=("/opt/tools",)), tmp_path)
    enclosed = fence._by_bubblewrap(("true",), tmp_path / "workspaces" / "one", {})
    command = list(enclosed.command)
    writable = [command[place + 1] for place, word in enumerate(command) if word == "--bind"]
    assert writable == [str(tmp_path / "workspaces" / "one")]
    shown = {command[place + 1] for place, word in enumerate(command) if word.startswith("--ro-bind")}
    shown -= {str(number) for number in range(20)}
    assert shown <= {*sandbox.SYSTEM, *sandbox.CONFIGURATION, "/opt/tools"}
    assert {"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"} <= set(command)
    assert not any(path.startswith(("/home", "/root", "/run", "/var", "/etc/shadow")) for path in shown)


def test_a_deleted_file_that_is_still_open_cannot_fill_the_disk(tmp_path: Path) -> None:
    """It is in no folder, so the disk itself is looked at before it becomes full."""
    nearly_full = launcher.Disk(str(tmp_path), 20_000_000, reserved=1.0)
    roomy = launcher.Disk(str(tmp_path), 20_000_000, reserved=0.0)
    with (tmp_path / "hidden").open("wb") as file:
        (tmp_path / "hidden").unlink()
        os.posix_fallocate(file.fileno(), 0, 100_000_000)
        assert nearly_full.is_full()
        assert not roomy.is_full()


def test_folders_nested_too_deeply_to_be_measured_count_as_too_much(tmp_path: Path) -> None:
    disk = launcher.Disk(str(tmp_path), 20_000_000)
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(launcher.DEEPEST + 5):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with (tmp_path / "content").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 10_000_000)
        assert disk.is_full()
