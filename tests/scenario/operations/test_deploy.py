"""What lies in deploy/ keeps its promises, as far as that is seen without an engine; `make image-check` sees more."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from tests.deploy import dockerfile
from tests.deploy.size import BUILDS, figures
from tidings.bots.cli.app import app

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
OPERATIONS = ROOT / "docs" / "operations.md"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["tidings"]
FINAL = dockerfile.read(DOCKERFILE)[-1]
UNIT = (DEPLOY / "tidings.service").read_text(encoding="utf-8")

DIRECTIVES = {
    "Unit": "Description StartLimitIntervalSec Wants After",
    "Service": """Type NotifyAccess WatchdogSec User Environment EnvironmentFile ExecStart ExecReload Restart RestartSec
        RestartPreventExitStatus TimeoutStartSec TimeoutStopSec KillMode OOMPolicy LimitNOFILE UMask StateDirectory
        StateDirectoryMode ProtectHome NoNewPrivileges LockPersonality RestrictAddressFamilies RestrictNamespaces
        RestrictRealtime RestrictSUIDSGID SystemCallArchitectures CapabilityBoundingSet AmbientCapabilities PrivateTmp
        PrivateDevices ProtectSystem ProtectClock ProtectControlGroups ProtectHostname ProtectKernelLogs
        ProtectKernelModules ProtectKernelTunables ProtectProc RemoveIPC SystemCallFilter SystemCallErrorNumber""",
    "Install": "WantedBy",
}


def test_nothing_is_wrong_with_the_dockerfile() -> None:
    assert dockerfile.faults(DOCKERFILE, ROOT) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("-slim-bookworm AS build", ":latest AS build", "not pinned"),
        ("--require-hashes ", "", "without its hash"),
        ("--no-build-isolation ", "", "without its hash"),
        ("COPY core core", "COPY . .", "is everything"),
        ("COPY core core", "COPY tests tests", "kept back by .dockerignore"),
        ("COPY --from=build /opt/tidings /opt/tidings", "COPY core core", "only what was built"),
        ("USER 10001:10001", "USER tidings", "USER must be a number"),
        ("USER 10001:10001", "USER 0", "USER must be a number"),
        ("USER 10001:10001\n", "", "USER must be a number"),
        ('ENTRYPOINT ["tidings"]', "ENTRYPOINT tidings", "SIGTERM"),
        ('CMD ["tidings", "status"]', "CMD tidings status", "HEALTHCHECK"),
        ("    TIDINGS_HOME=/data/home", "    TIDINGS_HOME=/data", "TIDINGS_HOME"),
        ("VOLUME /data\n", "", "TIDINGS_HOME"),
        ("-m compileall", "-m this", "nothing is compiled"),
        ("HOME=/tmp", "OPENAI_API_KEY=x HOME=/tmp", "a secret"),
        ("mkdir -m 1777", "apt-get update && mkdir -m 1777", "apt-get"),
        ("RUN mkdir", "ADD mkdir", "no instruction"),
        ("WORKDIR /src", "WORKDIR src", "not absolute"),
        (" AS build", "", "two stages"),
    ],
)
def test_each_fault_of_a_dockerfile_is_found(old: str, new: str, fault: str) -> None:
    assert DOCKERFILE.count(old) >= 1
    assert fault in "\n".join(dockerfile.faults(DOCKERFILE.replace(old, new, 1), ROOT))


@pytest.mark.parametrize(
    ("path", "is_sent"),
    [
        ("core/gateway/gateway.py", True),
        ("core/store/migrations/0001_first.sql", True),
        ("requirements.lock", True),
        ("core/__pycache__/gateway.cpython-311.pyc", False),
        ("adapters/slack/__pycache__/x.cpython-311.pyc", False),
        ("deploy/tidings.env", False),
        (".git/config", False),
        (".venv/bin/python", False),
        ("tests/worlds/world.py", False),
        ("tidings.toml", False),
    ],
)
def test_only_what_the_image_is_built_from_reaches_the_builder(path: str, is_sent: bool) -> None:
    assert dockerfile.sent(path, dockerfile.ignored(ROOT)) is is_sent


def test_what_the_image_takes_away_again_is_what_only_builds() -> None:
    taken = re.search(r"uninstall --yes ([\w -]+?) *\\?\n", DOCKERFILE)
    assert taken is not None
    assert set(taken[1].split()) == BUILDS
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for name in BUILDS:
        assert f"\n{name}==" in lock


def test_the_locks_hold_everything_that_the_project_asks_for() -> None:
    """Else the image would lack it, though it is there in everybody's own environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {re.split(r"[^\w.-]", each)[0].replace(".", "-").lower() for each in project["dependencies"]}
    for lock in ("requirements.lock", "requirements-dev.lock"):
        locked = set(re.findall(r"^([\w-]+)==", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE))
        assert asked - locked == set()


