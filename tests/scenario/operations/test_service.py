"""`tidings service`: the unit is written once, never over somebody's changes, and systemd is told or its owner is."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.worlds.process import gateway
from tidings.bots.cli.app import app
from tidings.bots.cli.unit import Unit
from tidings.bots.main import place
from tidings.core.errors import ConfigError, TidingsError

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "deploy" / "tidings.service"
# Stands in for systemd's own: writes down what it was asked, and answers as a running unit does.
SYSTEMCTL = """#!/bin/sh
echo "$@" >>"$(dirname "$0")/asked"
case "$*" in
  *show*)
    echo "NRestarts=2
ActiveState=$ACTIVE
SubState=running
UnitFileState=enabled
StatusText=running 1";;
  *"$FAILS"*) echo "Failed to connect to bus: No medium found" >&2; exit 1;;
esac
"""


class Machine:
    """A user's machine: a folder for units and a systemctl."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.units = folder / "units"
        self.file = self.units / "tidings.service"
        self.home = folder / "home"
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "systemctl").write_text(SYSTEMCTL)
        (self.bin / "systemctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        monkeypatch.setenv("ACTIVE", "active")
        monkeypatch.setenv("FAILS", "nothing of all this")

    @property
    def asked(self) -> list[str]:
        file = self.bin / "asked"
        return file.read_text().splitlines() if file.exists() else []

    def says(self, *words: str) -> Result:
        return CliRunner().invoke(
            app, ["--home", str(self.home), "service", *words, "--folder", str(self.units)], obj=place
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_install_writes_the_unit_and_starts_it_now_and_at_every_boot(machine: Machine) -> None:
    result = machine.says("install")
    assert result.exit_code == 0, result.output
    text = machine.file.read_text()
    assert f"Environment=TIDINGS_HOME={machine.home}\n" in text
    assert "User=" not in text
    assert "WantedBy=default.target" in text
    assert machine.asked == ["--user daemon-reload", "--user enable tidings.service", "--user restart tidings.service"]
    assert "loginctl enable-linger" in result.output
    assert machine.file.stat().st_mode & 0o777 == 0o644


async def test_a_gateway_that_runs_there_already_makes_room_for_the_service(machine: Machine) -> None:
    """`init` has started one, and says that this is the next thing to do."""
    machine.home.mkdir()
    async with gateway(machine.home) as process:
        result = await asyncio.to_thread(machine.says, "install")
        assert result.exit_code == 0, result.output
        assert f"stopped process {process.pid}" in result.output
        assert await asyncio.to_thread(process.wait, 20) == 0
    assert machine.asked[-1] == "--user restart tidings.service"


def test_install_again_changes_nothing(machine: Machine) -> None:
    machine.says("install")
    before = machine.file.stat().st_mtime_ns
    result = machine.says("install")
    assert "is as it should be" in result.output
    assert machine.file.stat().st_mtime_ns == before
    assert [path.name for path in machine.units.iterdir()] == ["tidings.service"]


def test_a_unit_that_was_changed_by_hand_is_shown_and_kept(machine: Machine) -> None:
    machine.says("install", "--no-start")
    changed = machine.file.read_text().replace("WatchdogSec=60", "WatchdogSec=600")
    machine.file.write_text(changed)
    for command in ("install", "remove"):
        result = machine.says(command)
        assert isinstance(result.exception, TidingsError)
        assert "nothing was changed" in str(result.exception)
        assert "-WatchdogSec=600\n+WatchdogSec=60\n" in result.output
        assert machine.file.read_text() == changed
    assert machine.asked == []


def test_force_goes_on_and_keeps_a_copy_each_time(machine: Machine) -> None:
    machine.units.mkdir()
    for number in (1, 2):
        machine.file.write_text(f"# mine {number}\n")
        assert machine.says("install", "--force").exit_code == 0
        assert (machine.units / f"tidings.service.{number}.kept").read_text() == f"# mine {number}\n"
    machine.file.write_text("# mine 3\n")
    assert machine.says("remove", "--force").exit_code == 0
    assert not machine.file.exists()
    assert (machine.units / "tidings.service.3.kept").read_text() == "# mine 3\n"


def test_remove_stops_it_and_leaves_the_home_alone(machine: Machine) -> None:
    machine.says("install", "--no-start")
    machine.home.mkdir()
    result = machine.says("remove")
    assert not machine.file.exists()
    assert machine.home.is_dir()
    assert f"still in {machine.home}" in result.output
    assert machine.asked == ["--user disable --now tidings.service", "--user daemon-reload"]
    assert "there is no" in machine.says("remove").output


def test_without_systemctl_it_says_what_to_do(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(machine.units))
    result = machine.says("install")
    assert result.exit_code == 0
    assert machine.file.exists()
    assert "systemctl is not installed here" in result.output
    assert "  systemctl --user restart tidings.service\n" in result.output
    assert machine.says("status").exit_code == 1


def test_where_systemctl_refuses_its_reason_and_the_rest_are_said(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "enable")
    result = machine.says("install")
    assert result.exit_code == 1
    assert "systemctl --user enable tidings.service did not work: Failed to connect to bus: No medium" in result.output
    assert "  systemctl --user restart tidings.service\n" in result.output
    assert "daemon-reload\n" not in result.output


def test_where_systemctl_refuses_to_stop_it_remove_says_to_say_it_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.says("install", "--no-start")
    monkeypatch.setenv("FAILS", "disable")
    result = machine.says("remove")
    assert result.exit_code == 1
    assert machine.file.exists()
    assert "then run again: tidings service remove; until then the unit stays\n" in result.output


def test_status_says_what_systemd_and_the_gateway_say(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.says("status").exit_code == 1
    machine.says("install")
    result = machine.says("status")
    assert result.exit_code == 0
    assert result.output == (
        f"the unit is {machine.file}\nsystemd says active (running), enabled, restarted 2 times\n"
        "the gateway says: running 1\n"
    )
    monkeypatch.setenv("ACTIVE", "failed")
    machine.file.write_text("changed")
    result = machine.says("status")
    assert result.exit_code == 1
    assert "differs from what install would write now" in result.output
    assert "journalctl --user -u tidings.service" in result.output


def test_for_the_whole_machine_it_runs_as_a_user_of_its_own(machine: Machine) -> None:
    assert isinstance(machine.says("install", "--system", "--user", "root").exception, ConfigError)
    nobody = machine.says("install", "--system", "--user", "no-such-user-here").exception
    assert "useradd --system" in str(nobody)
    missing = machine.says("install", "--system", "--user", "daemon").exception
    assert f"install -d -m 700 -o daemon {machine.home}" in str(missing)
    machine.home.mkdir()
    result = machine.says("install", "--system", "--user", "daemon")
    assert result.exit_code == 0, result.output
    text = machine.file.read_text()
    assert "User=daemon\n" in text
    assert f"ReadWritePaths={machine.home}\n" in text
    assert machine.asked[0] == "daemon-reload"


@pytest.mark.skipif(os.geteuid() != 0, reason="the refusal is for root")
def test_root_is_told_to_choose_another_user(machine: Machine) -> None:
    result = CliRunner().invoke(app, ["--home", str(machine.home), "service", "install"], obj=place)
    assert "should not run as root" in str(result.exception)


def test_the_shipped_unit_is_the_one_that_install_writes() -> None:
    assert SHIPPED.read_text() == str(Unit(("/opt/tidings/bin/tidings",), Path("/var/lib/tidings"), "tidings"))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("/a b/tidings", 'ExecStart="/a b/tidings" run --no-chat'),
        ("/a%b/tidings", 'ExecStart="/a%%b/tidings" run --no-chat'),
        ("/a$b/tidings", 'ExecStart="/a$$b/tidings" run --no-chat'),
        ('/a"b\\c/tidings', 'ExecStart="/a\\"b\\\\c/tidings" run --no-chat'),
        ("/opt/tidings", "ExecStart=/opt/tidings run --no-chat"),
    ],
)
def test_a_path_stands_in_the_unit_as_systemd_reads_it(path: str, line: str) -> None:
    assert line in str(Unit((path,), Path("/home/me/.tidings"))).splitlines()


def test_a_path_with_a_line_in_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot stand in a unit"):
        str(Unit(("/opt/tidings",), Path("/tmp/a\nExecStartPre=/bin/evil")))


def test_what_is_installed_where_people_live_stays_visible() -> None:
    def hides(command: str) -> bool:
        return "ProtectHome=yes" in str(Unit((command,), Path("/var/lib/tidings"), "tidings")).splitlines()

    assert hides("/opt/tidings/bin/tidings")
    assert not hides("/home/ann/.venv/bin/tidings")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("user", ["", "daemon"])
def test_systemd_itself_finds_nothing_wrong_with_the_unit(tmp_path: Path, user: str) -> None:
    home = tmp_path / "with % and space"
    (tmp_path / "tidings.service").write_text(str(Unit(("/bin/true",), home, user, {"TIDINGS_CONFIG": '/a"b'})))
    verified = subprocess.run(
        ["systemd-analyze", "verify", *([] if user else ["--user"]), "--man=no", str(tmp_path / "tidings.service")],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