def test_compose_runs_the_image_as_it_was_made_to_be_run() -> None:
    assert COMPOSE["volumes"] == [f"data:{FINAL.all('VOLUME')[0].rest}"]
    user = FINAL.last("USER")
    assert user is not None
    assert COMPOSE["user"] == user.rest
    assert (ROOT / "deploy" / COMPOSE["build"]["context"] / COMPOSE["build"]["dockerfile"]).resolve().is_file()
    assert COMPOSE["read_only"] is True
    assert COMPOSE["cap_drop"] == ["ALL"]
    assert COMPOSE["init"] is True
    # Nothing is reachable from outside before its owner says so.
    assert "ports" not in COMPOSE


def test_the_unit_has_directives_that_systemd_knows_and_each_once() -> None:
    section, seen = "", set()
    for line in UNIT.splitlines():
        if not line or line.startswith("#"):
            continue
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
            continue
        name, equals, _ = line.partition("=")
        assert equals
        assert name in DIRECTIVES[section].split(), line
        assert (section, name) not in seen, line
        seen.add((section, name))
    assert ("Service", "WatchdogSec") in seen


def test_whoever_stops_it_waits_longer_than_it_drains() -> None:
    from tidings.core.settings import Limits

    waits = re.search(r"TimeoutStopSec=(\d+)", UNIT)
    assert waits is not None
    assert int(waits[1]) > 2 * Limits().drain_seconds
    assert COMPOSE["stop_grace_period"] == f"{waits[1]}s"
    for file in (OPERATIONS, DEPLOY / "Dockerfile"):
        starts = re.findall(r"docker run -d .*", file.read_text(encoding="utf-8"))
        assert starts, file.name
        assert all(" --init " in start and f" --stop-timeout {waits[1]} " in start for start in starts), file.name


def test_the_page_on_operations_says_what_becomes_of_commands_in_the_background() -> None:
    text = OPERATIONS.read_text(encoding="utf-8")
    assert "KillMode=process" in UNIT.splitlines()
    assert "`KillMode=process`" in text


@pytest.mark.parametrize(
    "page", sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]), ids=lambda page: page.name
)
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    wrong = []
    for first, second in re.findall(r"(?:`|^    |bin/| tidings )tidings ([a-z]+)(?: ([a-z]+))?", text, re.MULTILINE):
        found = group.commands.get(first)
        if found is None or (isinstance(found, TyperGroup) and second and second not in found.commands):
            wrong.append(f"{first} {second}")
    assert wrong == []


def test_the_size_counts_packages_and_leaves_out_what_only_builds(tmp_path: Path) -> None:
    for name in ("some_thing-1.0", "other-2.0", "hatchling-1.0", "tidings-0.1.0"):
        (tmp_path / f"{name}.dist-info").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.py").write_bytes(b"x" * 2_000_000)
    (tmp_path / "other" / "a.pyc").write_bytes(b"x" * 1_000_000)
    found = figures(tmp_path)
    assert (found.packages, found.megabytes, found.written) == (2, 3.0, 2.0)
    assert found.heaviest[0] == ("other", 3.0)
